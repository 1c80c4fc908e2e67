/**
 * The options that say whom a command is about, and who gives it.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { ExitError } from "../errors.ts";
import { isId, printable } from "../names.ts";
import { look } from "../spool/look.ts";
import type { Parsed } from "./command.ts";

/** Longest name of a person, characters. */
const MAX_BY = 100;

/** Who says so, as claimed; "" when nobody was named. */
export function byOption(args: Parsed): string {
  return printable(args.options["by"] ?? "", MAX_BY);
}

/** Agents that have a place in the spool. */
function agents(): string[] {
  return [...Deno.readDirSync("spool")].filter((entry) => entry.isDirectory && isId(entry.name))
    .map((entry) => entry.name).sort();
}

/** What to say instead of an agent that there is not. */
function named(there: readonly string[]): string {
  return there.length === 0
    ? "none was served yet, trust a policy that names it: ./bin/chb trust"
    : `name one with --agent: ${there.join(", ")}`;
}

/**
 * The agent of `--agent`, or null for all.
 *
 * @throws {ExitError} when there is no such agent: what is meant for it must not miss it in silence
 */
export function agentOption(args: Parsed): string | null {
  const agent = args.options["agent"];
  if (agent === undefined) return null;
  if (isId(agent) && look(`spool/${agent}`)?.kind === "directory") return agent;
  throw new ExitError(
    EXIT.usage,
    `there is no agent ${printable(agent, 80)} here: ${named(agents())}`,
  );
}

/** @throws {ExitError} outside of a root */
export function insistOnRoot(): void {
  if (look("state")?.kind === "directory") return;
  throw new ExitError(
    EXIT.config,
    "no bridge here: run it in the root that the init script made",
  );
}
