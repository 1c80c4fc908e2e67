/**
 * The clock by which ages are counted: it says how long things have been kept, and nothing else.
 *
 * A wall clock that is set forward by a year makes everything a year old at once; one that started
 * in 1970 and was then set right does the same. So this clock runs with the monotonic one. What the
 * wall clock shows beyond that (the machine slept, or the bridge did not run) counts too, but at
 * most a day at once, and only what lies beyond the latest time that it ever showed: a clock that is
 * set to and fro ages nothing twice. Where it is wrong, things are kept longer, never forgotten
 * sooner by more than a day. What a long pause leaves too long is bounded by the caps.
 *
 * @module
 */

/** Most that is believed of a leap of the wall clock, milliseconds. */
export const LEAP_MS = 24 * 3_600_000;

/** What is kept between two starts. */
export interface ClockState {
  /** What this clock shows, milliseconds; where it began means nothing. */
  readonly at_ms: number;
  /** The latest that the wall clock showed, or would show by now, milliseconds since the epoch. */
  readonly high_ms: number;
}

export class RetentionClock {
  #at: number;
  #high: number;
  #mono: number;

  /**
   * @param before what an earlier process kept, or null
   * @param wall_ms the wall clock
   * @param mono_ms the monotonic clock
   */
  constructor(before: ClockState | null, wall_ms: number, mono_ms: number) {
    this.#at = before?.at_ms ?? wall_ms;
    this.#high = before?.high_ms ?? wall_ms;
    this.#mono = mono_ms;
    this.advance(wall_ms, mono_ms);
  }

  /**
   * Goes on to now.
   *
   * @returns what this clock shows
   */
  advance(wall_ms: number, mono_ms: number): number {
    const ran = Math.max(0, mono_ms - this.#mono);
    this.#mono = mono_ms;
    const expected = this.#high + ran;
    this.#at += ran + Math.min(LEAP_MS, Math.max(0, wall_ms - expected));
    this.#high = Math.max(expected, wall_ms);
    return this.#at;
  }

  get state(): ClockState {
    return { at_ms: this.#at, high_ms: this.#high };
  }
}
