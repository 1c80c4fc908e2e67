/**
 * Raw output to what an agent may read: the growing text file in `results/`, and the head and tail
 * that stand in the result itself.
 *
 * 1. Memory is bounded whatever the size of the stream (X13).
 * 2. What is written and shown is valid UTF-8; bytes that are not are replaced and counted, and
 *    a character is never torn where chunks meet or where head and tail are cut (X14).
 * 3. Every byte of the stream is in `head`, in `tail`, or counted in `dropped_bytes`; none twice.
 * 4. A target that takes no more (a full disk, a cap) makes the file incomplete and nothing else:
 *    the view is made from the raw bytes (S1).
 * 5. Nothing is interpreted. Output is data (X14).
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { errorCode } from "../errors.ts";
import type { OutputView } from "../result.ts";
import { LastBytes } from "./last_bytes.ts";
import type { StreamEnd } from "./order.ts";
import { borderAfter, borderBefore, orphans, toUtf8, Utf8Stream } from "./utf8.ts";

/** Most bytes of the raw stream in `head` or `tail` once something was dropped. */
export const VIEW_BYTES = 16 * 1024;
/** A stream up to this length is shown whole. */
const WHOLE_BYTES = 2 * VIEW_BYTES;
/** Bytes that may belong to a character which starts before a cut. */
const CHAR_REST = 3;
/** Bytes read in one go. */
const READ_BYTES = 64 * 1024;

/**
 * Changes the bytes of a stream on their way to the agent, for instance to mask secrets. It sees
 * every byte once, in order, and may hold some back until it knows what follows.
 */
export interface ByteFilter {
  push(bytes: Uint8Array): Uint8Array;
  /**
   * What was held back.
   *
   * @param cut the stream may have gone on, unseen
   */
  end(cut: boolean): Uint8Array;
  /**
   * Instead of `end`: the stream went on unseen, and these are its last bytes.
   *
   * @returns what was held back before the gap, what may be shown of the last bytes, and how many
   * bytes on both sides of the gap were left out
   */
  across(
    tail: Uint8Array,
  ): { readonly before: Uint8Array; readonly after: Uint8Array; readonly left_out: number };
}

/** Passes everything on as it is. */
export const IDENTITY: ByteFilter = Object.freeze({
  push: (bytes: Uint8Array) => bytes,
  end: () => new Uint8Array(),
  across: (tail: Uint8Array) => ({ before: new Uint8Array(), after: tail, left_out: 0 }),
});

/** What a mirror needs to know. */
export interface MirrorOptions {
  /** The raw file in the run directory; it need not be there yet. */
  readonly path: string;
  /** Bare name of the target in `results/`, as the result is to tell it. */
  readonly file: string;
  /**
   * Appends to the target before it returns; the buffer is used again. May return how many bytes
   * it took; fewer than given, or an exception, means that it takes no more.
   */
  readonly append: (bytes: Uint8Array) => number | void;
  /** Made when the stream has its first byte; most streams stay empty. */
  readonly filter?: () => ByteFilter;
}

/** The first bytes of a stream, up to a bound. */
class Head {
  #bytes = new Uint8Array();
  #length = 0;

  push(chunk: Uint8Array): void {
    const part = chunk.subarray(0, WHOLE_BYTES - this.#length);
    if (part.length === 0) return;
    if (this.#bytes.length === 0) this.#bytes = new Uint8Array(WHOLE_BYTES);
    this.#bytes.set(part, this.#length);
    this.#length += part.length;
  }

  get bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }
}

function text(bytes: Uint8Array): { text: string; replaced: number } {
  const utf8 = toUtf8(bytes);
  return {
    text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(utf8.bytes),
    replaced: utf8.replaced,
  };
}

/** Follows one raw stream of a run. */
export class OutputMirror {
  readonly #options: MirrorOptions;
  #filter: ByteFilter | null = null;
  readonly #utf8 = new Utf8Stream();
  readonly #head = new Head();
  readonly #tail = new LastBytes(VIEW_BYTES + CHAR_REST);
  #file: Deno.FsFile | null = null;
  #buffer: Uint8Array<ArrayBuffer> | null = null;
  /** Raw bytes read. */
  #read = 0;
  /** Bytes that came out of the filter. */
  #length = 0;
  #appended = 0;
  /** The target takes no more. */
  #broken = false;

  constructor(options: MirrorOptions) {
    this.#options = options;
  }

  /** What the stream goes through. */
  get #through(): ByteFilter {
    return this.#filter ??= this.#options.filter?.() ?? IDENTITY;
  }

  /** Raw bytes read so far. */
  get read(): number {
    return this.#read;
  }

  /**
   * Takes in what the raw file has grown by.
   *
   * @param max about how many bytes to read at most, so that one stream does not hold up the turn
   * @returns true when there may be more right now
   * @throws the system error of a file that is there and cannot be read
   */
  pump(max = 1024 * 1024): boolean {
    if (this.#file === null) {
      try {
        this.#file = Deno.openSync(this.#options.path, { read: true });
      } catch (error) {
        // The shim makes it with the first byte.
        if (errorCode(error) === "ENOENT") return false;
        throw error;
      }
    }
    this.#buffer ??= new Uint8Array(READ_BYTES);
    for (let left = max; left > 0;) {
      const n = this.#file.readSync(this.#buffer);
      if (n === null || n === 0) return false;
      this.feed(this.#buffer.subarray(0, n));
      left -= n;
    }
    return true;
  }

  /** Takes in raw bytes. The buffer may be used again afterwards. */
  feed(raw: Uint8Array): void {
    this.#read += raw.length;
    this.#take(this.#through.push(raw));
  }

  /** Closes the raw file; the mirror is of no use afterwards. */
  close(): void {
    this.#file?.close();
    this.#file = null;
    this.#buffer = null;
  }

  /**
   * Reads the rest and tells the stream.
   *
   * @param end how the stream ended; null when nobody recorded it: then what the raw file holds is
   * all that is known, and the view is incomplete
   * @throws the system error of a file that is there and cannot be read
   */
  finish(end: StreamEnd | null): OutputView {
    if (end === null || end.file_bytes > this.#read) { while (this.pump()); }
    this.close();
    const whole = end !== null && end.complete && end.file_bytes === end.bytes &&
      end.file_bytes === this.#read;
    const lost = this.#rest(end, whole);
    // With a filter, lengths are those of what it let through.
    const total = this.#length + lost.unseen + lost.bytes.length;
    const cutShort = total > this.#length;
    // Where the file was cut inside a character, the missing bytes are missing, not invalid.
    if (!cutShort) this.#append(this.#utf8.end());
    const view = this.#view(total, lost.bytes);
    return {
      head: view.head,
      tail: view.tail,
      bytes: total,
      dropped_bytes: view.dropped,
      replaced_bytes: this.#utf8.replaced + view.replaced,
      file: this.#appended > 0 ? this.#options.file : null,
      complete: whole && !cutShort && !this.#broken,
    };
  }

  /**
   * Ends the filter. What the raw file does not hold of the stream is told by the record: its last
   * bytes, and how many were not seen before them.
   */
  #rest(end: StreamEnd | null, whole: boolean): { bytes: Uint8Array; unseen: number } {
    const nothing = new Uint8Array();
    if (this.#read === 0 && (end === null || end.bytes === 0)) return { bytes: nothing, unseen: 0 };
    const missing = end === null ? 0 : Math.max(0, end.bytes - this.#read);
    if (end === null || missing === 0) {
      this.#take(this.#through.end(!whole));
      return { bytes: nothing, unseen: 0 };
    }
    const tail = new Uint8Array(Buffer.from(end.tail, "base64"));
    if (tail.length >= missing) {
      // The filter sees the stream without a gap; the file stays as it is.
      const first = this.#through.push(tail.subarray(tail.length - missing));
      const bytes = Buffer.concat([first, this.#through.end(!end.complete)]);
      return { bytes: new Uint8Array(bytes), unseen: 0 };
    }
    const { before, after, left_out } = this.#through.across(tail);
    this.#take(before);
    return { bytes: after, unseen: missing - tail.length + left_out };
  }

  #take(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#length += bytes.length;
    this.#head.push(bytes);
    this.#tail.push(bytes);
    this.#append(this.#utf8.push(bytes));
  }

  #append(bytes: Uint8Array): void {
    if (this.#broken || bytes.length === 0) return;
    try {
      const taken = this.#options.append(bytes) ?? bytes.length;
      this.#appended += taken;
      this.#broken = taken < bytes.length;
    } catch {
      this.#broken = true;
    }
  }

  /**
   * Head and tail of a stream of `total` bytes of which the mirror has seen the first
   * `this.#length`, and of which `lost` are the last ones when it has not seen them all.
   */
  #view(
    total: number,
    lost: Uint8Array,
  ): { head: string; tail: string; dropped: number; replaced: number } {
    const known = this.#length;
    const first = this.#head.bytes;
    const { bytes: last, from } = this.#last(total, lost);
    // What went to the file was counted on its way; beyond it only what is shown counts.
    const beyond = (shown: Uint8Array, at: number) =>
      total === known
        ? 0
        : text(shown.subarray(borderAfter(shown, Math.max(0, known - at)))).replaced;
    if (total <= WHOLE_BYTES && from <= first.length) {
      const bytes = new Uint8Array(total);
      bytes.set(first);
      bytes.set(last, from);
      return { head: text(bytes).text, tail: "", dropped: 0, replaced: beyond(bytes, 0) };
    }
    const more = total > first.length;
    const headEnd = borderBefore(first, Math.min(VIEW_BYTES, first.length), more);
    const wanted = Math.max(total - VIEW_BYTES, from, headEnd) - from;
    // Where nothing is known of what precedes, a character that began there is not to be shown.
    const start = wanted === 0 && from > 0 ? orphans(last) : borderAfter(last, wanted);
    const shown = last.subarray(start);
    return {
      head: text(first.subarray(0, headEnd)).text,
      tail: text(shown).text,
      dropped: total - headEnd - shown.length,
      replaced: beyond(shown, from + start),
    };
  }

  /** The last bytes of the stream as far as they are known without a gap, and where they begin. */
  #last(total: number, lost: Uint8Array): { bytes: Uint8Array; from: number } {
    const seen = this.#tail.bytes;
    const seenFrom = this.#length - seen.length;
    if (total === this.#length) return { bytes: seen, from: seenFrom };
    const lostFrom = total - lost.length;
    if (lostFrom > this.#length || lostFrom < seenFrom) return { bytes: lost, from: lostFrom };
    const bytes = new Uint8Array(total - seenFrom);
    bytes.set(seen);
    bytes.set(lost, lostFrom - seenFrom);
    return { bytes, from: seenFrom };
  }
}
