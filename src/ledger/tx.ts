/**
 * What may be changed within one transaction. A `Tx` lives only inside `Ledger.transaction`; used
 * later it throws.
 *
 * Rules:
 * 1. A record is appended in the transaction of the change that it tells of, so neither exists
 *    without the other. Its number and `prev` come from the record before it in the same
 *    transaction, or from the last committed one; a rollback gives the numbers back (S7).
 * 2. (agent, id) and (agent, key) are unique by index, not by a look beforehand: two rows can
 *    never own one name, whatever the caller overlooked (Q1, Q2).
 * 3. A row counts as published only as the document that was published: marks that come together
 *    with a new document, in either order, leave the row unpublished.
 * 4. Whatever decides a document also stores the number of the last record: the order in which
 *    things were decided, which no clock can change, is the order in which they are reaped.
 * 5. A released row keeps its document but has lost its names. When one of them is bound again, an
 *    unpublished document of the old row is set aside, or it could overwrite the new row's after a
 *    restart.
 *
 * @module
 */
import { GENESIS, recordLine, storedRecord, verifyLine } from "../audit/chain.ts";
import { numberOf, textOf } from "./bind.ts";
import { type Approval, writeApproval } from "./approvals.ts";
import type { Database } from "./database.ts";
import { LedgerError } from "./ledger_error.ts";
import { ReapWrites } from "./reap_writes.ts";
import {
  closeQuestions,
  insertMessage,
  insertReply,
  type Message,
  type NewMessage,
} from "./messages.ts";
import { INSERT_ROW, newRowValues, patchAssignments } from "./rows.ts";
import { MAX_IDS } from "./schema.ts";
import { readSpend, type Spend, type SpendDay, writeSpend, writeSpendDay } from "./spends.ts";
import type {
  AuditEvent,
  NewRow,
  Published,
  RecordRef,
  Row,
  RowPatch,
  StoredAnswer,
  StoredRecord,
  Trust,
} from "./types.ts";

/** Names in `meta` that the ledger keeps for itself. */
const OWN_META = "ledger.";
/** The last record that left the ledger. */
export const FLOOR = "ledger.floor";
/** The last record of the audit segments that were removed. */
export const REMOVED = "ledger.removed";

export class Tx {
  readonly #db: Database;
  readonly #now: () => number;
  #head: RecordRef | null;
  #ended = false;
  /** Rows whose document or mark was decided in this transaction. */
  readonly decided: Set<number> = new Set();
  /** Rows that were stored in this transaction, and not changed since. */
  readonly stored: Map<number, Row> = new Map();
  #reaping: ReapWrites | null = null;
  /** What was appended so far, in order. */
  readonly records: StoredRecord[] = [];
  /** By how much the number of waiting requests of an agent has changed. */
  readonly waiting: Map<string, number> = new Map();
  /** By how much what lies in an agent's `results/` has changed. */
  readonly shown: Map<string, { files: number; bytes: number }> = new Map();

  /**
   * @param head the last committed record
   * @param now the wall clock, milliseconds since the epoch
   */
  constructor(db: Database, head: RecordRef | null, now: () => number) {
    this.#db = db;
    this.#head = head;
    this.#now = now;
  }

  /** The last record, committed or not. */
  get head(): RecordRef | null {
    return this.#head;
  }

  /** Nothing can be changed through this object any more. */
  end(): void {
    this.#ended = true;
  }

  /**
   * Appends a record to the chain.
   *
   * @throws {TypeError|RangeError} when the event cannot be a line of the chain (see `recordLine`)
   */
  append(event: AuditEvent): RecordRef {
    this.#check();
    const seq = (this.#head?.seq ?? 0) + 1;
    const { line } = recordLine(event, seq, this.#now(), this.#head?.hash ?? GENESIS);
    this.#db.run("INSERT INTO records VALUES (?, ?, ?)", seq, event.claim ?? null, line);
    const record = storedRecord(seq, line);
    this.records.push(record);
    this.#head = { seq, hash: record.hash };
    return this.#head;
  }

  /**
   * Takes back a record that the ledger has lost, from the audit text. It has to follow the last
   * one, or what `beginAt` says. Not told to `afterCommit`: the text has it.
   *
   * @throws {LedgerError} `forked` when it does not follow
   */
  adopt(record: StoredRecord, claim: string | null): void {
    this.#check();
    const ref = verifyLine(record.line, this.#head?.hash ?? GENESIS);
    if (ref === null || ref.seq !== (this.#head?.seq ?? 0) + 1) {
      throw new LedgerError("forked", `Cannot take back record ${record.seq}: it does not follow`);
    }
    this.#db.run("INSERT INTO records VALUES (?, ?, ?)", ref.seq, claim, record.line);
    this.#head = ref;
  }

  /**
   * Lets the chain of a ledger without records begin after this one: earlier ones are in no text
   * any more.
   */
  beginAt(last: RecordRef): void {
    this.#check();
    if (this.#head !== null || last.seq === 0) return;
    this.#setOwn(FLOOR, JSON.stringify(last));
    this.#setOwn(REMOVED, JSON.stringify(last));
    this.#head = last;
  }

  /**
   * Lets the oldest records leave the ledger; the chain goes on from the last of them. The caller
   * has made sure that a segment of the audit text holds them durably.
   *
   * @param upto number of the last record that may leave; the newest record of all always stays
   * @param limit most records that leave now
   * @returns how many left
   */
  trimRecords(upto: number, limit: number): number {
    this.#check();
    const last = Math.min(upto, (this.#head?.seq ?? 0) - 1);
    const end = this.#db.get(
      "SELECT seq, line FROM (SELECT seq, line FROM records WHERE seq <= ? ORDER BY seq LIMIT ?) " +
        "ORDER BY seq DESC LIMIT 1",
      last,
      limit,
    );
    if (end === undefined) return 0;
    const { seq, hash } = storedRecord(numberOf(end, "seq"), textOf(end, "line"));
    this.#setOwn(FLOOR, JSON.stringify({ seq, hash }));
    return this.#db.run("DELETE FROM records WHERE seq <= ?", seq);
  }

  /** Notes that the segments of the audit text up to this record are removed, before they are. */
  setRemoved(last: RecordRef): void {
    this.#check();
    this.#setOwn(REMOVED, JSON.stringify({ seq: last.seq, hash: last.hash }));
  }

  /**
   * Stores a row and binds its id and key.
   *
   * @returns the row's number, in order of arrival
   * @throws {LedgerError} `constraint` when id, key or claim belong to another row
   */
  insertRow(row: NewRow): number {
    this.#check();
    const rid = this.#db.insert(INSERT_ROW, ...newRowValues(row, this.#head?.seq ?? 0));
    this.#bind(row.agent, row.id, rid, 0);
    this.decided.add(rid);
    this.stored.set(rid, { ...row, rid, cancel: null, lookup: null, replays: 0, pub: 0 });
    if (row.state === "pending") this.#wait(row.agent, 1);
    return rid;
  }

  /**
   * Lets another id join a row. An id that the row already has stays.
   *
   * @returns false when the row has `MAX_IDS` ids and nothing was bound
   * @throws {LedgerError} `constraint` when the id belongs to another row, or there is no such row
   */
  bindId(agent: string, id: string, rid: number): boolean {
    this.#check();
    const owner = this.#db.get("SELECT rid FROM ids WHERE agent = ? AND id = ?", agent, id);
    if (owner !== undefined && numberOf(owner, "rid") === rid) return true;
    const last = this.#db.get("SELECT MAX(joined) AS joined FROM ids WHERE rid = ?", rid);
    const joined = last === undefined || last["joined"] === null ? -1 : numberOf(last, "joined");
    if (joined < 0) {
      throw new LedgerError("constraint", `Cannot join row ${rid}: it has no id of its own`);
    }
    if (joined + 1 >= MAX_IDS) return false;
    this.#bind(agent, id, rid, joined + 1);
    return true;
  }

  /**
   * Changes a row. A new `result` makes the row unpublished, unless it was reaped or the patch says
   * what `pub` is to be.
   *
   * @throws {RangeError} when there is no such row
   * @throws {TypeError} when the patch is empty or names something that is fixed
   */
  updateRow(rid: number, patch: RowPatch): void {
    this.#check();
    this.stored.delete(rid);
    const before = this.#db.get(
      "SELECT agent, state, pub, files, bytes FROM rows WHERE rid = ?",
      rid,
    );
    if (before === undefined) throw new RangeError(`Cannot change row ${rid}: there is none`);
    const { sql, values } = patchAssignments(patch);
    if (patch.result !== undefined && patch.pub === undefined) {
      sql.push("pub = CASE pub WHEN 2 THEN 2 ELSE 0 END");
    }
    if (patch.result !== undefined || patch.pub === 0) {
      sql.push("seq = ?");
      values.push(this.#head?.seq ?? 0);
    }
    if (before["pub"] === 1 && (patch.result !== undefined || patch.pub !== undefined)) {
      this.#show(textOf(before, "agent"), -numberOf(before, "files"), -numberOf(before, "bytes"));
    }
    this.#db.run(`UPDATE rows SET ${sql.join(", ")} WHERE rid = ?`, ...values, rid);
    if (patch.result !== undefined || patch.pub !== undefined) this.decided.add(rid);
    if (patch.state !== undefined) {
      const change = Number(patch.state === "pending") -
        Number(textOf(before, "state") === "pending");
      if (change !== 0) this.#wait(textOf(before, "agent"), change);
    }
  }

  /** Gives up the key and all ids of a row; the row stays as history. */
  release(rid: number): void {
    this.#check();
    this.stored.delete(rid);
    if (this.#db.run("UPDATE rows SET key = NULL WHERE rid = ?", rid) !== 1) {
      throw new RangeError(`Cannot release row ${rid}: there is none`);
    }
    this.#db.run("DELETE FROM ids WHERE rid = ?", rid);
    this.#db.run("DELETE FROM signed WHERE rid = ?", rid);
  }

  /**
   * Remembers signed bytes that are carried out, until a moment, and forgets some whose time is over:
   * more than are added, so that what is remembered stays bounded without any other sweep. A release
   * of the row forgets them at once; the end of the row does not.
   *
   * @param signed `sha256` of the signed bytes, lower-case hex; `rid` of the row that they made, or
   *   null; `until_ms` by the wall clock
   */
  noteSigned(
    signed: {
      readonly agent: string;
      readonly sha256: string;
      readonly rid: number | null;
      readonly until_ms: number;
    },
  ): void {
    this.#check();
    this.#db.run(
      "DELETE FROM signed WHERE (agent, sha256) IN " +
        "(SELECT agent, sha256 FROM signed WHERE until_ms < ? ORDER BY until_ms LIMIT 8)",
      this.#now(),
    );
    const { agent, sha256, rid, until_ms } = signed;
    this.#db.run(
      "INSERT INTO signed VALUES (?, ?, ?, ?) ON CONFLICT (agent, sha256) " +
        "DO UPDATE SET rid = excluded.rid, until_ms = MAX(until_ms, excluded.until_ms)",
      agent,
      sha256,
      rid,
      until_ms,
    );
  }

  /** Notes that the documents of these rows, as committed before, are published, and as what. */
  markPublished(published: Iterable<Published>): void {
    this.#check();
    for (const { rid, files, bytes } of published) {
      if (this.decided.has(rid)) continue;
      const row = this.#db.get(
        "UPDATE rows SET pub = 1, files = ?, bytes = ? WHERE rid = ? AND pub = 0 RETURNING agent",
        files,
        bytes,
        rid,
      );
      if (row !== undefined) this.#show(textOf(row, "agent"), files, bytes);
      else this.#shownAnew(rid, files, bytes);
    }
  }

  /** A published row stands under more names by now, or under fewer. */
  #shownAnew(rid: number, files: number, bytes: number): void {
    const row = this.#db.get(
      "SELECT agent, files, bytes FROM rows WHERE rid = ? AND pub = 1",
      rid,
    );
    if (row === undefined) return;
    this.#db.run("UPDATE rows SET files = ?, bytes = ? WHERE rid = ?", files, bytes, rid);
    this.#show(
      textOf(row, "agent"),
      files - numberOf(row, "files"),
      bytes - numberOf(row, "bytes"),
    );
  }

  /**
   * Keeps an answer until it is published and its claim is gone.
   *
   * @throws {LedgerError} `constraint` when the claim has an answer
   */
  saveAnswer(answer: StoredAnswer): void {
    this.#check();
    this.#db.run(
      "INSERT INTO answers (claim, agent, target, seq, document) VALUES (?, ?, ?, ?, ?)",
      answer.claim,
      answer.agent,
      answer.target,
      this.#head?.seq ?? 0,
      answer.document,
    );
  }

  /**
   * Lets go of the document of an answer that was published; that it was answered stays in the
   * records. Where it stands in `results/` is remembered until it is reaped, in place of whatever
   * answer had the name before.
   */
  dropAnswer(claim: string): void {
    this.#check();
    const row = this.#db.get(
      "SELECT n, agent, target, length(CAST(document AS BLOB)) AS bytes FROM answers " +
        "WHERE claim = ? AND pub = 0",
      claim,
    );
    if (row === undefined) return;
    const n = numberOf(row, "n");
    const target = row["target"];
    if (typeof target !== "string" || !target.startsWith("results/")) {
      this.#db.run("DELETE FROM answers WHERE n = ?", n);
      return;
    }
    const agent = textOf(row, "agent");
    const bytes = numberOf(row, "bytes");
    const before = this.#db.all(
      "DELETE FROM answers WHERE agent = ? AND target = ? AND pub = 1 RETURNING bytes",
      agent,
      target,
    );
    for (const old of before) this.#show(agent, -1, -numberOf(old, "bytes"));
    this.#db.run("UPDATE answers SET pub = 1, bytes = ?, document = '' WHERE n = ?", bytes, n);
    this.#show(agent, 1, bytes);
  }

  /** Changes that only reaping makes. */
  get reaping(): ReapWrites {
    this.#check();
    this.stored.clear();
    this.#reaping ??= new ReapWrites(
      this.#db,
      () => this.#check(),
      () => this.#head?.seq ?? 0,
      (agent, files, bytes) => this.#show(agent, files, bytes),
    );
    return this.#reaping;
  }

  /**
   * Stores a value under a name.
   *
   * @throws {TypeError} when the name begins with `ledger.`
   */
  setMeta(k: string, v: string): void {
    this.#check();
    if (k.startsWith(OWN_META)) throw new TypeError(`Cannot set "${k}": the name is reserved`);
    this.#setOwn(k, v);
  }

  #setOwn(k: string, v: string): void {
    this.#db.run(
      "INSERT INTO meta VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
      k,
      v,
    );
  }

  /** Stores or replaces what a human said to a row. */
  putApproval(rid: number, approval: Approval): void {
    this.#check();
    writeApproval(this.#db, rid, approval);
  }

  /** What a row spends, changes of this transaction included; or null. */
  spend(rid: number): Spend | null {
    return readSpend(this.#db, rid);
  }

  /** Stores or replaces what a row spends. */
  putSpend(rid: number, spend: Spend): void {
    this.#check();
    writeSpend(this.#db, rid, spend);
  }

  /** Stores what an agent has spent on a day. */
  putSpendDay(agent: string, day: number, value: SpendDay): void {
    this.#check();
    writeSpendDay(this.#db, agent, day, value);
  }

  /** Makes `trust` the current one. Earlier ones stay. */
  setTrust(trust: Trust): void {
    this.#check();
    this.#db.run(
      "INSERT INTO trusts (policy, at_ms, by, programs, requires, bin_sha256, seq, rid) " +
        "VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT COALESCE(MAX(rid), 0) FROM rows))",
      trust.policy,
      trust.at_ms,
      trust.by,
      JSON.stringify(trust.programs),
      JSON.stringify(trust.requires),
      trust.bin_sha256,
      this.#head?.seq ?? 0,
    );
  }

  /** Stores a message to an agent. */
  tell(message: NewMessage): Message {
    this.#check();
    return insertMessage(this.#db, message);
  }

  /**
   * Stores the reply to a message.
   *
   * @throws {RangeError} when it is gone or has one
   */
  reply(agent: string, n: number, text: string, atMs: number): void {
    this.#check();
    insertReply(this.#db, agent, n, text, atMs);
  }

  /** Takes no answer to the questions of a run any more; returns those that were open. */
  closeQuestions(run: string, atMs: number): Message[] {
    this.#check();
    return closeQuestions(this.#db, run, atMs);
  }

  #bind(agent: string, id: string, rid: number, joined: number): void {
    this.#db.run(
      "UPDATE rows INDEXED BY rows_released SET pub = 2 " +
        "WHERE agent = ? AND id = ? AND key IS NULL AND pub = 0 AND rid <> ?",
      agent,
      id,
      rid,
    );
    // What answered an earlier request of this name is not told any more.
    this.#db.run(
      "DELETE FROM answers WHERE agent = ? AND target = ? AND pub = 0",
      agent,
      `results/${id}.json`,
    );
    this.#db.run("INSERT INTO ids VALUES (?, ?, ?, ?)", agent, id, rid, joined);
  }

  #show(agent: string, files: number, bytes: number): void {
    const before = this.shown.get(agent);
    this.shown.set(agent, {
      files: (before?.files ?? 0) + files,
      bytes: (before?.bytes ?? 0) + bytes,
    });
  }

  #wait(agent: string, change: number): void {
    this.waiting.set(agent, (this.waiting.get(agent) ?? 0) + change);
  }

  #check(): void {
    if (this.#ended) {
      throw new LedgerError("closed", "Cannot change ledger: the transaction is over");
    }
  }
}
