/**
 * The tables of the ledger, and how a file shows that it is one. The texts below are compared
 * letter by letter with what a ledger says of itself when it is opened, so a changed table is
 * foreign until `VERSION` says otherwise.
 *
 * Every question that is asked for each request is answered by an index here, and none of the
 * indexes grows with what is finished unless the question is about finished rows. Conditions of
 * partial indexes are repeated word for word in the queries: SQLite uses them only then.
 *
 * @module
 */

import { MESSAGES_RUN_INDEX, MESSAGES_TABLE } from "./messages.ts";

/** "chb" and a one: SQLite's application id of a ledger. */
export const APPLICATION_ID = 0x63686201;

/** The format that this program writes: SQLite's user version. */
export const VERSION = 1;

/** The ids that one row may have, its first included. */
export const MAX_IDS = 32;

/** Name and definition of every table and index. */
export const SCHEMA: ReadonlyMap<string, string> = new Map([
  ["meta", `CREATE TABLE meta (k TEXT PRIMARY KEY, v TEXT NOT NULL) STRICT, WITHOUT ROWID`],
  [
    // The request's bytes stand last: whoever does not ask for them never reads their pages.
    "rows",
    `CREATE TABLE rows (
  rid INTEGER PRIMARY KEY AUTOINCREMENT,
  agent TEXT NOT NULL,
  id TEXT NOT NULL,
  key TEXT,
  digest TEXT NOT NULL,
  verb TEXT NOT NULL,
  class TEXT NOT NULL CHECK (class IN ('observe', 'mutating', 'destructive')),
  lock TEXT,
  state TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done', 'uncertain')),
  outcome TEXT,
  reason TEXT,
  request_sha256 TEXT NOT NULL,
  args TEXT NOT NULL,
  policy TEXT NOT NULL,
  note TEXT,
  plan TEXT,
  max_spend REAL,
  timeout_ms REAL NOT NULL,
  received_ms REAL NOT NULL,
  expires_ms REAL NOT NULL,
  started_ms REAL,
  started_tick REAL,
  finished_ms REAL,
  attempt INTEGER NOT NULL,
  run TEXT,
  claim TEXT NOT NULL,
  pgid INTEGER,
  cancel TEXT,
  lookup TEXT,
  replays INTEGER NOT NULL DEFAULT 0,
  pub INTEGER NOT NULL DEFAULT 0 CHECK (pub IN (0, 1, 2)),
  seq INTEGER NOT NULL,
  files INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL DEFAULT 0,
  result TEXT NOT NULL,
  request BLOB NOT NULL
) STRICT`,
  ],
  ["rows_key", `CREATE UNIQUE INDEX rows_key ON rows (agent, key) WHERE key IS NOT NULL`],
  ["rows_claim", `CREATE UNIQUE INDEX rows_claim ON rows (claim)`],
  ["rows_agent", `CREATE INDEX rows_agent ON rows (agent)`],
  [
    "rows_open",
    `CREATE INDEX rows_open ON rows (state, agent) WHERE state IN ('pending', 'running')`,
  ],
  ["rows_uncertain", `CREATE INDEX rows_uncertain ON rows (rid) WHERE state = 'uncertain'`],
  ["rows_unpublished", `CREATE INDEX rows_unpublished ON rows (pub) WHERE pub = 0`],
  [
    "rows_started",
    `CREATE INDEX rows_started ON rows (agent, class, started_tick) WHERE started_tick IS NOT NULL`,
  ],
  [
    "rows_shown",
    `CREATE INDEX rows_shown ON rows (agent, state, seq, files, bytes) WHERE pub = 1`,
  ],
  ["rows_released", `CREATE INDEX rows_released ON rows (agent, id) WHERE key IS NULL`],
  [
    "ids",
    `CREATE TABLE ids (
  agent TEXT NOT NULL,
  id TEXT NOT NULL,
  rid INTEGER NOT NULL REFERENCES rows (rid),
  joined INTEGER NOT NULL,
  PRIMARY KEY (agent, id)
) STRICT, WITHOUT ROWID`,
  ],
  ["ids_rid", `CREATE UNIQUE INDEX ids_rid ON ids (rid, joined)`],
  [
    "answers",
    `CREATE TABLE answers (
  n INTEGER PRIMARY KEY,
  claim TEXT NOT NULL UNIQUE,
  agent TEXT NOT NULL,
  target TEXT,
  pub INTEGER NOT NULL DEFAULT 0 CHECK (pub IN (0, 1)),
  seq INTEGER NOT NULL,
  bytes INTEGER NOT NULL DEFAULT 0,
  document TEXT NOT NULL
) STRICT`,
  ],
  ["answers_open", `CREATE INDEX answers_open ON answers (n) WHERE pub = 0`],
  ["answers_shown", `CREATE INDEX answers_shown ON answers (agent, seq, bytes) WHERE pub = 1`],
  ["answers_target", `CREATE INDEX answers_target ON answers (agent, target)`],
  [
    // Signed bytes that were carried out; `rid` outlives its row, and is null where there is none.
    "signed",
    `CREATE TABLE signed (
  agent TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  rid INTEGER,
  until_ms REAL NOT NULL,
  PRIMARY KEY (agent, sha256)
) STRICT, WITHOUT ROWID`,
  ],
  ["signed_until", `CREATE INDEX signed_until ON signed (until_ms)`],
  ["signed_rid", `CREATE INDEX signed_rid ON signed (rid) WHERE rid IS NOT NULL`],
  ["messages", MESSAGES_TABLE],
  ["messages_run", MESSAGES_RUN_INDEX],
  [
    "records",
    `CREATE TABLE records (seq INTEGER PRIMARY KEY, claim TEXT, line TEXT NOT NULL) STRICT`,
  ],
  ["records_claim", `CREATE INDEX records_claim ON records (claim) WHERE claim IS NOT NULL`],
  [
    "approvals",
    `CREATE TABLE approvals (
  rid INTEGER PRIMARY KEY REFERENCES rows (rid) ON DELETE CASCADE,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'given', 'used', 'denied', 'lapsed')),
  since_ms REAL NOT NULL,
  until_ms REAL NOT NULL,
  digest TEXT,
  parts TEXT,
  by TEXT,
  at_ms REAL
) STRICT`,
  ],
  [
    // Never above 2^62: no sum of what waits can overflow before the limits stop it.
    "spends",
    `CREATE TABLE spends (
  rid INTEGER PRIMARY KEY REFERENCES rows (rid) ON DELETE CASCADE,
  agent TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('held', 'reserved', 'charged')),
  day INTEGER,
  granted INTEGER NOT NULL,
  charged INTEGER NOT NULL
) STRICT`,
  ],
  ["spends_open", `CREATE INDEX spends_open ON spends (state, agent) WHERE state <> 'charged'`],
  [
    "spend_days",
    `CREATE TABLE spend_days (
  agent TEXT NOT NULL,
  day INTEGER NOT NULL,
  spent TEXT NOT NULL,
  blocked INTEGER NOT NULL CHECK (blocked IN (0, 1)),
  PRIMARY KEY (agent, day)
) STRICT, WITHOUT ROWID`,
  ],
  [
    "trusts",
    `CREATE TABLE trusts (
  n INTEGER PRIMARY KEY,
  policy TEXT NOT NULL,
  at_ms REAL NOT NULL,
  by TEXT NOT NULL,
  programs TEXT NOT NULL,
  requires TEXT NOT NULL,
  bin_sha256 TEXT,
  seq INTEGER NOT NULL,
  rid INTEGER NOT NULL
) STRICT`,
  ],
  [
    // How far the ledger had got when the retention clock showed a moment.
    "hours",
    `CREATE TABLE hours (
  at_ms REAL PRIMARY KEY,
  seq INTEGER NOT NULL,
  rid INTEGER NOT NULL,
  wall_ms REAL NOT NULL
) STRICT, WITHOUT ROWID`,
  ],
]);
