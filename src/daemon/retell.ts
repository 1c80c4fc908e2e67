/**
 * Keeps `waiting_for` true: what a request waits for changes while it waits, from its lock to a
 * slot when its turn comes and back when somebody else had the lock first.
 *
 * Looked at once a second, and bounded: a thousand requests that move up by one place do not hold
 * up the loop, they are told a second later.
 *
 * @module
 */
import type { Row } from "../ledger/types.ts";
import type { WaitingFor } from "../result.ts";
import type { Core } from "./core.ts";

/** Rows read, and rows changed, in one pass. */
const READS = 256;
const CHANGES = 64;

export class Retell {
  readonly #core: Core;
  /** What the result of a waiting request says. */
  #told = new Map<number, WaitingFor>();

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * One pass.
   *
   * @throws {LedgerError} when the change could not be stored; it is tried again by the next pass
   */
  pass(): void {
    const { ledger, publisher, slots } = this.#core;
    const changes: { row: Row; to: WaitingFor }[] = [];
    let reads = READS;
    let waiting = 0;
    for (const entry of slots.all()) {
      waiting++;
      if ((entry.held_until_ms ?? null) !== null) continue;
      const to = slots.waitsFor(entry);
      const told = this.#told.get(entry.rid);
      if (told === to || reads <= 0 || changes.length >= CHANGES) continue;
      reads--;
      const row = ledger.row(entry.rid);
      const said = row?.state === "pending" ? row.result.waiting_for : undefined;
      // Whoever waits for a human is told by the human's answer.
      if (row === null || (said !== "slot" && said !== "lock")) continue;
      this.#told.set(entry.rid, said);
      if (said !== to) changes.push({ row, to });
    }
    if (this.#told.size > 2 * waiting + READS) this.#told.clear();
    if (changes.length === 0) return;
    ledger.transaction((tx) => {
      for (const { row, to } of changes) {
        tx.updateRow(row.rid, { result: { ...row.result, waiting_for: to } });
      }
    });
    for (const { row, to } of changes) {
      this.#told.set(row.rid, to);
      const now = ledger.row(row.rid);
      if (now !== null) publisher.row(now);
    }
  }
}
