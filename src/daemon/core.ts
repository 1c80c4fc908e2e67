/**
 * The parts of a serving daemon, as its modules share them.
 *
 * @module
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { AgentPolicy, Limits, Policy } from "../policy/policy.ts";
import type { ShimPool } from "../run/pool.ts";
import type { StuckList } from "../spool/stuck.ts";
import type { Answers } from "./answers.ts";
import type { BridgeClock } from "./bridge_clock.ts";
import type { KeyStore } from "./key_store.ts";
import type { Log } from "./log.ts";
import type { NotifyEvent } from "./notifier.ts";
import type { Publisher } from "./publisher.ts";
import type { Runs } from "./runs.ts";
import type { Slots } from "./slots.ts";
import type { Spends } from "./spends.ts";
import type { TrustStore } from "./trust_store.ts";

export interface Core {
  readonly ledger: Ledger;
  readonly trust: TrustStore;
  readonly keys: KeyStore;
  readonly slots: Slots;
  readonly answers: Answers;
  readonly pool: ShimPool;
  readonly runs: Runs;
  readonly publisher: Publisher;
  readonly stuck: StuckList;
  readonly log: Log;
  /** Brings the audit text up to the last commit. */
  readonly appendText: () => void;
  /** Wall clock, milliseconds. */
  readonly now: () => number;
  /** The clock by which rates and days of spending are counted. */
  readonly clock: BridgeClock;
  readonly spends: Spends;
  /** Tells a human, where the policy names a program for it. Never waits and never throws. */
  notify(event: NotifyEvent, id: string): void;
  /** The limits in force: the trusted policy's, or the defaults. */
  limits(): Limits;
  policy(): Policy | null;
  agentPolicy(agent: string): AgentPolicy | null;
  /** The name of the raised kill switch, or null. */
  kill(agent: string): string | null;
  owners(agent: string): ReadonlySet<number> | "any";
  /** The daemon is on its way out: nothing starts any more. */
  stopping(): boolean;
}
