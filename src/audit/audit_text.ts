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
 * 6. A rotated segment is never written again. The text that follows goes on where it ends, also
 *    after a crash right behind the rename.
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
  renameSync,
  writeSync,
} from "node:fs";
import { dirname } from "@std/path/dirname";
import { errorCode } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { RecordRef, StoredRecord } from "../ledger/types.ts";
import { GENESIS, readLine, verifyLine } from "./chain.ts";
import { lastSegmentEnd, readText, segmentPath } from "./segments.ts";
import { findEnd, firstLine, type TextEnd, unended } from "./text_file.ts";
import { type AuditProblem, verifyAudit } from "./verify.ts";

/** Where records come from: the ledger, or whatever else holds them in order. */
export interface RecordSource {
  head(): RecordRef | null;
  records(fromSeq: number, limit: number): StoredRecord[];
  /** The last record that is not there any more since it has left for the text alone. */
  floor?(): RecordRef | null;
}

/** A segment that the text became. */
export interface Rotation {
  readonly path: string;
  readonly first: number;
  readonly last: number;
  /** Hash of the last record. */
  readonly hash: string;
  readonly bytes: number;
}

/** What `repair` did. */
export interface Repair {
  /** Bytes cut off the end. */
  readonly cut_bytes: number;
  /** Records appended. */
  readonly appended: number;
  /** The last record in the text now. */
  readonly head: RecordRef | null;
  /** The last record that is in neither text nor ledger, or null: the text was lost as a whole. */
  readonly lost?: RecordRef;
}

/** What an append found changed by somebody else, and put right. */
export type Mended = Pick<Repair, "cut_bytes" | "appended">;

/** Records read from the ledger at once. */
const BATCH = 500;

/** The outcome of a verification. */
export type AuditVerdict =
  | { readonly ok: true; readonly head: RecordRef | null }
  | { readonly ok: false; readonly seq: number; readonly problem: AuditProblem };

export class AuditText {
  readonly #path: string;
  #source: RecordSource | null = null;
  /** What the last append or repair left; believed as long as the file ends there. */
  #end: TextEnd | null = null;
  #fault: string | null = null;
  #mended: Mended | null = null;

  /** @param path the text, below the working directory */
  constructor(path = "state/audit/audit.jsonl") {
    this.#path = path;
  }

  /** Path of the text. */
  get path(): string {
    return this.#path;
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
        const { size } = fstatSync(fd);
        // What an append of our own left when it failed is nobody else's doing.
        const changed = this.#fault === null && this.#end !== null && this.#end.end !== size;
        const found = this.#find(fd, size);
        const cut_bytes = Math.max(0, size - found.end);
        if (cut_bytes > 0) ftruncateSync(fd, found.end);
        const written = this.#catchUp(fd, found, records, this.#source);
        const appended = Math.max(0, written - records.length);
        if (changed && cut_bytes + appended > 0) this.#mended = { cut_bytes, appended };
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
      const found = this.#endOf(fd, size, ledger);
      compare(found, ledger);
      compare(unended(fd, found.end, size), ledger);
      this.#source = ledger;
      if (size > found.end) ftruncateSync(fd, found.end);
      const appended = this.#catchUp(fd, found, [], ledger);
      this.#fault = null;
      const lost = found.line === "" ? found.head : null;
      return {
        cut_bytes: size - found.end,
        appended,
        head: this.#end?.head ?? null,
        ...(lost === null ? {} : { lost }),
      };
    });
  }

  /** The last sound record in the text, or null. Reads only the end of the file. */
  textHead(): RecordRef | null {
    const head = this.#read((fd) => findEnd(fd, fstatSync(fd).size).head) ?? null;
    return head ?? lastSegmentEnd(this.#path)?.head ?? null;
  }

  /**
   * Reads the whole text and checks every line: its hash, its number, and that it follows the line
   * before. With a ledger, also that both hold the same records.
   *
   * Needs read permission for the file. Memory is bounded; time grows with the text. Beside a
   * daemon that appends meanwhile, the last records may be told as torn or missing: ask again.
   */
  verify(ledger?: RecordSource): AuditVerdict {
    // The chain alone: what rows say of it is looked at by whoever calls `verifyAudit` itself.
    const report = verifyAudit(this.#path, {
      ...(ledger === undefined ? {} : {
        ledger: {
          head: () => ledger.head(),
          records: (from, limit) => ledger.records(from, limit),
          floor: () => ledger.floor?.() ?? null,
        },
      }),
    });
    return report.ok
      ? { ok: true, head: report.head }
      : { ok: false, seq: report.seq, problem: report.problem };
  }

  /** What appends put right since the last call, or null: whoever made the text owes a record of it. */
  takeMended(): Mended | null {
    const mended = this.#mended;
    this.#mended = null;
    return mended;
  }

  /** Bytes of the text as this process left it; 0 before the first append or repair. */
  get bytes(): number {
    return this.#end?.end ?? 0;
  }

  /**
   * Rotates the text away into a segment of its own; the next append begins a new one that goes on
   * with the chain. A crash leaves the text under the one name or the other.
   *
   * @param due asked with the time of the first record; false leaves the text as it is
   * @returns the segment, or null when nothing was rotated: also when the text is not level
   * @throws a system error
   */
  rotate(due: (since_ms: number) => boolean): Rotation | null {
    const end = this.#end;
    if (end === null || end.head === null || end.end === 0 || this.#fault !== null) return null;
    const line = this.#read((fd) => fstatSync(fd).size === end.end ? firstLine(fd) : null) ?? null;
    const first = line === null ? null : readLine(line);
    if (line === null || first === null) return null;
    if (!due(recordTime(line))) return null;
    const path = segmentPath(this.#path, first.seq, end.head.seq);
    renameSync(this.#path, path);
    this.#end = { head: end.head, line: end.line, end: 0 };
    return { path, first: first.seq, last: end.head.seq, hash: end.head.hash, bytes: end.end };
  }

  /** Where the text ends, from memory when the file still has the size that was left. */
  #find(fd: number, size: number): TextEnd {
    if (this.#end !== null && this.#end.end === size) return this.#end;
    const found = this.#endOf(fd, size, this.#source);
    if (this.#source !== null) compare(found, this.#source);
    return found;
  }

  /**
   * The last sound line; of a text without one, that of the newest segment, or what the ledger says
   * went before its own records.
   */
  #endOf(fd: number, size: number, ledger: RecordSource | null): TextEnd {
    const found = findEnd(fd, size);
    if (found.head !== null) return found;
    const before = lastSegmentEnd(this.#path);
    if (before !== null) return { ...before, end: 0 };
    return { head: ledger?.floor?.() ?? null, line: "", end: 0 };
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
    return readText(this.#path, use);
  }
}

/** When a record was made, milliseconds since the epoch; the line is known to be sound. */
function recordTime(line: string): number {
  return Date.parse(/"at":"([^"]*)"/.exec(line)?.[1] ?? "");
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
  const floor = ledger.floor?.() ?? null;
  if (seq === floor?.seq && found.head.hash === floor.hash) return;
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
