/**
 * What requests spend, and what each agent has spent a day. Amounts are whole billionths, so that
 * sums are exact.
 *
 * @module
 */
import { numberOf, numberOrNull, type SqlRow, textOf } from "./bind.ts";
import type { Database } from "./database.ts";

/**
 * `held` while the request waits, `reserved` from the commit that starts it, `charged` once it is
 * known what it took.
 */
export type SpendState = "held" | "reserved" | "charged";

/** What one request spends. */
export interface Spend {
  readonly agent: string;
  readonly state: SpendState;
  /** The day that it was reserved on; null while it is held. */
  readonly day: number | null;
  /** What is granted to the run that waits or goes on. */
  readonly granted: bigint;
  /** What ended runs of this request have cost. */
  readonly charged: bigint;
}

/** What an agent has spent on one day, reserves included. */
export interface SpendDay {
  readonly spent: bigint;
  /** A run took more than it was granted: nothing that spends starts on this day any more. */
  readonly blocked: boolean;
}

const COLUMNS =
  "agent, state, day, CAST(granted AS TEXT) AS granted, CAST(charged AS TEXT) AS charged";

/** What a row spends, or null. */
export function readSpend(db: Database, rid: number): Spend | null {
  const row = db.get(`SELECT ${COLUMNS} FROM spends WHERE rid = ?`, rid);
  return row === undefined ? null : spendOf(row);
}

/** Stores or replaces what a row spends. */
export function writeSpend(db: Database, rid: number, spend: Spend): void {
  db.run(
    "INSERT INTO spends VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (rid) DO UPDATE SET " +
      "state = excluded.state, day = excluded.day, granted = excluded.granted, " +
      "charged = excluded.charged",
    rid,
    spend.agent,
    spend.state,
    spend.day,
    spend.granted,
    spend.charged,
  );
}

/** Rows that hold or reserve something. */
export function openSpends(db: Database): number[] {
  return db.all("SELECT rid FROM spends WHERE state <> 'charged' AND state IN ('held', 'reserved')")
    .map((row) => numberOf(row, "rid"));
}

/** What an agent's waiting requests hold together. */
export function heldSpend(db: Database, agent: string): bigint {
  const row = db.get(
    "SELECT CAST(COALESCE(SUM(granted), 0) AS TEXT) AS n FROM spends " +
      "WHERE state <> 'charged' AND state = 'held' AND agent = ?",
    agent,
  );
  return row === undefined ? 0n : BigInt(textOf(row, "n"));
}

/** What an agent has spent on a day. */
export function readSpendDay(db: Database, agent: string, day: number): SpendDay {
  const row = db.get(
    "SELECT spent, blocked FROM spend_days WHERE agent = ? AND day = ?",
    agent,
    day,
  );
  return row === undefined
    ? { spent: 0n, blocked: false }
    : { spent: BigInt(textOf(row, "spent")), blocked: numberOf(row, "blocked") === 1 };
}

/** Stores what an agent has spent on a day. */
export function writeSpendDay(db: Database, agent: string, day: number, value: SpendDay): void {
  db.run(
    "INSERT INTO spend_days VALUES (?, ?, ?, ?) ON CONFLICT (agent, day) DO UPDATE SET " +
      "spent = excluded.spent, blocked = excluded.blocked",
    agent,
    day,
    value.spent.toString(),
    value.blocked ? 1 : 0,
  );
}

function spendOf(row: SqlRow): Spend {
  return {
    agent: textOf(row, "agent"),
    state: textOf(row, "state") as SpendState,
    day: numberOrNull(row, "day"),
    granted: BigInt(textOf(row, "granted")),
    charged: BigInt(textOf(row, "charged")),
  };
}
