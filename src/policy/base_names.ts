/**
 * What of `base/` a policy names: the first names below it, whatever the place in the policy. Found in
 * its texts and not by its keys, so that no later key is forgotten; a name too many does no harm.
 *
 * @module
 */
import type { Policy } from "./policy.ts";

/** The first names below `base/`; null when the policy names all of it. */
export function baseNames(policy: Policy): ReadonlySet<string> | null {
  const names = new Set<string>();
  return collect(policy, names) ? names : null;
}

/** False when `base/` itself is named. */
function collect(value: unknown, names: Set<string>): boolean {
  if (typeof value === "string") {
    for (const [, name = ""] of value.matchAll(/(?<![\w.-])base(?:\/+([^/]*)|$)/g)) {
      if (name === "") return false;
      names.add(name);
    }
    return true;
  }
  if (typeof value !== "object" || value === null) return true;
  const parts = value instanceof Map ? value.values() : Object.values(value);
  return [...parts].every((part) => collect(part, names));
}
