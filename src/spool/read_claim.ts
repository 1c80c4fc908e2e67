/**
 * Reads a claimed file: bounded, once, and only if it is the very file that was looked at.
 *
 * Rules
 * 1. What is no regular file with one link is not opened at all; opening a pipe or device can block
 *    or have effects (P7, P8, P9).
 * 2. The open never waits: O_NONBLOCK, should the look have been wrong.
 * 3. The descriptor must be the file of the look taken after the claim's rename: device, inode, type,
 *    links and size are compared before the first byte is read (P1, P2, P4).
 * 4. At most one byte more than the bound is read, whatever the size was said to be (J14).
 * 5. Each byte is read once, and only the returned buffer counts from then on: whoever kept the file
 *    open or mapped may change it as they like (P5). A file that changed while it was read is refused.
 *
 * @module
 */
import { type BigIntStats, closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { lookOf } from "./look.ts";
import { objectRefusal } from "./object_check.ts";
import type { Claim, Look, ReadOutcome } from "./types.ts";

/** Errors of `open` that say that the entry, not the host, is to blame. */
const UNREADABLE: ReadonlySet<string> = new Set(["EACCES", "EPERM", "ELOOP", "ENXIO"]);

/**
 * Reads a claim whole.
 *
 * @param max bytes; a longer file is refused
 * @throws a system error that concerns the host, such as EIO or EMFILE
 */
export function readClaim(claim: Claim, max: number): ReadOutcome {
  const refusal = objectRefusal(claim.look, { size_max: max, owners: "any" });
  if (refusal !== null) return { kind: "refused", ...refusal };
  const fd = openClaim(claim.path);
  if (fd === null) {
    return { kind: "refused", reason: "not-regular", detail: "a file that the host cannot read" };
  }
  try {
    const opened = fstatSync(fd, { bigint: true });
    if (!isSameFile(claim.look, lookOf(opened))) return CHANGED;
    const bytes = readAtMost(fd, max + 1, claim.look.size + 1);
    if (bytes.length > max) {
      return { kind: "refused", reason: "malformed", detail: `larger than ${max} bytes` };
    }
    if (!isUnchanged(opened, fstatSync(fd, { bigint: true }), bytes.length)) return CHANGED;
    return { kind: "bytes", bytes };
  } finally {
    closeSync(fd);
  }
}

/**
 * The first bytes of a claim that was refused, by the same rules but for its size.
 *
 * @param max bytes
 * @returns null when it is not to be opened, or not the file that was looked at
 * @throws a system error that concerns the host
 */
export function readHead(claim: Claim, max: number): Uint8Array | null {
  if (objectRefusal(claim.look, { size_max: Infinity, owners: "any" }) !== null) return null;
  const fd = openClaim(claim.path);
  if (fd === null) return null;
  try {
    const opened = lookOf(fstatSync(fd, { bigint: true }));
    if (!isSameFile({ ...claim.look, size: opened.size }, opened)) return null;
    return readAtMost(fd, max, opened.size + 1);
  } finally {
    closeSync(fd);
  }
}

/** A descriptor to read from, or null when this user may not read it. */
function openClaim(path: string): number | null {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const code = errorCode(error);
    if (code === undefined || !UNREADABLE.has(code)) throw error;
    return null;
  }
}

const CHANGED: ReadOutcome = Object.freeze({
  kind: "refused",
  reason: "malformed",
  detail: "changed while it was read",
});

function isSameFile(looked: Look, opened: Look): boolean {
  return opened.kind === "file" && opened.nlink === 1 && opened.dev === looked.dev &&
    opened.ino === looked.ino && opened.size === looked.size;
}

/** Time stamps are rounded here, so this notices what it can; rule 5 does not depend on it. */
function isUnchanged(before: BigIntStats, after: BigIntStats, read: number): boolean {
  return after.size === BigInt(read) && after.mtimeNs === before.mtimeNs;
}

/**
 * Reads until the end or `limit` bytes. A read may return less than was asked for.
 *
 * @param expected size of the first buffer; it grows when the file turns out longer
 */
function readAtMost(fd: number, limit: number, expected: number): Uint8Array {
  let buffer = new Uint8Array(Math.min(limit, expected));
  let length = 0;
  for (;;) {
    if (length === buffer.length) {
      if (length >= limit) return buffer;
      const larger = new Uint8Array(Math.min(limit, length * 2));
      larger.set(buffer);
      buffer = larger;
    }
    const count = readSync(fd, buffer, length, buffer.length - length, null);
    if (count === 0) return buffer.slice(0, length);
    length += count;
  }
}
