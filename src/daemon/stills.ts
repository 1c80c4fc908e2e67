/**
 * Processes of this bridge that stand still: a shim that somebody stopped, or that gets no time. Its
 * command may go on or not, but nobody would end it at its limit, record its end, or cancel it, until
 * the daemon does so as the last resort. A human is told before that, and can let it go on.
 *
 * 1. Of a shim that runs something its beat is looked at, whoever started it; an idle one is asked.
 * 2. Whether it stands still is counted in looks of this daemon, not in time: where the daemon itself
 *    stood still, nobody else is blamed for it.
 * 3. A shim that is gone does not stand still, though what it started may live on.
 *
 * @module
 */
import { beatOf } from "../run/beat.ts";
import { readTaken, runLocked } from "../run/order_file.ts";
import type { ShimPool } from "../run/pool.ts";
import type { ActiveRun } from "./runs.ts";

/** Looks, a second apart, that find the same beat: then it stands still. */
const STILL_LOOKS = 5;

/** One process that stands still. */
export interface Still {
  /** Null when it is not known any more. */
  readonly pid: number | null;
  /** What it runs for, or null. */
  readonly agent: string | null;
  readonly id: string | null;
}

/** A run as it was looked at last. */
interface Looked extends Still {
  readonly beat: number | null;
  /** How often in turn the same beat was seen. */
  readonly same: number;
}

export class Stills {
  readonly #pool: Pick<ShimPool, "still" | "runs">;
  readonly #active: ReadonlyMap<string, ActiveRun>;
  #looked = new Map<string, Looked>();

  constructor(pool: Pick<ShimPool, "still" | "runs">, active: ReadonlyMap<string, ActiveRun>) {
    this.#pool = pool;
    this.#active = active;
  }

  /** Once a second while anything runs: looks at every run. */
  look(): void {
    const looked = new Map<string, Looked>();
    const see = (run: string, pid: number | null, of: Pick<Still, "agent" | "id">) => {
      const beat = beatOf(run);
      const before = this.#looked.get(run);
      let same = beat !== null && before?.beat === beat ? before.same + 1 : 0;
      // The lock says whether a shim is there at all; that of this daemon's own is not asked for it.
      if (same >= STILL_LOOKS && pid === null && !runLocked(run)) same = 0;
      const known = pid ?? before?.pid ??
        (same < STILL_LOOKS ? null : readTaken(run)?.pgid ?? null);
      looked.set(run, { beat, same, pid: known, agent: of.agent, id: of.id });
    };
    for (const active of this.#active.values()) {
      if (!active.finished && !active.told) see(active.run, active.shim?.pid ?? null, active);
    }
    // What belongs to no request: notifications.
    for (const { run, pid } of this.#pool.runs) {
      if (!this.#active.has(run)) see(run, pid, { agent: null, id: null });
    }
    this.#looked = looked;
  }

  /** What stands still now. */
  list(): Still[] {
    const list: Still[] = this.#pool.still.map((pid) => ({ pid, agent: null, id: null }));
    for (const [run, { pid, agent, id, same }] of this.#looked) {
      if (same < STILL_LOOKS || this.#active.get(run)?.finished === true) continue;
      list.push({ pid, agent, id });
    }
    return list;
  }
}
