/**
 * The changes that only reaping makes, within one transaction.
 *
 * Rules:
 * 1. A result whose files were removed is marked, and is never published again by itself. With it
 *    go the parts of a row that an agent can make large: the text of its output, the bytes of the
 *    request, its plan and long arguments. What happened, when, and under which digest stays.
 * 2. A row that is not `done` is neither reaped nor forgotten: what is `uncertain` waits for a
 *    human, whatever its age.
 * 3. A forgotten row takes its ids and its key along: both may be bound again, to run again.
 *
 * @module
 */
import { numberOf, textOf } from "./bind.ts";
import type { Database } from "./database.ts";
import type { Result } from "../result.ts";

/** Checked arguments up to this length stay when a result is reaped, bytes of JSON. */
const KEPT_ARGS = 1024;

export class ReapWrites {
  readonly #db: Database;
  readonly #check: () => void;
  readonly #seq: () => number;
  readonly #show: (agent: string, files: number, bytes: number) => void;

  /**
   * @param check throws when the transaction is over
   * @param seq the last record of the transaction
   * @param show notes by how much an agent's `results/` change
   */
  constructor(
    db: Database,
    check: () => void,
    seq: () => number,
    show: (agent: string, files: number, bytes: number) => void,
  ) {
    this.#db = db;
    this.#check = check;
    this.#seq = seq;
    this.#show = show;
  }

  /**
   * Notes that the files of a finished row are gone.
   *
   * @param result what is remembered of its result
   * @returns false when there is no such row that is done and published
   */
  reap(rid: number, result: Result): boolean {
    this.#check();
    const before = this.#db.get(
      "SELECT agent, files, bytes FROM rows WHERE rid = ? AND pub = 1 AND state = 'done'",
      rid,
    );
    if (before === undefined) return false;
    this.#db.run(
      "UPDATE rows SET pub = 2, files = 0, bytes = 0, result = ?, request = x'', plan = NULL, " +
        `args = CASE WHEN length(args) > ${KEPT_ARGS} THEN 'null' ELSE args END WHERE rid = ?`,
      JSON.stringify(result),
      rid,
    );
    this.#show(textOf(before, "agent"), -numberOf(before, "files"), -numberOf(before, "bytes"));
    return true;
  }

  /** Notes that the file of a published answer is gone. False when there is none. */
  reapAnswer(n: number): boolean {
    this.#check();
    const row = this.#db.get(
      "DELETE FROM answers WHERE n = ? AND pub = 1 RETURNING agent, bytes",
      n,
    );
    if (row === undefined) return false;
    this.#show(textOf(row, "agent"), -1, -numberOf(row, "bytes"));
    return true;
  }

  /** Forgets a finished row with its ids and its key. False when there is none. */
  forget(rid: number): boolean {
    this.#check();
    const before = this.#db.get(
      "SELECT agent, pub, files, bytes FROM rows WHERE rid = ? AND state = 'done'",
      rid,
    );
    if (before === undefined) return false;
    this.#db.run("DELETE FROM ids WHERE rid = ?", rid);
    this.#db.run("DELETE FROM rows WHERE rid = ?", rid);
    if (before["pub"] === 1) {
      this.#show(textOf(before, "agent"), -numberOf(before, "files"), -numberOf(before, "bytes"));
    }
    return true;
  }

  /** Remembers how far the ledger has got at this moment of the retention clock. */
  markHour(at_ms: number, wall_ms: number): void {
    this.#check();
    this.#db.run(
      "INSERT INTO hours VALUES (?, ?, (SELECT COALESCE(MAX(rid), 0) FROM rows), ?) " +
        "ON CONFLICT (at_ms) DO NOTHING",
      at_ms,
      this.#seq(),
      wall_ms,
    );
  }

  /** Forgets hours before a moment but the last of them. */
  dropHours(before_ms: number): void {
    this.#check();
    this.#db.run(
      "DELETE FROM hours WHERE at_ms < (SELECT MAX(at_ms) FROM hours WHERE at_ms <= ?)",
      before_ms,
    );
  }

  /** Forgets that a policy was ever trusted; never the current one. */
  forgetPolicy(policy: string): void {
    this.#check();
    this.#db.run(
      "DELETE FROM trusts WHERE policy = ? AND n <> (SELECT MAX(n) FROM trusts)",
      policy,
    );
  }
}
