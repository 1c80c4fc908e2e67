/**
 * Scans: bounded steps, every name once a round, and errors as data.
 *
 * @module
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { Scanner } from "../src/spool/scan.ts";
import { claimEntry } from "../src/spool/claim.ts";
import { randomHex } from "../src/names.ts";
import { AGENT, entry, IS_ROOT, modeOf, PATHS, put, sh, SpoolRoot } from "./spool_fixture.ts";

/** All names of one round. */
async function round(scanner: Scanner, bound: number): Promise<string[]> {
  const all: string[] = [];
  for (;;) {
    const { names, wrapped, error } = await scanner.next(bound);
    assertEquals(error, null);
    assert(names.length <= bound, `${names.length} names`);
    all.push(...names);
    if (wrapped) return all;
  }
}

Deno.test("next() gives every name once a round, in bounded steps, over and over (Q5)", async () => {
  using _ = new SpoolRoot();
  sh(`cd ${PATHS.queue} && seq 2500 | sed 's/$/.json/' | xargs touch`);
  const scanner = new Scanner(PATHS.queue);
  for (let i = 0; i < 2; i++) {
    const all = await round(scanner, 100);
    assertEquals(all.length, 2500);
    assertEquals(new Set(all).size, 2500);
  }
  await scanner.reset();
});

Deno.test("next() goes on where it stopped while names come and go, and misses none that stays", async () => {
  using _ = new SpoolRoot();
  for (let i = 0; i < 300; i++) put(`stay${i}.json`);
  const scanner = new Scanner(PATHS.queue);
  const seen = new Set<string>();
  for (let i = 0;; i++) {
    const { names, wrapped } = await scanner.next(20);
    for (const name of names) {
      seen.add(name);
      if (name.startsWith("go")) {
        claimEntry(AGENT, name, { arrival_ms: 1, random: randomHex(16) });
      }
    }
    put(`go${i}.json`);
    if (wrapped) break;
  }
  assertEquals([...seen].filter((name) => name.startsWith("stay")).length, 300);
  await scanner.reset();
});

Deno.test("next() finds a valid request behind many that cannot be handled", async () => {
  using _ = new SpoolRoot();
  sh(`cd ${PATHS.queue} && seq 1500 | sed 's/^/./; s/$/.tmp/' | xargs touch`);
  put("valid.json");
  const all = await round(new Scanner(PATHS.queue), 64);
  assert(all.includes("valid.json"));
});

Deno.test("next() reports a missing directory and goes on when it is back", async () => {
  using _ = new SpoolRoot();
  const scanner = new Scanner(PATHS.queue);
  Deno.removeSync(PATHS.queue);
  const { names, wrapped, error } = await scanner.next(10);
  assertEquals([names, wrapped, error], [[], true, "ENOENT"]);
  Deno.mkdirSync(PATHS.queue);
  put("a.json");
  assertEquals(await round(scanner, 10), ["a.json"]);
});

Deno.test("next() sees the new directory after the end of the round in the old one", async () => {
  using _ = new SpoolRoot();
  for (let i = 0; i < 30; i++) put(`old${i}.json`);
  const scanner = new Scanner(PATHS.queue);
  await scanner.next(10);
  Deno.renameSync(PATHS.queue, "spool/main/old");
  Deno.mkdirSync(PATHS.queue);
  put("new.json");
  await scanner.reset();
  assertEquals(await round(scanner, 10), ["new.json"]);
});

const shut = {
  name: "next() reports a directory that it may not list, and does not open it up (P13)" +
    (IS_ROOT ? " # SKIP root may list everything" : ""),
  ignore: IS_ROOT,
};

Deno.test(shut, async () => {
  using _ = new SpoolRoot();
  put("a.json");
  Deno.chmodSync(PATHS.queue, 0o000);
  const scanner = new Scanner(PATHS.queue);
  for (let i = 0; i < 3; i++) assertEquals((await scanner.next(10)).error, "EACCES");
  assertEquals(modeOf(PATHS.queue), "0000");
  Deno.chmodSync(PATHS.queue, 0o700);
  assertEquals(await round(scanner, 10), ["a.json"]);
});

Deno.test("next() lists names of every kind without touching what they are (P7, P18)", async () => {
  using _ = new SpoolRoot();
  sh(`mkfifo ${entry("f.json")}`);
  Deno.symlinkSync("l.json", entry("l.json"));
  Deno.mkdirSync(entry("d.json"));
  put("x\n.json");
  assertEquals((await round(new Scanner(PATHS.queue), 10)).sort(), [
    "d.json",
    "f.json",
    "l.json",
    "x\n.json",
  ]);
});

Deno.test("next() refuses to run twice at a time", async () => {
  using _ = new SpoolRoot();
  const scanner = new Scanner(PATHS.queue);
  const first = scanner.next(10);
  await assertRejects(() => scanner.next(10), TypeError);
  await first;
});
