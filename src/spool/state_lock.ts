/**
 * The lock that makes one process the only one to serve a root or to change its ledger.
 *
 * It is an flock on the directory `state/` itself, so that nobody can take a second one by removing
 * or renaming a lock file. It dies with the process, however that ends, and children do not get it.
 *
 * Who only wants to know whether somebody has it looks with a shared one, let go at once: lookers do
 * not take each other for a daemon. For that moment it stands in the way of who takes the lock, so
 * whoever needs it tries more than once.
 *
 * @module
 */

/** How often the lock is tried again, and the pause before each, milliseconds. */
const TRIES = 20;
const PAUSE_MS = 50;

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

/** The same, tried again for a second: somebody may only look, or be done in a moment. */
export async function lockStateSoon(): Promise<StateLock | null> {
  for (let tries = 0;; tries++) {
    const lock = lockState();
    if (lock !== null || tries === TRIES) return lock;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/**
 * True while another process has the lock. Read permission on `./state`.
 *
 * @throws a system error when `state/` cannot be opened
 */
export function stateHeld(): boolean {
  using directory = Deno.openSync("state", { read: true });
  return !directory.tryLockSync(false);
}
