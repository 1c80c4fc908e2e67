/**
 * Marks unfinished runs for their end, from what lies in `state/runs/` alone: no ledger, no daemon
 * and no lock are needed, so it works when none of them does.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { isRun } from "../names.ts";
import { readBounded } from "./bounded_file.ts";
import { parseExitName } from "./exit_record.ts";
import { type Order, RUN_FILES } from "./order.ts";
import { markCancel } from "./order_file.ts";
import { ORDER_BYTES_MAX, parseOrder } from "./parse_order.ts";
import { below, runDir, RUNS } from "./run_dir.ts";

/** Names after which there is nothing left to end. */
const OVER: readonly string[] = [RUN_FILES.exit, RUN_FILES.void];

/** What became of the marking. */
export interface Marked {
  /** Runs that are marked now, marked before included. */
  readonly marked: number;
  /** Runs that could not be marked, each with the error. */
  readonly failed: readonly { readonly run: string; readonly error: string }[];
}

/** The order of a run, or null when it cannot be read. */
function orderOf(dir: string, run: string): Order | null {
  for (const name of [RUN_FILES.taken, RUN_FILES.order]) {
    try {
      const bytes = readBounded(`${dir}/${name}`, ORDER_BYTES_MAX);
      const order = bytes === null ? null : parseOrder(bytes, run);
      if (order !== null) return order;
    } catch (error) {
      if (errorCode(error) !== "ENOENT") return null;
    }
  }
  return null;
}

/** True when the run has an outcome, or will never have one. */
function isOver(dir: string): boolean {
  for (const { name } of Deno.readDirSync(dir)) {
    if (OVER.includes(name) || parseExitName(name) !== null) return true;
  }
  return false;
}

/**
 * Marks every run without an outcome. One that a shim takes up afterwards finds the mark before it
 * starts anything.
 *
 * @param agent whose runs; null for everybody's. A run whose order cannot be read belongs to nobody
 *   in particular and is left alone then
 * @throws the system error when the runs cannot be listed
 */
export function markUnfinishedRuns(agent: string | null, root = "."): Marked {
  let marked = 0;
  const failed: { run: string; error: string }[] = [];
  for (const { name: run, isDirectory } of Deno.readDirSync(below(root, RUNS))) {
    if (!isDirectory || !isRun(run)) continue;
    const dir = runDir(run, root);
    try {
      if (isOver(dir)) continue;
      if (agent !== null && orderOf(dir, run)?.agent !== agent) continue;
      if (markCancel(run, root)) marked++;
    } catch (error) {
      if (errorCode(error) === "ENOENT") continue;
      failed.push({ run, error: errorCode(error) ?? "unknown" });
    }
  }
  return { marked, failed };
}

/**
 * Marks the run of one request, where it has one without an outcome.
 *
 * @param agent whose request; null where only one agent has the id
 * @returns false when there is no such run, or the id alone is that of several agents
 * @throws the system error when the runs cannot be listed or the mark cannot be left
 */
export function markRunOf(agent: string | null, id: string, root = "."): boolean {
  const found = new Map<string, string>();
  for (const { name: run, isDirectory } of Deno.readDirSync(below(root, RUNS))) {
    if (!isDirectory || !isRun(run)) continue;
    const dir = runDir(run, root);
    const order = orderOf(dir, run);
    if (order === null || order.id !== id || order.lookup === true || order.notify === true) {
      continue;
    }
    if (agent !== null && order.agent !== agent) continue;
    found.set(order.agent, isOver(dir) ? found.get(order.agent) ?? "" : run);
  }
  const [only, ...others] = found.values();
  return only !== undefined && only !== "" && others.length === 0 && markCancel(only, root);
}
