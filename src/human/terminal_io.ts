/**
 * Standard input, output and error as human commands use them.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError } from "../errors.ts";
import type { Io } from "./command.ts";

/**
 * Writes all of a text. A reader that went away ends the matter quietly; anything else does not,
 * since a file that was cut short looks like a whole one.
 *
 * @throws the system error, such as that of a full disk
 */
function write(stream: { writeSync(p: Uint8Array): number }, text: string): void {
  const bytes = new TextEncoder().encode(text);
  try {
    let written = 0;
    while (written < bytes.length) written += stream.writeSync(bytes.subarray(written));
  } catch (error) {
    // The pipe is closed: nobody reads any more.
    if (errorCode(error) !== "EPIPE") throw error;
  }
}

/** The process's own terminal. */
export function terminalIo(): Io {
  return {
    out: (text) => write(Deno.stdout, text),
    err: (text) => write(Deno.stderr, text),
    isTerminal: () => Deno.stdout.isTerminal(),
    stdin(max) {
      const parts: Uint8Array[] = [];
      let total = 0;
      for (;;) {
        const buffer = new Uint8Array(65536);
        const n = Deno.stdin.readSync(buffer);
        if (n === null) break;
        total += n;
        if (total > max) {
          throw new ExitError(EXIT.config, `standard input is larger than ${max} bytes`);
        }
        parts.push(buffer.subarray(0, n));
      }
      const all = new Uint8Array(total);
      let at = 0;
      for (const part of parts) {
        all.set(part, at);
        at += part.length;
      }
      return all;
    },
    ask(question) {
      return Deno.stdin.isTerminal() ? prompt(question) : null;
    },
  };
}
