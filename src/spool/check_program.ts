/**
 * Whether a program is one that the bridge can run with good conscience, and what identifies it.
 *
 * Rules
 * 1. It must be an ELF file or begin with `#!`. The runtime hands anything else to `/bin/sh`, for
 *    which it has no permission: an empty file would "succeed", and text would run as a script (X8).
 * 2. Nobody but root and the daemon's user can write it (X5).
 * 3. It does not lie where the daemon itself may write: whoever can rename a directory there could
 *    put another program in its place (X9). Judged by the real path.
 *
 * @module
 */
import {
  type BigIntStats,
  closeSync,
  constants,
  lstatSync,
  openSync,
  readSync,
  statSync,
} from "node:fs";
import { errorCode } from "../errors.ts";
import { printable } from "../names.ts";
import type { FileIdentity } from "../policy/policy.ts";
import { daemonUid } from "./daemon_uid.ts";
import { shellWord } from "./shell_word.ts";
import type { Finding } from "./types.ts";

/** Directories of the root that the daemon may write. */
const WRITABLE = ["spool", "work", "state"];

/**
 * Everything that is wrong with a program. Read permission on its path; write permission on `./state`
 * when `uid` is left out.
 *
 * @param path absolute, or `base/…`
 * @param uid the daemon's user; null when it cannot be known, which is a note then
 */
export function checkProgram(path: string, uid: number | null = ownUid()): Finding[] {
  const say = (check: string, message: string, mend: string): Finding => ({
    level: "error",
    check,
    path: printable(path),
    message: `${printable(path)} ${message}`,
    mend,
  });
  const word = shellWord(path);
  let stats: BigIntStats;
  let head: string;
  let room: string | null;
  try {
    room = writableRoom(path);
    const fd = openRegular(path);
    if (fd === null) {
      return [say("program-type", "is no regular file: name the program itself", "")];
    }
    try {
      // Not by the descriptor: the runtime asks there for the path that links lead to, which need not
      // be the granted one (P22).
      stats = statSync(path, { bigint: true });
      head = readHead(fd);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    const code = errorCode(error);
    return code === "ENOENT"
      ? [
        path.startsWith("base/")
          ? say(
            "program-missing",
            "is missing: put the script there, executable and beginning with #!",
            "ls -l -- base/",
          )
          : say(
            "program-missing",
            "is missing: install it, or name the path where it is",
            `command -v ${shellWord(path.slice(path.lastIndexOf("/") + 1))}`,
          ),
      ]
      : [unreadable(path, code, uid, say)];
  }
  const findings: Finding[] = [];
  if (stats.size === 0n) {
    findings.push(say("program-empty", "is empty; it would seem to succeed", `ls -l -- ${word}`));
  } else if (head !== "\x7fELF" && !head.startsWith("#!")) {
    findings.push(
      say("program-format", "is neither an ELF file nor begins with #!", `file -- ${word}`),
    );
  }
  const mode = Number(stats.mode);
  if ((mode & 0o111) === 0) {
    findings.push(say("program-mode", "may not be executed by anybody", `chmod a+x -- ${word}`));
  }
  if ((mode & 0o022) !== 0) {
    findings.push(say("program-writable", "can be written by others", `chmod go-w -- ${word}`));
  }
  const owner = Number(stats.uid);
  if (uid === null) {
    findings.push({
      ...say(
        "program-owner",
        "was not checked for its owner: only the user who owns state/ can",
        "",
      ),
      level: "note",
    });
  } else if (owner !== 0 && owner !== uid) {
    findings.push(say("program-owner", `belongs to user ${owner}`, `sudo chown root -- ${word}`));
  }
  if (room !== null) {
    findings.push(say(
      "program-in-write-grant",
      `lies in ${room}/, where the daemon may write: put a copy into base/ and name that`,
      `cp -- ${word} base/`,
    ));
  }
  return findings;
}

/** Why a program cannot be read, and what makes it readable, where that is the matter of a command. */
function unreadable(
  path: string,
  code: string | undefined,
  uid: number | null,
  say: (check: string, message: string, mend: string) => Finding,
): Finding {
  const tell = (why: string, mend = "") =>
    say("program-unreadable", `cannot be read (${code ?? "no permission"}): ${why}`, mend);
  if (code === "ELOOP") {
    return tell("its links lead in a circle, so it is nowhere: put the program itself there");
  }
  if (code !== "EACCES") return tell("no command mends that: look at its disk, or name another");
  let owner: number;
  try {
    owner = statSync(path).uid;
  } catch {
    const closed = closedAbove(path);
    if (closed === null) return tell("a directory above it, which cannot be told here, is closed");
    const word = shellWord(closed.path);
    return tell(
      `${printable(closed.path)} is closed to this user`,
      closed.owner === uid ? `chmod u+rx -- ${word}` : `sudo chmod a+rx -- ${word}`,
    );
  }
  const word = shellWord(path);
  return owner === uid
    ? tell("its owner may not", `chmod u+r -- ${word}`)
    : tell("this user may not", `sudo chmod a+r -- ${word}`);
}

/** The directory above a file that its user may not enter, or null when that cannot be seen. */
function closedAbove(path: string): { readonly path: string; readonly owner: number } | null {
  let above: { path: string; owner: number } | null = null;
  for (let end = path.indexOf("/", 1); end > 0; end = path.indexOf("/", end + 1)) {
    const directory = path.slice(0, end);
    try {
      above = { path: directory, owner: lstatSync(directory).uid };
    } catch (error) {
      return errorCode(error) === "EACCES" ? above : null;
    }
  }
  return above;
}

/**
 * What identifies a file, following links. Read permission on its path.
 *
 * @throws a system error when it is not there
 */
export function fileIdentity(path: string): FileIdentity {
  const stats = statSync(path, { bigint: true });
  return {
    path,
    dev: stats.dev.toString(),
    ino: stats.ino.toString(),
    size: Number(stats.size),
    mtime_ms: Number(stats.mtimeMs),
  };
}

function ownUid(): number | null {
  try {
    return daemonUid();
  } catch {
    return null;
  }
}

/** A descriptor of a regular file, or null; never waits. */
function openRegular(path: string): number | null {
  if (!statSync(path).isFile()) return null;
  return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
}

function readHead(fd: number): string {
  const head = new Uint8Array(4);
  const count = readSync(fd, head, 0, head.length, 0);
  return String.fromCharCode(...head.subarray(0, count));
}

/** The room below the root that holds the file and that the daemon may write, or null. */
function writableRoom(path: string): string | null {
  const real = Deno.realPathSync(path);
  const root = Deno.cwd();
  return WRITABLE.find((room) => real.startsWith(`${root}/${room}/`)) ?? null;
}
