/**
 * Opens the ledger for writing together with the audit text that is derived from it. Whoever calls
 * this holds the lock on `state/`: exactly one process writes ledger, chain and text.
 *
 * @module
 */
import { AuditText } from "../audit/audit_text.ts";
import { Ledger } from "../ledger/ledger.ts";
import { errorCode } from "../errors.ts";
import type { Log } from "./log.ts";

/** Path of the ledger below the root. */
export const LEDGER_PATH = "state/ledger.db";

/** Path of the audit log as text. */
export const AUDIT_PATH = "state/audit/audit.jsonl";

/**
 * @returns the ledger, and `textFault` that names why the text cannot be written, or null; the
 * text is derived, so its failure stops nothing and is mended by the next repair
 */
export function openLedger(
  now: () => number,
  log: Log,
): { ledger: Ledger; textFault: () => string | null; repair: () => void } {
  const ledger = Ledger.open(LEDGER_PATH, { now, mode: "writer" });
  let fault: string | null = null;
  let text: AuditText | null = null;
  const repair = () => {
    try {
      text ??= new AuditText(AUDIT_PATH);
      text.repair(ledger);
      fault = null;
    } catch (error) {
      fault = errorCode(error) ?? "unreadable";
      log("ERROR", "audit-text", { error: fault });
    }
  };
  repair();
  ledger.afterCommit = (records) => {
    if (fault !== null || text === null) return;
    try {
      text.append(records);
    } catch (error) {
      fault = errorCode(error) ?? "unreadable";
      log("ERROR", "audit-text", { error: fault });
    }
  };
  return { ledger, textFault: () => fault, repair };
}
