/**
 * Whether a daemon serves, and how it says that it fares. The lock decides whether there is one; the
 * status files, which no sandbox can write, say the rest.
 *
 * @module
 */
import { BUILD } from "#build";
import { errorCode } from "../errors.ts";
import { printable } from "../names.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { raisedSwitches, switchAgent, switchText } from "../daemon/kill_switch.ts";
import { ENDED, STATUS_EVERY_S } from "../daemon/status.ts";
import { storedPins } from "../daemon/stored_pins.ts";
import { beatOf, RUN_BEAT_MS } from "../run/beat.ts";
import { readTaken, runLocked } from "../run/order_file.ts";
import { comparePins } from "../spool/pins.ts";
import type { Finding } from "../spool/types.ts";
import { found } from "./exam.ts";

/** Seconds without a new status after which a daemon counts as silent. */
const SILENT_S = 3 * STATUS_EVERY_S;
/** Largest status file that is read, bytes. */
const MAX_STATUS = 1024 * 1024;
/** Milliseconds that the newest record may lie ahead of the clock. */
const CLOCK_MS = 60_000;
/** Runs whose beat is looked at where no daemon does it, at most. */
const MAX_RUNS = 200;
/** How a daemon is started anew, in words: a command would depend on how it was started. */
const RESTART = "end ./bin/chb serve and start it again, or restart the service";

/** What of a status file matters here; anything else in it is nobody's word. */
interface Status {
  readonly at: number;
  readonly state: string;
  readonly why: string;
  readonly watch: string;
  readonly stuck: readonly string[];
  readonly stuckCount: number;
}

function object(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? value as Record<string, unknown> : {};
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The status that the daemon wrote for an agent, or null when there is none. */
function readStatus(agent: string): Status | null {
  const path = `spool/${agent}/inbox/status.json`;
  let bytes: Uint8Array;
  try {
    const { size, isFile } = Deno.lstatSync(path);
    if (!isFile || size > MAX_STATUS) throw new TypeError(`${path} is no status file`);
    bytes = Deno.readFileSync(path);
  } catch (error) {
    // A place of an agent that is no directory is a finding of the layout.
    if (["ENOENT", "ENOTDIR"].includes(errorCode(error) ?? "")) return null;
    throw error;
  }
  const raw = object(JSON.parse(new TextDecoder().decode(bytes)));
  const stuck = object(raw["stuck"]);
  const commands = Array.isArray(stuck["commands"]) ? stuck["commands"] : [];
  return {
    at: Date.parse(text(raw["at"])),
    state: text(raw["state"]),
    why: printable(text(raw["why"]), 300),
    watch: printable(text(raw["watch"]), 40),
    stuck: commands.map(text).filter((command) => command !== ""),
    stuckCount: Number(stuck["count"] ?? 0),
  };
}

/** Why the last daemon gave up, as it told these agents, or "": ": " and its words. */
function lastWords(agents: readonly string[]): string {
  for (const agent of agents) {
    let status: Status | null;
    try {
      status = readStatus(agent);
    } catch {
      // What is wrong with the place of an agent is another finding.
      continue;
    }
    if (status?.state === "stopped" && status.why.startsWith(ENDED)) return `: ${status.why}`;
  }
  return "";
}

/**
 * Whether somebody serves.
 *
 * @param serving somebody holds the lock on `state/`
 * @param agents whose status tells how the last service ended
 */
export function examDaemon(serving: boolean, agents: readonly string[]): Finding[] {
  if (!serving) {
    const message = `No daemon serves here${lastWords(agents)}`;
    return [found("warning", "not-serving", "state", message, "./bin/chb serve")];
  }
  const facts = object(JSON.parse(Deno.readTextFileSync("state/daemon.json")));
  const findings: Finding[] = [];
  const version = text(facts["version"]);
  if (version !== "" && version !== BUILD.version) {
    const message = `The daemon is version ${printable(version, 40)}, bin/chb ${BUILD.version}: ` +
      RESTART;
    findings.push(found("warning", "other-version", "state/daemon.json", message));
  }
  const waiting = Array.isArray(facts["waiting"]) ? facts["waiting"] : [];
  for (const program of waiting) {
    const message = `The daemon may run it only after its next start: ${RESTART}`;
    findings.push(found("warning", "restart-due", text(program), message));
  }
  const still = Array.isArray(facts["still"]) ? facts["still"] : [];
  for (const one of still) {
    const { pid, agent, id } = object(one);
    const runs = text(id) === "" ? "" : `${text(agent)}/${text(id)}`;
    findings.push(standsStill(typeof pid === "number" ? pid : null, runs));
  }
  return findings;
}

/** What lets a process go on that was stopped, or "" where it is not known which. */
function goOn(pid: unknown): string {
  return typeof pid === "number" && Number.isSafeInteger(pid) && pid > 1 ? `kill -CONT ${pid}` : "";
}

/** The daemon's process, as far as it told. */
function daemonPid(): unknown {
  try {
    return object(JSON.parse(Deno.readTextFileSync("state/daemon.json")))["pid"];
  } catch {
    return null;
  }
}

function isOld({ at }: Status, now: number): boolean {
  return !(now - at <= SILENT_S * 1000);
}

/** Seconds for which a serving daemon has told these agents nothing, at least; null when it tells. */
export function silentFor(agents: readonly string[], now: number): number | null {
  const told = agents.flatMap((agent) => {
    try {
      return readStatus(agent) ?? [];
    } catch {
      // What is wrong with the place of an agent is for doctor to say.
      return [];
    }
  });
  return told.length > 0 && told.every((one) => isOld(one, now)) ? SILENT_S : null;
}

/** A shim that stands still, and what lets it go on. */
function standsStill(pid: number | null, runs: string): Finding {
  const who = pid === null ? "A process of the bridge" : `Process ${pid} of the bridge`;
  const what = runs === "" ? "" : `, which runs ${printable(runs, 200)},`;
  const message =
    `${who}${what} has stood still for some seconds: it was stopped, or this machine has ` +
    "no time for it. Nothing ends its command in time meanwhile";
  return found("warning", "stands-still", runs === "" ? "state/runs" : runs, message, goOn(pid));
}

/**
 * Runs that outlived their daemon and stand still. While a daemon serves it knows better; here each
 * is looked at twice, with a pause only when there is one to look at.
 */
export function examRuns(ledger: Ledger): Finding[] {
  const seen = ledger.unfinished().flatMap(({ agent, id, state, run: first, lookup }) => {
    const run = lookup ?? first;
    if (state !== "running" || run === null || !runLocked(run)) return [];
    return [{ run, runs: `${agent}/${id}`, beat: beatOf(run) }];
  }).slice(0, MAX_RUNS);
  if (seen.length === 0) return [];
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4 * RUN_BEAT_MS);
  return seen.filter(({ run, beat }) => beat !== null && beatOf(run) === beat && runLocked(run))
    .map(({ run, runs }) => standsStill(readTaken(run)?.pgid ?? null, runs));
}

/** How one agent is served. */
export function examAgent(agent: string, ledger: Ledger | null, now: number): Finding[] {
  const findings: Finding[] = [];
  const status = readStatus(agent);
  const path = `spool/${agent}`;
  if (status === null) {
    const message =
      "It is not served: the daemon wrote no status for it. When nothing else is wrong: " + RESTART;
    return [found("warning", "not-served", path, message, "")];
  }
  if (isOld(status, now)) {
    const mend = goOn(daemonPid());
    const message = `The daemon holds the lock and wrote no status for ${SILENT_S} s. ` +
      (mend === "" ? "Look" : "Where it was stopped, this lets it go on; else look") +
      ` at its log, then ${RESTART}`;
    findings.push(found("error", "silent", `${path}/inbox/status.json`, message, mend));
  }
  if (status.state === "degraded") {
    findings.push(found("error", "degraded", path, status.why));
  }
  if (status.stuckCount > 0) {
    const message = `${status.stuckCount} entries cannot be moved out of its directories`;
    findings.push(found("warning", "stuck", path, message, status.stuck.join(" && ")));
  }
  if (status.watch.startsWith("poll")) {
    const message =
      `No change events arrive (${status.watch}): it is looked at four times a second. Nothing has ` +
      "to be done, it only takes more of a processor";
    findings.push(found("note", "polling", path, message));
  }
  const pins = ledger === null ? null : storedPins(ledger, agent);
  const replaced = pins === null ? null : comparePins(pins, agent);
  if (replaced !== null) {
    const message = `${replaced}/ was replaced: the agent is not served until the daemon starts ` +
      `again: ${RESTART}; then restart the sandbox`;
    findings.push(found("error", "replaced", path, message));
  }
  return findings;
}

/** Kill switches that are up: somebody wanted it so, and should know that it is so. */
export function examSwitches(): Finding[] {
  return raisedSwitches().map((name) => {
    const agent = switchAgent(name);
    const why = switchText(name);
    const message = `It is up, nothing ${name === "KILL" ? "" : "of this agent "}starts` +
      (why === "" ? "" : `: ${why}`);
    const mend = `./bin/chb resume${typeof agent === "string" ? ` --agent ${agent}` : ""}`;
    return found("warning", "killed", `state/${name}`, message, mend);
  });
}

/** A clock that went back: ages and rates count by it. */
export function examClock(ledger: Ledger, now: number): Finding[] {
  const head = ledger.head();
  const [last] = head === null ? [] : ledger.records(head.seq, 1);
  if (last === undefined) return [];
  const at = Date.parse(text(object(JSON.parse(last.line))["at"]));
  if (!(at - now > CLOCK_MS)) return [];
  const message =
    `The clock is ${Math.round((at - now) / 1000)} s behind the newest audit record: ` +
    "set it right";
  return [found("warning", "clock", "state/ledger.db", message)];
}
