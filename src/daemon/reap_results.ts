/**
 * Removes results that are too old or too many, with their output files.
 *
 * 1. The first decided go first, whatever they are: results of requests and answers that bound
 *    nothing, in one order. What waits, runs or is uncertain never goes.
 * 2. Nothing is listed. What lies in `results/` is in an index of the ledger, and how much there is
 *    of it is known with every commit, so the cost does not grow with the directory (Q5).
 * 3. Files are removed before the commit that says so. Whoever dies in between finds the same rows
 *    again and nothing to remove; the other way round a file would be left that nobody knows of.
 * 4. A ledger that cannot be written does not stop the removing: it frees the space that the commit
 *    needs where both are on one file system. A bounded number goes ahead of the ledger (S1).
 * 5. A name that holds a later document by now is left alone.
 * 6. A step takes a few milliseconds, but far above a cap it removes twice as many files as came since
 *    the step before, however long that takes: a flood on a slow machine must not outrun it (Q5).
 * 7. Agents take turns, and what is decided after the begin of a call is left to the next one: an
 *    agent that floods holds up neither the others nor what comes behind.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { LightRow } from "../ledger/types.ts";
import { reapedResult } from "../result.ts";
import { removeResult, SquattedError } from "../spool/publish.ts";
import { DAY_MS, type ReapContext, type ReapJob, UNIT_MS } from "./reap_context.ts";

/** Results that one transaction covers, at most. */
const BATCH = 64;
/** The same where rule 6 wants more. */
const PRESSED_BATCH = 512;
/** Results that may be removed before the ledger can say so. */
const AHEAD = 128;
/** Files above the cap, and the part of the cap in bytes, beyond which rule 6 holds. */
const FAR_FILES = 256;
const FAR_BYTES = 1.1;

type Victim =
  | { readonly kind: "row"; readonly key: number; readonly seq: number; readonly size: Size }
  | {
    readonly kind: "answer";
    readonly key: number;
    readonly seq: number;
    readonly size: Size;
    readonly name: string;
  };

interface Size {
  readonly files: number;
  readonly bytes: number;
}

/** Every agent's results. */
export function* reapResults(context: ReapContext): ReapJob {
  const jobs = new Map(
    [...context.ledger.shown().keys()].map((agent) => [agent, reapAgent(context, agent)]),
  );
  while (jobs.size > 0) {
    let pressed = false;
    for (const [agent, job] of jobs) {
      try {
        const step = job.next();
        if (step.done === true) {
          jobs.delete(agent);
          continue;
        }
        // Those that are far above come in one step: each of them had its turn with the requests, too.
        if (step.value) pressed = true;
        else yield;
      } catch (error) {
        if (error instanceof LedgerError) throw error;
        jobs.delete(agent);
        // An agent whose directories were replaced keeps its files; the others are not held up.
        context.log("WARN", "results-not-reaped", { agent, error: errorCode(error) ?? "unknown" });
      }
    }
    if (pressed) yield;
  }
}

/** True when an agent has more in its `results/` than it may. */
export function isOverCap({ ledger, limits }: Pick<ReapContext, "ledger" | "limits">): boolean {
  for (const { files, bytes } of ledger.shown().values()) {
    if (files > limits.results_files || bytes > limits.results_bytes) return true;
  }
  return false;
}

/** One agent's results. Yields after each batch, true when rule 6 made it larger. */
function* reapAgent(context: ReapContext, agent: string): Generator<boolean, void, void> {
  const { ledger, limits, counts } = context;
  const ahead: Victim[] = [];
  const shown = () => ledger.shown().get(agent) ?? { files: 0, bytes: 0 };
  const upto = ledger.head()?.seq ?? 0;
  let before = shown().files;
  for (;;) {
    const begun = performance.now();
    const { files, bytes } = shown();
    const far = files > limits.results_files + FAR_FILES ||
      bytes > limits.results_bytes * FAR_BYTES;
    const least = far ? Math.min(PRESSED_BATCH, 2 * (files - before)) : 0;
    let fresh = 0;
    for (const victim of victims(context, agent, ahead, upto, Math.max(BATCH, least))) {
      ahead.push(victim);
      fresh++;
      removeFiles(context, agent, victim);
      if (fresh >= least && performance.now() - begun > UNIT_MS) break;
    }
    if (fresh === 0) return;
    const of = { row: 0, answer: 0 };
    try {
      ledger.transaction((tx) => {
        for (const victim of ahead) {
          if (victim.kind === "answer") {
            if (tx.reaping.reapAnswer(victim.key)) of.answer++;
            continue;
          }
          const row = ledger.reaping.row(victim.key);
          if (row !== null && tx.reaping.reap(row.rid, reapedResult(row.result))) of.row++;
        }
      });
    } catch (error) {
      if (!(error instanceof LedgerError) || error.fatal || ahead.length >= AHEAD) throw error;
      yield false;
      // A replay may have put a file back meanwhile: remove it again right before the commit.
      for (const victim of ahead) removeFiles(context, agent, victim);
      continue;
    }
    counts.results += of.row;
    counts.answers += of.answer;
    ahead.length = 0;
    before = shown().files;
    yield least > 0;
  }
}

/**
 * What of an agent is to go next, the first decided first, without what has gone ahead.
 *
 * @param upto nothing that was decided after this record
 * @param most how many, at most
 */
function victims(
  context: ReapContext,
  agent: string,
  ahead: readonly Victim[],
  upto: number,
  most: number,
): Victim[] {
  const { ledger, limits, retention } = context;
  const shown = ledger.shown().get(agent) ?? { files: 0, bytes: 0 };
  const old = context.horizon(retention.results_days * DAY_MS)?.seq ?? -1;
  let files = shown.files;
  let bytes = shown.bytes;
  for (const { size } of ahead) {
    files -= size.files;
    bytes -= size.bytes;
  }
  const over = () => files > limits.results_files || bytes > limits.results_bytes;
  const gone = new Set(ahead.map(({ kind, key }) => `${kind}${key}`));
  const limit = ahead.length + most;
  const found: Victim[] = [
    ...ledger.reaping.oldestRows(agent, limit).map((row): Victim => ({
      kind: "row",
      key: row.rid,
      seq: row.seq,
      size: row,
    })),
    ...ledger.reaping.oldestAnswers(agent, limit).map((answer): Victim => ({
      kind: "answer",
      key: answer.n,
      seq: answer.seq,
      size: { files: 1, bytes: answer.bytes },
      name: answer.name,
    })),
  ];
  const next: Victim[] = [];
  for (const victim of found.sort((a, b) => a.seq - b.seq || a.key - b.key)) {
    if (gone.has(`${victim.kind}${victim.key}`)) continue;
    if (next.length >= most || victim.seq > upto || (victim.seq > old && !over())) break;
    next.push(victim);
    files -= victim.size.files;
    bytes -= victim.size.bytes;
  }
  return next;
}

function removeFiles(context: ReapContext, agent: string, victim: Victim): void {
  const { reaping } = context.ledger;
  if (victim.kind === "row") {
    const row = reaping.row(victim.key);
    if (row !== null) removeRowFiles(context, row);
    return;
  }
  const { name, key, seq } = victim;
  const id = name.slice(0, -".json".length);
  // `<id>.refused.json` is only ever an answer's; an id has no dot.
  const taken = id.includes(".")
    ? reaping.isAnswered(agent, name, key, seq)
    : reaping.isTaken(agent, id, seq, { n: key });
  if (!taken) removeFile(context, agent, name);
}

/** Removes what a finished row has in `results/`. */
export function removeRowFiles(context: ReapContext, row: LightRow): void {
  const { ledger } = context;
  let ids = ledger.idsOf(row.rid);
  if (ids.length === 0) {
    const seq = row.result.audit?.seq ?? 0;
    ids = ledger.reaping.isTaken(row.agent, row.id, seq, { rid: row.rid }) ? [] : [row.id];
  }
  for (const id of ids) removeFile(context, row.agent, `${id}.json`);
  for (const view of [row.result.stdout, row.result.stderr]) {
    if (view !== undefined && view.file !== null) removeFile(context, row.agent, view.file);
  }
}

function removeFile(context: ReapContext, agent: string, name: string): void {
  try {
    removeResult(agent, name);
  } catch (error) {
    // What keeps the name is no file of ours, and a person has to look at it.
    if (!(error instanceof SquattedError)) throw error;
    context.log("WARN", "result-not-removed", { agent, name, error: errorCode(error) });
  }
}
