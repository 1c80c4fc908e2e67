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
  return { errors, warnings };
}
