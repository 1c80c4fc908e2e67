/**
 * Parts of the policy format that are valid and that this version does not carry out. A person who
 * writes one of them relies on it, so none is passed over in silence: what would leave a secret
 * open is an error, the rest is a warning.
 *
 * @module
 */
import type { Policy, PolicyWarning } from "./policy.ts";

/** What of a valid policy is not carried out. */
export interface NotServed {
  /** Must keep the policy from being trusted. */
  readonly errors: readonly PolicyWarning[];
  readonly warnings: readonly PolicyWarning[];
}

/** Judges a valid policy against what this version carries out. Pure. */
export function notServed(policy: Policy): NotServed {
  const errors: PolicyWarning[] = [];
  const warnings: PolicyWarning[] = [];
  if (policy.notify !== null) {
    warnings.push({ path: "notify", message: "This version notifies nobody" });
  }
  for (const verb of policy.verbs.values()) {
    const path = `verbs.${verb.name}`;
    if (verb.approval !== "never") {
      warnings.push({
        path: `${path}.approval`,
        message: "This version cannot ask a human: every request for this verb is refused",
      });
    }
    if (verb.cost !== null || verb.takes_max_spend) {
      warnings.push({
        path: `${path}.cost`,
        message: "This version keeps no accounts: every request for this verb is refused",
      });
    }
  }
  return { errors, warnings };
}
