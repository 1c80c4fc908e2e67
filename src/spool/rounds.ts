/**
 * When a queue needs to be scanned, in rounds from its begin to its end. A scan of a few entries costs
 * nothing; one of a hundred thousand that nobody can move takes a second of computing and finds the
 * same as before. Pure: looks and times come in.
 *
 * Rules
 * 1. Where few entries are stuck nothing is ever left out or put off.
 * 2. A regular scan is left out only when the directory is as two whole rounds found it that began
 *    at least a second apart: then nothing came into it since, however coarse its times are. What
 *    waits in it to settle is remembered elsewhere.
 * 3. At least one round a minute is made all the same, for file systems that tell no such times, and
 *    for entries that are to be tried again.
 * 4. Between two rounds there is at least twice as long as the last one took, so that whoever keeps
 *    changing the directory makes nothing else wait (Q5).
 * 5. What came while a round was under way may lie where it had been already. Who knows of such a
 *    thing asks for another round behind it (N1).
 *
 * @module
 */
import type { Look } from "./types.ts";

/** So many stuck entries are many. */
export const MANY = 256;
/** Milliseconds. */
const LONGEST_REST = 60_000;
const APART = 1000;
/** A round is followed by a pause of so many times its length. */
const PAUSE = 2;

export class Rounds {
  readonly #now: () => number;
  /** What the directory looked like when the round under way began, and when. */
  #going: { readonly print: string | null; readonly since: number } | null = null;
  /** The first of the latest whole rounds that found the directory alike, and the last of them. */
  #alike: { readonly print: string; readonly first: number; last: number } | null = null;
  #pauseUntil = -Infinity;
  /** A round is wanted, or under way. */
  #wanted = true;
  /** And another one behind the one under way. */
  #another = false;

  /** @param now monotonic clock, milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** True until what was asked for has been gone through; at first too. */
  get wanted(): boolean {
    return this.#wanted;
  }

  /** Asks for a round; one that is under way will do. */
  ask(): void {
    this.#wanted = true;
  }

  /** Asks for a round that begins after this call. */
  askAnew(): void {
    this.#wanted = true;
    this.#another = this.#going !== null;
  }

  /** A step failed: what was asked for has to be asked for again, and goes on from there. */
  giveUp(): void {
    this.#wanted = this.#another = false;
  }

  /** A step of a scan is about to be made. `look` is called when it begins a round. */
  step(look: () => Look | null): void {
    if (this.#going !== null) return;
    let print: string | null = null;
    try {
      print = printOf(look());
    } catch {
      // What cannot be looked at is not known to be as it was.
    }
    this.#going = { print, since: this.#now() };
  }

  /** The round has come to its end; not `whole` when entries were left out. */
  end(whole: boolean): void {
    const round = this.#going;
    this.#going = null;
    this.#wanted = this.#another;
    this.#another = false;
    if (round === null) return;
    const { print, since } = round;
    this.#pauseUntil = this.#now() + PAUSE * (this.#now() - since);
    if (!whole || print === null) this.#alike = null;
    else if (this.#alike?.print === print) this.#alike.last = since;
    else this.#alike = { print, first: since, last: since };
  }

  /** True when a regular scan would find what the last one found. */
  isKnown(stuck: number, look: () => Look | null): boolean {
    if (stuck < MANY || this.#alike === null) return false;
    const { print, first, last } = this.#alike;
    if (last - first < APART || this.#now() - last >= LONGEST_REST) return false;
    try {
      return printOf(look()) === print;
    } catch {
      return false;
    }
  }

  /** True when the next step of a scan may be made now. */
  mayStep(stuck: number): boolean {
    return this.#going !== null || stuck < MANY || this.#now() >= this.#pauseUntil;
  }
}

function printOf(look: Look | null): string | null {
  return look === null ? null : `${look.dev} ${look.ino} ${look.mtime_ms} ${look.ctime_ms}`;
}
