/**
 * The code table: the one source of every `code`, `reason`, `outcome` and `next` that the bridge
 * writes. The schema, the docs and the tests are generated from it or held against it.
 *
 * A code is the bridge's own and never a child's exit code: those are two fields of a result, so
 * they cannot collide. Codes below 64 tell how a started command ended; codes from 64 on are
 * refusals, or states of knowledge, of the bridge itself.
 *
 * @module
 */

/** What the agent should do next. One value a code. */
export type Next =
  | "wait"
  | "resend-same"
  | "resend-new-key"
  | "fix-request"
  | "ask-human"
  | "nothing";

/** How a request in state `done` ended. */
export type Outcome =
  | "succeeded"
  | "failed"
  | "timed_out"
  | "cancelled"
  | "rejected"
  | "expired"
  | "denied"
  | "approval_lapsed";

/** The life of a request as its result file tells it. */
export type State = "pending" | "running" | "done" | "uncertain";

/** One row of the code table. `outcome` is null where the state is `uncertain`. */
export interface CodeRow {
  readonly code: number;
  readonly reason: string;
  readonly outcome: Outcome | null;
  readonly next: Next;
  readonly meaning: string;
}

const TABLE = [
  {
    code: 0,
    reason: "ok",
    outcome: "succeeded",
    next: "nothing",
    meaning: "The command ran and exited with 0, or the built-in verb was answered",
  },
  {
    code: 1,
    reason: "command-failed",
    outcome: "failed",
    next: "resend-new-key",
    meaning: "The command ran and ended otherwise: see exit_code and signal",
  },
  {
    code: 2,
    reason: "timed-out",
    outcome: "timed_out",
    next: "resend-new-key",
    meaning: "The command was ended at its time limit",
  },
  {
    code: 3,
    reason: "cancelled",
    outcome: "cancelled",
    next: "resend-new-key",
    meaning: "The request was cancelled before or while it ran",
  },
  {
    code: 64,
    reason: "malformed",
    outcome: "rejected",
    next: "fix-request",
    meaning: "Not one JSON text within the limits: encoding, size, depth, duplicate key",
  },
  {
    code: 65,
    reason: "schema",
    outcome: "rejected",
    next: "fix-request",
    meaning: "JSON of the wrong shape: type, unknown field, id mismatch, protocol version",
  },
  {
    code: 66,
    reason: "not-regular",
    outcome: "rejected",
    next: "fix-request",
    meaning: "The entry is no plain file: symlink, directory, FIFO, device, hard link, unreadable",
  },
  {
    code: 67,
    reason: "bad-name",
    outcome: "rejected",
    next: "fix-request",
    meaning: "The file name is not <id>.json with a valid id",
  },
  {
    code: 68,
    reason: "unauthenticated",
    outcome: "rejected",
    next: "ask-human",
    meaning: "The signature is missing, does not hold, or the key is not this agent's",
  },
  {
    code: 69,
    reason: "unavailable",
    outcome: "rejected",
    next: "resend-same",
    meaning: "The bridge is shutting down, degraded, or cannot do this now",
  },
  {
    code: 70,
    reason: "internal",
    outcome: "rejected",
    next: "ask-human",
    meaning: "The bridge met a fault of its own",
  },
  {
    code: 71,
    reason: "spawn-failed",
    outcome: "rejected",
    next: "ask-human",
    meaning: "The program could not be started; nothing ran",
  },
  {
    code: 77,
    reason: "denied-verb",
    outcome: "rejected",
    next: "fix-request",
    meaning: "The verb is on the built-in denial list, which no policy can lift",
  },
  {
    code: 78,
    reason: "unknown-verb",
    outcome: "rejected",
    next: "fix-request",
    meaning: "The policy gives this agent no such verb",
  },
  {
    code: 79,
    reason: "bad-args",
    outcome: "rejected",
    next: "fix-request",
    meaning: "An argument is missing, unknown, of the wrong type or outside its bounds",
  },
  {
    code: 80,
    reason: "killed",
    outcome: "rejected",
    next: "ask-human",
    meaning: "The kill switch is up; nothing starts",
  },
  {
    code: 81,
    reason: "base-changed",
    outcome: "rejected",
    next: "ask-human",
    meaning: "The trusted base is not trusted yet, or changed since a human trusted it",
  },
  {
    code: 82,
    reason: "approval-denied",
    outcome: "denied",
    next: "nothing",
    meaning: "A human said no",
  },
  {
    code: 83,
    reason: "approval-lapsed",
    outcome: "approval_lapsed",
    next: "resend-new-key",
    meaning: "No human answered in time",
  },
  {
    code: 84,
    reason: "scope-exceeded",
    outcome: "rejected",
    next: "ask-human",
    meaning: "The verb's class is above the scope of the request or of the agent",
  },
  {
    code: 85,
    reason: "spend-exceeded",
    outcome: "rejected",
    next: "ask-human",
    meaning: "The cost is above what the request, the agent or the day allows",
  },
  {
    code: 86,
    reason: "key-conflict",
    outcome: "rejected",
    next: "resend-new-key",
    meaning: "The id or idempotency key belongs to another request",
  },
  {
    code: 87,
    reason: "expired",
    outcome: "expired",
    next: "resend-new-key",
    meaning: "The request was older than its age limit before it could start",
  },
  {
    code: 88,
    reason: "rate-limited",
    outcome: "rejected",
    next: "resend-same",
    meaning: "Too many of this class were started: wait retry_after_ms",
  },
  {
    code: 89,
    reason: "busy",
    outcome: "rejected",
    next: "resend-same",
    meaning: "Too many requests of this agent are waiting",
  },
  {
    code: 90,
    reason: "uncertain",
    outcome: null,
    next: "ask-human",
    meaning: "It may or may not have happened; a human decides",
  },
  {
    code: 91,
    reason: "replayed-request",
    outcome: "rejected",
    next: "resend-new-key",
    meaning: "These signed bytes were used before",
  },
  {
    code: 92,
    reason: "stale-signature",
    outcome: "rejected",
    next: "fix-request",
    meaning: "created_at of the signed request is outside the window",
  },
] as const satisfies readonly CodeRow[];

/** The closed set of reasons. Callers and tests match on it, never on message text. */
export type Reason = (typeof TABLE)[number]["reason"];

/** Every code row, in numeric order. */
export const CODES: readonly (CodeRow & { readonly reason: Reason })[] = Object.freeze(TABLE);

const BY_REASON: ReadonlyMap<string, CodeRow & { readonly reason: Reason }> = new Map(
  CODES.map((row) => [row.reason, row]),
);

/**
 * The row of a reason.
 *
 * @throws {RangeError} when `reason` is not in the table, which the type forbids.
 */
export function codeOf(reason: Reason): CodeRow & { readonly reason: Reason } {
  const row = BY_REASON.get(reason);
  if (row === undefined) throw new RangeError(`Cannot find code: reason "${reason}" is unknown`);
  return row;
}

/** Exit codes of the `chb` command itself. */
export const EXIT = Object.freeze({
  ok: 0,
  finding: 1,
  usage: 64,
  noDaemon: 69,
  internal: 70,
  tryAgain: 75,
  refused: 77,
  config: 78,
});
