/**
 * The bridge's own clock, by which rates and days of spending are counted. It begins as the wall
 * clock and from then on only goes forward, whatever anybody does to the wall clock (N5):
 *
 * 1. While the daemon runs it advances at least as the monotonic clock does. A wall clock that is
 *    set back takes nothing from it: no window opens again, and none stands still.
 * 2. It also advances to make up for time that the monotonic clock does not see, a suspended machine
 *    or a daemon that was down: by as much as the wall clock is ahead of the latest time that it has
 *    ever told, which goes on with the monotonic clock. So a wall clock that is set back and then
 *    right again is not counted twice, and one that is set forward opens a window once and locks
 *    nobody out.
 * 3. A wall clock that is behind its latest time by more than a day was wrong before, not now: what
 *    it tells becomes the latest time. Otherwise a single wrong date far in the future would keep
 *    time that passes unseen from counting, for ever.
 * 4. A restart goes on from what the ledger has: the reading that was stored last, or a later start
 *    of a request. It begins no earlier than any of them.
 *
 * @module
 */

/** Rule 3: a day, milliseconds. */
const WRONG_MS = 86_400_000;
/** Difference between two clocks that is no step of either, milliseconds. */
const JITTER_MS = 1000;

/** A reading of the clock together with the latest time that the wall clock ever told. */
export interface ClockReading {
  readonly tick: number;
  readonly wall_ms: number;
}

export class BridgeClock {
  readonly #wall: () => number;
  readonly #mono: () => number;
  #tick: number;
  /** The latest time that the wall clock told, as far as it is believed. */
  #latest: number;
  #last: number;
  #lastWall: number;
  #stepped = false;

  /**
   * @param wall wall clock, milliseconds since the epoch
   * @param mono monotonic clock, milliseconds
   * @param known what the ledger has; the furthest counts
   */
  constructor(wall: () => number, mono: () => number, known: readonly ClockReading[]) {
    this.#wall = wall;
    this.#mono = mono;
    this.#last = mono();
    this.#lastWall = wall();
    const [first] = known;
    if (first === undefined) {
      this.#tick = wall();
      this.#latest = this.#tick;
      return;
    }
    const furthest = known.reduce((a, b) => b.tick > a.tick ? b : a, first);
    this.#tick = furthest.tick;
    this.#latest = furthest.wall_ms;
    this.now();
  }

  /** The reading now, milliseconds; never less than the one before. */
  now(): number {
    const mono = this.#mono();
    const wall = this.#wall();
    const seen = Math.max(0, mono - this.#last);
    this.#last = mono;
    const expected = this.#latest + seen;
    const ahead = wall - expected;
    if (Math.abs(wall - this.#lastWall - seen) > JITTER_MS) this.#stepped = true;
    this.#lastWall = wall;
    this.#tick += seen + Math.max(0, ahead);
    this.#latest = ahead > 0 || ahead < -WRONG_MS ? wall : expected;
    return this.#tick;
  }

  /** True once after the wall clock did not go along: time to store a reading. */
  takeStepped(): boolean {
    const stepped = this.#stepped;
    this.#stepped = false;
    return stepped;
  }

  /** What to store. */
  reading(): ClockReading {
    return { tick: this.now(), wall_ms: this.#latest };
  }
}
