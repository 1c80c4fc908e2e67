/**
 * The agents that share the slots: those that the policy lets ask for commands.
 *
 * @module
 */
import type { Policy } from "../policy/policy.ts";
import type { Sharer } from "./slots.ts";

/** Whom slots are kept for. Who may use built-in verbs alone never needs one. */
export function sharers(policy: Policy | null): Sharer[] {
  return [...policy?.agents.values() ?? []]
    .filter(({ verbs }) => verbs.length > 0)
    .map(({ name, concurrency }) => ({ agent: name, concurrency }));
}
