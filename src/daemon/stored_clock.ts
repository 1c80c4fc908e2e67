/**
 * What the ledger knows of the bridge's clock: a reading that was stored at a stop or after the wall
 * clock was set, and the starts of requests, each of which carries one.
 *
 * @module
 */
import type { Ledger, Tx } from "../ledger/ledger.ts";
import type { BridgeClock, ClockReading } from "./bridge_clock.ts";

const NAME = "clock";
/** Starts that are looked at; the newest by arrival need not be the latest. */
const STARTS = 64;

/** Every reading that the ledger has. */
export function storedClock(ledger: Ledger): ClockReading[] {
  const text = ledger.meta(NAME);
  const stored: ClockReading[] = text === null ? [] : [JSON.parse(text)];
  return [...stored, ...ledger.lastStarts(STARTS)];
}

/** Stores a reading. */
export function storeClock(tx: Tx, clock: BridgeClock): void {
  tx.setMeta(NAME, JSON.stringify(clock.reading()));
}
