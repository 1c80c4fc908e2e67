/**
 * What the ledger is asked by whoever reaps. Every question is answered from an index and bounded
 * by its limit, but `shown`, which reads two indexes that hold nothing but what lies in `results/`
 * and is asked once a start.
 *
 * @module
 */
import { numberOf, numberOrNull, type SqlRow, textOf } from "./bind.ts";
import type { Database } from "./database.ts";
import { LIGHT, lightRow } from "./rows.ts";
import type { LightRow, Row, Shown } from "./types.ts";

/** How far the ledger had got at a moment of the retention clock. */
export interface Horizon {
  /** The last record by then. */
  readonly seq: number;
  /** The last row by then. */
  readonly rid: number;
  /** What the wall clock showed, milliseconds since the epoch. */
  readonly wall_ms: number;
}

/** A row whose result is published and final. */
export interface ShownRow {
  readonly rid: number;
  readonly seq: number;
  readonly files: number;
  readonly bytes: number;
}

/** A published answer that bound nothing. */
export interface ShownAnswer {
  readonly n: number;
  readonly seq: number;
  readonly bytes: number;
  /** Name below the agent's `results/`. */
  readonly name: string;
}

/** What decides whether a row may be forgotten. */
export interface OldRow {
  readonly rid: number;
  readonly agent: string;
  readonly state: Row["state"];
  readonly pub: Row["pub"];
  /** The last record when its document was decided. */
  readonly seq: number;
  readonly started_ms: number | null;
}

/** A policy that was trusted and is not the current one any more. */
export interface OldPolicy {
  readonly policy: string;
  /** The record that put another one in force. */
  readonly seq: number;
  /** No row behind this one was bound under it. */
  readonly rid: number;
}

const OLD = "rid, agent, state, pub, seq, started_ms";

export class ReapReads {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** What lies in each agent's `results/`. */
  shown(): Map<string, Shown> {
    const shown = new Map<string, Shown>();
    for (
      const sql of [
        "SELECT agent, SUM(files) AS files, SUM(bytes) AS bytes FROM rows WHERE pub = 1 " +
        "GROUP BY agent",
        "SELECT agent, COUNT(*) AS files, SUM(bytes) AS bytes FROM answers WHERE pub = 1 " +
        "GROUP BY agent",
      ]
    ) {
      for (const row of this.#db.all(sql)) {
        const before = shown.get(textOf(row, "agent"));
        shown.set(textOf(row, "agent"), {
          files: (before?.files ?? 0) + numberOf(row, "files"),
          bytes: (before?.bytes ?? 0) + numberOf(row, "bytes"),
        });
      }
    }
    return shown;
  }

  /** How far the ledger had got when the retention clock showed `at_ms`, or null: not so old. */
  horizon(at_ms: number): Horizon | null {
    const row = this.#db.get(
      "SELECT seq, rid, wall_ms FROM hours WHERE at_ms <= ? ORDER BY at_ms DESC LIMIT 1",
      at_ms,
    );
    return row === undefined ? null : {
      seq: numberOf(row, "seq"),
      rid: numberOf(row, "rid"),
      wall_ms: numberOf(row, "wall_ms"),
    };
  }

  /** The last hour that was marked, or null. */
  lastHour(): { readonly at_ms: number; readonly seq: number } | null {
    const row = this.#db.get(
      "SELECT at_ms, seq FROM hours WHERE at_ms = (SELECT MAX(at_ms) FROM hours)",
    );
    return row === undefined ? null : { at_ms: numberOf(row, "at_ms"), seq: numberOf(row, "seq") };
  }

  /** Finished rows of an agent whose results are published, the first decided first. */
  oldestRows(agent: string, limit: number): ShownRow[] {
    return this.#db.all(
      "SELECT rid, seq, files, bytes FROM rows " +
        "WHERE pub = 1 AND agent = ? AND state = 'done' ORDER BY seq LIMIT ?",
      agent,
      limit,
    ).map((row) => ({
      rid: numberOf(row, "rid"),
      seq: numberOf(row, "seq"),
      files: numberOf(row, "files"),
      bytes: numberOf(row, "bytes"),
    }));
  }

  /** Published answers of an agent, the first decided first. */
  oldestAnswers(agent: string, limit: number): ShownAnswer[] {
    return this.#db.all(
      "SELECT n, seq, bytes, target FROM answers WHERE pub = 1 AND agent = ? ORDER BY seq LIMIT ?",
      agent,
      limit,
    ).map((row) => ({
      n: numberOf(row, "n"),
      seq: numberOf(row, "seq"),
      bytes: numberOf(row, "bytes"),
      name: textOf(row, "target").slice("results/".length),
    }));
  }

  /** A row without the bytes of its request. */
  row(rid: number): LightRow | null {
    const row = this.#db.get(`SELECT ${LIGHT} FROM rows WHERE rid = ?`, rid);
    return row === undefined ? null : lightRow(row);
  }

  /** The number of the newest row; 0 when there is none. */
  lastRow(): number {
    const row = this.#db.get("SELECT COALESCE(MAX(rid), 0) AS rid FROM rows");
    return row === undefined ? 0 : numberOf(row, "rid");
  }

  /** Rows of all agents in order of arrival. */
  rows(after: number, upto: number, limit: number): OldRow[] {
    return this.#db.all(
      `SELECT ${OLD} FROM rows WHERE rid > ? AND rid <= ? ORDER BY rid LIMIT ?`,
      after,
      upto,
      limit,
    ).map(oldRow);
  }

  /** Rows of one agent in order of arrival. */
  rowsOf(agent: string, after: number, limit: number): OldRow[] {
    return this.#db.all(
      `SELECT ${OLD} FROM rows WHERE agent = ? AND rid > ? ORDER BY rid LIMIT ?`,
      agent,
      after,
      limit,
    ).map(oldRow);
  }

  /** Counts rows of one agent, at most `limit`; `last` is where to go on, or null at the end. */
  countRows(agent: string, after: number, limit: number): { n: number; last: number | null } {
    const row = this.#db.get(
      "SELECT COUNT(*) AS n, MAX(rid) AS last FROM " +
        "(SELECT rid FROM rows WHERE agent = ? AND rid > ? ORDER BY rid LIMIT ?)",
      agent,
      after,
      limit,
    );
    const n = row === undefined ? 0 : numberOf(row, "n");
    return { n, last: row === undefined || n < limit ? null : numberOrNull(row, "last") };
  }

  /** The agent with the next name that has a row, or null. */
  nextAgent(after: string): string | null {
    const row = this.#db.get(
      "SELECT agent FROM rows INDEXED BY rows_agent WHERE agent > ? ORDER BY agent LIMIT 1",
      after,
    );
    return row === undefined ? null : textOf(row, "agent");
  }

  /**
   * True when `<id>.json` holds a document that was decided later, or that belongs to the row that
   * owns the id.
   *
   * @param seq the record of the document that is to go
   * @param but the row or answer that it belongs to
   */
  isTaken(
    agent: string,
    id: string,
    seq: number,
    but: { readonly rid?: number; readonly n?: number },
  ): boolean {
    const owner = this.#db.get("SELECT rid FROM ids WHERE agent = ? AND id = ?", agent, id);
    if (owner !== undefined) return numberOf(owner, "rid") !== but.rid;
    return this.isAnswered(agent, `${id}.json`, but.n ?? 0, seq) || this.#db.get(
          "SELECT 1 AS one FROM rows INDEXED BY rows_released WHERE agent = ? AND id = ? " +
            "AND key IS NULL AND pub <> 2 AND seq >= ? AND rid <> ? LIMIT 1",
          agent,
          id,
          seq,
          but.rid ?? 0,
        ) !== undefined;
  }

  /** True when another answer, decided not earlier, has this name in `results/`. */
  isAnswered(agent: string, name: string, but: number, seq: number): boolean {
    return this.#db.get(
      "SELECT 1 AS one FROM answers WHERE agent = ? AND target = ? AND n <> ? AND seq >= ? LIMIT 1",
      agent,
      `results/${name}`,
      but,
      seq,
    ) !== undefined;
  }

  /** Policies that are not current any more, the longest first. */
  oldPolicies(): OldPolicy[] {
    const trusts = this.#db.all("SELECT policy, seq, rid FROM trusts ORDER BY n");
    const old = new Map<string, OldPolicy>();
    trusts.forEach((trust, i) => {
      const policy = textOf(trust, "policy");
      const next = trusts[i + 1];
      old.delete(policy);
      if (next === undefined) return;
      old.set(policy, { policy, seq: numberOf(next, "seq"), rid: numberOf(next, "rid") });
    });
    return [...old.values()];
  }

  /** True when a row up to this one was last handled under the policy. */
  isPolicyUsed(policy: string, upto: number): boolean {
    return this.#db.get(
      "SELECT 1 AS one FROM rows WHERE rid <= ? AND policy = ? LIMIT 1",
      upto,
      policy,
    ) !== undefined;
  }

  /** True when the policy was ever trusted, as far as the ledger remembers. */
  isPolicyKnown(policy: string): boolean {
    return this.#db.get("SELECT 1 AS one FROM trusts WHERE policy = ? LIMIT 1", policy) !==
      undefined;
  }
}

function oldRow(row: SqlRow): OldRow {
  return {
    rid: numberOf(row, "rid"),
    agent: textOf(row, "agent"),
    state: textOf(row, "state") as Row["state"],
    pub: numberOf(row, "pub") as Row["pub"],
    seq: numberOf(row, "seq"),
    started_ms: numberOrNull(row, "started_ms"),
  };
}
