/**
 * The last look at the switches that forbid a start: the kill switch of the host, that of the
 * agent, and the run's own cancel mark.
 *
 * A switch is up when its file is there, and also when looking fails in any way but "not there":
 * what cannot be seen down is up. One exception: a program that was built without naming an agent
 * has no grant to see that agent's own switch. There the daemon, which can see it, has looked in
 * the same turn in which it committed the start.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { isId } from "../names.ts";
import { RUN_FILES } from "./order.ts";

/** False only when nothing is there; true for presence and for every failure to look. */
function isUp(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch (error) {
    return errorCode(error) !== "ENOENT";
  }
}

/** Grants only ever get fewer, and what a shim gives up it has given up before it looks. */
const seeable = new Map<string, boolean>();

function maySee(path: string): boolean {
  let may = seeable.get(path);
  if (may === undefined) {
    may = Deno.permissions.querySync({ name: "read", path }).state === "granted";
    if (seeable.size < 1000) seeable.set(path, may);
  }
  return may;
}

/**
 * What forbids a start, or null.
 *
 * @param agent whose request it is; null for a notification, which tells of kill switches too
 */
export function lookBeforeStart(
  dir: string,
  agent: string | null,
): "killed" | "cancelled" | null {
  if (agent !== null) {
    if (!isId(agent) || isUp("state/KILL")) return "killed";
    const own = `state/KILL.${agent}`;
    if (maySee(own) && isUp(own)) return "killed";
  }
  return isUp(`${dir}/${RUN_FILES.cancel}`) ? "cancelled" : null;
}

/** True when the run's cancel mark is there. A failure to look is no mark: work is not killed. */
export function isCancelMarked(dir: string): boolean {
  try {
    Deno.lstatSync(`${dir}/${RUN_FILES.cancel}`);
    return true;
  } catch {
    return false;
  }
}
