/**
 * The ledger: what was accepted, what became of it, and the chain of audit records, in one SQLite
 * file. It promises that a change and its records are durable together when `transaction` returns,
 * that no id and no key ever owns two rows, and that every question asked for a request costs the
 * same however much is stored.
 *
 * Rules:
 * 1. One process writes: the holder of the lock on the state directory. The ledger relies on that
 *    (it keeps the last record and the number of waiting requests in memory) and does not take the
 *    lock itself; SQLite's own lock only makes a second writer wait or fail (S9, S10).
 * 2. `transaction` returns after a commit that reached the disk, or throws with nothing changed in
 *    this process. When the device fails during a commit, what the disk holds is unknown: the
 *    ledger then refuses every further call, since a later success would say nothing of the earlier
 *    commit (S5). A full disk is no such case: its transaction is undone and reads go on (S1).
 * 3. An error inside a transaction dooms it, caught or not: SQLite may have ended the transaction
 *    by itself, and what follows would be committed one by one (S1, D41).
 * 4. What hangs on a commit (the audit text) runs after it and cannot undo it. A fault there is
 *    thrown outside, never to the caller of `transaction`, who would take the change for undone.
 * 5. Rate, replay and waiting are read from the ledger, so a restart forgets none of them (Q1, Q9).
 * 6. The file is compared by device and inode while it is open: SQLite goes on happily in a file
 *    that was unlinked or replaced (S8).
 *
 * @module
 */
import { GENESIS, storedRecord, verifyLine } from "../audit/chain.ts";
import type { Class } from "../policy/policy.ts";
import { numberOf, numberOrNull, type SqlRow, textOf, textOrNull } from "./bind.ts";
import { type Approval, readApproval } from "./approvals.ts";
import {
  CLOSED,
  DAMAGED,
  Database,
  hasLogHead,
  identityOf,
  IN_USE,
  type LedgerMode,
  sameFile,
  sizeOf,
} from "./database.ts";
import { LedgerError } from "./ledger_error.ts";
import { HistoryReads } from "./history_reads.ts";
import { ReapReads } from "./reap_reads.ts";
import {
  type Message,
  messageCounts,
  newestMessages,
  readMessage,
  runMessages,
} from "./messages.ts";
import { FULL, fullRow, LIGHT, lightRow } from "./rows.ts";
import {
  heldSpend,
  openSpends,
  readSpend,
  readSpendDay,
  type Spend,
  type SpendDay,
} from "./spends.ts";
import { FLOOR, REMOVED, Tx } from "./tx.ts";
import type {
  FileId,
  LightRow,
  RecordRef,
  Row,
  RowRef,
  SeenClaim,
  Shown,
  StoredAnswer,
  StoredRecord,
  Trust,
} from "./types.ts";

export type { Tx } from "./tx.ts";

/** How a ledger is opened. */
export interface LedgerOptions {
  /** The wall clock, milliseconds since the epoch; it dates the records. */
  readonly now: () => number;
  readonly mode: LedgerMode;
  /** False leaves the last records unread: for a verification, which reads all of them. */
  readonly checkRecords?: false;
}

/** How many of the last records are read back when a ledger is opened. */
const CHECKED_RECORDS = 64;

/** Events that bind their claim to the row of their id. */
const ROW_EVENTS: ReadonlySet<unknown> = new Set(["accepted", "joined", "replayed"]);

export class Ledger {
  /** Called after each commit with the records that it made, in order; never with none. */
  afterCommit: ((records: readonly StoredRecord[]) => void) | null = null;
  /** Called after each commit that decided what rows are told as, with those rows. */
  afterDecision: ((rids: ReadonlySet<number>) => void) | null = null;
  /** Called once before the ledger is closed. */
  beforeClose: (() => void) | null = null;
  readonly #db: Database;
  readonly #now: () => number;
  #head: RecordRef | null = null;
  #tx: Tx | null = null;
  /** Rows as the last commit stored them: most runs end before anything else is committed. */
  #stored: ReadonlyMap<number, Row> = new Map();
  #waiting = new Map<string, number>();
  #shown = new Map<string, Shown>();
  /** What only reaping asks. */
  readonly reaping: ReapReads;
  /** What only a person who looks back asks. */
  readonly history: HistoryReads;
  /** The write-ahead log as it was after the writer's first commit. */
  #log: FileId | null = null;
  /** Bytes of the file when they were last looked at. */
  #size = 0;
  /** Transactions that this writer committed. */
  #commits = 0;

  private constructor(db: Database, now: () => number) {
    this.#db = db;
    this.#now = now;
    this.reaping = new ReapReads(db);
    this.history = new HistoryReads(db);
  }

  /**
   * Opens the ledger at `path`. A writer makes it when nothing is there, checks it as far as
   * `database.ts` says, and marks it as in use until `close`.
   *
   * Needs read permission for the file; a writer also write permission for its directory.
   *
   * @throws {LedgerError} when there is no ledger, or the file cannot be believed: see its kinds
   */
  static open(path: string, options: LedgerOptions): Ledger {
    const db = Database.open(path, options.mode);
    try {
      const ledger = new Ledger(db, options.now);
      if (options.checkRecords === false) ledger.#head = ledger.#lastRecord();
      else ledger.#checkRecords();
      if (options.mode === "writer") ledger.#take();
      return ledger;
    } catch (error) {
      db.rollback();
      db.close();
      throw error;
    }
  }

  /** How often a writer has opened this ledger. */
  get generation(): number {
    return Number(this.meta("ledger.generation") ?? "0");
  }

  /** How many transactions this writer has committed: nothing was changed while it stays the same. */
  get commits(): number {
    return this.#commits;
  }

  /** True when the last writer had closed the ledger before it was opened now. */
  get wasClean(): boolean {
    return this.#db.clean;
  }

  /** True when every page is still to be read: see rule 4 of `database.ts`. */
  get unchecked(): boolean {
    return this.#db.unchecked;
  }

  /** Every page was read meanwhile, and all hold together. */
  pagesAreSound(): void {
    this.#db.unchecked = false;
  }

  /**
   * A page was found that does not hold: nothing is done any more, and every start reads all pages
   * first until they hold.
   *
   * @returns the error to end with
   */
  pagesAreDamaged(message: string): LedgerError {
    const error = new LedgerError("corrupt", `The ledger's pages do not hold together: ${message}`);
    try {
      this.#mark(DAMAGED);
    } catch {
      // Then the next start reads them beside the service once more.
    }
    this.#db.fail(error);
    return error;
  }

  /**
   * Runs `fn` in one transaction and commits. Nothing asynchronous may happen inside.
   *
   * @returns what `fn` returned, once its changes and records are on the disk
   * @throws whatever `fn` throws, after undoing everything
   * @throws {LedgerError} `busy`, `full`, `readonly`, `io`… when the change could not be stored
   */
  transaction<T>(fn: (tx: Tx) => T): T {
    if (this.#db.mode === "reader") {
      throw new LedgerError("readonly", "Cannot change ledger: it was opened for reading");
    }
    if (this.#tx !== null) throw new Error("Cannot begin transaction: another one is open");
    this.#db.begin();
    const tx = new Tx(this.#db, this.#head, this.#now);
    this.#tx = tx;
    let value: T;
    try {
      this.#checkHead();
      value = fn(tx);
      if (value instanceof Promise) {
        throw new TypeError("Cannot commit: the transaction's function is asynchronous");
      }
      this.#db.commit();
    } catch (error) {
      this.#db.rollback();
      throw error;
    } finally {
      tx.end();
      this.#tx = null;
    }
    this.#commits++;
    this.#head = tx.head;
    this.#stored = tx.stored;
    for (const [agent, change] of tx.waiting) {
      this.#waiting.set(agent, (this.#waiting.get(agent) ?? 0) + change);
    }
    for (const [agent, { files, bytes }] of tx.shown) {
      const before = this.#shown.get(agent);
      this.#shown.set(agent, {
        files: (before?.files ?? 0) + files,
        bytes: (before?.bytes ?? 0) + bytes,
      });
    }
    if (tx.decided.size > 0) this.afterDecision?.(tx.decided);
    this.#announce(tx.records);
    return value;
  }

  /** The row that an id belongs to, first or joined. */
  rowById(agent: string, id: string): Row | null {
    return full(this.#db.get(
      `SELECT ${FULL} FROM rows WHERE rid = (SELECT rid FROM ids WHERE agent = ? AND id = ?)`,
      agent,
      id,
    ));
  }

  /** The row that a key belongs to. */
  rowByKey(agent: string, key: string): Row | null {
    return full(this.#db.get(`SELECT ${FULL} FROM rows WHERE agent = ? AND key = ?`, agent, key));
  }

  /** The row of a number. */
  row(rid: number): Row | null {
    const stored = this.#tx === null ? this.#stored.get(rid) : undefined;
    return stored ?? full(this.#db.get(`SELECT ${FULL} FROM rows WHERE rid = ?`, rid));
  }

  /** Every id of a row, the first one first; none when the row was released. */
  idsOf(rid: number): string[] {
    return this.#db.all("SELECT id FROM ids WHERE rid = ? ORDER BY joined", rid)
      .map((row) => textOf(row, "id"));
  }

  /** Rows that are pending or running, in order of arrival. */
  unfinished(): Row[] {
    return this.#db.all(`SELECT ${FULL} FROM rows WHERE state IN ('pending', 'running')`)
      .map(fullRow).sort((a, b) => a.rid - b.rid);
  }

  /** Rows that are uncertain, in order of arrival. */
  uncertain(): LightRow[] {
    return this.#db.all(`SELECT ${LIGHT} FROM rows WHERE state = 'uncertain' ORDER BY rid`)
      .map(lightRow);
  }

  /** The agents that have a row of this id, whatever its state. Asks for each agent that is known. */
  agentsOf(id: string): string[] {
    const known = this.#db.all("SELECT k FROM meta WHERE k >= 'pins.' AND k < 'pins/'");
    return known.map((row) => textOf(row, "k").slice("pins.".length))
      .filter((agent) => this.rowById(agent, id) !== null);
  }

  /**
   * Rows whose document is not published as it stands, in order of arrival.
   *
   * @param after only rows behind this one
   */
  unpublished(limit: number, after = 0): Row[] {
    return this.#db.all(
      `SELECT ${FULL} FROM rows WHERE pub = 0 AND rid > ? ORDER BY rid LIMIT ?`,
      after,
      limit,
    ).map(fullRow);
  }

  /** What of each agent lies in its `results/`; kept up with every commit. Only for a writer. */
  shown(): ReadonlyMap<string, Shown> {
    return this.#shown;
  }

  /** The newest rows of an agent, newest first, released ones included. */
  recent(agent: string, limit: number): LightRow[] {
    return this.#db.all(
      `SELECT ${LIGHT} FROM rows WHERE agent = ? ORDER BY rid DESC LIMIT ?`,
      agent,
      limit,
    ).map(lightRow);
  }

  /**
   * Where a claim was recorded. A claim that joined or repeated a row is told as that row, as long
   * as its id still belongs to it.
   *
   * @param random the claim's random part
   */
  claimSeen(random: string): SeenClaim {
    const row = this.#db.get("SELECT rid FROM rows WHERE claim = ?", random);
    if (row !== undefined) return { kind: "row", rid: numberOf(row, "rid") };
    const answer = this.#db.get(
      "SELECT claim, agent, target, document, pub FROM answers WHERE claim = ?",
      random,
    );
    if (answer !== undefined) {
      return { kind: "answer", answer: answer["pub"] === 0 ? storedAnswer(answer) : null };
    }
    const records = this.#db.all("SELECT line FROM records WHERE claim = ? ORDER BY seq", random);
    for (const record of records) {
      const event: Record<string, unknown> = JSON.parse(textOf(record, "line"));
      if (!ROW_EVENTS.has(event["event"])) continue;
      const owner = this.#db.get(
        "SELECT rid FROM ids WHERE agent = ? AND id = ?",
        String(event["agent"]),
        String(event["id"]),
      );
      if (owner !== undefined) return { kind: "row", rid: numberOf(owner, "rid") };
    }
    return records.length === 0 ? null : { kind: "answer", answer: null };
  }

  /**
   * True when signed bytes were carried out for an agent: noted, and neither released nor forgotten.
   *
   * @param sha256 of the signed bytes, lower-case hex
   */
  wasCarriedOut(agent: string, sha256: string): boolean {
    return this.#db.get("SELECT 1 FROM signed WHERE agent = ? AND sha256 = ?", agent, sha256) !==
      undefined;
  }

  /** True while an answer is saved, not published, and no row has its name. */
  isOwed(claim: string): boolean {
    return this.#db.get("SELECT 1 FROM answers WHERE claim = ? AND pub = 0", claim) !== undefined;
  }

  /** Every answer that was saved and not published, oldest first. */
  answers(): StoredAnswer[] {
    return this.#db.all(
      "SELECT claim, agent, target, document FROM answers WHERE pub = 0 ORDER BY n",
    )
      .map(storedAnswer);
  }

  /**
   * How many rows of this agent and class were started after a moment of the bridge's clock, or
   * wait to be: a row that waits for a slot has been let in, and nobody asks again before it
   * starts. One that waits for a human's word has not: each of them is let in by a human.
   */
  countStarted(agent: string, cls: Class, sinceTick: number): number {
    const started = this.#db.get(
      "SELECT COUNT(*) AS n FROM rows WHERE agent = ? AND class = ? AND started_tick > ?",
      agent,
      cls,
      sinceTick,
    );
    const waiting = this.#db.get(
      "SELECT COUNT(*) AS n FROM rows WHERE state IN ('pending', 'running') " +
        "AND state = 'pending' AND agent = ? AND class = ? AND started_tick IS NULL " +
        "AND NOT EXISTS (SELECT 1 FROM approvals " +
        "WHERE approvals.rid = rows.rid AND approvals.state = 'waiting')",
      agent,
      cls,
    );
    return (started === undefined ? 0 : numberOf(started, "n")) +
      (waiting === undefined ? 0 : numberOf(waiting, "n"));
  }

  /** When the n-th row (from 0, the oldest first) after a moment was started, or null. */
  startTick(agent: string, cls: Class, sinceTick: number, n: number): number | null {
    const row = this.#db.get(
      "SELECT started_tick FROM rows WHERE agent = ? AND class = ? AND started_tick > ? " +
        "ORDER BY started_tick LIMIT 1 OFFSET ?",
      agent,
      cls,
      sinceTick,
      n,
    );
    return row === undefined ? null : numberOf(row, "started_tick");
  }

  /** The last starts, by arrival: the bridge's clock and the wall clock as they were then. */
  lastStarts(limit: number): { tick: number; wall_ms: number }[] {
    return this.#db.all(
      "SELECT started_tick, started_ms FROM rows " +
        "WHERE started_tick IS NOT NULL AND started_ms IS NOT NULL ORDER BY rid DESC LIMIT ?",
      limit,
    ).map((row) => ({ tick: numberOf(row, "started_tick"), wall_ms: numberOf(row, "started_ms") }));
  }

  /** What a human said to a row, or null when it needs no word. */
  approval(rid: number): Approval | null {
    return readApproval(this.#db, rid);
  }

  /** What a row spends, or null. */
  spend(rid: number): Spend | null {
    return readSpend(this.#db, rid);
  }

  /** Rows that hold or reserve something. */
  openSpends(): number[] {
    return openSpends(this.#db);
  }

  /** What an agent's waiting requests hold together, billionths. */
  heldSpend(agent: string): bigint {
    return heldSpend(this.#db, agent);
  }

  /** What an agent has spent on a day. */
  spendDay(agent: string, day: number): SpendDay {
    return readSpendDay(this.#db, agent, day);
  }

  /** Records that name this request, oldest first; a look at every record. */
  recordsOf(agent: string, id: string, limit: number): StoredRecord[] {
    return this.#db.all(
      "SELECT seq, line FROM records WHERE instr(line, ?) > 0 AND instr(line, ?) > 0 " +
        "ORDER BY seq LIMIT ?",
      `"id":${JSON.stringify(id)}`,
      `"agent":${JSON.stringify(agent)}`,
      limit,
    ).map((row) => storedRecord(numberOf(row, "seq"), textOf(row, "line")));
  }

  /** How many pending rows an agent has; within a transaction its own changes included. */
  countWaiting(agent: string): number {
    if (this.#db.mode === "writer") {
      return (this.#waiting.get(agent) ?? 0) + (this.#tx?.waiting.get(agent) ?? 0);
    }
    const row = this.#db.get(
      "SELECT COUNT(*) AS n FROM rows " +
        "WHERE state IN ('pending', 'running') AND state = 'pending' AND agent = ?",
      agent,
    );
    return row === undefined ? 0 : numberOf(row, "n");
  }

  /** The last record, or null. Within a transaction its own records count. */
  head(): RecordRef | null {
    if (this.#db.mode === "writer") return this.#tx === null ? this.#head : this.#tx.head;
    return this.#lastRecord();
  }

  /** Records from a number on, in order. */
  records(fromSeq: number, limit: number): StoredRecord[] {
    return this.#db.all(
      "SELECT seq, line FROM records WHERE seq >= ? ORDER BY seq LIMIT ?",
      fromSeq,
      limit,
    ).map((row) => storedRecord(numberOf(row, "seq"), textOf(row, "line")));
  }

  /**
   * The last record that has left the ledger, or null when all are there. What left stands in a
   * rotated segment of the audit text.
   */
  floor(): RecordRef | null {
    return storedRef(this.meta(FLOOR));
  }

  /** The last record of the audit segments that were removed, or null. */
  removed(): RecordRef | null {
    return storedRef(this.meta(REMOVED));
  }

  /** The records that the results of rows name, in order of the rows after a number. */
  rowRefs(afterRid: number, limit: number): RowRef[] {
    return this.#db.all(
      "SELECT rid, agent, id, json_extract(result, '$.audit.seq') AS seq, " +
        "json_extract(result, '$.audit.hash') AS hash FROM rows WHERE rid > ? ORDER BY rid LIMIT ?",
      afterRid,
      limit,
    ).map((row) => ({
      rid: numberOf(row, "rid"),
      agent: textOf(row, "agent"),
      id: textOf(row, "id"),
      // Every result names its record: one that does not is as wrong as one that lies.
      seq: numberOrNull(row, "seq") ?? 0,
      hash: textOrNull(row, "hash") ?? "",
    }));
  }

  /** A message to an agent, or null. */
  message(agent: string, n: number): Message | null {
    return readMessage(this.#db, agent, n);
  }

  /** The newest messages to an agent, newest first. */
  messages(agent: string, limit: number): Message[] {
    return newestMessages(this.#db, agent, limit);
  }

  /** The messages that the command of a run sent. */
  runMessages(run: string): Message[] {
    return runMessages(this.#db, run);
  }

  /** The number of the newest message to an agent, and how many wait for an answer. */
  messageCounts(agent: string, nowMs: number): { newest: number; asking: number } {
    return messageCounts(this.#db, agent, nowMs);
  }

  /** The value that `Tx.setMeta` stored under a name, or null. */
  meta(k: string): string | null {
    const row = this.#db.get("SELECT v FROM meta WHERE k = ?", k);
    return row === undefined ? null : textOf(row, "v");
  }

  /** The names below a prefix under which `Tx.setMeta` stored something. */
  metaNames(prefix: string): string[] {
    return this.#db.all(
      "SELECT k FROM meta WHERE k >= ? AND k < ? ORDER BY k",
      prefix,
      `${prefix}~`,
    )
      .map((row) => textOf(row, "k"));
  }

  /** What was trusted last, or null when nothing ever was. */
  currentTrust(): Trust | null {
    const row = this.#db.get(
      "SELECT policy, at_ms, by, programs, requires, bin_sha256 FROM trusts " +
        "WHERE n = (SELECT MAX(n) FROM trusts)",
    );
    return row === undefined ? null : {
      policy: textOf(row, "policy"),
      at_ms: numberOf(row, "at_ms"),
      by: textOf(row, "by"),
      programs: JSON.parse(textOf(row, "programs")),
      requires: JSON.parse(textOf(row, "requires")),
      bin_sha256: textOrNull(row, "bin_sha256"),
    };
  }

  /** The file as it was when it was opened. */
  identity(): FileId {
    return this.#db.identity;
  }

  /**
   * True while the path still names the file that is open, and, for a writer, the log beside it is
   * still the one that is written. False means that commits no longer reach what a restart will
   * read: stop at once.
   */
  intact(): boolean {
    if (!sameFile(identityOf(this.#db.path), this.#db.identity)) return false;
    if (this.#log !== null && !sameFile(identityOf(`${this.#db.path}-wal`), this.#log)) {
      return false;
    }
    return this.#db.mode === "reader" || this.#keepsSize();
  }

  /**
   * False when one of the two files was cut. The ledger itself never shrinks. Its log may, and grows
   * again with the next commit, but what was cut off is without content then, its head above all.
   */
  #keepsSize(): boolean {
    const size = sizeOf(this.#db.path);
    if (size < this.#size) return false;
    this.#size = size;
    return this.#log === null || hasLogHead(`${this.#db.path}-wal`);
  }

  /**
   * The ledger must still end with the record that this process wrote last. One that does not was
   * rolled back in place, and what it says of keys is not to be believed (S8, Q1).
   */
  #checkHead(): void {
    if (this.#head === null) return;
    const row = this.#db.get("SELECT line FROM records WHERE seq = ?", this.#head.seq);
    if (row !== undefined && textOf(row, "line").endsWith(`"${this.#head.hash}"}`)) return;
    const error = new LedgerError(
      "corrupt",
      "Cannot use ledger: it was changed by somebody else while it was open",
    );
    this.#db.fail(error);
    throw error;
  }

  /**
   * Closes the ledger. A writer first marks it as closed and moves its log into the file.
   *
   * One whose pages are still to be read is not marked, so that the next start has them read.
   *
   * @returns false when a writer's mark could not be stored: the next start then checks every page
   */
  close(): boolean {
    const before = this.beforeClose;
    this.beforeClose = null;
    before?.();
    let marked = true;
    if (this.#db.mode === "writer" && this.#db.isOpen) {
      // SQLite removes the log by name when it closes, and the name may be another ledger's by now.
      if (!this.intact()) return false;
      try {
        if (this.#tx !== null) throw new Error("Cannot close ledger: a transaction is open");
        if (this.#db.unchecked) this.#db.get("PRAGMA wal_checkpoint(PASSIVE)");
        else {
          this.#mark(CLOSED);
          this.#db.get("PRAGMA wal_checkpoint(TRUNCATE)");
        }
      } catch (error) {
        if (!(error instanceof LedgerError)) throw error;
        marked = false;
      }
    }
    this.#db.close();
    return marked;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** The last records must follow each other; the whole chain is `AuditText.verify`'s work. */
  #checkRecords(): void {
    this.#head = this.#lastRecord();
    if (this.#head === null) return;
    const floor = this.floor() ?? { seq: 0, hash: GENESIS };
    const from = Math.max(floor.seq + 1, this.#head.seq - CHECKED_RECORDS);
    let before: RecordRef | null = from === floor.seq + 1 ? floor : null;
    for (const record of this.records(from, CHECKED_RECORDS + 1)) {
      const prev: string = before?.hash ?? prevOf(record.line);
      const ref = verifyLine(record.line, prev);
      const expected: number = before === null ? from : before.seq + 1;
      if (ref === null || ref.seq !== record.seq || record.seq !== expected) {
        const first = Math.min(record.seq, expected);
        throw new LedgerError("corrupt", `Cannot open ledger: record ${first} does not hold`);
      }
      before = ref;
    }
  }

  /** Marks the ledger as in use and loads what the writer keeps in memory. */
  #take(): void {
    this.#db.begin();
    this.#mark(IN_USE);
    this.#db.run("UPDATE meta SET v = CAST(v AS INTEGER) + 1 WHERE k = 'ledger.generation'");
    this.#db.commit();
    this.#log = identityOf(`${this.#db.path}-wal`);
    this.#size = sizeOf(this.#db.path);
    const waiting = this.#db.all(
      "SELECT agent, COUNT(*) AS n FROM rows " +
        "WHERE state IN ('pending', 'running') AND state = 'pending' GROUP BY agent",
    );
    for (const row of waiting) this.#waiting.set(textOf(row, "agent"), numberOf(row, "n"));
    this.#shown = this.reaping.shown();
  }

  #mark(mark: string): void {
    this.#db.run("UPDATE meta SET v = ? WHERE k = 'ledger.clean'", mark);
  }

  #lastRecord(): RecordRef | null {
    const row = this.#db.get(
      "SELECT seq, line FROM records WHERE seq = (SELECT MAX(seq) FROM records)",
    );
    if (row === undefined) return null;
    const { seq, hash } = storedRecord(numberOf(row, "seq"), textOf(row, "line"));
    return { seq, hash };
  }

  #announce(records: readonly StoredRecord[]): void {
    if (records.length === 0 || this.afterCommit === null) return;
    try {
      this.afterCommit(records);
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}

function full(row: SqlRow | undefined): Row | null {
  return row === undefined ? null : fullRow(row);
}

function storedAnswer(row: SqlRow): StoredAnswer {
  return {
    claim: textOf(row, "claim"),
    agent: textOf(row, "agent"),
    target: textOrNull(row, "target"),
    document: textOf(row, "document"),
  };
}

/** A record's place as `meta` keeps it. */
function storedRef(text: string | null): RecordRef | null {
  return text === null ? null : JSON.parse(text);
}

/** What a line says of the record before it. */
function prevOf(line: string): string {
  return line.slice(-140, -76);
}
