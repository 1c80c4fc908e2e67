/**
 * What the tests of ledger and audit share: temporary ledgers, rows to put into them, and a way to
 * reach the database connection from outside in order to make it fail.
 *
 * @module
 */
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { join } from "@std/path/join";
import { Ledger } from "../src/ledger/ledger.ts";
import type { NewRow } from "../src/ledger/types.ts";

/** A wall clock that a test moves. */
export class Clock {
  ms = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
  readonly now = () => this.ms;
}

/** A temporary directory that goes away with the scope, with a ledger path in it. */
export class TempState {
  readonly dir = Deno.makeTempDirSync({ prefix: "chb-ledger-" });
  readonly path = join(this.dir, "ledger.db");
  readonly text = join(this.dir, "audit", "audit.jsonl");
  readonly clock = new Clock();
  readonly #open: Ledger[] = [];

  writer(): Ledger {
    return this.#opened(Ledger.open(this.path, { now: this.clock.now, mode: "writer" }));
  }

  reader(): Ledger {
    return this.#opened(Ledger.open(this.path, { now: this.clock.now, mode: "reader" }));
  }

  names(): string[] {
    return Array.from(Deno.readDirSync(this.dir), (entry) => entry.name).sort();
  }

  [Symbol.dispose](): void {
    for (const ledger of this.#open) ledger.close();
    Deno.removeSync(this.dir, { recursive: true });
  }

  #opened(ledger: Ledger): Ledger {
    this.#open.push(ledger);
    return ledger;
  }
}

/** A row that waits; `patch` changes what a test is about. */
export function newRow(id: string, patch: Partial<NewRow> = {}): NewRow {
  return {
    agent: "main",
    id,
    key: id,
    digest: "d".repeat(64),
    verb: "ps",
    class: "observe",
    lock: null,
    state: "pending",
    outcome: null,
    reason: null,
    request: new TextEncoder().encode(`{"verb":"ps","id":"${id}"}`),
    request_sha256: "5".repeat(64),
    args: "{}",
    policy: "b".repeat(64),
    note: null,
    plan: null,
    max_spend: null,
    timeout_ms: 60_000,
    received_ms: 1_000,
    expires_ms: 2_000.5,
    started_ms: null,
    started_tick: null,
    finished_ms: null,
    attempt: 0,
    run: null,
    pgid: null,
    claim: `claim-of-${patch.agent ?? "main"}-${id}`,
    result: { chb: 1, id, agent: patch.agent ?? "main", state: "pending", next: "wait" },
    ...patch,
  };
}

/** An error as the driver throws it. */
export function sqliteError(errcode: number): Error {
  return Object.assign(new Error(`error ${errcode}`), { code: "ERR_SQLITE_ERROR", errcode });
}

/** Sees every statement that is prepared while it lives, and may replace any. */
export class Driver {
  readonly sql = new Set<string>();
  readonly connections = new Set<DatabaseSync>();
  /** What a statement does instead, or undefined to leave it alone. */
  replace: (sql: string, real: StatementSync) => StatementSync | undefined = () => undefined;
  readonly #prepare = DatabaseSync.prototype.prepare;

  constructor() {
    // deno-lint-ignore no-this-alias
    const driver = this;
    const prepare = this.#prepare;
    DatabaseSync.prototype.prepare = function (this: DatabaseSync, sql: string): StatementSync {
      driver.sql.add(sql);
      driver.connections.add(this);
      const real = prepare.call(this, sql);
      return driver.replace(sql, real) ?? real;
    };
  }

  [Symbol.dispose](): void {
    DatabaseSync.prototype.prepare = this.#prepare;
  }
}

/** A statement whose `run` is something else. */
export function withRun(real: StatementSync, run: () => void): StatementSync {
  return new Proxy(real, {
    get(target, name) {
      if (name === "run") {
        return () => {
          run();
          return { changes: 0, lastInsertRowid: 0 };
        };
      }
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
