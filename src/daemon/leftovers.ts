/**
 * Process groups that outlived whoever could have ended them. Their requests are `uncertain`, and
 * what is said to be over must not go on beside the next holder of its lock (X18).
 *
 * 1. While the group may live, slot and lock of the request stay taken, over a restart too: the
 *    group stands in the row, so it does not matter what became of the run directory.
 * 2. When the group was seen to be empty the slot is free, and the lock is kept: that nothing runs
 *    does not say what was left behind. A human who looks frees it: `chb resolve`.
 * 3. A human may resolve while the group lives. That frees both at once; what the group does then
 *    is what the human answers for.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { LightRow } from "../ledger/types.ts";
import { groupAlive } from "../run/kill_group.ts";
import type { Core } from "./core.ts";

/** Milliseconds between two looks whether a group lives. */
const ASK_MS = 3000;

interface Leftover {
  readonly pgid: number;
  readonly lock: string | null;
  /** Monotonic clock, milliseconds. */
  askAt: number;
  asked: boolean;
}

export class Leftovers {
  readonly #core: Core;
  readonly #wake: () => void;
  readonly #all = new Map<number, Leftover>();

  constructor(core: Core, wake: () => void) {
    this.#core = core;
    this.#wake = wake;
  }

  /** Groups that are watched over. */
  get size(): number {
    return this.#all.size;
  }

  /** Takes up an `uncertain` row of an earlier daemon: what it holds is held. */
  hold(row: Pick<LightRow, "rid" | "agent" | "lock" | "pgid">): void {
    if (row.pgid === null) return;
    this.#core.slots.start(row.rid, row.agent, row.lock);
    if (row.pgid === 0) this.#core.slots.freeSlot(row.rid);
    else this.add(row.rid, row.pgid, row.lock);
  }

  /** Watches over a group whose request holds slot and lock already. */
  add(rid: number, pgid: number, lock: string | null): void {
    this.#all.set(rid, { pgid, lock, askAt: 0, asked: false });
  }

  /** Forgets a request that a human resolved. */
  drop(rid: number): void {
    this.#all.delete(rid);
  }

  /** Once a second: frees the slots of those whose group has ended. */
  ask(): void {
    const now = performance.now();
    for (const [rid, leftover] of this.#all) {
      if (leftover.asked || now < leftover.askAt) continue;
      leftover.asked = true;
      groupAlive(leftover.pgid).then((alive) => {
        leftover.askAt = performance.now() + ASK_MS;
        if (!alive && this.#all.get(rid) === leftover) this.#ended(rid, leftover.lock);
      }).catch((error) => {
        this.#core.log("WARN", "leftover", { rid, error: errorCode(error) ?? "unknown" });
      }).finally(() => leftover.asked = false);
    }
  }

  #ended(rid: number, lock: string | null): void {
    const { ledger, slots } = this.#core;
    ledger.transaction((tx) => tx.updateRow(rid, { pgid: lock === null ? null : 0 }));
    this.#all.delete(rid);
    if (lock === null) slots.free(rid);
    else slots.freeSlot(rid);
    this.#wake();
  }
}
