/**
 * The accounts: what waiting requests hold, what running ones reserve, what ended ones have cost.
 *
 * 1. A grant is held in the commit that lets a request in, reserved on a day in the commit that
 *    starts it, and corrected in the commit of its result; never outside of one (S7).
 * 2. Nothing is given back on a guess. A report that is missing or cannot be read charges the
 *    reserve; a run that is uncertain keeps it; only a run that provably did not start frees it.
 * 3. A report above the reserve is charged in full, to the day on which it is read, and blocks what
 *    spends of this agent for that day.
 * 4. Days are UTC days of the bridge's own clock: neither a restart nor a wall clock that is set
 *    back begins one anew (N5, Q9).
 *
 * @module
 */
import { parseReport } from "../policy/amount.ts";
import type { Ledger, Tx } from "../ledger/ledger.ts";
import { readReport } from "../run/spend_report.ts";
import type { BridgeClock } from "./bridge_clock.ts";

const DAY_MS = 86_400_000;

/** What a day looks like to whoever wants to spend. */
export interface DayView {
  readonly spent: bigint;
  readonly held: bigint;
  readonly blocked: boolean;
}

/** How an ended run is accounted for. */
export interface Settled {
  readonly granted: bigint;
  readonly charged: bigint;
  /** `reported`, `missing`, `fixed` or `not-started`. */
  readonly how: string;
  /** It took more than it was granted. */
  readonly above: boolean;
}

/** Frees what a request held that will not start. */
export function dropHold(tx: Tx, rid: number): void {
  const spend = tx.spend(rid);
  if (spend === null || spend.state !== "held") return;
  tx.putSpend(rid, { ...spend, state: "charged", granted: 0n });
}

/**
 * Closes the account of a request that ends without a report: what it held is free, and what it
 * reserved is charged.
 */
export function closeSpend(tx: Tx, rid: number): void {
  dropHold(tx, rid);
  const spend = tx.spend(rid);
  if (spend === null || spend.state !== "reserved") return;
  tx.putSpend(rid, { ...spend, state: "charged", charged: spend.charged + spend.granted });
}

export class Spends {
  readonly #ledger: Ledger;
  readonly #clock: BridgeClock;
  /** Rows that may hold or reserve something; a superset of those that do. */
  readonly #open: Set<number>;

  constructor(ledger: Ledger, clock: BridgeClock) {
    this.#ledger = ledger;
    this.#clock = clock;
    this.#open = new Set(ledger.openSpends());
  }

  #today(): number {
    return Math.floor(this.#clock.now() / DAY_MS);
  }

  /** The agent's day; within a transaction with its changes. */
  day(agent: string): DayView {
    const { spent, blocked } = this.#ledger.spendDay(agent, this.#today());
    return { spent, blocked, held: this.#ledger.heldSpend(agent) };
  }

  /** Adds to an agent's day, or takes from it; a day never falls below nothing. */
  #book(tx: Tx, agent: string, day: number, amount: bigint, block = false): void {
    const before = this.#ledger.spendDay(agent, day);
    const spent = before.spent + amount;
    tx.putSpendDay(agent, day, {
      spent: spent < 0n ? 0n : spent,
      blocked: before.blocked || block,
    });
  }

  /** Holds the grant of a request that waits. */
  hold(tx: Tx, rid: number, agent: string, granted: bigint): void {
    tx.putSpend(rid, { agent, state: "held", day: null, granted, charged: 0n });
    this.#open.add(rid);
  }

  /** Reserves the grant of a run that starts. */
  reserve(tx: Tx, rid: number, agent: string, granted: bigint): void {
    const day = this.#today();
    const charged = this.#open.has(rid) ? this.#ledger.spend(rid)?.charged ?? 0n : 0n;
    tx.putSpend(rid, { agent, state: "reserved", day, granted, charged });
    this.#book(tx, agent, day, granted);
    this.#open.add(rid);
  }

  /**
   * Accounts for a run that ended.
   *
   * @param run its directory's name, to read the report of
   * @param started false when nothing was started, so that nothing was spent
   * @param reports true for a verb that may report what it used
   * @returns null for a row that spends nothing
   */
  settle(tx: Tx, rid: number, run: string, started: boolean, reports: boolean): Settled | null {
    if (!this.#open.has(rid)) return null;
    const spend = this.#ledger.spend(rid);
    if (spend === null || spend.state !== "reserved" || spend.day === null) return null;
    const { agent, granted, day } = spend;
    const text = started && reports ? readReport(run) : null;
    const report = text === null ? null : parseReport(text);
    const charged = !started ? 0n : report ?? granted;
    const above = charged > granted;
    if (above) this.#book(tx, agent, this.#today(), charged - granted, true);
    else if (charged < granted) this.#book(tx, agent, day, charged - granted);
    tx.putSpend(rid, { ...spend, state: "charged", charged: spend.charged + charged });
    const how = !started
      ? "not-started"
      : !reports
      ? "fixed"
      : report === null
      ? "missing"
      : "reported";
    return { granted, charged, how, above };
  }

  /**
   * Accounts for a run that is to be repeated: its grant is held again. What a run may have spent
   * that took place stays charged.
   */
  again(tx: Tx, rid: number, tookPlace: boolean): void {
    if (!this.#open.has(rid)) return;
    const spend = this.#ledger.spend(rid);
    if (spend === null || spend.state !== "reserved" || spend.day === null) return;
    if (!tookPlace) this.#book(tx, spend.agent, spend.day, -spend.granted);
    tx.putSpend(rid, {
      ...spend,
      state: "held",
      day: null,
      charged: spend.charged + (tookPlace ? spend.granted : 0n),
    });
  }
}
