/**
 * Every program that a policy can start. The permissions of the process, the trusted identities and
 * the unit file are derived from this list, so it is complete: verbs, lookups, notification.
 *
 * @module
 */
import type { Policy } from "./policy.ts";

/**
 * The programs of a policy, each as an absolute path or `base/…`, sorted, none twice.
 */
export function policyPrograms(policy: Policy): string[] {
  const programs = new Set<string>();
  for (const verb of policy.verbs.values()) {
    programs.add(verb.program);
    if (verb.lookup !== null) programs.add(verb.lookup.program);
  }
  const notify = policy.notify?.[0];
  if (notify !== undefined) programs.add(notify);
  return [...programs].sort();
}
