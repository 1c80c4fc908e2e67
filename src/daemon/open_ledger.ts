/**
 * Opens the ledger for writing together with the audit text that is derived from it. Whoever calls
 * this holds the lock on `state/`: exactly one process writes ledger, chain and text.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { AuditText, type Repair } from "../audit/audit_text.ts";
import { Ledger } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { StoredRecord } from "../ledger/types.ts";
import { errorCode } from "../errors.ts";
import type { Log } from "./log.ts";

/** Path of the ledger below the root. */
export const LEDGER_PATH = "state/ledger.db";

/** Path of the audit log as text. */
export const AUDIT_PATH = "state/audit/audit.jsonl";

/** A ledger that is open for writing, with its text. */
export interface OpenedLedger {
  readonly ledger: Ledger;
  readonly text: AuditText;
  /** Why the text cannot be written, or null. */
  readonly textFault: () => string | null;
  /**
   * Appends to the text what was committed since the last time. Whoever answers an agent calls this
   * before, so that a record is in the text by the time that its answer can be read; what nobody
   * calls for follows when the loop comes round.
   */
  readonly append: () => void;
  /** Called with the records of commits, after they went to the text. */
  follow: ((records: readonly StoredRecord[]) => void) | null;
}

/**
 * A repair of the text is recorded itself.
 *
 * @returns the ledger, and `textFault` that names why the text cannot be written, or null; the
 * text is derived, so its failure stops nothing: it catches up by itself when it can
 * @throws {LedgerError} when the ledger cannot be believed, also because the audit text knows of
 *   records that it does not have: it was rolled back, emptied or replaced (S8, Q1)
 */
export function openLedger(
  now: () => number,
  log: Log,
): OpenedLedger {
  const ledger = Ledger.open(LEDGER_PATH, { now, mode: "writer" });
  const text = new AuditText(AUDIT_PATH);
  let told: string | null = null;
  let repair: Repair | null = null;
  const tell = (fault: string | null) => {
    if (fault !== null && fault !== told) log("ERROR", "audit-text", { error: fault });
    told = fault;
  };
  try {
    repair = text.repair(ledger);
    const { cut_bytes, appended } = repair;
    if (cut_bytes > 0) log("WARN", "audit-text-repaired", { cut_bytes, appended });
  } catch (error) {
    if (error instanceof LedgerError) {
      ledger.close();
      throw error;
    }
    tell(errorCode(error) ?? "unreadable");
  }
  // A start that a commit lets happen goes before the text.
  let waiting: StoredRecord[] = [];
  let closing = false;
  const append = () => {
    if (waiting.length === 0 && (closing || text.fault === null)) return;
    const records = waiting;
    waiting = [];
    // With nothing new, the last record brings those along that could not be written.
    const last = ledger.head()?.seq ?? 0;
    text.append(records.length > 0 ? records : ledger.records(last, 1));
    tell(text.fault);
    if (records.length > 0) opened.follow?.(records);
    const mended = text.takeMended();
    if (mended === null) return;
    log("WARN", "audit-text-repaired", { ...mended });
    try {
      if (!closing) recordRepair(ledger, mended);
    } catch (error) {
      // A ledger that takes nothing now says so itself; the log has told it.
      if (!(error instanceof LedgerError)) throw error;
    }
  };
  const opened: OpenedLedger = { ledger, text, textFault: () => text.fault, append, follow: null };
  ledger.afterCommit = (records) => {
    if (waiting.length === 0) setImmediate(append);
    waiting.push(...records);
  };
  ledger.beforeClose = () => {
    closing = true;
    append();
  };
  if (repair !== null) recordRepair(ledger, repair);
  return opened;
}

/** Records what a repair of the text did, when it did something. */
export function recordRepair(ledger: Ledger, repair: Omit<Repair, "head">): void {
  const { cut_bytes, appended, lost } = repair;
  if (cut_bytes === 0 && appended === 0 && lost === undefined) return;
  ledger.transaction((tx) => {
    // Where the chain begins now is known from here on, and that it once began earlier too.
    if (lost !== undefined) tx.setRemoved(lost);
    tx.append({
      event: "repaired",
      what: "audit-text",
      cut_bytes,
      appended,
      ...(lost === undefined ? {} : { lost_upto: lost.seq }),
    });
  });
}
