/**
 * What every part of reaping uses, and what it counts.
 *
 * @module
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { Horizon } from "../ledger/reap_reads.ts";
import type { Limits, Retention } from "../policy/policy.ts";
import type { Log } from "./log.ts";

/** Milliseconds of a day. */
export const DAY_MS = 24 * 3_600_000;

/** Files and rows that were removed, by kind. */
export interface ReapCounts {
  /** Finished requests whose result and output files were removed. */
  results: number;
  /** Files of answers that bound nothing: refusals, replies of built-in verbs. */
  answers: number;
  /** Requests that were forgotten with their keys. */
  rows: number;
  /** Notes in `inbox/refused/`. */
  notes: number;
  /** Copies of refused files. */
  copies: number;
  /** Directories of finished runs with their raw output. */
  runs: number;
  /** Policies that nothing refers to any more. */
  policies: number;
}

export function noCounts(): ReapCounts {
  return { results: 0, answers: 0, rows: 0, notes: 0, copies: 0, runs: 0, policies: 0 };
}

/** Where reaping happens. */
export interface ReapContext {
  readonly ledger: Ledger;
  readonly log: Log;
  readonly limits: Limits;
  readonly retention: Retention;
  /** The wall clock, milliseconds since the epoch. */
  readonly now: () => number;
  /** True for a run that this process still follows. */
  readonly isActive: (run: string) => boolean;
  readonly counts: ReapCounts;
  /** How far the ledger had got so many milliseconds ago, by the retention clock. */
  horizon(age_ms: number): Horizon | null;
}

/**
 * One part of a round. It yields after each small unit of work, so that whoever drives it can do
 * something else in between, or stop for good: what is left is found again by the next round.
 */
export type ReapJob = Generator<void, void, void>;

/** Milliseconds of work after which a job yields. */
export const UNIT_MS = 3;
