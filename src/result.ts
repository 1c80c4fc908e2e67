/**
 * The result document: what `results/<id>.json` holds, and the functions that build one. A result
 * is always derived from what the ledger knows, so it can be published again at any time.
 *
 * @module
 */
import { codeOf, type Next, type Outcome, type Reason, type State } from "./codes.ts";
import type { Refusal } from "./errors.ts";

/** One output stream as a result tells it. Sizes in bytes of the raw stream. */
export interface OutputView {
  /** Everything when nothing was dropped, else the first up to 16 KiB. */
  readonly head: string;
  /** The last up to 16 KiB, never overlapping `head`; "" when `head` is everything. */
  readonly tail: string;
  readonly bytes: number;
  /** Bytes in neither `head` nor `tail`. */
  readonly dropped_bytes: number;
  /** Bytes that were not UTF-8, each told as U+FFFD. */
  readonly replaced_bytes: number;
  /** Bare name in `results/`, or null when the stream was empty. */
  readonly file: string | null;
  /** True when `file` holds every byte that the command wrote. */
  readonly complete: boolean;
}

/** What may wait for what: a human, a free slot, or a named lock. */
export type WaitingFor = "approval" | "slot" | "lock";

/** How a request whose outcome was not known got one. */
export interface Resolved {
  /** `retry` lets it start once more. */
  readonly as: "done" | "failed" | "retry";
  /** A human who looked, or the verb's lookup. */
  readonly by: "human" | "lookup";
  /** What the human noted, as printable text. */
  readonly note?: string;
  readonly at: string;
}

export interface Result {
  readonly chb: 1;
  readonly id: string;
  readonly agent: string;
  readonly state: State;
  readonly outcome?: Outcome;
  readonly code?: number;
  readonly reason?: Reason;
  readonly stage?: string;
  readonly message?: string;
  readonly hint?: string;
  readonly next: Next;
  readonly waiting_for?: WaitingFor;
  readonly retry_after_ms?: number;
  readonly verb?: string;
  readonly idempotency_key?: string;
  readonly request_sha256?: string;
  readonly exit_code?: number | null;
  readonly signal?: string | null;
  readonly attempt?: number;
  readonly received_at?: string;
  readonly started_at?: string;
  readonly finished_at?: string;
  readonly duration_ms?: number;
  readonly deadline_at?: string;
  readonly poll_after_ms?: number;
  readonly stdout?: OutputView;
  readonly stderr?: OutputView;
  /** Set once it was found out what became of an `uncertain` request. */
  readonly resolved?: Resolved;
  /** The answer of a built-in verb. */
  readonly answer?: unknown;
  /** The id whose run this result tells, when this id joined it. */
  readonly replay_of?: string;
  readonly replays?: number;
  readonly replayed_at?: string;
  readonly audit?: { readonly seq: number; readonly hash: string };
}

/** UTC, ISO 8601, milliseconds. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** The fields that every result with a code has, from the code table. */
export function coded(
  reason: Reason,
): { outcome?: Outcome; code: number; reason: Reason; next: Next } {
  const row = codeOf(reason);
  return {
    ...(row.outcome === null ? {} : { outcome: row.outcome }),
    code: row.code,
    reason: row.reason,
    next: row.next,
  };
}

/** The result of a refusal. `extra` holds what is known of the request. */
export function refusalResult(
  agent: string,
  id: string,
  refusal: Refusal,
  extra: Partial<Result> = {},
): Result {
  return {
    chb: 1,
    id,
    agent,
    state: "done",
    ...coded(refusal.reason),
    stage: refusal.stage,
    message: refusal.message,
    hint: refusal.hint,
    ...(refusal.retry_after_ms === undefined ? {} : { retry_after_ms: refusal.retry_after_ms }),
    ...extra,
  };
}

/**
 * What is remembered of a result whose files were reaped: everything but the text of the output,
 * which counts as dropped.
 */
export function reapedResult(result: Result): Result {
  const { stdout, stderr } = result;
  return {
    ...result,
    ...(stdout === undefined ? {} : { stdout: withoutText(stdout) }),
    ...(stderr === undefined ? {} : { stderr: withoutText(stderr) }),
  };
}

function withoutText(view: OutputView): OutputView {
  return view.bytes === 0
    ? view
    : { ...view, head: "", tail: "", dropped_bytes: view.bytes, file: null, complete: false };
}

/** True when a stream had bytes and none of them is left in the result. */
export function isOutputGone(result: Result): boolean {
  return [result.stdout, result.stderr].some((view) =>
    view !== undefined && view.bytes > 0 && view.dropped_bytes === view.bytes
  );
}
