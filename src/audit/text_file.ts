/**
 * The lines of an audit text on disk, found from its end or read from its start with bounded memory.
 *
 * @module
 */
import { readSync } from "node:fs";
import type { RecordRef } from "../ledger/types.ts";
import { MAX_LINE, readLine } from "./chain.ts";

/** The last sound line of a text, and where it ends. */
export interface TextEnd {
  readonly head: RecordRef | null;
  readonly line: string;
  /** Offset after its newline; 0 for a text without a sound line. */
  readonly end: number;
}

const CHUNK = 64 * 1024;
const NEWLINE = 0x0a;

/** The last sound line, looked for from the end. */
export function findEnd(fd: number, size: number): TextEnd {
  let stop = previousNewline(fd, size);
  while (stop >= 0) {
    const start = previousNewline(fd, stop) + 1;
    if (stop - start <= MAX_LINE) {
      const line = readText(fd, start, stop);
      const parts = readLine(line);
      if (parts !== null) {
        return { head: { seq: parts.seq, hash: parts.hash }, line, end: stop + 1 };
      }
    }
    stop = start - 1;
  }
  return { head: null, line: "", end: 0 };
}

/** What follows the last newline, when it is a sound line that lacks only its own. */
export function unended(fd: number, end: number, size: number): TextEnd {
  const line = size - end <= MAX_LINE ? readText(fd, end, size) : "";
  const parts = readLine(line);
  return parts === null
    ? { head: null, line: "", end }
    : { head: { seq: parts.seq, hash: parts.hash }, line, end };
}

/** Offset of the last newline before `before`, or -1. */
function previousNewline(fd: number, before: number): number {
  const chunk = new Uint8Array(CHUNK);
  for (let stop = before; stop > 0;) {
    const start = Math.max(0, stop - CHUNK);
    readFully(fd, chunk, start, stop - start);
    const at = chunk.subarray(0, stop - start).lastIndexOf(NEWLINE);
    if (at >= 0) return start + at;
    stop = start;
  }
  return -1;
}

/** Bytes as text, one character a byte: anything above ASCII is no sound line anyway. */
function readText(fd: number, start: number, stop: number): string {
  const bytes = new Uint8Array(stop - start);
  readFully(fd, bytes, start, bytes.length);
  return new TextDecoder("latin1").decode(bytes);
}

function readFully(fd: number, into: Uint8Array, start: number, length: number): void {
  for (let done = 0; done < length;) {
    const got = readSync(fd, into, done, length - done, start + done);
    // The file shrank while it was read: the rest is nothing that could be a sound line.
    if (got === 0) {
      into.fill(0, done, length);
      return;
    }
    done += got;
  }
}

/** The lines of a text, the last one marked when it has no end. Bounded memory. */
export function* lines(fd: number): Generator<{ readonly line: string; readonly torn: boolean }> {
  const chunk = new Uint8Array(CHUNK);
  const decoder = new TextDecoder("latin1");
  let carry = "";
  for (let offset = 0;;) {
    const got = readSync(fd, chunk, 0, CHUNK, offset);
    if (got === 0) break;
    offset += got;
    const parts = (carry + decoder.decode(chunk.subarray(0, got))).split("\n");
    carry = parts.pop() ?? "";
    for (const line of parts) yield { line, torn: false };
    // One byte more than the longest sound line proves that it is none; the rest does not matter.
    if (carry.length > MAX_LINE) break;
  }
  if (carry !== "") yield { line: carry, torn: true };
}

/** The first line of a text, or null when it has none that is whole. */
export function firstLine(fd: number): string | null {
  for (const { line, torn } of lines(fd)) return torn ? null : line;
  return null;
}
