/**
 * The daemon's side of a run directory: making one with its order, voiding an order that nobody
 * took, asking for the end of a run, and clearing up afterwards.
 *
 * 1. A run directory is made with `mkdir`, which fails where one exists: a run id is used once. One
 *    that was made beforehand has the id of its run from the beginning (`blank_runs.ts`).
 * 2. An order is taken or voided by renaming `order.json`; the file system lets one of the two
 *    win, so a voided order has not been started and never will be (S7). Its taker may put it back as
 *    long as nothing was started.
 * 3. A lock is probed shared and let go at once, so a probe cannot make another probe fail; the
 *    shim waits for the lock instead of trying it.
 * 4. Files are removed by the names that this program gives them, never by walking a tree (P21).
 *
 * Every function takes the path of the root last; the running program leaves it at `.`.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { type Blank, fillBlank } from "./blank_runs.ts";
import { readBounded, writeAll } from "./bounded_file.ts";
import { parseExitName } from "./exit_record.ts";
import { type Order, RUN_FILES } from "./order.ts";
import { ORDER_BYTES_MAX, parseOrder } from "./parse_order.ts";
import { below, makeRunDir, runDir, RUNS } from "./run_dir.ts";

const encoder = new TextEncoder();

/**
 * Makes the directory of a run and writes its order. Done before the commit that says `running`;
 * when it fails nothing has happened that would have to be undone, but what was made is removed.
 *
 * Nothing is fsynced: an order that a power failure takes away is a run that never started, and
 * the shim makes it durable before it starts anything.
 *
 * @param blank the blank for this run, when there is one (`blank_runs.ts`); used up
 * @throws the system error when the directory exists or the order cannot be written whole
 */
export function prepareRun(order: Order, root = ".", blank: Blank | null = null): void {
  const dir = runDir(order.run, root);
  const bytes = encoder.encode(JSON.stringify(order));
  if (blank !== null && fillBlank(blank, bytes, root)) return;
  makeRunDir(dir, below(root, RUNS));
  try {
    using file = Deno.openSync(`${dir}/${RUN_FILES.order}`, {
      write: true,
      createNew: true,
      mode: 0o600,
    });
    writeAll(file, bytes);
  } catch (error) {
    removeRun(order.run, root);
    throw error;
  }
}

/**
 * Voids an order that no shim has taken.
 *
 * @returns true when it is void now: it was never started and never will be; false when it was
 * taken, or is not there
 * @throws the system error of a rename that failed otherwise; then nothing is known
 */
export function voidOrder(run: string, root = "."): boolean {
  const dir = runDir(run, root);
  try {
    Deno.renameSync(`${dir}/${RUN_FILES.order}`, `${dir}/${RUN_FILES.void}`);
    return true;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return false;
    throw error;
  }
}

/** The name that the run's order has now, or null. */
function orderName(dir: string): string | null {
  for (const name of [RUN_FILES.taken, RUN_FILES.order]) {
    try {
      Deno.lstatSync(`${dir}/${name}`);
      return name;
    } catch (error) {
      if (errorCode(error) !== "ENOENT") throw error;
    }
  }
  return null;
}

/**
 * Asks for the end of a run: its shim looks for the mark before it starts anything, and while the
 * command runs. Works with or without a daemon, and on a full disk.
 *
 * @returns false when the run directory is not there
 * @throws the system error when the mark cannot be left
 */
export function markCancel(run: string, root = "."): boolean {
  const dir = runDir(run, root);
  const path = `${dir}/${RUN_FILES.cancel}`;
  try {
    Deno.openSync(path, { write: true, createNew: true, mode: 0o600 }).close();
    return true;
  } catch (error) {
    const code = errorCode(error);
    if (code === "EEXIST") return true;
    if (code === "ENOENT") return false;
    if (code !== "ENOSPC" && code !== "EDQUOT") throw error;
    // A second name for a file that is already there needs no space. Only its presence counts.
    const name = orderName(dir);
    if (name === null) throw error;
    Deno.linkSync(`${dir}/${name}`, path);
    return true;
  }
}

/**
 * True while a shim holds the run's lock. Not to be asked about a run whose shim is the caller's
 * own living child: that one says when it is done.
 *
 * @throws the system error of a directory that is there and cannot be opened
 */
export function runLocked(run: string, root = "."): boolean {
  try {
    using handle = Deno.openSync(runDir(run, root), { read: true });
    return !handle.tryLockSync(false);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return false;
    throw error;
  }
}

/**
 * The order that a shim has taken, or null when none was taken or its text is not one.
 *
 * @throws the system error of a file that is there and cannot be read
 */
export function readTaken(run: string, root = "."): Order | null {
  try {
    const bytes = readBounded(`${runDir(run, root)}/${RUN_FILES.taken}`, ORDER_BYTES_MAX);
    return bytes === null ? null : parseOrder(bytes, run);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
}

function removeFile(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
}

/** Files of a run directory, with the one that a spending command may leave. */
const OWN_FILES: ReadonlySet<string> = new Set([...Object.values(RUN_FILES), "spend"]);

/**
 * Removes a run directory and the files that belong in it. Anything else in it stays, and so does
 * then the directory.
 *
 * @returns true when the directory is gone
 * @throws the system error of a known file that cannot be removed
 */
export function removeRun(run: string, root = "."): boolean {
  const dir = runDir(run, root);
  try {
    // Listed first, since few of them are there and a removal that finds nothing is dear.
    for (const { name } of Deno.readDirSync(dir)) {
      if (OWN_FILES.has(name) || parseExitName(name) !== null) removeFile(`${dir}/${name}`);
    }
    Deno.removeSync(dir);
    return true;
  } catch (error) {
    const code = errorCode(error);
    if (code === "ENOENT") return true;
    if (code === "ENOTEMPTY") return false;
    throw error;
  }
}
