/**
 * From ledger to agent: writes what rows and answers say into `results/` and `inbox/`.
 *
 * 1. What is published is derived. It needs no fsync; the ledger is the record, and an unpublished
 *    row is published again at start (S6).
 * 2. A publication that fails never fails the request: it is kept and tried again, and the run is
 *    never repeated for it (S1, Q3).
 * 3. What an agent's directories do not take because they were replaced waits for the next start,
 *    which comes after a human looked (P3). It is no fault of the others.
 * 4. A row counts as published only in a commit after its file was renamed into place; a newer
 *    state of the row takes the mark away first. The mark says what the row takes in `results/`. Marks
 *    of rows are noted many at a time, within a second or so and at the end of the service.
 * 5. What was reaped is published again only as the answer to a replay that asks for it.
 * 6. An answer belongs to no row. Once a row has the name, it is not published any more.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Published, Row, StoredAnswer } from "../ledger/types.ts";
import { isoTime, isOutputGone, type Result } from "../result.ts";
import { publish, resultSize } from "../spool/publish.ts";
import type { Log } from "./log.ts";

/** Milliseconds for which a row that has just started is not told. */
const SOON_MS = 25;

/** So many marks are noted in whatever transaction comes next. */
export const MANY_MARKS = 128;

/** Rows remembered for another try while a catch-up is going on. */
const MAX_RETRY = 1000;

const encoder = new TextEncoder();

/** JSON with a newline, ready to be written. */
export function encodeDocument(document: unknown): Uint8Array {
  return encoder.encode(JSON.stringify(document) + "\n");
}

export class Publisher {
  readonly #ledger: Ledger;
  readonly #log: Log;
  readonly #now: () => number;
  #marks = new Map<number, Published>();
  #dropped: string[] = [];
  /** The last row of those that were unpublished at the start, as far as they were looked at. */
  #caughtUp: number | null = null;
  readonly #soon = new Set<number>();
  readonly #retryRows = new Set<number>();
  readonly #retryAnswers = new Map<string, StoredAnswer>();
  #fault: string | null = null;

  constructor(ledger: Ledger, log: Log, now: () => number) {
    this.#ledger = ledger;
    this.#log = log;
    this.#now = now;
    // A mark speaks of what was told before. It may wait for a while, and must not outlive that.
    ledger.afterDecision = (rids) => {
      for (const rid of rids) this.#marks.delete(rid);
    };
  }

  /** Why something could not be published at the last try, or null. */
  get fault(): string | null {
    return this.#fault;
  }

  /** Rows and answers that wait for another try. */
  get backlog(): number {
    return this.#retryRows.size + this.#retryAnswers.size + (this.#caughtUp === null ? 0 : 1);
  }

  /** How many rows and claims are marked and not noted yet. */
  get marks(): number {
    return this.#marks.size + this.#dropped.length;
  }

  /**
   * Rows published and claims answered since the last call, to be noted in a transaction.
   *
   * @param least none where there are fewer and all are of rows: to note many of them at once costs
   *   each request less, and one that is not noted yet is published again after a crash, as it stands
   *   then. An answer does not change, and must not come back over what has its name by then: it is
   *   noted in the very next transaction
   */
  takeMarks(least = 1): { rids: Published[]; answered: string[] } {
    if (this.marks < least && this.#dropped.length === 0) return { rids: [], answered: [] };
    const marks = { rids: [...this.#marks.values()], answered: this.#dropped };
    this.#marks = new Map();
    this.#dropped = [];
    return marks;
  }

  /** Puts marks back whose transaction did not happen. */
  restoreMarks(rids: readonly Published[], answered: readonly string[]): void {
    for (const published of rids) this.#marks.set(published.rid, published);
    this.#dropped.push(...answered);
  }

  /** True when a transaction has something to note for the publisher. */
  get hasMarks(): boolean {
    return this.marks > 0;
  }

  /**
   * Publishes a row under every id that it is known under. A row that was released is known under
   * none any more; it is told under the id that it came with, unless that id belongs to another
   * row by now, and under those that the caller still knows.
   */
  row(row: Row, released: readonly string[] = []): void {
    this.#marks.delete(row.rid);
    try {
      // Another id joins only by a request that counts as a replay.
      let ids = row.replays === 0 && row.key !== null ? [row.id] : this.#ledger.idsOf(row.rid);
      if (ids.length === 0) {
        ids = [...new Set([row.id, ...released])].filter((id) =>
          this.#ledger.rowById(row.agent, id) === null
        );
      }
      let bytes = 0;
      for (const id of ids) bytes += this.#result(row.agent, resultFor(row, id));
      this.#mark(row, ids.length, bytes);
      this.#retryRows.delete(row.rid);
      if (this.backlog === 0) this.#fault = null;
    } catch (error) {
      // Behind the others that wait: what never succeeds must not keep them waiting.
      this.#retryRows.delete(row.rid);
      if (this.#heldBack(error)) return;
      this.#retryRows.add(row.rid);
      this.#failed("result", error);
    }
  }

  /**
   * Publishes a row that has just started, in a moment: most commands have ended by then, and their
   * result is published instead. The agent's wait for an answer is not longer for it.
   */
  soon(rid: number): void {
    if (this.#soon.size === 0) setTimeout(() => this.tellStarted(), SOON_MS);
    this.#soon.add(rid);
  }

  /** Publishes now what has started and is not told yet: at the end of the service nobody does later. */
  tellStarted(): void {
    const rids = [...this.#soon];
    this.#soon.clear();
    for (const rid of rids) {
      try {
        const row = this.#ledger.row(rid);
        if (row !== null && row.state === "running" && row.pub === 0) this.row(row);
      } catch (error) {
        this.#retryRows.add(rid);
        this.#failed("result", error);
      }
    }
  }

  /** Publishes a row under one id, as the answer to a replay. */
  replay(row: Row, id: string): void {
    try {
      const stored = row.state === "done"
        ? {
          replays: row.replays,
          replayed_at: isoTime(this.#now()),
          hint: `This is the stored result from ${row.result.finished_at ?? "earlier"}` +
            `${isOutputGone(row.result) ? "; its output is not kept any more" : ""}. ` +
            "To run it again, send it under a new id and key (chb-request: another --intent)",
        }
        : { replays: row.replays };
      this.#result(row.agent, { ...resultFor(row, id), ...stored });
      // It may be a name that the row had not stood under, or not any more.
      if (row.state === "done") this.#markStanding(row);
    } catch (error) {
      if (this.#heldBack(error)) return;
      this.#retryRows.add(row.rid);
      this.#failed("replay", error);
    }
  }

  /** Publishes the answer to a claim that bound nothing. */
  answer(answer: StoredAnswer): void {
    try {
      if (answer.target !== null) {
        const slash = answer.target.indexOf("/");
        const room = answer.target.slice(0, slash) === "refused" ? "refused" : "results";
        publish(
          answer.agent,
          room,
          answer.target.slice(slash + 1),
          encoder.encode(answer.document),
        );
      }
      this.#retryAnswers.delete(answer.claim);
      this.#dropped.push(answer.claim);
      if (this.backlog === 0) this.#fault = null;
    } catch (error) {
      this.#retryAnswers.delete(answer.claim);
      if (this.#heldBack(error)) return;
      this.#retryAnswers.set(answer.claim, answer);
      this.#failed("answer", error);
    }
  }

  /** Tries again what could not be published; at most `limit` of each kind. */
  retry(limit = 100): void {
    let left = limit;
    for (const rid of [...this.#retryRows]) {
      if (left-- <= 0) break;
      const row = this.#ledger.row(rid);
      if (row === null || row.pub === 2) this.#retryRows.delete(rid);
      else this.row(row);
    }
    left = limit;
    for (const answer of [...this.#retryAnswers.values()]) {
      if (left-- <= 0) break;
      if (this.#ledger.isOwed(answer.claim)) this.answer(answer);
      else this.#retryAnswers.delete(answer.claim);
    }
  }

  /**
   * Publishes rows that were not published when the daemon started, a bounded number a call. What
   * fails is tried again like everything else.
   *
   * @returns true when there may be more
   */
  catchUp(limit: number): boolean {
    if (this.#caughtUp === null) return false;
    const rows = this.#ledger.unpublished(limit, this.#caughtUp);
    for (const row of rows) {
      // One that has just started is told a moment later, or as finished.
      if (row.state === "running" && this.#soon.has(row.rid)) continue;
      // Where nothing can be published the rest stays in the ledger and not in memory.
      if (this.#retryRows.size >= MAX_RETRY) return false;
      this.row(row);
      this.#caughtUp = row.rid;
    }
    this.#caughtUp = rows.length < limit ? null : rows.at(-1)?.rid ?? null;
    return this.#caughtUp !== null;
  }

  /** From now on `catchUp` has to do with all rows that are not published. */
  beginCatchUp(): void {
    this.#caughtUp = 0;
  }

  /** @returns the size of the document, bytes */
  #result(agent: string, result: Result): number {
    const bytes = encodeDocument(result);
    const awaited = result.state === "done";
    publish(agent, "results", `${result.id}.json`, bytes, { awaited });
    return bytes.length;
  }

  /** Marks a row with what of it stands in `results/` now. */
  #markStanding(row: Row): void {
    const sizes = this.#ledger.idsOf(row.rid)
      .map((id) => resultSize(row.agent, `${id}.json`)).filter((size) => size > 0);
    this.#mark(row, sizes.length, sizes.reduce((sum, size) => sum + size, 0));
  }

  #mark(row: Row, documents: number, bytes: number): void {
    let files = documents;
    let size = bytes;
    for (const view of [row.result.stdout, row.result.stderr]) {
      if (view === undefined || view.file === null) continue;
      files++;
      size += resultSize(row.agent, view.file);
    }
    this.#marks.set(row.rid, { rid: row.rid, files, bytes: size });
  }

  /** Rule 3: true when another try can come to nothing before the next start. */
  #heldBack(error: unknown): boolean {
    if (errorCode(error) !== "REPLACED") return false;
    if (this.backlog === 0) this.#fault = null;
    return true;
  }

  #failed(what: string, error: unknown): void {
    const code = errorCode(error) ?? (error instanceof Error ? error.name : "unknown");
    if (this.#fault !== code) this.#log("WARN", "publish-failed", { what, error: code });
    this.#fault = code;
  }
}

/** A row's result document as one of its ids sees it. */
export function resultFor(row: Row, id: string): Result {
  return id === row.id ? row.result : { ...row.result, id, replay_of: row.id };
}
