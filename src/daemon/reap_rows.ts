/**
 * Forgets requests: the row with its ids and its key, so that the same key may run again.
 *
 * 1. By age: a row goes when its last change lies `ledger_days` back by the retention clock. That is
 *    the horizon of a key: within it nothing runs twice, behind it the key is as new.
 * 2. By count: above `ledger_rows` of one agent its oldest rows go, though never one that a rate or
 *    a day's account still counts. An agent can shorten the memory of its own keys by that, and
 *    nobody else's.
 * 3. What is not `done` is never forgotten, however old: an uncertain request waits for a human.
 * 4. A pass goes in order of arrival and only as far as rows can be old enough; how many rows an
 *    agent has is counted in pieces, and only when it may have too many.
 *
 * @module
 */
import type { OldRow } from "../ledger/reap_reads.ts";
import { DAY_MS, type ReapContext, type ReapJob, UNIT_MS } from "./reap_context.ts";
import { removeRowFiles } from "./reap_results.ts";

/** Rows that one step reads. */
const BATCH = 64;
/** Rows that one step counts. */
const COUNTED = 4096;

export class RowReaper {
  /** The record up to which everything that was decided has been gone through. */
  #done = 0;
  /** Rows of each agent when they were counted, and the newest row of all then. */
  readonly #counted = new Map<string, { n: number; last: number }>();

  /** Forgets what is too old or too much. */
  *reap(context: ReapContext): ReapJob {
    yield* this.#byAge(context);
    yield* this.#byCount(context);
  }

  *#byAge(context: ReapContext): ReapJob {
    const { ledger } = context;
    const horizon = context.horizon(context.retention.ledger_days * DAY_MS);
    if (horizon === null || horizon.seq <= this.#done) return;
    for (let after = 0;;) {
      const rows = ledger.reaping.rows(after, horizon.rid, BATCH);
      const last = rows.at(-1);
      if (last === undefined) break;
      const old = rows.filter((row) => row.state === "done" && row.seq <= horizon.seq);
      after = forget(context, old) ?? last.rid;
      yield;
    }
    this.#done = horizon.seq;
  }

  *#byCount(context: ReapContext): ReapJob {
    const { reaping } = context.ledger;
    for (let agent = reaping.nextAgent(""); agent !== null; agent = reaping.nextAgent(agent)) {
      const most = context.retention.ledger_rows;
      const before = this.#counted.get(agent);
      const newest = reaping.lastRow();
      if (before === undefined ? newest <= most : before.n + newest - before.last <= most) continue;
      let n = 0;
      for (let after: number | null = 0; after !== null;) {
        const piece = reaping.countRows(agent, after, COUNTED);
        n += piece.n;
        after = piece.last;
        yield;
      }
      const counted = { n, last: newest };
      this.#counted.set(agent, counted);
      // A little more than must go, so that the next count is not due with the next request.
      if (n > most) yield* this.#trim(context, agent, counted, Math.floor(most * 0.99));
    }
  }

  *#trim(context: ReapContext, agent: string, counted: { n: number }, to: number): ReapJob {
    const since = context.now() - countedWindow(context);
    for (let after = 0; counted.n > to;) {
      const rows = context.ledger.reaping.rowsOf(agent, after, Math.min(BATCH, counted.n - to));
      const last = rows.at(-1);
      if (last === undefined) return;
      const young = rows.findIndex((row) => row.started_ms !== null && row.started_ms >= since);
      const old = (young < 0 ? rows : rows.slice(0, young))
        .filter((row) => row.state === "done" && row.pub !== 0);
      const forgotten = context.counts.rows;
      const stopped = forget(context, old);
      counted.n -= context.counts.rows - forgotten;
      if (stopped === null && young >= 0) return;
      after = stopped ?? last.rid;
      yield;
    }
  }
}

/** Milliseconds in which a start still counts for a rate, or for the account of a day. */
function countedWindow({ limits }: ReapContext): number {
  const windows = Object.values(limits.rate).map((rate) => rate.per_s * 1000);
  return Math.max(DAY_MS, ...windows);
}

/**
 * Forgets rows in one transaction, as many as fit into a step.
 *
 * @returns the last one that was forgotten when time ran out, else null
 */
function forget(context: ReapContext, rows: readonly OldRow[]): number | null {
  if (rows.length === 0) return null;
  const { ledger, counts } = context;
  const begun = performance.now();
  const gone: number[] = [];
  for (const { rid, pub } of rows) {
    const row = pub === 2 ? null : ledger.reaping.row(rid);
    if (row !== null) removeRowFiles(context, row);
    gone.push(rid);
    if (performance.now() - begun > UNIT_MS) break;
  }
  let n = 0;
  ledger.transaction((tx) => {
    for (const rid of gone) if (tx.reaping.forget(rid)) n++;
  });
  counts.rows += n;
  return gone.length < rows.length ? gone.at(-1) ?? null : null;
}
