/**
 * Settles a ledger that knows less than the audit text beside it, because a human says so. Such a
 * ledger was emptied, truncated, replaced or rolled back, and a start refuses it: it would run again
 * what it has forgotten (S8, Q1).
 *
 * 1. The records that the text has and the ledger has not are taken back into the ledger, each
 *    proven to follow the one before. The chain goes on; nothing in it is changed or left out.
 * 2. What those records tell of is not known well enough to be believed: requests and results are
 *    gone. So every key that was bound or used in the gap is `uncertain`, under each of its ids, and
 *    a human resolves it. A key that a record says was given up stays free.
 * 3. A ledger that cannot be opened at all is set aside, never removed, and a new one is made.
 * 4. All of it is one transaction, with a record of its own; a crash leaves the refusal.
 * 5. A ledger that tells another history than the text is not settled: one of them was altered, and
 *    there is no telling which.
 *
 * The lock on `state/` is held by whoever calls this.
 *
 * @module
 */
import { readChain } from "../audit/read_chain.ts";
import { errorCode } from "../errors.ts";
import { Ledger, type Tx } from "../ledger/ledger.ts";
import { LedgerError, type LedgerErrorKind } from "../ledger/ledger_error.ts";
import type { NewRow, RecordRef, Row, StoredRecord } from "../ledger/types.ts";
import { isId, isKey, isRun } from "../names.ts";
import { CLASSES } from "../policy/policy.ts";
import { coded, isoTime, type Result } from "../result.ts";
import { readExit } from "../run/exit_record.ts";
import { readTaken } from "../run/order_file.ts";
import { runDir } from "../run/run_dir.ts";
import { look } from "../spool/look.ts";
import { transition } from "../transitions.ts";
import type { Log } from "./log.ts";
import { resolveHint } from "./lose.ts";
import { AUDIT_PATH, LEDGER_PATH, openLedger } from "./open_ledger.ts";
import { base } from "./row_fields.ts";
import { loadPolicy } from "./trust_store.ts";

/** Kinds of error after which the file can only be set aside. */
const BEYOND_USE: ReadonlySet<LedgerErrorKind> = new Set([
  "missing",
  "empty",
  "foreign",
  "corrupt",
]);

/** What was settled. */
export interface AcceptedLoss {
  /** First and last record that the ledger had lost; null when it had lost no record. */
  readonly from: number | null;
  readonly upto: number | null;
  /** Requests that are uncertain now. */
  readonly uncertain: readonly { readonly agent: string; readonly id: string }[];
  /** What the old file is called now, or null when it could be used. */
  readonly set_aside: string | null;
}

/** What the text tells of one request. */
interface Told {
  readonly agent: string;
  readonly id: string;
  /** The record that accepted it; null when that came before the gap. */
  accepted: Readonly<Record<string, unknown>> | null;
  readonly joined: string[];
  run: string | null;
  attempt: number;
  /** The last record about it, in words. */
  last: string;
  at_ms: number;
  released: boolean;
}

/**
 * Settles the loss.
 *
 * @param facts `why` and `by` are printable text
 * @returns null when nothing was lost
 * @throws {LedgerError} when it cannot be settled, or the change could not be stored
 */
export function acceptLoss(
  facts: { readonly why: string; readonly by: string },
  now: () => number,
  log: Log,
): AcceptedLoss | null {
  const { ledger, set_aside } = openOrSetAside(now);
  let settled: AcceptedLoss | null;
  try {
    settled = settle(ledger, set_aside, facts, now);
  } finally {
    ledger.close();
  }
  // The text goes on from here, and says so itself when that fails.
  if (settled !== null) openLedger(now, log).ledger.close();
  return settled;
}

function openOrSetAside(now: () => number): { ledger: Ledger; set_aside: string | null } {
  try {
    return { ledger: Ledger.open(LEDGER_PATH, { now, mode: "writer" }), set_aside: null };
  } catch (error) {
    if (!(error instanceof LedgerError) || !BEYOND_USE.has(error.kind)) throw error;
  }
  const aside = `${LEDGER_PATH}.lost-${now()}`;
  for (const suffix of ["-wal", "-shm", ""]) {
    if (look(LEDGER_PATH + suffix) !== null) Deno.renameSync(LEDGER_PATH + suffix, aside + suffix);
  }
  return { ledger: Ledger.open(LEDGER_PATH, { now, mode: "writer" }), set_aside: aside };
}

function settle(
  ledger: Ledger,
  set_aside: string | null,
  facts: { readonly why: string; readonly by: string },
  now: () => number,
): AcceptedLoss | null {
  const head = ledger.head();
  const told = new Map<string, Told>();
  return ledger.transaction((tx): AcceptedLoss | null => {
    let from: number | null = null;
    let upto: number | null = null;
    for (const record of readChain(AUDIT_PATH)) {
      if (head !== null && record.seq <= head.seq) {
        if (record.seq === head.seq) insistOnSame(record, head);
        continue;
      }
      if (from === null) {
        if (head === null) tx.beginAt({ seq: record.seq - 1, hash: record.prev });
        from = record.seq;
      }
      upto = record.seq;
      const event: Record<string, unknown> = JSON.parse(record.line);
      tx.adopt(record, typeof event["claim"] === "string" ? event["claim"] : null);
      note(told, event);
    }
    if (from === null && set_aside === null) return null;
    const lost = [...told.values()];
    const audit = tx.append({
      event: "accepted-loss",
      by: facts.by,
      why: facts.why,
      from,
      upto,
      requests: lost.filter((one) => !one.released).length,
      ...(set_aside === null ? {} : { set_aside }),
    });
    const uncertain: { agent: string; id: string }[] = [];
    for (const one of lost) {
      if (mark(ledger, tx, one, audit, now())) uncertain.push({ agent: one.agent, id: one.id });
    }
    return { from, upto, uncertain, set_aside };
  });
}

/** Rule 5. */
function insistOnSame(record: StoredRecord, head: RecordRef): void {
  if (record.hash === head.hash) return;
  throw new LedgerError(
    "forked",
    `Cannot settle: record ${record.seq} of the audit text is not the one of the ledger`,
  );
}

/** Takes one record of the gap into account. */
function note(told: Map<string, Told>, event: Readonly<Record<string, unknown>>): void {
  const { agent, id } = event;
  const name = event["event"];
  if (!isId(agent) || !isId(id)) return;
  const at_ms = Date.parse(String(event["at"]));
  const known = told.get(`${agent}/${id}`);
  const fresh = (): Told => ({
    agent,
    id,
    accepted: null,
    joined: [],
    run: null,
    attempt: 1,
    last: "",
    at_ms,
    released: false,
  });
  if (name === "joined") {
    const owner = told.get(`${agent}/${String(event["replay_of"])}`);
    owner?.joined.push(id);
    return;
  }
  let one: Told;
  switch (name) {
    case "accepted":
      one = { ...fresh(), accepted: event };
      break;
    case "started":
      one = known ?? fresh();
      // A question about a run is no run.
      if (event["lookup_of"] !== undefined) break;
      one.run = isRun(event["run"]) ? event["run"] : null;
      one.attempt = Number(event["attempt"] ?? 1);
      break;
    case "finished":
    case "uncertain":
    case "cancelled":
    case "resolved":
    case "repaired":
      one = known ?? fresh();
      one.released = givenUp(event, one);
      break;
    case "refused":
      // Any other refusal bound nothing.
      if (event["released"] !== true) return;
      one = known ?? fresh();
      one.released = true;
      break;
    default:
      return;
  }
  one.last = `${String(name)}${typeof event["reason"] === "string" ? ` (${event["reason"]})` : ""}`;
  one.at_ms = at_ms;
  told.set(`${agent}/${id}`, one);
}

/** True for the end of a first attempt that was never started, and no cancel or lapse. */
function givenUp(event: Readonly<Record<string, unknown>>, one: Told): boolean {
  return event["event"] === "finished" && event["started"] === false && one.attempt === 1 &&
    event["reason"] !== "cancelled" && event["reason"] !== "expired";
}

/** Makes a request of the gap `uncertain`; false when it is free or known to be over. */
function mark(ledger: Ledger, tx: Tx, one: Told, audit: RecordRef, now_ms: number): boolean {
  let row = ledger.rowById(one.agent, one.id);
  if (one.released) {
    if (row !== null && row.state !== "done") tx.release(row.rid);
    return false;
  }
  const facts = one.accepted === null ? null : accepted(one, one.accepted);
  if (facts !== null) {
    // A name that an older request has here was given up in the gap, or it could not be bound anew.
    for (const old of [row, ledger.rowByKey(one.agent, facts.key ?? "")]) {
      if (old !== null && old.claim !== facts.claim) tx.release(old.rid);
    }
    row = ledger.rowById(one.agent, one.id);
  }
  const pgid = groupOf(one.run);
  if (row === null) {
    if (facts === null) return false;
    const rid = tx.insertRow({ ...facts, pgid, result: lostResult(facts, one, audit, now_ms) });
    for (const id of one.joined) {
      if (ledger.rowById(one.agent, id) === null) tx.bindId(one.agent, id, rid);
    }
    return true;
  }
  if (row.state === "done") return false;
  const now: Row = { ...row, attempt: one.attempt };
  tx.updateRow(row.rid, {
    state: row.state === "uncertain" ? row.state : transition(row.state, "accept-loss"),
    outcome: null,
    reason: "uncertain",
    attempt: one.attempt,
    run: one.run ?? row.run,
    pgid: pgid ?? row.pgid,
    lookup: null,
    finished_ms: now_ms,
    result: lostResult(now, one, audit, now_ms),
  });
  return true;
}

/** What can be told of a request whose row is gone; its bytes and arguments are not among it. */
function accepted(one: Told, event: Readonly<Record<string, unknown>>): Omit<NewRow, "result"> {
  const text = (name: string) => {
    const value = event[name];
    return typeof value === "string" ? value : "";
  };
  const policy = text("policy");
  return {
    agent: one.agent,
    id: one.id,
    key: isKey(event["key"]) ? event["key"] : one.id,
    digest: text("digest"),
    verb: text("verb"),
    class: CLASSES.find((name) => name === event["class"]) ?? "destructive",
    lock: lockOf(policy, text("verb")),
    state: transition(null, "accept-loss"),
    outcome: null,
    reason: "uncertain",
    request: new Uint8Array(),
    request_sha256: text("request_sha256"),
    args: "{}",
    policy,
    note: typeof event["note"] === "string" ? event["note"] : null,
    plan: null,
    max_spend: null,
    timeout_ms: 1,
    received_ms: one.at_ms,
    expires_ms: one.at_ms,
    started_ms: one.run === null ? null : one.at_ms,
    started_tick: null,
    finished_ms: one.at_ms,
    attempt: one.attempt,
    run: one.run,
    pgid: null,
    claim: text("claim"),
  };
}

function lostResult(
  row: Omit<NewRow, "result">,
  one: Told,
  audit: RecordRef,
  now_ms: number,
): Result {
  return {
    ...base(row),
    state: "uncertain",
    ...coded("uncertain"),
    message: `The host lost what it knew of it; the last that its log says is: ${one.last}`,
    hint: resolveHint(row),
    finished_at: isoTime(now_ms),
    audit,
  };
}

/** The group of a run of which no end is recorded: it may live on. */
function groupOf(run: string | null): number | null {
  if (run === null) return null;
  try {
    return readExit(runDir(run), run) === null ? readTaken(run)?.pgid ?? null : null;
  } catch (error) {
    if (errorCode(error) === undefined) throw error;
    return null;
  }
}

function lockOf(policy: string, verb: string): string | null {
  try {
    return loadPolicy(policy).verbs.get(verb)?.lock ?? null;
  } catch {
    // The policy is gone as well; what the lock protected is for the human to know.
    return null;
  }
}
