/**
 * The agents that have a place in the root, whatever it is that has their name there.
 *
 * @module
 */
import { isId } from "../names.ts";
import type { Policy } from "../policy/policy.ts";
import { look } from "../spool/look.ts";
import type { Look } from "../spool/types.ts";

/** What a path is, or null when there is nothing or it cannot be looked at. */
export function kindOf(path: string): Look["kind"] | null {
  try {
    return look(path)?.kind ?? null;
  } catch {
    return null;
  }
}

/**
 * Names below `spool/` and `work/` that are an agent's, in order: a plain file is none unless the
 * policy names it. Read permission for both.
 *
 * @param policy null when there is none or it is not known
 */
export function agentsOnDisk(policy: Policy | null): string[] {
  const agents = new Set<string>();
  for (const room of ["spool", "work"]) {
    if (kindOf(room) !== "directory") continue;
    for (const entry of Deno.readDirSync(room)) {
      if (!entry.isFile && isId(entry.name)) agents.add(entry.name);
    }
  }
  for (const agent of policy?.agents.keys() ?? []) {
    if (kindOf(`spool/${agent}`) !== null || kindOf(`work/${agent}`) !== null) agents.add(agent);
  }
  return [...agents].sort();
}
