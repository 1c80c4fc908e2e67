/**
 * A waiting request that must not start, as the ledger is told of it: answered with a refusal, its
 * id and key free again. When an earlier attempt may have done something nothing is free: the
 * request is `uncertain`, as it was before. One function for whoever holds the ledger, daemon or human command.
 *
 * @module
 */
import type { Refusal } from "../errors.ts";
import type { Ledger, Tx } from "../ledger/ledger.ts";
import type { Row } from "../ledger/types.ts";
import { coded, refusalResult } from "../result.ts";
import { transition } from "../transitions.ts";
import { loseRow } from "./lose.ts";
import { base } from "./row_fields.ts";
import { dropHold } from "./spends.ts";

/**
 * Records the refusal.
 *
 * @param row a row in state `pending`
 * @param now wall clock, milliseconds
 * @returns the ids that the row had, under which its answer is to be published
 * @throws {RangeError} when the row waits no more
 */
export function turnDown(
  ledger: Ledger,
  tx: Tx,
  row: Row,
  refusal: Refusal,
  now: number,
): readonly string[] {
  if (row.attempt > 1) {
    loseRow(tx, row, "not-again", null, now, { why: refusal.reason });
    return [];
  }
  const audit = tx.append({
    event: "refused",
    agent: row.agent,
    id: row.id,
    stage: refusal.stage,
    reason: refusal.reason,
    verb: row.verb,
    released: true,
  });
  const result = refusalResult(row.agent, row.id, refusal, { ...base(row), audit });
  const released = ledger.idsOf(row.rid);
  tx.release(row.rid);
  dropHold(tx, row.rid);
  tx.updateRow(row.rid, {
    state: transition(row.state, "turn-down"),
    outcome: coded(refusal.reason).outcome ?? null,
    reason: refusal.reason,
    finished_ms: now,
    result,
  });
  return released;
}
