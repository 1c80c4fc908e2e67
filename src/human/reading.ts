/**
 * The ledger as a command reads it that changes nothing: no lock, beside a daemon or without one.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { ExitError } from "../errors.ts";
import { LEDGER_PATH } from "../daemon/open_ledger.ts";
import { Ledger } from "../ledger/ledger.ts";
import { look } from "../spool/look.ts";

/**
 * Opens the ledger for reading.
 *
 * @param how `whatever` opens one whose last records do not hold as well, for a caller who tells that
 * @throws {ExitError} when there is none yet
 */
export function readLedger(how: "sound" | "whatever" = "sound"): Ledger {
  if (look(LEDGER_PATH)?.kind !== "file") {
    throw new ExitError(
      EXIT.noDaemon,
      "there is no ledger yet, nothing was ever served here: ./bin/chb trust, then ./bin/chb serve",
    );
  }
  return Ledger.open(LEDGER_PATH, {
    now: Date.now,
    mode: "reader",
    ...(how === "whatever" ? { checkRecords: false } : {}),
  });
}
