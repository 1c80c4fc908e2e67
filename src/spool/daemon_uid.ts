/**
 * Who this process is. The runtime tells it to nobody without a permission for system information,
 * but a file just made belongs to its maker.
 *
 * @module
 */
import { closeSync, constants, fstatSync, openSync, unlinkSync } from "node:fs";
import { randomHex } from "../names.ts";

/**
 * The numeric user that this process is. Write permission on `./state`.
 *
 * @throws a system error when no file can be made in `state/`
 */
export function daemonUid(): number {
  const path = `state/.uid-${randomHex(8)}`;
  const fd = openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
  try {
    return Number(fstatSync(fd, { bigint: true }).uid);
  } finally {
    closeSync(fd);
    unlinkSync(path);
  }
}
