/**
 * The three kinds of failure, kept apart. A refusal is an expected answer and travels as data
 * (`Refusal`, never thrown). A fault of one request is thrown, caught at the boundary of that
 * request and answered `internal`. A fatal fault means that the state is unknown: the process
 * stops and recovery decides.
 *
 * @module
 */
import type { Reason } from "./codes.ts";

/** A refusal: the stage that said no, the code's reason, and words for the agent. */
export interface Refusal {
  /** Name of the stage of the order of checks. */
  readonly stage: string;
  readonly reason: Reason;
  /** What was wrong. Never contains request bytes unescaped. */
  readonly message: string;
  /** What to do about it. */
  readonly hint: string;
  /** Milliseconds after which the same request may be sent again; `rate-limited` and `busy` only. */
  readonly retry_after_ms?: number;
}

/** The state of the daemon is unknown or unusable: stop, and let recovery decide. */
export class FatalError extends Error {
  override name = "FatalError";
}

/** A command line that cannot be understood: exit 64. */
export class UsageError extends Error {
  override name = "UsageError";
}

/** A human command that ends with a message and an exit code of its own. */
export class ExitError extends Error {
  override name = "ExitError";
  readonly exitCode: number;
  constructor(exitCode: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

/**
 * The `code` of a system error (`ENOENT`, `EXDEV`…), or undefined.
 *
 * Deno's class names vary between calls and versions, so callers switch on the code.
 */
export function errorCode(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}
