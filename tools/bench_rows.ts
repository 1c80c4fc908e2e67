/**
 * Whether cost grows with what is stored: a bridge with an empty ledger and one with many finished
 * requests in it, measured side by side, in turns, so that whatever else the machine does meets both.
 *
 * The ledger is filled through the program's own module: rows with ids, keys, results and audit
 * records, most of them reaped, the newest still counted as published. Beyond fifty thousand, a day's
 * worth, there are rows only, as in a ledger whose older records stand in rotated segments.
 *
 * @module
 */
import { AuditText } from "../src/audit/audit_text.ts";
import { requestDigest } from "../src/ledger/keys.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import { DatabaseSync } from "node:sqlite";
import { TestBridge, there, until, verb } from "../tests/helpers/bridge.ts";
import { newRow } from "../tests/ledger_fixture.ts";
import { ask, type Gathered, median, memoryOf, OBSERVE, warm } from "./bench_kit.ts";

/** Rows of one transaction of the filling. */
const BATCH = 2000;
/** Newest rows that count as published. */
const SHOWN = 10_000;

/** Rows that come with their records; further ones are older, and their records have left. */
const RECORDED = 50_000;
/** Copies made in one transaction. */
const COPIES = 50_000;

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

/**
 * Fills a ledger with finished requests: the program's own module makes the first ones, and further
 * ones are copies of a reaped row under names of their own.
 */
function fillMany(bridge: TestBridge, rows: number): void {
  fill(bridge, Math.min(rows, RECORDED));
  if (rows <= RECORDED) return;
  const db = new DatabaseSync(bridge.path("state/ledger.db"));
  db.exec("PRAGMA synchronous = OFF");
  const own: Readonly<Record<string, string>> = {
    id: "'old-' || n.value",
    key: "replace(key, 'old-0', 'old-' || n.value)",
    claim: "printf('%032x', n.value)",
    result: "replace(result, '\"old-0\"', '\"old-' || n.value || '\"')",
    pub: "2",
  };
  const columns = db.prepare("SELECT name FROM pragma_table_info('rows')").all()
    .map((column) => String(column["name"])).filter((name) => name !== "rid");
  const copy = db.prepare(
    "WITH RECURSIVE n (value) AS (SELECT ? UNION ALL SELECT value + 1 FROM n WHERE value < ?) " +
      `INSERT INTO rows (${columns.join(", ")}) ` +
      `SELECT ${columns.map((name) => own[name] ?? name).join(", ")} FROM rows, n ` +
      "WHERE rid = (SELECT rid FROM ids WHERE id = 'old-0')",
  );
  const name = db.prepare("INSERT INTO ids SELECT agent, id, rid, 0 FROM rows WHERE rid > ?");
  for (let from = RECORDED; from < rows; from += COPIES) {
    const last = Number(db.prepare("SELECT MAX(rid) AS rid FROM rows").get()?.["rid"]);
    db.exec("BEGIN IMMEDIATE");
    copy.run(BigInt(from), BigInt(Math.min(rows, from + COPIES) - 1));
    name.run(last);
    db.exec("COMMIT");
  }
  db.close();
}

/** A start, from the program's to its ready line. */
async function timedStart(bridge: TestBridge): Promise<number> {
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
  fillMany(filled, rows);
  out.say(`${rows} rows are filled in`);
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
  out.figure(`daemon with ${rows} rows, resident`, memoryOf(filled.pid), "MB");
  await filled.stop();
  const begun = performance.now();
  const { code, err } = await filled.chb("audit", "verify");
  if (code !== 0) throw new Error(`Cannot verify the audit log: ${err}`);
  out.figure(
    `audit verify, ${2 * Math.min(rows, RECORDED)} records and more`,
    (performance.now() - begun) / 1000,
    "s",
  );
}
