/**
 * What a human is told of: that a request waits for their word, that nobody knows what became of
 * one, that a kill switch went up, that an entry is stuck.
 *
 * @module
 */

/** What happened, as `{event}` names it. */
export type NotifyEvent = "approval" | "uncertain" | "kill" | "stuck";
