/**
 * The identities of an agent's role directories as the last start found them.
 *
 * @module
 */
import type { Ledger } from "../ledger/ledger.ts";
import type { Pins } from "../spool/pins.ts";

/** The pins that an earlier start kept in the ledger, or null. */
export function storedPins(ledger: Ledger, agent: string): Pins | null {
  const text = ledger.meta(`pins.${agent}`);
  return text === null ? null : JSON.parse(text);
}

/** Every agent of which pins were kept, served by now or not. */
export function pinnedAgents(ledger: Ledger): string[] {
  return ledger.metaNames("pins.").map((name) => name.slice("pins.".length));
}
