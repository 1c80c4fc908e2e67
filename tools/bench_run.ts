/**
 * The benchmark: how long from before the rename of a request to having parsed its final result,
 * against the floor of the same machine in the same run; and what a flood of broken entries costs
 * a valid request.
 *
 * The floor is what nobody can avoid who runs a program and remembers it: the same runtime starts
 * `/usr/bin/true` and makes two SQLite commits, with the ledger's settings, on the same file
 * system. Samples of floor and bridge alternate, so that whatever else the machine does meets both.
 *
 * This process is the submitter. It waits by looking every 0.2 ms, without an event loop in
 * between, so that its own waking costs the measurement little.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { join } from "@std/path/join";
import { DatabaseSync } from "node:sqlite";
import { benchRows } from "./bench_rows.ts";
import { TestBridge, there, verb } from "../tests/helpers/bridge.ts";

const options = parseArgs(Deno.args, {
  string: ["requests", "runs", "flood", "rows", "out"],
  boolean: ["help", "check"],
});
if (options.help) {
  console.log(`usage: deno task bench [--requests N] [--runs N] [--flood N] [--rows N]
                       [--out FILE] [--check]

  --requests N   requests of each kind in one run (default 500)
  --runs N       runs; the figures are medians of the runs' medians (default 5)
  --flood N      broken entries in front of a valid request (default 10000)
  --rows N       also compare an empty ledger with one of N finished requests
  --out FILE     raw figures as JSON (default bench.json)
  --check        exit 1 when a target is missed`);
  Deno.exit(0);
}
const REQUESTS = Number(options.requests ?? 500);
const RUNS = Number(options.runs ?? 5);
const FLOOD = Number(options.flood ?? 10_000);
const ROWS = options.rows === undefined ? null : Number(options.rows);

/** Targets that this version is held to. */
const TARGETS = Object.freeze({
  /** Median of an observing no-op over the floor's median. */
  latencyRatio: 2.5,
  /** Milliseconds from the arrival of a valid request in a flood to its result. */
  floodMs: 1000,
  /** Medians with `--rows` over those with an empty ledger, for each of the four series. */
  rowsRatio: 1.25,
  /** Resident memory of the daemon after floods; it collects garbage late, but it does. Bytes. */
  floodMemory: 200 * 1024 * 1024,
});

const pause = new Int32Array(new SharedArrayBuffer(4));

/** Sleeps without the event loop. */
function nap(ms: number): void {
  Atomics.wait(pause, 0, 0, ms);
}

function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? NaN;
}

/** One request from before its rename to its parsed final result, milliseconds. */
function ask(bridge: TestBridge, id: string, text: string): number {
  const temporary = bridge.queue(`.${id}.tmp`);
  const target = bridge.queue(`${id}.json`);
  const result = join(bridge.root, "spool/main/results", `${id}.json`);
  Deno.writeTextFileSync(temporary, text);
  const start = performance.now();
  Deno.renameSync(temporary, target);
  for (;;) {
    try {
      const { state } = JSON.parse(Deno.readTextFileSync(result));
      if (state === "done") return performance.now() - start;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    if (performance.now() - start > 20_000) throw new Error(`No result for ${id} in 20 s`);
    nap(0.2);
  }
}

/** The kinds of verbs that are measured; the command of both is `/usr/bin/true`. */
const KINDS = ["observe", "mutating"] as const;
type Kind = (typeof KINDS)[number];

/** Samples of one kind in one run, and of the floor between them, milliseconds. */
interface Series {
  readonly floor: number[];
  readonly bridge: number[];
}

/**
 * One run of one kind. Kinds are measured one after the other and not in turns: a mutating run ends
 * its shim, and the start of the next one would be paid by an observing request.
 */
async function latency(bridge: TestBridge, kind: Kind, run: number): Promise<Series> {
  const name = `${kind}-${run}`;
  const db = new DatabaseSync(join(bridge.root, "state", `floor-${name}.db`));
  db.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER, b TEXT)");
  const insert = db.prepare("INSERT INTO t VALUES (?, ?)");
  const commit = (n: number) => {
    db.exec("BEGIN IMMEDIATE");
    insert.run(n, "x".repeat(400));
    db.exec("COMMIT");
  };
  const series: Series = { floor: [], bridge: [] };
  for (let n = 0; n < REQUESTS; n++) {
    const start = performance.now();
    commit(n);
    await new Deno.Command("/usr/bin/true", {
      clearEnv: true,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn().output();
    commit(n);
    series.floor.push(performance.now() - start);
    nap(2);
    series.bridge.push(ask(bridge, `${name}-${n}`, JSON.stringify({ verb: kind })));
    nap(2);
  }
  db.close();
  return series;
}

/** What a flood costs the valid request behind it, and the daemon. */
interface Flooded {
  /** From before the valid request's rename to its result, milliseconds. */
  readonly validMs: number;
  /** From the end of the writing until the queue is empty, milliseconds. */
  readonly drainMs: number;
  /** Resident memory of the daemon before the first, after the first, after the second, bytes. */
  readonly memory: readonly [number, number, number];
}

/** Two floods of broken entries, each with one valid request behind it: the slower one counts. */
async function flood(): Promise<Flooded> {
  await using bridge = await TestBridge.start({
    serve: [],
    verbs: { observe: verb(["/usr/bin/true"]) },
    limits: { answers: 600 },
  });
  for (let n = 0; n < 20; n++) ask(bridge, `warm-${n}`, '{"verb":"observe"}');
  const one = (name: string) => {
    for (let n = 0; n < FLOOD; n++) Deno.writeTextFileSync(bridge.queue(`${name}-${n}.json`), "{");
    const start = performance.now();
    const validMs = ask(bridge, `valid-${name}`, '{"verb":"observe"}');
    while (bridge.queued().length > 0) nap(20);
    return { validMs, drainMs: performance.now() - start, memory: bridge.memory() };
  };
  const before = bridge.memory();
  const first = one("a");
  const second = one("b");
  return {
    validMs: Math.max(first.validMs, second.validMs),
    drainMs: Math.max(first.drainMs, second.drainMs),
    memory: [before, first.memory, second.memory],
  };
}

console.log(
  `chb bench: ${REQUESTS} requests of each kind, ${RUNS} runs, Deno ${Deno.version.deno}`,
);
const all: Record<Kind, Series[]> = { observe: [], mutating: [] };
{
  await using bridge = await TestBridge.start({
    serve: [],
    verbs: {
      observe: verb(["/usr/bin/true"]),
      mutating: verb(["/usr/bin/true"], { class: "mutating" }),
    },
  });
  for (let n = 0; n < 20; n++) ask(bridge, `warm-${n}`, '{"verb":"observe"}');
  for (const kind of KINDS) {
    for (let run = 0; run < RUNS; run++) all[kind].push(await latency(bridge, kind, run));
  }
}

/** What the runs of one kind say together: medians of the runs' figures. */
function summary(kind: Kind) {
  const of = (part: keyof Series, q: number) => all[kind].map((s) => quantile(s[part], q));
  const ratios = all[kind].map((s) => quantile(s.bridge, 0.5) / quantile(s.floor, 0.5));
  return {
    kind,
    median_ms: quantile(of("bridge", 0.5), 0.5),
    p99_ms: quantile(of("bridge", 0.99), 0.5),
    floor_ms: quantile(of("floor", 0.5), 0.5),
    ratio: quantile(ratios, 0.5),
    ratio_spread: [Math.min(...ratios), Math.max(...ratios)],
  };
}

const rows = KINDS.map(summary);
console.log(
  "\n              median        p99      floor   times the floor (spread over the runs)",
);
for (const r of rows) {
  const [low = NaN, high = NaN] = r.ratio_spread;
  console.log(
    `  ${r.kind.padEnd(9)} ${r.median_ms.toFixed(2).padStart(7)} ms ${
      r.p99_ms.toFixed(1).padStart(7)
    } ms ${r.floor_ms.toFixed(2).padStart(7)} ms   ${r.ratio.toFixed(2)} ` +
      `(${low.toFixed(2)} to ${high.toFixed(2)})`,
  );
}
const [observed] = rows;
const flooded = await flood();
const peak = Math.max(...flooded.memory);
console.log(
  `\n  ${FLOOD} broken entries: a valid request after them in ${flooded.validMs.toFixed(0)} ms, ` +
    `all gone after ${flooded.drainMs.toFixed(0)} ms,\n  resident memory ` +
    `${flooded.memory.map((m) => (m / 1e6).toFixed(0)).join(", ")} MB before, after one, after two`,
);
const checks = [
  {
    what: "median of observe over the floor",
    value: observed?.ratio ?? NaN,
    target: TARGETS.latencyRatio,
  },
  { what: "valid request in a flood, ms", value: flooded.validMs, target: TARGETS.floodMs },
  { what: "resident memory after floods, bytes", value: peak, target: TARGETS.floodMemory },
];
const grown = ROWS === null ? null : await benchRows(ROWS, REQUESTS, 9, ask);
if (grown !== null) {
  const [empty, filled] = grown;
  console.log(
    `\n  ${"ledger of".padEnd(24)} ${"1 row".padStart(10)} ${`${ROWS} rows`.padStart(16)}`,
  );
  for (
    const [series, what] of [
      ["fresh", "a new request"],
      ["replay", "a replay of an old key"],
      ["start", "a start"],
      ["crashed", "a start after a crash"],
    ] as const
  ) {
    console.log(
      `  ${what.padEnd(24)} ${empty[series].toFixed(2).padStart(7)} ms ${
        filled[series].toFixed(2).padStart(13)
      } ms`,
    );
    checks.push({
      what: `${what} with ${ROWS} rows over one with none`,
      value: filled[series] / empty[series],
      target: TARGETS.rowsRatio,
    });
  }
}
console.log("");
let missed = 0;
for (const c of checks) {
  const ok = c.value <= c.target;
  if (!ok) missed++;
  console.log(
    `  ${ok ? "met   " : "MISSED"} ${c.what}: ${c.value.toFixed(2)}, at most ${c.target}`,
  );
}
const out = options.out ?? "bench.json";
Deno.writeTextFileSync(
  out,
  JSON.stringify({
    deno: Deno.version.deno,
    requests: REQUESTS,
    runs: RUNS,
    rows,
    checks,
    flooded,
    grown,
    all,
  }),
);
console.log(`\nRaw figures: ${out}`);
if (!there(out)) throw new Error(`Cannot find ${out}`);
Deno.exit(options.check && missed > 0 ? 1 : 0);
