/**
 * What a human command goes by when it acts or shows: the trusted base, and what of a human's words
 * an agent may read.
 *
 * @module
 */
import { policyPrograms } from "../policy/programs.ts";
import type { ControlContext } from "./control_command.ts";
import { Maskings } from "./maskings.ts";
import { TrustStore } from "./trust_store.ts";

/** The trusted base: the daemon's, or the ledger's own where no daemon serves. */
export function trustOf(context: Pick<ControlContext, "ledger" | "live">): TrustStore {
  if (context.live !== null) return context.live.core.trust;
  const first = new TrustStore(new Set());
  first.reload(context.ledger);
  if (first.policy === null) return first;
  // Which programs a daemon was granted shows when one starts.
  const trust = new TrustStore(new Set(policyPrograms(first.policy)));
  trust.reload(context.ledger);
  return trust;
}

/**
 * A text of a human for an agent, masked like output: who copies an error into a reason does not
 * see what stands in it.
 */
export function wordsFor(context: Pick<ControlContext, "ledger" | "live">, text: string): string {
  const maskings = context.live?.core.runs.maskings ?? new Maskings(trustOf(context), () => {});
  return maskings.current().text(text);
}
