/**
 * A length of time as a person reads it.
 *
 * @module
 */

/**
 * Three digits or so and a unit: `0 ms`, `12 ms`, `1.25 s`, `48 s`, `2 min 5 s`, `3 h 20 min`.
 *
 * @param ms milliseconds, not negative
 */
export function durationText(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return both(Math.floor(s / 60), "min", s % 60, "s");
  const min = Math.round(s / 60);
  if (min < 48 * 60) return both(Math.floor(min / 60), "h", min % 60, "min");
  const h = Math.round(min / 60);
  return both(Math.floor(h / 24), "d", h % 24, "h");
}

function both(a: number, unit: string, b: number, part: string): string {
  return b === 0 ? `${a} ${unit}` : `${a} ${unit} ${b} ${part}`;
}
