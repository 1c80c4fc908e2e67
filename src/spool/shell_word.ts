/**
 * A text as one word of a POSIX shell, for the commands that are shown to a human.
 *
 * @module
 */

/**
 * Quotes when needed.
 *
 * @param text without control characters; those would not survive being copied from a terminal
 */
export function shellWord(text: string): string {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(text)) return text;
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
