/**
 * Makes a file that did not exist and writes all of it.
 *
 * Rules
 * 1. Created with O_EXCL: a link or file that is already there is an error, never written through
 *    (P4, Q3).
 * 2. A write may take only a part, so it is repeated until all is written (S1).
 * 3. The mode is set through the descriptor: the process's umask has no say (Q12), and no name is
 *    followed for it.
 * 4. When anything fails the file is removed again.
 *
 * @module
 */
import { closeSync, constants, fchmodSync, openSync, unlinkSync, writeSync } from "node:fs";

/** Opens a file that must not exist yet, for writing, with exactly this mode. */
export function createNew(path: string, mode: number): number {
  // Nobody but the owner until the mode is set.
  const fd = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
  try {
    fchmodSync(fd, mode);
    return fd;
  } catch (error) {
    closeSync(fd);
    removeQuietly(path);
    throw error;
  }
}

/**
 * Writes all bytes at the descriptor's place.
 *
 * @throws the system error that ended it; a part may have been written then, and only the size of the
 *   file tells how much
 */
export function writeAll(fd: number, bytes: Uint8Array): void {
  let done = 0;
  while (done < bytes.length) {
    const count = writeSync(fd, bytes, done, bytes.length - done);
    if (count <= 0) throw Object.assign(new Error("Cannot write: no progress"), { code: "EIO" });
    done += count;
  }
}

/**
 * Makes a whole file, or none.
 *
 * @throws a system error: EEXIST, ENOSPC…
 */
export function writeNewFile(path: string, bytes: Uint8Array, mode: number): void {
  const fd = createNew(path, mode);
  try {
    try {
      writeAll(fd, bytes);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    removeQuietly(path);
    throw error;
  }
}

/** Removes what this process has just made; a failure leaves it to the sweep at start. */
export function removeQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // The error that led here is the one to be told.
  }
}
