/**
 * One output stream of a running command, read without end and kept within bounds.
 *
 * 1. The pipe is read all the time, whatever becomes of the bytes: a command must never block on
 *    a pipe that nobody reads (X13).
 * 2. Memory does not grow with the output: one buffer that is handed back and forth with the
 *    runtime, and a ring for the last bytes (X13).
 * 3. The raw file holds a prefix of the stream. After its cap, or after the first write that
 *    fails, nothing more is written to it and the rest is only counted (S1).
 * 4. A pipe that somebody keeps open can be cut; nothing is stored after the cut (X11, X12).
 *
 * Bytes are not looked at here: what is not text, or looks like an instruction, is stored as it
 * came (X14).
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { writeAll } from "./bounded_file.ts";
import { EMPTY_STREAM, TAIL_BYTES } from "./exit_record.ts";
import { LastBytes } from "./last_bytes.ts";
import type { StreamEnd } from "./order.ts";

/** Bytes asked for at once: what a pipe holds. */
const READ_BYTES = 64 * 1024;

/**
 * Buffers of streams that ended, to be used by the next run. A buffer is in here or in use by one
 * stream, never both: the runtime takes it away while it reads and gives it back with the answer.
 */
const spareBuffers: ArrayBuffer[] = [];

function takeBuffer(): Uint8Array<ArrayBuffer> {
  return new Uint8Array(spareBuffers.pop() ?? new ArrayBuffer(READ_BYTES));
}

function giveBuffer(buffer: ArrayBuffer): void {
  if (buffer.byteLength === READ_BYTES && spareBuffers.length < 2) spareBuffers.push(buffer);
}

/** Where raw bytes go. Tests hand in one whose disk is full. */
export type OpenRaw = (path: string) => Pick<Deno.FsFile, "writeSync" | "close">;

const openRaw: OpenRaw = (path) =>
  Deno.openSync(path, { write: true, createNew: true, mode: 0o600 });

/** One stream of one run. */
export class StreamSink {
  readonly #path: string;
  readonly #cap: number;
  readonly #open: OpenRaw;
  readonly #tail = new LastBytes(TAIL_BYTES);
  #file: ReturnType<OpenRaw> | null = null;
  #bytes = 0;
  #fileBytes = 0;
  /** No more bytes go to the file: a write failed, or the stream has ended. */
  #full = false;
  #ended = false;
  #cut = false;
  #reader: ReadableStreamBYOBReader | null = null;

  /**
   * @param path the raw file; it is made with the first byte, so an empty stream leaves none
   * @param cap bytes of the stream that the file may hold
   */
  constructor(path: string, cap: number, open: OpenRaw = openRaw) {
    this.#path = path;
    this.#cap = cap;
    this.#open = open;
  }

  /** Bytes of the stream so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** True once the pipe has been read to its end. */
  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Reads `stream` until it ends or is cut.
   *
   * @returns a promise that never rejects: a pipe that fails counts as cut
   */
  async drain(stream: ReadableStream<Uint8Array>): Promise<void> {
    let buffer = takeBuffer();
    try {
      const reader = stream.getReader({ mode: "byob" });
      this.#reader = reader;
      while (!this.#cut) {
        const { value, done } = await reader.read(buffer);
        if (value === undefined) break;
        if (!this.#cut && value.byteLength > 0) this.push(value);
        if (done) {
          this.#ended = !this.#cut;
          giveBuffer(value.buffer);
          break;
        }
        buffer = new Uint8Array(value.buffer);
      }
    } catch {
      // `ended` stays false, so the stream is told as incomplete.
    }
  }

  /** Takes in the next bytes of the stream. */
  push(chunk: Uint8Array): void {
    this.#bytes += chunk.length;
    this.#tail.push(chunk);
    if (this.#full) return;
    const room = this.#cap - this.#fileBytes;
    const part = chunk.length > room ? chunk.subarray(0, room) : chunk;
    if (part.length === 0) return;
    const counted = (bytes: Uint8Array): number => {
      const n = this.#file?.writeSync(bytes) ?? 0;
      this.#fileBytes += n;
      return n;
    };
    try {
      this.#file ??= this.#open(this.#path);
      writeAll({ writeSync: counted }, part);
    } catch {
      this.#full = true;
    }
  }

  /** Stops reading a pipe that somebody still holds open. */
  cut(): void {
    if (this.#ended || this.#cut) return;
    this.#cut = true;
    this.#reader?.cancel().catch(() => {});
  }

  /** Closes the raw file and tells how the stream ended. */
  end(): StreamEnd {
    this.#file?.close();
    this.#file = null;
    this.#full = true;
    if (this.#bytes === 0 && this.#ended) return EMPTY_STREAM;
    return {
      bytes: this.#bytes,
      file_bytes: this.#fileBytes,
      tail: this.#bytes > this.#fileBytes ? Buffer.from(this.#tail.bytes).toString("base64") : "",
      complete: this.#ended,
    };
  }
}
