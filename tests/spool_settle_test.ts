/**
 * When an entry is ripe to be claimed, with clocks that the tests move.
 *
 * @module
 */
import { assert, assertEquals, assertLess } from "@std/assert";
import { cameAt, type Noted, SETTLE, Settler } from "../src/spool/settle.ts";
import type { EntryEvent, Look } from "../src/spool/types.ts";

const WALL = Date.UTC(2026, 5, 1, 12, 0, 0, 500);

/** A settler with its clocks and a directory in memory. */
class Bench {
  ms = 1000;
  readonly files = new Map<string, Look>();
  readonly settler: Settler;

  constructor(options: { maxWaiting?: number; maxTemporary?: number } = {}) {
    this.settler = new Settler({
      ...options,
      now: () => this.ms,
      wall: () => WALL + this.ms - 1000,
    });
  }

  /** Puts an entry there, changed now. */
  file(name: string, size: number, more: Partial<Look> = {}): void {
    const wall = WALL + this.ms - 1000;
    this.files.set(name, {
      kind: "file",
      dev: "1",
      ino: name,
      nlink: 1,
      uid: 0,
      size,
      ctime_ms: Math.floor(wall / 1000) * 1000,
      mtime_ms: wall,
      mode: 0o644,
      ...more,
    });
  }

  event(name: string, ...kinds: EntryEvent[]): Noted {
    let noted: Noted = "noted";
    for (const kind of kinds) {
      const now = this.settler.event(name, kind);
      if (noted === "noted") noted = now;
    }
    return noted;
  }

  /** One turn of the loop: what is due is looked at; what is ripe is claimed and goes. */
  turn(limit = 1000): string[] {
    const claimed: string[] = [];
    for (const name of this.settler.take(limit)) {
      const look = this.files.get(name);
      if (look === undefined) {
        this.settler.forget(name);
        continue;
      }
      if (this.settler.settle(name, look).kind === "claim") {
        claimed.push(name);
        this.files.delete(name);
      }
    }
    return claimed;
  }

  /** Milliseconds from now until the entry is claimed, by timers as the daemon sets them. */
  until(name: string, most: number): number {
    const began = this.ms;
    for (;;) {
      if (this.turn().includes(name)) return this.ms - began;
      const wait = this.settler.nextIn();
      assert(wait !== null, `${name} waits for nothing`);
      this.ms += Math.max(1, wait);
      assertLess(this.ms - began, most + 1, name);
    }
  }
}

/** Within the grid that due times are rounded to. */
function assertAbout(actual: number, expected: number): void {
  assert(actual >= expected && actual <= expected + 6, `${actual} instead of ${expected}`);
}

Deno.test("an entry that arrived by rename is ripe at once, empty or not", () => {
  for (const size of [0, 10]) {
    const bench = new Bench();
    bench.file("a.json", size);
    bench.event("a.json", "rename");
    assertEquals(bench.turn(), ["a.json"]);
  }
});

Deno.test("a closed file is ripe 30 ms after the last event", () => {
  const bench = new Bench();
  bench.file("a.json", 10);
  bench.event("a.json", "create", "modify", "close");
  assertEquals(bench.turn(), []);
  bench.ms += 20;
  bench.event("a.json", "modify");
  assertAbout(bench.until("a.json", 100), SETTLE.closed);
});

Deno.test("a writer that writes a byte every 20 ms for a second is waited for", () => {
  const bench = new Bench();
  bench.event("a.json", "create");
  for (let i = 0; i < 50; i++) {
    bench.file("a.json", i + 1);
    bench.event("a.json", "modify");
    assertEquals(bench.turn(), [], `byte ${i}`);
    bench.ms += 20;
  }
  bench.event("a.json", "close");
  assertAbout(bench.until("a.json", 100), SETTLE.closed);
});

Deno.test("an open writer that pauses is waited for until 3 s after first sight, and no longer", () => {
  const bench = new Bench();
  bench.file("a.json", 5);
  bench.event("a.json", "create", "modify");
  assertAbout(bench.until("a.json", 4000), SETTLE.latest);
});

Deno.test("a writer that never stops is cut off 3 s after first sight", () => {
  for (const events of [true, false]) {
    const bench = new Bench();
    bench.settler.found("a.json");
    const began = bench.ms;
    let claimed: string[] = [];
    for (let size = 1; claimed.length === 0; size++) {
      bench.file("a.json", size);
      if (events) bench.event("a.json", "modify");
      claimed = bench.turn();
      bench.ms += 10;
      assertLess(bench.ms - began, 3100);
    }
    assertLess(2980, bench.ms - began);
  }
});

Deno.test("an empty file that nobody closed is ripe 1 s after first sight, with events or without", () => {
  for (const events of [true, false]) {
    const bench = new Bench();
    bench.file("a.json", 0);
    if (events) bench.event("a.json", "create");
    else bench.settler.found("a.json");
    assertAbout(bench.until("a.json", 2000), SETTLE.empty);
  }
});

Deno.test("an empty file that its writer fills within the second is waited for", () => {
  const bench = new Bench();
  bench.file("a.json", 0);
  bench.event("a.json", "create");
  bench.ms += 700;
  assertEquals(bench.turn(), []);
  bench.file("a.json", 20);
  bench.event("a.json", "modify");
  bench.event("a.json", "close");
  assertAbout(bench.until("a.json", 100), SETTLE.closed);
});

Deno.test("without events a file is ripe when it stood still for 250 ms", () => {
  const bench = new Bench();
  bench.file("a.json", 10);
  bench.settler.found("a.json");
  assertEquals(bench.turn(), []);
  bench.ms += 200;
  // Rewritten in place: same size, and the ctime is too coarse to tell.
  bench.file("a.json", 10);
  assertEquals(bench.turn(), []);
  bench.ms += 60;
  assertEquals(bench.turn(), []);
  assertAbout(bench.until("a.json", 300), SETTLE.still - 1);
});

Deno.test("a file that appeared by link and unlink, with no write to be heard, does not wait for 3 s", () => {
  const bench = new Bench();
  bench.file("a.json", 10);
  bench.event("a.json", "create");
  assertAbout(bench.until("a.json", 1000), SETTLE.still);
});

Deno.test("what a scan finds and was changed more than 3 s ago is ripe at once", () => {
  const bench = new Bench();
  bench.file("old.json", 10, { ctime_ms: WALL - 5000 });
  bench.file("empty.json", 0, { ctime_ms: WALL - 5000 });
  bench.file("recent.json", 10, { ctime_ms: WALL - 2000 });
  bench.file("future.json", 10, { ctime_ms: WALL + 3_600_000 });
  for (const name of bench.files.keys()) bench.settler.found(name);
  assertEquals(bench.turn(), ["old.json", "empty.json"]);
  assertAbout(bench.until("future.json", 300), SETTLE.still);
});

Deno.test("an mtime of long ago does not make a file ripe (N6)", () => {
  const bench = new Bench();
  bench.file("a.json", 10, { mtime_ms: 0 });
  bench.settler.found("a.json");
  assertEquals(bench.turn(), []);
});

Deno.test("what is no plain file, or has no request's name, is ripe at once", () => {
  for (const kind of ["directory", "symlink", "other"] as const) {
    const bench = new Bench();
    bench.file("a.json", 0, { kind });
    bench.event("a.json", "create");
    assertEquals(bench.turn(), ["a.json"], kind);
  }
  for (const name of ["A.json", "x\n.json", ".json", "a"]) {
    const bench = new Bench();
    bench.file(name, 0);
    bench.event(name, "create");
    assertEquals(bench.turn(), [name]);
  }
});

Deno.test("a temporary name is poison after 10 minutes by the daemon's clock, whatever its times", () => {
  const bench = new Bench();
  bench.file(".a.json.tmp", 10, { ctime_ms: 0, mtime_ms: 0 });
  bench.event(".a.json.tmp", "create", "modify", "close", "rename");
  for (let minute = 0; minute < 10; minute++) {
    assertEquals(bench.turn(), [], `minute ${minute}`);
    bench.settler.found(".a.json.tmp");
    bench.settler.scanned();
    bench.ms += 59_999;
  }
  bench.ms += 10;
  const [name] = bench.settler.take(10);
  assertEquals(name, ".a.json.tmp");
  const verdict = bench.settler.settle(".a.json.tmp", bench.files.get(".a.json.tmp") as Look);
  assert(verdict.kind === "claim");
  assertEquals([verdict.temporary, verdict.first_sight_ms], [true, WALL]);
  assertEquals(bench.settler.size, 0);
});

Deno.test("a temporary name that two scans did not meet is forgotten", () => {
  const bench = new Bench();
  bench.event(".a.tmp", "create");
  bench.settler.scanned();
  assertEquals(bench.settler.size, 1);
  bench.settler.scanned();
  assertEquals(bench.settler.size, 0);
});

Deno.test("a removed entry is forgotten, and names with U+FFFD are never taken in (P16)", () => {
  const bench = new Bench();
  bench.event("a.json", "create", "remove");
  bench.event(".a.tmp", "create", "remove");
  assertEquals(bench.event("\uFFFD.json", "rename"), "unaddressable");
  assertEquals(bench.settler.found("\uFFFD.json"), "unaddressable");
  assertEquals([bench.settler.size, bench.turn()], [0, []]);
  assertEquals(bench.settler.nextIn(), null);
});

Deno.test("after lost events nothing waits for a close any more (N1)", () => {
  const bench = new Bench();
  bench.file("a.json", 5);
  bench.event("a.json", "create", "modify");
  assertEquals(bench.turn(), []);
  bench.settler.lost();
  assertAbout(bench.until("a.json", 1000), SETTLE.still);
});

Deno.test("when too many wait, a new arrival has room, and a scan is asked for the one forgotten", () => {
  const bench = new Bench({ maxWaiting: 3 });
  for (const name of ["a.json", "b.json", "c.json"]) {
    bench.file(name, 1);
    assertEquals(bench.event(name, "create", "modify"), "noted");
  }
  bench.file("d.json", 1);
  assertEquals(bench.settler.found("d.json"), "full");
  assertEquals(bench.event("d.json", "rename"), "full");
  assertEquals(bench.turn(), ["d.json"]);
  assertEquals(bench.settler.found("a.json"), "noted");
  assertEquals(bench.settler.size, 3);
});

Deno.test("a first sight is told by the wall clock, when it was", () => {
  const bench = new Bench();
  bench.file("a.json", 5);
  bench.event("a.json", "create", "modify", "close");
  bench.ms += 500;
  const [name] = bench.settler.take(1);
  const verdict = bench.settler.settle(name ?? "", bench.files.get("a.json") as Look);
  assert(verdict.kind === "claim");
  assertEquals(verdict.first_sight_ms, WALL);
});

Deno.test("a name that was taken and not settled comes again, later", () => {
  const bench = new Bench();
  bench.event("a.json", "rename");
  assertEquals(bench.settler.take(10), ["a.json"]);
  assertEquals(bench.settler.take(10), []);
  bench.ms += 1001;
  assertEquals(bench.settler.take(10), ["a.json"]);
});

Deno.test("5,000 temporary names and 1,001 unaddressable ones do not delay a request behind them", () => {
  const bench = new Bench();
  for (let i = 0; i < 5000; i++) {
    bench.file(`.t${i}.tmp`, 1);
    bench.settler.found(`.t${i}.tmp`);
  }
  for (let i = 0; i < 1001; i++) {
    assertEquals(bench.settler.found(`\uFFFD${i}.json`), "unaddressable");
  }
  bench.file("r.json", 10);
  bench.event("r.json", "rename");
  assertEquals(bench.turn(48), ["r.json"]);
});

Deno.test("behind 10,000 invalid entries the one that came last has its turn first of all", () => {
  const bench = new Bench();
  for (let i = 0; i < 10_000; i++) {
    bench.file(`r${i}.json`, 1);
    bench.event(`r${i}.json`, "rename");
  }
  bench.file("valid.json", 10);
  bench.event("valid.json", "rename");
  const first = bench.turn(48);
  assertEquals(first.length, 48);
  assert(first.includes("valid.json"));
  assert(first.includes("r0.json"), "and the oldest is not forgotten for it");
  let turns = 1;
  while (bench.files.size > 0) {
    bench.turn(48);
    turns++;
  }
  assertEquals(turns, Math.ceil(10_001 / 48));
});

Deno.test("an entry that was told of has its turn before thousands that scans met before and after", () => {
  const bench = new Bench();
  const meet = (from: number) => {
    for (let i = from; i < from + 500; i++) {
      bench.file(`r${i}.json`, 1, { ctime_ms: 0 });
      bench.settler.found(`r${i}.json`);
    }
  };
  meet(0);
  bench.file("valid.json", 10);
  bench.event("valid.json", "rename");
  meet(500);
  const first = bench.turn(48);
  assertEquals([first.length, new Set(first).size], [48, 48]);
  assert(first.includes("valid.json"));
  assert(first.includes("r0.json") && first.includes("r999.json"), first.join(" "));
});

Deno.test("whose event was lost is handed out with the first behind 10,000 that were told", () => {
  const bench = new Bench();
  for (let i = 0; i < 10_000; i++) {
    bench.file(`r${i}.json`, 1);
    bench.event(`r${i}.json`, "rename");
  }
  for (let i = 0; i < 100; i++) bench.turn(48);
  bench.file("lost.json", 10, { ctime_ms: 0 });
  bench.settler.found("lost.json");
  // Events of others go on coming in between.
  for (let i = 0; i < 100; i++) {
    bench.file(`s${i}.json`, 1);
    bench.event(`s${i}.json`, "rename");
  }
  assert(bench.turn(48).includes("lost.json"));
});

Deno.test("of thousands that a scan met in any order, the one that came last has its turn first", () => {
  const bench = new Bench();
  const COUNT = 5000;
  let asked = 0;
  const meet = (name: string, came: number) => {
    bench.file(name, 1, { ctime_ms: 0 });
    bench.settler.found(name, () => {
      asked++;
      return WALL + came;
    });
  };
  // Few that wait are all handled soon, whenever they came.
  for (let i = 0; i < 256; i++) meet(`f${i}.json`, 2 * COUNT);
  assertEquals(asked, 0);
  // Each number once, in an order that is neither rising nor falling.
  for (let i = 0; i < COUNT; i++) meet(`r${(i * 1777) % COUNT}.json`, (i * 1777) % COUNT);
  assertEquals(asked, COUNT);
  const first = bench.turn(48);
  for (let i = 1; i <= 8; i++) assert(first.includes(`r${COUNT - i}.json`), first.join(" "));
});

Deno.test("what a scan met while few waited is newer than thousands that came before it and are met later", () => {
  const bench = new Bench();
  bench.ms += 10_000;
  bench.file("valid.json", 1);
  bench.settler.found("valid.json", () => 0);
  // It has to stand still for a while.
  assertEquals(bench.turn(48), []);
  for (let i = 0; i < 5000; i++) {
    bench.file(`broken${i}.json`, 1, { ctime_ms: 0 });
    bench.settler.found(`broken${i}.json`, () => WALL + i);
  }
  bench.ms += SETTLE.still + 10;
  // The first of them were not asked when they came, and are taken for as new.
  let turns = 1;
  while (!bench.turn(48).includes("valid.json")) turns++;
  assertLess(turns, 16);
});

Deno.test("the rank of what is met follows a clock that is put back", () => {
  let wall = WALL;
  const settler = new Settler({ now: () => 0, wall: () => wall });
  settler.found("before.json");
  wall -= 3_600_000;
  for (let i = 0; i < 400; i++) settler.found(`r${i}.json`, () => wall - 1000 + i);
  // The middle of it was met while few waited, after the clock had been put back.
  assert(settler.take(48).some((name) => name === "r254.json"));
});

Deno.test("cameAt() goes by the ctime, and by the content only inside its second", () => {
  const bench = new Bench();
  const at = (ctime_ms: number, mtime_ms: number) => {
    bench.file("a.json", 1, { ctime_ms, mtime_ms });
    return cameAt(bench.files.get("a.json") as Look);
  };
  assertEquals(at(5000, 5250), 5250);
  assertEquals(at(5000, 0), 5000, "renamed long after it was written");
  assertEquals(at(5000, 4_000_000), 5000, "a time that its writer made up");
  assertEquals(at(5000, 6000), 5000);
});

Deno.test("the oldest have half of each turn, whatever comes behind them without end", () => {
  const bench = new Bench();
  const OLD = 960;
  for (let i = 0; i < OLD; i++) {
    bench.file(`old${i}.json`, 1, { ctime_ms: 0 });
    bench.settler.found(`old${i}.json`);
  }
  let left = OLD;
  let turns = 0;
  for (let n = 0; left > 0; n += 50) {
    for (let i = n; i < n + 25; i++) {
      bench.file(`told${i}.json`, 1);
      bench.event(`told${i}.json`, "rename");
      bench.file(`met${i}.json`, 1, { ctime_ms: 0 });
      bench.settler.found(`met${i}.json`, () => i);
    }
    const names = bench.turn(48);
    assertEquals(names.length, 48);
    const old = names.filter((name) => name.startsWith("old")).length;
    assert(old >= Math.min(left, 24), `only ${old} of the oldest in turn ${turns}`);
    left -= old;
    turns++;
  }
  assert(turns <= OLD / 24, `${turns} turns`);
});

Deno.test("with room for one at a time the oldest and the newest take turns", () => {
  const bench = new Bench();
  for (let i = 0; i < 20; i++) {
    bench.file(`old${i}.json`, 1, { ctime_ms: 0 });
    bench.settler.found(`old${i}.json`);
  }
  const claimed: string[] = [];
  for (let i = 0; i < 40; i++) {
    bench.file(`told${i}.json`, 1);
    bench.event(`told${i}.json`, "rename");
    claimed.push(...bench.turn(1));
  }
  assertEquals(claimed.length, 40);
  const old = claimed.filter((name) => name.startsWith("old"));
  assertEquals(old, Array.from({ length: 20 }, (_, i) => `old${i}.json`));
  assert(claimed.slice(0, 2).some((name) => name.startsWith("told")), "the newest waits");
});

Deno.test("an entry that is looked at again and again keeps its turn among thousands", () => {
  const bench = new Bench();
  // A scan met it, and it has to stand still between two looks.
  bench.file("still.json", 10);
  bench.settler.found("still.json");
  let turns = 0;
  for (let n = 0; bench.files.has("still.json"); n += 48, turns++) {
    for (let i = n; i < n + 48; i++) {
      bench.file(`r${i}.json`, 1);
      bench.event(`r${i}.json`, "rename");
    }
    bench.turn(48);
    bench.ms += 10;
    assertLess(turns, 60, "two turns among 48 each time, 250 ms apart");
  }
});

Deno.test("a turn costs no more where thousands wait, and places that were left are given up (Q5)", () => {
  /** Least milliseconds of a turn for which nothing new came. */
  const costOfTurn = (waiting: number) => {
    const bench = new Bench();
    for (let i = 0; i < waiting; i++) bench.event(`r${i}.json`, "rename");
    let least = Infinity;
    for (let n = 0; n < 40; n++) {
      const begun = performance.now();
      const names = bench.settler.take(8);
      least = Math.min(least, performance.now() - begun);
      assertEquals(names.length, 8);
    }
    return least;
  };
  costOfTurn(1000);
  const few = costOfTurn(400);
  const many = costOfTurn(16_000);
  assertLess(many, 8 * few + 0.02, `${few} ms and ${many} ms`);
});

Deno.test("a turn hands out names in the order of first sight", () => {
  const bench = new Bench();
  for (const name of ["c.json", "a.json", "b.json"]) {
    bench.file(name, 1);
    bench.event(name, "rename");
  }
  assertEquals(bench.turn(), ["c.json", "a.json", "b.json"]);
});

Deno.test("100,000 names do not grow the memory beyond its bounds, and none is lost (Q5)", () => {
  const bench = new Bench({ maxWaiting: 500, maxTemporary: 500 });
  let full = 0;
  for (let i = 0; i < 50_000; i++) {
    bench.file(`r${i}.json`, 1);
    if (bench.event(`r${i}.json`, "create", "modify") === "full") full++;
    bench.settler.found(`.t${i}.tmp`);
  }
  assertEquals(bench.settler.size, 1000);
  assertEquals(full, 50_000 - 500);
  // Scans meet the rest again; by then it is old.
  bench.ms += 10_000;
  let left = -1;
  while (bench.files.size !== left) {
    left = bench.files.size;
    for (const name of [...bench.files.keys()].slice(0, 500)) bench.settler.found(name);
    bench.turn(500);
  }
  assertEquals(bench.files.size, 0);
});
