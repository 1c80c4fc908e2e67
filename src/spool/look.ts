/**
 * Looks at an entry without opening or following it. Every decision of this room starts from such a
 * look; device and inode numbers stay exact, because identities are compared by them.
 *
 * @module
 */
import { type BigIntStats, lstatSync } from "node:fs";
import { errorCode } from "../errors.ts";
import type { Look } from "./types.ts";

/**
 * What `lstat` says of a path. A symlink as last component is not followed, in earlier components it
 * is; the callers pin the directories that they pass.
 *
 * @returns null when there is nothing
 * @throws a system error for everything but ENOENT
 */
export function look(path: string): Look | null {
  let stats: BigIntStats;
  try {
    stats = lstatSync(path, { bigint: true });
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
  return lookOf(stats);
}

/** The same from the stats of an open descriptor. */
export function lookOf(stats: BigIntStats): Look {
  return {
    kind: stats.isFile()
      ? "file"
      : stats.isDirectory()
      ? "directory"
      : stats.isSymbolicLink()
      ? "symlink"
      : "other",
    dev: stats.dev.toString(),
    ino: stats.ino.toString(),
    nlink: Number(stats.nlink),
    uid: Number(stats.uid),
    size: Number(stats.size),
    ctime_ms: Number(stats.ctimeMs),
    mtime_ms: Number(stats.mtimeMs),
    mode: Number(stats.mode) & 0o7777,
    ...(stats.isFIFO() ? { fifo: true as const } : {}),
  };
}
