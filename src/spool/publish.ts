/**
 * Writes what an agent may read: results, output files, notes, the kit.
 *
 * Rules
 * 1. A file is written whole under a random name in `staging/`, which no sandbox sees, and then
 *    renamed into place: a reader sees the old content or the new, never a part (J15 the other way
 *    round). A crash in between leaves a staged file, which `sweepStaging` removes.
 * 2. The rename replaces whatever has the name: a symlink or hard link that somebody planted is
 *    replaced itself, and what it leads to stays as it was (Q3).
 * 3. A directory that has the name is moved to quarantine, and the rename is tried once more. If that
 *    fails too, the caller gets a `SquattedError` and keeps what it wanted to say.
 * 4. Modes are set through the descriptor. No name in the spool is ever given to chmod, utime,
 *    copyFile or anything else that follows links (P5, Q12).
 * 5. Short writes are completed; what could not be written whole does not appear (S1).
 * 6. Names come from the host and are checked all the same: one file below one directory (P15).
 * 7. The directory that a name is put into is compared with its pin right before: where it was
 *    replaced, nothing is made, replaced or removed (P3).
 *
 * Nothing here is fsynced: all of it can be written again from the ledger.
 *
 * @module
 */
import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  unlinkSync,
} from "node:fs";
import { errorCode } from "../errors.ts";
import { randomHex } from "../names.ts";
import { agentPaths } from "./agent_paths.ts";
import { look, lookOf } from "./look.ts";
import { setDirectoryMode } from "./make_directory.ts";
import { assertPinned, ReplacedError } from "./pins.ts";
import { takeDirectory } from "./quarantine.ts";
import type { Look } from "./types.ts";
import { createNew, writeAll, writeNewFile } from "./write_new_file.ts";

/** Where a file is published. */
export type Target = "results" | "inbox" | "refused" | "messages" | "kit";

/** A name that is taken by something that could not be moved out of the way. */
export class SquattedError extends Error {
  override name = "SquattedError";
  /** The system's error code, or `QUARANTINE-FULL`. */
  readonly code: string;
  constructor(path: string, code: string, options?: ErrorOptions) {
    super(`Cannot publish "${path}": a directory has the name and stays (${code})`, options);
    this.code = code;
  }
}

const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** How a file is published. */
export interface PublishOptions {
  /** Default 0644. */
  readonly mode?: 0o644 | 0o755;
  /** True for the result that the agent's staged file was made for (`stageAhead`). */
  readonly awaited?: boolean;
}

/**
 * Publishes a file, in place of the one that had the name. Read and write permission on `./spool`
 * and `./work`.
 *
 * @param name a bare name; below `kit` it may have one directory in front, which is made
 * @throws {RangeError} when the name is none of ours
 * @throws {SquattedError} when a directory keeps the name
 * @throws {ReplacedError} when the target directory is not the pinned one
 * @throws a system error, ENOSPC above all; the old content is still in place then
 */
export function publish(
  agent: string,
  target: Target,
  name: string,
  bytes: Uint8Array,
  options: PublishOptions = {},
): void {
  const path = targetPath(agent, target, name);
  const mode = options.mode ?? FILE_MODE;
  if (options.awaited === true) noteAwaited(agent);
  let staged = options.awaited === true ? fillAhead(agent, bytes) : null;
  if (staged === null) {
    staged = stagedPath(agent);
    writeNewFile(staged, bytes, mode);
  }
  moveIntoPlace(agent, target, staged, path);
}

/** A staged file without content: where it lies and which file it is. */
interface Ahead {
  readonly path: string;
  readonly made: Look;
}

/** Staged files without content that were made while nobody waits, by agent. */
const ahead = new Map<string, Ahead>();
/** Agents that were last told a result that they waited for; the latest last. */
const lately = new Set<string>();
const MAX_LATELY = 4;
/** Staged files that are of no use and could not be removed: a disk may take no changes for a while. */
const litter = new Set<string>();

function noteAwaited(agent: string): void {
  lately.delete(agent);
  lately.add(agent);
  const [first] = lately;
  if (lately.size > MAX_LATELY && first !== undefined) lately.delete(first);
}

/**
 * Sees to it that the agents whose commands run, and a few whose last ones ended, have a staged file for
 * their next result, and that no other agent has one: to make a file is the dearest part of publishing a
 * small one. It is not kept open, so that it stands against no change of the mount. Never throws: without
 * one the publication makes its own.
 *
 * @param running agents whose commands run
 */
export function stageAhead(running: ReadonlySet<string>): void {
  const agents = running.union(lately);
  for (const staged of litter) discard(staged);
  for (const [agent, { path }] of ahead) {
    if (agents.has(agent)) continue;
    ahead.delete(agent);
    discard(path);
  }
  for (const agent of agents) {
    if (ahead.has(agent)) continue;
    const path = stagedPath(agent);
    try {
      const fd = createNew(path, FILE_MODE);
      try {
        ahead.set(agent, { path, made: lookOf(fstatSync(fd, { bigint: true })) });
      } finally {
        closeSync(fd);
      }
    } catch {
      // What is wrong with the directory or the disk shows when something is to be told.
    }
  }
}

/** Removes every staged file that was made beforehand, at the end of the service. Never throws. */
export function dropAhead(): void {
  lately.clear();
  stageAhead(new Set());
}

/**
 * Writes into the file that was made beforehand; null when there is none that can be used. What has
 * its name by now may be another one, have a second name or hold something: nothing is written then.
 */
function fillAhead(agent: string, bytes: Uint8Array): string | null {
  const staged = ahead.get(agent);
  if (staged === undefined) return null;
  ahead.delete(agent);
  const { path, made } = staged;
  try {
    const fd = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
    try {
      const { dev, ino, nlink, size } = lookOf(fstatSync(fd, { bigint: true }));
      if (dev !== made.dev || ino !== made.ino || nlink !== 1 || size !== 0) {
        throw new ReplacedError(path);
      }
      writeAll(fd, bytes);
    } finally {
      closeSync(fd);
    }
    return path;
  } catch {
    discard(path);
    return null;
  }
}

/** Removes a staged file; one that cannot be removed now is tried again with the next. */
function discard(staged: string): void {
  try {
    unlinkSync(staged);
    litter.delete(staged);
  } catch (error) {
    if (errorCode(error) === "ENOENT") litter.delete(staged);
    else litter.add(staged);
  }
}

/** A published file that grows. */
export interface OutputFile {
  /** Bytes written so far. */
  readonly size: number;
  /**
   * Writes all of `bytes` at the end.
   *
   * @throws the system error that ended it; `size` tells how much was written all the same
   */
  append(bytes: Uint8Array): void;
  /**
   * Closes it until the next `append`, so that a file which is written to now and then keeps no disk
   * busy. That `append` throws a `ReplacedError` when another file has the name by then.
   */
  pause(): void;
  /** Closes it; a second call does nothing. */
  close(): void;
}

/**
 * Publishes an empty file, in `results/` by default, and keeps it open for what comes. Errors are
 * those of `publish`.
 */
export function openOutput(
  agent: string,
  name: string,
  target: "results" | "inbox" = "results",
): OutputFile {
  const path = targetPath(agent, target, name);
  const staged = stagedPath(agent);
  const fd = createNew(staged, FILE_MODE);
  try {
    moveIntoPlace(agent, target, staged, path);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return new OpenOutput(fd, path);
}

class OpenOutput implements OutputFile {
  readonly #path: string;
  #fd: number | null;
  #size = 0;
  /** Which file it is, while it is closed for the time being. */
  #paused: Look | null = null;

  constructor(fd: number, path: string) {
    this.#fd = fd;
    this.#path = path;
  }

  get size(): number {
    return this.#size;
  }

  append(bytes: Uint8Array): void {
    if (this.#paused !== null) this.#resume(this.#paused);
    if (this.#fd === null) throw new TypeError("Cannot append: the output file is closed");
    try {
      writeAll(this.#fd, bytes);
      this.#size += bytes.length;
    } catch (error) {
      this.#size = Number(fstatSync(this.#fd, { bigint: true }).size);
      throw error;
    }
  }

  pause(): void {
    if (this.#fd === null) return;
    const paused = lookOf(fstatSync(this.#fd, { bigint: true }));
    closeSync(this.#fd);
    this.#fd = null;
    this.#paused = paused;
  }

  close(): void {
    this.#paused = null;
    if (this.#fd === null) return;
    closeSync(this.#fd);
    this.#fd = null;
  }

  /** Opens the file again. Only in directories that no sandbox can write to; looked at all the same. */
  #resume(paused: Look): void {
    const isSame = (seen: Look | null) =>
      seen?.kind === "file" && seen.dev === paused.dev && seen.ino === paused.ino;
    if (!isSame(look(this.#path))) throw new ReplacedError(this.#path);
    const fd = openSync(this.#path, constants.O_WRONLY | constants.O_APPEND | constants.O_NONBLOCK);
    if (!isSame(lookOf(fstatSync(fd, { bigint: true })))) {
      closeSync(fd);
      throw new ReplacedError(this.#path);
    }
    this.#fd = fd;
    this.#paused = null;
  }
}

/**
 * Removes a file from `results/`.
 *
 * @returns false when there was none
 * @throws {SquattedError} when a directory has the name and stays
 * @throws a system error when it cannot be removed
 */
export function removeResult(agent: string, name: string): boolean {
  assertPinned(agent, "results");
  return remove(agent, targetPath(agent, "results", name));
}

/** Bytes of a file in `results/`; 0 when there is none. */
export function resultSize(agent: string, name: string): number {
  const seen = look(targetPath(agent, "results", name));
  return seen?.kind === "file" ? seen.size : 0;
}

/** Removes note `n` from `inbox/refused/`; otherwise like `removeResult`. */
export function removeRefused(agent: string, n: number): boolean {
  assertPinned(agent, "inbox");
  return remove(agent, targetPath(agent, "refused", `${n}.json`));
}

/** Removes message `n` from `inbox/messages/`; otherwise like `removeResult`. */
export function removeMessage(agent: string, n: number): boolean {
  return remove(agent, targetPath(agent, "messages", `${n}.json`));
}

/**
 * Removes what an earlier daemon left in `staging/`. Only for the holder of the state lock, and
 * before anything is published.
 *
 * @returns how many were removed; what cannot be removed is left alone
 */
export function sweepStaging(agent: string): number {
  const directory = agentPaths(agent).staging;
  let removed = 0;
  for (const name of readdirSync(directory)) {
    const path = `${directory}/${name}`;
    try {
      if (look(path)?.kind !== "file") continue;
      unlinkSync(path);
      removed++;
    } catch {
      // It harms nobody: staged names are random.
    }
  }
  return removed;
}

function targetPath(agent: string, target: Target, name: string): string {
  const parts = name.split("/");
  const longest = target === "kit" ? 2 : 1;
  if (parts.length > longest || !parts.every((part) => NAME.test(part))) {
    throw new RangeError(`Cannot publish: ${JSON.stringify(name)} is no name for ${target}`);
  }
  const directory = agentPaths(agent)[target];
  if (parts.length === 2) {
    assertPinned(agent, roleOf(target));
    makeSubdirectory(`${directory}/${parts[0]}`);
  }
  return `${directory}/${name}`;
}

/** The pinned directory that a target lies in. */
function roleOf(target: Target): "results" | "inbox" {
  return target === "results" ? "results" : "inbox";
}

function makeSubdirectory(path: string): void {
  try {
    mkdirSync(path, 0o700);
  } catch (error) {
    if (errorCode(error) === "EEXIST") return;
    throw error;
  }
  setDirectoryMode(path, DIRECTORY_MODE);
}

function stagedPath(agent: string): string {
  return `${agentPaths(agent).staging}/${randomHex(16)}`;
}

/** Rules 2, 3 and 7. The staged file is gone afterwards, whatever happens. */
function moveIntoPlace(agent: string, target: Target, staged: string, path: string): void {
  try {
    try {
      assertPinned(agent, roleOf(target));
      renameSync(staged, path);
      return;
    } catch (error) {
      if (!isDirectoryInTheWay(error)) throw error;
    }
    evict(agent, path);
    try {
      renameSync(staged, path);
    } catch (error) {
      if (!isDirectoryInTheWay(error)) throw error;
      throw new SquattedError(path, errorCode(error) ?? "unknown", { cause: error });
    }
  } catch (error) {
    discard(staged);
    throw error;
  }
}

function isDirectoryInTheWay(error: unknown): boolean {
  const code = errorCode(error);
  return code === "EISDIR" || code === "EEXIST" || code === "ENOTEMPTY";
}

function evict(agent: string, path: string): void {
  const left = takeDirectory(agent, path, `squatter.${Date.now()}.${randomHex(16)}`);
  // ENOTDIR: it has been exchanged for something that the rename can replace.
  if (left !== null && left !== "ENOTDIR") throw new SquattedError(path, left);
}

function remove(agent: string, path: string): boolean {
  const seen = look(path);
  if (seen === null) return false;
  if (seen.kind === "directory") {
    evict(agent, path);
    return true;
  }
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return false;
    throw error;
  }
}
