/**
 * How many entries of one agent a turn handles: as many as take `FITTING_MS`, so that nobody waits for
 * long between two turns, on a machine that is slow or has much else to do as well.
 *
 * The commit does not count. It takes as long for one entry as for many, so to make batches smaller for
 * a slow disk would make everything slower and nothing sooner. Pure.
 *
 * @module
 */

/** Entries of one turn, at most: one transaction. */
export const MOST = 48;
/** The fewest. */
export const FEWEST = 8;
/** How long the entries of one turn should take, milliseconds. */
export const FITTING_MS = 40;
/** By so much a batch grows from one turn to the next. */
const STEP = 2;

export class BatchSize {
  #size = MOST;

  /** Entries that the next turn may handle. */
  get size(): number {
    return this.#size;
  }

  /**
   * A turn handled so many entries.
   *
   * @param took_ms how long all of it took
   * @param disk_ms how long of that it waited for the commit
   */
  handled(entries: number, took_ms: number, disk_ms: number): void {
    const took = took_ms - disk_ms;
    if (took <= FITTING_MS) this.#size = Math.min(MOST, this.#size + STEP);
    else {
      const fitting = Math.floor(entries * FITTING_MS / took);
      this.#size = Math.max(FEWEST, Math.min(this.#size, fitting));
    }
  }
}
