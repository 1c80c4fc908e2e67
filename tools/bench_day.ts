/**
 * A day of the audit log: one request a second, three records each. How long the log is, what it
 * takes to verify it, to look at its end and to start over it, and whether anybody has to wait while
 * it is rotated.
 *
 * @module
 */
import { TestBridge, until, verb } from "../tests/helpers/bridge.ts";
import { fill } from "./bench_fill.ts";
import { ask, type Gathered, median, OBSERVE, quantile, warm } from "./bench_kit.ts";
import { timedStart, timedVerify } from "./bench_rows.ts";

const DAY_MS = 86_400_000;
/** Milliseconds that a start over the log may take beyond one over an empty log. */
const START_MS = 1000;

/**
 * Measures a day that ended now.
 *
 * @param requests of that day
 * @param asked requests before and around a rotation
 * @param times how often each command and each start is timed
 */
export async function benchDay(
  out: Gathered,
  requests: number,
  asked: number,
  times: number,
): Promise<void> {
  const options = { serve: [], verbs: { observe: verb(["/usr/bin/true"]) } };
  await using empty = await TestBridge.make(options);
  await using bridge = await TestBridge.make(options);
  // The whole day in one file and in the ledger: what the first rotation of a new bridge finds.
  fill(bridge, requests, { from_ms: Date.now() - DAY_MS, every_ms: 1000, rotate: false });
  const text = bridge.path("state/audit/audit.jsonl");
  const day = `${requests} requests`;
  out.figure(`audit log, ${day}`, Deno.statSync(text).size / 1e6, "MB");
  out.figure(`audit verify, ${day}`, await timedVerify(bridge), "s");
  for (const words of [["head"], ["tail"], ["tail", "10000"]]) {
    const took: number[] = [];
    for (let n = 0; n < times; n++) {
      const begun = performance.now();
      const { code, err } = await bridge.chb("audit", ...words);
      if (code !== 0) throw new Error(`audit ${words.join(" ")}: ${err}`);
      took.push(performance.now() - begun);
    }
    out.figure(`audit ${words.join(" ")}, ${day}`, median(took), "ms");
  }
  // The text would be rotated for its size at once: its bound is far away until it is meant to be.
  await bound(bridge, 1024 ** 3);
  const starts = [empty, bridge].map(() => [] as number[]);
  const crashes = [empty, bridge].map(() => [] as number[]);
  for (let n = 0; n < times; n++) {
    for (const [k, one] of [empty, bridge].entries()) {
      starts[k]?.push(await timedStart(one));
      await one.stop("SIGKILL");
      crashes[k]?.push(await timedStart(one));
      await until(
        "the pages to be read",
        () => !/page-check/.test(one.log) || /all of them hold/.test(one.log),
        300_000,
      );
      await one.stop();
    }
  }
  for (const [what, all] of [["a start", starts], ["a start after a crash", crashes]] as const) {
    const [none = NaN, full = NaN] = all.map(median);
    out.figure(`${what}, empty log`, none, "ms");
    out.figure(`${what}, ${day}`, full, "ms", { target: { atMost: none + START_MS } });
  }
  await bridge.serve();
  warm(bridge);
  const series = (name: string, over: () => boolean) => {
    const took: number[] = [];
    for (let n = 0; n < asked || !over(); n++) took.push(ask(bridge, `${name}-${n}`, OBSERVE));
    return took;
  };
  const before = series("before", () => true);
  const segments = () =>
    [...Deno.readDirSync(bridge.path("state/audit"))].some(({ name }) => name !== "audit.jsonl");
  await bound(bridge, Math.max(65_536, Math.floor(Deno.statSync(text).size / 2)));
  const during = series("during", segments);
  out.figure("a request, median", median(before), "ms");
  out.figure("a request, slowest", quantile(before, 1), "ms");
  out.figure("a request around a rotation, median", median(during), "ms");
  out.figure("a request around a rotation, slowest", quantile(during, 1), "ms");
}

/** Has the audit text rotated above so many bytes from now on. */
async function bound(bridge: TestBridge, bytes: number): Promise<void> {
  const path = bridge.path("bridge.jsonc");
  const policy = JSON.parse(Deno.readTextFileSync(path));
  policy.retention = { ...policy.retention, audit_segment_bytes: bytes };
  Deno.writeTextFileSync(path, JSON.stringify(policy, null, 2));
  const { code, err } = await bridge.chb("trust", "--yes");
  if (code !== 0) throw new Error(`trust: ${err}`);
}
