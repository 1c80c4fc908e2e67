/**
 * How a `Row` becomes columns and back. The list of columns stands here once; queries and inserts
 * are made from it.
 *
 * @module
 */
import { bytesOf, numberOf, numberOrNull, type SqlRow, textOf, textOrNull } from "./bind.ts";
import type { LightRow, NewRow, Row, RowPatch } from "./types.ts";

/** The columns that a new row brings, in the order of `newRowValues`. */
const NEW_COLUMNS = [
  "agent",
  "id",
  "key",
  "digest",
  "verb",
  "class",
  "lock",
  "state",
  "outcome",
  "reason",
  "request_sha256",
  "args",
  "policy",
  "note",
  "plan",
  "max_spend",
  "timeout_ms",
  "received_ms",
  "expires_ms",
  "started_ms",
  "started_tick",
  "finished_ms",
  "attempt",
  "run",
  "claim",
  "pgid",
  "result",
  "request",
] as const satisfies readonly (keyof NewRow)[];

/** What may change, in the order in which an update names it. */
const PATCH_COLUMNS = [
  "state",
  "outcome",
  "reason",
  "started_ms",
  "started_tick",
  "finished_ms",
  "attempt",
  "run",
  "replays",
  "result",
  "pub",
  "policy",
  "expires_ms",
  "pgid",
  "cancel",
  "lookup",
] as const satisfies readonly (keyof RowPatch)[];

const LIGHT_COLUMNS = [
  "rid",
  ...NEW_COLUMNS.filter((name) => name !== "request"),
  "cancel",
  "lookup",
  "replays",
  "pub",
];

/** Column list of a query whose rows `lightRow` reads. */
export const LIGHT = LIGHT_COLUMNS.join(", ");

/** Column list of a query whose rows `fullRow` reads. */
export const FULL = `${LIGHT}, request`;

/** The statement that inserts a row. */
export const INSERT_ROW = `INSERT INTO rows (seq, ${NEW_COLUMNS.join(", ")}) VALUES (?, ${
  NEW_COLUMNS.map(() => "?").join(", ")
})`;

/**
 * The values that `INSERT_ROW` takes.
 *
 * @param seq the last record of the transaction
 */
export function newRowValues(row: NewRow, seq: number): unknown[] {
  return [
    seq,
    ...NEW_COLUMNS.map((name) => name === "result" ? JSON.stringify(row.result) : row[name]),
  ];
}

/**
 * The assignments of an update and their values.
 *
 * @throws {TypeError} when the patch is empty, names something that cannot change, or holds
 *   `undefined`
 */
export function patchAssignments(patch: RowPatch): { sql: string[]; values: unknown[] } {
  const sql: string[] = [];
  const values: unknown[] = [];
  for (const name of PATCH_COLUMNS) {
    if (!Object.hasOwn(patch, name)) continue;
    sql.push(`${name} = ?`);
    const value = patch[name];
    values.push(
      name === "result" || (name === "cancel" && value !== null) ? JSON.stringify(value) : value,
    );
  }
  if (sql.length === 0 || sql.length !== Object.keys(patch).length) {
    throw new TypeError("Cannot change row: the patch is empty or names something that is fixed");
  }
  return { sql, values };
}

/** A row without its request. What the ledger wrote itself is taken at its word. */
export function lightRow(row: SqlRow): LightRow {
  return {
    rid: numberOf(row, "rid"),
    agent: textOf(row, "agent"),
    id: textOf(row, "id"),
    key: textOrNull(row, "key"),
    digest: textOf(row, "digest"),
    verb: textOf(row, "verb"),
    class: textOf(row, "class") as Row["class"],
    lock: textOrNull(row, "lock"),
    state: textOf(row, "state") as Row["state"],
    outcome: textOrNull(row, "outcome") as Row["outcome"],
    reason: textOrNull(row, "reason") as Row["reason"],
    request_sha256: textOf(row, "request_sha256"),
    args: textOf(row, "args"),
    policy: textOf(row, "policy"),
    note: textOrNull(row, "note"),
    plan: textOrNull(row, "plan"),
    max_spend: numberOrNull(row, "max_spend"),
    timeout_ms: numberOf(row, "timeout_ms"),
    received_ms: numberOf(row, "received_ms"),
    expires_ms: numberOf(row, "expires_ms"),
    started_ms: numberOrNull(row, "started_ms"),
    started_tick: numberOrNull(row, "started_tick"),
    finished_ms: numberOrNull(row, "finished_ms"),
    attempt: numberOf(row, "attempt"),
    run: textOrNull(row, "run"),
    claim: textOf(row, "claim"),
    pgid: numberOrNull(row, "pgid"),
    cancel: row["cancel"] === null ? null : JSON.parse(textOf(row, "cancel")),
    lookup: textOrNull(row, "lookup"),
    replays: numberOf(row, "replays"),
    result: JSON.parse(textOf(row, "result")),
    pub: numberOf(row, "pub") as Row["pub"],
  };
}

/** A row with the bytes of its request. */
export function fullRow(row: SqlRow): Row {
  return { ...lightRow(row), request: bytesOf(row, "request") };
}
