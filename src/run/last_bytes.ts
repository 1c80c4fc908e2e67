/**
 * The last bytes of a stream of any length, in memory that does not grow.
 *
 * @module
 */

/** Keeps the last `max` bytes that were pushed. */
export class LastBytes {
  readonly #max: number;
  /** Taken with the first byte: most streams stay empty. */
  #bytes = new Uint8Array();
  #length = 0;

  /** @param max how many bytes to keep */
  constructor(max: number) {
    this.#max = max;
  }

  /** Takes in the next bytes; they are copied. */
  push(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    // Twice the size, so that bytes are moved once per `max` bytes and not with every chunk.
    if (this.#bytes.length === 0) this.#bytes = new Uint8Array(2 * this.#max);
    const fresh = chunk.subarray(Math.max(0, chunk.length - this.#max));
    if (this.#length + fresh.length > this.#bytes.length) {
      const keep = this.#max - fresh.length;
      this.#bytes.copyWithin(0, this.#length - keep, this.#length);
      this.#length = keep;
    }
    this.#bytes.set(fresh, this.#length);
    this.#length += fresh.length;
  }

  /** The last bytes, `max` or as many as there were. A view: the next `push` may change it. */
  get bytes(): Uint8Array {
    return this.#bytes.subarray(Math.max(0, this.#length - this.#max), this.#length);
  }
}
