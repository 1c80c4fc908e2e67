/**
 * What a verb's `lookup` said of an earlier run.
 *
 * 1. Only an exit by itself with a code of one of the two lists is an answer. A time limit, a
 *    signal, a cancel, a program that is not the trusted one: nobody knows (S7).
 * 2. `done` makes the request succeed. `not_done` means that nothing happened, and so lets it start
 *    once more under the same key; when it is said of that attempt as well, the request failed.
 * 3. The lists are those of the policy under which the question was asked.
 *
 * A lookup is an order like any other, with a run directory of its own and its record in the audit
 * log; the row's slot and lock stay taken while it is asked.
 *
 * @module
 */
import type { Row } from "../ledger/types.ts";
import type { Policy } from "../policy/policy.ts";
import type { Exit } from "../run/order.ts";
import { readTaken } from "../run/order_file.ts";
import { loadPolicy } from "./trust_store.ts";

/** What is known after the lookup. */
export type Answer = "done" | "not-done" | "unknown";

/**
 * Judges how a lookup ended.
 *
 * @param current the policy in force
 * @param run the lookup's own run
 */
export function readAnswer(current: Policy | null, row: Row, run: string, exit: Exit): Answer {
  if (exit.kind !== "exited" || exit.exit_code === null) return "unknown";
  const lookup = askedUnder(current, run)?.verbs.get(row.verb)?.lookup;
  if (lookup === null || lookup === undefined) return "unknown";
  if (lookup.done.includes(exit.exit_code)) return "done";
  return lookup.not_done.includes(exit.exit_code) ? "not-done" : "unknown";
}

function askedUnder(current: Policy | null, run: string): Policy | null {
  const digest = readTaken(run)?.policy;
  if (digest === undefined || digest === current?.digest) return current;
  try {
    return loadPolicy(digest);
  } catch {
    // What the codes meant is not known any more.
    return null;
  }
}
