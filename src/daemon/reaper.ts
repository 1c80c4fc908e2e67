/**
 * Keeps what the bridge stores within its bounds: results, output, ledger rows, notes, copies, raw
 * output, policies. It works in rounds; a round is a row of small steps, a few milliseconds each,
 * between which the daemon does everything else. A round that was not ended is begun anew by the
 * next one and finds what is left: nothing of it has to be remembered.
 *
 * 1. Caps are looked at once a second, ages and files every few minutes; while there is nothing to
 *    do that costs a comparison. Steps for either take turns, so that a flood does not keep a round
 *    from its end, nor a long round what a flood leaves from being removed.
 * 2. Ages are counted by `RetentionClock`, and the order of things is that of the audit records: no
 *    clock that is set to and fro reaps anything before its time.
 * 3. A step that fails ends its round. The next one comes soon, and what failed is said once.
 * 4. What needs no ledger comes first in a round: where the disk is full, the ledger may be able to
 *    forget something only after files have made room for its log (S1).
 * 5. What was removed is told in one audit record for each mark of the clock, never in one a file.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import {
  DAY_MS,
  noCounts,
  type ReapContext,
  type ReapCounts,
  type ReapJob,
  UNIT_MS,
} from "./reap_context.ts";
import { reapFiles, reapPolicies } from "./reap_files.ts";
import { isOverCap, reapResults } from "./reap_results.ts";
import { RowReaper } from "./reap_rows.ts";
import { type ClockState, RetentionClock } from "./retention_clock.ts";

/** Milliseconds between two marks of the clock while something happens. */
const MARK_MS = 600_000;
/** Milliseconds after which the clock is stored though nothing happened. */
const IDLE_MS = 3_600_000;
/** Milliseconds after which a round begins again that failed. */
const AGAIN_MS = 5_000;
/** Name of the stored clock in the ledger. */
const CLOCK = "retention.clock";

/** What reaping needs from whoever drives it. */
export type ReaperParts =
  & Pick<ReapContext, "ledger" | "log" | "now" | "isActive">
  & {
    readonly limits: () => ReapContext["limits"];
    readonly retention: () => ReapContext["retention"];
    /** A monotonic clock, milliseconds. */
    readonly mono: () => number;
  };

export class Reaper {
  readonly #parts: ReaperParts;
  readonly #clock: RetentionClock;
  readonly #rows = new RowReaper();
  /** What of the counts an audit record has told. */
  #told = noCounts();
  #round: ReapJob | null = null;
  /** What removes results above a cap. */
  #capping: ReapJob | null = null;
  /** It has the next step where both have something to do. */
  #capsNext = false;
  /** Monotonic: when the next whole round begins. */
  #due: number;
  /** Monotonic: when the clock was stored last. */
  #stored = -Infinity;
  #fault: string | null = null;
  /** Everything that was removed since the start. */
  readonly counts: ReapCounts = noCounts();

  constructor(parts: ReaperParts) {
    this.#parts = parts;
    const text = parts.ledger.meta(CLOCK);
    const before: ClockState | null = text === null ? null : JSON.parse(text);
    this.#clock = new RetentionClock(before, parts.now(), parts.mono());
    this.#due = parts.mono();
  }

  /** Why the last round could not be ended, or null. */
  get fault(): string | null {
    return this.#fault;
  }

  /** True while a whole round is under way. */
  get running(): boolean {
    return this.#round !== null;
  }

  /** Begins a whole round now, whatever is due. */
  begin(): void {
    this.#round = this.#whole();
    this.#due = this.#parts.mono() + this.#every();
  }

  /**
   * One step: a few milliseconds of work, or none.
   *
   * @returns true when the next step should come soon
   * @throws {LedgerError} when the ledger cannot be believed any more
   */
  step(): boolean {
    const { mono, log } = this.#parts;
    this.#clock.advance(this.#parts.now(), mono());
    if (this.#round === null && mono() >= this.#due) this.begin();
    if (this.#fault === null && this.#isOverCap()) this.#capping ??= this.#caps();
    const caps = this.#round === null || (this.#capsNext && this.#capping !== null);
    const job = caps ? this.#capping : this.#round;
    if (job === null) return false;
    this.#capsNext = !caps;
    const end = performance.now() + UNIT_MS;
    try {
      do {
        if (job.next().done !== true) continue;
        if (caps) this.#capping = null;
        else {
          this.#round = null;
          this.#fault = null;
        }
        break;
      } while (performance.now() < end);
      return this.#round !== null || this.#capping !== null;
    } catch (error) {
      this.#round = null;
      this.#capping = null;
      this.#due = mono() + AGAIN_MS;
      if (error instanceof LedgerError && error.fatal) throw error;
      const why = errorCode(error) ?? (error instanceof Error ? error.message : "unknown");
      if (why !== this.#fault) log("WARN", "reaping-failed", { error: why });
      this.#fault = why;
      return false;
    }
  }

  /** Does everything that is due, at once. For a process that serves nobody. */
  all(): void {
    this.begin();
    while (this.step()) { /* until the round is over */ }
  }

  /** Stores the clock, at the end of the service. A failure costs nothing but a late start. */
  close(): void {
    try {
      this.#clock.advance(this.#parts.now(), this.#parts.mono());
      this.#store();
    } catch (error) {
      this.#parts.log("WARN", "reaper-close", { error: errorCode(error) });
    }
  }

  *#whole(): ReapJob {
    const context = this.#context();
    yield* reapFiles(context);
    let failed: LedgerError | null = null;
    try {
      this.#mark();
    } catch (error) {
      if (!(error instanceof LedgerError) || error.fatal) throw error;
      failed = error;
    }
    yield;
    yield* reapResults(context);
    if (failed !== null) throw failed;
    yield* this.#rows.reap(context);
    yield* reapPolicies(context);
  }

  /** Until nobody is above a cap, or nothing that may go is left. */
  *#caps(): ReapJob {
    const { counts } = this;
    for (let before = -1; this.#isOverCap() && counts.results + counts.answers > before;) {
      before = counts.results + counts.answers;
      yield* reapResults(this.#context());
    }
  }

  #isOverCap(): boolean {
    return isOverCap({ ledger: this.#parts.ledger, limits: this.#parts.limits() });
  }

  #context(): ReapContext {
    const { ledger, log, now, isActive, limits, retention } = this.#parts;
    return {
      ledger,
      log,
      now,
      isActive,
      limits: limits(),
      retention: retention(),
      counts: this.counts,
      horizon: (age_ms) => ledger.reaping.horizon(this.#clock.state.at_ms - age_ms),
    };
  }

  /** Milliseconds between two whole rounds: short enough for the shortest retention. */
  #every(): number {
    return Math.min(MARK_MS, this.#parts.retention().results_days * DAY_MS / 20);
  }

  /** Notes how far the ledger has got, when it went on since the last mark. */
  #mark(): void {
    const { ledger, mono } = this.#parts;
    const head = ledger.head()?.seq ?? 0;
    const last = ledger.reaping.lastHour();
    const idle = mono() - this.#stored < IDLE_MS;
    if (last !== null && last.seq === head && idle && this.#untold() === null) return;
    this.#store();
  }

  #store(): void {
    const { ledger, now, mono } = this.#parts;
    const { at_ms } = this.#clock.state;
    const head = ledger.head()?.seq ?? 0;
    const longest = this.#parts.retention().ledger_days * DAY_MS;
    const counts = { ...this.counts };
    const untold = this.#untold();
    ledger.transaction((tx) => {
      tx.setMeta(CLOCK, JSON.stringify(this.#clock.state));
      if (ledger.reaping.lastHour()?.seq !== head) tx.reaping.markHour(at_ms, now());
      tx.reaping.dropHours(at_ms - longest);
      if (untold !== null) tx.append({ event: "reaped", ...untold });
    });
    this.#stored = mono();
    this.#told = counts;
  }

  /** What was removed since the last record that told of it, by kind; null when nothing was. */
  #untold(): Record<string, number> | null {
    const kinds = Object.entries(this.counts)
      .map(([kind, n]) => [kind, n - this.#told[kind as keyof ReapCounts]] as const)
      .filter(([, n]) => n > 0);
    return kinds.length === 0 ? null : Object.fromEntries(kinds);
  }
}
