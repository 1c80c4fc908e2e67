/**
 * Holds the directories of the root against what they must be, before anything is served. Every
 * finding at once, each with the command that mends it, to be run in the root.
 *
 * Rules
 * 1. Nothing is followed and nothing changed: every judgement comes from `lstat`, and what lies below
 *    something that is no real directory counts as missing, because that is what it will be once
 *    the finding above it is mended.
 * 2. What holds authority (binary, policy, base, keys, state) belongs to root or the daemon's user,
 *    and nobody else can write it (X5, X9).
 * 3. A role directory is a directory of the daemon's user with exactly its mode; a symlink in its
 *    place would lead claims and publications elsewhere (P3).
 * 4. `claims/` is on the file system of `queue/`, and `staging/` on that of `results/`: both depend on
 *    a rename, and nothing is ever copied instead (P20).
 *
 * The root and what is above it cannot be seen with the daemon's permissions; the launcher and the
 * init script look there.
 *
 * @module
 */
import { readdirSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { printable } from "../names.ts";
import type { AgentPolicy } from "../policy/policy.ts";
import { agentPaths } from "./agent_paths.ts";
import { daemonUid } from "./daemon_uid.ts";
import { look } from "./look.ts";
import { QUEUE_DROP, QUEUE_GROUP, QUEUE_OWN, queueMode } from "./queue_mode.ts";
import { shellWord } from "./shell_word.ts";
import type { Finding, Look } from "./types.ts";

/** What the check must be told. */
export interface LayoutOptions {
  /** The policy of an agent; null accepts each of the modes that a queue can have. */
  readonly queueMode: (agent: string) => AgentPolicy | null;
  /** First names below `base/` that policies name; absent or null when that is all, or not known. */
  readonly baseNames?: ReadonlySet<string> | null;
}

/** Entries of `base/` that are looked at; a tree beyond that is a finding itself. */
const MAX_BASE_ENTRIES = 10_000;
/** Entries below one name of `base/` that are counted, and names that one command moves away. */
const MAX_COUNTED = 200_000;
const AWAY_NAMES = 20;

/** What one path must be. */
interface Wanted {
  readonly kind: "file" | "directory";
  readonly owners: readonly number[];
  /** Exactly one of these modes, or null for "not writable for group and others". */
  readonly modes: readonly number[] | null;
  /** Missing is no finding. */
  readonly optional?: true;
}

/**
 * Checks the directories of the root and of these agents. Read permission on `./bin`,
 * `./bridge.jsonc`, `./base`, `./keys`, `./spool`, `./work`, `./state`; write permission on `./state`.
 */
export function checkLayout(agents: readonly string[], options: LayoutOptions): Finding[] {
  const findings: Finding[] = [];
  // Without a file in state/ nobody knows whose process this is; all else is judged all the same.
  let own: number[] = [];
  const state = found("state");
  if ("kind" in state && state.kind === "directory") {
    try {
      own = [daemonUid()];
    } catch (error) {
      findings.push(...notWritable(errorCode(error) ?? "unknown error", state.mode));
    }
  }
  const [uid] = own;
  const trusted = uid === undefined ? [] : [...new Set([0, uid])];
  const shut = { kind: "directory", owners: own, modes: [0o700] } as const;
  findings.push(
    ...judge("bin", { kind: "directory", owners: trusted, modes: null }),
    ...judge("bin/chb", { kind: "file", owners: trusted, modes: null }),
    ...judge("bridge.jsonc", { kind: "file", owners: trusted, modes: null, optional: true }),
    ...judge("state", shut),
    ...STATE_ROOMS.flatMap((room) =>
      judge(`state/${room}`, {
        ...shut,
        // A group that ships the audit log elsewhere may read it.
        modes: room === "audit" ? [0o700, 0o750] : [0o700],
        optional: true,
      })
    ),
    ...judge("work", shut),
    ...judge("spool", { kind: "directory", owners: own, modes: null }),
    ...judge("keys", { ...shut, optional: true }),
    ...judgeKeys(own),
    ...judgeBase(trusted, options.baseNames ?? null),
  );
  for (const agent of agents) findings.push(...judgeAgent(agent, own, options.queueMode(agent)));
  return findings;
}

/** Directories in `state/` that every start makes if they are missing. */
export const STATE_ROOMS = Object.freeze(["policies", "runs", "control", "audit"] as const);

/** Why no file can be made in `state/`; nothing when the finding about its mode says it. */
function notWritable(code: string, mode: number): Finding[] {
  const refused = code === "EACCES" || code === "EPERM";
  if (refused && (mode & 0o700) !== 0o700) return [];
  const { why, mend } = noRoom("state", code);
  return [finding("not-writable", "state", `takes no new file (${code}): ${why}`, mend)];
}

/**
 * Why a directory takes no new file, and the command that makes it take one. Without space none is
 * given: what may go from a disk is not for a program to say.
 *
 * @param directory a plain name
 */
export function noRoom(directory: string, code: string): { why: string; mend: string } {
  switch (code) {
    case "EACCES":
      return { why: "it belongs to another user", mend: `sudo chown "$(id -u)" -- ${directory}` };
    case "EPERM":
      return { why: "it is marked as never to be changed", mend: `sudo chattr -i -- ${directory}` };
    case "EROFS":
      return {
        why:
          "its file system is read-only. Where it became so by itself, look at the disk first: dmesg",
        mend: `sudo mount -o remount,rw -- "$(df --output=target -- ${directory} | tail -n 1)"`,
      };
    case "ENOSPC":
    case "EDQUOT":
      return {
        why:
          "there is no space, or there are no names left. Only a person knows what may go: look with " +
          `df -h ${directory} and df -i ${directory}`,
        mend: "",
      };
    default:
      return { why: "no command mends a disk that fails: look at it with dmesg", mend: "" };
  }
}

/** @param own the daemon's user, or nobody when that is not known */
function judgeAgent(agent: string, own: readonly number[], policy: AgentPolicy | null): Finding[] {
  const paths = agentPaths(agent);
  const [uid] = own;
  const queue = policy === null || uid === undefined
    ? [QUEUE_OWN, QUEUE_GROUP, QUEUE_DROP]
    : [queueMode(policy, uid)];
  const shown = { kind: "directory", owners: own, modes: [0o755] } as const;
  const shut = { kind: "directory", owners: own, modes: [0o700] } as const;
  const findings = [
    ...judge(`spool/${agent}`, { kind: "directory", owners: own, modes: null }),
    ...judge(paths.queue, { kind: "directory", owners: own, modes: queue }),
    ...judge(paths.results, shown),
    ...judge(paths.inbox, shown),
    ...judge(`work/${agent}`, shut),
    ...judge(paths.claims, shut),
    ...judge(paths.staging, shut),
    ...judge(paths.quarantine, shut),
    ...sameFileSystem(paths.queue, paths.claims),
    ...sameFileSystem(paths.results, paths.staging),
    // Refused notes, messages and kit are renamed out of the same staging directory.
    ...sameFileSystem(paths.inbox, paths.staging),
  ];
  if (policy?.mount === "single" && uid !== undefined && policy.agent_uid === uid) {
    findings.push({
      level: "error",
      check: "single-mount",
      path: `spool/${agent}`,
      message: `A single mount needs a daemon of another user than the agent's ${uid}: ` +
        "inside, its owner could replace the role directories. Mount each directory by itself, or serve as " +
        "another user",
      mend: `./bin/chb mounts`,
    });
  }
  return findings;
}

function judgeKeys(owners: readonly number[]): Finding[] {
  return list("keys").flatMap((name) =>
    judge(`keys/${name}`, { kind: "file", owners, modes: [0o600, 0o400] })
  );
}

/** Files and directories below `base/`, which only humans fill. */
function judgeBase(owners: readonly number[], named: ReadonlySet<string> | null): Finding[] {
  const findings = judge("base", { kind: "directory", owners, modes: null, optional: true });
  const open = ["base"];
  let left = MAX_BASE_ENTRIES;
  for (let directory = open.pop(); directory !== undefined; directory = open.pop()) {
    for (const name of list(directory)) {
      if (left-- <= 0) return [...findings, tooMany(named)];
      const path = `${directory}/${name}`;
      const seen = found(path);
      const kind = "kind" in seen && seen.kind === "directory" ? "directory" : "file";
      findings.push(...judge(path, { kind, owners, modes: null }));
      if (kind === "directory") open.push(path);
    }
  }
  return findings;
}

/** A `base/` with more in it than is looked at, and what takes out of it what no policy names. */
function tooMany(named: ReadonlySet<string> | null): Finding {
  const message = `holds more than ${MAX_BASE_ENTRIES} entries, too many to be looked at: `;
  const say = (what: string, mend: string) => finding("too-many", "base", message + what, mend);
  if (named === null) return say("move away what no verb uses", "");
  const sizes = list("base").map((name) => [name, countEntries(`base/${name}`)] as const);
  let all = 0;
  for (const [, size] of sizes) all += size;
  const spare = sizes.filter(([name, size]) => size > 1 && !named.has(name));
  spare.sort((a, b) => b[1] - a[1]);
  const away: string[] = [];
  for (const [name, size] of spare.slice(0, AWAY_NAMES)) {
    if (all <= MAX_BASE_ENTRIES) break;
    away.push(shellWord(`base/${name}`));
    all -= size;
  }
  const moved = "this moves to base.old/ what the policy does not name";
  if (all <= MAX_BASE_ENTRIES) {
    return say(moved, `mkdir -p base.old && mv -- ${away.join(" ")} base.old/`);
  }
  const rest = sizes.reduce((sum, [name, size]) => named.has(name) ? sum + size : sum, 0);
  if (rest > MAX_BASE_ENTRIES) {
    return say("what the policy names there holds them, so only a person knows what may go", "");
  }
  const but = [...named].map((name) => ` ! -name ${shellWord(name.replace(/[*?[\\]/g, "\\$&"))}`);
  return say(
    moved,
    `mkdir -p base.old && find base -mindepth 1 -maxdepth 1${but.join("")} ` +
      `-exec sh -c 'mv -- "$@" base.old/' sh {} +`,
  );
}

/** An entry and all below it, as far as anybody counts. */
function countEntries(path: string): number {
  const open = [path];
  let count = 1;
  for (let at = open.pop(); at !== undefined && count < MAX_COUNTED; at = open.pop()) {
    const seen = found(at);
    if (!("kind" in seen) || seen.kind !== "directory") continue;
    for (const name of list(at)) {
      count++;
      open.push(`${at}/${name}`);
    }
  }
  return count;
}

/** What is wrong with one path. */
function judge(path: string, wanted: Wanted): Finding[] {
  const seen = found(path);
  if (!("kind" in seen)) {
    if (seen.error === "ENOENT") {
      return wanted.optional === true
        ? []
        : [finding("missing", path, "is missing", make(path, wanted))];
    }
    return [finding("unreadable", path, `cannot be looked at (${seen.error})`, "")];
  }
  const word = shellWord(path);
  if (seen.kind !== wanted.kind) {
    const check = seen.kind === "symlink" ? "symlink" : "wrong-type";
    const is = seen.kind === "symlink" ? "is a symbolic link" : `is no ${wanted.kind}`;
    const away = seen.kind === "symlink"
      ? `rm -- ${word}`
      : `mv -- ${word} ${shellWord(asideOf(path))}`;
    const then = make(path, wanted);
    return [finding(check, path, is, then === "" ? away : `${away} && ${then}`)];
  }
  const findings: Finding[] = [];
  const [owner] = wanted.owners;
  if (owner !== undefined && !wanted.owners.includes(seen.uid)) {
    findings.push(finding(
      "wrong-owner",
      path,
      `belongs to user ${seen.uid} instead of ${wanted.owners.join(" or ")}`,
      `sudo chown ${wanted.owners.at(-1)} -- ${word}`,
    ));
  }
  const mode = wrongMode(seen, wanted);
  if (mode !== null) {
    const chmod = `chmod ${mode.mend} -- ${word}`;
    findings.push(finding("wrong-mode", path, mode.message, chmod));
  }
  return findings;
}

function wrongMode(seen: Look, wanted: Wanted): { message: string; mend: string } | null {
  const has = `has mode ${octal(seen.mode)}`;
  if (wanted.modes === null) {
    if ((seen.mode & 0o022) === 0) return null;
    return { message: `${has}: others can write it`, mend: "go-w" };
  }
  const [first] = wanted.modes;
  if (first === undefined || wanted.modes.includes(seen.mode)) return null;
  return {
    message: `${has} instead of ${wanted.modes.map(octal).join(" or ")}`,
    mend: octal(first),
  };
}

function sameFileSystem(a: string, b: string): Finding[] {
  const [first, second] = [found(a), found(b)];
  // A path that is missing has its own finding.
  if (!("kind" in first) || !("kind" in second) || first.dev === second.dev) return [];
  const mounted = [a, b].find((path) => {
    const parent = found(path.slice(0, path.lastIndexOf("/")));
    const self = found(path);
    return "kind" in parent && "kind" in self && parent.dev !== self.dev;
  });
  return [finding(
    "file-system",
    a,
    `is on another file system than ${b}; entries are moved between them by rename: have both on one`,
    mounted === undefined ? "" : `sudo umount ${shellWord(mounted)}`,
  )];
}

function found(path: string): Look | { readonly error: string } {
  try {
    for (let end = path.indexOf("/"); end > 0; end = path.indexOf("/", end + 1)) {
      if (look(path.slice(0, end))?.kind !== "directory") return { error: "ENOENT" };
    }
    return look(path) ?? { error: "ENOENT" };
  } catch (error) {
    return { error: errorCode(error) ?? "unknown error" };
  }
}

/**
 * Names in a directory of ours; none when it is no real directory or cannot be listed, which `judge`
 * says then.
 */
function list(directory: string): string[] {
  try {
    const seen = found(directory);
    if (!("kind" in seen) || seen.kind !== "directory") return [];
    return readdirSync(directory).sort();
  } catch {
    return [];
  }
}

/** A name for what is moved out of the way. Everything in `keys/` is a key, so it leaves that. */
function asideOf(path: string): string {
  return `${path.startsWith("keys/") ? path.slice("keys/".length) : path}.old`;
}

function make(path: string, wanted: Wanted): string {
  if (wanted.kind !== "directory") return "";
  return `mkdir -m ${octal(wanted.modes?.[0] ?? 0o755)} -- ${shellWord(path)}`;
}

function finding(check: string, path: string, message: string, command: string): Finding {
  const shown = printable(path);
  // A command with control characters in it is none that anybody should paste.
  const mend = /\p{Cc}/u.test(command) ? "" : command;
  return { level: "error", check, path: shown, message: `${shown} ${message}`, mend };
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, "0");
}
