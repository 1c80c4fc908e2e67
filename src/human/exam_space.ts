/**
 * Whether there is room to go on: a file of some size is written and removed, since the program may
 * not ask the system how much is free.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { randomHex } from "../names.ts";
import { noRoom } from "../spool/check_layout.ts";
import type { Finding } from "../spool/types.ts";
import { found } from "./exam.ts";

/** Bytes that must still fit: what the output of a run may come to by default. */
const ROOM = 16 * 1024 * 1024;
const CHUNK = 1024 * 1024;

/** Whether `ROOM` bytes fit into a directory. */
export function examSpace(directory: string): Finding[] {
  const path = `${directory}/.space-${randomHex(8)}`;
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(path, { write: true, createNew: true, mode: 0o600 });
  } catch (error) {
    // No names left, read-only, a device that fails.
    const code = errorCode(error);
    if (code === undefined) throw error;
    const { why, mend } = noRoom(directory, code);
    const message = `${directory} takes no new file (${code}): ${why}`;
    return [found("error", "not-writable", directory, message, mend)];
  }
  try {
    const chunk = new Uint8Array(CHUNK);
    for (let written = 0; written < ROOM;) written += file.writeSync(chunk);
    return [];
  } catch (error) {
    const code = errorCode(error);
    if (code !== "ENOSPC" && code !== "EDQUOT") throw error;
    const message = `Less than ${ROOM / CHUNK} MiB are free in it (${code}): make room; ` +
      "./bin/chb reap removes what is too old";
    return [found("error", "no-space", directory, message, "")];
  } finally {
    file.close();
    Deno.removeSync(path);
  }
}
