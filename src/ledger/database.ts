/**
 * One connection to the ledger file: how it is made, what is checked before it is believed, and
 * the few calls through which SQL runs. It knows nothing of rows or requests.
 *
 * Rules:
 * 1. A ledger never appears half made. It is built under another name, in one transaction, closed,
 *    and renamed into place; the directory is synced. So a file without bytes under the ledger's
 *    name is a ledger that was lost, and is refused, never filled anew (S8, Q1).
 * 2. No ledger is made beside a write-ahead log: the log belongs to a database that was taken
 *    away, and SQLite would replay it into the new one. The log is never deleted (S8).
 * 3. Before a ledger is believed it must be a regular file with one link, and must carry the
 *    application id, a version that is known, and exactly the tables of `schema.ts`; a trigger or
 *    view added by hand is a refusal. A file shorter than its header says is refused by SQLite at
 *    the first read (S8).
 * 4. The full check of all pages costs time in proportion to the file, so a start runs it first
 *    only when the file is below `SMALL_PAGES`, or when an earlier check found damage. A big ledger
 *    gets the bounded checks of rules 3 and 5, and when the last writer did not end by `close` also
 *    the full one, beside the service (`page_check.ts`). That is safe because a crash of this
 *    program tears no page: what it wrote is with the kernel, and every frame of the log carries a
 *    checksum and is folded into the file only when it is on the disk. What the full check finds is
 *    damage of another kind, by a disk that lied or a file that was exchanged: it is as likely after
 *    a clean end, it is not made by serving, and waiting for it would only make every start after a
 *    crash last as long as the ledger is big. Until the check has passed, `close` does not call the
 *    ledger clean; when it fails, the service ends, the mark says so, and no start gets past the
 *    full check again before the pages hold. Pages that rot on an idle disk show at the first read
 *    of them, which is fatal.
 * 5. The last records must form a chain (`Ledger` reads them back), and the audit text must not
 *    know more than the ledger (`AuditText.repair`). That is what shows a cut or exchanged
 *    write-ahead log, which every check inside the file passes (S8).
 * 6. The file is looked at by name before SQLite opens it, never opened by us: closing a second
 *    descriptor of the same file would drop SQLite's own locks.
 *
 * @module
 */
import { type BigIntStats, lstatSync } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { dirname } from "@std/path/dirname";
import { errorCode } from "../errors.ts";
import { numberOf, type SqlRow, type SqlValue, sqlValue, textOf } from "./bind.ts";
import { LedgerError, toLedgerError } from "./ledger_error.ts";
import { APPLICATION_ID, SCHEMA, VERSION } from "./schema.ts";
import type { FileId } from "./types.ts";

/** `writer` for the holder of the state lock, `reader` for anybody else. */
export type LedgerMode = "writer" | "reader";

/** How long a statement waits for another process's lock, milliseconds. The event loop waits too. */
const BUSY_MS = 5_000;

/** Below this number of pages (4 KiB each) a writer checks every page at each start. */
export const SMALL_PAGES = 4_096;

/** Values of the mark that tells how the last writer left the ledger. */
export const IN_USE = "0";
export const CLOSED = "1";
export const DAMAGED = "2";

/** First four bytes of a write-ahead log but for the last bit, which tells the order of bytes. */
const WAL_MAGIC = 0x377f0682;

/** Bytes that the write-ahead log keeps on disk after a checkpoint. */
const WAL_KEEP = 16 * 1024 * 1024;

export class Database {
  readonly path: string;
  readonly mode: LedgerMode;
  /** The file as it was when it was opened. */
  readonly identity: FileId;
  /** True when the last writer closed the ledger and no log was left to be replayed. */
  readonly clean: boolean;
  /** True while every page is still to be read, for a writer. */
  unchecked: boolean;
  #db: DatabaseSync;
  #statements = new Map<string, StatementSync>();
  #failed: LedgerError | null = null;
  /** True between `begin` and `commit` or `rollback`. */
  #open = false;
  /** The first error of the open transaction. */
  #doomed: LedgerError | null = null;

  private constructor(
    path: string,
    mode: LedgerMode,
    db: DatabaseSync,
    identity: FileId,
    clean: boolean,
    unchecked: boolean,
  ) {
    this.path = path;
    this.mode = mode;
    this.#db = db;
    this.identity = identity;
    this.clean = clean;
    this.unchecked = unchecked;
  }

  /**
   * Opens the ledger at `path`; a writer makes it when nothing is there.
   *
   * Needs read permission for the file, a writer also write permission for its directory.
   *
   * @throws {LedgerError} of any kind up to `corrupt`, or `busy`, `readonly`, `io`
   */
  static open(path: string, mode: LedgerMode): Database {
    let stat = look(path);
    const log = look(`${path}-wal`)?.size ?? 0n;
    if (stat === null) {
      if (mode === "reader") {
        throw new LedgerError("missing", `Cannot open ledger: there is no ${path}`);
      }
      if (log > 0n) {
        throw new LedgerError(
          "missing",
          `Cannot make ledger: ${path} is gone, but its log ${path}-wal is there`,
        );
      }
      create(path);
      stat = look(path);
    }
    if (stat === null || !stat.isFile() || stat.nlink !== 1n) {
      throw new LedgerError("foreign", `Cannot open ledger: ${path} is not a plain file`);
    }
    if (stat.size === 0n) {
      throw new LedgerError("empty", `Cannot open ledger: ${path} has lost its content`);
    }
    const identity = fileId(stat);
    let db: DatabaseSync | undefined;
    try {
      db = new DatabaseSync(path, {
        readOnly: mode === "reader",
        timeout: BUSY_MS,
        enableForeignKeyConstraints: true,
      });
      configure(db, mode);
      const tables = inspect(db);
      const clean = log === 0n && tables.mark === CLOSED;
      const now = tables.pages < SMALL_PAGES || tables.mark === DAMAGED;
      if (mode === "writer" && now) checkPages(db);
      if (!sameFile(identityOf(path), identity)) {
        throw new LedgerError("foreign", `Cannot open ledger: ${path} was replaced meanwhile`);
      }
      return new Database(path, mode, db, identity, clean, !clean && !now);
    } catch (error) {
      if (db === undefined) {
        throw new LedgerError("io", `Cannot open ledger ${path}`, { cause: error });
      }
      db.close();
      throw toLedgerError(error, `open ledger ${path}`);
    }
  }

  /**
   * Opens a transaction that holds the write lock from the start.
   *
   * @throws {LedgerError} `busy` when another process kept the lock too long; nothing happened then
   */
  begin(): void {
    this.run("BEGIN IMMEDIATE");
    this.#open = true;
  }

  /**
   * Makes the transaction durable. After a statement failed nothing is committed, even when the
   * caller caught the error: SQLite may have rolled back by itself, and what came after would have
   * been committed piece by piece (S1).
   */
  commit(): void {
    this.run("COMMIT");
    this.#open = false;
  }

  /** Undoes an open transaction; one that SQLite already undid is fine. */
  rollback(): void {
    this.#open = false;
    this.#doomed = null;
    if (!this.#db.isOpen || !this.#db.isTransaction) return;
    try {
      this.#db.prepare("ROLLBACK").run();
    } catch (error) {
      this.fail(toLedgerError(error, "roll back"));
    }
  }

  /** Runs a statement that gives no rows; returns the number of rows that it changed. */
  run(sql: string, ...values: readonly unknown[]): number {
    return Number(this.#execute(sql, values, (s, v) => s.run(...v)).changes);
  }

  /** Runs an insert; returns the row id that it made. */
  insert(sql: string, ...values: readonly unknown[]): number {
    return Number(this.#execute(sql, values, (s, v) => s.run(...v)).lastInsertRowid);
  }

  /** The first row, or undefined. */
  get(sql: string, ...values: readonly unknown[]): SqlRow | undefined {
    return this.#execute(sql, values, (s, v) => s.get(...v)) as SqlRow | undefined;
  }

  /** Every row. */
  all(sql: string, ...values: readonly unknown[]): SqlRow[] {
    return this.#execute(sql, values, (s, v) => s.all(...v)) as SqlRow[];
  }

  /** The error after which nothing is done any more, or null. */
  get failed(): LedgerError | null {
    return this.#failed;
  }

  /** Marks the connection as beyond use: what the disk holds is unknown. */
  fail(error: LedgerError): void {
    this.#failed ??= error;
  }

  /** False once it was closed. */
  get isOpen(): boolean {
    return this.#db.isOpen;
  }

  /** Closes the connection. A second call does nothing. */
  close(): void {
    this.#statements.clear();
    if (this.#db.isOpen) this.#db.close();
  }

  #execute<T>(
    sql: string,
    values: readonly unknown[],
    call: (statement: StatementSync, values: SqlValue[]) => T,
  ): T {
    if (this.#failed !== null) {
      throw new LedgerError("closed", "Cannot use ledger: an earlier error was fatal", {
        cause: this.#failed,
      });
    }
    if (this.#doomed !== null) throw this.#doomed;
    if (!this.#db.isOpen) throw new LedgerError("closed", "Cannot use ledger: it is closed");
    const bound = values.map(sqlValue);
    try {
      let statement = this.#statements.get(sql);
      if (statement === undefined) {
        statement = this.#db.prepare(sql);
        this.#statements.set(sql, statement);
      }
      return call(statement, bound);
    } catch (error) {
      const known = toLedgerError(error, "use ledger");
      if (known.fatal) this.fail(known);
      if (this.#open) this.#doomed = known;
      throw known;
    }
  }
}

/** The device and inode that `path` names now, or null when nothing is there. */
export function identityOf(path: string): FileId | null {
  const stat = look(path);
  return stat === null ? null : fileId(stat);
}

/** Bytes of the file that `path` names now; 0 when nothing is there. */
export function sizeOf(path: string): number {
  return Number(look(path)?.size ?? 0n);
}

/**
 * True when the write-ahead log begins with its magic number. Rule 6 does not speak of it: SQLite
 * keeps no lock on the log itself.
 */
export function hasLogHead(path: string): boolean {
  const head = new Uint8Array(4);
  try {
    using file = Deno.openSync(path, { read: true });
    if (file.readSync(head) !== head.length) return false;
  } catch (error) {
    // What cannot be opened for another reason than its absence says nothing.
    return errorCode(error) !== "ENOENT";
  }
  return (new DataView(head.buffer).getUint32(0) & ~1) === WAL_MAGIC;
}

/** True when both are known and equal. */
export function sameFile(a: FileId | null, b: FileId | null): boolean {
  return a !== null && b !== null && a.dev === b.dev && a.ino === b.ino;
}

function fileId(stat: BigIntStats): FileId {
  return { dev: String(stat.dev), ino: String(stat.ino) };
}

/** The file itself, a last symlink not followed; null when nothing is there. */
function look(path: string): BigIntStats | null {
  try {
    return lstatSync(path, { bigint: true });
  } catch (error) {
    const code = errorCode(error);
    if (code === "ENOENT") return null;
    throw new LedgerError("io", `Cannot look at ${path}: ${code ?? "unknown error"}`, {
      cause: error,
    });
  }
}

/**
 * Makes an empty ledger. In this order: create the draft, commit the tables (SQLite syncs), switch
 * to write-ahead logging, close (the draft's log is gone), rename, sync the directory.
 */
function create(path: string): void {
  const draft = `${path}.new`;
  let db: DatabaseSync | undefined;
  try {
    // A crash at any point before the rename leaves a draft that nobody has ever used.
    for (const suffix of ["", "-journal", "-wal", "-shm"]) {
      if (look(draft + suffix) !== null) Deno.removeSync(draft + suffix);
    }
    // SQLite gives its log files the mode of the database, so this one call settles all of them.
    Deno.openSync(draft, { write: true, createNew: true, mode: 0o600 }).close();
    db = new DatabaseSync(draft, { timeout: BUSY_MS });
    db.prepare("PRAGMA synchronous = FULL").run();
    db.prepare("BEGIN IMMEDIATE").run();
    db.prepare(`PRAGMA application_id = ${APPLICATION_ID}`).run();
    db.prepare(`PRAGMA user_version = ${VERSION}`).run();
    for (const sql of SCHEMA.values()) db.prepare(sql).run();
    db.prepare("INSERT INTO meta VALUES ('ledger.clean', '1'), ('ledger.generation', '0')").run();
    db.prepare("COMMIT").run();
    db.prepare("PRAGMA journal_mode = WAL").get();
    db.close();
    db = undefined;
    Deno.renameSync(draft, path);
    using directory = Deno.openSync(dirname(path), { read: true });
    directory.syncSync();
  } catch (error) {
    db?.close();
    throw toLedgerError(error, `make ledger ${path}`);
  }
}

/** Settings of a connection; those that can be refused are read back. */
function configure(db: DatabaseSync, mode: LedgerMode): void {
  db.prepare("PRAGMA trusted_schema = OFF").run();
  db.prepare("PRAGMA cell_size_check = ON").run();
  db.prepare("PRAGMA temp_store = MEMORY").run();
  if (mode === "reader") {
    db.prepare("PRAGMA query_only = ON").run();
    return;
  }
  db.prepare("PRAGMA synchronous = FULL").run();
  db.prepare(`PRAGMA journal_size_limit = ${WAL_KEEP}`).run();
}

/** What a file says of itself; throws unless it is a ledger that this program knows. */
function inspect(db: DatabaseSync): { readonly pages: number; readonly mark: SqlValue } {
  const pragma = (name: string): SqlValue => {
    const row = db.prepare(`PRAGMA ${name}`).get() as SqlRow | undefined;
    return row === undefined ? null : Object.values(row)[0] ?? null;
  };
  if (pragma("application_id") !== APPLICATION_ID) {
    throw new LedgerError("foreign", "Cannot open ledger: the file belongs to another program");
  }
  const version = pragma("user_version");
  if (version !== VERSION) {
    throw new LedgerError(
      "version",
      `Cannot open ledger: its format is ${version}, this program knows ${VERSION}; use the program that wrote it, or a newer one`,
    );
  }
  const found = db.prepare(
    "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'",
  )
    .all() as SqlRow[];
  const same = found.length === SCHEMA.size &&
    found.every((row) => SCHEMA.get(textOf(row, "name")) === row["sql"]);
  if (!same) {
    throw new LedgerError("foreign", "Cannot open ledger: its tables are not the expected ones");
  }
  if (pragma("journal_mode") !== "wal") {
    throw new LedgerError("foreign", "Cannot open ledger: it does not use a write-ahead log");
  }
  const mark = db.prepare("SELECT v FROM meta WHERE k = 'ledger.clean'").get() as
    | SqlRow
    | undefined;
  const pages = numberOf({ pages: pragma("page_count") }, "pages");
  return { pages, mark: mark?.["v"] ?? null };
}

/** Reads every page; costs time in proportion to the file. */
function checkPages(db: DatabaseSync): void {
  const row = db.prepare("PRAGMA quick_check(1)").get() as SqlRow | undefined;
  if (row?.["quick_check"] !== "ok") {
    throw new LedgerError("corrupt", "Cannot open ledger: its pages do not hold together");
  }
}
