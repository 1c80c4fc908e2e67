/**
 * Reads what a command reported to have spent, from the file in its run directory that
 * `CHB_SPEND_FILE` names.
 *
 * @module
 */
import { SPEND_FILE } from "../policy/resolve_command.ts";
import { readPlain } from "./read_plain.ts";
import { runDir } from "./run_dir.ts";

/** Longest report that is read, bytes. */
const MAX_BYTES = 64;

/** The text of a run's report, or null when there is none that can be read. Never throws. */
export function readReport(run: string, root = "."): string | null {
  return readPlain(`${runDir(run, root)}/${SPEND_FILE}`, MAX_BYTES)?.toString("latin1") ?? null;
}
