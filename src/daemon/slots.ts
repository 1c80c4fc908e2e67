/**
 * Who may start next: a bound on what runs at once, named locks, first come first served inside a
 * lock, and a round over the agents so that one with a long queue does not hold up another.
 *
 * Pure bookkeeping in memory; the ledger knows what is pending and running, and start-up fills
 * this in from there.
 *
 * @module
 */

/** A request that waits for a slot or a lock. */
export interface Waiting {
  readonly rid: number;
  readonly agent: string;
  readonly lock: string | null;
  /** Wall clock, milliseconds: it must not start later. */
  readonly expires_ms: number;
}

export class Slots {
  #concurrency: number;
  readonly #running = new Map<number, { agent: string; lock: string | null }>();
  readonly #locks = new Map<string, number>();
  /** Per agent in arrival order. */
  readonly #waiting = new Map<string, Waiting[]>();
  /** Agents in the order of their next turn. */
  #round: string[] = [];

  constructor(concurrency: number) {
    this.#concurrency = concurrency;
  }

  set concurrency(value: number) {
    this.#concurrency = value;
  }

  /** Requests that hold a slot. */
  get running(): number {
    return this.#running.size;
  }

  /** Requests that wait, of one agent or of all. */
  waiting(agent?: string): number {
    if (agent !== undefined) return this.#waiting.get(agent)?.length ?? 0;
    let sum = 0;
    for (const list of this.#waiting.values()) sum += list.length;
    return sum;
  }

  /** Every waiting request, in no particular order over agents. */
  *all(): IterableIterator<Waiting> {
    for (const list of this.#waiting.values()) yield* list;
  }

  /** Queues a request behind the agent's others; `rid` order is arrival order. */
  wait(entry: Waiting): void {
    let list = this.#waiting.get(entry.agent);
    if (list === undefined) {
      list = [];
      this.#waiting.set(entry.agent, list);
      if (!this.#round.includes(entry.agent)) this.#round.push(entry.agent);
    }
    const last = list.at(-1);
    list.push(entry);
    if (last !== undefined && last.rid > entry.rid) list.sort((a, b) => a.rid - b.rid);
  }

  /** Takes a request out of the queue; false when it was not there. */
  forget(agent: string, rid: number): boolean {
    const list = this.#waiting.get(agent);
    const at = list?.findIndex((w) => w.rid === rid) ?? -1;
    if (list === undefined || at < 0) return false;
    list.splice(at, 1);
    if (list.length === 0) this.#waiting.delete(agent);
    return true;
  }

  /** Why a request with this lock cannot start now, or null when it can. */
  blocked(lock: string | null): "slot" | "lock" | null {
    if (lock !== null) {
      if (this.#locks.has(lock)) return "lock";
      for (const w of this.all()) if (w.lock === lock) return "lock";
    }
    if (this.#running.size >= this.#concurrency) return "slot";
    return this.peek() === null ? null : "slot";
  }

  /** The next request that may start, without taking it; null when none can. */
  peek(): Waiting | null {
    if (this.#running.size >= this.#concurrency) return null;
    if (this.#waiting.size === 0) return null;
    const firstOfLock = new Map<string, number>();
    for (const w of this.all()) {
      if (w.lock === null) continue;
      const first = firstOfLock.get(w.lock);
      if (first === undefined || w.rid < first) firstOfLock.set(w.lock, w.rid);
    }
    for (const agent of this.#round) {
      for (const w of this.#waiting.get(agent) ?? []) {
        if (w.lock === null) return w;
        if (!this.#locks.has(w.lock) && firstOfLock.get(w.lock) === w.rid) return w;
      }
    }
    return null;
  }

  /** Marks a request as running: it holds a slot and its lock. */
  start(rid: number, agent: string, lock: string | null): void {
    this.forget(agent, rid);
    this.#running.set(rid, { agent, lock });
    if (lock !== null) this.#locks.set(lock, rid);
    const at = this.#round.indexOf(agent);
    if (at >= 0) this.#round.splice(at, 1);
    this.#round.push(agent);
    this.#round = this.#round.filter((a) => a === agent || this.#waiting.has(a));
  }

  /** Frees the slot and the lock of a request; harmless when it holds none. */
  free(rid: number): void {
    const held = this.#running.get(rid);
    if (held === undefined) return;
    this.#running.delete(rid);
    if (held.lock !== null && this.#locks.get(held.lock) === rid) this.#locks.delete(held.lock);
  }

  /** What a waiting request waits for. */
  waitsFor(entry: Waiting): "slot" | "lock" {
    if (entry.lock === null) return "slot";
    if (this.#locks.has(entry.lock)) return "lock";
    for (const w of this.all()) if (w.lock === entry.lock && w.rid < entry.rid) return "lock";
    return "slot";
  }
}
