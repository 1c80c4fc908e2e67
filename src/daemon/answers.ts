/**
 * The answer cap: how many answers an agent gets a minute, and what is told of those above it.
 *
 * A sandbox can write entries faster than anybody could answer them. Above the cap an entry that
 * would be refused, replayed or answered by the bridge itself is removed without an answer file and
 * told in one aggregate a minute: that aggregate is its answer. A request that passes every check
 * is never shed; rate and backlog limits hold those.
 *
 * The cap holds for every minute, however it is cut. Answers are counted by the second, and a second
 * counts until the whole of it is more than a minute ago, so room comes back at most one second late
 * and never early.
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
/** Seconds that are counted: those of a minute, and the one that it begins in. */
const SECONDS = WINDOW_MS / 1000 + 1;

/** The answers of the last minute, by the second. */
interface Window {
  /** The newest second that is counted in. */
  second: number;
  readonly counts: Uint32Array;
  total: number;
}

export class Answers {
  #max: number;
  readonly #now: () => number;
  readonly #windows = new Map<string, Window>();
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

  /** The agent's window, with what is more than a minute ago taken out. */
  #window(agent: string): Window {
    const second = Math.floor(this.#now() / 1000);
    let w = this.#windows.get(agent);
    if (w === undefined) {
      w = { second, counts: new Uint32Array(SECONDS), total: 0 };
      this.#windows.set(agent, w);
    }
    for (let n = Math.min(second - w.second, SECONDS); n > 0; n--) {
      const at = (second - n + 1) % SECONDS;
      w.total -= w.counts[at] ?? 0;
      w.counts[at] = 0;
    }
    w.second = Math.max(w.second, second);
    return w;
  }

  /**
   * Counts one answer.
   *
   * @returns false when the agent is at its cap and the answer is to be shed
   */
  take(agent: string): boolean {
    const w = this.#window(agent);
    if (w.total >= this.#max) return false;
    const at = w.second % SECONDS;
    w.counts[at] = (w.counts[at] ?? 0) + 1;
    w.total++;
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
