/**
 * What the gates look at: one claimed entry, growing from a name to a checked request, and the
 * outside world as it is handed to them. Nothing in this room does I/O of its own, so that every
 * decision can be tested with plain values.
 *
 * @module
 */
import type { Reason } from "../codes.ts";
import type { Refusal } from "../errors.ts";
import type { Row } from "../ledger/types.ts";
import type {
  AgentPolicy,
  CheckedArgs,
  Class,
  Limits,
  Policy,
  VerbPolicy,
} from "../policy/policy.ts";
import type { Envelope } from "../request/envelope.ts";
import type { SigningKey } from "../request/key_file.ts";
import type { Json, Request } from "../request/request.ts";
import type { Claim, Look, ReadOutcome } from "../spool/types.ts";
import type { StageName } from "./stages.ts";

/** A claimed entry on its way through the gates. Each stage may fill in what it found. */
export interface Candidate {
  readonly claim: Claim;
  /** Wall clock of the pass that handles it, milliseconds. */
  readonly now_ms: number;
  bytes?: Uint8Array;
  request_sha256?: string;
  value?: Json;
  /** Set for an agent that signs: what it sent, before the signature was judged. */
  envelope?: Envelope;
  /** Set once a signature holds: by which key, over which bytes, and their digest. */
  signed?: { readonly key: string; readonly bytes: Uint8Array; readonly sha256: string };
  request?: Request;
  /** Idempotency key: the request's own, else the id. */
  key?: string;
  /** Set for a verb of the policy. */
  verb?: VerbPolicy;
  /** Set for a built-in verb. */
  builtin?: string;
  args?: CheckedArgs;
  digest?: string;
  /** What it may spend, billionths; set for a verb that spends. */
  grant?: bigint;
  /** A human has to say yes before it starts. */
  needs_approval?: boolean;
}

/** What the stages may ask of the world. Every call is cheap, bounded and never waits. */
export interface GateDeps {
  /** The trusted policy, or null when none was ever trusted. */
  readonly policy: Policy | null;
  readonly limits: Limits;
  agentPolicy(agent: string): AgentPolicy | null;
  /** Owners accepted for entries of this agent, or "any" in a role mount. */
  owners(agent: string): ReadonlySet<number> | "any";
  /** The name of the raised kill switch, or null. */
  kill(agent: string): string | null;
  objectRefusal(look: Look, size_max: number, owners: ReadonlySet<number> | "any"): string | null;
  read(claim: Claim, max: number): ReadOutcome;
  sha256(bytes: Uint8Array): string;
  /** The key of this name when it is this agent's, whether valid now or not, or null. */
  signingKey(agent: string, name: string): SigningKey | null;
  /** True when signed bytes of this digest were carried out for this agent and not released. */
  carriedOut(agent: string, sha256: string): boolean;
  requestDigest(
    facts: { verb: string; args: CheckedArgs; scope: Class | null; max_spend: number | null },
  ): string;
  rowById(agent: string, id: string): Row | null;
  rowByKey(agent: string, key: string): Row | null;
  countIds(rid: number): number;
  /** What the agent's day has seen: spent and reserved, held by what waits, or blocked. */
  spent(agent: string): { spent: bigint; held: bigint; blocked: boolean };
  /** The bridge's own clock, milliseconds: it only goes forward, whatever the wall clock does. */
  tick(): number;
  /** Requests of this class that started after a tick, or wait to. */
  starts(agent: string, cls: Class, since: number): number;
  /** The tick of the n-th of these starts, from 0, the oldest first; null when there are fewer. */
  startTick(agent: string, cls: Class, since: number, n: number): number | null;
  /** Claimed and waiting requests of this agent, this pass included. */
  waiting(agent: string): number;
  /** True when the program may be run, which a process settles at its start. */
  granted(program: string): boolean;
  /** What of the verb's trusted base differs from what was trusted, or null. */
  baseChanged(verb: VerbPolicy): string | null;
  /** What of the arguments that name host files is wrong, or null. */
  pathArgs(
    verb: VerbPolicy,
    args: CheckedArgs,
  ): { path: string; message: string; hint: string } | null;
}

/** What a stage says. */
export type Verdict =
  | { readonly kind: "pass" }
  | { readonly kind: "refuse"; readonly refusal: Refusal }
  /** The request is known: its row answers. `join` when it came under another id. */
  | { readonly kind: "replay"; readonly row: Row; readonly join: boolean };

export const PASS: Verdict = Object.freeze({ kind: "pass" });

/** Builds a refusing verdict. */
export function refuse(
  stage: StageName,
  reason: Reason,
  message: string,
  hint: string,
  retry_after_ms?: number,
): Verdict {
  return {
    kind: "refuse",
    refusal: {
      stage,
      reason,
      message,
      hint,
      ...(retry_after_ms === undefined ? {} : { retry_after_ms }),
    },
  };
}

/** The value that an earlier stage must have filled in; its absence is a fault of ours. */
export function filled<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`Cannot check request: ${what} is not known yet`);
  return value;
}
