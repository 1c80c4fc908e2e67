/**
 * What a control command is: something that a human asks of the ledger's one writer, as data in a
 * file or handed over by the process that holds the lock itself.
 *
 * 1. A command acts through `once`: its effect and the control's name are stored in one transaction,
 *    so a file that is found again after a crash is answered as before and not applied twice.
 * 2. Nothing that an agent writes reaches a command; its words are still checked by `parse`, since
 *    whoever can write `state/control/` by mistake must not end the daemon.
 *
 * @module
 */
import type { Ledger, Tx } from "../ledger/ledger.ts";
import type { Row } from "../ledger/types.ts";
import type { Core } from "./core.ts";
import type { Reaper } from "./reaper.ts";
import type { Work } from "./work.ts";

/** What became of a command. */
export interface ControlAnswer {
  readonly ok: boolean;
  readonly message: string;
  /** Whatever else the command tells, for `--json` and for its own words. */
  readonly data?: Readonly<Record<string, unknown>>;
}

/** What a running daemon holds in memory and a command may have to change along. */
export interface Live {
  readonly core: Core;
  readonly work: Work;
  readonly reaper: Reaper;
  /** The trusted policy is another one now. */
  policyChanged(): void;
  /** A kill switch went up or down: what waits is answered, and agents see it. */
  switchesChanged(): void;
  /** The loop has something new to look at. */
  wake(): void;
}

/** Where a command acts. */
export interface ControlContext {
  readonly ledger: Ledger;
  /** The control's name, unique for ever. */
  readonly name: string;
  /** Who says so, as claimed; may be empty. */
  readonly by: string;
  /** Wall clock, milliseconds. */
  readonly now: () => number;
  /** The daemon's memory; null when a human command holds the lock and does the work itself. */
  readonly live: Live | null;
  /** Publishes the result of a row as the ledger has it now, under every id. Call it after `once`. */
  publish(row: Row, released?: readonly string[]): void;
}

/** One command. */
export interface ControlCommand<A> {
  readonly name: string;
  /** The checked arguments, or null when they are not what the command takes. */
  parse(value: Readonly<Record<string, unknown>>): A | null;
  /**
   * Does it. A refusal (`ok: false`) changes nothing.
   *
   * @throws {LedgerError} when it could not be stored
   */
  apply(context: ControlContext, args: A): ControlAnswer;
}

const LAST = "control.last";

/**
 * The one transaction of a command.
 *
 * @param effect changes the ledger and says the answer; an answer that is not ok rolls all back
 */
export function once(context: ControlContext, effect: (tx: Tx) => ControlAnswer): ControlAnswer {
  let refused: ControlAnswer | null = null;
  try {
    return context.ledger.transaction((tx) => {
      const answer = effect(tx);
      if (!answer.ok) {
        refused = answer;
        throw new Refused();
      }
      tx.setMeta(LAST, JSON.stringify({ name: context.name, answer }));
      return answer;
    });
  } catch (error) {
    if (refused !== null && isRefused(error)) return refused;
    throw error;
  }
}

/** The answer that a control of this name was given before, or null. */
export function answeredBefore(ledger: Ledger, name: string): ControlAnswer | null {
  const text = ledger.meta(LAST);
  if (text === null) return null;
  const last: { name: string; answer: ControlAnswer } = JSON.parse(text);
  return last.name === name ? last.answer : null;
}

class Refused extends Error {
  override name = "Refused";
}

function isRefused(error: unknown): boolean {
  return error instanceof Refused || (error instanceof Error && error.cause instanceof Refused);
}
