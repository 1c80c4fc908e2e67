/**
 * Reads a file whose name a command wrote. It may be anything: it is opened without waiting for
 * anybody, read only when it is a plain file with this one name, once, and no more than a bound.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { closeSync, constants, fstatSync, lstatSync, openSync, readSync } from "node:fs";

/**
 * The bytes of a plain file.
 *
 * @param max bytes; of a longer file nothing is read
 * @returns null when it is longer, no plain file, or another one than was looked at. Never throws
 */
export function readPlain(path: string, max: number): Buffer | null {
  let fd: number | null = null;
  try {
    const before = lstatSync(path, { bigint: true });
    if (!before.isFile() || before.nlink !== 1n || before.size > BigInt(max)) return null;
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const open = fstatSync(fd, { bigint: true });
    if (open.dev !== before.dev || open.ino !== before.ino || !open.isFile()) return null;
    const buffer = Buffer.alloc(max + 1);
    let length = 0;
    while (length < buffer.length) {
      const n = readSync(fd, buffer, length, buffer.length - length, length);
      if (n === 0) return buffer.subarray(0, length);
      length += n;
    }
    return null;
  } catch {
    return null;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}
