/**
 * The request that a human means by `AGENT/ID`, or by an id alone where only one agent has it.
 *
 * @module
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { Row } from "../ledger/types.ts";
import { isId } from "../names.ts";

/** A request as a human names it. */
export interface RequestName {
  /** Null for an id alone. */
  readonly agent: string | null;
  readonly id: string;
}

/** The name that a control request holds, or null when it is none. */
export function requestName(v: Readonly<Record<string, unknown>>): RequestName | null {
  const { agent, id } = v;
  if (!isId(id) || (agent !== null && !isId(agent))) return null;
  return { agent, id };
}

/** The row of a request, or why there is none. */
export function findRow(
  ledger: Ledger,
  { agent, id }: RequestName,
): { readonly row: Row } | { readonly row: null; readonly why: string } {
  const agents = agent === null ? ledger.agentsOf(id) : [agent];
  const [only, ...others] = agents;
  if (only !== undefined && others.length > 0) {
    const names = agents.map((name) => `${name}/${id}`).join(", ");
    return { row: null, why: `more than one agent has ${id}: say which, ${names}` };
  }
  const row = only === undefined ? null : ledger.rowById(only, id);
  return row === null
    ? {
      row,
      why: `there is no accepted request ${agent === null ? "" : `${agent}/`}${id}: ` +
        "./bin/chb history lists what there is",
    }
    : { row };
}
