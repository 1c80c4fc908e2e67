/**
 * The page's drawings: inline SVG, coloured by class so that light and dark are the style's matter.
 * Each says in words or in a table beside it what it shows.
 *
 * @module
 */
import { type Group, GROUPS } from "./digest.ts";
import { Html, html } from "./html.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Widths that a bar of the timeline may have, and their names. */
const STEPS: readonly (readonly [number, string])[] = [
  [MINUTE, "one minute"],
  [5 * MINUTE, "5 minutes"],
  [15 * MINUTE, "15 minutes"],
  [HOUR, "one hour"],
  [3 * HOUR, "3 hours"],
  [6 * HOUR, "6 hours"],
  [12 * HOUR, "12 hours"],
  [DAY, "one day"],
  [7 * DAY, "7 days"],
  [28 * DAY, "28 days"],
  [364 * DAY, "52 weeks"],
];

/** Most bars of the timeline. */
const BARS = 64;
/** Units of the drawing: one bar's width, and the height of the whole. */
const WIDTH = 10;
const HEIGHT = 120;

/** Entries of one span of time, by group. */
export interface Bucket {
  readonly from_ms: number;
  readonly counts: readonly number[];
  readonly total: number;
}

/** The timeline's bars. */
export interface Timeline {
  readonly buckets: readonly Bucket[];
  readonly step_ms: number;
  readonly step: string;
  readonly most: number;
}

/**
 * Sorts entries into at most 64 equal spans, borders at round times in UTC.
 *
 * @param times wall-clock milliseconds; @param groups the group of each, by number
 */
export function timeline(times: readonly number[], groups: readonly number[]): Timeline {
  let [first, last] = [Infinity, -Infinity];
  for (const t of times) {
    if (t < first) first = t;
    if (t > last) last = t;
  }
  if (first > last) return { buckets: [], step_ms: HOUR, step: "one hour", most: 0 };
  let [step_ms, step] =
    STEPS.find(([ms]) => Math.floor(last / ms) - Math.floor(first / ms) < BARS) ??
      [0, ""];
  if (step_ms === 0) {
    step_ms = Math.ceil((last - first) / (BARS - 1) / DAY) * DAY;
    step = `${step_ms / DAY} days`;
  }
  const start = Math.floor(first / step_ms);
  const n = Math.floor(last / step_ms) - start + 1;
  const counts = Array.from({ length: n }, () => GROUPS.map(() => 0));
  times.forEach((t, i) => {
    const bucket = counts[Math.floor(t / step_ms) - start];
    const group = groups[i] ?? 0;
    if (bucket !== undefined) bucket[group] = (bucket[group] ?? 0) + 1;
  });
  const buckets = counts.map((c, i) => ({
    from_ms: (start + i) * step_ms,
    counts: c,
    total: c.reduce((a, b) => a + b, 0),
  }));
  return { buckets, step_ms, step, most: Math.max(...buckets.map((b) => b.total)) };
}

/** Bars one above the other, for people who see; the caller gives the same as a table. */
export function timelineSvg({ buckets, most }: Timeline, label: string): Html {
  const bars = buckets.flatMap(({ counts }, i) => {
    let y = HEIGHT;
    return counts.flatMap((n, g) => {
      if (n === 0) return [];
      // One of many still has to be seen.
      const h = Math.max(0.8, n / most * HEIGHT);
      y -= h;
      return [
        html`
          <rect class="${GROUPS[g] ?? ""}" x="${i * WIDTH + 0.75}" y="${Math.max(0, y).toFixed(
            2,
          )}" width="${WIDTH - 1.5}"
            height="${h.toFixed(2)}" />
        `,
      ];
    });
  });
  return html`
    <svg class="timeline" role="img" aria-label="${label}" viewBox="0 0 ${Math.max(
      1,
      buckets.length,
    ) * WIDTH} ${HEIGHT}"
      preserveAspectRatio="none">${bars}</svg>
  `;
}

/** A bar beside a number; the number says the same. */
export function shareBar(share: number, group: Group | "plain"): Html {
  const width = share <= 0 ? 0 : Math.max(0.6, Math.min(100, share * 100));
  return html`
    <svg class="bar" aria-hidden="true" width="100%" height="8">
      <rect class="track" width="100%" height="8" rx="1" />
      <rect class="${group}" width="${width.toFixed(2)}%" height="8" rx="1" />
    </svg>
  `;
}

/** From the median to the 95th of a hundred, on a scale whose steps are tens; numbers say the same. */
export function rangeBar(low: number, high: number, most: number): Html {
  const at = (ms: number) => 100 * Math.log10(1 + ms) / Math.max(1e-9, Math.log10(1 + most));
  const x = at(low);
  return html`
    <svg class="bar" aria-hidden="true" width="100%" height="8">
      <rect class="track" y="3" width="100%" height="2" />
      <rect class="plain" x="${Math.min(99, x).toFixed(2)}%" width="${Math.max(1, at(high) - x)
        .toFixed(2)}%" height="8" rx="1" />
    </svg>
  `;
}
