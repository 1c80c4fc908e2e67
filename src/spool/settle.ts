/**
 * Decides when an entry of `queue/` may be claimed, so that a file is not taken from under the hands
 * of its writer. Pure: events and looks come in, with a clock; nothing is read here.
 *
 * | entry | may be claimed |
 * |---|---|
 * | arrived by rename | at once |
 * | no regular file, or a name that is no request's | at once: nothing would come of waiting |
 * | found by a scan, last changed more than 3 s ago | at once |
 * | a writer closed it | 30 ms after its last event |
 * | written to and not closed | 3 s after first sight |
 * | nothing but looks to go by | when it stood still for 250 ms |
 * | empty, and nobody closed it | 1 s after first sight |
 * | any of these | 3 s after first sight at the latest |
 * | a temporary name | 10 minutes after first sight, as poison |
 *
 * Rules
 * 1. Time is the daemon's own monotonic clock. Of the file's times only the ctime is used, which an
 *    agent cannot set, and only to see that a file is old (N5, N6).
 * 2. Events are hints: what is lost makes an entry wait for the longer time, never for ever (N1).
 * 3. Bounded memory. When too many names wait, the oldest are forgotten for new events: the next scan
 *    meets them again, and by then they are old enough to be taken at once (Q5). Temporary names have
 *    a bound of their own; those beyond it begin to count when earlier ones have gone.
 * 4. When more are due than can be handled in a turn, half of the turn is for those that have been due
 *    for longest, whatever comes behind them. The other half is for those that came last, so that
 *    whoever comes behind ten thousand others does not wait for all of them: two thirds of it for
 *    those that an event told of, and one for those that a scan met, whose events may be lost.
 *    Of an odd number the one in the middle is for either in turn: none starves where there is room
 *    for one.
 * 5. A turn costs in proportion to what it hands out, never to what waits (Q5).
 *
 * @module
 */
import { isAddressable, isTemporary, requestId } from "./entry_name.ts";
import { Newest, type Place } from "./newest.ts";
import type { EntryEvent, Look } from "./types.ts";

/** Milliseconds. */
export const SETTLE = Object.freeze({
  closed: 30,
  still: 250,
  empty: 1000,
  latest: 3000,
  temporary: 600_000,
});

/** Names that may wait to be settled, an agent. */
const MAX_WAITING = 16_384;
/** From so many on it is asked when a name that a scan met came. */
const CROWD = 256;
/** Temporary names that are remembered, an agent. */
const MAX_TEMPORARY = 16_384;
/** Milliseconds by which a name ranks above the one that was met in the same moment. */
const RANK_STEP = 1 / 1024;
/** Due times are rounded up to this, so that a crowd is handled in few turns. */
const GRID_MS = 5;
/** An entry that was handed out and never settled is handed out again after this. */
const LEASE_MS = 1000;

/** What `settle` says of an entry. */
export type Verdict =
  | {
    readonly kind: "claim";
    /** Wall clock, milliseconds. */
    readonly first_sight_ms: number;
    /** True for a temporary name whose time is over: poison. */
    readonly temporary: boolean;
  }
  | { readonly kind: "wait" };

/** What became of a name that was told. */
export type Noted =
  /** It will come out of `take` when it is due, or when a later scan has met it. */
  | "noted"
  /** The runtime cannot address it: report it as stuck. */
  | "unaddressable"
  /** Too many wait: a scan is needed, to meet again what is not remembered. */
  | "full";

interface Waiting {
  readonly name: string;
  /** The order of first sight. */
  readonly order: number;
  /** Monotonic. */
  readonly first: number;
  /** Wall clock. */
  readonly firstWall: number;
  due: number;
  /** Where it stands among those that are due; null when it is not, or was handed out. */
  place: Place<Waiting> | null;
  /**
   * The greater the later it came. Told: the number of its last event. Met by a scan: when a look
   * says, wall clock, milliseconds, or where none was taken when it was met.
   */
  rank: number;
  renamed: boolean;
  closed: boolean;
  /** An event told of it. */
  told: boolean;
  /** A write was told of: a close can be waited for. */
  written: boolean;
  lastEvent: number;
  /** What the last look showed, and since when. */
  print: string;
  still: number;
}

interface Temporary {
  readonly first: number;
  readonly firstWall: number;
  /** Number of the scan that met it last. */
  pass: number;
}

/** The clocks, and bounds for tests. */
export interface SettlerOptions {
  /** Monotonic, milliseconds. */
  readonly now?: () => number;
  /** Wall clock, milliseconds. */
  readonly wall?: () => number;
  readonly maxWaiting?: number;
  readonly maxTemporary?: number;
}

/** The entries of one agent that are not settled yet. */
export class Settler {
  readonly #now: () => number;
  readonly #wall: () => number;
  readonly #maxWaiting: number;
  readonly #maxTemporary: number;
  /** In the order of first sight. */
  readonly #waiting = new Map<string, Waiting>();
  /** In the order of first sight, so the first is due first. */
  readonly #temporary = new Map<string, Temporary>();
  /** Those that are due, in the order in which they became it. */
  readonly #ripe = new Set<Waiting>();
  /** The same, those that came last first: as events told, and as scans met them. */
  readonly #told = new Newest<Waiting>((place) => place.value.place === place);
  readonly #met = new Newest<Waiting>((place) => place.value.place === place);
  /** Those that are not due yet, by when they are. */
  readonly #later = new Map<number, Set<Waiting>>();
  /** None of those is due before. */
  #next = Infinity;
  /** Counts first sights. */
  #order = 0;
  /** Counts events. */
  #events = 0;
  /** The last rank that `#rankNow` gave. */
  #rank = 0;
  #pass = 0;
  /** The oldest have the middle of an odd turn. */
  #oldestNext = false;

  constructor(options: SettlerOptions = {}) {
    this.#now = options.now ?? (() => performance.now());
    this.#wall = options.wall ?? Date.now;
    this.#maxWaiting = options.maxWaiting ?? MAX_WAITING;
    this.#maxTemporary = options.maxTemporary ?? MAX_TEMPORARY;
  }

  /** Names that wait, temporary ones included. */
  get size(): number {
    return this.#waiting.size + this.#temporary.size;
  }

  /** How many names that a scan meets can still be remembered. */
  get room(): number {
    return Math.max(0, this.#maxWaiting - this.#waiting.size);
  }

  /** A change event told of a name. */
  event(name: string, kind: EntryEvent): Noted {
    if (kind === "remove") {
      this.forget(name);
      return "noted";
    }
    if (!isAddressable(name)) return "unaddressable";
    if (isTemporary(name)) return this.#noteTemporary(name);
    let full = false;
    if (!this.#waiting.has(name) && this.#waiting.size >= this.#maxWaiting) {
      // The newest is worth more than the oldest, which a scan will meet again.
      full = true;
      for (const oldest of this.#waiting.keys()) {
        this.forget(oldest);
        break;
      }
    }
    const entry = this.#note(name);
    if (entry === null) return "full";
    const now = this.#now();
    entry.lastEvent = now;
    entry.told = true;
    entry.rank = ++this.#events;
    switch (kind) {
      case "rename":
        entry.renamed = true;
        this.#setDue(entry, now);
        break;
      case "create":
        // A look is due now: what is no file needs no waiting.
        this.#setDue(entry, now);
        break;
      case "close":
        entry.closed = true;
        this.#setDue(entry, now + SETTLE.closed);
        break;
      case "modify":
        // After a close it may be no more than a chmod, which nothing follows.
        entry.written = true;
        if (entry.place !== null) this.#ripen(entry);
        break;
    }
    return full ? "full" : "noted";
  }

  /**
   * A scan met a name.
   *
   * @param cameAt says when it came, as far as a look at it tells: wall clock, milliseconds. Asked
   *   where many wait, to have those that came last among those that were handed out first
   */
  found(name: string, cameAt?: () => number): Noted {
    if (!isAddressable(name)) return "unaddressable";
    if (isTemporary(name)) return this.#noteTemporary(name);
    return this.#note(name, cameAt) === null ? "full" : "noted";
  }

  /** A scan has come to its end: temporary names that it did not meet have gone. */
  scanned(): void {
    for (const [name, entry] of this.#temporary) {
      if (entry.pass < this.#pass) this.#temporary.delete(name);
    }
    this.#pass++;
  }

  /** Events were lost: nothing that waits may count on one that is still to come. */
  lost(): void {
    const now = this.#now();
    for (const entry of this.#waiting.values()) {
      entry.written = false;
      if (entry.place === null) this.#setDue(entry, now);
    }
  }

  /**
   * Names to be looked at now, at most `limit`, in the order of first sight. The caller looks at each
   * and tells `settle` what it saw, or `forget` when there is nothing.
   */
  take(limit: number): string[] {
    const now = this.#now();
    const names: string[] = [];
    for (const [name, entry] of this.#temporary) {
      if (names.length >= limit / 2 || now - entry.first < SETTLE.temporary) break;
      names.push(name);
    }
    this.#ripenUntil(now);
    const taken = this.#pick(limit - names.length, now + LEASE_MS);
    taken.sort((a, b) => a.order - b.order);
    for (const { name } of taken) names.push(name);
    return names;
  }

  /** Rule 4: those whose turn it is, at most `room`. They are due again at `lease`. */
  #pick(room: number, lease: number): Waiting[] {
    const picked: Waiting[] = [];
    const add = (entry: Waiting) => {
      picked.push(entry);
      this.#setDue(entry, lease);
    };
    const oldest = (most: number) => {
      for (const entry of this.#ripe) {
        if (picked.length >= most) break;
        add(entry);
      }
    };
    const newest = (of: Newest<Waiting>, most: number) => {
      while (picked.length < most) {
        const entry = of.pop();
        if (entry === null) break;
        add(entry);
      }
    };
    if (this.#ripe.size > room) {
      this.#oldestNext = !this.#oldestNext;
      const half = this.#oldestNext ? Math.ceil(room / 2) : Math.floor(room / 2);
      oldest(half);
      newest(this.#met, half + Math.floor((room - half) / 3));
      newest(this.#told, room);
      newest(this.#met, room);
    }
    oldest(room);
    return picked;
  }

  /** Milliseconds until `take` may have something, 0 when it has now, or null when nothing waits. */
  nextIn(): number | null {
    if (this.#ripe.size > 0) return 0;
    let next = this.#next;
    for (const entry of this.#temporary.values()) {
      next = Math.min(next, entry.first + SETTLE.temporary);
      break;
    }
    return next === Infinity ? null : Math.max(0, Math.ceil(next - this.#now()));
  }

  /** There is nothing of this name. */
  forget(name: string): void {
    this.#temporary.delete(name);
    const entry = this.#waiting.get(name);
    if (entry === undefined) return;
    this.#leave(entry);
    this.#waiting.delete(name);
    if (this.#waiting.size === 0) this.#next = Infinity;
  }

  /**
   * Decides about an entry from a look at it just taken. After `claim` the name is forgotten.
   */
  settle(name: string, look: Look): Verdict {
    const now = this.#now();
    const temporary = this.#temporary.get(name);
    if (temporary !== undefined) {
      if (now - temporary.first < SETTLE.temporary) return WAIT;
      return this.#claim(name, temporary.firstWall, true);
    }
    const entry = this.#waiting.get(name);
    // Nobody announced it, so there is nothing to wait for but what the look says.
    if (entry === undefined) return WAIT;
    const due = this.#ripeAt(name, entry, look, now);
    if (due <= now) return this.#claim(name, entry.firstWall, false);
    this.#setDue(entry, due);
    return WAIT;
  }

  /** When an entry is ripe, judged by what is known now. */
  #ripeAt(name: string, entry: Waiting, look: Look, now: number): number {
    if (requestId(name) === null || look.kind !== "file" || entry.renamed) return now;
    const heard = entry.closed || entry.written;
    if (!heard && isOld(look, this.#wall())) return now;
    const print = `${look.ino} ${look.size} ${look.ctime_ms} ${look.mtime_ms}`;
    if (print !== entry.print) {
      entry.print = print;
      entry.still = now;
    }
    const latest = entry.first + (look.size === 0 ? SETTLE.empty : SETTLE.latest);
    if (entry.closed) return Math.min(latest, entry.lastEvent + SETTLE.closed);
    if (entry.written || look.size === 0) return latest;
    return Math.min(latest, entry.still + SETTLE.still);
  }

  #claim(name: string, first_sight_ms: number, temporary: boolean): Verdict {
    this.forget(name);
    return { kind: "claim", first_sight_ms, temporary };
  }

  #note(name: string, cameAt?: () => number): Waiting | null {
    const known = this.#waiting.get(name);
    if (known !== undefined) return known;
    if (this.#waiting.size >= this.#maxWaiting) return null;
    const now = this.#now();
    const order = this.#order++;
    const entry: Waiting = {
      name,
      order,
      first: now,
      firstWall: this.#wall(),
      due: now,
      place: null,
      rank: cameAt !== undefined && this.#ripe.size >= CROWD ? cameAt() : this.#rankNow(),
      renamed: false,
      closed: false,
      told: false,
      written: false,
      lastEvent: now,
      print: "",
      still: now,
    };
    this.#waiting.set(name, entry);
    this.#ripen(entry);
    return entry;
  }

  /** The rank of what comes now: the wall clock, and for what comes in the same moment a little more. */
  #rankNow(): number {
    const wall = this.#wall();
    const jumpedBack = wall < this.#rank - SETTLE.latest;
    this.#rank = wall > this.#rank || jumpedBack ? wall : this.#rank + RANK_STEP;
    return this.#rank;
  }

  #noteTemporary(name: string): Noted {
    const known = this.#temporary.get(name);
    if (known !== undefined) {
      known.pass = this.#pass;
      return "noted";
    }
    // Beyond the bound its time begins when a scan meets it and there is room.
    if (this.#temporary.size >= this.#maxTemporary) return "noted";
    this.#temporary.set(name, { first: this.#now(), firstWall: this.#wall(), pass: this.#pass });
    return "noted";
  }

  #setDue(entry: Waiting, due: number): void {
    this.#leave(entry);
    if (due <= this.#now()) {
      entry.due = due;
      return this.#ripen(entry);
    }
    entry.due = Math.ceil(due / GRID_MS) * GRID_MS;
    const others = this.#later.get(entry.due);
    if (others === undefined) this.#later.set(entry.due, new Set([entry]));
    else others.add(entry);
    this.#next = Math.min(this.#next, entry.due);
  }

  #ripen(entry: Waiting): void {
    this.#ripe.add(entry);
    const newest = entry.told ? this.#told : this.#met;
    entry.place = newest.add(entry, entry.rank, this.#ripe.size);
  }

  /** What has become due by now. */
  #ripenUntil(now: number): void {
    if (now < this.#next) return;
    const due = [...this.#later.keys()].filter((at) => at <= now).sort((a, b) => a - b);
    for (const at of due) {
      for (const entry of this.#later.get(at) ?? []) this.#ripen(entry);
      this.#later.delete(at);
    }
    this.#next = Infinity;
    for (const at of this.#later.keys()) this.#next = Math.min(this.#next, at);
  }

  /** Takes an entry from where it waits; `#next` may be too early then. */
  #leave(entry: Waiting): void {
    if (entry.place !== null) {
      entry.place = null;
      this.#ripe.delete(entry);
      return;
    }
    const others = this.#later.get(entry.due);
    if (others?.delete(entry) === true && others.size === 0) this.#later.delete(entry.due);
  }
}

const WAIT: Verdict = Object.freeze({ kind: "wait" });

/**
 * When an entry came, wall clock, to tell the newest of many: the last change of its inode, which is
 * known to the second, and inside that second what its content says. A writer can make the second
 * part wrong, and gets nothing by it but a turn before its own other entries.
 */
export function cameAt(look: Look): number {
  const inside = look.mtime_ms - look.ctime_ms;
  return look.ctime_ms + (inside > 0 && inside < 1000 ? inside : 0);
}

/** True when the last change is longer ago than any writer is waited for. Clocks may disagree. */
function isOld(look: Look, wall: number): boolean {
  return look.ctime_ms + 999 <= wall - SETTLE.latest;
}
