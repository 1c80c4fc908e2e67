/**
 * What the slots are told of a request that waits, from what the ledger knows of it.
 *
 * @module
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { LightRow } from "../ledger/types.ts";
import type { Waiting } from "./slots.ts";

/** The entry of a pending row: behind the others for a slot, or held for a human. */
export function waitingEntry(ledger: Ledger, row: LightRow): Waiting {
  const approval = ledger.approval(row.rid);
  return {
    rid: row.rid,
    agent: row.agent,
    lock: row.lock,
    expires_ms: row.expires_ms,
    held_until_ms: approval?.state === "waiting" ? approval.until_ms : null,
  };
}
