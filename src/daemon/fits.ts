/**
 * Whether a request that waits may still start under the policy that is now in force: a human may
 * have narrowed it since the request was let in.
 *
 * @module
 */
import { checkArgs } from "../policy/check_args.ts";
import { type CheckedArgs, CLASSES, type Policy, type VerbPolicy } from "../policy/policy.ts";
import type { LightRow } from "../ledger/types.ts";

/** The verb and arguments of a request under a policy. */
export interface Fit {
  readonly verb: VerbPolicy;
  readonly args: CheckedArgs;
}

/** The verb and arguments under a policy, or null when that policy would not let it in. */
export function fits(policy: Policy, row: LightRow): Fit | null {
  const verb = policy.verbs.get(row.verb);
  const agent = policy.agents.get(row.agent);
  if (verb === undefined || agent === undefined || !agent.verbs.includes(row.verb)) return null;
  // Scope and rate were weighed for the class that it had.
  if (verb.class !== row.class) return null;
  if (CLASSES.indexOf(verb.class) > CLASSES.indexOf(agent.scope)) return null;
  const checked = checkArgs(verb, JSON.parse(row.args));
  return checked.ok ? { verb, args: checked.args } : null;
}
