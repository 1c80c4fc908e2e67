/**
 * The lock that makes one process the only one to serve a root or to change its ledger.
 *
 * It is an flock on the directory `state/` itself, so that nobody can take a second one by removing
 * or renaming a lock file. It dies with the process, however that ends, and children do not get it.
 *
 * @module
 */

/** The lock, until it is given back or the process ends. */
export interface StateLock {
  release(): void;
}

/**
 * Takes the lock without waiting. Read permission on `./state`.
 *
 * @returns null when another process has it
 * @throws a system error when `state/` cannot be opened
 */
export function lockState(): StateLock | null {
  const directory = Deno.openSync("state", { read: true });
  let locked = false;
  try {
    locked = directory.tryLockSync(true);
  } finally {
    if (!locked) directory.close();
  }
  if (!locked) return null;
  let held = true;
  return {
    release() {
      if (!held) return;
      held = false;
      directory.close();
    },
  };
}
