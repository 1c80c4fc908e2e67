/**
 * Looks at entries that nobody made.
 *
 * @module
 */
import type { Look } from "../../src/spool/types.ts";

/** A small regular file of an ordinary user. */
export const FILE: Look = {
  kind: "file",
  dev: "1",
  ino: "2",
  nlink: 1,
  uid: 1000,
  size: 20,
  ctime_ms: 0,
  mtime_ms: 0,
  mode: 0o600,
};
