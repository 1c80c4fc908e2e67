/**
 * The program behind `chb shim`: it takes orders from the daemon and runs one command at a time.
 * It leads its own session, outlives the daemon, and cannot read what agents write.
 *
 * The order protocol, with what a crash after each step leaves:
 *
 *     daemon: mkdir runs/<run>, write order.json      an order that nobody took: it can be voided
 *     daemon: write "take <run>\n"                    the same
 *     shim:   flock runs/<run>, waiting               the same
 *     shim:   read and judge the order                the same
 *     shim:   rename order.json to taken.json         perhaps started
 *     shim:   fsync the directory                     perhaps started, after a power failure too
 *     daemon: meanwhile, commit `running`             the same
 *     daemon: write "go <run>\n"                      the same
 *     shim:   look at kill switch and cancel mark     the same
 *     shim:   start the command                       perhaps started
 *     shim:   record the outcome, rename              the outcome is known
 *     shim:   unlock and write "exit <run> reusable\n", fsync; or write "exit <run>\n", fsync, and
 *             kill the group
 *
 * Where the commit fails the daemon writes "drop <run>\n" instead, and where it dies the input ends.
 * Then the shim renames the order back: it is again one that nobody took. An order whose start is
 * committed already is given with "<run>\n" alone, which is both words in one.
 *
 * Rules
 * 1. Nothing starts unless the rename of `order.json` succeeded and is durable, and the daemon has
 *    said since that the start is committed. Whoever renames the order to something else has voided
 *    it for good; the one who took it, and he alone, may put it back as long as nothing started (S7).
 * 2. While the lock is held the run's slot is taken. It is given up after the outcome is recorded
 *    and before the daemon hears that this process is free; otherwise it dies with this process.
 * 3. The outcome is recorded before anybody is told, and durable before the group is killed. Between
 *    the two a power failure leaves "perhaps started", which is never run again by itself (S1, S7).
 * 4. Only a shim whose last command was an observing one, ended by itself and closed its pipes
 *    takes another order. Every other one ends by killing its group, itself included (X10, X11).
 * 5. No output, no ending and no rejected promise ends the shim, and none of the signals that
 *    programs send to their group, except those that the runtime cannot catch: KILL, STOP and the
 *    real-time ones. Those leave a run without a record, which recovery calls uncertain (X15, S13).
 * 6. The order is read and judged, and then taken, while the daemon commits its start. The switches
 *    are looked at after that, right before the start, and so are program and files where the first
 *    look at them is not fresh any more.
 * 7. What a shim does not need it gives up before it reads its first order, and refuses to work
 *    when that failed, or when it does not lead a group that it can signal.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode } from "../errors.ts";
import { isRun, printable } from "../names.ts";
import { Beat } from "./beat.ts";
import { readBounded } from "./bounded_file.ts";
import {
  type BlankExit,
  blankExit,
  EMPTY_STREAM,
  type StoredExit,
  writeExit,
} from "./exit_record.ts";
import { giveUpGrants } from "./give_up_grants.ts";
import { insist, killArgv, killProgram } from "./kill_group.ts";
import { LineReader } from "./line_reader.ts";
import { lookBeforeStart } from "./look_before_start.ts";
import { type Exit, type ExitKind, type Order, RUN_FILES } from "./order.ts";
import { ORDER_BYTES_MAX, parseOrder } from "./parse_order.ts";
import { followCommand, sleep, spawnCommand } from "./run_command.ts";
import { runDir } from "./run_dir.ts";
import { ShimLog } from "./shim_log.ts";
import { StreamSink } from "./stream_sink.ts";
import {
  type Resolved,
  resolveOrder,
  type Verified,
  verifyFiles,
  warmPolicy,
} from "./verify_order.ts";

/** Signals that a group member can send and that must not end the shim. */
const IGNORED_SIGNALS: readonly Deno.Signal[] = [
  "SIGTERM",
  "SIGINT",
  "SIGHUP",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
  "SIGPIPE",
  "SIGALRM",
  "SIGTSTP",
  "SIGTTIN",
  "SIGTTOU",
  "SIGCONT",
  // Further ones that would end a process: an aborted group, limits on time and file size.
  "SIGABRT",
  "SIGXCPU",
  "SIGXFSZ",
  "SIGVTALRM",
  "SIGPROF",
  "SIGIO",
  "SIGPWR",
  "SIGSTKFLT",
];

/** How long a look at program and files counts as one right before the start, milliseconds. */
const FRESH_MS = 20;

/** What became of an order. */
interface Attempt {
  readonly exit: Exit;
  /** The group, this process included, must end once the outcome is recorded. */
  readonly endGroup: boolean;
  readonly child: Deno.ChildProcess | null;
  /** The file of the record, made beforehand; null when there was none. */
  readonly blank: BlankExit | null;
}

/** Diagnostics of the current run; of none between runs. */
let log = new ShimLog(null);

/** Tells the daemon. A daemon that is gone, or does not listen, changes nothing. */
function say(line: string): void {
  const bytes = new TextEncoder().encode(`${line}\n`);
  try {
    for (let at = 0; at < bytes.length;) at += Deno.stdout.writeSync(bytes.subarray(at));
  } catch (error) {
    log.line("nobody-listens", error);
  }
}

function ignoreSignals(): void {
  for (const signal of IGNORED_SIGNALS) Deno.addSignalListener(signal, () => {});
}

/** From here on no stray rejection or exception ends this process. */
function surviveErrors(): void {
  globalThis.addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    log.line("unhandled-rejection", event.reason);
  });
  globalThis.addEventListener("error", (event) => {
    event.preventDefault();
    log.line("uncaught", event.error);
  });
}

function unstarted(
  run: string,
  kind: Extract<ExitKind, "cancelled" | "killed" | "base_changed" | "spawn_failed">,
  detail: string,
): Attempt {
  const exit: Exit = {
    chb: 1,
    run,
    kind,
    started: false,
    exit_code: null,
    signal: null,
    detail,
    started_ms: null,
    finished_ms: Date.now(),
    duration_ms: null,
    stdout: EMPTY_STREAM,
    stderr: EMPTY_STREAM,
  };
  return { exit, endGroup: false, child: null, blank: null };
}

/** An order as read, and what it comes to. */
interface ReadOrder {
  readonly order: Order;
  readonly resolved: Resolved;
  readonly verified: Verified;
  /** When program and files were looked at: monotonic clock, milliseconds. */
  readonly verifiedAt: number;
  readonly blank: BlankExit | null;
}

/** An order that is to be taken, or null when its text is not one that can be believed. */
function readOrder(dir: string, run: string): ReadOrder | null {
  try {
    const bytes = readBounded(`${dir}/${RUN_FILES.order}`, ORDER_BYTES_MAX);
    const order = bytes === null ? null : parseOrder(bytes, run);
    if (order !== null) {
      const resolved = resolveOrder(order, Deno.pid, Deno.cwd());
      const verified = verifyFiles(order, resolved);
      return { order, resolved, verified, verifiedAt: performance.now(), blank: blankExit(dir) };
    }
    log.line("order-unreadable");
    return null;
  } catch (error) {
    // Whoever takes it finds out whether it is there.
    if (errorCode(error) !== "ENOENT") log.line("order-unreadable", error);
    return null;
  }
}

/** Carries out a taken order; the directory has been fsynced. */
async function carryOut(run: string, dir: string, read: ReadOrder | null): Promise<Attempt> {
  if (read === null) return unstarted(run, "base_changed", "order-unreadable");
  const { order } = read;
  const fresh = performance.now() - read.verifiedAt <= FRESH_MS;
  const verified = fresh ? read.verified : verifyFiles(order, read.resolved);
  // Looked at last, so that little time lies between this look and the start.
  const stop = lookBeforeStart(dir, order.notify === true ? null : order.agent);
  if (stop !== null) return unstarted(run, stop, "before-start");
  if (!verified.ok) {
    log.line(verified.detail, verified.error);
    return unstarted(run, "base_changed", verified.detail);
  }
  let child: Deno.ChildProcess;
  try {
    child = spawnCommand(verified.command);
  } catch (error) {
    log.line("spawn-failed", error);
    return unstarted(run, "spawn_failed", errorCode(error) ?? "refused");
  }
  const { clean, ...ended } = await followCommand(child, order, dir, log);
  const reusable = verified.reuse && clean && ended.kind === "exited";
  return {
    exit: { chb: 1, run, started: true, ...ended },
    endGroup: !reusable,
    child,
    blank: read.blank,
  };
}

/** Kills the whole group, this process included. Tries until it works and so never returns. */
async function endGroup(child: Deno.ChildProcess | null): Promise<never> {
  await insist({
    signal: "KILL",
    pgid: Deno.pid,
    wanted: () => true,
    failed(answer) {
      log.line(`kill-helper-${answer}`);
      try {
        // Needs no new process, so it works where none can be made; it reaches the leader only.
        child?.kill("SIGKILL");
      } catch {
        // It has ended already.
      }
    },
  });
  // The signal was sent to this process as well; there is nothing after it.
  return await new Promise<never>(() => {});
}

/** False when there is certainly no such directory. */
function isThere(dir: string): boolean {
  try {
    Deno.lstatSync(dir);
    return true;
  } catch (error) {
    return errorCode(error) !== "ENOENT";
  }
}

/**
 * Records the outcome; waits for as long as the disk refuses it and waiting can help. Where somebody
 * removed the run directory it cannot: the daemon finds that nothing lives and nothing is told.
 */
async function record(dir: string, { exit, ...attempt }: Attempt): Promise<StoredExit | null> {
  for (let { blank } = attempt;; blank = null) {
    const stored = writeExit(dir, exit, undefined, blank);
    if (stored !== null) return stored;
    log.line("exit-not-recorded");
    if (!isThere(dir)) return null;
    // The work must end now, recorded or not; recovery will call it uncertain.
    if (exit.kind === "timed_out" || (exit.kind === "cancelled" && exit.started)) return null;
    await sleep(1000);
  }
}

/**
 * Makes the directory's entries durable; false when that failed and nothing may be believed. Waits in
 * this thread, which has nothing else to do: another one would have to be given a processor first.
 */
function sync(handle: Deno.FsFile): boolean {
  try {
    handle.syncSync();
    return true;
  } catch (error) {
    log.line("cannot-sync", error);
    return false;
  }
}

/**
 * Takes the order of a run. False when it is not there to be taken.
 *
 * A rename can be reported as failed and have happened all the same. Only the holder of the lock
 * gives an order this name, and it gives it at most once: an order that has it now was taken here,
 * and would be called perhaps started for good if this process said that there was none (S5).
 */
function take(dir: string): boolean {
  try {
    Deno.renameSync(`${dir}/${RUN_FILES.order}`, `${dir}/${RUN_FILES.taken}`);
    return true;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return false;
    log.line("cannot-take", error);
  }
  try {
    return Deno.lstatSync(`${dir}/${RUN_FILES.taken}`).isFile;
  } catch {
    return false;
  }
}

/**
 * Puts a taken order back that is not to be started: whoever finds it may void it and give the
 * request another run. Where that fails it stays taken, and recovery calls it uncertain.
 */
function putBack(dir: string, handle: Deno.FsFile): void {
  try {
    Deno.renameSync(`${dir}/${RUN_FILES.taken}`, `${dir}/${RUN_FILES.order}`);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") log.line("cannot-put-back", error);
    return;
  }
  sync(handle);
}

/** What there is to do once the lock is given up: what to tell the daemon, and then what to sync. */
interface Told {
  readonly words: string;
  readonly stored: StoredExit | null;
}

/**
 * Takes and carries out an order under its lock. Returns only when this process may go on.
 *
 * @param mayStart asks, and waits for, whether the start is committed
 */
async function runLocked(
  run: string,
  dir: string,
  handle: Deno.FsFile,
  mayStart: () => boolean,
): Promise<Told> {
  handle.lockSync(true);
  const read = readOrder(dir, run);
  if (!take(dir)) return { words: `gone ${run}`, stored: null };
  let child: Deno.ChildProcess | null = null;
  try {
    using _beat = new Beat(dir);
    const isDurable = sync(handle);
    // Where somebody removed the directory meanwhile, nothing that ran could be recorded.
    if (!mayStart() || !isThere(dir)) {
      putBack(dir, handle);
      return { words: `gone ${run}`, stored: null };
    }
    const attempt = isDurable
      ? await carryOut(run, dir, read)
      : unstarted(run, "spawn_failed", "cannot-sync");
    child = attempt.child;
    const stored = await record(dir, attempt);
    if (!attempt.endGroup && stored !== null) return { words: `exit ${run} reusable`, stored };
    say(`exit ${run}`);
    // What changed something must not become uncertain by a power failure. The daemon has been
    // told already and does not wait for this.
    stored?.sync();
    sync(handle);
  } catch (error) {
    // Not reached by anything a command does. What is unknown ends, and recovery decides.
    log.line("lost-track", error);
  }
  return await endGroup(child);
}

/**
 * One order from the daemon.
 *
 * @param mayStart asks, and waits for, whether the start is committed
 */
async function runOrder(run: string, mayStart: () => boolean): Promise<void> {
  const dir = runDir(run);
  let told: Told;
  try {
    using handle = Deno.openSync(dir, { read: true });
    log = new ShimLog(dir);
    told = await runLocked(run, dir, handle, mayStart);
  } catch (error) {
    // Opening or locking failed, so nothing was taken.
    log.line("no-order", error);
    told = { words: `gone ${run}`, stored: null };
  }
  log = new ShimLog(null);
  say(told.words);
  told.stored?.sync();
}

/**
 * True when this process leads a group that the helper can signal: otherwise nothing that it
 * starts could be ended. The helper is started as a command would be, so the first order finds
 * that way trodden.
 */
async function leadsGroup(): Promise<boolean> {
  try {
    const child = spawnCommand({
      program: killProgram(),
      argv: killArgv("0", Deno.pid),
      cwd: "/",
      env: {},
    });
    const [status] = await Promise.all([
      child.status,
      new StreamSink("", 0).drain(child.stdout),
      new StreamSink("", 0).drain(child.stderr),
    ]);
    return status.success;
  } catch {
    return false;
  }
}

/** What the daemon says, a line at a time. */
class Words {
  readonly #reader = new LineReader();
  readonly #buffer = new Uint8Array(4096);
  readonly #lines: string[] = [];

  /** The next line, waited for; null when there will be no more. */
  next(): string | null {
    for (;;) {
      const line = this.#lines.shift();
      if (line !== undefined) return line;
      // Blocking on purpose: without a word there is nothing to do, and one is taken up without a
      // detour. While a command runs nobody reads here; the end shows afterwards.
      const n = this.#read();
      if (n === null) return null;
      this.#lines.push(...this.#reader.push(this.#buffer.subarray(0, n)));
    }
  }

  /** True when the start of a taken order is committed; false when it is not, and never will be. */
  isCommitted(run: string): boolean {
    for (;;) {
      const line = this.next();
      if (line === `go ${run}`) return true;
      if (line === null || line === `drop ${run}`) return false;
      if (line === "ping") say("pong");
    }
  }

  #read(): number | null {
    try {
      return Deno.stdin.readSync(this.#buffer);
    } catch {
      // No input that can be read is an input that has ended.
      return null;
    }
  }
}

/**
 * Serves orders until standard input ends.
 *
 * Lines in: `<run>`, an order whose start is committed; `take <run>`, one whose start is being
 * committed, followed by `go <run>` or `drop <run>`; `ping`. Lines out: `ready <pid>` once; `pong` for
 * each `ping`; for each order `exit <run>` when its outcome is recorded and this process is about to
 * end, `exit <run> reusable` when it is recorded and the next order is welcome, or `gone <run>` when
 * there was no order to take, or it was put back, and nothing was started. `fault …` instead of
 * `ready` says why this process will not work.
 *
 * Needs the permissions of the program and gives most of them up. Must be started as the leader
 * of its own session.
 *
 * @returns the exit code: 0 when standard input ended between two runs, 78 when it cannot work
 */
export async function runShim(): Promise<number> {
  surviveErrors();
  const wrong = giveUpGrants();
  if (wrong.length > 0) {
    say(`fault grants ${printable(wrong.join(" "), 300)}`);
    return EXIT.config;
  }
  ignoreSignals();
  if (!await leadsGroup()) {
    say("fault group it does not lead a process group that the kill helper can signal");
    return EXIT.config;
  }
  warmPolicy();
  say(`ready ${Deno.pid}`);
  const words = new Words();
  for (;;) {
    const line = words.next();
    if (line === null) return EXIT.ok;
    const [word = "", run = ""] = line.split(" ");
    if (line === "ping") say("pong");
    else if (isRun(line)) await runOrder(line, () => true);
    else if (word === "take" && isRun(run)) await runOrder(run, () => words.isCommitted(run));
  }
}
