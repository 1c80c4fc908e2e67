/**
 * Bytes that should be UTF-8, made UTF-8: every byte that is not part of a well-formed character
 * becomes U+FFFD, one for one, and is counted. One for one means that the result does not depend
 * on where the bytes were cut into chunks, and that its length tells how much was replaced.
 *
 * Nothing else is changed: NUL, control characters and escape sequences are text, and the JSON of
 * a result escapes them.
 *
 * @module
 */
import { isUtf8 } from "node:buffer";

/** U+FFFD in UTF-8. */
const REPLACEMENT = [0xef, 0xbf, 0xbd] as const;

/**
 * Length of the well-formed character that starts at `at`: 1 to 4; 0 when the byte there starts
 * none; -1 when the bytes end before that is known.
 */
export function charLength(bytes: Uint8Array, at: number): number {
  const lead = bytes[at];
  if (lead === undefined) return -1;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (let i = 1; i < length; i++) {
    const next = bytes[at + i];
    if (next === undefined) return -1;
    // The second byte has narrower bounds where an overlong form, a surrogate or a value above
    // U+10FFFF would start.
    const low = i > 1 ? 0x80 : lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const high = i > 1 ? 0xbf : lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    if (next < low || next > high) return 0;
  }
  return length;
}

/** UTF-8 made of bytes, and how many of them were replaced. */
export interface Utf8 {
  readonly bytes: Uint8Array;
  readonly replaced: number;
}

function replaceInvalid(bytes: Uint8Array): Utf8 {
  const out = new Uint8Array(bytes.length * 3);
  let length = 0;
  let replaced = 0;
  for (let at = 0; at < bytes.length;) {
    const n = charLength(bytes, at);
    if (n > 0) {
      for (const end = at + n; at < end; at++) out[length++] = bytes[at] ?? 0;
    } else {
      for (const byte of REPLACEMENT) out[length++] = byte;
      replaced++;
      at++;
    }
  }
  return { bytes: out.subarray(0, length), replaced };
}

/** All of `bytes` as UTF-8; a character that is cut off at the end counts as invalid bytes. */
export function toUtf8(bytes: Uint8Array): Utf8 {
  return isUtf8(bytes) ? { bytes, replaced: 0 } : replaceInvalid(bytes);
}

/** Bytes at the end that may be the start of a character, 0 to 3. */
export function openEnd(bytes: Uint8Array): number {
  for (let n = 1; n <= Math.min(3, bytes.length); n++) {
    const at = bytes.length - n;
    const byte = bytes[at] ?? 0;
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return charLength(bytes, at) === -1 ? n : 0;
  }
  return 0;
}

/** Turns a stream into UTF-8, chunk by chunk. The result is the same however it is cut. */
export class Utf8Stream {
  #carry = new Uint8Array();
  #replaced = 0;

  /** Bytes replaced so far. */
  get replaced(): number {
    return this.#replaced;
  }

  /** The UTF-8 of the bytes so far that no later byte can change. */
  push(chunk: Uint8Array): Uint8Array {
    let bytes = chunk;
    if (this.#carry.length > 0) {
      bytes = new Uint8Array(this.#carry.length + chunk.length);
      bytes.set(this.#carry);
      bytes.set(chunk, this.#carry.length);
    }
    const keep = openEnd(bytes);
    this.#carry = bytes.slice(bytes.length - keep);
    return this.#take(bytes.subarray(0, bytes.length - keep));
  }

  /** The rest: what was held back is no character and is replaced. */
  end(): Uint8Array {
    const rest = this.#carry;
    this.#carry = new Uint8Array();
    return this.#take(rest);
  }

  #take(bytes: Uint8Array): Uint8Array {
    const utf8 = toUtf8(bytes);
    this.#replaced += utf8.replaced;
    return utf8.bytes;
  }
}

/**
 * The last place at or before `at` that lies between two characters.
 *
 * @param more true when the stream goes on beyond `bytes`, so that a character which they end
 * inside of is one
 */
export function borderBefore(bytes: Uint8Array, at: number, more: boolean): number {
  for (let start = at - 1; start >= Math.max(0, at - 3); start--) {
    const length = charLength(bytes, start);
    if (length > at - start || (more && length === -1)) return start;
  }
  return at;
}

/**
 * The first place at or after `at` that lies between two characters. A lead byte is never part of
 * another character, so looking back three bytes is enough, whatever precedes them.
 */
export function borderAfter(bytes: Uint8Array, at: number): number {
  for (let start = at - 1; start >= Math.max(0, at - 3); start--) {
    const length = charLength(bytes, start);
    if (length > at - start) return start + length;
  }
  return at;
}

/** How many bytes at the start can only be the rest of a character that began earlier, 0 to 3. */
export function orphans(bytes: Uint8Array): number {
  let n = 0;
  while (n < 3 && ((bytes[n] ?? 0) & 0xc0) === 0x80) n++;
  return n;
}
