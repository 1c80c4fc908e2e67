/**
 * Lets a group read the audit text, for what ships it to another machine: `audit_gid` of the policy.
 * Nobody but the daemon's user may ever write it, and the group sees nothing else of `state/`: the
 * shipper gets the directory by a bind mount of its own.
 *
 * Modes and groups are set through descriptors; only the directory and the text's own files are
 * touched (P5).
 *
 * @module
 */
import { closeSync, constants, fchmodSync, fchownSync, fstatSync, openSync } from "node:fs";
import { dirname } from "@std/path/dirname";
import { errorCode } from "../errors.ts";
import { look } from "../spool/look.ts";
import { setDirectoryMode } from "../spool/make_directory.ts";
import { listSegments } from "./segments.ts";

const DIRECTORY_MODE = 0o750;
const FILE_MODE = 0o640;

/**
 * Gives a group the right to read the text at `path`, its segments and their directory. Makes an
 * empty text where there is none. Write permission for the directory.
 *
 * @throws a system error; EPERM when the group is none of this user's
 */
export function shareAudit(path: string, group: number): void {
  setDirectoryMode(dirname(path), DIRECTORY_MODE, group);
  for (const file of [...listSegments(path).map((segment) => segment.path), path]) {
    shareFile(file, group);
  }
}

function shareFile(path: string, group: number): void {
  const seen = look(path);
  if (seen !== null && seen.kind !== "file") return;
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NONBLOCK, 0o600);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return;
    throw error;
  }
  try {
    const { uid, gid } = fstatSync(fd);
    if (gid !== group) fchownSync(fd, uid, group);
    fchmodSync(fd, FILE_MODE);
  } finally {
    closeSync(fd);
  }
}
