/**
 * A request of which nobody knows any more whether it happened: how its row comes to say so.
 *
 * @module
 */
import type { Tx } from "../ledger/ledger.ts";
import type { Row } from "../ledger/types.ts";
import { coded, isoTime, type Result } from "../result.ts";
import { transition } from "../transitions.ts";
import { base } from "./row_fields.ts";
import { closeSpend } from "./spends.ts";

/** What an agent is told to wait for. */
export function resolveHint(row: Pick<Row, "agent" | "id">): string {
  return "It is not run again. A human looks at what it did and decides on the host: " +
    `chb resolve ${row.agent}/${row.id}`;
}

/**
 * Makes a row `uncertain`.
 *
 * @param event `lose`: what ran it left no record; `not-again`: an earlier attempt did, and another
 *   one must not start
 * @param pgid the process group that may live on, or null: see `Row`
 */
export function loseRow(
  tx: Tx,
  row: Row,
  event: "lose" | "not-again",
  pgid: number | null,
  now_ms: number,
  facts: Readonly<Record<string, unknown>> = {},
): void {
  const audit = tx.append({
    event: "uncertain",
    agent: row.agent,
    id: row.id,
    attempt: row.attempt,
    ...(pgid === null ? {} : { pgid }),
    ...facts,
  });
  const result: Result = {
    ...base(row),
    state: "uncertain",
    ...coded("uncertain"),
    message: event === "lose"
      ? "It may or may not have happened: what ran it died without leaving a record"
      : "It may or may not have happened, and another attempt must not start now",
    hint: resolveHint(row),
    ...(row.started_ms === null ? {} : { started_at: isoTime(row.started_ms) }),
    finished_at: isoTime(now_ms),
    audit,
  };
  closeSpend(tx, row.rid);
  tx.updateRow(row.rid, {
    state: transition(row.state, event),
    outcome: null,
    reason: "uncertain",
    finished_ms: now_ms,
    pgid,
    lookup: null,
    result,
  });
}
