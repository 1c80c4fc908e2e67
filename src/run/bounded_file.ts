/**
 * Small file helpers of this room: read no more than a bound, and write everything although a
 * single write may be short. Only host-only directories are read and written with them.
 *
 * @module
 */

/** Bytes that are read before the size of a file is asked for. */
const FIRST_BYTES = 4096;

/**
 * The content of a file of at most `max` bytes, or null when it is longer.
 *
 * @throws the system error of open or read, `ENOENT` included
 */
export function readBounded(path: string, max: number): Uint8Array<ArrayBuffer> | null {
  using file = Deno.openSync(path, { read: true });
  // Most files here are small: a look at the size would cost more than it spares.
  let buffer = new Uint8Array(Math.min(max, FIRST_BYTES) + 1);
  for (let length = 0;;) {
    const n = file.readSync(buffer.subarray(length));
    if (n === null || n === 0) return buffer.subarray(0, length);
    length += n;
    // The extra byte was filled: the file is longer than the bound.
    if (length > max) return null;
    if (length < buffer.length) continue;
    const larger = new Uint8Array(Math.min(max, Math.max(file.statSync().size, 2 * length)) + 1);
    larger.set(buffer);
    buffer = larger;
  }
}

/**
 * Writes all of `bytes`.
 *
 * @throws the system error of the write that failed; what was written before stays written
 */
export function writeAll(file: Pick<Deno.FsFile, "writeSync">, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) {
    const n = file.writeSync(bytes.subarray(at));
    if (n === 0) throw new Error("Cannot write: the system accepts no byte and names no error");
    at += n;
  }
}

/** Makes a directory's entries durable. */
export function syncDirectory(path: string): void {
  using directory = Deno.openSync(path, { read: true });
  directory.syncSync();
}
