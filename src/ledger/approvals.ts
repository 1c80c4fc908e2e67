/**
 * What humans said to requests that wait for their word. One line a row of the ledger, kept as long
 * as the row.
 *
 * @module
 */
import { numberOf, numberOrNull, type SqlRow, textOf, textOrNull } from "./bind.ts";
import type { Database } from "./database.ts";

/**
 * `waiting` for a word, `given` and not used, `used` by a start, `denied`, or `lapsed` without any.
 */
export type ApprovalState = "waiting" | "given" | "used" | "denied" | "lapsed";

/** One request's approval. Times are wall-clock milliseconds. */
export interface Approval {
  readonly state: ApprovalState;
  /** When the wait began, and when it lapses. */
  readonly since_ms: number;
  readonly until_ms: number;
  /** What was approved: the digest that a start is held against. */
  readonly digest: string | null;
  /** The parts of the digest by name, to tell what changed; JSON. */
  readonly parts: string | null;
  /** Who said so, as claimed, and when. */
  readonly by: string | null;
  readonly at_ms: number | null;
}

const COLUMNS = "state, since_ms, until_ms, digest, parts, by, at_ms";

/** The approval of a row, or null when it never needed one. */
export function readApproval(db: Database, rid: number): Approval | null {
  const row = db.get(`SELECT ${COLUMNS} FROM approvals WHERE rid = ?`, rid);
  return row === undefined ? null : approvalOf(row);
}

/** Stores or replaces the approval of a row. */
export function writeApproval(db: Database, rid: number, approval: Approval): void {
  const { state, since_ms, until_ms, digest, parts, by, at_ms } = approval;
  db.run(
    `INSERT INTO approvals (rid, ${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ` +
      "ON CONFLICT (rid) DO UPDATE SET state = excluded.state, since_ms = excluded.since_ms, " +
      "until_ms = excluded.until_ms, digest = excluded.digest, parts = excluded.parts, " +
      "by = excluded.by, at_ms = excluded.at_ms",
    rid,
    state,
    since_ms,
    until_ms,
    digest,
    parts,
    by,
    at_ms,
  );
}

function approvalOf(row: SqlRow): Approval {
  return {
    state: textOf(row, "state") as ApprovalState,
    since_ms: numberOf(row, "since_ms"),
    until_ms: numberOf(row, "until_ms"),
    digest: textOrNull(row, "digest"),
    parts: textOrNull(row, "parts"),
    by: textOrNull(row, "by"),
    at_ms: numberOrNull(row, "at_ms"),
  };
}
