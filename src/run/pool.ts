/**
 * The daemon's shims: started beforehand, handed out one run at a time, replaced when they are
 * spent.
 *
 * 1. Shims are started only as `./bin/chb shim`, each as the leader of its own session, with an
 *    empty environment.
 * 2. A shim that is taken for a run that may change something is spent at that moment, and its
 *    replacement is started then, not when it is missed.
 * 3. Shims that die without having worked make the next start wait, longer each time up to a
 *    bound: a program that cannot start never becomes a loop of starts.
 * 4. Nothing that a shim does rejects into the daemon. A shim's words are believed only as far as
 *    they name the run that this shim was given; the truth is in the run directory.
 * 5. The end of the daemon, however it comes, leaves busy shims running (X18).
 * 6. An idle shim is asked now and then whether it stands still. One that does not answer is told of
 *    and taken last, and nothing else: it answers as soon as it goes on, and one that is given an
 *    order and does not take it is replaced.
 *
 * @module
 */
import { isRun, printable } from "../names.ts";
import { SELF } from "../permissions.ts";
import { LineReader } from "./line_reader.ts";
import { below } from "./run_dir.ts";

/** First wait after a shim died young, and the longest, milliseconds. */
const BACKOFF_MS = { first: 250, longest: 30_000 };
/** A shim that has been ready for so long was no failed start, milliseconds. */
const SETTLED_MS = 5000;
/** A shim that is not ready by then is given up, milliseconds. */
const READY_MS = 30_000;
/**
 * How long a replacement waits while idle shims are left, milliseconds: starting one takes the
 * daemon a few milliseconds, which the request that made it necessary must not pay.
 */
const REPLACE_MS = 20;
/** Beats of the daemon without an answer after which an idle shim stands still. */
const STILL_BEATS = 6;
/** Of so many idle shims one is asked at a time. */
const ASKED_OF = 3;

/** What a shim tells about the run that it was given. */
export interface ShimLine {
  /** `exit`: an outcome is recorded. `gone`: no order, or put back, and nothing was started. */
  readonly kind: "exit" | "gone";
  readonly run: string;
  /** True when the shim is free again; false when it is ending, and its group with it. */
  readonly reusable: boolean;
}

/** One shim process, as the daemon sees it. */
export interface Shim {
  /** Its pid, and the process group of what it runs. */
  readonly pid: number;
  /** The run that it was given and has not told about yet, or null. */
  readonly run: string | null;
  /**
   * Gives it the order of a run, in one write. Does not wait: a shim that cannot be reached any
   * more shows by ending.
   *
   * @throws {RangeError} when `run` is no run id
   * @throws {Error} when the shim was not taken from the pool, or has a run already
   */
  send(run: string): void;
  /**
   * Has it take the order of a run whose start is not committed yet: `go` or `drop` has to follow.
   *
   * @throws {RangeError} when `run` is no run id
   * @throws {Error} when the shim was not taken from the pool, or has a run already
   */
  offer(run: string): void;
  /**
   * Says that the start of the order that it was offered is committed.
   *
   * @throws {Error} when it was offered none
   */
  go(): void;
  /**
   * Says that the order which it was offered is not to be started. It tells that the order is gone
   * when it has put it back, and is idle then. Nothing to do when it was offered none.
   */
  drop(): void;
}

/** What the pool needs to know. */
export interface PoolOptions {
  /** Runs that may go on at once. */
  readonly size: number;
  /** Shims kept ready beyond those; at least 1. */
  readonly spares: number;
  /**
   * Called once a run, when its shim has told about it. A reusable shim is idle by then, so the
   * callback may take it for the next run.
   */
  readonly onLine: (shim: Shim, line: ShimLine) => void;
  /**
   * Called once for a shim that ended while it was taken, or after a run that it did not survive.
   * By then every line of it was handed on.
   */
  readonly onGone: (shim: Shim) => void;
  /** Called when a shim has become ready, or the fault has changed. */
  readonly onChange?: () => void;
  readonly log: (event: string, detail: string) => void;
  /** Path of the root; the running program leaves it at `.`. */
  readonly root?: string;
}

/** The pool's own view of a shim. */
class PoolShim implements Shim {
  readonly pid: number;
  readonly #child: Deno.ChildProcess;
  readonly #stdin: WritableStreamDefaultWriter<Uint8Array>;
  state: "starting" | "idle" | "taken" | "offered" | "busy" | "gone" = "starting";
  /** It will end with its run, as far as anybody knows. */
  spent = false;
  /** Monotonic time at which it said that it is ready. */
  readyAt: number | null = null;
  run: string | null = null;
  /** Beats since it was asked whether it stands still; null when it has answered. */
  asked: number | null = null;
  /** The last question that it was asked, 0 before the first. */
  askedLast = 0;

  constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.pid = child.pid;
    this.#stdin = child.stdin.getWriter();
    this.#stdin.closed.catch(() => {});
  }

  send(run: string): void {
    this.#give(run, "busy");
    this.#write(`${run}\n`);
  }

  offer(run: string): void {
    this.#give(run, "offered");
    this.#write(`take ${run}\n`);
  }

  #give(run: string, state: "busy" | "offered"): void {
    if (!isRun(run)) throw new RangeError("Cannot send order: not a run id");
    if (this.state !== "taken") throw new Error(`Cannot send order: the shim is ${this.state}`);
    this.state = state;
    this.run = run;
    this.hold(true);
  }

  go(): void {
    if (this.state !== "offered") throw new Error(`Cannot send word: the shim is ${this.state}`);
    this.state = "busy";
    this.#write(`go ${this.run}\n`);
  }

  drop(): void {
    if (this.state !== "offered") return;
    // It starts nothing and will be idle again: nobody has to take its place.
    this.spent = false;
    this.#write(`drop ${this.run}\n`);
  }

  #write(line: string): void {
    this.#stdin.write(new TextEncoder().encode(line)).catch(() => {});
  }

  /** Asks whether it stands still; for one that owes no answer. */
  ask(question: number): void {
    this.asked = 0;
    this.askedLast = question;
    this.#write("ping\n");
  }

  /** It is idle and has not answered for long. */
  get still(): boolean {
    return this.state === "idle" && this.asked !== null && this.asked >= STILL_BEATS;
  }

  /** Ends its standard input: it leaves, or leaves after its run. */
  dismiss(): void {
    this.#stdin.close().catch(() => {});
  }

  /** Keeps the daemon's event loop alive for this shim, or does not. */
  hold(on: boolean): void {
    if (on) this.#child.ref();
    else this.#child.unref();
  }

  /** Ends a shim that is of no use and has started nothing. */
  abandon(): void {
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // It has ended already.
    }
  }
}

/** Keeps shims ready. */
export class ShimPool {
  readonly #options: PoolOptions;
  readonly #root: string;
  readonly #shims = new Set<PoolShim>();
  #size: number;
  #closed = false;
  #fault: string | null = null;
  #failures = 0;
  #questions = 0;
  /** Monotonic time before which no shim is started. */
  #notBefore = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @throws {RangeError} when `size` or `spares` is below 1 */
  constructor(options: PoolOptions) {
    if (!(options.size >= 1) || !(options.spares >= 1)) {
      throw new RangeError("Cannot make pool: size and spares are at least 1");
    }
    this.#options = options;
    this.#size = options.size;
    this.#root = options.root ?? ".";
  }

  /** Why shims cannot be had, or null. */
  get fault(): string | null {
    return this.#fault;
  }

  /** Shims that could be taken now. */
  get idle(): number {
    return this.#count((shim) => shim.state === "idle");
  }

  /** Shims that were given an order and have not told about it. */
  get busy(): number {
    return this.#count((shim) => shim.state === "busy");
  }

  /** Pids of all shims that have not ended. */
  get pids(): number[] {
    return [...this.#shims].map((shim) => shim.pid);
  }

  /** Pids of idle shims that stand still. */
  get still(): number[] {
    return [...this.#shims].filter((shim) => shim.still).map((shim) => shim.pid);
  }

  /** What busy shims run. */
  get runs(): { readonly pid: number; readonly run: string }[] {
    const list: { pid: number; run: string }[] = [];
    for (const { pid, run, state } of this.#shims) {
      if (state === "busy" && run !== null) list.push({ pid, run });
    }
    return list;
  }

  /**
   * One beat of the daemon, by which it is counted how long a shim owes an answer: a daemon that did
   * not come to read one has not come to beat either.
   *
   * @param ask asks a third of the idle ones anew, so that each has its turn and an idle daemon is
   * seldom woken by an answer
   * @param beats how many beats this one stands for
   */
  beat(ask: boolean, beats = 1): void {
    const idle: PoolShim[] = [];
    for (const shim of this.#shims) {
      if (shim.asked !== null) shim.asked += beats;
      else if (shim.state === "idle") idle.push(shim);
    }
    if (!ask) return;
    idle.sort((a, b) => a.askedLast - b.askedLast);
    for (const shim of idle.slice(0, Math.ceil(idle.length / ASKED_OF))) {
      shim.ask(++this.#questions);
    }
  }

  /**
   * Changes how many runs may go on at once, as when another policy comes into force. Shims that
   * are too many leave when they have finished a run.
   *
   * @throws {RangeError} when `size` is below 1
   */
  resize(size: number): void {
    if (!(size >= 1)) throw new RangeError("Cannot resize pool: size is at least 1");
    this.#size = size;
    this.#fill();
  }

  /** Starts the first shims. */
  open(): void {
    this.#fill();
  }

  /**
   * A shim that is ready and idle, or null when there is none now. It is the caller's until it
   * tells about its run, or is released.
   *
   * @param reuse the `reuse` that the order will have
   */
  take(reuse: boolean): Shim | null {
    if (this.#closed) return null;
    let found: PoolShim | null = null;
    let still: PoolShim | null = null;
    for (const shim of this.#shims) {
      if (shim.state !== "idle") continue;
      if (shim.still) {
        still = shim;
        continue;
      }
      found = shim;
      // The oldest idle shim is the one that has run most; keep it for runs that it survives.
      if (reuse) break;
    }
    // Its replacement is started now: whoever waits in vain for this one must not be given the next
    // that stands still.
    reuse &&= found !== null;
    found ??= still;
    if (found === null) return null;
    found.state = "taken";
    found.spent = !reuse;
    if (found.spent) this.#later(REPLACE_MS);
    return found;
  }

  /** Gives back a shim that was taken and got no order. */
  release(shim: Shim): void {
    if (shim instanceof PoolShim && shim.state === "taken") this.#free(shim);
  }

  /**
   * Ends a shim that did not take the order which it was given; another one takes its place. Only
   * for one whose order is void or withdrawn: what a shim runs does not end with it.
   */
  abandon(shim: Shim): void {
    if (shim instanceof PoolShim) shim.abandon();
  }

  /** Lets every shim go: idle ones leave now, busy ones when they have finished. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const shim of this.#shims) shim.dismiss();
  }

  #count(is: (shim: PoolShim) => boolean): number {
    let n = 0;
    for (const shim of this.#shims) if (is(shim)) n++;
    return n;
  }

  /** Shims that are missing (positive) or too many (negative). Spent ones do not count. */
  #missing(): number {
    return this.#size + this.#options.spares - this.#count((shim) => !shim.spent);
  }

  #free(shim: PoolShim): void {
    shim.spent = false;
    shim.state = "idle";
    shim.hold(false);
    if (this.#missing() >= 0) return;
    // Its replacement was started although it lives on.
    shim.state = "gone";
    shim.dismiss();
  }

  /** Starts one shim if one is missing, and comes back for the next. */
  #fill(): void {
    if (this.#closed || this.#timer !== undefined || this.#missing() <= 0) return;
    const wait = this.#notBefore - performance.now();
    if (wait > 0) return this.#later(wait);
    this.#start();
    this.#later(this.idle > 0 ? REPLACE_MS : 0);
  }

  #later(ms: number): void {
    if (this.#closed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#fill();
    }, ms);
    // Waiting to start a spare must not keep a daemon alive that has nothing else to do.
    Deno.unrefTimer(this.#timer);
  }

  #start(): void {
    let child: Deno.ChildProcess;
    try {
      child = new Deno.Command(below(this.#root, SELF), {
        args: ["shim"],
        detached: true,
        clearEnv: true,
        cwd: this.#root,
        stdin: "piped",
        stdout: "piped",
        stderr: "null",
      }).spawn();
    } catch (error) {
      return this.#failed(`cannot start a shim: ${printable(String(error))}`);
    }
    const shim = new PoolShim(child);
    this.#shims.add(shim);
    shim.hold(false);
    void this.#serve(shim, child);
  }

  /** Reads a shim's lines until it has ended. Never rejects. */
  async #serve(shim: PoolShim, child: Deno.ChildProcess): Promise<void> {
    const impatience = setTimeout(() => {
      if (shim.state === "starting") shim.abandon();
    }, READY_MS);
    Deno.unrefTimer(impatience);
    const lines = new LineReader();
    let why = "";
    try {
      for await (const bytes of child.stdout) {
        for (const line of lines.push(bytes)) why ||= this.#line(shim, line);
      }
      const status = await child.status;
      why ||= status.signal ?? `ended with code ${status.code}`;
    } catch (error) {
      why ||= printable(String(error));
    }
    clearTimeout(impatience);
    this.#gone(shim, why);
  }

  /** Takes in one line. Returns why the shim is of no use, when it says so; else "". */
  #line(shim: PoolShim, line: string): string {
    if (line.startsWith("fault ")) return line;
    if (line === "pong") {
      shim.asked = null;
      return "";
    }
    if (shim.state === "starting" && line.startsWith("ready ")) {
      if (line !== `ready ${shim.pid}`) {
        shim.abandon();
        return `${SELF} does not keep its pid, so what it runs could not be ended`;
      }
      shim.readyAt = performance.now();
      shim.state = "idle";
      this.#fault = null;
      this.#options.onChange?.();
      return "";
    }
    const [kind, run, last, ...rest] = line.split(" ");
    const understood = (kind === "exit" || kind === "gone") && run !== undefined &&
      (last === undefined || last === "reusable") && rest.length === 0;
    if (!understood || shim.run !== run) {
      this.#options.log("shim-said", `pid=${shim.pid} line=${printable(line)}`);
      return "";
    }
    shim.run = null;
    this.#failures = 0;
    const reusable = kind === "gone" || last === "reusable";
    if (reusable) {
      this.#free(shim);
    } else {
      shim.spent = true;
      this.#later(REPLACE_MS);
    }
    this.#guard(() => this.#options.onLine(shim, { kind, run, reusable }));
    return "";
  }

  #gone(shim: PoolShim, why: string): void {
    const { state, spent, readyAt } = shim;
    const held = state === "taken" || state === "offered" || state === "busy";
    this.#shims.delete(shim);
    shim.state = "gone";
    shim.dismiss();
    const settled = readyAt !== null && performance.now() - readyAt >= SETTLED_MS;
    if (this.#closed || spent || held || state === "gone" || settled) {
      this.#options.log("shim-gone", `pid=${shim.pid} why=${why}`);
    } else {
      this.#failed(`a shim ended without having worked: ${why}`);
    }
    if (held) this.#guard(() => this.#options.onGone(shim));
    this.#fill();
  }

  /** A start that came to nothing: the next one waits, twice as long as the last time. */
  #failed(why: string): void {
    const wait = Math.min(BACKOFF_MS.first * 2 ** this.#failures, BACKOFF_MS.longest);
    this.#failures++;
    this.#notBefore = performance.now() + wait;
    this.#options.log("shim-failed", `retry_ms=${wait} why=${why}`);
    if (this.#fault === why) return;
    this.#fault = why;
    this.#options.onChange?.();
  }

  /** Calls back into the daemon; what that throws must not end the reading of other lines. */
  #guard(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#options.log("callback-failed", printable(String(error), 500));
    }
  }
}
