/**
 * What the audit log says of the kill switches. A switch that somebody raised or lowered by hand is
 * recorded by the daemon when it sees it; one that a command raised is recorded by the command, and
 * seen no second time.
 *
 * @module
 */
import type { Ledger, Tx } from "../ledger/ledger.ts";
import { raisedSwitches, switchAgent, switchText } from "./kill_switch.ts";

/** Where the ledger keeps the switches that were up when it was looked last. */
const SEEN = "switches.seen";

/**
 * How long a command has for its own record of a switch that it has just raised or is about to
 * lower, milliseconds.
 */
const PATIENCE_MS = 3000;

/** The switches that the ledger knows to be up. */
export function seenSwitches(ledger: Ledger): ReadonlySet<string> {
  return new Set(JSON.parse(ledger.meta(SEEN) ?? "[]") as string[]);
}

/** Notes in a transaction that a switch is up or down by now. */
export function noteSwitch(ledger: Ledger, tx: Tx, name: string, up: boolean): void {
  const seen = new Set(seenSwitches(ledger));
  if (up) seen.add(name);
  else seen.delete(name);
  tx.setMeta(SEEN, JSON.stringify([...seen].sort()));
}

/** What a look at the switches found. */
export interface SwitchLook {
  /** Switches that went up and down since the look before. */
  readonly raised: readonly string[];
  readonly lowered: readonly string[];
}

/** Looks at the switches, again and again, and records what nobody else did. */
export class SwitchWatch {
  readonly #ledger: Ledger;
  readonly #now: () => number;
  #up: ReadonlySet<string>;
  /** Switches of which the ledger says otherwise, and since when. */
  readonly #odd = new Map<string, number>();

  /** @param now monotonic clock, milliseconds */
  constructor(ledger: Ledger, now: () => number) {
    this.#ledger = ledger;
    this.#now = now;
    this.#up = seenSwitches(ledger);
  }

  /**
   * Compares the switches with the look before, and with what the ledger knows.
   *
   * @throws {LedgerError} when what differs could not be recorded; the next look tries again
   */
  look(): SwitchLook {
    const before = this.#up;
    const up = new Set(raisedSwitches());
    this.#up = up;
    const seen = seenSwitches(this.#ledger);
    const odd = [...up, ...seen].filter((name) => up.has(name) !== seen.has(name));
    for (const name of this.#odd.keys()) if (!odd.includes(name)) this.#odd.delete(name);
    for (const name of odd) if (!this.#odd.has(name)) this.#odd.set(name, this.#now());
    const due = odd.filter((name) => this.#now() - (this.#odd.get(name) ?? 0) >= PATIENCE_MS);
    if (due.length > 0) {
      this.#ledger.transaction((tx) => {
        for (const name of due) {
          const facts = { ...ofAgent(name), switch: name };
          if (up.has(name)) tx.append({ event: "killed", ...facts, why: switchText(name) });
          else tx.append({ event: "resumed", ...facts });
          noteSwitch(this.#ledger, tx, name, up.has(name));
        }
      });
    }
    return {
      raised: [...up].filter((name) => !before.has(name)),
      lowered: [...before].filter((name) => !up.has(name)),
    };
  }
}

/** The field that names the agent of a switch, when it has one. */
export function ofAgent(name: string): { agent?: string } {
  const agent = switchAgent(name);
  return typeof agent === "string" ? { agent } : {};
}
