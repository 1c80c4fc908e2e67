/**
 * One command from its start to the moment at which its outcome is known. The caller leads the
 * session that the command will live in, and afterwards records the outcome and ends the group.
 *
 * 1. The command gets an absolute program, its arguments, exactly the given environment, no
 *    standard input, and pipes that are read all the time (X2, X7, X13, X20).
 * 2. The end of the command is the end of its process. Whoever else holds its pipes has a short
 *    time to let go; then they are cut and the output is told as incomplete (X11, X12).
 * 3. At the time limit, and when the cancel mark appears, the whole group gets TERM, and after the
 *    grace time the outcome is settled although the command may still run (X10). Nothing the
 *    command does can delay that.
 * 4. An ending that the runtime cannot name, such as a real-time signal, is an ending like any
 *    other (X15).
 *
 * @module
 */
import type { ResolvedCommand } from "../policy/policy.ts";
import { insist } from "./kill_group.ts";
import { isCancelMarked } from "./look_before_start.ts";
import { type ExitKind, type Order, RUN_FILES, type StreamEnd } from "./order.ts";
import type { ShimLog } from "./shim_log.ts";
import { StreamSink } from "./stream_sink.ts";

/** Time that pipes get to end once the command has, milliseconds. */
export const DRAIN_MS = 250;
/** How often the cancel mark is looked for, milliseconds. */
export const CANCEL_POLL_MS = 200;
/** Longest single timer: the runtime fires one of 2^31 ms and more at once. */
const TIMER_MAX_MS = 2 ** 30;

/** What a timer is called differs between runtime versions. */
type Timer = ReturnType<typeof setTimeout> | undefined;

/** How a process ended, as its parent sees it. Both null: not known. */
export interface Ending {
  readonly exit_code: number | null;
  readonly signal: string | null;
}

/** How a started command ended. */
export interface Ended extends Ending {
  readonly kind: Extract<ExitKind, "exited" | "timed_out" | "cancelled">;
  /** A fixed word: empty, `pipe-held`, `killed-after-grace`, `status-unknown`. */
  readonly detail: string;
  readonly started_ms: number;
  readonly finished_ms: number;
  readonly duration_ms: number;
  readonly stdout: StreamEnd;
  readonly stderr: StreamEnd;
  /** True when the process has ended and both pipes were read to their end. */
  readonly clean: boolean;
}

/** Resolves after `ms` milliseconds. */
export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * The ending that a rejected status promise tells. The runtime has no name for real-time signals
 * and rejects with the number instead.
 */
export function endingOfError(error: unknown): Ending {
  const match = /signal: ([0-9]{1,3})\b/.exec(error instanceof Error ? error.message : "");
  return { exit_code: null, signal: match === null ? null : `SIG${match[1]}` };
}

/** The ending of a child; never rejects. */
function endingOf(child: Deno.ChildProcess): Promise<Ending> {
  return child.status.then(
    (status) =>
      status.signal === null
        ? { exit_code: status.code, signal: null }
        : { exit_code: null, signal: status.signal },
    endingOfError,
  );
}

/** Waits for what may end a command from outside: its time limit or its cancel mark. */
class StopWatch {
  readonly stopped: Promise<"timed_out" | "cancelled">;
  #timer: Timer;
  #poll: Timer;

  constructor(dir: string, timeoutMs: number) {
    const { promise, resolve } = Promise.withResolvers<"timed_out" | "cancelled">();
    this.stopped = promise;
    // The monotonic clock stands still while the machine sleeps: limits count awake time.
    const end = performance.now() + timeoutMs;
    const arm = () => {
      const left = end - performance.now();
      if (left <= 0) return resolve("timed_out");
      this.#timer = setTimeout(arm, Math.min(left, TIMER_MAX_MS));
    };
    arm();
    this.#poll = setInterval(() => {
      if (isCancelMarked(dir)) resolve("cancelled");
    }, CANCEL_POLL_MS);
  }

  dispose(): void {
    clearTimeout(this.#timer);
    clearInterval(this.#poll);
  }
}

/**
 * Starts a command.
 *
 * @throws the system error when it cannot be started; then nothing runs
 */
export function spawnCommand(command: ResolvedCommand): Deno.ChildProcess {
  return new Deno.Command(command.program, {
    args: [...command.argv],
    clearEnv: true,
    env: { ...command.env },
    cwd: command.cwd,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

/**
 * Follows a started command until its outcome is settled. Never rejects on account of anything
 * that the command does.
 *
 * @param child what `spawnCommand` gave
 * @param dir the run directory, where raw output goes and the cancel mark may appear
 */
export async function followCommand(
  child: Deno.ChildProcess,
  order: Order,
  dir: string,
  log: ShimLog,
): Promise<Ended> {
  const started_ms = Date.now();
  const start = performance.now();
  const out = new StreamSink(`${dir}/${RUN_FILES.stdout}`, order.output_cap);
  const err = new StreamSink(`${dir}/${RUN_FILES.stderr}`, order.output_cap);
  const drained = Promise.all([out.drain(child.stdout), err.drain(child.stderr)]);
  const ending = endingOf(child);
  const watch = new StopWatch(dir, order.timeout_ms);

  const first = await Promise.race([ending, watch.stopped]);
  watch.dispose();
  let end: Ending | null = typeof first === "string" ? null : first;
  const kind = typeof first === "string" ? first : "exited";
  if (end === null) {
    let settled = false;
    void insist({
      signal: "TERM",
      pgid: Deno.pid,
      wanted: () => !settled,
      failed: (answer) => log.line(`term-helper-${answer}`),
    });
    end = await Promise.race([ending, sleep(order.grace_ms).then(() => null)]);
    settled = true;
  }
  const duration_ms = performance.now() - start;
  const finished_ms = Date.now();
  const gone = end !== null;
  if (gone && !(out.ended && err.ended)) {
    let timer: Timer;
    const late = new Promise<void>((resolve) => timer = setTimeout(resolve, DRAIN_MS));
    await Promise.race([drained, late]);
    clearTimeout(timer);
  }
  const clean = gone && out.ended && err.ended;
  out.cut();
  err.cut();
  return {
    kind,
    exit_code: end?.exit_code ?? null,
    signal: end?.signal ?? null,
    detail: !gone
      ? "killed-after-grace"
      : end?.exit_code === null && end.signal === null
      ? "status-unknown"
      : clean
      ? ""
      : "pipe-held",
    started_ms,
    finished_ms,
    duration_ms,
    stdout: out.end(),
    stderr: err.end(),
    clean,
  };
}
