/**
 * Holds everything that is known of the audit chain against each other: the segments and the text,
 * the records of the ledger, and the records that the ledger's rows name. What is told is the first
 * record that does not hold, by its number.
 *
 * 1. Nothing is taken at its word: each line's hash is computed, each line must follow the one
 *    before, over the borders of the files, and each must be what the ledger has in its place.
 * 2. The text may begin after the first record only where the ledger says that older segments were
 *    removed, and with exactly the record that it names. The ledger may begin later than the text
 *    only where it says so, and again with exactly that record.
 * 3. A hash that was noted elsewhere, an anchor, must be the hash of a record: a chain that was
 *    written anew from some point on is sound in itself and does not have it.
 *
 * Memory is bounded; time grows with the chain.
 *
 * @module
 */
import { closeSync, constants, openSync } from "node:fs";
import { errorCode } from "../errors.ts";
import type { RecordRef, RowRef, StoredRecord } from "../ledger/types.ts";
import type { RecordSource } from "./audit_text.ts";
import { GENESIS, readLine } from "./chain.ts";
import { listSegments } from "./segments.ts";
import { lines } from "./text_file.ts";

/**
 * What is wrong with the first broken record:
 *
 * - `altered`: the line is no sound record, or does not follow the one before it
 * - `missing`: the record is not there, later ones are (or the ledger has it)
 * - `reordered`: the record is there, but not in its place
 * - `torn`: the last line has no end
 * - `ledger`: the ledger has another record, or none, under this number
 * - `row`: a row of the ledger names this record with another hash, one that is not there, or none (0)
 * - `anchor`: no record has the hash that was noted
 */
export type AuditProblem =
  | "altered"
  | "missing"
  | "reordered"
  | "torn"
  | "ledger"
  | "row"
  | "anchor";

/** A record that does not hold. */
export interface AuditFault {
  readonly ok: false;
  /** Its number; 0 for an anchor that was not found. */
  readonly seq: number;
  readonly problem: AuditProblem;
  /** The file that it was looked for in, or the row that names it. */
  readonly where?: string;
}

/** What was held against each other. */
export interface AuditSound {
  readonly ok: true;
  readonly head: RecordRef | null;
  /** First record of the text. */
  readonly first: number | null;
  readonly records: number;
  readonly segments: number;
  /** Records that had left the ledger and stand in the text alone. */
  readonly text_only: number;
  /** Rows whose record was looked up. */
  readonly rows: number;
  /** Number of the record that the anchor names, when there was one. */
  readonly anchor: number | null;
}

/** The outcome of `verifyAudit`. */
export type AuditReport = AuditSound | AuditFault;

/** What a ledger can tell for a verification besides its records. */
export interface VerifiedLedger extends RecordSource {
  /** The last record that left the ledger, or null. */
  floor(): RecordRef | null;
  /** The last record of the segments that were removed, or null. */
  removed(): RecordRef | null;
  /** Rows after a number, in order, with the records that they name. */
  rowRefs(afterRid: number, limit: number): RowRef[];
}

/** Records or rows read at once. */
const BATCH = 500;

/** Where each file of the text is, in order. */
function files(path: string): string[] {
  return [...listSegments(path).map((segment) => segment.path), path];
}

/** Every line of every file, the last one of a file marked when it has no end. */
function* allLines(
  paths: readonly string[],
): Generator<{ readonly line: string; readonly torn: boolean; readonly path: string }> {
  for (const path of paths) {
    let fd: number;
    try {
      fd = openSync(path, constants.O_RDONLY);
    } catch (error) {
      if (errorCode(error) === "ENOENT") continue;
      throw error;
    }
    try {
      for (const one of lines(fd)) yield { ...one, path };
    } finally {
      closeSync(fd);
    }
  }
}

function fault(seq: number, problem: AuditProblem, where?: string): AuditFault {
  return { ok: false, seq, problem, ...(where === undefined ? {} : { where }) };
}

/** Whether record `seq` stands elsewhere in the text, or nowhere. */
function displaced(paths: readonly string[], seq: number, found: number): AuditProblem {
  if (found < seq) return "reordered";
  for (const { line } of allLines(paths)) {
    if (readLine(line)?.seq === seq) return "reordered";
  }
  return "missing";
}

/** The records of a ledger, one after the other. */
class LedgerLines {
  readonly #ledger: RecordSource;
  #batch: StoredRecord[] = [];

  constructor(ledger: RecordSource) {
    this.#ledger = ledger;
  }

  /** True when the ledger has exactly this line under this number. Ask in order. */
  has(seq: number, line: string): boolean {
    if (this.#batch.length === 0) this.#batch = this.#ledger.records(seq, BATCH);
    const record = this.#batch.shift();
    return record?.seq === seq && record.line === line;
  }
}

/** What a verification is to look at besides the text. */
export interface VerifyOptions {
  readonly ledger?: RecordSource & Partial<VerifiedLedger>;
  /** A hash that was noted: 64 hex digits. */
  readonly anchor?: string;
}

/**
 * Verifies the audit text at `path` with its segments. Read permission for its directory.
 *
 * Beside a daemon that appends and rotates meanwhile, a last record may be told as torn or missing:
 * ask again.
 *
 * @throws a system error, or a `LedgerError` when the ledger cannot be read
 */
export function verifyAudit(path: string, options: VerifyOptions = {}): AuditReport {
  const { ledger, anchor } = options;
  const paths = files(path);
  const floor = ledger?.floor?.() ?? null;
  const removed = ledger?.removed?.() ?? null;
  const stored = ledger === undefined ? null : new LedgerLines(ledger);
  let head: RecordRef = { seq: 0, hash: GENESIS };
  let first: number | null = null;
  let anchored: number | null = removed?.hash === anchor ? removed?.seq ?? null : null;
  for (const { line, torn, path: where } of allLines(paths)) {
    const parts = readLine(line);
    if (first === null && parts !== null && parts.seq > 1) {
      // Rule 2: what is in front of the first line must be known to have been there.
      if (removed?.seq !== parts.seq - 1) {
        const seq = (removed?.seq ?? 0) + 1;
        return fault(seq, displaced(paths, seq, parts.seq), where);
      }
      head = removed;
    }
    const seq = head.seq + 1;
    if (parts === null) return fault(seq, torn ? "torn" : "altered", where);
    if (parts.seq !== seq) return fault(seq, displaced(paths, seq, parts.seq), where);
    if (parts.prev !== head.hash) return fault(seq, "altered", where);
    if (torn) return fault(seq, "torn", where);
    if (floor !== null && seq === floor.seq && parts.hash !== floor.hash) {
      return fault(seq, "ledger", where);
    }
    if (stored !== null && seq > (floor?.seq ?? 0) && !stored.has(seq, line)) {
      return fault(seq, "ledger", where);
    }
    if (parts.hash === anchor) anchored = seq;
    first ??= seq;
    head = { seq, hash: parts.hash };
  }
  if (ledger !== undefined && (ledger.head()?.seq ?? 0) > head.seq) {
    return fault(head.seq + 1, "missing", path);
  }
  if (anchor !== undefined && anchored === null) return fault(0, "anchor");
  const rows = ledger === undefined ? 0 : verifyRows(ledger, floor?.seq ?? 0);
  if (typeof rows !== "number") return rows;
  return {
    ok: true,
    head: head.seq === 0 ? null : head,
    first,
    records: first === null ? 0 : head.seq - first + 1,
    segments: paths.length - 1,
    text_only: first === null ? 0 : Math.max(0, (floor?.seq ?? 0) - first + 1),
    rows,
    anchor: anchored,
  };
}

/** Every row must name a record that is there. The records themselves have been verified. */
function verifyRows(
  ledger: RecordSource & Partial<VerifiedLedger>,
  floor: number,
): number | AuditFault {
  let rows = 0;
  let wrong: RowRef | null = null;
  for (let after = 0;;) {
    const refs = ledger.rowRefs?.(after, BATCH) ?? [];
    const last = refs.at(-1);
    if (last === undefined) break;
    for (const ref of refs) {
      if (ref.seq > 0 && ref.seq <= floor) continue;
      rows++;
      const [record] = ledger.records(ref.seq, 1);
      const holds = record?.seq === ref.seq && record.hash === ref.hash;
      if (!holds && (wrong === null || ref.seq < wrong.seq)) wrong = ref;
    }
    after = last.rid;
  }
  return wrong === null ? rows : fault(wrong.seq, "row", `${wrong.agent}/${wrong.id}`);
}
