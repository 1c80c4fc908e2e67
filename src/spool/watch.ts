/**
 * Says when to look at a queue, and what changed in it as far as anybody told. An event is a hint; the
 * scan that this asks for is the truth, so that lost, late or missing events cost time and nothing
 * else (N1, N2, N4).
 *
 * Rules
 * 1. Every queue is scanned now and then: each `pollMs` while events arrive, each `fastPollMs` while
 *    they do not. What recurs keeps to a grid of the clock, so that an idle process wakes seldom.
 * 2. Whether they arrive is found out: at the start by a probe file in the queue; later whenever the
 *    directory has changed and nobody told, and by every entry that a scan finds without its event.
 * 3. A queue that was removed or replaced is noticed within `pulseMs` and watched again.
 * 4. Watching happens in worker threads only. `Deno.watchFs` must never be called on a directory that
 *    an agent can write from the thread that serves requests: one named pipe there would stop it for
 *    ever (P7; see `watch_worker.ts`). A worker that has fallen silent is replaced, a few times; then
 *    polling has to do. Up to `MAX_WORKERS` agents have one to themselves, so that none of them can
 *    take the events of another.
 * 5. Memory is bounded whatever the agent does.
 *
 * @module
 */
import { closeSync, openSync, unlinkSync } from "node:fs";
import { setImmediate } from "node:timers";
import { errorCode } from "../errors.ts";
import { randomHex } from "../names.ts";
import { agentPaths } from "./agent_paths.ts";
import { isAddressable } from "./entry_name.ts";
import { untilGrid } from "./grid.ts";
import { look } from "./look.ts";
import { assertPinned } from "./pins.ts";
import type { EntryEvent, Look } from "./types.ts";
import { HEARD, type WatchOrder, type WatchReport, watchWorkerUrl } from "./watch_worker.ts";

/** How a queue is looked after: by events and slow polls, or by fast polls. */
export type WatchMode = "watch" | "poll";

/** Why a scan is asked for. */
export type ScanReason =
  | "start"
  | "poll"
  /** Events were lost: entries that wait for one must not. */
  | "lost"
  /** The directory changed, and no event told what. */
  | "changed"
  /** Another directory has the place of the queue. */
  | "replaced";

export interface SpoolWatchOptions {
  readonly agents: readonly string[];
  /** Milliseconds between scans while events arrive. */
  readonly pollMs: number;
  /** Milliseconds between scans while they do not; default 250. */
  readonly fastPollMs?: number;
  /** Milliseconds between looks at the directory itself; default 1000. */
  readonly pulseMs?: number;
  /** Milliseconds that a probe's event may take; default 500. */
  readonly probeMs?: number;
  /** False never watches. */
  readonly events?: boolean;
  /** Something happened to a name; hostile text. */
  readonly onEvent: (agent: string, name: string, kind: EntryEvent) => void;
  /** The queue should be scanned, soon and to its end. */
  readonly onScan: (agent: string, reason: ScanReason) => void;
  readonly log: (event: string, fields: Record<string, string>) => void;
}

const PROBE_PREFIX = ".chb-probe-";
/** Agents above this share workers: each costs some 10 MB. */
const MAX_WORKERS = 4;
/** A silent worker is a thread that can not be ended; so few are given up quickly, and few in all. */
const QUICK_REPLACEMENTS = 3;
const MAX_REPLACEMENTS = 8;
const SLOW_REPLACEMENT_MS = 3_600_000;
/** After how long watching is tried again where it failed or nothing was heard. */
const RETRY_MS = 600_000;
const RETRY_FAILED_MS = 5000;
/** How often a probe is waited for longer, where its event may stand behind many others. */
const CHANCES = 20;
/** A timer that comes so much too late was held up by this thread, as its messages were. */
const LATE_MS = 100;
/** How long the event of an entry that a scan found may still be on its way. */
const GRACE_MS = 500;
/** How old a change of the directory is when its event must have come. */
const ON_ITS_WAY_MS = 100;
/** Events in a row that came in time, after which they are trusted again. */
const TRUST_AGAIN = 20;
/** So many events at once may be what is left of more: the runtime drops some without a word. */
const BURST = 8;
/** How soon after a burst, and at the latest after its begin, a scan is asked for. */
const BURST_QUIET_MS = 50;
const BURST_LATEST_MS = 1000;
/** Names remembered per generation, of two. */
const RECENT = 4096;
const MAX_MISSED = 64;

/** A worker and those whose queues it watches. */
interface Slot {
  worker: Worker | null;
  readonly watched: Watched[];
  /** Something was heard from it since it was started. */
  heard: boolean;
  replacements: number;
  replacedAt: number;
}

interface Probe {
  readonly name: string;
  readonly until: number;
  /** Wall clock: something that is heard later comes from a watcher that lives. */
  readonly since: number;
  /** How often it may still be waited for longer. */
  readonly chances: number;
}

/** What is known of one agent's queue. Times are monotonic milliseconds unless named otherwise. */
interface Watched {
  readonly agent: string;
  readonly id: number;
  readonly queue: string;
  readonly slot: Slot;
  mode: WatchMode;
  state: "off" | "asked" | "watching" | "failed";
  /** Identity of the directory that is watched. */
  pin: string | null;
  /** Last change of the directory that was judged, wall clock of its file system. */
  mtime: number;
  /** Wall clock of the last event. */
  heardAt: number;
  probe: Probe | null;
  retryAt: number;
  nextPoll: number;
  nextPulse: number;
  /** A burst is going on: when it began, and when the last of it came. */
  burst: { readonly since: number; last: number } | null;
  /** Wall clock since when events should be complete, or Infinity. */
  completeFrom: number;
  /** How many events must come in time before they are trusted again. */
  debt: number;
  /** Found by a scan, no event yet; until when it may come. */
  readonly missed: Map<string, number>;
  recent: Set<string>;
  older: Set<string>;
  /** Settles when the first probe has been decided. */
  decided: () => void;
}

export class SpoolWatch {
  readonly #options: SpoolWatchOptions;
  readonly #fastPollMs: number;
  readonly #pulseMs: number;
  readonly #probeMs: number;
  readonly #slots: Slot[] = [];
  readonly #watched = new Map<string, Watched>();
  readonly #decisions: Promise<void>[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;
  #timerAt = 0;
  #state: "new" | "open" | "closed" = "new";

  constructor(options: SpoolWatchOptions) {
    this.#options = options;
    this.#fastPollMs = options.fastPollMs ?? 250;
    this.#pulseMs = options.pulseMs ?? 1000;
    this.#probeMs = options.probeMs ?? 500;
    for (const [id, agent] of options.agents.entries()) {
      const index = id % MAX_WORKERS;
      const slot = this.#slots[index] ??
        { worker: null, watched: [], heard: false, replacements: 0, replacedAt: 0 };
      this.#slots[index] = slot;
      const { promise, resolve } = Promise.withResolvers<void>();
      const watched: Watched = {
        agent,
        id,
        queue: agentPaths(agent).queue,
        slot,
        mode: "poll",
        state: "off",
        pin: null,
        mtime: NaN,
        heardAt: 0,
        probe: null,
        retryAt: Infinity,
        nextPoll: 0,
        nextPulse: 0,
        burst: null,
        completeFrom: Infinity,
        debt: 0,
        missed: new Map(),
        recent: new Set(),
        older: new Set(),
        decided: resolve,
      };
      slot.watched.push(watched);
      this.#watched.set(agent, watched);
      this.#decisions.push(promise);
    }
  }

  /**
   * Begins. Every agent's queue is asked to be scanned at once. Read and write permission on `./spool`.
   *
   * @returns settles when it is known for each agent whether events arrive, in about a second at most
   */
  async start(): Promise<void> {
    if (this.#state !== "new") throw new TypeError("Cannot start: watching has begun or ended");
    this.#state = "open";
    if (this.#options.events === false) {
      for (const watched of this.#watched.values()) watched.decided();
    } else {
      for (const slot of this.#slots) this.#startWorker(slot);
    }
    for (const { agent } of this.#watched.values()) this.#options.onScan(agent, "start");
    this.#tick();
    await Promise.all(this.#decisions);
  }

  /** Ends; nothing is called back afterwards. */
  close(): void {
    this.#state = "closed";
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (const slot of this.#slots) {
      slot.worker?.terminate();
      slot.worker = null;
    }
    for (const watched of this.#watched.values()) watched.decided();
  }

  /** How an agent's queue is looked after now. */
  mode(agent: string): WatchMode {
    return this.#watched.get(agent)?.mode ?? "poll";
  }

  /**
   * A scan met an entry. When its event should have come and does not, events are not relied upon.
   *
   * @param look a look at the entry
   */
  found(agent: string, name: string, look: Look): void {
    const watched = this.#watched.get(agent);
    // Only what every watcher tells of, and only what surely came while one was listening.
    if (watched?.state !== "watching" || look.kind !== "file" || look.nlink !== 1) return;
    if (watched.mode === "watch" && look.ctime_ms < watched.completeFrom) return;
    if (watched.recent.has(name) || watched.older.has(name) || watched.missed.has(name)) return;
    if (watched.missed.size >= MAX_MISSED || name.startsWith(PROBE_PREFIX)) return;
    watched.missed.set(name, performance.now() + GRACE_MS);
    this.#arm(GRACE_MS);
  }

  #startWorker(slot: Slot): void {
    slot.heard = false;
    let worker: Worker;
    try {
      worker = new Worker(watchWorkerUrl(), { type: "module", name: "chb-watch" });
    } catch (error) {
      for (const watched of slot.watched) this.#failed(watched, String(error));
      return;
    }
    slot.worker = worker;
    worker.onmessage = (event: MessageEvent<readonly WatchReport[]>) => {
      for (const report of event.data) {
        if (this.#state === "open" && slot.worker === worker) this.#report(slot, report);
      }
      // What it told has its turn first. Whoever was replaced by it hears nothing any more.
      setImmediate(() => {
        if (this.#state === "open" && slot.worker === worker) worker.postMessage(HEARD);
      });
    };
    worker.onerror = (event) => {
      // It is handled here: unhandled it would end this thread too.
      event.preventDefault();
      if (this.#state !== "open" || slot.worker !== worker) return;
      slot.worker = null;
      for (const watched of slot.watched) this.#failed(watched, event.message);
    };
    for (const watched of slot.watched) this.#watch(watched);
  }

  /** Asks the worker to watch the queue as it is now. */
  #watch(watched: Watched): void {
    const seen = this.#lookAt(watched);
    watched.probe = null;
    if (seen === null || watched.slot.worker === null) {
      this.#failed(watched, seen === null ? "no such directory" : "no worker");
      return;
    }
    watched.state = "asked";
    watched.pin = pinOf(seen);
    watched.mtime = seen.mtime_ms;
    watched.retryAt = performance.now() + RETRY_MS;
    const order: WatchOrder = { id: watched.id, directory: `${Deno.cwd()}/${watched.queue}` };
    watched.slot.worker.postMessage(order);
    // A worker that never answers is no better than a watcher that never tells.
    watched.probe = {
      name: "",
      until: performance.now() + 4 * this.#probeMs,
      since: Date.now(),
      chances: 0,
    };
    this.#arm(4 * this.#probeMs);
  }

  #report(slot: Slot, report: WatchReport): void {
    const watched = slot.watched.find((one) => one.id === report.id);
    if (watched === undefined) return;
    switch (report.kind) {
      case "watching":
        watched.state = "watching";
        this.#probe(watched);
        break;
      case "failed":
        this.#failed(watched, report.message);
        break;
      case "events":
        slot.heard = true;
        if (report.seen >= BURST) this.#burst(watched);
        watched.heardAt = Math.max(watched.heardAt, report.at);
        for (const [name, kind] of report.events) this.#event(watched, name, kind);
        break;
      case "lost":
        slot.heard = true;
        watched.heardAt = Date.now();
        watched.missed.clear();
        // The probe's own event may be among the lost; that something is heard is its answer too.
        if (watched.probe !== null && watched.state === "watching") this.#answered(watched);
        this.#options.onScan(watched.agent, "lost");
        break;
      case "unnamed":
        slot.heard = true;
        watched.heardAt = Date.now();
        this.#options.onScan(watched.agent, "changed");
        break;
    }
  }

  #burst(watched: Watched): void {
    const now = performance.now();
    if (watched.burst === null) watched.burst = { since: now, last: now };
    else watched.burst.last = now;
    this.#arm(BURST_QUIET_MS);
  }

  /** When a burst is over, or as long as it may be: milliseconds, or Infinity without one. */
  #burstEnd({ burst }: Watched): number {
    if (burst === null) return Infinity;
    return Math.min(burst.last + BURST_QUIET_MS, burst.since + BURST_LATEST_MS);
  }

  #event(watched: Watched, name: string, kind: EntryEvent): void {
    if (name.startsWith(PROBE_PREFIX)) {
      if (watched.probe?.name === name) this.#answered(watched);
      return;
    }
    if (!isAddressable(name)) {
      // Only a scan can tell how many entries are listed like this.
      if (kind !== "remove") this.#options.onScan(watched.agent, "changed");
      return;
    }
    if (kind !== "remove") {
      const late = watched.missed.delete(name);
      if (!late && watched.debt > 0 && !watched.recent.has(name)) watched.debt--;
      if (watched.recent.size >= RECENT) {
        watched.older = watched.recent;
        watched.recent = new Set();
      }
      watched.recent.add(name);
      if (watched.debt === 0 && watched.state === "watching") {
        this.#setMode(watched, "watch", "events arrive");
      }
    }
    this.#options.onEvent(watched.agent, name, kind);
  }

  /** Makes and removes a file in the queue, whose event must come. */
  #probe(watched: Watched): void {
    const name = `${PROBE_PREFIX}${randomHex(8)}`;
    const path = `${watched.queue}/${name}`;
    try {
      // What has the queue's place now may be anything: no file of ours goes there (P3).
      assertPinned(watched.agent, "queue");
      closeSync(openSync(path, "wx", 0o600));
      unlinkSync(path);
    } catch (error) {
      // Without space or rights for a probe nothing is known, and polling is always right.
      watched.probe = null;
      if (watched.mode === "poll") watched.decided();
      this.#options.log("probe-failed", {
        agent: watched.agent,
        error: errorCode(error) ?? "unknown",
      });
      return;
    }
    watched.probe = {
      name,
      until: performance.now() + this.#probeMs,
      since: Date.now(),
      chances: CHANCES,
    };
    this.#arm(this.#probeMs);
  }

  #answered(watched: Watched): void {
    watched.probe = null;
    watched.retryAt = Infinity;
    // After a missed event the probe alone does not prove that the agent's writes are told.
    if (watched.debt === 0) this.#setMode(watched, "watch", "events arrive");
    watched.decided();
  }

  /**
   * Gives a probe more time, some times over: what was heard since it was made comes from a watcher
   * that lives and has much to tell, and where this thread was held up nothing could be heard. To
   * give such a watcher up would lose the events that it was about to tell (N1, Q5).
   *
   * @param late this thread was held up
   */
  #isBehind(watched: Watched, probe: Probe, late: boolean): boolean {
    if (probe.chances === 0 || !(late || watched.heardAt >= probe.since)) return false;
    watched.probe = {
      name: probe.name,
      until: performance.now() + this.#probeMs,
      since: Date.now(),
      chances: probe.chances - 1,
    };
    // Until it is known polling is right.
    watched.decided();
    return true;
  }

  /** A probe's time is over, or the worker's to begin. */
  #deaf(watched: Watched): void {
    const { slot } = watched;
    const wedged = slot.heard || watched.state === "asked";
    watched.probe = null;
    watched.retryAt = performance.now() + RETRY_MS;
    this.#setMode(watched, "poll", "no events arrive");
    watched.decided();
    if (wedged) this.#replace(slot);
  }

  /** Gives a silent worker up and starts another one. */
  #replace(slot: Slot): void {
    const now = performance.now();
    const quick = slot.replacements < QUICK_REPLACEMENTS ||
      now - slot.replacedAt >= SLOW_REPLACEMENT_MS;
    this.#stopWorker(slot, "the watcher fell silent");
    if (!quick || slot.replacements >= MAX_REPLACEMENTS) return;
    slot.replacements++;
    slot.replacedAt = now;
    this.#startWorker(slot);
  }

  /** Ends a worker that does its work, and starts another one. */
  #restart(slot: Slot): void {
    this.#stopWorker(slot, "the queue was replaced");
    this.#startWorker(slot);
  }

  #stopWorker(slot: Slot, why: string): void {
    slot.worker?.terminate();
    slot.worker = null;
    for (const watched of slot.watched) {
      watched.state = "off";
      watched.pin = null;
      watched.probe = null;
      watched.debt = 0;
      watched.retryAt = performance.now() + SLOW_REPLACEMENT_MS;
      this.#setMode(watched, "poll", why);
      watched.decided();
    }
  }

  #failed(watched: Watched, message: string): void {
    watched.state = "failed";
    watched.probe = null;
    watched.pin = null;
    watched.retryAt = performance.now() + Math.min(RETRY_FAILED_MS, this.#options.pollMs);
    this.#setMode(watched, "poll", message);
    watched.decided();
  }

  #setMode(watched: Watched, mode: WatchMode, why: string): void {
    if (watched.mode === mode) return;
    watched.mode = mode;
    watched.missed.clear();
    if (mode === "watch") {
      // The ctime is known to the second only: the next full one is surely later than now.
      watched.completeFrom = Date.now() + 1000;
      const now = performance.now();
      watched.nextPoll = now + untilGrid(now, this.#options.pollMs);
      this.#options.log("watch", { agent: watched.agent, mode, why });
    } else {
      watched.completeFrom = Infinity;
      watched.nextPoll = 0;
      this.#arm(0);
      this.#options.log("watch", { agent: watched.agent, mode, why });
    }
  }

  #arm(delay: number): void {
    if (this.#state !== "open") return;
    const at = performance.now() + delay;
    if (this.#timer !== null) {
      if (this.#timerAt <= at) return;
      clearTimeout(this.#timer);
    }
    this.#timerAt = at;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#tick();
    }, delay);
  }

  #tick(): void {
    if (this.#state !== "open") return;
    const late = performance.now() - this.#timerAt > LATE_MS;
    let next = Infinity;
    for (const watched of this.#watched.values()) {
      const now = performance.now();
      if (now >= watched.nextPulse) this.#pulse(watched, now);
      this.#judgeMissed(watched, now);
      if (watched.probe !== null && now >= watched.probe.until) {
        if (!this.#isBehind(watched, watched.probe, late)) this.#deaf(watched);
      }
      if (now >= this.#burstEnd(watched)) {
        watched.burst = null;
        this.#options.onScan(watched.agent, "changed");
      }
      if (now >= watched.nextPoll) {
        const every = watched.mode === "watch" ? this.#options.pollMs : this.#fastPollMs;
        watched.nextPoll = now + untilGrid(now, every);
        this.#options.onScan(watched.agent, "poll");
      }
      const probe = watched.probe?.until ?? Infinity;
      next = Math.min(next, watched.nextPoll, watched.nextPulse, probe, this.#burstEnd(watched));
      for (const until of watched.missed.values()) next = Math.min(next, until);
    }
    // A timer counts whole milliseconds, and one that is early would be set twice.
    if (next !== Infinity) this.#arm(Math.max(1, Math.ceil(next - performance.now())));
  }

  /** Looks at the directory itself: still the same one, and silent only when nothing changed? */
  #pulse(watched: Watched, now: number): void {
    watched.nextPulse = now + untilGrid(now, this.#pulseMs);
    if (this.#options.events === false) return;
    const seen = this.#lookAt(watched);
    if (watched.pin !== null && (seen === null || pinOf(seen) !== watched.pin)) {
      this.#options.log("queue-replaced", { agent: watched.agent });
      // The runtime's watcher does not take a second directory of the same name.
      if (watched.mode === "watch") this.#restart(watched.slot);
      else this.#replace(watched.slot);
      this.#options.onScan(watched.agent, "replaced");
      return;
    }
    if (now >= watched.retryAt && watched.probe === null) {
      if (watched.slot.worker === null) this.#replace(watched.slot);
      else if (watched.state !== "watching") this.#watch(watched);
      else {
        watched.retryAt = now + RETRY_MS;
        this.#probe(watched);
      }
      return;
    }
    if (seen === null || seen.mtime_ms === watched.mtime) return;
    const age = Date.now() - seen.mtime_ms;
    // Its event may still be on its way: the next pulse asks again.
    if (age >= 0 && age < ON_ITS_WAY_MS && watched.heardAt < seen.mtime_ms) return;
    watched.mtime = seen.mtime_ms;
    // Whatever changed the directory last must have been told of since.
    if (seen.mtime_ms <= watched.heardAt || watched.state !== "watching") return;
    if (watched.mode !== "watch") return;
    this.#options.onScan(watched.agent, "changed");
    if (watched.probe === null) this.#probe(watched);
  }

  /** Entries whose event did not come although it had time to. */
  #judgeMissed(watched: Watched, now: number): void {
    let missed = false;
    for (const [name, until] of watched.missed) {
      if (now < until) break;
      watched.missed.delete(name);
      missed = true;
    }
    if (!missed || watched.state !== "watching") return;
    watched.debt = TRUST_AGAIN;
    if (watched.mode === "poll") return;
    this.#setMode(watched, "poll", "an entry came without an event");
    // To tell a watcher that fell silent from writes that are never told of.
    if (watched.probe === null) this.#probe(watched);
  }

  #lookAt(watched: Watched): Look | null {
    try {
      const seen = look(watched.queue);
      return seen?.kind === "directory" ? seen : null;
    } catch {
      return null;
    }
  }
}

function pinOf(seen: Look): string {
  return `${seen.dev}:${seen.ino}`;
}
