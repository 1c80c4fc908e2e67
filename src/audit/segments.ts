/**
 * The files that hold the audit text: `audit.jsonl`, which grows, and the segments that were rotated
 * away, `audit.<first>-<last>.jsonl`, named after the records that they hold. The chain goes through
 * all of them: the first record of one follows the last of the one before.
 *
 * @module
 */
import { closeSync, constants, fstatSync, openSync, readdirSync } from "node:fs";
import { dirname } from "@std/path/dirname";
import { errorCode } from "../errors.ts";
import { findEnd, type TextEnd } from "./text_file.ts";

const SUFFIX = ".jsonl";
const RANGE = /^([1-9][0-9]{0,15})-([1-9][0-9]{0,15})$/;

/** A rotated part of the text. */
export interface Segment {
  readonly path: string;
  readonly first: number;
  readonly last: number;
}

/** The path of a segment of the text at `path`. */
export function segmentPath(path: string, first: number, last: number): string {
  return `${path.slice(0, -SUFFIX.length)}.${first}-${last}${SUFFIX}`;
}

/**
 * The segments of the text at `path`, oldest first. Read permission for its directory.
 *
 * @throws a system error; a directory that is not there has no segments
 */
export function listSegments(path: string): Segment[] {
  const directory = dirname(path);
  const stem = path.slice(directory.length + 1, -SUFFIX.length) + ".";
  let names: string[];
  try {
    names = readdirSync(directory);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return [];
    throw error;
  }
  return names.flatMap((name) => {
    if (!name.startsWith(stem) || !name.endsWith(SUFFIX)) return [];
    const range = RANGE.exec(name.slice(stem.length, -SUFFIX.length));
    return range === null
      ? []
      : [{ path: `${directory}/${name}`, first: Number(range[1]), last: Number(range[2]) }];
  }).sort((a, b) => a.first - b.first || a.last - b.last);
}

/** Opens a file of the text for reading; undefined when it is not there. */
export function readText<T>(path: string, use: (fd: number) => T): T | undefined {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}

/** Where the newest segment ends, or null when there is none with a sound line. */
export function lastSegmentEnd(path: string): TextEnd | null {
  const last = listSegments(path).at(-1);
  if (last === undefined) return null;
  const end = readText(last.path, (fd) => findEnd(fd, fstatSync(fd).size));
  return end === undefined || end.head === null ? null : end;
}
