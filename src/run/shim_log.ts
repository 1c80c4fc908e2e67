/**
 * The shim's own diagnostics: a bounded text file in the directory of the run that they are about.
 * A shim has no terminal and no pipe for them, and nothing that goes wrong here may matter.
 *
 * @module
 */
import { printable } from "../names.ts";
import { writeAll } from "./bounded_file.ts";
import { RUN_FILES } from "./order.ts";

/** Most bytes of one run's log. */
const LOG_BYTES_MAX = 64 * 1024;

/** Diagnostics of one run, or of none. */
export class ShimLog {
  readonly #path: string | null;
  #left = LOG_BYTES_MAX;

  /** @param dir the run directory, or null for a shim that has no run: then lines are dropped */
  constructor(dir: string | null) {
    this.#path = dir === null ? null : `${dir}/${RUN_FILES.log}`;
  }

  /** Appends one line: time, event, and what an error says, escaped. Never throws. */
  line(event: string, error?: unknown): void {
    if (this.#path === null) return;
    const what = error === undefined ? "" : ` ${printable(String(error), 500)}`;
    const bytes = new TextEncoder().encode(`${new Date().toISOString()} ${event}${what}\n`);
    if (bytes.length > this.#left) return;
    this.#left -= bytes.length;
    try {
      using file = Deno.openSync(this.#path, { append: true, create: true, mode: 0o600 });
      writeAll(file, bytes);
    } catch {
      // There is nowhere left to say so.
    }
  }
}
