/**
 * What is in force before any policy was trusted: the limits and times of the format, and no verb.
 *
 * @module
 */
import { FatalError } from "../errors.ts";
import { parsePolicy } from "./parse_policy.ts";
import type { Policy } from "./policy.ts";

let made: Policy | null = null;

/** The empty policy with every default filled in. */
export function defaultPolicy(): Policy {
  if (made !== null) return made;
  const text = '{"agents":{"main":{"verbs":[]}},"verbs":{}}';
  const parsed = parsePolicy(new TextEncoder().encode(text));
  if (!parsed.ok) throw new FatalError("Cannot make defaults: the empty policy is invalid");
  made = parsed.policy;
  return made;
}
