/**
 * Stuck entries: told once, left in peace, bounded, and removable by the commands that are shown.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { StuckList } from "../src/spool/stuck.ts";
import { AGENT, entry, names, PATHS, put, sh, SpoolRoot } from "./spool_fixture.ts";

class Clock {
  ms = 0;
  readonly now = () => this.ms;
}

Deno.test("note() says true for a new entry and false from then on (Q7)", () => {
  using _ = new SpoolRoot();
  put("a.json");
  const stuck = new StuckList();
  assertEquals(stuck.note(AGENT, "a.json", "EACCES"), true);
  for (let i = 0; i < 5; i++) {
    stuck.scanned(AGENT);
    assertEquals(stuck.note(AGENT, "a.json", "EACCES"), false);
  }
  assertEquals(stuck.report(AGENT).count, 1);
  assertEquals(stuck.report(AGENT).entries, [
    { name: "a.json", where: PATHS.queue, error: "EACCES" },
  ]);
  assertEquals(stuck.report("other").count, 0);
});

Deno.test("mayTry() waits a minute, then twice as long each time, up to an hour", () => {
  using _ = new SpoolRoot();
  put("a.json");
  const clock = new Clock();
  const stuck = new StuckList({ now: clock.now });
  assertEquals(stuck.mayTry(AGENT, "a.json"), true);
  const waits: number[] = [];
  for (let i = 0; i < 9; i++) {
    stuck.note(AGENT, "a.json", "EBUSY");
    let waited = 0;
    while (!stuck.mayTry(AGENT, "a.json")) {
      clock.ms += 15_000;
      waited += 15;
    }
    waits.push(waited);
  }
  assertEquals(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
});

Deno.test("mayTry() says true at once when something else has the name now (P10)", () => {
  using _ = new SpoolRoot();
  Deno.mkdirSync(entry("a.json"));
  const stuck = new StuckList();
  stuck.note(AGENT, "a.json", "EACCES");
  assertEquals(stuck.mayTry(AGENT, "a.json"), false);
  // Both exist at the same time, so that the inodes differ.
  put("b.json");
  Deno.removeSync(entry("a.json"));
  Deno.renameSync(entry("b.json"), entry("a.json"));
  assertEquals(stuck.mayTry(AGENT, "a.json"), true);
  assertEquals(stuck.note(AGENT, "a.json", "EACCES"), true, "another entry is told again");
});

Deno.test("scanned() forgets what a whole scan did not meet", () => {
  using _ = new SpoolRoot();
  put("a.json");
  put("b.json");
  const stuck = new StuckList();
  stuck.note(AGENT, "a.json", "EACCES");
  stuck.note(AGENT, "b.json", "EACCES");
  stuck.scanned(AGENT);
  stuck.mayTry(AGENT, "a.json");
  stuck.scanned(AGENT);
  assertEquals(stuck.report(AGENT).entries.map((one) => one.name), ["a.json"]);
});

Deno.test("an entry that is stuck among the claims is kept until it is gone from there", () => {
  using _ = new SpoolRoot();
  const clock = new Clock();
  const stuck = new StuckList({ now: clock.now });
  const path = `${PATHS.claims}/-.1.${"0".repeat(32)}`;
  Deno.mkdirSync(`${path}/x`, { recursive: true });
  assertEquals(stuck.note(AGENT, "evil name", "QUARANTINE-FULL", path), true);
  for (let i = 0; i < 3; i++) stuck.scanned(AGENT);
  assertEquals(stuck.report(AGENT).entries[0]?.where, PATHS.claims);
  const [command] = stuck.commands();
  sh(command ?? "false");
  assertEquals(names(PATHS.claims), []);
  clock.ms += 60_001;
  stuck.scanned(AGENT);
  assertEquals(stuck.report(AGENT).count, 0);
});

Deno.test("names that cannot be addressed are counted per scan and told once (P16)", () => {
  using _ = new SpoolRoot();
  const stuck = new StuckList();
  let told = 0;
  for (let scan = 0; scan < 3; scan++) {
    for (let i = 0; i < 1001; i++) if (stuck.note(AGENT, "\uFFFD.json", "EILSEQ")) told++;
    stuck.scanned(AGENT);
    assertEquals(stuck.report(AGENT).count, 1001);
  }
  assertEquals(told, 1);
  assertEquals(stuck.report(AGENT).commands.length, 1);
  stuck.scanned(AGENT);
  assertEquals(stuck.report(AGENT), { count: 0, entries: [], commands: [] });
});

Deno.test("memory is bounded: entries beyond are counted, told once, and still shown as a number", () => {
  using _ = new SpoolRoot();
  const stuck = new StuckList({ known: 50, shown: 10 });
  let told = 0;
  for (let i = 0; i < 500; i++) if (stuck.note(AGENT, `x${i}.json`, "EACCES")) told++;
  assertEquals(told, 51);
  const report = stuck.report(AGENT);
  assertEquals([report.count, report.entries.length], [500, 10]);
});

Deno.test("entries beyond the bound are left in peace too, until their time or another inode (Q7)", () => {
  using _ = new SpoolRoot();
  const all = Array.from({ length: 60 }, (_, i) => `x${i}.json`);
  for (const name of all) put(name);
  const clock = new Clock();
  const stuck = new StuckList({ now: clock.now, known: 10, crowd: 40 });
  const tries = () => {
    const tried = all.filter((name) => stuck.mayTry(AGENT, name));
    for (const name of tried) stuck.note(AGENT, name, "EACCES");
    stuck.scanned(AGENT);
    return tried.length;
  };
  assertEquals([tries(), tries(), tries()], [60, 10, 10], "those beyond every bound are tried");
  assertEquals([stuck.count(AGENT), stuck.report(AGENT).count], [60, 60]);
  clock.ms += 60_001;
  // The known ones at once, the others when the scan that found their time over has ended.
  assertEquals([tries(), tries(), tries()], [20, 50, 10]);
  clock.ms += 60_001;
  assertEquals([tries(), tries()], [10, 10], "the wait doubles");
  put("new.json");
  Deno.removeSync(entry("x59.json"));
  Deno.renameSync(entry("new.json"), entry("x30.json"));
  assertEquals(stuck.mayTry(AGENT, "x30.json"), true, "something else has the name");
});

Deno.test("entries beyond the bound that have gone are forgotten by the next whole scan", () => {
  using _ = new SpoolRoot();
  for (let i = 0; i < 4; i++) put(`x${i}.json`);
  const stuck = new StuckList({ known: 1 });
  for (let i = 0; i < 4; i++) stuck.note(AGENT, `x${i}.json`, "EACCES");
  stuck.scanned(AGENT);
  assertEquals([0, 1, 2].map((i) => stuck.mayTry(AGENT, `x${i}.json`)), [false, false, false]);
  assertEquals(stuck.count(AGENT), 4, "not before the scan has ended");
  stuck.scanned(AGENT);
  assertEquals(stuck.count(AGENT), 3);
});

Deno.test("note() tells of so many entries a minute, whoever makes ever new ones (Q5)", () => {
  using _ = new SpoolRoot();
  const clock = new Clock();
  const stuck = new StuckList({ now: clock.now, told: 20 });
  const flood = (from: number) => {
    let told = 0;
    for (let i = from; i < from + 50; i++) if (stuck.note(AGENT, `x${i}.json`, "EACCES")) told++;
    return told;
  };
  assertEquals([flood(0), flood(50)], [20, 0]);
  assertEquals(stuck.report(AGENT).count, 100);
  clock.ms += 60_000;
  assertEquals(flood(100), 20);
  assertEquals(stuck.note("other", "y.json", "EACCES"), true, "each agent has its own");
});

Deno.test("hostile names are shown escaped and are in no command (P18)", () => {
  using _ = new SpoolRoot();
  const name = "$(touch pwned)\n'\u001b[2J.json";
  Deno.mkdirSync(`${PATHS.queue}/${name}/x`, { recursive: true });
  const stuck = new StuckList();
  stuck.note(AGENT, name, "EACCES");
  const { entries, commands } = stuck.report(AGENT);
  assertMatch(entries[0]?.name ?? "", /^[ -~]+$/);
  const [command, ...more] = commands;
  assertEquals(more, []);
  assertMatch(command ?? "", /^sudo find spool\/main\/queue [ -~]+ -inum [0-9]+ [ -~]+$/);
});

Deno.test("the commands remove exactly what is stuck (P10, P16)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  put("good.json");
  put("\uFFFD.json");
  put(" spaces are fine.json");
  Deno.mkdirSync(`${PATHS.queue}/full.json/x`, { recursive: true });
  Deno.symlinkSync(root.outside, `${PATHS.queue}/full.json/link`);
  sh(`cd ${PATHS.queue} && touch "$(printf '\\377\\376.json')" "$(printf 'a\\nb.json')"`);
  const stuck = new StuckList();
  stuck.note(AGENT, "\uFFFD.json", "EILSEQ");
  stuck.note(AGENT, "full.json", "EACCES");
  for (const command of stuck.commands()) {
    // Whoever runs the tests need not be asked for a password.
    assert(sh(command.replace(/^sudo /, "")) === "");
  }
  assertEquals(names(PATHS.queue), [" spaces are fine.json", "good.json"]);
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
});
