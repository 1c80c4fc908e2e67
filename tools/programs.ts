/**
 * Which programs and agents policies name, asked of the policy room in a process of its own: the
 * tools start without the import map that the policy room needs.
 *
 * @module
 */
import { cacheEnvironment, inRepository, QUIET, type Std, stdFlags } from "./launcher.ts";

/** What the policies of some files need together. */
export interface PolicyNeeds {
  readonly programs: readonly string[];
  readonly agents: readonly string[];
  /** Why one of them says nothing, or null. */
  readonly why: string | null;
}

/**
 * The programs and agents that the policies in `files` name, all together.
 *
 * @param files paths of policy texts; what one that does not parse needs is not among it
 * @throws {Error} when the policy room itself could not be asked
 */
export async function policyNeeds(std: Std, files: readonly string[]): Promise<PolicyNeeds> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--quiet",
      "--no-prompt",
      "--allow-read",
      ...stdFlags(std),
      inRepository("tools", "policy_needs.ts"),
      ...files,
    ],
    env: { ...QUIET, ...cacheEnvironment() },
    stdin: "null",
  }).output();
  if (success) return JSON.parse(new TextDecoder().decode(stdout));
  const why = new TextDecoder().decode(stderr).trim();
  throw new Error(`Cannot ask the policy room: ${why}`);
}
