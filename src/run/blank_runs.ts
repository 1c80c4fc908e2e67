/**
 * Run directories that are made while nobody waits, with the files of order and exit record in them.
 * To make a directory and a file is dear on a disk, and none of it depends on what is ordered.
 *
 * 1. A blank is no run. It lies in `state/blank/`, which only the daemon sees, and moves into
 *    `state/runs/` whole, with its order in it, by one rename: before that nothing can be taken
 *    from it, and afterwards it is a run directory like any other.
 * 2. It has the random name of the one run that it is for, and is never used for another (S7).
 * 3. That there is none, or that one cannot be used, is no fault: the order is stored as if there
 *    never had been any.
 * 4. Nothing of an earlier daemon is used; it is removed at the start.
 * 5. The file of its order is kept open, and written only while it has one name.
 *
 * @module
 */
import { isRun, randomHex } from "../names.ts";
import { writeAll } from "./bounded_file.ts";
import { RUN_FILES } from "./order.ts";
import { below, makeRunDir, runDir } from "./run_dir.ts";

/** Directory below the root that holds blanks by the id of their run. */
export const BLANKS = "state/blank";

/** Blanks kept, at most. */
const MAX_BLANKS = 4;

/** A run directory that was made beforehand, for its one run. */
export interface Blank {
  readonly run: string;
  /** The file of its order, without content. Closed by whoever uses or drops the blank. */
  readonly order: Deno.FsFile;
}

/** Files without content in a blank. */
const FILES = [RUN_FILES.order, RUN_FILES.exitTmp] as const;

/** Blanks of this process, each for one run. */
export class BlankRuns {
  readonly #root: string;
  readonly #ready: Blank[] = [];

  /** @param root path of the root; the running program leaves it at `.` */
  constructor(root = ".") {
    this.#root = root;
  }

  /** Blanks that are ready. */
  get size(): number {
    return this.#ready.length;
  }

  /** A blank, which is the caller's from now on; null when none is ready. */
  take(): Blank | null {
    return this.#ready.pop() ?? null;
  }

  /**
   * Makes one when fewer than `count` are ready. Never throws: without space there is none.
   *
   * @returns true when one was made
   */
  make(count: number): boolean {
    if (this.#ready.length >= Math.min(count, MAX_BLANKS)) return false;
    const run = randomHex(16);
    const dir = blankDir(run, this.#root);
    const create = (name: string) =>
      Deno.openSync(`${dir}/${name}`, { write: true, createNew: true, mode: 0o600 });
    try {
      makeRunDir(dir, below(this.#root, BLANKS));
      create(RUN_FILES.exitTmp).close();
      this.#ready.push({ run, order: create(RUN_FILES.order) });
      return true;
    } catch {
      removeBlank(run, this.#root);
      return false;
    }
  }

  /** Removes one that was taken and is not wanted any more; one that was used is left alone. */
  drop({ run, order }: Blank): void {
    close(order);
    removeBlank(run, this.#root);
  }

  /** Removes what is ready, at the end of the service. */
  close(): void {
    for (const blank of this.#ready.splice(0)) this.drop(blank);
  }
}

function blankDir(run: string, root: string): string {
  if (!isRun(run)) throw new RangeError("Cannot name blank: not a run id");
  return below(root, `${BLANKS}/${run}`);
}

/**
 * Writes an order into the blank of its run and makes a run directory of it.
 *
 * @returns false when that was not possible and the blank is gone
 */
export function fillBlank(blank: Blank, bytes: Uint8Array, root = "."): boolean {
  const { run, order } = blank;
  try {
    if (order.statSync().nlink !== 1) throw new Error("Cannot use blank: its order has no name");
    writeAll(order, bytes);
    Deno.renameSync(blankDir(run, root), runDir(run, root));
    return true;
  } catch {
    removeBlank(run, root);
    return false;
  } finally {
    close(order);
  }
}

/** Closes a file; what that says does not matter. A second call does nothing. */
function close(file: Deno.FsFile): void {
  try {
    file.close();
  } catch {
    // It is closed.
  }
}

/** Removes blanks that an earlier daemon left. Only for the holder of the state lock. */
export function sweepBlanks(root = "."): void {
  try {
    for (const { name } of Deno.readDirSync(below(root, BLANKS))) {
      if (isRun(name)) removeBlank(name, root);
    }
  } catch {
    // There are none, or they harm nobody.
  }
}

/** What cannot be removed now is removed at the next start. */
function removeBlank(run: string, root: string): void {
  const dir = blankDir(run, root);
  for (const path of [...FILES.map((name) => `${dir}/${name}`), dir]) {
    try {
      Deno.removeSync(path);
    } catch {
      // It is not there, or stays.
    }
  }
}
