/**
 * Signed bytes that are carried out, noted in the transaction that carries them out, so that nobody
 * who kept them can have them carried out again once their row is gone.
 *
 * They are kept for the window and a day after they could have been taken last. The window of an
 * agent is at most a day, so a window that is widened later does not open what was closed.
 *
 * @module
 */
import type { Candidate, GateDeps } from "../gates/candidate.ts";
import type { Tx } from "../ledger/ledger.ts";

const DAY_MS = 86_400_000;

/**
 * Notes a request's signed bytes; nothing for one that is not signed.
 *
 * @param rid the row that it made, joined or repeated, or null where there is none
 */
export function noteSigned(
  tx: Tx,
  c: Candidate,
  rid: number | null,
  deps: Pick<GateDeps, "agentPolicy">,
): void {
  if (c.signed === undefined) return;
  const { agent } = c.claim;
  const window_ms = (deps.agentPolicy(agent)?.signature_window_s ?? 0) * 1000;
  const until_ms = Math.max(c.now_ms, c.request?.created_ms ?? 0) + window_ms + DAY_MS;
  tx.noteSigned({ agent, sha256: c.signed.sha256, rid, until_ms });
}
