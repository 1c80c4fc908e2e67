/**
 * What the ledger is asked by a person who looks back: requests and refusals, the newest first, and
 * what stands open now. Everything here is read only and comes in pages, so that no answer is as big
 * as the ledger; a page of filtered rows may look at all of them.
 *
 * A refusal that came before anything was bound has no row, it is one record of the audit log and is
 * known as long as that record is in the ledger. One that came after has a row, and its record says
 * `released`: it is told once, as a row.
 *
 * @module
 */
import { numberOf, numberOrNull, type SqlRow, type SqlValue, textOf, textOrNull } from "./bind.ts";
import type { Database } from "./database.ts";
import type { Approval } from "./approvals.ts";
import type { SpendState } from "./spends.ts";
import type { Row, StoredRecord } from "./types.ts";
import { storedRecord } from "../audit/chain.ts";
import { isoTime } from "../result.ts";

/** What is looked for; what is absent or null narrows nothing. */
export interface HistoryFilter {
  readonly agent?: string | null;
  readonly verb?: string | null;
  /** Received at this time or later, wall-clock milliseconds. */
  readonly since_ms?: number | null;
}

/** A row as a list shows it. Times are wall-clock milliseconds. */
export type HistoryRow =
  & Pick<
    Row,
    | "rid"
    | "agent"
    | "id"
    | "verb"
    | "class"
    | "state"
    | "outcome"
    | "reason"
    | "args"
    | "note"
    | "received_ms"
    | "started_ms"
    | "finished_ms"
    | "attempt"
    | "replays"
  >
  & {
    /** The stage that said no, where one did. */
    readonly stage: string | null;
    /** The child's own, where the command failed. */
    readonly exit_code: number | null;
    readonly signal: string | null;
  };

/** A row's approval with whose it is. */
export interface ApprovalOf extends Approval {
  readonly agent: string;
  readonly id: string;
  readonly verb: string;
}

/** What one agent spent on one day (UTC, days since the epoch), billionths. */
export interface DaySpend {
  readonly agent: string;
  readonly day: number;
  readonly spent: bigint;
  readonly blocked: boolean;
}

/** What one verb's requests were charged or still hold, billionths. */
export interface VerbSpend {
  readonly agent: string;
  readonly verb: string;
  readonly state: SpendState;
  readonly requests: number;
  readonly granted: bigint;
  readonly charged: bigint;
}

/** Rows in each state that is not final. */
export interface OpenCounts {
  readonly running: number;
  readonly pending: number;
  readonly uncertain: number;
  /** Pending ones that wait for a human's word. */
  readonly approvals: number;
}

// The result is read only where it is small: output makes it big, and a page of rows must not be.
const COLUMNS = "rid, agent, id, verb, class, state, outcome, reason, args, note, received_ms, " +
  "started_ms, finished_ms, attempt, replays, " +
  "CASE WHEN outcome IN ('rejected', 'expired', 'approval_lapsed') " +
  "THEN json_extract(result, '$.stage') END AS stage, " +
  "CASE WHEN outcome = 'failed' THEN json_extract(result, '$.exit_code') END AS exit_code, " +
  "CASE WHEN outcome IN ('failed', 'timed_out', 'cancelled') " +
  "THEN json_extract(result, '$.signal') END AS signal";

/** A record's event and time; both stand near its beginning, where no agent's text can be. */
const EVENT = `substr(line, instr(line, '"event":"') + 9, ` +
  `instr(substr(line, instr(line, '"event":"') + 9, 65), '"') - 1)`;
const AT = `substr(line, instr(line, '"at":"') + 6, 24)`;

/** What a sum of amounts is taken apart by. */
const PART = 1_000_000_000;

export class HistoryReads {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Rows, the newest first.
   *
   * @param before only rows that arrived before this one; null from the newest on
   */
  rows(before: number | null, filter: HistoryFilter, limit: number): HistoryRow[] {
    const where = ["rid < ?"];
    const values: SqlValue[] = [before ?? Number.MAX_SAFE_INTEGER];
    const narrow = (sql: string, value: SqlValue | undefined) => {
      if (value === null || value === undefined) return;
      where.push(sql);
      values.push(value);
    };
    narrow("agent = ?", filter.agent);
    narrow("verb = ?", filter.verb);
    narrow("received_ms >= ?", filter.since_ms);
    return this.#db.all(
      `SELECT ${COLUMNS} FROM rows WHERE ${where.join(" AND ")} ORDER BY rid DESC LIMIT ?`,
      ...values,
      limit,
    ).map(historyRow);
  }

  /**
   * Rows that are pending, running or uncertain, the first that came first.
   *
   * @param state which of them
   */
  open(state: "pending" | "running" | "uncertain", limit: number): HistoryRow[] {
    const open = state === "uncertain" ? "" : "state IN ('pending', 'running') AND ";
    return this.#db.all(
      `SELECT ${COLUMNS} FROM rows WHERE ${open}state = '${state}' ORDER BY rid LIMIT ?`,
      limit,
    ).map(historyRow);
  }

  /** How many rows stand open. */
  counts(): OpenCounts {
    const count = (sql: string) => {
      const row = this.#db.get(`SELECT COUNT(*) AS n FROM ${sql}`);
      return row === undefined ? 0 : numberOf(row, "n");
    };
    const open = "rows WHERE state IN ('pending', 'running') AND state =";
    return {
      running: count(`${open} 'running'`),
      pending: count(`${open} 'pending'`),
      uncertain: count("rows WHERE state = 'uncertain'"),
      approvals: count(
        "rows WHERE state IN ('pending', 'running') AND state = 'pending' AND EXISTS " +
          "(SELECT 1 FROM approvals WHERE approvals.rid = rows.rid AND approvals.state = 'waiting')",
      ),
    };
  }

  /** How many rows there are, and how many of them the filter passes. */
  countRows(filter: HistoryFilter): { readonly all: number; readonly passed: number } {
    const row = this.#db.get(
      "SELECT COUNT(*) AS n, COALESCE(SUM((?1 IS NULL OR agent = ?1) AND " +
        "(?2 IS NULL OR verb = ?2) AND (?3 IS NULL OR received_ms >= ?3)), 0) AS passed FROM rows",
      filter.agent ?? null,
      filter.verb ?? null,
      filter.since_ms ?? null,
    );
    return row === undefined
      ? { all: 0, passed: 0 }
      : { all: numberOf(row, "n"), passed: numberOf(row, "passed") };
  }

  /** The newest row of an id that was released, without its request; null when there is none. */
  released(agent: string, id: string): number | null {
    const row = this.#db.get(
      "SELECT rid FROM rows INDEXED BY rows_released WHERE agent = ? AND id = ? AND key IS NULL " +
        "ORDER BY rid DESC LIMIT 1",
      agent,
      id,
    );
    return row === undefined ? null : numberOf(row, "rid");
  }

  /**
   * Records of some events, the newest first.
   *
   * @param before only records with a smaller number; null from the newest on
   */
  records(
    events: readonly string[],
    before: number | null,
    sinceMs: number | null,
    limit: number,
  ): StoredRecord[] {
    return this.#db.all(
      `SELECT seq, line FROM records WHERE seq < ? AND ${EVENT} IN (${marks(events)})` +
        (sinceMs === null ? "" : ` AND ${AT} >= ?`) + " ORDER BY seq DESC LIMIT ?",
      before ?? Number.MAX_SAFE_INTEGER,
      ...events,
      ...(sinceMs === null ? [] : [isoTime(sinceMs)]),
      limit,
    ).map((row) => storedRecord(numberOf(row, "seq"), textOf(row, "line")));
  }

  /** How many records of each event the ledger has. */
  eventCounts(sinceMs: number | null): Map<string, number> {
    const rows = this.#db.all(
      `SELECT ${EVENT} AS event, COUNT(*) AS n FROM records` +
        (sinceMs === null ? "" : ` WHERE ${AT} >= ?`) + " GROUP BY event",
      ...(sinceMs === null ? [] : [isoTime(sinceMs)]),
    );
    return new Map(rows.map((row) => [textOf(row, "event"), numberOf(row, "n")]));
  }

  /** How many refusals bound nothing, as far as their records are in the ledger. */
  countRefusals(sinceMs: number | null): number {
    const row = this.#db.get(
      `SELECT COUNT(*) AS n FROM records WHERE ${EVENT} = 'refused' ` +
        // No text of an agent can hold this: its quotes are escaped in the line.
        `AND instr(line, ',"released":true') = 0` + (sinceMs === null ? "" : ` AND ${AT} >= ?`),
      ...(sinceMs === null ? [] : [isoTime(sinceMs)]),
    );
    return row === undefined ? 0 : numberOf(row, "n");
  }

  /** Approvals of rows, the newest first. */
  approvals(sinceMs: number | null, limit: number): ApprovalOf[] {
    return this.#db.all(
      "SELECT approvals.state, since_ms, until_ms, approvals.digest, parts, by, at_ms, agent, id, verb " +
        "FROM approvals JOIN rows ON rows.rid = approvals.rid " +
        "WHERE since_ms >= ? ORDER BY approvals.rid DESC LIMIT ?",
      sinceMs ?? 0,
      limit,
    ).map((row) => ({
      agent: textOf(row, "agent"),
      id: textOf(row, "id"),
      verb: textOf(row, "verb"),
      state: textOf(row, "state") as Approval["state"],
      since_ms: numberOf(row, "since_ms"),
      until_ms: numberOf(row, "until_ms"),
      digest: textOrNull(row, "digest"),
      parts: textOrNull(row, "parts"),
      by: textOrNull(row, "by"),
      at_ms: numberOrNull(row, "at_ms"),
    }));
  }

  /** How many approvals there are in each state, and the waits of those that were answered. */
  approvalCounts(sinceMs: number | null): Map<Approval["state"], number> {
    const rows = this.#db.all(
      "SELECT state, COUNT(*) AS n FROM approvals WHERE since_ms >= ? GROUP BY state",
      sinceMs ?? 0,
    );
    return new Map(rows.map((
      row,
    ) => [textOf(row, "state") as Approval["state"], numberOf(row, "n")]));
  }

  /**
   * What agents spent a day, the newest day first.
   *
   * @param from the first day that is told, days since the epoch; null for all
   */
  spendDays(from: number | null, limit: number): DaySpend[] {
    return this.#db.all(
      "SELECT agent, day, spent, blocked FROM spend_days WHERE day >= ? " +
        "ORDER BY day DESC, agent LIMIT ?",
      from ?? 0,
      limit,
    ).map((row) => ({
      agent: textOf(row, "agent"),
      day: numberOf(row, "day"),
      spent: BigInt(textOf(row, "spent")),
      blocked: numberOf(row, "blocked") === 1,
    }));
  }

  /** What verbs were charged and still hold, agent by agent, for requests received since. */
  spendByVerb(sinceMs: number | null, limit: number): VerbSpend[] {
    return this.#db.all(
      "SELECT rows.agent AS agent, verb, spends.state AS state, COUNT(*) AS n, " +
        `${total("granted")}, ${total("charged")} ` +
        "FROM spends JOIN rows ON rows.rid = spends.rid WHERE received_ms >= ? " +
        "GROUP BY rows.agent, verb, spends.state ORDER BY rows.agent, verb, spends.state LIMIT ?",
      sinceMs ?? 0,
      limit,
    ).map((row) => ({
      agent: textOf(row, "agent"),
      verb: textOf(row, "verb"),
      state: textOf(row, "state") as SpendState,
      requests: numberOf(row, "n"),
      granted: totalOf(row, "granted"),
      charged: totalOf(row, "charged"),
    }));
  }

  /** The verbs that rows were accepted for, by name. */
  verbs(limit: number): string[] {
    return this.#db.all("SELECT DISTINCT verb FROM rows ORDER BY verb LIMIT ?", limit)
      .map((row) => textOf(row, "verb"));
  }
}

/**
 * The sum of a column of amounts, in two parts: each amount fits into 64 bits, and ten of the
 * greatest together do not.
 */
function total(column: string): string {
  return `CAST(SUM(${column} / ${PART}) AS TEXT) AS ${column}_high, ` +
    `CAST(SUM(${column} % ${PART}) AS TEXT) AS ${column}_low`;
}

function totalOf(row: SqlRow, column: string): bigint {
  return BigInt(textOf(row, `${column}_high`)) * BigInt(PART) +
    BigInt(textOf(row, `${column}_low`));
}

function marks(list: readonly unknown[]): string {
  return list.map(() => "?").join(", ");
}

function historyRow(row: SqlRow): HistoryRow {
  return {
    rid: numberOf(row, "rid"),
    agent: textOf(row, "agent"),
    id: textOf(row, "id"),
    verb: textOf(row, "verb"),
    class: textOf(row, "class") as Row["class"],
    state: textOf(row, "state") as Row["state"],
    outcome: textOrNull(row, "outcome") as Row["outcome"],
    reason: textOrNull(row, "reason") as Row["reason"],
    args: textOf(row, "args"),
    note: textOrNull(row, "note"),
    received_ms: numberOf(row, "received_ms"),
    started_ms: numberOrNull(row, "started_ms"),
    finished_ms: numberOrNull(row, "finished_ms"),
    attempt: numberOf(row, "attempt"),
    replays: numberOf(row, "replays"),
    stage: textOrNull(row, "stage"),
    exit_code: numberOrNull(row, "exit_code"),
    signal: textOrNull(row, "signal"),
  };
}
