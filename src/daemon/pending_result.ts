/**
 * The result document of a request that waits.
 *
 * @module
 */
import type { NewRow } from "../ledger/types.ts";
import type { Result, WaitingFor } from "../result.ts";
import { base } from "./row_fields.ts";

/** How soon an agent should look again, milliseconds. */
export const POLL_AFTER_MS = 200;

/** The result document of a request that waits. */
export function pendingResult(
  row: Omit<NewRow, "result">,
  waiting_for: WaitingFor,
  audit: { seq: number; hash: string },
): Result {
  return {
    ...base(row),
    state: "pending",
    next: "wait",
    waiting_for,
    poll_after_ms: POLL_AFTER_MS,
    audit,
  };
}
