/**
 * Texts that an agent wrote, as a person reads them: escaped, and each line behind a bar, so that
 * nothing in them can be taken for something that this program says.
 *
 * @module
 */
import { printable } from "../names.ts";

/** Longest line before it is broken, characters. */
const WIDTH = 76;

/** The text in lines that each begin with `| `. */
export function quoted(text: string): string {
  const lines = text.split(/\r\n|\r|\n|\u2028|\u2029/).flatMap((line) => {
    const safe = printable(line, 1_000_000);
    const parts: string[] = [];
    for (let at = 0; at < safe.length || at === 0; at += WIDTH) {
      parts.push(safe.slice(at, at + WIDTH));
    }
    return parts;
  });
  return lines.map((line) => `| ${line}`.trimEnd() + "\n").join("");
}
