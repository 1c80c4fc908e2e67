/** What is reaped, in which order, by which clock, and what a fault on the way leaves. */
import { assert, assertEquals } from "@std/assert";
import { Publisher } from "../src/daemon/publisher.ts";
import { Reaper } from "../src/daemon/reaper.ts";
import { LEAP_MS, RetentionClock } from "../src/daemon/retention_clock.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import type { Row } from "../src/ledger/types.ts";
import { defaultPolicy } from "../src/policy/default_policy.ts";
import type { OutputView, Result } from "../src/result.ts";
import { Driver, newRow, sqliteError, withRun } from "./ledger_fixture.ts";
import { SpoolRoot } from "./spool_fixture.ts";
import { there } from "./helpers/bridge.ts";

const DAY = 24 * 3_600_000;
const WORDS: string[] = [];
const log = (_level: string, event: string) => void WORDS.push(event);

/** A root with a ledger, a publisher and a reaper whose clocks a test moves. */
class Bench {
  readonly #root = new SpoolRoot();
  wall = Date.UTC(2026, 0, 2);
  mono = 1000;
  readonly limits = { ...defaultPolicy().limits };
  readonly retention = { ...defaultPolicy().retention };
  ledger = this.#open();
  publisher = new Publisher(this.ledger, log, () => this.wall);
  reaper = this.#reaper();

  constructor() {
    Deno.mkdirSync("state/runs");
    Deno.mkdirSync("state/policies");
    this.ledger.transaction((tx) => tx.setMeta("pins.main", "{}"));
  }

  #open(): Ledger {
    return Ledger.open("state/ledger.db", { now: () => this.wall, mode: "writer" });
  }

  #reaper(): Reaper {
    return new Reaper({
      ledger: this.ledger,
      log,
      now: () => this.wall,
      mono: () => this.mono,
      limits: () => this.limits,
      retention: () => this.retention,
      isActive: () => false,
    });
  }

  /** Another process takes over. */
  restart(clean = true): void {
    if (clean) this.reaper.close();
    this.ledger.close();
    this.ledger = this.#open();
    this.publisher = new Publisher(this.ledger, log, () => this.wall);
    this.reaper = this.#reaper();
  }

  /** Both clocks go on, in half days, and the reaper with them. */
  pass(ms: number): void {
    for (let left = ms; left > 0; left -= DAY / 2) {
      const step = Math.min(left, DAY / 2);
      this.wall += step;
      this.mono += step;
      this.reaper.all();
    }
  }

  /** A finished request with a published result. */
  finish(id: string, patch: Partial<Row> = {}, result: Partial<Result> = {}): number {
    const rid = this.ledger.transaction((tx) => {
      const audit = tx.append({ event: "finished", agent: "main", id });
      return tx.insertRow(newRow(id, {
        state: "done",
        started_ms: this.wall,
        finished_ms: this.wall,
        ...patch,
        result: { ...newRow(id).result, state: "done", audit, ...result },
      }));
    });
    this.publish(rid);
    return rid;
  }

  publish(rid: number): void {
    const row = this.ledger.row(rid);
    if (row !== null) this.publisher.row(row);
    this.flush();
  }

  flush(): void {
    const { rids, answered } = this.publisher.takeMarks();
    this.ledger.transaction((tx) => {
      tx.markPublished(rids);
      for (const claim of answered) tx.dropAnswer(claim);
    });
  }

  /** An answer that binds nothing. */
  answer(name: string, claim = name): void {
    const answer = {
      claim,
      agent: "main",
      target: `results/${name}`,
      document: `{"claim":"${claim}"}\n`,
    };
    this.ledger.transaction((tx) => {
      tx.append({ event: "answered", agent: "main", id: name, claim });
      tx.saveAnswer(answer);
    });
    this.publisher.answer(answer);
    this.flush();
  }

  results(): string[] {
    return Array.from(Deno.readDirSync("spool/main/results"), (entry) => entry.name).sort();
  }

  [Symbol.dispose](): void {
    this.ledger.close();
    this.#root[Symbol.dispose]();
  }
}

function view(bytes: number, file: string): OutputView {
  return {
    head: "x".repeat(bytes),
    tail: "",
    bytes,
    dropped_bytes: 0,
    replaced_bytes: 0,
    file,
    complete: true,
  };
}

Deno.test("RetentionClock runs with the monotonic clock and believes a leap for a day", () => {
  const start = 1_000_000_000_000;
  const cases: readonly (readonly [string, readonly (readonly [number, number])[], number])[] = [
    ["both go on", [[5000, 5000]], 5000],
    ["a second is a second at any number of looks", [[500, 500], [1000, 1000]], 1000],
    ["the machine slept eight hours", [[DAY / 3, 1000]], DAY / 3],
    ["a leap of ten years", [[3650 * DAY, 1000]], LEAP_MS + 1000],
    ["the same leap, undone and made again", [
      [3650 * DAY, 1000],
      [1000, 2000],
      [3650 * DAY, 3000],
    ], LEAP_MS + 3000],
    ["the wall clock is set back", [[-3650 * DAY, 5000]], 5000],
    ["set back and right again", [[-3650 * DAY, 5000], [6000, 6000]], 6000],
    ["the wall clock stands still", [[0, DAY]], DAY],
  ];
  for (const [what, looks, expected] of cases) {
    const clock = new RetentionClock(null, start, 77);
    let at = start;
    for (const [wall, mono] of looks) at = clock.advance(start + wall, 77 + mono);
    assertEquals(at - start, expected, what);
  }
  const before = new RetentionClock(null, start, 0);
  before.advance(start + 1000, 1000);
  const after = new RetentionClock(before.state, start + 1000 + DAY / 2, 5);
  assertEquals(after.state.at_ms, start + 1000 + DAY / 2, "the time between two processes counts");
});

Deno.test("results go when they are results_days old, and the row stays with its outcome", () => {
  using bench = new Bench();
  const old = bench.finish("old", {}, {
    outcome: "succeeded",
    stdout: view(2000, "old.stdout"),
    stderr: { ...view(0, ""), file: null },
  });
  Deno.writeTextFileSync("spool/main/results/old.stdout", "x".repeat(2000));
  bench.ledger.transaction((tx) => {
    tx.bindId("main", "joined", old);
    tx.updateRow(old, { pub: 0, replays: 1 });
  });
  bench.publish(old);
  bench.answer("ping.json");
  bench.answer("old.refused.json");
  assertEquals(bench.ledger.shown().get("main")?.files, 5);
  bench.pass(4 * DAY);
  bench.finish("young");
  bench.pass(2 * DAY);
  assertEquals(bench.results().length, 6, "six days are no seven");
  bench.pass(2 * DAY);
  assertEquals(bench.results(), ["young.json"]);
  assertEquals(bench.ledger.shown().get("main")?.files, 1);
  const row = bench.ledger.rowById("main", "joined");
  assertEquals([row?.rid, row?.pub, row?.result.outcome], [old, 2, "succeeded"]);
  assertEquals(row?.result.stdout, {
    ...view(2000, ""),
    head: "",
    dropped_bytes: 2000,
    file: null,
    complete: false,
  });
  assertEquals(row?.request.length, 0);
  assertEquals(bench.ledger.unpublished(10), [], "nothing reaped is published again");
});

Deno.test("the first decided go first when there are too many files or bytes", () => {
  using bench = new Bench();
  Object.assign(bench.limits, { results_files: 6 });
  for (let n = 0; n < 4; n++) {
    bench.finish(`r${n}`);
    bench.answer(`a${n}.json`);
  }
  assertEquals(bench.results().length, 8);
  bench.reaper.all();
  assertEquals(bench.results(), ["a1.json", "a2.json", "a3.json", "r1.json", "r2.json", "r3.json"]);
  const { bytes } = bench.ledger.shown().get("main") ?? { bytes: NaN };
  const onDisk = bench.results()
    .reduce((sum, name) => sum + Deno.statSync(`spool/main/results/${name}`).size, 0);
  assertEquals(bytes, onDisk, "what is shown is counted to the byte");
  Object.assign(bench.limits, { results_bytes: bytes - 1 });
  bench.reaper.all();
  assertEquals(bench.results(), ["a1.json", "a2.json", "a3.json", "r2.json", "r3.json"]);
  bench.restart();
  assertEquals(bench.ledger.shown().get("main")?.files, 5, "counted again at a start");
});

Deno.test("Q5 a flood does not outrun the removing on a slow machine, nor keep a round from its end", () => {
  using bench = new Bench();
  Object.assign(bench.limits, { results_files: 100 });
  const { now } = performance;
  let ms = now.call(performance);
  // Every look at the clock finds it further on than a step may last.
  performance.now = () => ms += 5;
  try {
    bench.reaper.begin();
    let ended = 0;
    let most = 0;
    for (let turn = 0; turn < 120; turn++) {
      const claims = Array.from({ length: 20 }, (_, n) => `c${turn}-${n}`);
      bench.ledger.transaction((tx) => {
        for (const claim of claims) {
          const document = "{}\n";
          const target = `results/${claim}.json`;
          tx.append({ event: "answered", agent: "main", id: claim, claim });
          tx.saveAnswer({ claim, agent: "main", target, document });
          Deno.writeTextFileSync(`spool/main/${target}`, document);
        }
        for (const claim of claims) tx.dropAnswer(claim);
      });
      bench.reaper.step();
      most = Math.max(most, bench.ledger.shown().get("main")?.files ?? 0);
      if (!bench.reaper.running) ended++;
    }
    assert(most < 500, `${most} files at the most`);
    assert(ended > 0, "the round has not ended");
  } finally {
    performance.now = now;
  }
  bench.reaper.all();
  assertEquals(bench.results().length, 100);
});

Deno.test("what waits, runs or is uncertain is never reaped or forgotten", () => {
  using bench = new Bench();
  Object.assign(bench.limits, { results_files: 1, results_bytes: 1 });
  for (const state of ["pending", "running", "uncertain"] as const) {
    bench.finish(state, { state }, { state });
  }
  const gone = bench.finish("gone");
  bench.pass(100 * DAY);
  assertEquals(bench.results(), ["pending.json", "running.json", "uncertain.json"]);
  assertEquals(bench.ledger.row(gone), null);
  assertEquals(bench.ledger.rowByKey("main", "uncertain")?.state, "uncertain");
});

Deno.test("a key is remembered for ledger_days and bound anew afterwards", () => {
  using bench = new Bench();
  const rid = bench.finish("deploy", { key: "key" });
  bench.pass(89 * DAY);
  assertEquals(bench.ledger.rowByKey("main", "key")?.rid, rid);
  bench.pass(2 * DAY);
  assertEquals(bench.ledger.rowByKey("main", "key"), null);
  assertEquals(bench.ledger.rowById("main", "deploy"), null);
  const again = bench.finish("deploy", { key: "key", claim: "another" });
  assertEquals(bench.results(), ["deploy.json"]);
  assertEquals(bench.ledger.rowByKey("main", "key")?.rid, again);
});

Deno.test("a row that changed late is as old as its change", () => {
  using bench = new Bench();
  const rid = bench.finish("late", { state: "running" }, { state: "running" });
  bench.pass(80 * DAY);
  bench.ledger.transaction((tx) => {
    tx.append({ event: "finished", agent: "main", id: "late" });
    tx.updateRow(rid, { state: "done", result: { ...newRow("late").result, state: "done" } });
  });
  bench.publish(rid);
  bench.pass(85 * DAY);
  assert(bench.ledger.row(rid) !== null);
  bench.pass(6 * DAY);
  assertEquals(bench.ledger.row(rid), null);
});

Deno.test("above ledger_rows the oldest rows are forgotten, but none that a rate still counts", () => {
  using bench = new Bench();
  Object.assign(bench.retention, { ledger_rows: 1000 });
  const add = (from: number, n: number, agent: string) =>
    bench.ledger.transaction((tx) => {
      for (let i = from; i < from + n; i++) {
        const rid = tx.insertRow(
          newRow(`${agent}${i}`, { agent, state: "done", started_ms: bench.wall }),
        );
        tx.updateRow(rid, { pub: 2 });
      }
    });
  add(0, 900, "other");
  add(0, 1500, "main");
  bench.reaper.all();
  assert(bench.ledger.rowById("main", "main0") !== null, "all of them are younger than a day");
  bench.wall += 2 * DAY;
  add(1500, 1, "main");
  bench.reaper.all();
  const count = (agent: string) => bench.ledger.reaping.countRows(agent, 0, 5000).n;
  assertEquals([count("main"), count("other")], [990, 900]);
  assertEquals(bench.ledger.rowById("main", "main510"), null);
  assert(bench.ledger.rowById("main", "main511") !== null);
});

Deno.test("a name that a later document holds is left alone", () => {
  using bench = new Bench();
  // Refused first, accepted later under the same name; and a released row whose name came again.
  bench.answer("twice.json", "c-refused");
  bench.pass(DAY);
  bench.finish("twice");
  const released = bench.finish("freed");
  bench.ledger.transaction((tx) => tx.release(released));
  bench.pass(DAY);
  bench.answer("freed.json", "c-later");
  bench.answer("again.json", "c-1");
  bench.pass(3 * DAY);
  bench.answer("again.json", "c-2");
  bench.pass(3 * DAY);
  assertEquals(bench.results(), ["again.json", "freed.json", "twice.json"]);
  bench.pass(1 * DAY);
  assertEquals(bench.results(), ["again.json", "freed.json"], "bound rows go at their own time");
  bench.pass(1 * DAY);
  assertEquals(bench.results(), ["again.json"]);
  bench.pass(3 * DAY);
  assertEquals(bench.results(), []);
});

Deno.test("one answer is remembered for a name, however often it was given", () => {
  using bench = new Bench();
  for (let n = 0; n < 50; n++) bench.answer("same.json", `claim-${n}`);
  assertEquals(bench.ledger.shown().get("main")?.files, 1);
  assertEquals(bench.ledger.reaping.oldestAnswers("main", 100).length, 1);
});

Deno.test("a replay brings a reaped result back, as new, and it goes again", () => {
  using bench = new Bench();
  const rid = bench.finish("old", {}, { stdout: view(10, "old.stdout") });
  bench.pass(8 * DAY);
  assertEquals(bench.results(), []);
  bench.ledger.transaction((tx) => {
    tx.append({ event: "replayed", agent: "main", id: "old" });
    tx.updateRow(rid, { replays: 1, pub: 0 });
  });
  const row = bench.ledger.row(rid);
  assert(row !== null);
  bench.publisher.replay(row, "old");
  bench.flush();
  const told: Result = JSON.parse(Deno.readTextFileSync("spool/main/results/old.json"));
  assert(told.hint?.includes("its output is not kept any more"), told.hint);
  assertEquals(bench.ledger.shown().get("main")?.files, 1);
  bench.pass(6 * DAY);
  assertEquals(bench.results(), ["old.json"]);
  bench.pass(2 * DAY);
  assertEquals(bench.results(), []);
});

Deno.test("a row is counted under every name that it stands under, whenever that came to be", () => {
  using bench = new Bench();
  const rid = bench.finish("a", {}, { stdout: view(3, "a.stdout") });
  Deno.writeTextFileSync("spool/main/results/a.stdout", "abc");
  const replay = (id: string) => {
    bench.ledger.transaction((tx) => {
      tx.bindId("main", id, rid);
      const pub = bench.ledger.row(rid)?.pub === 2 ? { pub: 0 as const } : {};
      tx.updateRow(rid, { replays: 1, ...pub });
    });
    bench.publisher.replay(bench.ledger.row(rid) as Row, id);
    bench.flush();
  };
  const agree = (files: number) => {
    const onDisk = bench.results().map((name) => Deno.statSync(`spool/main/results/${name}`).size);
    const bytes = onDisk.reduce((sum, size) => sum + size, 0);
    assertEquals([onDisk.length, bench.ledger.shown().get("main")], [files, { files, bytes }]);
  };
  // The output came after the row was counted.
  replay("a");
  agree(2);
  for (const id of ["b", "c"]) replay(id);
  agree(4);
  bench.pass(8 * DAY);
  agree(0);
  for (const [n, id] of ["c", "b", "c"].entries()) {
    replay(id);
    agree(Math.min(n + 1, 2));
  }
  bench.pass(8 * DAY);
  agree(0);
});

Deno.test("reap() and forget() touch nothing that is not done", () => {
  using bench = new Bench();
  for (const state of ["pending", "running", "uncertain"] as const) {
    const rid = bench.finish(state, { state }, { state });
    const row = bench.ledger.row(rid);
    assert(row !== null);
    const done = bench.ledger.transaction((tx) => [
      tx.reaping.reap(rid, row.result),
      tx.reaping.forget(rid),
    ]);
    assertEquals(done, [false, false], state);
    assertEquals(bench.ledger.row(rid), row);
  }
});

Deno.test("N5 a wall clock that leaps ahead reaps no more than a day does", () => {
  using bench = new Bench();
  bench.finish("a");
  bench.pass(DAY);
  bench.wall += 3650 * DAY;
  bench.reaper.all();
  bench.restart();
  bench.pass(4 * DAY);
  assertEquals(bench.results(), ["a.json"], "one day, one leap, four days");
  bench.wall -= 3650 * DAY;
  bench.pass(1.5 * DAY);
  assertEquals(bench.results(), []);
});

Deno.test("S1 a ledger that cannot be written does not keep files, and catches up", () => {
  using bench = new Bench();
  Object.assign(bench.limits, { results_files: 100 });
  const rids = bench.ledger.transaction((tx) =>
    Array.from({ length: 300 }, (_, n) => {
      tx.append({ event: "finished", agent: "main", id: `r${n}` });
      return tx.insertRow(newRow(`r${n}`, { state: "done" }));
    })
  );
  for (const rid of rids) bench.publisher.row(bench.ledger.row(rid) as Row);
  bench.flush();
  bench.restart();
  {
    let broken = false;
    using driver = new Driver();
    driver.replace = (sql, real) =>
      sql === "COMMIT"
        ? withRun(real, () => {
          if (broken) throw sqliteError(13);
          real.run();
        })
        : undefined;
    // A connection whose statements were not made yet.
    bench.restart(false);
    broken = true;
    bench.reaper.all();
    const left = bench.results().length;
    assert(left < 200 && left >= 100, `${left} files`);
    assertEquals(bench.ledger.shown().get("main")?.files, 300, "nothing is said to be gone");
    assertEquals(bench.reaper.fault, "LEDGER_FULL");
    broken = false;
    bench.reaper.all();
  }
  assertEquals([bench.results().length, bench.ledger.shown().get("main")?.files], [100, 100]);
  assertEquals(bench.reaper.fault, null);
  assert(there("spool/main/results/r299.json"));
});

Deno.test("whoever dies between the removing and the commit leaves nothing that is not reaped", () => {
  using bench = new Bench();
  const rid = bench.finish("r0");
  Deno.removeSync("spool/main/results/r0.json");
  bench.pass(8 * DAY);
  assertEquals(bench.ledger.row(rid)?.pub, 2);
  assertEquals(bench.ledger.shown().get("main")?.files, 0);
});

Deno.test("notes, copies and runs go by age, directories in quarantine and uncertain runs stay", () => {
  using bench = new Bench();
  const at = (path: string) => Deno.utimeSync(path, bench.wall / 1000, bench.wall / 1000);
  const file = (path: string) => {
    Deno.writeTextFileSync(path, "{}");
    at(path);
  };
  for (let n = 1; n <= 230; n++) file(`spool/main/inbox/refused/${n}.json`);
  file("work/main/quarantine/copy.1.a.x");
  Deno.mkdirSync("work/main/quarantine/dir.-.1.a");
  at("work/main/quarantine/dir.-.1.a");
  const runs = ["a".repeat(32), "b".repeat(32), "c".repeat(32)];
  for (const run of runs) Deno.mkdirSync(`state/runs/${run}`);
  bench.finish("lost", { state: "uncertain", run: runs[0] ?? null }, { state: "uncertain" });
  const pgid = 4242;
  const order = {
    chb: 1,
    run: runs[0],
    agent: "main",
    id: "lost",
    idempotency_key: "lost",
    verb: "v",
    args: {},
    attempt: 1,
    policy: "b".repeat(64),
    command_sha256: "c".repeat(64),
    program: { path: "/usr/bin/true", dev: "1", ino: "1", size: 1, mtime_ms: 1 },
    requires: [],
    max_spend: null,
    timeout_ms: 1000,
    grace_ms: 1000,
    output_cap: 1000,
    pgid,
    reuse: true,
  };
  Deno.writeTextFileSync(`state/runs/${runs[0]}/taken.json`, JSON.stringify(order));
  Deno.writeTextFileSync(`state/runs/${runs[1]}/stdout`, "raw");
  bench.reaper.all();
  for (const run of runs) at(`state/runs/${run}`);
  assertEquals([...Deno.readDirSync("spool/main/inbox/refused")].length, 200, "by count at once");
  assertEquals([...Deno.readDirSync("state/runs")].length, 3);
  bench.finish("later");
  bench.pass(2 * 3_600_000);
  assertEquals([...Deno.readDirSync("state/runs")].map((e) => e.name), [runs[0] ?? ""]);
  bench.pass(8 * DAY);
  assertEquals([...Deno.readDirSync("spool/main/inbox/refused")].length, 0);
  assertEquals([...Deno.readDirSync("work/main/quarantine")].map((e) => e.name), [
    "dir.-.1.a",
  ]);
  assertEquals([...Deno.readDirSync("state/runs")].map((e) => e.name), [runs[0] ?? ""]);
});

Deno.test("a policy goes when no key knows of it any more, the current one never", () => {
  using bench = new Bench();
  const digest = (c: string) => c.repeat(64);
  const trust = (c: string) => {
    Deno.writeTextFileSync(`state/policies/${digest(c)}.jsonc`, "{}");
    Deno.utimeSync(`state/policies/${digest(c)}.jsonc`, bench.wall / 1000, bench.wall / 1000);
    bench.ledger.transaction((tx) => {
      tx.append({ event: "trusted" });
      tx.setTrust({
        policy: digest(c),
        at_ms: bench.wall,
        by: "",
        programs: [],
        requires: [],
        bin_sha256: null,
      });
    });
  };
  const names = () =>
    Array.from(Deno.readDirSync("state/policies"), (entry) => entry.name.slice(0, 1)).sort();
  Deno.writeTextFileSync(`state/policies/${digest("f")}.jsonc`, "{}");
  Deno.utimeSync(`state/policies/${digest("f")}.jsonc`, bench.wall / 1000, bench.wall / 1000);
  trust("a");
  bench.finish("unsure", { policy: digest("a"), state: "uncertain" }, { state: "uncertain" });
  trust("b");
  bench.finish("r", { policy: digest("b") });
  trust("c");
  trust("a");
  trust("d");
  bench.pass(89 * DAY);
  assertEquals(names(), ["a", "b", "c", "d"], "one that nobody trusted goes first");
  bench.pass(3 * DAY);
  assertEquals(names(), ["a", "d"], "an uncertain request was started under the first");
  assertEquals(bench.ledger.currentTrust()?.policy, digest("d"));
});

Deno.test("what was reaped is told in one record, and an idle ledger does not grow", () => {
  using bench = new Bench();
  for (let n = 0; n < 40; n++) bench.answer(`a${n}.json`);
  bench.pass(8 * DAY);
  const told = bench.ledger.records(1, 1000).map((r) => JSON.parse(r.line))
    .filter((r) => r.event === "reaped");
  assertEquals(told.map((r) => r.answers), [40]);
  const head = bench.ledger.head()?.seq;
  bench.pass(5 * DAY);
  assertEquals(bench.ledger.head()?.seq, head);
});
