/**
 * The ledger as a reader sees it, held against the audit text beside it: a ledger that was emptied,
 * replaced, rolled back or deleted opens well enough, and only the text knows what it has lost.
 *
 * @module
 */
import { AuditText } from "../audit/audit_text.ts";
import { readLine } from "../audit/chain.ts";
import { AUDIT_PATH, LEDGER_PATH } from "../daemon/open_ledger.ts";
import { Ledger } from "../ledger/ledger.ts";
import { LedgerError, LOSSES } from "../ledger/ledger_error.ts";
import type { RecordRef } from "../ledger/types.ts";
import { printable } from "../names.ts";
import { look } from "../spool/look.ts";
import { type Exam, found } from "./exam.ts";

/** What a person does about a ledger that cannot be read. */
const LEDGER_WORDS =
  "Be the user who owns state/; when that is not it, look for the right one in a " +
  "backup, and see ./bin/chb ledger --help";
const LOSS_WORDS = "Look for the right one in a backup, and accept the loss only without one";

/** What a human says who has no better ledger. */
export const ACCEPT_LOSS = './bin/chb ledger accept-loss --reason "…"';

/** The ledger as a reader sees it, or null with a finding. Read permission for `./state`. */
export function openReader(exam: Exam): Ledger | null {
  // Before the ledger: the text never has what the ledger had not before.
  let told: RecordRef | null = null;
  exam.look("end of the audit text", () => void (told = new AuditText(AUDIT_PATH).textHead()));
  if (told === null && ["", "-wal"].every((suffix) => look(LEDGER_PATH + suffix) === null)) {
    exam.leave("ledger", "there is none before the first start or trust");
    return null;
  }
  let ledger: Ledger | null = null;
  try {
    ledger = Ledger.open(LEDGER_PATH, { now: Date.now, mode: "reader" });
    compare(ledger, told);
    return ledger;
  } catch (error) {
    ledger?.close();
    const why = error instanceof Error ? error.message : "unknown";
    const lost = error instanceof LedgerError && LOSSES.has(error.kind);
    const message = `${printable(why, 300)}. ${lost ? LOSS_WORDS : LEDGER_WORDS}`;
    exam.findings.push(found("error", "ledger", LEDGER_PATH, message, lost ? ACCEPT_LOSS : ""));
    return null;
  }
}

/** Throws unless the ledger has the record that the text ends with. */
function compare(ledger: Ledger, told: RecordRef | null): void {
  if (told === null) return;
  const last = ledger.head()?.seq ?? 0;
  if (told.seq > last) {
    const message = `The audit text ends with record ${told.seq}, the ledger with ${last}`;
    throw new LedgerError("behind", message);
  }
  const floor = ledger.floor();
  const own = told.seq === floor?.seq
    ? floor
    : readLine(ledger.records(told.seq, 1)[0]?.line ?? "");
  if (own?.hash === told.hash) return;
  const message = `Record ${told.seq} of the audit text is not the one of the ledger`;
  throw new LedgerError("forked", message);
}
