/**
 * Tells a human through the program that the policy names: that a request waits for their word, that
 * nobody knows what became of one, that a kill switch went up, that an entry is stuck.
 *
 * 1. The program runs in a shim, by the ordinary order protocol; the daemon starts nothing itself.
 *    It belongs to no request: it has no row, no slot and no lock.
 * 2. One at a time, and a bounded number waits; the same word that waits already is not told twice.
 * 3. A notification that fails, hangs or is not the trusted program any more is a line in the log
 *    and harms nothing else.
 * 4. What it is told are an event and a name of the bridge's own grammar, never a text of an agent.
 * 5. It runs while a kill switch is up: that it is up has to be told.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { Policy } from "../policy/policy.ts";
import type { NOTIFY_EVENTS } from "../policy/notify_verb.ts";
import { readExit } from "../run/exit_record.ts";
import { removeRun } from "../run/order_file.ts";
import { runDir } from "../run/run_dir.ts";
import type { Log } from "./log.ts";
import type { Prepared, Runs } from "./runs.ts";

/** What happened, as `{event}` names it. */
export type NotifyEvent = typeof NOTIFY_EVENTS[number];

/** Words that wait, at most. */
const MAX_WAITING = 100;
/** Longest time that one notification holds up the next, milliseconds. */
const PATIENCE_MS = 60_000;

export class Notifier {
  readonly #runs: Runs;
  readonly #policy: () => Policy | null;
  readonly #log: Log;
  readonly #now: () => number;
  readonly #waiting = new Map<string, { event: NotifyEvent; id: string }>();
  #current: { prepared: Prepared; since: number } | null = null;
  #dropped = 0;

  /** @param now monotonic clock, milliseconds */
  constructor(runs: Runs, policy: () => Policy | null, log: Log, now: () => number) {
    this.#runs = runs;
    this.#policy = policy;
    this.#log = log;
    this.#now = now;
  }

  /** True when there is nothing to tell, and nobody is being told. */
  get idle(): boolean {
    return this.#current === null && this.#waiting.size === 0;
  }

  /** Notes something to tell. Never waits and never throws. */
  tell(event: NotifyEvent, id: string): void {
    this.#log("INFO", "notify", { event, id });
    if ((this.#policy()?.notify ?? null) === null) return;
    if (this.#waiting.size >= MAX_WAITING) {
      if (this.#dropped++ === 0) this.#log("WARN", "notify-dropped", { waiting: MAX_WAITING });
      return;
    }
    this.#waiting.set(`${event} ${id}`, { event, id });
  }

  /** Ends what has ended and starts the next. Never throws. */
  turn(): void {
    try {
      this.#end();
      this.#next();
    } catch (error) {
      this.#log("WARN", "notify-failed", { error: errorCode(error) ?? "unknown" });
    }
  }

  #end(): void {
    if (this.#current === null) return;
    const { prepared: { run, shim }, since } = this.#current;
    if (shim.run === run && this.#now() - since < PATIENCE_MS) return;
    this.#current = null;
    const exit = readExit(runDir(run), run);
    if (exit === null || exit.kind !== "exited" || exit.exit_code !== 0) {
      this.#log("WARN", "notify-failed", {
        kind: exit?.kind ?? "lost",
        exit_code: exit?.exit_code ?? null,
        detail: exit?.detail ?? "",
      });
    }
    if (exit !== null) removeRun(run);
  }

  #next(): void {
    if (this.#current !== null) return;
    const [first] = this.#waiting;
    const policy = this.#policy();
    if (first === undefined || policy === null) return;
    const [key, { event, id }] = first;
    let prepared: Prepared | null;
    try {
      prepared = this.#runs.prepareNotify(event, id, policy);
    } catch (error) {
      this.#waiting.delete(key);
      throw error;
    }
    if (prepared === null) return;
    this.#waiting.delete(key);
    if (this.#waiting.size === 0) this.#dropped = 0;
    this.#current = { prepared, since: this.#now() };
    prepared.shim.send(prepared.run);
  }
}
