/**
 * Makes directories with exactly the wanted mode and group, whatever the umask.
 *
 * Rules
 * 1. A directory is made with no rights for others and gets its mode through a descriptor that was
 *    compared with a look at the path: no name is followed to a place of somebody else's choosing
 *    (P5, Q12).
 * 2. A directory that exists is left as it is; whether it is right is for the checks to say.
 *
 * @module
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  mkdirSync,
  openSync,
} from "node:fs";
import { errorCode } from "../errors.ts";
import { look, lookOf } from "./look.ts";

/**
 * Makes one directory if nothing has the name.
 *
 * @param group numeric id, or null to leave it
 * @returns true when it was made
 * @throws a system error; EPERM when the group is not one of this user's, EACCES under a umask that
 *   takes rights from the owner
 */
export function makeDirectory(path: string, mode: number, group: number | null = null): boolean {
  try {
    mkdirSync(path, 0o700);
  } catch (error) {
    if (errorCode(error) === "EEXIST") return false;
    throw error;
  }
  setDirectoryMode(path, mode, group);
  return true;
}

/**
 * Sets mode and group of a directory.
 *
 * @throws {TypeError} when the path is no directory or was exchanged in between
 * @throws a system error
 */
export function setDirectoryMode(path: string, mode: number, group: number | null = null): void {
  const looked = look(path);
  if (looked?.kind !== "directory") {
    throw new TypeError(`Cannot set mode: "${path}" is no directory`);
  }
  const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NONBLOCK);
  try {
    const opened = lookOf(fstatSync(fd, { bigint: true }));
    if (opened.dev !== looked.dev || opened.ino !== looked.ino) {
      throw new TypeError(`Cannot set mode: "${path}" was exchanged`);
    }
    // The group first: changing it clears the set-group-id bit.
    if (group !== null) fchownSync(fd, looked.uid, group);
    fchmodSync(fd, mode);
  } finally {
    closeSync(fd);
  }
}
