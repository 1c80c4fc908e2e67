/**
 * Opens the ledger for writing together with the audit text that is derived from it. Whoever calls
 * this holds the lock on `state/`: exactly one process writes ledger, chain and text.
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { AuditText } from "../audit/audit_text.ts";
import { Ledger } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { StoredRecord } from "../ledger/types.ts";
import { errorCode } from "../errors.ts";
import type { Log } from "./log.ts";

/** Path of the ledger below the root. */
export const LEDGER_PATH = "state/ledger.db";

/** Path of the audit log as text. */
export const AUDIT_PATH = "state/audit/audit.jsonl";

/**
 * @returns the ledger, and `textFault` that names why the text cannot be written, or null; the
 * text is derived, so its failure stops nothing: it catches up by itself when it can
 * @throws {LedgerError} when the ledger cannot be believed, also because the audit text knows of
 *   records that it does not have: it was rolled back, emptied or replaced (S8, Q1)
 */
export function openLedger(
  now: () => number,
  log: Log,
): { ledger: Ledger; textFault: () => string | null } {
  const ledger = Ledger.open(LEDGER_PATH, { now, mode: "writer" });
  const text = new AuditText(AUDIT_PATH);
  let told: string | null = null;
  const tell = (fault: string | null) => {
    if (fault !== null && fault !== told) log("ERROR", "audit-text", { error: fault });
    told = fault;
  };
  try {
    const { cut_bytes, appended } = text.repair(ledger);
    if (cut_bytes > 0) log("WARN", "audit-text-repaired", { cut_bytes, appended });
  } catch (error) {
    if (error instanceof LedgerError) {
      ledger.close();
      throw error;
    }
    tell(errorCode(error) ?? "unreadable");
  }
  // What a commit lets happen goes first; the text follows when the loop comes round, and in any
  // case before the ledger is closed.
  let waiting: StoredRecord[] = [];
  const append = () => {
    if (waiting.length === 0) return;
    const records = waiting;
    waiting = [];
    text.append(records);
    tell(text.fault);
  };
  ledger.afterCommit = (records) => {
    if (waiting.length === 0) setImmediate(append);
    waiting.push(...records);
  };
  ledger.beforeClose = append;
  return { ledger, textFault: () => text.fault };
}
