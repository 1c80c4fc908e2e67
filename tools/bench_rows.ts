/**
 * Whether cost grows with what is stored: a bridge with an empty ledger and one with many finished
 * requests in it, measured side by side, in turns, so that whatever else the machine does meets both.
 *
 * The ledger is filled through the program's own module: rows with ids, keys, results and audit
 * records, most of them reaped, the newest still counted as published.
 *
 * @module
 */
import { AuditText } from "../src/audit/audit_text.ts";
import { requestDigest } from "../src/ledger/keys.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import { TestBridge, there, until, verb } from "../tests/helpers/bridge.ts";
import { newRow } from "../tests/ledger_fixture.ts";

/** Rows of one transaction of the filling. */
const BATCH = 2000;
/** Newest rows that count as published. */
const SHOWN = 10_000;

/** Medians, milliseconds. */
export interface RowFigures {
  readonly rows: number;
  /** A new request, from its rename to its result. */
  readonly fresh: number;
  /** A request whose key is bound already. */
  readonly replay: number;
  /** From the start of the program to its ready line, after a clean stop. */
  readonly start: number;
  /** The same after the daemon was killed. */
  readonly crashed: number;
}

/** How one request is timed. */
export type Ask = (bridge: TestBridge, id: string, text: string) => number;

/** Fills the ledger of a bridge that nobody serves with finished requests, sixty days old. */
export function fill(bridge: TestBridge, rows: number): void {
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  const digest = requestDigest({ verb: Object.keys(policy.verbs)[0] ?? "", args: {} });
  const day = 24 * 3_600_000;
  using ledger = Ledger.open(bridge.path("state/ledger.db"), { now: Date.now, mode: "writer" });
  for (let from = 0; from < rows; from += BATCH) {
    ledger.transaction((tx) => {
      for (let n = from; n < Math.min(rows, from + BATCH); n++) {
        const id = `old-${n}`;
        const at = Date.now() - 60 * day + n;
        const claim = n.toString(16).padStart(32, "0");
        tx.append({ event: "accepted", agent: "main", id, claim, verb: "observe" });
        const audit = tx.append({ event: "finished", agent: "main", id, reason: "ok" });
        const rid = tx.insertRow(newRow(id, {
          state: "done",
          outcome: "succeeded",
          reason: "ok",
          verb: "observe",
          digest,
          claim,
          received_ms: at,
          started_ms: at,
          finished_ms: at,
          result: {
            ...newRow(id).result,
            state: "done",
            outcome: "succeeded",
            code: 0,
            reason: "ok",
            next: "nothing",
            audit,
          },
        }));
        if (n < rows - SHOWN) tx.updateRow(rid, { pub: 2 });
      }
    });
    ledger.transaction((tx) => {
      const shown = ledger.unpublished(BATCH).map(({ rid }) => ({ rid, files: 1, bytes: 700 }));
      tx.markPublished(shown);
    });
  }
  // Else the first start would write the text of all that was filled in.
  new AuditText(bridge.path("state/audit/audit.jsonl")).repair(ledger);
}

/** A start, from the program's to its ready line. */
async function timedStart(bridge: TestBridge): Promise<number> {
  const begun = performance.now();
  await bridge.serve();
  return performance.now() - begun;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

/**
 * Measures an empty and a filled ledger.
 *
 * @param rows finished requests in the filled one
 * @param requests new requests and replays of each
 * @param starts starts of each kind
 */
export async function benchRows(
  rows: number,
  requests: number,
  starts: number,
  ask: Ask,
): Promise<readonly [empty: RowFigures, filled: RowFigures]> {
  const options = { serve: [], verbs: { observe: verb(["/usr/bin/true"]) } };
  await using empty = await TestBridge.make(options);
  await using filled = await TestBridge.make(options);
  fill(empty, 1);
  fill(filled, rows);
  const both = [empty, filled];
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
  for (const bridge of both) {
    for (let i = 0; i < 20; i++) ask(bridge, `warm-${i}`, '{"verb":"observe"}');
  }
  await each("fresh", requests, (bridge, i) => ask(bridge, `new-${i}`, '{"verb":"observe"}'));
  await each("replay", requests, (bridge, i) => {
    const id = `old-${bridge === empty ? 0 : Math.floor(i * rows / requests)}`;
    const result = bridge.path("spool/main/results", `${id}.json`);
    if (there(result)) Deno.removeSync(result);
    return ask(bridge, id, '{"verb":"observe"}');
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
  const [one, other] = samples.map((s, k) => ({
    rows: k === 0 ? 1 : rows,
    fresh: median(s.fresh),
    replay: median(s.replay),
    start: median(s.start),
    crashed: median(s.crashed),
  }));
  if (one === undefined || other === undefined) throw new Error("Cannot measure: no samples");
  return [one, other];
}
