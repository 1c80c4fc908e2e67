/**
 * What becomes of a claim after its answer is recorded: it goes away, whatever it is.
 *
 * Rules
 * 1. By now the entry lies under a name that only the host can change, so what the look said still
 *    holds (P2, P21).
 * 2. Nothing is opened to be removed. A directory is never entered (P10).
 * 3. What cannot be removed is said once, by its error code, and is no fault of the pass (Q7).
 * 4. One exception to opening nothing special, which the runtime makes necessary: its watcher opens
 *    every entry that it tells of, and on a named pipe it waits there for a writer, for ever. A pipe
 *    is opened for writing, without waiting, and closed: that lets such a reader go and fails at once
 *    (ENXIO) when there is none. No byte passes (P7).
 *
 * @module
 */
import { closeSync, constants, openSync, unlinkSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { MAX_COPY_BYTES, storeCopy, takeDirectory } from "./quarantine.ts";
import { readHead } from "./read_claim.ts";
import type { Claim } from "./types.ts";

/**
 * Removes the claim of a regular file. One that has gone already is fine.
 *
 * @throws a system error when it cannot be removed
 */
export function dropClaim(claim: Claim): void {
  try {
    unlinkSync(claim.path);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
}

/**
 * Removes a claim that is no regular file; a directory that is not empty goes to quarantine.
 *
 * @returns null when it has left `claims/`, else why it could not: a system error code or
 *   `QUARANTINE-FULL`; the entry is stuck then
 */
export function disposePoison(claim: Claim): string | null {
  if (claim.look.kind === "directory") {
    const name = claim.path.slice(claim.path.lastIndexOf("/") + 1);
    return takeDirectory(claim.agent, claim.path, name);
  }
  try {
    if (claim.look.fifo === true) releaseReaders(claim.path);
    dropClaim(claim);
    return null;
  } catch (error) {
    return errorCode(error) ?? "unknown";
  }
}

/** Rule 4. */
function releaseReaders(path: string): void {
  try {
    closeSync(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK));
  } catch {
    // Nobody reads, or nobody may: then there is nothing to release.
  }
}

/**
 * Keeps a host-made copy of a refused regular file, for a person to look into.
 *
 * @param bytes what was read of it; null reads the first 64 KiB now, if the file can be read safely
 * @returns false when there is nothing that can be copied, or enough were kept in this minute
 * @throws a system error when the copy cannot be stored
 */
export function keepCopy(claim: Claim, bytes: Uint8Array | null): boolean {
  const kept = bytes ?? readHead(claim, MAX_COPY_BYTES);
  if (kept === null) return false;
  return storeCopy(claim.agent, claim, kept);
}
