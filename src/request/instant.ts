/**
 * A moment as a signed request or a key file names it: UTC, ISO 8601, whole seconds or milliseconds,
 * and nothing that could be read in two ways.
 *
 * @module
 */

const INSTANT = /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3})?Z$/;

/** What is right for an instant, in words that follow "must be". */
export const INSTANT_WORDS = "a moment in UTC such as 2026-01-31T12:00:00Z, or with .123";

/**
 * Milliseconds since the epoch, or null when the text is no such moment: another form, a day that
 * its month does not have, the hour 24, a leap second.
 */
export function parseInstant(text: string): number | null {
  if (!INSTANT.test(text)) return null;
  const ms = Date.parse(text);
  // The runtime takes 30 February for 2 March.
  if (!Number.isFinite(ms)) return null;
  return new Date(ms).toISOString().slice(0, 19) === text.slice(0, 19) ? ms : null;
}
