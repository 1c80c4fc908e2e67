/**
 * What a result document takes from its row, whatever the state.
 *
 * @module
 */
import type { NewRow } from "../ledger/types.ts";
import { isoTime } from "../result.ts";

/** The fields of a result that a row has in every state. */
export function base(row: Omit<NewRow, "result">): {
  chb: 1;
  id: string;
  agent: string;
  verb: string;
  idempotency_key?: string;
  request_sha256: string;
  attempt: number;
  received_at: string;
} {
  return {
    chb: 1,
    id: row.id,
    agent: row.agent,
    verb: row.verb,
    ...(row.key === null ? {} : { idempotency_key: row.key }),
    request_sha256: row.request_sha256,
    attempt: row.attempt,
    received_at: isoTime(row.received_ms),
  };
}
