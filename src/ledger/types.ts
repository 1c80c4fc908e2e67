/**
 * What the ledger stores, as the rest of the program sees it.
 *
 * @module
 */
import type { Class, FileIdentity } from "../policy/policy.ts";
import type { Outcome, Reason, State } from "../codes.ts";
import type { Result } from "../result.ts";

/** Who asked for the end of a request, and why. */
export interface CancelAsk {
  readonly by: "agent" | "human";
  /** What a human gave as the reason; null when none was given. */
  readonly reason: string | null;
}

/** One accepted request. Times are wall-clock milliseconds since the epoch. */
export interface Row {
  /** Arrival order over all agents; assigned by the ledger. */
  readonly rid: number;
  readonly agent: string;
  /** The id that bound the row first. */
  readonly id: string;
  /** Null once a refusal before any start released it. */
  readonly key: string | null;
  /** SHA-256 of the canonical form of verb, checked arguments, scope and max_spend. */
  readonly digest: string;
  readonly verb: string;
  readonly class: Class;
  readonly lock: string | null;
  readonly state: State;
  readonly outcome: Outcome | null;
  readonly reason: Reason | null;
  /** The request file's bytes as read. */
  readonly request: Uint8Array;
  readonly request_sha256: string;
  /** Checked arguments as JSON. */
  readonly args: string;
  /** Policy in force when the row was bound. */
  readonly policy: string;
  readonly note: string | null;
  readonly plan: string | null;
  readonly max_spend: number | null;
  readonly timeout_ms: number;
  readonly received_ms: number;
  /** Wall-clock time after which it must not start. */
  readonly expires_ms: number;
  readonly started_ms: number | null;
  /** The same on the bridge's own clock, which only goes forward: see `bridge_clock.ts`. */
  readonly started_tick: number | null;
  readonly finished_ms: number | null;
  readonly attempt: number;
  readonly run: string | null;
  /** Random part of the claim that the row came from. */
  readonly claim: string;
  /**
   * The process group of the run. In an `uncertain` row: a group that was not seen to end, so that
   * slot and lock stay taken; 0 once it was, and only the lock is kept; null when nothing is held.
   */
  readonly pgid: number | null;
  /** Who asked for its end while it ran, or null. */
  readonly cancel: CancelAsk | null;
  /** The run that asks what became of `run`, while it goes on; else null. */
  readonly lookup: string | null;
  readonly replays: number;
  /** The result document as last decided. */
  readonly result: Result;
  /** 0: not published as it stands; 1: published; 2: reaped, never to be published again. */
  readonly pub: 0 | 1 | 2;
}

/** A row without the bytes of its request, for lists. */
export type LightRow = Omit<Row, "request">;

/** A row whose document was published, and what that takes in the agent's `results/`. */
export interface Published {
  readonly rid: number;
  readonly files: number;
  readonly bytes: number;
}

/** What of an agent lies in its `results/`, as far as the ledger knows. */
export interface Shown {
  readonly files: number;
  readonly bytes: number;
}

/** A row to be inserted. */
export type NewRow = Omit<Row, "rid" | "replays" | "pub" | "cancel" | "lookup">;

/** What may change in a row after it was bound. */
export type RowPatch = Partial<
  Pick<
    Row,
    | "state"
    | "outcome"
    | "reason"
    | "started_ms"
    | "started_tick"
    | "finished_ms"
    | "attempt"
    | "run"
    | "replays"
    | "result"
    | "pub"
    | "policy"
    | "expires_ms"
    | "pgid"
    | "cancel"
    | "lookup"
  >
>;

/** Names of audit events. */
export type AuditEventName =
  | "started-daemon"
  | "stopped-daemon"
  | "accepted"
  | "refused"
  | "answered"
  | "replayed"
  | "joined"
  | "approved"
  | "denied"
  | "voided"
  | "started"
  | "finished"
  | "uncertain"
  | "accepted-loss"
  | "cancelled"
  | "resolved"
  | "released"
  | "shed"
  | "stuck"
  | "killed"
  | "resumed"
  | "trusted"
  | "keys"
  | "pins"
  | "repaired"
  | "reaped"
  | "rotated"
  | "removed"
  | "told"
  | "human";

/** An event to be recorded. Every field but `event` is stored as given. */
export interface AuditEvent {
  readonly event: AuditEventName;
  readonly agent?: string;
  readonly id?: string;
  /** Random part of the claim that the event came from. */
  readonly claim?: string;
  /** Any further facts; strings are escaped to ASCII on output. */
  readonly [field: string]: unknown;
}

/** A stored record's place in the chain. */
export interface RecordRef {
  readonly seq: number;
  readonly hash: string;
}

/** A row's word on the record that its result names. */
export interface RowRef extends RecordRef {
  readonly rid: number;
  readonly agent: string;
  readonly id: string;
}

/** A stored record: `line` is the exact JSON text, without newline, `hash` its last member. */
export interface StoredRecord extends RecordRef {
  readonly line: string;
}

/** What was answered to a claim that bound nothing; its document is kept until it is published. */
export interface StoredAnswer {
  readonly claim: string;
  readonly agent: string;
  /** File name below the agent's `results/` or `inbox/refused/`; null when there is none. */
  readonly target: string | null;
  /** The document as JSON text. */
  readonly document: string;
}

/** Where a claim was recorded: in a row, in an answer (null once it was dropped), or nowhere. */
export type SeenClaim =
  | { readonly kind: "row"; readonly rid: number }
  | { readonly kind: "answer"; readonly answer: StoredAnswer | null }
  | null;

/** What a human trusted, at one moment. */
export interface Trust {
  /** SHA-256 of the policy bytes, the name of their file in `state/policies/`. */
  readonly policy: string;
  readonly at_ms: number;
  /** Who did it, as claimed. */
  readonly by: string;
  /** Every program that a verb may start, as it was then. */
  readonly programs: readonly FileIdentity[];
  /** Path and SHA-256 of every base file that a verb requires. */
  readonly requires: readonly (readonly [path: string, sha256: string])[];
  /** SHA-256 of `bin/chb`; null when it could not be read. */
  readonly bin_sha256: string | null;
}

/** The identity of a file on disk; decimal strings, since both may exceed a safe integer. */
export interface FileId {
  readonly dev: string;
  readonly ino: string;
}
