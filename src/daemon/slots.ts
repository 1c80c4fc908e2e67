/**
 * Who may start next: a bound on what runs at once, named locks, and turns.
 *
 * 1. Inside an agent's own line for a lock, and in its line for what needs none, first come is
 *    first served.
 * 2. Agents take turns for slots: who has started something is behind the others.
 * 3. Agents take turns for each lock as well: the next holder is the agent that had the lock
 *    longest ago. So a thousand requests of one agent for a lock delay another agent's request for
 *    it by one of them, whatever else either agent starts meanwhile.
 * 4. While another agent that the policy names runs nothing, a slot is kept for it: an agent's first
 *    command needs a free slot, and any further one leaves as many slots free as there are such
 *    agents. So with at least as many slots as agents, no agent's long commands make another one
 *    wait for its first slot. With fewer, agents take turns for what there is.
 * 5. No agent runs more at once than its own bound allows.
 * 6. A turn for a lock goes only to an agent that may start something: one that is at its bound
 *    holds up no lock that it does not hold.
 * 7. Every question costs in proportion to the number of agents and of locks that are waited for,
 *    never to the number of requests that wait.
 *
 * Pure bookkeeping in memory; the ledger knows what is pending and running, and start-up fills
 * this in from there. Whose turn it is does not outlive the process.
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
  /** Wall clock, milliseconds: it waits for a human until then, and for no slot; else null. */
  readonly held_until_ms?: number | null;
}

/** An agent that may have commands run. */
export interface Sharer {
  readonly agent: string;
  /** Most of its commands at once, or null without a bound of its own. */
  readonly concurrency: number | null;
}

/** True for a request that waits for a human's word. */
function isHeld(entry: Waiting): boolean {
  return (entry.held_until_ms ?? null) !== null;
}

/** Requests of one agent that wait for the same lock, or for none, in order of arrival. */
class Line {
  #items: Waiting[] = [];
  /** Index of the first one; what is before it has left. */
  #from = 0;

  get size(): number {
    return this.#items.length - this.#from;
  }

  get first(): Waiting | undefined {
    return this.#items[this.#from];
  }

  *[Symbol.iterator](): IterableIterator<Waiting> {
    for (let i = this.#from; i < this.#items.length; i++) {
      const item = this.#items[i];
      if (item !== undefined) yield item;
    }
  }

  add(entry: Waiting): void {
    const at = this.#find(entry.rid);
    if (at === this.#items.length) this.#items.push(entry);
    else if (this.#items[at]?.rid !== entry.rid) this.#items.splice(at, 0, entry);
  }

  remove(rid: number): boolean {
    const at = this.#find(rid);
    if (this.#items[at]?.rid !== rid) return false;
    if (at !== this.#from) this.#items.splice(at, 1);
    else if (++this.#from > 64 && this.#from * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#from);
      this.#from = 0;
    }
    return true;
  }

  /** Index of the first entry that is not before `rid`. */
  #find(rid: number): number {
    let low = this.#from;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#items[middle]?.rid ?? Infinity) < rid) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

export class Slots {
  #concurrency: number;
  /** Agents that slots are kept for, with the bound of each. */
  #sharers = new Map<string, number>();
  /** Requests that hold a slot, with their agents. */
  readonly #running = new Map<number, string>();
  /** Slots that an agent holds; never zero. */
  readonly #holds = new Map<string, number>();
  /** Who holds a lock. */
  readonly #locks = new Map<string, number>();
  /** The lock that a request holds. */
  readonly #lockOf = new Map<number, string>();
  /** Per agent: its lines by lock. A line is never empty, nor is an agent's set of them. */
  readonly #waiting = new Map<string, Map<string | null, Line>>();
  /** What waits for a human, by row: it takes no slot, no lock and no turn. */
  readonly #held = new Map<number, Waiting>();
  /** Agents in the order of their next turn. */
  #round: string[] = [];
  /** Per lock: when an agent had it last, counted in starts. */
  readonly #had = new Map<string, Map<string, number>>();
  #starts = 0;

  constructor(concurrency: number) {
    this.#concurrency = concurrency;
  }

  /** How many run at once, and among which agents. What runs already is left alone. */
  share(concurrency: number, sharers: Iterable<Sharer>): void {
    this.#concurrency = concurrency;
    this.#sharers = new Map();
    for (const one of sharers) this.#sharers.set(one.agent, one.concurrency ?? Infinity);
  }

  /** Requests that hold a slot. */
  get running(): number {
    return this.#running.size;
  }

  /** Requests that wait, of one agent or of all, for a human included. */
  waiting(agent?: string): number {
    let sum = this.held(agent);
    const agents = agent === undefined ? this.#waiting.keys() : [agent];
    for (const name of agents) {
      for (const line of this.#waiting.get(name)?.values() ?? []) sum += line.size;
    }
    return sum;
  }

  /** Requests that wait for a human, of one agent or of all. */
  held(agent?: string): number {
    if (agent === undefined || this.#held.size === 0) return this.#held.size;
    let sum = 0;
    for (const w of this.#held.values()) if (w.agent === agent) sum++;
    return sum;
  }

  /** Every waiting request, in no particular order over agents. */
  *all(): IterableIterator<Waiting> {
    for (const lines of this.#waiting.values()) {
      for (const line of lines.values()) yield* line;
    }
    yield* this.#held.values();
  }

  /** Queues a request behind the agent's others; `rid` order is arrival order. */
  wait(entry: Waiting): void {
    if (isHeld(entry)) {
      this.#held.set(entry.rid, entry);
      return;
    }
    let lines = this.#waiting.get(entry.agent);
    if (lines === undefined) {
      lines = new Map();
      this.#waiting.set(entry.agent, lines);
      if (!this.#round.includes(entry.agent)) this.#round.push(entry.agent);
    }
    let line = lines.get(entry.lock);
    if (line === undefined) {
      line = new Line();
      lines.set(entry.lock, line);
    }
    line.add(entry);
  }

  /** Takes a request out of the queue; false when it was not there. */
  forget(agent: string, rid: number): boolean {
    if (this.#held.delete(rid)) return true;
    const lines = this.#waiting.get(agent);
    for (const [lock, line] of lines ?? []) {
      if (!line.remove(rid)) continue;
      if (line.size === 0) lines?.delete(lock);
      if (lines?.size === 0) this.#waiting.delete(agent);
      return true;
    }
    return false;
  }

  /** True when an agent may have one more slot. */
  #mayHold(agent: string): boolean {
    const free = this.#concurrency - this.#running.size;
    const own = this.#holds.get(agent) ?? 0;
    if (free <= 0 || own >= (this.#sharers.get(agent) ?? Infinity)) return false;
    if (own === 0) return true;
    let kept = 0;
    for (const other of this.#sharers.keys()) {
      if (other !== agent && !this.#holds.has(other)) kept++;
    }
    return free > kept;
  }

  /** Why a new request of this agent, with this lock, cannot start now; null when it can. */
  blocked(agent: string, lock: string | null): "slot" | "lock" | null {
    if (lock !== null) {
      if (this.#locks.has(lock)) return "lock";
      for (const lines of this.#waiting.values()) if (lines.has(lock)) return "lock";
    }
    if (!this.#mayHold(agent)) return "slot";
    return this.peek() === null ? null : "slot";
  }

  /** The next request that may start, without taking it; null when none can. */
  peek(): Waiting | null {
    if (this.#running.size >= this.#concurrency || this.#waiting.size === 0) return null;
    const turns = new Map<string, string>();
    for (const agent of this.#round) {
      if (!this.#mayHold(agent)) continue;
      let next: Waiting | null = null;
      for (const [lock, line] of this.#waiting.get(agent) ?? []) {
        const { first } = line;
        if (first === undefined || (next !== null && next.rid < first.rid)) continue;
        if (lock !== null) {
          if (this.#locks.has(lock)) continue;
          let turn = turns.get(lock);
          if (turn === undefined) {
            turn = this.#turn(lock);
            turns.set(lock, turn);
          }
          if (turn !== agent) continue;
        }
        next = first;
      }
      if (next !== null) return next;
    }
    return null;
  }

  /** The agent that gets a lock next: the one that had it longest ago, then the one that waits. */
  #turn(lock: string): string {
    const had = this.#had.get(lock);
    let found = "";
    let best: readonly [number, number] = [Infinity, Infinity];
    for (const [agent, lines] of this.#waiting) {
      const first = lines.get(lock)?.first;
      if (first === undefined || !this.#mayHold(agent)) continue;
      const at = had?.get(agent) ?? 0;
      if (at > best[0] || (at === best[0] && first.rid > best[1])) continue;
      found = agent;
      best = [at, first.rid];
    }
    return found;
  }

  /** Marks a request as running: it holds a slot and its lock. */
  start(rid: number, agent: string, lock: string | null): void {
    this.forget(agent, rid);
    this.freeSlot(rid);
    this.#running.set(rid, agent);
    this.#holds.set(agent, (this.#holds.get(agent) ?? 0) + 1);
    if (lock !== null) {
      this.#locks.set(lock, rid);
      this.#lockOf.set(rid, lock);
      let had = this.#had.get(lock);
      if (had === undefined) this.#had.set(lock, had = new Map());
      had.set(agent, ++this.#starts);
    }
    const at = this.#round.indexOf(agent);
    if (at >= 0) this.#round.splice(at, 1);
    this.#round.push(agent);
    this.#round = this.#round.filter((a) => a === agent || this.#waiting.has(a));
  }

  /** Frees the slot of a request and leaves it its lock. */
  freeSlot(rid: number): void {
    const agent = this.#running.get(rid);
    if (agent === undefined) return;
    this.#running.delete(rid);
    const left = (this.#holds.get(agent) ?? 0) - 1;
    if (left > 0) this.#holds.set(agent, left);
    else this.#holds.delete(agent);
  }

  /** Frees the slot and the lock of a request; harmless when it holds none. */
  free(rid: number): void {
    this.freeSlot(rid);
    const lock = this.#lockOf.get(rid);
    this.#lockOf.delete(rid);
    if (lock !== undefined && this.#locks.get(lock) === rid) this.#locks.delete(lock);
  }

  /**
   * What a waiting request waits for: its lock while somebody holds it or stands before it in the
   * agent's line for it, else a slot.
   */
  waitsFor(entry: Waiting): "slot" | "lock" {
    if (entry.lock === null) return "slot";
    if (this.#locks.has(entry.lock)) return "lock";
    const first = this.#waiting.get(entry.agent)?.get(entry.lock)?.first;
    return first === undefined || first.rid >= entry.rid ? "slot" : "lock";
  }
}
