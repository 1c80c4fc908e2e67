/**
 * The end of a request because somebody asked for it: the agent for one of its own, a human for
 * any.
 *
 * 1. A request that waits is settled in the transaction of the cancel: it never starts.
 * 2. A request that runs is asked to end. That it was asked is stored with the row before the mark
 *    is left in its run directory, so no crash and no full disk loses it: whoever takes the row up
 *    leaves the mark again, and a run that turns out never to have started is not started any more.
 * 3. What is over, and what nobody knows the outcome of, is not changed: only a human's look can
 *    settle that.
 * 4. The key stays bound: a cancelled request is remembered like any other.
 *
 * @module
 */
import type { Tx } from "../ledger/ledger.ts";
import type { CancelAsk, RecordRef, Row } from "../ledger/types.ts";
import { coded, isoTime, type Result } from "../result.ts";
import { transition } from "../transitions.ts";
import { base } from "./row_fields.ts";
import { dropHold } from "./spends.ts";

/**
 * What a cancel did: `cancelled` ended a request that waited, `asked` asks a running one to end,
 * `over` and `uncertain` changed nothing.
 */
export type Cancelled = "cancelled" | "asked" | "over" | "uncertain";

/** Words for who cancelled, and why. */
export function cancelWords(ask: CancelAsk | null): string {
  if (ask === null) return "The request was cancelled";
  if (ask.by === "agent") return "The request was cancelled by its agent";
  return `The request was cancelled by a human${ask.reason === null ? "" : `: ${ask.reason}`}`;
}

/**
 * The result of a request that was cancelled and of which nothing runs.
 *
 * @param started its run may have started, and nobody saw its end
 */
export function cancelledResult(
  row: Row,
  ask: CancelAsk | null,
  now_ms: number,
  audit: RecordRef,
  started = false,
): Result {
  return {
    ...base(row),
    state: "done",
    ...coded("cancelled"),
    message: cancelWords(ask),
    hint: started
      ? "What it did until then may stand; look before you send it again under a new id and key"
      : row.attempt > 1
      ? "An earlier attempt may have done something; look before you send it again under a new id and key"
      : "It was not started. If it is still wanted, send it again under a new id and key",
    finished_at: isoTime(now_ms),
    audit,
  };
}

/**
 * Cancels a request within a transaction. After the commit the caller frees what memory holds of a
 * `cancelled` one and publishes it, and leaves the mark of an `asked` one.
 */
export function cancelRow(
  tx: Tx,
  row: Row,
  ask: CancelAsk,
  now_ms: number,
  facts: Readonly<Record<string, unknown>> = {},
): Cancelled {
  if (row.state === "done") return "over";
  if (row.state === "uncertain") return "uncertain";
  const what = row.state === "pending" ? "cancelled" : "asked";
  // Asking twice changes nothing, and a running request must not fill the log with it.
  if (row.cancel !== null) return what;
  const audit = tx.append({
    event: "cancelled",
    agent: row.agent,
    id: row.id,
    what,
    by: ask.by,
    ...(ask.reason === null ? {} : { why: ask.reason }),
    ...(row.run === null ? {} : { run: row.run }),
    ...facts,
  });
  if (what === "asked") {
    tx.updateRow(row.rid, { cancel: ask });
    return what;
  }
  dropHold(tx, row.rid);
  tx.updateRow(row.rid, {
    state: transition(row.state, "cancel"),
    outcome: "cancelled",
    reason: "cancelled",
    finished_ms: now_ms,
    cancel: ask,
    result: cancelledResult(row, ask, now_ms, audit),
  });
  return what;
}
