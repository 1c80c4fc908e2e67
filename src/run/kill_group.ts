/**
 * Signals to whole process groups. The runtime signals single processes only, so a helper program
 * does it; the shim uses it on its own group and the daemon as a backstop.
 *
 * 1. The group is always given after `--`: some versions of the helper read `-12345` without it as
 *    an option, use its first digit, and signal every process of the user (X16).
 * 2. No group below 2 and none above the kernel's largest pid is ever named: 0 and 1 mean "mine"
 *    and "everybody", and a number that overflows may wrap into one of them (X16).
 * 3. The helper is one of two fixed absolute paths, run with an empty environment.
 * 4. The helper belongs to the caller's group. When the shim signals its own group the helper dies
 *    of the signal too, and that is success, not failure.
 *
 * Needs permission to run one of `/usr/bin/kill` and `/bin/kill`.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { KILL_PATHS } from "../permissions.ts";

/** Largest pid that Linux can give out. */
export const PGID_MAX = 4_194_304;

/** Signals that are ever sent to a group. `0` only asks whether anything is there. */
export type GroupSignal = "TERM" | "KILL" | "CONT" | "0";

/** What came of signalling a group. */
export type GroupAnswer =
  /** The group was there and has the signal. */
  | "sent"
  /** The helper ran and found no such group. */
  | "none"
  /** The helper could not be run, so nothing is known. */
  | "unknown";

/**
 * The helper's arguments.
 *
 * @param pgid a process group id, 2 to `PGID_MAX`
 * @throws {RangeError} for any other number
 */
export function killArgv(signal: GroupSignal, pgid: number): string[] {
  if (!Number.isSafeInteger(pgid) || pgid < 2 || pgid > PGID_MAX) {
    throw new RangeError(`Cannot signal process group ${pgid}: want 2 to ${PGID_MAX}`);
  }
  return [`-${signal}`, "--", `-${pgid}`];
}

/** True when a path may be run; an unscoped grant allows paths that do not exist as well. */
function usable(path: string): boolean {
  if (Deno.permissions.querySync({ name: "run", command: path }).state !== "granted") return false;
  try {
    return Deno.statSync(path).isFile;
  } catch (error) {
    // Not being allowed to look says nothing about the file; only its absence rules it out.
    return errorCode(error) !== "ENOENT";
  }
}

let helper: string | null = null;

/** Absolute path of the helper: the first fixed path that may be run and is there. */
export function killProgram(): string {
  helper ??= KILL_PATHS.find(usable) ?? KILL_PATHS[0] ?? "/usr/bin/kill";
  return helper;
}

/**
 * Sends one signal to every process of a group.
 *
 * @throws {RangeError} for a group id that must never be signalled
 */
export async function signalGroup(signal: GroupSignal, pgid: number): Promise<GroupAnswer> {
  const args = killArgv(signal, pgid);
  let child: Deno.ChildProcess;
  try {
    child = new Deno.Command(killProgram(), {
      args,
      clearEnv: true,
      cwd: "/",
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
  } catch {
    return "unknown";
  }
  try {
    const status = await child.status;
    return status.success || status.signal === `SIG${signal}` ? "sent" : "none";
  } catch {
    return "unknown";
  }
}

/** How `insist` signals, waits and knows when to stop. */
export interface Insistence {
  readonly signal: "TERM" | "KILL";
  readonly pgid: number;
  /** False once nobody wants the signal any more. */
  readonly wanted: () => boolean;
  /** Called after each attempt that did not reach the group. */
  readonly failed: (answer: GroupAnswer) => void;
  /** For tests; default `signalGroup`. */
  readonly send?: (signal: GroupSignal, pgid: number) => Promise<GroupAnswer>;
}

/**
 * Signals a group, again and again for as long as the helper cannot be run or finds nothing: a
 * command that has used up the user's processes makes it fail at the very moment it is needed.
 * Waits 50 ms after the first failure, twice as long after each further one, at most a second.
 */
export async function insist(how: Insistence): Promise<void> {
  const send = how.send ?? signalGroup;
  for (let wait = 50; how.wanted(); wait = Math.min(wait * 2, 1000)) {
    const answer = await send(how.signal, how.pgid);
    if (answer === "sent") return;
    how.failed(answer);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

/**
 * True while anything, a zombie included, has this process group. When the helper cannot be run
 * the answer is true as well: what cannot be seen is not known to be gone.
 */
export async function groupAlive(pgid: number): Promise<boolean> {
  return await signalGroup("0", pgid) !== "none";
}

/** Sends a signal to a group; true when the group was there and has it. */
export async function killGroup(pgid: number, signal: "TERM" | "KILL" | "CONT"): Promise<boolean> {
  return await signalGroup(signal, pgid) === "sent";
}
