/**
 * The kill switch: a file in `state/` whose presence is the switch, `KILL` for everybody or
 * `KILL.<agent>` for one agent. Raising and lowering it needs neither lock nor ledger, so it works
 * when nothing else does.
 *
 * 1. Anything but "not there" counts as up: what cannot be seen down is up.
 * 2. It is raised before anything is recorded, and lowered after that was recorded: whatever fails
 *    in between leaves it up.
 * 3. What the file says is for people. Nobody decides by it.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { isId, printable } from "../names.ts";
import { Unchanged } from "./unchanged.ts";

/** Longest text of a switch that is read, bytes. */
const MAX_TEXT = 2048;
/** Longest reason, characters. */
export const MAX_REASON = 500;

/**
 * The name of a switch: `KILL`, or an agent's own.
 *
 * @throws {RangeError} when `agent` is no agent's name
 */
export function switchName(agent: string | null): string {
  if (agent === null) return "KILL";
  if (!isId(agent)) throw new RangeError("Cannot name kill switch: not an agent's name");
  return `KILL.${agent}`;
}

/** The agent of a switch: null for everybody's, undefined when the name is none. */
export function switchAgent(name: string): string | null | undefined {
  if (name === "KILL") return null;
  const agent = name.startsWith("KILL.") ? name.slice(5) : "";
  return isId(agent) ? agent : undefined;
}

/** False only when nothing is there. */
export function isRaised(name: string): boolean {
  try {
    Deno.lstatSync(`state/${name}`);
    return true;
  } catch (error) {
    return errorCode(error) !== "ENOENT";
  }
}

/**
 * Looks at switches that are down as a rule, by one look at the directory that they lie in: as long as
 * nothing came or went there, one that was seen down is down. To find that a file is not there costs
 * several times as much. Whatever the directory's time of change cannot prove is looked at itself, and
 * all of them are once a second while anything happens: somebody may have set that time.
 */
export class SwitchDir {
  readonly #state: Unchanged;
  readonly #down = new Set<string>();

  /** @param now wall clock, milliseconds */
  constructor(now: () => number) {
    this.#state = new Unchanged("state", now);
  }

  /** What was seen is looked at again. */
  forget(): void {
    this.#down.clear();
  }

  /** The first of these switches that is up, or null. */
  raised(names: readonly string[]): string | null {
    if (!this.#state.look()) this.#down.clear();
    for (const name of names) {
      if (this.#down.has(name)) continue;
      if (isRaised(name)) return name;
      this.#down.add(name);
    }
    return null;
  }
}

/**
 * Raises a switch. One that is up stays as it is.
 *
 * @param text why and by whom, for people
 * @returns false when it was up before
 * @throws the system error when it cannot be raised
 */
export function raiseSwitch(name: string, text: string): boolean {
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(`state/${name}`, { write: true, createNew: true, mode: 0o600 });
  } catch (error) {
    if (errorCode(error) === "EEXIST") return false;
    throw error;
  }
  try {
    file.writeSync(new TextEncoder().encode(`${printable(text, MAX_REASON)}\n`));
    file.syncSync();
  } catch {
    // It is up; a full disk takes the words only.
  } finally {
    file.close();
  }
  return true;
}

/**
 * Lowers a switch.
 *
 * @returns false when it was not up
 * @throws the system error when it cannot be lowered
 */
export function lowerSwitch(name: string): boolean {
  try {
    Deno.removeSync(`state/${name}`);
    return true;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return false;
    throw error;
  }
}

/** What the file of a switch says, one line in printable ASCII; "" when it says nothing. */
export function switchText(name: string): string {
  try {
    const path = `state/${name}`;
    if (!Deno.lstatSync(path).isFile) return "";
    using file = Deno.openSync(path, { read: true });
    const buffer = new Uint8Array(MAX_TEXT);
    const n = file.readSync(buffer) ?? 0;
    const [line = ""] = new TextDecoder().decode(buffer.subarray(0, n)).split("\n");
    // It was escaped when it was written; whoever else wrote it is escaped here.
    return line.replace(/[^\x20-\x7e]/g, (c) => printable(c)).slice(0, MAX_REASON);
  } catch {
    return "";
  }
}

/** Every switch that is up, sorted. */
export function raisedSwitches(): string[] {
  const names: string[] = [];
  for (const entry of Deno.readDirSync("state")) {
    if (switchAgent(entry.name) !== undefined) names.push(entry.name);
  }
  return names.sort();
}
