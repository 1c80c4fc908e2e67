/**
 * `inbox/status.json`: whether the bridge is up, what is wrong, and the newest requests of the
 * agent, so that a fresh agent process finds work whose id was lost.
 *
 * `seq` grows with every writing. A reader that sees it stand still for 15 s of its own time knows
 * that the bridge is down, without comparing clocks.
 *
 * @module
 */
import { BUILD } from "#build";
import type { Ledger } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { LightRow } from "../ledger/types.ts";
import { isoTime } from "../result.ts";
import type { Core } from "./core.ts";
import type { Still } from "./stills.ts";

/** Seconds between two writings. */
export const STATUS_EVERY_S = 5;
/** What the last status of a service begins with that gave up by itself. */
export const ENDED = "The bridge ended with a fault";

export type ServiceState = "serving" | "untrusted" | "killed" | "degraded" | "stopped";

/** What only the loop knows. */
export interface StatusFacts {
  readonly seq: number;
  readonly watch: string;
  /** Faults that stand, as short words. */
  readonly faults: readonly string[];
  readonly stopped: boolean;
  /** Why the bridge gives up and ends, or null. */
  readonly fatal: string | null;
  /** What of the agent's mounts changed since they were pinned, or null. */
  readonly pins: string | null;
  /** The role directory that was replaced before the bridge started, or null. */
  readonly recreated: string | null;
  /** Processes of the bridge that stand still. */
  readonly still: readonly Still[];
  /** The newest shed aggregate of this agent, or null. */
  readonly shed: { count: number; first: string; last: string; at: string } | null;
}

function stateOf(
  core: Core,
  agent: string,
  facts: StatusFacts | null,
): { state: ServiceState; why: string } {
  if (facts !== null && facts.fatal !== null) {
    return { state: "stopped", why: `${ENDED}: ${facts.fatal}` };
  }
  if (facts?.stopped === true) return { state: "stopped", why: "The bridge was stopped" };
  const policy = core.policy();
  if (policy !== null && !policy.agents.has(agent)) {
    return { state: "stopped", why: "The policy does not name this agent any more" };
  }
  if (facts !== null && facts.pins !== null) {
    return { state: "killed", why: `Restart the sandbox: ${facts.pins}/ was replaced` };
  }
  const kill = core.kill(agent);
  if (kill !== null) return { state: "killed", why: `A human raised the kill switch ${kill}` };
  const fault = facts?.faults[0];
  if (fault !== undefined) return { state: "degraded", why: fault };
  if (policy === null) {
    return {
      state: "untrusted",
      why: "The host has not trusted its policy yet; a human runs: chb trust",
    };
  }
  const recreated = facts?.recreated ?? null;
  return {
    state: "serving",
    why: recreated === null
      ? stillWords(agent, facts?.still ?? [])
      : `Restart the sandbox: ${recreated}/ was replaced`,
  };
}

/** What an agent is told of processes that stand still: its own request, and no other agent's. */
function stillWords(agent: string, still: readonly Still[]): string {
  if (still.length === 0) return "";
  const own = still.filter((one) => one.agent === agent);
  const [first] = own;
  const what = first === undefined
    ? "A process of the bridge stands still"
    : `What runs ${first.id}${own.length > 1 ? ` and ${own.length - 1} more` : ""} stands still`;
  return `${what}; a human looks on the host: chb doctor`;
}

/** The status document; without `facts` it is the answer of `bridge.status`. */
export function statusDocument(core: Core, agent: string, facts: StatusFacts | null): unknown {
  const { state, why } = stateOf(core, agent, facts);
  return {
    chb: 1,
    agent,
    ...(facts === null ? {} : { seq: facts.seq }),
    every_s: STATUS_EVERY_S,
    at: isoTime(core.now()),
    state,
    why,
    version: BUILD.version,
    source: BUILD.source,
    policy: core.policy()?.digest ?? null,
    ...(facts === null ? {} : { watch: facts.watch }),
    running: core.slots.running,
    waiting: core.slots.waiting(agent),
    stuck: core.stuck.report(agent),
    shed: facts === null ? null : facts.shed,
    shedding: core.answers.pending(agent),
    messages: messages(core, agent),
    recent: facts === null ? recent(core, agent) : recentKept(core, agent),
  };
}

/** The newest requests of each agent as they were at a commit of a ledger. */
const known = new WeakMap<Ledger, Map<string, { readonly commits: number; list: unknown[] }>>();

/** `recent` of a ledger that no transaction is open in: it is read again only after a change. */
function recentKept(core: Core, agent: string): unknown[] {
  const { ledger } = core;
  const { commits } = ledger;
  const kept = known.get(ledger) ?? new Map<string, { commits: number; list: unknown[] }>();
  known.set(ledger, kept);
  const before = kept.get(agent);
  if (before?.commits === commits) return before.list;
  const list = recent(core, agent);
  kept.set(agent, { commits, list });
  return list;
}

/** The newest requests of an agent; none when the ledger cannot be read any more. */
function recent(core: Core, agent: string): unknown[] {
  let rows: LightRow[];
  try {
    rows = core.ledger.recent(agent, 50);
  } catch (error) {
    // The ledger's own fault is what this document is to tell of.
    if (error instanceof LedgerError) return [];
    throw error;
  }
  return rows.map((row) => ({
    id: row.id,
    idempotency_key: row.key,
    verb: row.verb,
    note: row.note,
    state: row.state,
    outcome: row.outcome,
    code: row.result.code ?? null,
    received_at: isoTime(row.received_ms),
  }));
}

/** What the agent has to read and to answer; nothing when the ledger cannot be read any more. */
function messages(core: Core, agent: string): { newest: number; asking: number } {
  try {
    return core.ledger.messageCounts(agent, core.now());
  } catch (error) {
    if (error instanceof LedgerError) return { newest: 0, asking: 0 };
    throw error;
  }
}
