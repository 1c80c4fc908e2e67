/**
 * Removes files that no row tells of: notes and copies of refused entries, directories of finished
 * runs, policies that nothing refers to.
 *
 * 1. Only names that this program gives are touched, and only files; nothing is followed, and no
 *    tree that an agent made is entered (P10, P21). Directories in quarantine stay for a human.
 * 2. A run directory stays while its request is not `done`: an uncertain one may have a process that
 *    lives on, and what is left of it is in there.
 * 3. A policy goes when another has been in force for longer than any key is remembered, and no row
 *    was handled under it.
 * 4. Ages come from the retention clock: a file is old when it is older than what the wall clock
 *    showed when that clock stood so far back.
 *
 * @module
 */
import { readdirSync, unlinkSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import { isRun } from "../names.ts";
import { readTaken, removeRun } from "../run/order_file.ts";
import { POLICIES, runDir, RUNS } from "../run/run_dir.ts";
import { agentPaths } from "../spool/agent_paths.ts";
import { look } from "../spool/look.ts";
import { assertPinned } from "../spool/pins.ts";
import { pinnedAgents } from "./stored_pins.ts";
import { DAY_MS, type ReapContext, type ReapJob } from "./reap_context.ts";

/** Milliseconds that raw output stays when its result is final. */
const RAW_MS = 3_600_000;
/** Notes kept in `inbox/refused/`. */
export const MAX_REFUSED = 200;
/** Files that one step looks at. */
const STEP = 16;

const NOTE = /^([1-9][0-9]{0,15})\.json$/;
const COPY = /^copy\./;
const POLICY = /^([0-9a-f]{64})\.jsonc$/;

/** Notes, copies and run directories: what needs no change of the ledger. */
export function* reapFiles(context: ReapContext): ReapJob {
  for (const agent of pinnedAgents(context.ledger)) {
    try {
      yield* reapNotes(context, agent);
      yield* reapCopies(context, agent);
    } catch (error) {
      if (error instanceof LedgerError) throw error;
      // An agent whose directories were replaced keeps its files; the others are not held up.
      context.log("WARN", "files-not-reaped", { agent, error: errorCode(error) ?? "unknown" });
    }
  }
  yield* reapRuns(context);
}

/** What is older than a result may be, as the wall clock showed it. */
function oldUpto(context: ReapContext): number {
  return context.horizon(context.retention.results_days * DAY_MS)?.wall_ms ?? -Infinity;
}

function* reapNotes(context: ReapContext, agent: string): ReapJob {
  const { refused } = agentPaths(agent);
  const wall = oldUpto(context);
  const notes = list(context, refused)
    .flatMap((name) => NOTE.exec(name)?.[1] ?? []).map(Number).sort((a, b) => a - b);
  const newest = notes.at(-1) ?? 0;
  for (const [i, n] of notes.entries()) {
    if (i % STEP === 0) yield;
    assertPinned(agent, "inbox");
    // A crash may have left more than the bound.
    const upto = n <= newest - MAX_REFUSED ? Infinity : wall;
    if (removeOld(`${refused}/${n}.json`, upto)) context.counts.notes++;
  }
}

function* reapCopies(context: ReapContext, agent: string): ReapJob {
  const { quarantine } = agentPaths(agent);
  const wall = oldUpto(context);
  const copies = list(context, quarantine).filter((name) => COPY.test(name));
  for (const [i, name] of copies.entries()) {
    if (i % STEP === 0) yield;
    assertPinned(agent, "quarantine");
    if (removeOld(`${quarantine}/${name}`, wall)) context.counts.copies++;
  }
}

function* reapRuns(context: ReapContext): ReapJob {
  const { ledger, counts } = context;
  const wall = context.horizon(RAW_MS)?.wall_ms;
  if (wall === undefined) return;
  const unfinished = new Set(ledger.unfinished().flatMap((row) => [row.run, row.lookup]));
  let n = 0;
  for (const run of list(context, RUNS)) {
    if (++n % STEP === 0) yield;
    if (!isRun(run) || unfinished.has(run) || context.isActive(run)) continue;
    try {
      const seen = look(runDir(run));
      if (seen?.kind !== "directory" || seen.mtime_ms > wall) continue;
      const order = readTaken(run);
      const row = order === null ? null : ledger.rowById(order.agent, order.id);
      const own = row !== null && (row.run === run || row.lookup === run);
      if (own && row.state !== "done") continue;
      if (removeRun(run)) counts.runs++;
    } catch (error) {
      context.log("WARN", "run-not-removed", { run, error: errorCode(error) });
    }
  }
}

/** Policies that nothing refers to any more. */
export function* reapPolicies(context: ReapContext): ReapJob {
  const { ledger, counts } = context;
  const horizon = context.horizon(context.retention.ledger_days * DAY_MS);
  if (horizon !== null) {
    for (const { policy, seq, rid } of ledger.reaping.oldPolicies()) {
      if (seq > horizon.seq || ledger.reaping.isPolicyUsed(policy, rid)) continue;
      if (removeOld(`${POLICIES}/${policy}.jsonc`, Infinity)) counts.policies++;
      ledger.transaction((tx) => tx.reaping.forgetPolicy(policy));
      yield;
    }
  }
  // What was stored and never trusted: a person thought better of it.
  const wall = context.horizon(DAY_MS)?.wall_ms;
  if (wall === undefined) return;
  for (const name of list(context, POLICIES)) {
    const policy = POLICY.exec(name)?.[1];
    if (policy === undefined || ledger.reaping.isPolicyKnown(policy)) continue;
    if (removeOld(`${POLICIES}/${name}`, wall)) counts.policies++;
    yield;
  }
}

/** Removes a file last written at or before a moment of the wall clock. */
function removeOld(path: string, upto_ms: number): boolean {
  const seen = look(path);
  if (seen === null || seen.kind !== "file" || seen.mtime_ms > upto_ms) return false;
  unlinkSync(path);
  return true;
}

function list(context: ReapContext, directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") {
      context.log("WARN", "not-listed", { directory, error: errorCode(error) });
    }
    return [];
  }
}
