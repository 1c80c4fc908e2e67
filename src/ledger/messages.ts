/**
 * Messages from the host to an agent and the replies to them, as the ledger keeps them: by agent and
 * number, in the order in which they were sent. Each question costs the same however many there
 * were, since only the newest thousand of an agent stay.
 *
 * @module
 */
import { numberOf, numberOrNull, type SqlRow, textOf, textOrNull } from "./bind.ts";
import type { Database } from "./database.ts";

/** Messages of one agent that the ledger keeps. */
export const MESSAGES_KEPT = 1000;

/** The table of messages, as the schema has it. */
export const MESSAGES_TABLE = `CREATE TABLE messages (
  agent TEXT NOT NULL,
  n INTEGER NOT NULL,
  at_ms REAL NOT NULL,
  sender TEXT NOT NULL,
  text TEXT NOT NULL,
  ask INTEGER NOT NULL CHECK (ask IN (0, 1)),
  reply_by_ms REAL,
  run TEXT,
  name TEXT,
  reply TEXT,
  replied_ms REAL,
  PRIMARY KEY (agent, n)
) STRICT, WITHOUT ROWID`;

/** One run has one message of a name: one that is found again after a crash is not told twice. */
export const MESSAGES_RUN_INDEX =
  `CREATE UNIQUE INDEX messages_run ON messages (run, name) WHERE run IS NOT NULL`;

/** One message. Times are wall-clock milliseconds since the epoch. */
export interface Message {
  readonly agent: string;
  /** Its number among the agent's messages, from 1. */
  readonly n: number;
  readonly at_ms: number;
  /** Who sent it, as claimed, or the request whose command did. */
  readonly sender: string;
  readonly text: string;
  /** An answer is expected. */
  readonly ask: boolean;
  /** After this moment no answer is taken; null when there is no such moment. */
  readonly reply_by_ms: number | null;
  /** The run whose command sent it and waits for the answer, and its name there; or null. */
  readonly run: string | null;
  readonly name: string | null;
  readonly reply: string | null;
  readonly replied_ms: number | null;
}

/** A message to be stored; number and reply come later. */
export type NewMessage = Omit<Message, "n" | "reply" | "replied_ms">;

/** Stores a message under the agent's next number, and forgets the oldest above the bound. */
export function insertMessage(db: Database, m: NewMessage): Message {
  const last = db.get("SELECT MAX(n) AS n FROM messages WHERE agent = ?", m.agent);
  const n = (last === undefined ? 0 : numberOrNull(last, "n") ?? 0) + 1;
  db.run(
    "INSERT INTO messages (agent, n, at_ms, sender, text, ask, reply_by_ms, run, name) " +
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    m.agent,
    n,
    m.at_ms,
    m.sender,
    m.text,
    m.ask ? 1 : 0,
    m.reply_by_ms,
    m.run,
    m.name,
  );
  db.run("DELETE FROM messages WHERE agent = ? AND n <= ?", m.agent, n - MESSAGES_KEPT);
  return { ...m, n, reply: null, replied_ms: null };
}

/** Stores the reply to a message that has none. */
export function insertReply(
  db: Database,
  agent: string,
  n: number,
  reply: string,
  at_ms: number,
): void {
  const changed = db.run(
    "UPDATE messages SET reply = ?, replied_ms = ? WHERE agent = ? AND n = ? AND reply IS NULL",
    reply,
    at_ms,
    agent,
    n,
  );
  if (changed !== 1) throw new RangeError(`Cannot reply to message ${n}: it is gone or answered`);
}

/** No answer to a run's questions is taken any more: nobody waits for it. */
export function closeQuestions(db: Database, run: string, at_ms: number): Message[] {
  const open = runMessages(db, run).filter((m) =>
    m.ask && m.reply === null && (m.reply_by_ms === null || m.reply_by_ms > at_ms)
  );
  for (const { agent, n } of open) {
    db.run("UPDATE messages SET reply_by_ms = ? WHERE agent = ? AND n = ?", at_ms, agent, n);
  }
  return open.map((m) => ({ ...m, reply_by_ms: at_ms }));
}

/** One message, or null. */
export function readMessage(db: Database, agent: string, n: number): Message | null {
  const row = db.get("SELECT * FROM messages WHERE agent = ? AND n = ?", agent, n);
  return row === undefined ? null : messageOf(row);
}

/** The newest messages of an agent, newest first. */
export function newestMessages(db: Database, agent: string, limit: number): Message[] {
  return db.all("SELECT * FROM messages WHERE agent = ? ORDER BY n DESC LIMIT ?", agent, limit)
    .map(messageOf);
}

/** The messages of one run, in no order. */
export function runMessages(db: Database, run: string): Message[] {
  return db.all("SELECT * FROM messages WHERE run IS NOT NULL AND run = ?", run).map(messageOf);
}

/** How many questions of an agent wait for an answer, and the newest number. */
export function messageCounts(
  db: Database,
  agent: string,
  now_ms: number,
): { newest: number; asking: number } {
  const row = db.get(
    "SELECT MAX(n) AS newest, COUNT(*) FILTER (WHERE ask = 1 AND reply IS NULL " +
      "AND (reply_by_ms IS NULL OR reply_by_ms > ?)) AS asking FROM messages WHERE agent = ?",
    now_ms,
    agent,
  );
  return {
    newest: row === undefined ? 0 : numberOrNull(row, "newest") ?? 0,
    asking: row === undefined ? 0 : numberOf(row, "asking"),
  };
}

function messageOf(row: SqlRow): Message {
  return {
    agent: textOf(row, "agent"),
    n: numberOf(row, "n"),
    at_ms: numberOf(row, "at_ms"),
    sender: textOf(row, "sender"),
    text: textOf(row, "text"),
    ask: numberOf(row, "ask") === 1,
    reply_by_ms: numberOrNull(row, "reply_by_ms"),
    run: textOrNull(row, "run"),
    name: textOrNull(row, "name"),
    reply: textOrNull(row, "reply"),
    replied_ms: numberOrNull(row, "replied_ms"),
  };
}
