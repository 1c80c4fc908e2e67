/**
 * Lets in what comes from outside between two turns: the next names of a scan, what the watcher and
 * the shims say. One round of the event loop carries no more than a step of each, so that between
 * long turns without a pause they would hardly move on, and a request that was found and started
 * would wait for the end of a flood to be told of (Q5).
 *
 * A scan comes to its names a few dozen at a time, each time in another round. While one is under
 * way it has as long as the turn had, so that what came last is found before most of what came first
 * is done.
 *
 * @module
 */
import { setImmediate } from "node:timers";

/** A turn that was shorter needs no pause, milliseconds. */
const SHORT_MS = 2;
/** Longest pause, and the longest one for a scan. */
const LONGEST_MS = 25;
const LONGEST_SCAN_MS = 50;

/**
 * Waits a little.
 *
 * @param turn_ms how long the turn took
 * @param steps steps of scans that are under way; none of them rejects
 */
export async function breathe(turn_ms: number, steps: ReadonlySet<Promise<void>>): Promise<void> {
  if (turn_ms < SHORT_MS) return await new Promise((resolve) => setImmediate(resolve));
  const pause_ms = Math.max(SHORT_MS, Math.min(LONGEST_MS, turn_ms / 4));
  await pause(pause_ms);
  const rest_ms = Math.min(LONGEST_SCAN_MS, turn_ms) - pause_ms;
  if (steps.size === 0 || rest_ms < 1) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, rest_ms);
  await Promise.race([promise, ...steps]);
  clearTimeout(timer);
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
