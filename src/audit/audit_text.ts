/**
 * The audit chain as text: `state/audit/audit.jsonl`, one line a record, in the order of the
 * ledger. The text is derived. It is never synced, it may lag behind after a crash or a full disk,
 * and it is brought level again from the ledger; but it is also the witness that the ledger did
 * not lose anything, so it never forgets a sound line to please a shorter ledger.
 *
 * Rules:
 * 1. What is in the text was committed before: lines are appended after the commit. So a sound
 *    line that the ledger does not have means that the ledger was lost, cut or exchanged, and
 *    `repair` refuses instead of choosing (S8).
 * 2. Only what is no sound line is ever cut: a torn last line, or bytes that a power cut left at
 *    the end. The end of the text is found by reading backwards, so the cost does not grow with
 *    the text (S1).
 * 3. A write may be short, and a write may fail half way: the rest is written, or the text is cut
 *    back to the last sound line. A text that cannot be written never stops or undoes what the
 *    ledger did; `append` says so, and tries to catch up the next time (S1, D48).
 * 4. The file is opened by name for each append and its size compared with what was left there, so
 *    a rotation, truncation or removal by somebody else is noticed and mended, not written past
 *    (S14).
 * 5. The file is made with mode 0600. A wider mode that a human gave it stays.
 *
 * @module
 */
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  writeSync,
} from "node:fs";
import { dirname } from "@std/path/dirname";
import { errorCode } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { RecordRef, StoredRecord } from "../ledger/types.ts";
import { GENESIS, MAX_LINE, readLine, verifyLine } from "./chain.ts";

/** Where records come from: the ledger, or whatever else holds them in order. */
export interface RecordSource {
  head(): RecordRef | null;
  records(fromSeq: number, limit: number): StoredRecord[];
}

/** What `repair` did. */
export interface Repair {
  /** Bytes cut off the end. */
  readonly cut_bytes: number;
  /** Records appended. */
  readonly appended: number;
  /** The last record in the text now. */
  readonly head: RecordRef | null;
}

/**
 * What is wrong with the first broken record:
 *
 * - `altered`: the line is no sound record, or does not follow the one before it
 * - `missing`: the record is not there, later ones are (or the ledger has it)
 * - `reordered`: the record is there, but not in its place
 * - `torn`: the last line has no end
 * - `ledger`: the ledger has another record, or none, under this number
 */
export type AuditProblem = "altered" | "missing" | "reordered" | "torn" | "ledger";

/** The outcome of a verification. */
export type AuditVerdict =
  | { readonly ok: true; readonly head: RecordRef | null }
  | { readonly ok: false; readonly seq: number; readonly problem: AuditProblem };

/** The last sound line of a text, and where it ends. */
interface TextEnd {
  readonly head: RecordRef | null;
  readonly line: string;
  /** Offset after its newline; 0 for a text without a sound line. */
  readonly end: number;
}

const CHUNK = 64 * 1024;
/** Records read from the ledger at once. */
const BATCH = 500;
const NEWLINE = 0x0a;

export class AuditText {
  readonly #path: string;
  #source: RecordSource | null = null;
  /** What the last append or repair left; believed as long as the file ends there. */
  #end: TextEnd | null = null;
  #fault: string | null = null;

  /** @param path the text, below the working directory */
  constructor(path = "state/audit/audit.jsonl") {
    this.#path = path;
  }

  /** Why the text could not be brought level at the last attempt, or null. A code, no sentence. */
  get fault(): string | null {
    return this.#fault;
  }

  /**
   * Appends records. Records that are in the text are passed over; missing ones before them are
   * taken from the ledger that `repair` was given; without one they are a fault, `gap`.
   *
   * Needs read and write permission for the file.
   *
   * @returns true when the text ends with the last of `records`; else see `fault`
   */
  append(records: readonly StoredRecord[]): boolean {
    const last = records.at(-1);
    if (last === undefined) return true;
    try {
      const level = this.#open((fd) => {
        const found = this.#find(fd);
        if (fstatSync(fd).size > found.end) ftruncateSync(fd, found.end);
        this.#catchUp(fd, found, records, this.#source);
        return (this.#end?.head?.seq ?? 0) >= last.seq;
      });
      this.#fault = level ? null : "gap";
      return level;
    } catch (error) {
      const code = error instanceof LedgerError ? error.kind : systemError(error);
      if (code === undefined) throw error;
      this.#fault = code;
      return false;
    }
  }

  /**
   * Brings the text into agreement with the ledger, and remembers the ledger for later appends.
   * Makes the file and its directory where they are missing.
   *
   * Needs read and write permission for the directory of the text.
   *
   * @throws {LedgerError} `behind` when the text ends with a sound record that the ledger does not
   *   have, `forked` when the ledger has another one in its place; nothing was changed then
   * @throws a system error when the text cannot be read or written
   */
  repair(ledger: RecordSource): Repair {
    mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 });
    return this.#open((fd) => {
      const size = fstatSync(fd).size;
      const found = findEnd(fd, size);
      compare(found, ledger);
      compare(unended(fd, found.end, size), ledger);
      this.#source = ledger;
      if (size > found.end) ftruncateSync(fd, found.end);
      const appended = this.#catchUp(fd, found, [], ledger);
      this.#fault = null;
      return { cut_bytes: size - found.end, appended, head: this.#end?.head ?? null };
    });
  }

  /** The last sound record in the text, or null. Reads only the end of the file. */
  textHead(): RecordRef | null {
    return this.#read((fd) => findEnd(fd, fstatSync(fd).size).head) ?? null;
  }

  /**
   * Reads the whole text and checks every line: its hash, its number, and that it follows the line
   * before. With a ledger, also that both hold the same records.
   *
   * Needs read permission for the file. Memory is bounded; time grows with the text. Beside a
   * daemon that appends meanwhile, the last records may be told as torn or missing: ask again.
   */
  verify(ledger?: RecordSource): AuditVerdict {
    return this.#read((fd) => verifyText(fd, ledger)) ?? level({ seq: 0, hash: GENESIS }, ledger);
  }

  /** Where the text ends, from memory when the file still has the size that was left. */
  #find(fd: number): TextEnd {
    const { size } = fstatSync(fd);
    if (this.#end !== null && this.#end.end === size) return this.#end;
    const found = findEnd(fd, size);
    if (this.#source !== null) compare(found, this.#source);
    return found;
  }

  /** Appends what is missing up to the last of `records`, or up to the head of `source`. */
  #catchUp(
    fd: number,
    from: TextEnd,
    records: readonly StoredRecord[],
    source: RecordSource | null,
  ): number {
    let end = from;
    let appended = 0;
    const add = (batch: readonly StoredRecord[]) => {
      end = this.#end = appendLines(fd, end, batch);
      appended += batch.length;
    };
    const next = () => (end.head?.seq ?? 0) + 1;
    const first = records[0];
    if (source !== null && (first === undefined || first.seq > next())) {
      for (let batch = source.records(next(), BATCH); batch.length > 0;) {
        add(batch);
        batch = source.records(next(), BATCH);
      }
    }
    const rest = records.filter((record) => record.seq >= next());
    if (rest[0]?.seq === next()) add(rest);
    this.#end = end;
    return appended;
  }

  #open<T>(use: (fd: number) => T): T {
    const fd = openSync(
      this.#path,
      constants.O_RDWR | constants.O_CREAT | constants.O_APPEND,
      0o600,
    );
    try {
      return use(fd);
    } finally {
      closeSync(fd);
    }
  }

  /** Opens for reading; undefined when there is no text. */
  #read<T>(use: (fd: number) => T): T | undefined {
    let fd: number;
    try {
      fd = openSync(this.#path, constants.O_RDONLY);
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
}

/** A word for an error of the system, or undefined for one of ours. Some carry no code. */
function systemError(error: unknown): string | undefined {
  const code = errorCode(error);
  if (code !== undefined || !(error instanceof Error)) return code;
  return /\((os error [0-9]+)\)$/.exec(error.message)?.[1];
}

/** Throws unless the ledger has the record that the text ends with. */
function compare(found: TextEnd, ledger: RecordSource): void {
  if (found.head === null) return;
  const { seq } = found.head;
  const last = ledger.head()?.seq ?? 0;
  if (seq > last) {
    throw new LedgerError(
      "behind",
      `Cannot go on: the audit text ends with record ${seq}, the ledger with ${last}`,
    );
  }
  if (ledger.records(seq, 1)[0]?.line !== found.line) {
    throw new LedgerError(
      "forked",
      `Cannot go on: record ${seq} of the audit text is not the one of the ledger`,
    );
  }
}

/**
 * Appends lines after a sound end. On an error the file is cut back to that end as far as the
 * device allows; what is left else is found and cut by the next append or repair.
 */
function appendLines(fd: number, from: TextEnd, records: readonly StoredRecord[]): TextEnd {
  let head = from.head;
  for (const record of records) {
    const ref = verifyLine(record.line, head?.hash ?? GENESIS);
    if (ref === null || ref.seq !== (head?.seq ?? 0) + 1) {
      throw new LedgerError("forked", `Cannot append record ${record.seq}: it does not follow`);
    }
    head = ref;
  }
  const bytes = new TextEncoder().encode(records.map((record) => record.line + "\n").join(""));
  try {
    for (let done = 0; done < bytes.length;) {
      done += writeSync(fd, bytes, done, bytes.length - done);
    }
  } catch (error) {
    try {
      ftruncateSync(fd, from.end);
    } catch {
      // The first error is the one to tell.
    }
    throw error;
  }
  return { head, line: records.at(-1)?.line ?? from.line, end: from.end + bytes.length };
}

/** The last sound line, looked for from the end. */
function findEnd(fd: number, size: number): TextEnd {
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
function unended(fd: number, end: number, size: number): TextEnd {
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
function* lines(fd: number): Generator<{ readonly line: string; readonly torn: boolean }> {
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

function verifyText(fd: number, ledger: RecordSource | undefined): AuditVerdict {
  let head: RecordRef = { seq: 0, hash: GENESIS };
  let batch: StoredRecord[] = [];
  for (const { line, torn } of lines(fd)) {
    const seq = head.seq + 1;
    const parts = readLine(line);
    if (parts === null) return { ok: false, seq, problem: torn ? "torn" : "altered" };
    if (parts.seq !== seq) return { ok: false, seq, problem: displaced(fd, seq, parts.seq) };
    if (parts.prev !== head.hash) return { ok: false, seq, problem: "altered" };
    if (torn) return { ok: false, seq, problem: "torn" };
    if (ledger !== undefined) {
      if (batch.length === 0) batch = ledger.records(seq, BATCH);
      if (batch.shift()?.line !== line) return { ok: false, seq, problem: "ledger" };
    }
    head = { seq, hash: parts.hash };
  }
  return level(head, ledger);
}

/** The verdict on a sound text that ends with `head`. */
function level(head: RecordRef, ledger: RecordSource | undefined): AuditVerdict {
  if (ledger !== undefined && (ledger.head()?.seq ?? 0) > head.seq) {
    return { ok: false, seq: head.seq + 1, problem: "missing" };
  }
  return { ok: true, head: head.seq === 0 ? null : head };
}

/** Whether record `seq` stands elsewhere in the text, or nowhere. */
function displaced(fd: number, seq: number, found: number): AuditProblem {
  if (found < seq) return "reordered";
  for (const { line } of lines(fd)) {
    if (readLine(line)?.seq === seq) return "reordered";
  }
  return "missing";
}
