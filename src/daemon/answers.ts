/**
 * The answer cap: how many answers an agent gets a minute, and what is told of those above it.
 *
 * A sandbox can write entries faster than anybody could answer them. Above the cap an entry that
 * would be refused, replayed or answered by the bridge itself is removed without an answer file and
 * told in one aggregate a minute: that aggregate is its answer. A request that passes every check
 * is never shed; rate and backlog limits hold those.
 *
 * @module
 */

/** What was shed in one minute. Names are hostile text. */
export interface Shed {
  readonly agent: string;
  readonly count: number;
  readonly first: string;
  readonly last: string;
  readonly since_ms: number;
}

const WINDOW_MS = 60_000;

export class Answers {
  #max: number;
  readonly #now: () => number;
  /** Per agent: start of the current window on the monotonic clock, and answers in it. */
  readonly #windows = new Map<string, { start: number; count: number; previous: number }>();
  readonly #shed = new Map<string, { count: number; first: string; last: string; since: number }>();

  /**
   * @param max answers a minute an agent
   * @param now monotonic clock in milliseconds: a wall clock that jumps must not widen the cap (N5)
   */
  constructor(max: number, now: () => number) {
    this.#max = max;
    this.#now = now;
  }

  set max(value: number) {
    this.#max = value;
  }

  #window(agent: string): { start: number; count: number; previous: number } {
    const now = this.#now();
    let w = this.#windows.get(agent);
    if (w === undefined) {
      w = { start: now, count: 0, previous: 0 };
      this.#windows.set(agent, w);
    }
    const age = now - w.start;
    if (age >= 2 * WINDOW_MS) {
      w.start = now;
      w.count = 0;
      w.previous = 0;
    } else if (age >= WINDOW_MS) {
      w.start += WINDOW_MS;
      w.previous = w.count;
      w.count = 0;
    }
    return w;
  }

  /**
   * Counts one answer.
   *
   * The window slides: what the previous minute still weighs counts in proportion.
   *
   * @returns false when the agent is above its cap and the answer is to be shed
   */
  take(agent: string): boolean {
    const w = this.#window(agent);
    const weight = 1 - (this.#now() - w.start) / WINDOW_MS;
    if (w.count + w.previous * Math.max(0, weight) >= this.#max) return false;
    w.count++;
    return true;
  }

  /** Notes an entry that got no answer of its own. */
  shed(agent: string, name: string): void {
    const s = this.#shed.get(agent);
    if (s === undefined) {
      this.#shed.set(agent, { count: 1, first: name, last: name, since: this.#now() });
    } else {
      s.count++;
      s.last = name;
    }
  }

  /** Takes the aggregates that are a minute old, or all of them. */
  due(all: boolean, wallNow: number): Shed[] {
    const out: Shed[] = [];
    const now = this.#now();
    for (const [agent, s] of this.#shed) {
      if (!all && now - s.since < WINDOW_MS) continue;
      this.#shed.delete(agent);
      out.push({
        agent,
        count: s.count,
        first: s.first,
        last: s.last,
        since_ms: wallNow - (now - s.since),
      });
    }
    return out;
  }

  /** What is shed and not told yet, for the status file. */
  pending(agent: string): number {
    return this.#shed.get(agent)?.count ?? 0;
  }
}
