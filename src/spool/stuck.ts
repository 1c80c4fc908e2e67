/**
 * Entries that this user cannot move or remove, and names that the runtime cannot address. They stay
 * where they are until a human removes them, and cost nothing meanwhile.
 *
 * Rules
 * 1. Told once: `note` says true for an entry that is new, and false ever after (Q7). And not without
 *    end: whoever makes new ones all the time is told of so often a minute, the rest is a number in
 *    the report (Q5).
 * 2. Never tried in a loop: again only when something else has the name, or after a wait that doubles
 *    from a minute to an hour (P10, P12).
 * 3. Bounded memory. Beyond `known` entries of an agent only two numbers are kept of each, enough to
 *    leave it in peace; beyond `crowd` of those, others are counted and not remembered. Names that
 *    cannot be addressed are only ever counted, since several may be listed alike (P16).
 * 4. For each kind there is one exact command that removes it. It names entries by inode, or by a
 *    pattern for bytes that no valid name has; never by the hostile name itself (P18).
 *
 * @module
 */
import { printable } from "../names.ts";
import { agentPaths } from "./agent_paths.ts";
import { isAddressable } from "./entry_name.ts";
import { look } from "./look.ts";
import { shellWord } from "./shell_word.ts";

const FIRST_WAIT_MS = 60_000;
const LONGEST_WAIT_MS = 3_600_000;

/** A stuck entry as status and doctor show it. */
export interface StuckEntry {
  /** Escaped. */
  readonly name: string;
  /** Directory below the root that it lies in. */
  readonly where: string;
  /** A system error code, or `QUARANTINE-FULL`. */
  readonly error: string;
}

/** What is stuck for one agent. */
export interface StuckReport {
  /** How many, as far as they were counted. */
  readonly count: number;
  /** The first of them. */
  readonly entries: readonly StuckEntry[];
  /** What a human runs in the root to remove them. */
  readonly commands: readonly string[];
}

interface Known {
  readonly name: string;
  readonly where: string;
  /** Decimal; null when it could not be looked at. */
  readonly ino: string | null;
  readonly error: string;
  /** Monotonic, milliseconds. */
  retryAt: number;
  wait_ms: number;
  /** Number of the scan that met it last. */
  pass: number;
}

interface AgentStuck {
  readonly known: Map<string, Known>;
  pass: number;
  /** Entries beyond the bound, a number for the name and one for the inode: met in this scan. */
  crowd: Map<number, number>;
  /** The same, of the scan before and not met again yet. */
  crowdBefore: Map<number, number>;
  /** When they are all tried again, monotonic milliseconds; null while nobody waits. */
  crowdUntil: number | null;
  crowdWait_ms: number;
  /** When the minute of `told` began, and how many were told of in it. */
  toldSince: number;
  told: number;
  /** Beyond the bound: counted in this scan, and in the one before. */
  others: number;
  othersBefore: number;
  unaddressable: number;
  unaddressableBefore: number;
  toldOthers: boolean;
  toldUnaddressable: boolean;
}

/** Clock and bounds; the defaults are what the daemon uses. */
export interface StuckOptions {
  /** Monotonic, milliseconds. */
  readonly now?: () => number;
  /** Entries remembered an agent. */
  readonly known?: number;
  /** Entries shown an agent. */
  readonly shown?: number;
  /** Entries remembered as two numbers an agent. */
  readonly crowd?: number;
  /** Entries told of in a minute an agent. */
  readonly told?: number;
}

export class StuckList {
  readonly #now: () => number;
  readonly #maxKnown: number;
  readonly #maxShown: number;
  readonly #maxCrowd: number;
  readonly #maxTold: number;
  readonly #agents = new Map<string, AgentStuck>();

  constructor(options: StuckOptions = {}) {
    this.#now = options.now ?? (() => performance.now());
    this.#maxKnown = options.known ?? 4096;
    this.#maxShown = options.shown ?? 100;
    this.#maxCrowd = options.crowd ?? 262_144;
    this.#maxTold = options.told ?? 100;
  }

  /**
   * Notes an entry that could not be claimed or removed.
   *
   * @param name its name as listed
   * @param path where it lies, when that is not its place in `queue/`
   * @returns true when it should be told: it is new, and not one of very many
   */
  note(agent: string, name: string, error: string, path?: string): boolean {
    const state = this.#of(agent);
    const full = path ?? `${agentPaths(agent).queue}/${name}`;
    if (path === undefined && !isAddressable(name)) {
      state.unaddressable++;
      const first = !state.toldUnaddressable;
      state.toldUnaddressable = true;
      return first && this.#mayTell(state);
    }
    const old = state.known.get(full);
    const ino = inodeOf(full);
    if (old === undefined && state.known.size >= this.#maxKnown) {
      this.#noteCrowd(state, name, ino);
      const first = !state.toldOthers;
      state.toldOthers = true;
      return first && this.#mayTell(state);
    }
    const again = old !== undefined && old.ino === ino;
    const wait_ms = again ? Math.min(LONGEST_WAIT_MS, old.wait_ms * 2) : FIRST_WAIT_MS;
    const slash = full.lastIndexOf("/");
    state.known.set(full, {
      name: full.slice(slash + 1),
      where: full.slice(0, slash),
      ino,
      error,
      retryAt: this.#now() + wait_ms,
      wait_ms,
      pass: state.pass,
    });
    return !again && this.#mayTell(state);
  }

  #noteCrowd(state: AgentStuck, name: string, ino: string | null): void {
    const key = numberFor(name);
    state.crowdBefore.delete(key);
    if (state.crowd.size + state.crowdBefore.size >= this.#maxCrowd && !state.crowd.has(key)) {
      state.others++;
      return;
    }
    state.crowdUntil ??= this.#now() + state.crowdWait_ms;
    state.crowd.set(key, numberFor(ino ?? ""));
  }

  #mayTell(state: AgentStuck): boolean {
    const now = this.#now();
    if (now - state.toldSince >= 60_000) {
      state.toldSince = now;
      state.told = 0;
    }
    return ++state.told <= this.#maxTold;
  }

  /**
   * True when an entry of `queue/` may be handled: it is not known as stuck, or another one by now,
   * or its time has come. Addressable names that are known cost one `lstat`.
   */
  mayTry(agent: string, name: string): boolean {
    const state = this.#agents.get(agent);
    if (state === undefined) return true;
    const entry = state.known.get(`${agentPaths(agent).queue}/${name}`);
    if (entry === undefined) return this.#mayTryCrowd(state, agent, name);
    entry.pass = state.pass;
    return this.#now() >= entry.retryAt || inodeOf(`${entry.where}/${name}`) !== entry.ino;
  }

  #mayTryCrowd(state: AgentStuck, agent: string, name: string): boolean {
    if (state.crowd.size + state.crowdBefore.size === 0) return true;
    const key = numberFor(name);
    const ino = state.crowd.get(key) ?? state.crowdBefore.get(key);
    if (ino === undefined) return true;
    state.crowdBefore.delete(key);
    if (numberFor(inodeOf(`${agentPaths(agent).queue}/${name}`) ?? "") !== ino) {
      state.crowd.delete(key);
      return true;
    }
    state.crowd.set(key, ino);
    return false;
  }

  /** How many entries of an agent are stuck, as far as they were counted. */
  count(agent: string): number {
    const state = this.#agents.get(agent);
    if (state === undefined) return 0;
    return state.known.size + state.crowd.size + state.crowdBefore.size +
      Math.max(state.others, state.othersBefore) +
      Math.max(state.unaddressable, state.unaddressableBefore);
  }

  /** Forgets an entry that could be handled after all. */
  forget(agent: string, name: string, path?: string): void {
    this.#agents.get(agent)?.known.delete(path ?? `${agentPaths(agent).queue}/${name}`);
  }

  /**
   * A scan of the agent's queue has come to its end: what it did not meet is not there any more.
   * Entries elsewhere are looked for when their time comes.
   */
  scanned(agent: string): void {
    const state = this.#agents.get(agent);
    if (state === undefined) return;
    const { queue } = agentPaths(agent);
    for (const [path, entry] of state.known) {
      const gone = entry.where === queue
        ? entry.pass < state.pass
        : this.#now() >= entry.retryAt && inodeOf(path) === null;
      if (gone) state.known.delete(path);
    }
    state.pass++;
    // What was not met again is not there any more.
    state.crowdBefore = state.crowd;
    state.crowd = new Map();
    const crowded = state.crowdBefore.size > 0;
    if (!crowded) {
      state.crowdUntil = null;
      state.crowdWait_ms = FIRST_WAIT_MS;
    } else if (state.crowdUntil !== null && this.#now() >= state.crowdUntil) {
      // All are tried again, and those that still cannot be handled come back one by one.
      state.crowdBefore = new Map();
      state.crowdWait_ms = Math.min(LONGEST_WAIT_MS, state.crowdWait_ms * 2);
      state.crowdUntil = null;
    }
    state.othersBefore = state.others;
    state.others = 0;
    state.unaddressableBefore = state.unaddressable;
    state.unaddressable = 0;
    if (state.othersBefore === 0 && !crowded) state.toldOthers = false;
    if (state.unaddressableBefore === 0) state.toldUnaddressable = false;
  }

  /** What is stuck, for status and doctor. */
  report(agent: string): StuckReport {
    const state = this.#agents.get(agent);
    if (state === undefined) return { count: 0, entries: [], commands: [] };
    const unaddressable = Math.max(state.unaddressable, state.unaddressableBefore);
    return {
      count: this.count(agent),
      entries: [...state.known.values()].slice(0, this.#maxShown).map((entry) => ({
        name: printable(entry.name),
        where: entry.where,
        error: entry.error,
      })),
      commands: this.#commands(agent, state, unaddressable),
    };
  }

  /** The commands of all agents, to be run by a human in the root. */
  commands(): string[] {
    return [...this.#agents.keys()].sort().flatMap((agent) => this.report(agent).commands);
  }

  #commands(agent: string, state: AgentStuck, unaddressable: number): string[] {
    const commands: string[] = [];
    if (unaddressable > 0) {
      // In the C locale this matches every name with a byte outside printable ASCII.
      const where = shellWord(agentPaths(agent).queue);
      commands.push(
        `LC_ALL=C find ${where} -mindepth 1 -maxdepth 1 -name '*[! -~]*' -exec rm -rf -- {} +`,
      );
    }
    for (const { where, ino, error } of [...state.known.values()].slice(0, this.#maxShown)) {
      if (ino === null) continue;
      const rights = error === "EACCES" || error === "EPERM" ? "sudo " : "";
      commands.push(
        `${rights}find ${shellWord(where)} -mindepth 1 -maxdepth 1 -inum ${ino} ` +
          "-exec rm -rf -- {} +",
      );
    }
    return commands;
  }

  #of(agent: string): AgentStuck {
    let state = this.#agents.get(agent);
    if (state === undefined) {
      state = {
        known: new Map(),
        pass: 0,
        crowd: new Map(),
        crowdBefore: new Map(),
        crowdUntil: null,
        crowdWait_ms: FIRST_WAIT_MS,
        toldSince: -Infinity,
        told: 0,
        others: 0,
        othersBefore: 0,
        unaddressable: 0,
        unaddressableBefore: 0,
        toldOthers: false,
        toldUnaddressable: false,
      };
      this.#agents.set(agent, state);
    }
    return state;
  }
}

/**
 * A number of 53 bits for a text. Two texts may have the same: then one of them is tried more often
 * than it needs to be.
 */
function numberFor(text: string): number {
  let a = 0xdeadbeef;
  let b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    a = Math.imul(a ^ c, 0x9e3779b1);
    b = Math.imul(b ^ c, 0x5f356495);
  }
  a = Math.imul(a ^ (a >>> 16), 0x85ebca6b) ^ (b >>> 13);
  b = Math.imul(b ^ (b >>> 16), 0xc2b2ae35) ^ (a >>> 13);
  return (b & 0x1fffff) * 0x100000000 + (a >>> 0);
}

/** The inode as the directory gives it, or null when it cannot be looked at. */
function inodeOf(path: string): string | null {
  try {
    return look(path)?.ino ?? null;
  } catch {
    return null;
  }
}
