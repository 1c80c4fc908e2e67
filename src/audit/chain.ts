/**
 * The audit chain: how one event becomes one line, and how a line proves its place. A line is a
 * JSON object in printable ASCII with the members `seq`, `at`, `event`, then the facts of the
 * event, then `prev` and `hash`, in this order, without white space around them.
 *
 * The hash of a line is the SHA-256, in lower-case hex, of the line with its last member taken
 * out: everything before `,"hash":"…"`, and the closing brace. No newline is hashed. `prev` is the
 * hash of the line before; the first line has 64 zeros there. Standard tools check a line:
 *
 * ```sh
 * sed -n 7p audit.jsonl | sed 's/,"hash":"[0-9a-f]*"}$/}/' | tr -d '\n' | sha256sum
 * ```
 *
 * Rules:
 * 1. Every byte of a line lies between 0x20 and 0x7e. Whatever else a text holds (C0, DEL, C1,
 *    line separators, direction marks, half surrogates) becomes `\uXXXX`, so that no field can end
 *    a line, forge one, move a cursor or reverse the reading order (Q11, P18).
 * 2. The members that carry the chain are written by this file alone: an event that brings a field
 *    of one of these names is refused, since a reader that takes the first of two equal names
 *    would see another record than the one that was hashed (Q11, J1).
 * 3. A value that JSON cannot hold is an error of the caller, never a silent `null`: a record
 *    tells what happened or is not written.
 *
 * @module
 */
import { hash as hashOf } from "node:crypto";
import { asciiJson } from "../names.ts";
import { isoTime } from "../result.ts";
import type { AuditEvent, RecordRef, StoredRecord } from "../ledger/types.ts";

/** `prev` of the first record. */
export const GENESIS = "0".repeat(64);

/** The longest line in bytes, newline not counted. Longer ones are neither made nor believed. */
export const MAX_LINE = 1024 * 1024;

const RESERVED: ReadonlySet<string> = new Set(["seq", "at", "event", "prev", "hash"]);
const HEAD = /^\{"seq":([1-9][0-9]{0,15}),"at":"[0-9TZ:.+-]{1,32}","event":"[a-z-]{1,64}"/;
const TAIL = /^,"prev":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}$/;
const PRINTABLE = /^[\x20-\x7e]*$/;
/** Length of `,"prev":"…","hash":"…"}`. */
const TAIL_LENGTH = 149;
/** Length of `,"hash":"…"`. */
const HASH_MEMBER = 74;

/** A line taken apart. */
export interface ChainLine extends RecordRef {
  readonly prev: string;
}

/**
 * The line of an event and its hash.
 *
 * @param seq position in the chain, counted from 1
 * @param at wall-clock milliseconds since the epoch
 * @param prev hash of the record before, or `GENESIS`
 * @throws {TypeError} when a field bears a reserved name or a value that JSON cannot hold
 * @throws {RangeError} when `seq` is not positive and safe, `prev` is no hash, `at` is no time, or
 *   the line would be above `MAX_LINE`
 */
export function recordLine(
  event: AuditEvent,
  seq: number,
  at: number,
  prev: string,
): { readonly line: string; readonly hash: string } {
  if (!Number.isSafeInteger(seq) || seq < 1) {
    throw new RangeError("Cannot record event: seq is not a positive integer");
  }
  if (!/^[0-9a-f]{64}$/.test(prev)) {
    throw new RangeError("Cannot record event: prev is not a SHA-256 in lower-case hex");
  }
  if (!/^[a-z-]{1,64}$/.test(event.event)) {
    throw new TypeError("Cannot record event: its name is not lower-case letters and dashes");
  }
  let body = `{"seq":${seq},"at":"${isoTime(at)}","event":"${event.event}"`;
  for (const [name, value] of Object.entries(event)) {
    if (name === "event" || value === undefined) continue;
    if (RESERVED.has(name)) {
      throw new TypeError(`Cannot record event: field "${name}" belongs to the chain`);
    }
    body += `,${fieldJson(name)}:${fieldJson(value)}`;
  }
  body += `,"prev":"${prev}"`;
  const hash = sha256(body + "}");
  const line = `${body},"hash":"${hash}"}`;
  if (line.length > MAX_LINE) {
    throw new RangeError(`Cannot record event: the line is longer than ${MAX_LINE} bytes`);
  }
  return { line, hash };
}

/**
 * A line taken apart, or null when it is not a line that `recordLine` could have made: wrong form,
 * a byte outside printable ASCII, or a hash that does not hold. Its place in the chain is not
 * judged here.
 */
export function readLine(line: string): ChainLine | null {
  if (line.length > MAX_LINE || line.length < TAIL_LENGTH || !PRINTABLE.test(line)) return null;
  const head = HEAD.exec(line);
  const tail = TAIL.exec(line.slice(-TAIL_LENGTH));
  if (head === null || tail === null) return null;
  const seq = Number(head[1]);
  const [, prev, hash] = tail;
  if (prev === undefined || hash === undefined || !Number.isSafeInteger(seq)) return null;
  if (sha256(line.slice(0, -HASH_MEMBER - 1) + "}") !== hash) return null;
  return { seq, prev, hash };
}

/**
 * The place of `line` in the chain when its own hash holds and it follows the record whose hash is
 * `prev`, else null. The caller compares `seq` with the number that it expects.
 */
export function verifyLine(line: string, prev: string): RecordRef | null {
  const parts = readLine(line);
  return parts === null || parts.prev !== prev ? null : { seq: parts.seq, hash: parts.hash };
}

/** A stored line with the reference that it ends in; the line is known to be well-formed. */
export function storedRecord(seq: number, line: string): StoredRecord {
  return { seq, hash: line.slice(-66, -2), line };
}

/** A field as JSON in printable ASCII. */
function fieldJson(value: unknown): string {
  const text = JSON.stringify(value, function (this: unknown, _name, inner: unknown) {
    switch (typeof inner) {
      case "number":
        if (Number.isFinite(inner)) return inner;
        break;
      case "string":
      case "boolean":
        return inner;
      case "undefined":
        // A member without a value is left out; an element of an array would turn into null.
        if (!Array.isArray(this)) return inner;
        break;
      case "object":
        if (!ArrayBuffer.isView(inner)) return inner;
        break;
    }
    throw new TypeError("Cannot record event: a field holds a value that JSON cannot hold");
  });
  if (text === undefined) {
    throw new TypeError("Cannot record event: a field holds a value that JSON cannot hold");
  }
  return asciiJson(text);
}

/** Of a text in printable ASCII, whose characters are its bytes. */
function sha256(text: string): string {
  return hashOf("sha256", text, "hex");
}
