/**
 * What may happen to a run between its start and its end: its directory is removed, or the one that
 * holds all of them; its shim records the outcome and does not tell; its daemon is another one by
 * the end. Nothing runs twice, and nothing stands still for good.
 *
 * @module
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { inRepository } from "../tools/launcher.ts";
import { ENTRIES } from "../tools/wrapper.ts";
import { type TestBridge, there, until } from "./helpers/bridge.ts";
import { type Counted, countedBridge, marking } from "./helpers/counting.ts";

/** Waits for a file beside the marks. */
const WAIT = '[ "$2" != wait ] || while [ ! -e "$MARKS.$1" ]; do sleep 0.05; done';

async function bridgeWith(): Promise<Omit<Counted, "go"> & { go(id: string): void }> {
  const c = await countedBridge({
    verbs: {
      count: marking(),
      look: marking(["wait"], { timeout_s: 120 }),
      change: marking(["wait"], { class: "mutating", timeout_s: 120 }),
    },
    then: WAIT,
    limits: { concurrency: 2, grace_s: 1 },
  });
  const marks = JSON.parse(Deno.readTextFileSync(c.bridge.path("bridge.jsonc"))).env.MARKS;
  const made: string[] = [];
  return {
    ...c,
    go(id) {
      made.push(`${marks}.${id}`);
      Deno.writeTextFileSync(`${marks}.${id}`, "");
    },
    async [Symbol.asyncDispose]() {
      for (const path of made) Deno.removeSync(path);
      await c[Symbol.asyncDispose]();
    },
  };
}

/** Starts a request that waits, and gives its run directory. */
async function waiting(bridge: TestBridge, id: string, verb: string): Promise<string> {
  const before = new Set([...Deno.readDirSync(bridge.path("state/runs"))].map((e) => e.name));
  bridge.submit(id, { verb });
  return await until(`the run of ${id}`, () => {
    const dirs = [...Deno.readDirSync(bridge.path("state/runs"))].filter((e) =>
      !before.has(e.name)
    );
    const dir = bridge.path("state/runs", dirs[0]?.name ?? "none");
    return there(`${dir}/taken.json`) ? dir : null;
  });
}

Deno.test("a run whose directory is removed is uncertain when its command has ended, and holds up nothing", async (t) => {
  await using c = await bridgeWith();
  const { bridge } = c;
  await bridge.serve();
  for (const verb of ["look", "change"]) {
    await t.step(verb, async () => {
      const dir = await waiting(bridge, `run-${verb}`, verb);
      await until("the command", () => c.runs().includes(`run-${verb}`));
      Deno.removeSync(dir, { recursive: true });
      c.go(`run-${verb}`);
      // Long before its limit.
      const result = await bridge.final(`run-${verb}`, 30_000);
      assertEquals([result.state, result.reason], ["uncertain", "uncertain"]);
      assertEquals((await bridge.ask(`next-${verb}`, { verb: "count" })).outcome, "succeeded");
    });
  }
  await t.step("all of them", async () => {
    await waiting(bridge, "last", "look");
    await until("the command", () => c.runs().includes("last"));
    Deno.removeSync(bridge.path("state/runs"), { recursive: true });
    assertEquals((await bridge.ask("anew", { verb: "count" })).outcome, "succeeded");
    assertEquals(Deno.statSync(bridge.path("state/runs")).mode! & 0o777, 0o700);
    c.go("last");
    assertEquals((await bridge.final("last", 30_000)).state, "uncertain");
  });
  assertEquals(c.runs(), ["run-look", "next-look", "run-change", "next-change", "last", "anew"]);
});

Deno.test("a shim that has recorded an outcome and does not tell of it is ended, and the outcome counts", async () => {
  await using c = await bridgeWith();
  const { bridge } = c;
  const path = bridge.path("bin/chb");
  const text = Deno.readTextFileSync(path);
  Deno.removeSync(path);
  Deno.writeTextFileSync(
    path,
    text.replaceAll(ENTRIES.shim, inRepository("tests", "helpers", "mute_main.ts")),
    { mode: 0o755 },
  );
  await bridge.serve();
  for (const id of ["one", "two", "three"]) bridge.submit(id, { verb: "count" });
  for (const id of ["one", "two", "three"]) {
    assertEquals((await bridge.final(id, 60_000)).outcome, "succeeded", id);
  }
  assertStringIncludes(bridge.log, "shim-silent");
  assertEquals(c.runs().toSorted(), ["one", "three", "two"]);
});

Deno.test("the time of a run counts from its own start, whatever daemon finds that nothing can end it", async () => {
  await using c = await bridgeWith();
  const { bridge } = c;
  await bridge.serve();
  const dir = await waiting(bridge, "long", "change");
  await until("the command", () => c.runs().includes("long"));
  const { pgid } = JSON.parse(Deno.readTextFileSync(`${dir}/taken.json`));
  await bridge.stop("SIGKILL");
  // The shim alone: its command lives on, and nobody will see how it ends.
  Deno.kill(pgid, "SIGKILL");
  const db = new DatabaseSync(bridge.path("state/ledger.db"));
  db.exec(
    "UPDATE rows SET started_tick = started_tick - 3600000, started_ms = started_ms - 3600000 " +
      "WHERE id = 'long'",
  );
  db.close();
  await bridge.serve();
  assertEquals((await bridge.final("long", 30_000)).state, "uncertain");
  const told = bridge.audit().find((r) => r["event"] === "uncertain");
  assertEquals([told?.["id"], told?.["pgid"]], ["long", pgid], "its group lives");
  // Once their directory is gone nothing else would end it.
  Deno.kill(-pgid, "SIGKILL");
  assertEquals(c.runs(), ["long"]);
});
