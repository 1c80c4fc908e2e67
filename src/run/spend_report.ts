/**
 * Reads what a command reported to have spent, from the file in its run directory that
 * `CHB_SPEND_FILE` names.
 *
 * The command wrote the name, so it may be anything: it is opened without waiting for anybody, read
 * only when it is a plain file of its own, once, and no more than a few bytes of it.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { closeSync, constants, fstatSync, lstatSync, openSync, readSync } from "node:fs";
import { SPEND_FILE } from "../policy/resolve_command.ts";
import { runDir } from "./run_dir.ts";

/** Longest report that is read, bytes. */
const MAX_BYTES = 64;

/** The text of a run's report, or null when there is none that can be read. Never throws. */
export function readReport(run: string, root = "."): string | null {
  let fd: number | null = null;
  try {
    const path = `${runDir(run, root)}/${SPEND_FILE}`;
    const before = lstatSync(path, { bigint: true });
    if (!before.isFile() || before.nlink !== 1n || before.size > BigInt(MAX_BYTES)) return null;
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const open = fstatSync(fd, { bigint: true });
    if (open.dev !== before.dev || open.ino !== before.ino || !open.isFile()) return null;
    const buffer = Buffer.alloc(MAX_BYTES + 1);
    const n = readSync(fd, buffer, 0, buffer.length, 0);
    return n > MAX_BYTES ? null : buffer.subarray(0, n).toString("latin1");
  } catch {
    return null;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}
