/**
 * The life of a request as a closed table: from which state what leads to which. Whoever changes a
 * state asks this table, so no other pair can ever be published.
 *
 * @module
 */
import type { State } from "./codes.ts";

/** One allowed move. `from` is null for a request that nothing is known of yet. */
export interface Transition {
  readonly from: State | null;
  readonly event: string;
  readonly to: State;
  /** Who decides it. */
  readonly by: string;
  /** What happened. */
  readonly when: string;
  /** What a crash leaves that comes right after the commit, and who mends it. */
  readonly crash: string;
}

const TABLE = [
  {
    from: null,
    event: "accept-waiting",
    to: "pending",
    by: "daemon",
    when: "Every check passed, and a human is to be asked, or slot or lock are taken",
    crash: "the claim: the next start finds it recorded, publishes the row and removes it",
  },
  {
    from: null,
    event: "accept-starting",
    to: "running",
    by: "daemon",
    when: "Every check passed, and a slot and a shim are free",
    crash: "an order that nobody took: the next start voids it and the request waits",
  },
  {
    from: null,
    event: "accept-loss",
    to: "uncertain",
    by: "human command",
    when: "The ledger had lost it, and the audit log knows that it was accepted",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "accept-loss",
    to: "uncertain",
    by: "human command",
    when: "The ledger was older than the audit log, which knows more of it",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "running",
    event: "accept-loss",
    to: "uncertain",
    by: "human command",
    when: "The ledger was older than the audit log, which knows more of it",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "start",
    to: "running",
    by: "daemon",
    when: "Slot and lock became free, kill switch and base were looked at again",
    crash: "an order that nobody took: the next start voids it and the request waits",
  },
  {
    from: "pending",
    event: "approve",
    to: "pending",
    by: "human, recorded by who holds the ledger",
    when: "A human said yes to exactly what would run; it waits for slot and lock",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "void-approval",
    to: "pending",
    by: "daemon",
    when: "What a human said yes to has changed since; it waits for another word",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "deny",
    to: "done",
    by: "human, recorded by who holds the ledger",
    when: "A human said no",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "lapse",
    to: "done",
    by: "daemon",
    when: "No human answered within the time that the policy gives them",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "expire",
    to: "done",
    by: "daemon",
    when: "It waited longer than its age limit",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "turn-down",
    to: "done",
    by: "daemon",
    when: "Kill switch, base or policy stood against the start; id and key are free again",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "cancel",
    to: "done",
    by: "daemon, or a human command while none runs",
    when: "Its agent or a human cancelled it before it started",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "pending",
    event: "not-again",
    to: "uncertain",
    by: "daemon",
    when:
      "Another attempt was to start and must not: too old, or kill switch, base or policy stood " +
      "against it. What the earlier attempt did is still not known",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "running",
    event: "end",
    to: "done",
    by: "shim, recorded by the daemon",
    when: "The command ended, or was ended at its time limit or by a cancel",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "running",
    event: "not-started",
    to: "done",
    by: "shim, recorded by the daemon",
    when: "The shim found a reason not to start it; id and key are free again",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "running",
    event: "cancel",
    to: "done",
    by: "daemon",
    when: "It was cancelled, and then turned out never to have started",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "running",
    event: "not-again",
    to: "uncertain",
    by: "shim, recorded by the daemon",
    when:
      "The shim found a reason not to start another attempt. What the earlier one did is still " +
      "not known",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "running",
    event: "look-up",
    to: "done",
    by: "daemon",
    when: "What ran it died without a record, and the verb's lookup says whether it was done",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "running",
    event: "void",
    to: "pending",
    by: "daemon",
    when: "No shim took the order, and the daemon voided it: it never started",
    crash: "a voided order: the next start finds the row waiting",
  },
  {
    from: "running",
    event: "rerun",
    to: "pending",
    by: "daemon",
    when: "What ran it died without a record, nothing of it lives, and its verb may run again or " +
      "its lookup says that it was not done",
    crash: "the row waits for its second attempt",
  },
  {
    from: "running",
    event: "lose",
    to: "uncertain",
    by: "daemon",
    when: "What ran it died without a record",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "uncertain",
    event: "resolve",
    to: "done",
    by: "daemon, or a human command while none runs",
    when: "A human looked and says that it was done, or that it failed",
    crash: "an unpublished row: the next start publishes it",
  },
  {
    from: "uncertain",
    event: "retry",
    to: "pending",
    by: "daemon, or a human command while none runs",
    when: "A human looked and lets it start once more",
    crash: "the row waits for its next attempt",
  },
] as const satisfies readonly Transition[];

/** Every allowed move. */
export const TRANSITIONS: readonly Transition[] = Object.freeze(TABLE);

/** Names of what can happen to a request. */
export type TransitionEvent = (typeof TABLE)[number]["event"];

/**
 * The state that an event leads to.
 *
 * @throws {RangeError} when the table has no such move; nothing may be recorded then
 */
export function transition(from: State | null, event: TransitionEvent): State {
  const row = TRANSITIONS.find((t) => t.from === from && t.event === event);
  if (row === undefined) {
    throw new RangeError(`Cannot move request: nothing leads from ${from} by "${event}"`);
  }
  return row.to;
}
