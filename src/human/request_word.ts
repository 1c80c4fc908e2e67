/**
 * How a human names a request on the command line: `AGENT/ID`, or the id alone where only one agent
 * has it.
 *
 * @module
 */
import type { RequestName } from "../daemon/find_row.ts";
import { UsageError } from "../errors.ts";
import { isId, printable } from "../names.ts";
import type { Parsed } from "./command.ts";

/** The request that the first word of a command names. */
export function requestWord(args: Parsed): RequestName {
  const word = args.positional[0];
  if (word === undefined) throw new UsageError("which request? AGENT/ID, or the id alone");
  const slash = word.indexOf("/");
  const agent = slash < 0 ? null : word.slice(0, slash);
  const id = word.slice(slash + 1);
  if ((agent === null || isId(agent)) && isId(id)) return { agent, id };
  throw new UsageError(`${printable(word, 100)} names no request: want AGENT/ID, or the id alone`);
}
