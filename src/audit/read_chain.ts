/**
 * The audit text read as a chain, from its first record to its last: what a ledger that has lost
 * something is settled with. Memory is bounded, time grows with the text.
 *
 * @module
 */
import { closeSync, constants, openSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { StoredRecord } from "../ledger/types.ts";
import { readLine } from "./chain.ts";
import { listSegments } from "./segments.ts";
import { lines } from "./text_file.ts";

/** A record of the text, with the hash of the one before it. */
export interface ChainRecord extends StoredRecord {
  readonly prev: string;
}

/**
 * Every record in order, each proven to follow the one before. Bytes after the last whole line of
 * the text are passed over: they are a line that was being written.
 *
 * @param path the text; its segments lie beside it
 * @throws {LedgerError} `corrupt` at the first line that does not hold
 * @throws a system error
 */
export function* readChain(path: string): Generator<ChainRecord> {
  let before: ChainRecord | null = null;
  for (const file of [...listSegments(path).map((segment) => segment.path), path]) {
    let fd: number;
    try {
      fd = openSync(file, constants.O_RDONLY);
    } catch (error) {
      if (errorCode(error) === "ENOENT") continue;
      throw error;
    }
    try {
      for (const { line, torn } of lines(fd)) {
        const parts = readLine(line);
        if (parts === null && torn && file === path) return;
        const follows = parts !== null &&
          (before === null || (parts.seq === before.seq + 1 && parts.prev === before.hash));
        if (!follows) {
          const seq = before === null ? 1 : before.seq + 1;
          throw new LedgerError("corrupt", `Cannot read audit text: record ${seq} does not hold`);
        }
        before = { ...parts, line };
        yield before;
      }
    } finally {
      closeSync(fd);
    }
  }
}
