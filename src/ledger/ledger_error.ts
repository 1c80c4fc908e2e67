/**
 * What can go wrong with the ledger, as one closed set of kinds. Callers switch on `kind`, never
 * on message text; `fatal` says whether the process may go on.
 *
 * @module
 */
import { errorCode } from "../errors.ts";

/**
 * - `missing`: there is no ledger, and none may be made here
 * - `empty`: the file has no bytes
 * - `foreign`: a file, but not a ledger of this program
 * - `version`: a ledger of a newer program
 * - `corrupt`: a ledger whose content does not hold
 * - `behind`: a ledger that knows less than the audit text beside it
 * - `forked`: a ledger that tells another history than the audit text beside it
 * - `busy`: another process holds the write lock
 * - `full`: no space left; the transaction left nothing behind in this process
 * - `readonly`: the file system or the connection refuses to write
 * - `io`: the device failed; what became of a commit is unknown
 * - `constraint`: the change contradicts what is stored
 * - `closed`: the ledger was closed, or gave up after a fatal error
 * - `sql`: anything else
 */
export type LedgerErrorKind =
  | "missing"
  | "empty"
  | "foreign"
  | "version"
  | "corrupt"
  | "behind"
  | "forked"
  | "busy"
  | "full"
  | "readonly"
  | "io"
  | "constraint"
  | "closed"
  | "sql";

const FATAL: ReadonlySet<LedgerErrorKind> = new Set(["io", "corrupt", "behind", "forked"]);

/** What a ledger may have suffered that a human can settle. */
export const LOSSES: ReadonlySet<LedgerErrorKind> = new Set([
  "behind",
  "corrupt",
  "empty",
  "foreign",
  "missing",
]);

/** A ledger that cannot be opened, read or written. */
export class LedgerError extends Error {
  override name = "LedgerError";
  readonly kind: LedgerErrorKind;

  constructor(kind: LedgerErrorKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }

  /** The kind as an error code, such as `LEDGER_BEHIND`, for logs that print codes. */
  get code(): string {
    return `LEDGER_${this.kind.toUpperCase()}`;
  }

  /** True when the state on disk is unknown or wrong: stop, and let recovery or a human decide. */
  get fatal(): boolean {
    return FATAL.has(this.kind);
  }
}

/** The kind of each primary result code of SQLite. */
const KIND_OF_CODE: ReadonlyMap<number, LedgerErrorKind> = new Map([
  [5, "busy"],
  [6, "busy"],
  [8, "readonly"],
  [10, "io"],
  [11, "corrupt"],
  [13, "full"],
  [14, "io"],
  [19, "constraint"],
  [26, "foreign"],
]);

/** The kind of the system errors that say more than "the device failed". */
const KIND_OF_SYSTEM_ERROR: ReadonlyMap<string, LedgerErrorKind> = new Map([
  ["ENOSPC", "full"],
  ["EDQUOT", "full"],
  ["EROFS", "readonly"],
  ["EACCES", "readonly"],
  ["EPERM", "readonly"],
]);

/**
 * An error of the database or of a system call as a `LedgerError`; a `LedgerError` passes unchanged.
 *
 * @param action what was being done, in words that follow "Cannot"
 */
export function toLedgerError(error: unknown, action: string): LedgerError {
  if (error instanceof LedgerError) return error;
  const result = typeof error === "object" && error !== null && "errcode" in error &&
      typeof error.errcode === "number"
    ? error.errcode & 0xff
    : 0;
  const code = errorCode(error);
  const kind = KIND_OF_CODE.get(result) ??
    (code === undefined || code.startsWith("ERR_")
      ? "sql"
      : KIND_OF_SYSTEM_ERROR.get(code) ?? "io");
  const text = error instanceof Error ? error.message : String(error);
  return new LedgerError(kind, `Cannot ${action}: ${text}`, { cause: error });
}
