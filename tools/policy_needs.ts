/**
 * Prints, as JSON, the programs and agents that the policies in the named files need together.
 * Run by `programs.ts` with the import map in force and no permission but to read.
 *
 * @module
 */
import { parsePolicy } from "../src/policy/parse_policy.ts";
import { policyPrograms } from "../src/policy/programs.ts";
import type { PolicyNeeds } from "./programs.ts";

function needs(files: readonly string[]): PolicyNeeds {
  const programs = new Set<string>();
  const agents = new Set<string>();
  let why: string | null = null;
  for (const file of files) {
    const parsed = parsePolicy(Deno.readFileSync(file));
    if (!parsed.ok) {
      const first = parsed.errors[0];
      const where = first?.line === undefined ? first?.path : `line ${first.line}`;
      why ??= `${file}: ${where ?? ""}: ${first?.message ?? "not a policy"}`;
      continue;
    }
    for (const program of policyPrograms(parsed.policy)) programs.add(program);
    for (const agent of parsed.policy.agents.keys()) agents.add(agent);
  }
  return { programs: [...programs].sort(), agents: [...agents].sort(), why };
}

if (import.meta.main) console.log(JSON.stringify(needs(Deno.args)));
