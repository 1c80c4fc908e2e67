/**
 * Whether cost grows with what is stored: a bridge with an empty ledger and one with many finished
 * requests in it, measured side by side, in turns, so that whatever else the machine does meets both.
 *
 * The ledger is filled as `bench_fill.ts` says: most rows are reaped, the newest still count as
 * published, and the records of all but the newest stand in rotated segments of the audit text.
 *
 * @module
 */
import { TestBridge, there, until, verb } from "../tests/helpers/bridge.ts";
import { fill } from "./bench_fill.ts";
import { ask, type Gathered, median, memoryOf, OBSERVE, warm } from "./bench_kit.ts";

/** What is timed on both. */
const SERIES = [
  ["fresh", "a new request"],
  ["replay", "a replay of an old key"],
  ["start", "a start"],
  ["crashed", "a start after a crash"],
] as const;

/** Milliseconds that a start with many rows may take beyond an empty one. */
const START_MS = 1000;
/** What a request may cost with many rows, over an empty ledger. */
const RATIO = 1.3;

/** A start, from the program's to its ready line, milliseconds. */
export async function timedStart(bridge: TestBridge): Promise<number> {
  const begun = performance.now();
  await bridge.serve();
  return performance.now() - begun;
}

/**
 * Measures an empty and a filled ledger.
 *
 * @param rows finished requests in the filled one
 * @param requests new requests and replays of each
 * @param starts starts of each kind
 */
export async function benchRows(
  out: Gathered,
  rows: number,
  requests: number,
  starts: number,
): Promise<void> {
  const options = { serve: [], verbs: { observe: verb(["/usr/bin/true"]) } };
  await using empty = await TestBridge.make(options);
  await using filled = await TestBridge.make(options);
  fill(empty, 1);
  const began = performance.now();
  fill(filled, rows);
  out.say(`${rows} rows are filled in, in ${Math.round((performance.now() - began) / 1000)} s`);
  const both = [empty, filled] as const;
  const samples = both.map(() => ({
    fresh: [] as number[],
    replay: [] as number[],
    start: [] as number[],
    crashed: [] as number[],
  }));
  for (const bridge of both) await bridge.serve();
  const each = async (
    what: keyof typeof samples[number],
    n: number,
    measure: (bridge: TestBridge, i: number) => number | Promise<number>,
  ) => {
    for (let i = 0; i < n; i++) {
      for (const [k, bridge] of both.entries()) samples[k]?.[what].push(await measure(bridge, i));
    }
  };
  for (const bridge of both) warm(bridge);
  await each("fresh", requests, (bridge, i) => ask(bridge, `new-${i}`, OBSERVE));
  await each("replay", requests, (bridge, i) => {
    const id = `old-${bridge === empty ? 0 : Math.floor(i * rows / requests)}`;
    const result = bridge.path("spool/main/results", `${id}.json`);
    if (there(result)) Deno.removeSync(result);
    return ask(bridge, id, OBSERVE);
  });
  await each("start", starts, async (bridge) => {
    await bridge.stop();
    return await timedStart(bridge);
  });
  await each("crashed", starts, async (bridge) => {
    await bridge.stop("SIGKILL");
    const took = await timedStart(bridge);
    // Its pages are read beside the service: the next kill is to find that ended.
    await until("the pages to be read", () =>
      !/page-check/.test(bridge.log) ||
      /all of them hold/.test(bridge.log), 300_000);
    return took;
  });
  for (const [series, what] of SERIES) {
    const [none = NaN, many = NaN] = samples.map((s) => median(s[series]));
    const isStart = series === "start" || series === "crashed";
    out.figure(`${what}, empty ledger`, none, "ms");
    out.figure(`${what}, ${rows} rows`, many, "ms", {
      target: { atMost: isStart ? none + START_MS : none * RATIO },
    });
  }
  const { size } = Deno.statSync(filled.path("state/ledger.db"));
  out.figure(`ledger with ${rows} rows`, size / 1e6, "MB");
  out.figure(`daemon with ${rows} rows, resident`, memoryOf(filled.pid), "MB");
  await filled.stop();
  out.figure(`audit verify, ${3 * rows} records and more`, await timedVerify(filled), "s");
}

/**
 * `chb audit verify` of a bridge that nobody serves, seconds.
 *
 * @throws {Error} when the log does not hold
 */
export async function timedVerify(bridge: TestBridge): Promise<number> {
  const begun = performance.now();
  const { code, out, err } = await bridge.chb("audit", "verify");
  if (code !== 0) throw new Error(`Cannot verify the audit log: ${out}${err}`);
  return (performance.now() - begun) / 1000;
}
