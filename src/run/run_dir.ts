/**
 * Where a run lives on disk, and the facts that both sides need to resolve its command to the same
 * bytes. Paths are relative to the root; every function takes the root's own path as its last
 * parameter, which the running program leaves at `.` and tests set.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { isRun } from "../names.ts";

/** Directory below the root that holds one directory a run. */
export const RUNS = "state/runs";

/** Directory below the root that holds every policy that was trusted, by digest. */
export const POLICIES = "state/policies";

/** A path below the root; with the root at `.` it stays plainly relative. */
export function below(root: string, path: string): string {
  return root === "." ? path : `${root}/${path}`;
}

/**
 * The directory of a run.
 *
 * @throws {RangeError} when `run` is not a run id, so that no other text ever becomes a path
 */
export function runDir(run: string, root = "."): string {
  if (!isRun(run)) throw new RangeError("Cannot name run directory: not a run id");
  return below(root, `${RUNS}/${run}`);
}

/**
 * Makes a directory for one run. Where the one that holds them all was removed, that one is made
 * again: what ran in it is lost and told so, and need not keep everything else from starting.
 *
 * @param dir path of the directory
 * @param holder path of the directory that holds it
 * @throws the system error when `dir` exists or cannot be made
 */
export function makeRunDir(dir: string, holder: string): void {
  try {
    Deno.mkdirSync(dir, { mode: 0o700 });
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
    Deno.mkdirSync(holder, { mode: 0o700 });
    Deno.mkdirSync(dir, { mode: 0o700 });
  }
}

/** What resolving a verb's command needs to know besides verb and arguments. */
export interface ResolveContext {
  readonly id: string;
  readonly idempotency_key: string;
  /** Absolute path of the root. */
  readonly root: string;
  readonly max_spend: number | null;
  /** Absolute path of the run directory. */
  readonly run_dir: string;
}

/**
 * The context in which daemon and shim resolve the command of one order. Both must call this:
 * their digests of the resolved command are equal only when the context is.
 *
 * @param root absolute path of the root, `Deno.cwd()` in the running program
 */
export function resolveContext(
  order: {
    readonly run: string;
    readonly id: string;
    readonly idempotency_key: string;
    readonly max_spend: number | null;
  },
  root: string,
): ResolveContext {
  return {
    id: order.id,
    idempotency_key: order.idempotency_key,
    root,
    max_spend: order.max_spend,
    run_dir: runDir(order.run, root),
  };
}
