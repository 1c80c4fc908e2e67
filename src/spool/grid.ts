/**
 * Milliseconds to the next multiple of `step`, at least 1 and whole. What recurs in one process and
 * keeps to such a grid comes due together, and one wake-up does for all of it.
 *
 * @param now monotonic clock, milliseconds
 */
export function untilGrid(now: number, step: number): number {
  return Math.max(1, Math.ceil(step - now % step));
}
