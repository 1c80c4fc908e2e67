/**
 * The kill switches as one batch of entries sees them. A look at a switch that is down costs more than
 * anything else that is done for a broken entry, and a flood of those would pay for it every time. So
 * they share the looks of their batch; whoever may be served gets one of its own (Q5).
 *
 * @module
 */

export class SwitchLooks {
  readonly #look: (agent: string) => string | null;
  /** What was seen in this batch. */
  readonly #seen = new Map<string, string | null>();
  /** Agents whose switches were looked at for the present entry. */
  readonly #own = new Set<string>();

  /** @param look the name of the switch that is up for an agent, or null; looks each time */
  constructor(look: (agent: string) => string | null) {
    this.#look = look;
  }

  /** A batch begins: what was seen before does not count any more. */
  batch(): void {
    this.#seen.clear();
    this.#own.clear();
  }

  /** The next entry of the batch. */
  entry(): void {
    this.#own.clear();
  }

  /** The switch that was up in this batch, or null. Good enough to refuse by. */
  seen(agent: string): string | null {
    const seen = this.#seen.get(agent);
    return seen === undefined ? this.own(agent) : seen;
  }

  /** The same by a look made for the present entry. */
  own(agent: string): string | null {
    if (!this.#own.has(agent)) {
      this.#seen.set(agent, this.#look(agent));
      this.#own.add(agent);
    }
    return this.#seen.get(agent) ?? null;
  }
}
