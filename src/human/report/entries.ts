/**
 * What happened, as one list: requests that were accepted, and refusals that bound nothing, the
 * newest first. `chb history` prints it, `chb report` draws it.
 *
 * @module
 */
import { codeOf, CODES, type Outcome, type Reason } from "../../codes.ts";
import type { HistoryFilter } from "../../ledger/history_reads.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import type { StoredRecord } from "../../ledger/types.ts";

/** One line of the list. Times are wall-clock milliseconds. */
export interface Entry {
  readonly kind: "request" | "refusal";
  readonly agent: string;
  /** Null for a refusal of an entry that had no valid name. */
  readonly id: string | null;
  /** What such an entry was called, escaped. */
  readonly name: string | null;
  /** Null where a refusal came before the verb was known. */
  readonly verb: string | null;
  readonly class: string | null;
  readonly state: string;
  readonly outcome: Outcome | null;
  readonly reason: Reason | null;
  readonly stage: string | null;
  readonly args: string | null;
  readonly note: string | null;
  readonly received_ms: number;
  readonly started_ms: number | null;
  readonly finished_ms: number | null;
  readonly exit_code: number | null;
  readonly signal: string | null;
  readonly attempt: number;
  readonly replays: number;
}

/** What is looked for. */
export interface EntryFilter extends HistoryFilter {
  /** An outcome, or a state of a request that has none yet. */
  readonly outcome?: string | null;
}

/** Rows and records that are read at a time. */
const PAGE = 250;

const REASONS: ReadonlySet<string> = new Set(CODES.map((c) => c.reason));

/** The word for how an entry ended or stands. */
export function endOf(entry: Pick<Entry, "state" | "outcome">): string {
  return entry.outcome ?? entry.state;
}

/** Milliseconds from start to end, or null. A clock that was set back makes none below zero. */
export function durationOf(entry: Pick<Entry, "started_ms" | "finished_ms">): number | null {
  const { started_ms, finished_ms } = entry;
  return started_ms === null || finished_ms === null ? null : Math.max(0, finished_ms - started_ms);
}

/**
 * Every entry that the filter passes, the newest first. Requests and refusals each come in the order
 * in which they arrived, and are merged by time.
 *
 * @param page how many are read at a time
 */
export function* entries(ledger: Ledger, filter: EntryFilter, page = PAGE): Generator<Entry> {
  const left = requests(ledger, filter, page);
  const right = refusals(ledger, filter, page);
  let a = left.next();
  let b = right.next();
  while (a.done !== true || b.done !== true) {
    if (b.done === true || (a.done !== true && a.value.received_ms > b.value.received_ms)) {
      if (a.done !== true) yield a.value;
      a = left.next();
    } else {
      yield b.value;
      b = right.next();
    }
  }
}

function passes(filter: EntryFilter, entry: Entry): boolean {
  const { outcome } = filter;
  return outcome === null || outcome === undefined || endOf(entry) === outcome;
}

function* requests(ledger: Ledger, filter: EntryFilter, page: number): Generator<Entry> {
  for (let before: number | null = null;;) {
    const rows = ledger.history.rows(before, filter, page);
    for (const { rid: _rid, ...row } of rows) {
      const entry: Entry = { kind: "request", name: null, ...row };
      if (passes(filter, entry)) yield entry;
    }
    const last = rows.at(-1);
    if (last === undefined || rows.length < page) return;
    before = last.rid;
  }
}

function* refusals(ledger: Ledger, filter: EntryFilter, page: number): Generator<Entry> {
  const since = filter.since_ms ?? null;
  for (let before: number | null = null;;) {
    const records = ledger.history.records(["refused"], before, since, page);
    for (const record of records) {
      const entry = refusal(record);
      if (entry === null) continue;
      if (filter.agent !== null && filter.agent !== undefined && entry.agent !== filter.agent) {
        continue;
      }
      if (filter.verb !== null && filter.verb !== undefined && entry.verb !== filter.verb) continue;
      if (passes(filter, entry)) yield entry;
    }
    const last = records.at(-1);
    if (last === undefined || records.length < page) return;
    before = last.seq;
  }
}

/** A record of a refusal as an entry; null for one that has a row. */
export function refusal(record: StoredRecord): Entry | null {
  const facts: Record<string, unknown> = JSON.parse(record.line);
  if (facts["event"] !== "refused" || facts["released"] === true) return null;
  const text = (name: string) => {
    const value = facts[name];
    return typeof value === "string" ? value : null;
  };
  const reason = text("reason");
  const at = Date.parse(text("at") ?? "");
  const known = reason !== null && REASONS.has(reason) ? reason as Reason : null;
  return {
    kind: "refusal",
    agent: text("agent") ?? "",
    id: text("id"),
    name: text("name"),
    verb: text("verb"),
    class: null,
    state: "done",
    outcome: (known === null ? null : codeOf(known).outcome) ?? "rejected",
    reason: known,
    stage: text("stage"),
    args: null,
    note: null,
    received_ms: at,
    started_ms: null,
    finished_ms: at,
    exit_code: null,
    signal: null,
    attempt: 0,
    replays: 0,
  };
}
