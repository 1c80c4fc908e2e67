/**
 * Messages of running commands. The command of a verb with `"messages": true` is given a directory
 * in `CHB_MESSAGES`: what it puts there as `NAME.json` goes to the agent that asked for the run, and
 * the agent's reply appears beside it as `NAME.reply`. How long it waits for one is its own affair,
 * and stands in the message, so that the agent knows.
 *
 * 1. The directory is the host's, outside of every mount. What a command writes is bounded and
 *    checked all the same, and masked like its output.
 * 2. A message and its name are committed before its file is removed: after a crash it is neither
 *    lost nor told twice.
 * 3. A reply is written whole under another name and renamed: a command that sees it sees all of it.
 * 4. When the run has ended nobody waits any more: open questions are closed, the files removed.
 * 5. A directory that is none any more, a link above all, is removed and never looked into: what it
 *    leads to is nobody's message. What a command left that cannot be removed holds up no other run,
 *    and no other message: a directory that is not empty is moved out of the way, never entered.
 * 6. Where no command has messages, nothing here touches the disk.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { isId, isRun, randomHex } from "../names.ts";
import { readPlain } from "../run/read_plain.ts";
import { look } from "../spool/look.ts";
import type { Log } from "./log.ts";
import { MESSAGE_BYTES, messageText, publishMessage } from "./messages.ts";

/** Where the directories are, one a run. */
export const MESSAGES_DIR = "state/messages";

/** False when nothing runs that has a directory, and the last look found none. */
let mayBeThere = true;

/** Where directories are moved that a command filled, and that are a human's to remove. */
const LEFT_DIR = `${MESSAGES_DIR}/.left`;

/** Largest file of a command, bytes. */
const FILE_BYTES = 16 * 1024;
/** Messages of one run, at most; names that one look takes in. */
const RUN_MAX = 100;
const LOOK_MAX = 200;

/** Longest wait for an answer, seconds. */
const WAIT_MAX_S = 604_800;

/** What this module asks of the daemon. */
export interface RunMessagesDeps {
  readonly ledger: Ledger;
  readonly log: Log;
  readonly now: () => number;
  /** The running commands by run. */
  readonly active: () => ReadonlyMap<string, { agent: string; id: string; finished: boolean }>;
  /** A text with every known secret masked. */
  readonly mask: (text: string) => string;
}

/**
 * Makes the directory of a run that is about to start.
 *
 * @throws a system error; then the run must not start
 */
export function makeMessages(run: string): void {
  mayBeThere = true;
  Deno.mkdirSync(`${MESSAGES_DIR}/${run}`, { recursive: true, mode: 0o700 });
}

interface Wanted {
  readonly text: string;
  readonly ask: boolean;
  readonly wait_s: number | null;
}

/** A command's file, or what is wrong with it. */
function parseWanted(text: string): Wanted | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "it is no JSON";
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "it is no object";
  const { text: words, ask = false, wait_s = null, ...others } = value as Record<string, unknown>;
  const [other] = Object.keys(others);
  if (other !== undefined) return "it has members besides text, ask and wait_s";
  if (typeof words !== "string" || words === "") return "text is no text";
  if (new TextEncoder().encode(words).length > MESSAGE_BYTES) return "text is too long";
  if (typeof ask !== "boolean") return "ask is not true or false";
  if (wait_s === null) return { text: words, ask, wait_s };
  if (typeof wait_s !== "number" || !(wait_s > 0 && wait_s <= WAIT_MAX_S)) {
    return "wait_s is no number of seconds";
  }
  return { text: words, ask, wait_s };
}

/** Names in a directory, at most `LOOK_MAX`; null when it is not there. */
function names(directory: string): string[] | null {
  const found: string[] = [];
  try {
    for (const { name } of Deno.readDirSync(directory)) {
      found.push(name);
      if (found.length >= LOOK_MAX) break;
    }
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
  return found;
}

/** True when a directory could not be removed because something is in it. */
function isFull(error: unknown): boolean {
  const code = errorCode(error);
  return code === "ENOTEMPTY" || code === "EEXIST";
}

/**
 * Removes a file or an empty directory; a full one is moved out of the way, never entered.
 *
 * @returns false when it was moved
 */
function remove(path: string, aside: string): boolean {
  try {
    Deno.removeSync(path);
    return true;
  } catch (error) {
    if (!isFull(error)) throw error;
  }
  if (aside.startsWith(`${LEFT_DIR}/`)) Deno.mkdirSync(LEFT_DIR, { recursive: true, mode: 0o700 });
  Deno.renameSync(path, aside);
  return false;
}

function writeWhole(directory: string, name: string, text: string): void {
  const temporary = `${directory}/.${name}.tmp`;
  try {
    Deno.removeSync(temporary);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
  Deno.writeTextFileSync(temporary, text, { createNew: true, mode: 0o600 });
  Deno.renameSync(temporary, `${directory}/${name}`);
}

export class RunMessages {
  readonly #deps: RunMessagesDeps;

  constructor(deps: RunMessagesDeps) {
    this.#deps = deps;
  }

  /** Takes new messages, hands replies over, and clears up behind runs that have ended. */
  pump(): void {
    if (!mayBeThere) return;
    const active = this.#deps.active();
    const there = names(MESSAGES_DIR) ?? [];
    // What runs may put something in the place of its directory at any time.
    mayBeThere = active.size > 0 || there.length >= LOOK_MAX || there.some(isRun);
    const runs = there.length < LOOK_MAX ? there : new Set([...active.keys(), ...there]);
    for (const run of runs) {
      if (!isRun(run)) continue;
      const running = active.get(run);
      try {
        const kind = look(`${MESSAGES_DIR}/${run}`)?.kind;
        if (kind === undefined) continue;
        if (kind !== "directory") {
          this.#deps.log("WARN", "run-messages", { run, error: "replaced" });
          Deno.removeSync(`${MESSAGES_DIR}/${run}`);
        } else if (running !== undefined && !running.finished) this.#serve(run, running);
        else this.#end(run, running);
      } catch (error) {
        this.#deps.log("WARN", "run-messages", { run, error: errorCode(error) ?? String(error) });
      }
    }
  }

  #serve(run: string, running: { agent: string; id: string }): void {
    const directory = `${MESSAGES_DIR}/${run}`;
    const stored = new Map(this.#deps.ledger.runMessages(run).map((m) => [m.name, m]));
    const there = names(directory) ?? [];
    let sent = stored.size;
    for (const file of there.filter((name) => name.endsWith(".json")).sort()) {
      const name = file.slice(0, -".json".length);
      if (!isId(name)) continue;
      if (!stored.has(name)) {
        const wrong = sent >= RUN_MAX
          ? `a run sends at most ${RUN_MAX} messages`
          : this.#take(run, running, name);
        if (wrong === null) sent++;
        else writeWhole(directory, `${name}.error`, `${wrong}\n`);
      }
      remove(`${directory}/${file}`, `${directory}/.${randomHex(8)}`);
    }
    for (const [name, { reply }] of stored) {
      if (name === null || reply === null || there.includes(`${name}.reply`)) continue;
      writeWhole(directory, `${name}.reply`, `${reply}\n`);
    }
  }

  /** @returns what is wrong with the file, or null */
  #take(run: string, running: { agent: string; id: string }, name: string): string | null {
    const { ledger, now, mask } = this.#deps;
    const path = `${MESSAGES_DIR}/${run}/${name}.json`;
    const seen = look(path);
    if (seen?.kind !== "file") return "it is no plain file";
    if (seen.size > FILE_BYTES) return `it is larger than ${FILE_BYTES} bytes`;
    const bytes = readPlain(path, FILE_BYTES);
    if (bytes === null) return "it is no plain file";
    const wanted = parseWanted(new TextDecoder().decode(bytes));
    if (typeof wanted === "string") return wanted;
    const at_ms = now();
    const message = ledger.transaction((tx) => {
      const told = tx.tell({
        agent: running.agent,
        at_ms,
        sender: `the command of request ${running.id}`,
        text: messageText(mask(wanted.text)),
        ask: wanted.ask,
        reply_by_ms: wanted.wait_s === null ? null : at_ms + Math.round(wanted.wait_s * 1000),
        run,
        name,
      });
      tx.append({ event: "told", agent: running.agent, id: running.id, n: told.n, ask: told.ask });
      return told;
    });
    publishMessage(message);
    return null;
  }

  #end(run: string, running: { agent: string; id: string } | undefined): void {
    const directory = `${MESSAGES_DIR}/${run}`;
    // The last words of a command that has just ended still count.
    if (running !== undefined) this.#serve(run, running);
    const { ledger, now } = this.#deps;
    const open = ledger.runMessages(run).some((m) =>
      m.ask && m.reply === null && (m.reply_by_ms === null || m.reply_by_ms > now())
    );
    if (open) {
      for (const m of ledger.transaction((tx) => tx.closeQuestions(run, now()))) publishMessage(m);
    }
    for (const name of names(directory) ?? []) {
      try {
        Deno.removeSync(`${directory}/${name}`);
      } catch (error) {
        if (errorCode(error) !== "ENOENT" && !isFull(error)) throw error;
      }
    }
    if (remove(directory, `${LEFT_DIR}/${run}`)) return;
    this.#deps.log("WARN", "run-messages-left", {
      run,
      message: `its command left a directory that is not empty: ${LEFT_DIR}/${run}`,
    });
  }
}
