/**
 * What a program or base file is right now, in the form that trust stores and orders carry, so
 * that every place that compares identities computes them in one way.
 *
 * 1. A program must have content and start as an executable does. The runtime hands what the
 *    kernel refuses to `/bin/sh`, so an empty file would "succeed" and a text would run as a
 *    script (X8).
 * 2. Identity is device, inode, size and modification time of what the path leads to, symlinks
 *    followed: an upgrade that replaces a link's target is a change as well (X8).
 *
 * Comparing does not close the moment between comparison and start. Nobody but the host's owner
 * can write there: start-up refuses programs that others, or the bridge itself, could replace
 * (X9).
 *
 * Needs read permission for the paths.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { statSync } from "node:fs";
import { errorCode } from "../errors.ts";
import type { FileIdentity } from "../policy/policy.ts";

/** What a look at a file found: its identity, or a fixed word for what is wrong with it. */
export type FileLook =
  | { readonly ok: true; readonly identity: FileIdentity }
  | {
    readonly ok: false;
    readonly why: "missing" | "unreadable" | "not-a-file" | "empty" | "not-executable-format";
  };

/** Bytes looked at: enough for `#!` and the start of an interpreter's path. */
const HEAD_BYTES = 128;

function wrong(error: unknown): FileLook {
  const code = errorCode(error);
  const absent = code === "ENOENT" || code === "ENOTDIR";
  return { ok: false, why: absent ? "missing" : "unreadable" };
}

/**
 * The identity of a regular file, symlinks followed. `path` is stored as given.
 *
 * @param path where to look
 * @param name what the identity is to say as its path; default `path`
 */
export function lookFile(path: string, name = path): FileLook {
  try {
    const stat = statSync(path, { bigint: true });
    if (!stat.isFile()) return { ok: false, why: "not-a-file" };
    return {
      ok: true,
      identity: {
        path: name,
        dev: String(stat.dev),
        ino: String(stat.ino),
        size: Number(stat.size),
        mtime_ms: Number(stat.mtimeMs),
      },
    };
  } catch (error) {
    return wrong(error);
  }
}

/** True for an ELF header, or for `#!` with an absolute interpreter. */
export function isExecutableFormat(head: Uint8Array): boolean {
  if (head.length >= 4 && head[0] === 0x7f) {
    return head[1] === 0x45 && head[2] === 0x4c && head[3] === 0x46;
  }
  if (head[0] !== 0x23 || head[1] !== 0x21) return false;
  let at = 2;
  while (head[at] === 0x20 || head[at] === 0x09) at++;
  return head[at] === 0x2f;
}

/**
 * The identity of a program: a regular file with content that the kernel itself would execute.
 * Parameters are those of `lookFile`.
 */
export function lookProgram(path: string, name = path): FileLook {
  const look = lookFile(path, name);
  if (!look.ok) return look;
  if (look.identity.size === 0) return { ok: false, why: "empty" };
  try {
    using file = Deno.openSync(path, { read: true });
    const head = new Uint8Array(HEAD_BYTES);
    const n = file.readSync(head) ?? 0;
    if (!isExecutableFormat(head.subarray(0, n))) {
      return { ok: false, why: "not-executable-format" };
    }
  } catch (error) {
    return wrong(error);
  }
  return look;
}

/**
 * SHA-256 of a file's content in lower-case hex.
 *
 * @throws the system error of a file that cannot be read
 */
export function hashFile(path: string): string {
  using file = Deno.openSync(path, { read: true });
  const hash = createHash("sha256");
  const buffer = new Uint8Array(64 * 1024);
  for (;;) {
    const n = file.readSync(buffer);
    if (n === null) return hash.digest("hex");
    hash.update(buffer.subarray(0, n));
  }
}

/** True when two identities are of the same unchanged file; what they call it does not count. */
export function sameFile(a: FileIdentity, b: FileIdentity): boolean {
  return a.dev === b.dev && a.ino === b.ino && a.size === b.size && a.mtime_ms === b.mtime_ms;
}
