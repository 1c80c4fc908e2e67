/**
 * Lines from bytes, within bounds: what the daemon writes to a shim, and what a shim writes back.
 *
 * Text without a newline at the end is no line: a writer that died in the middle of one must not
 * be taken at its word. A line longer than the bound is dropped whole.
 *
 * @module
 */

/** Longest line in bytes; the lines of this protocol have about forty. */
const LINE_BYTES_MAX = 512;

/** Splits a byte stream into lines. */
export class LineReader {
  #text = "";
  #overlong = false;

  /** The lines that `bytes` complete, without their newlines. Anything but ASCII becomes `?`. */
  push(bytes: Uint8Array): string[] {
    const lines: string[] = [];
    for (const byte of bytes) {
      if (byte === 0x0a) {
        if (!this.#overlong) lines.push(this.#text);
        this.#text = "";
        this.#overlong = false;
      } else if (this.#text.length >= LINE_BYTES_MAX) {
        this.#overlong = true;
      } else {
        this.#text += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "?";
      }
    }
    return lines;
  }
}
