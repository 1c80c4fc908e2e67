/**
 * The two records that daemon and shim exchange through `state/runs/<run>/`: the order that the
 * daemon writes before its `running` commit, and the exit record that the shim writes when the
 * command has ended. The order protocol stands at the head of `shim.ts`.
 *
 * @module
 */
import type { CheckedArgs, FileIdentity } from "../policy/policy.ts";

/** Names inside a run directory. */
export const RUN_FILES = Object.freeze({
  order: "order.json",
  taken: "taken.json",
  void: "void.json",
  exit: "exit.json",
  /** The exit record while it is being written. */
  exitTmp: "exit.json.tmp",
  /** Presence asks the shim to cancel the run; its content is information. */
  cancel: "cancel",
  stdout: "stdout",
  stderr: "stderr",
  /** The shim's own diagnostics, bounded. */
  log: "shim.log",
});

/** A file of the trusted base: path as in the policy, SHA-256 of its content in hex. */
export interface RequiredFile {
  readonly path: string;
  readonly sha256: string;
}

/** What a shim is told to run. Durations in milliseconds, sizes in bytes. */
export interface Order {
  readonly chb: 1;
  readonly run: string;
  readonly agent: string;
  readonly id: string;
  readonly idempotency_key: string;
  readonly verb: string;
  readonly args: CheckedArgs;
  readonly attempt: number;
  /** SHA-256 of the trusted policy, the name of its file in `state/policies/`. */
  readonly policy: string;
  /** SHA-256 of the resolved program, argv, cwd and environment (`commandDigest`). */
  readonly command_sha256: string;
  /** The program as it was when a human trusted it. */
  readonly program: FileIdentity;
  /**
   * The verb's `requires` files with what they held when a human trusted them. Must name every
   * one of them; may be left out only when the verb requires none.
   */
  readonly requires?: readonly RequiredFile[];
  /** It runs the policy's notification, which is no verb of any agent. */
  readonly notify?: boolean;
  readonly max_spend: number | null;
  readonly timeout_ms: number;
  readonly grace_ms: number;
  /** Bytes kept of each stream in the raw files. */
  readonly output_cap: number;
  /** The process group that the run will live in: the pid of the shim that gets the order. */
  readonly pgid: number;
  /** The verb's lookup is to be run, not the verb; left out for the verb. */
  readonly lookup?: boolean;
  /** The shim may take another order after this one (`observe` verbs only). */
  readonly reuse: boolean;
}

/** How one output stream ended. */
export interface StreamEnd {
  /** Bytes that the command wrote as far as they were read. */
  readonly bytes: number;
  /** The first so many of them are in the raw file. */
  readonly file_bytes: number;
  /** The last up to 16 KiB, base64, only when `bytes` is above `file_bytes`; else "". */
  readonly tail: string;
  /** False when the pipe was cut before its end. */
  readonly complete: boolean;
}

/** How a run ended, as the shim saw it. */
export type ExitKind =
  | "exited"
  | "timed_out"
  | "cancelled"
  /** The kill switch was up before the spawn: nothing started. */
  | "killed"
  /** The base or the resolved command was not the trusted one: nothing started. */
  | "base_changed"
  /** The program could not be started: nothing started. */
  | "spawn_failed";

/** The exit record. */
export interface Exit {
  readonly chb: 1;
  readonly run: string;
  readonly kind: ExitKind;
  /** False: nothing was started and nothing ever will be under this run id. */
  readonly started: boolean;
  /** The child's own exit code, or null when a signal ended it or nothing started. */
  readonly exit_code: number | null;
  readonly signal: string | null;
  /** A fixed word for the log; never output of the command. */
  readonly detail: string;
  /** Wall clock, milliseconds since the epoch. */
  readonly started_ms: number | null;
  readonly finished_ms: number;
  /** Monotonic. */
  readonly duration_ms: number | null;
  readonly stdout: StreamEnd;
  readonly stderr: StreamEnd;
}
