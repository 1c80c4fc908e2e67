/**
 * Where an agent's files lie, as paths relative to the root, which is the working directory.
 *
 * @module
 */
import { isId } from "../names.ts";

/** The directories of one agent. */
export interface AgentPaths {
  /** Mounted read-write: requests. */
  readonly queue: string;
  /** Mounted read-only: results and output files. */
  readonly results: string;
  /** Mounted read-only: catalogue, status, messages, notes, kit. */
  readonly inbox: string;
  readonly refused: string;
  readonly kit: string;
  readonly messages: string;
  /** Never mounted: entries taken out of `queue/`. */
  readonly claims: string;
  /** Never mounted: files on their way to `results/` and `inbox/`. */
  readonly staging: string;
  /** Never mounted: what a person may want to look into. */
  readonly quarantine: string;
  /** Never mounted: space that is kept back for the status. */
  readonly reserve: string;
}

/**
 * The directories of an agent.
 *
 * @throws {RangeError} when the name is outside the grammar: it becomes part of paths
 */
export function agentPaths(agent: string): AgentPaths {
  if (!isId(agent)) throw new RangeError(`Cannot name directories: "${agent}" is no agent name`);
  const spool = `spool/${agent}`;
  const work = `work/${agent}`;
  return {
    queue: `${spool}/queue`,
    results: `${spool}/results`,
    inbox: `${spool}/inbox`,
    refused: `${spool}/inbox/refused`,
    kit: `${spool}/inbox/kit`,
    messages: `${spool}/inbox/messages`,
    claims: `${work}/claims`,
    staging: `${work}/staging`,
    quarantine: `${work}/quarantine`,
    reserve: `${work}/reserve`,
  };
}
