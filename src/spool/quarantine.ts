/**
 * The host-only place for what a person may want to look into: directories that an agent planted,
 * and copies of refused files. Both are bounded, so that nobody can fill it.
 *
 * Rules
 * 1. A directory is moved whole, by one rename. Nothing of ours ever enters a tree that an agent
 *    made, to list it, to change its modes or to remove it (P10, P21).
 * 2. At most `MAX_DIRECTORIES` directories and `MAX_COPIES` copies an agent. A directory too many
 *    stays where it is, as a stuck entry; a copy too many replaces the oldest. Among the claims too
 *    there is room for `MAX_STANDING` directories and no more: each of them is looked at before the
 *    next start serves anybody, so that an agent could make that take as long as it likes (Q5).
 * 3. At most `MAX_COPIES` copies are made a minute: of a flood those that came first, in place of
 *    thousands of which each is removed again for the next.
 * 4. A copy is written by the host into a file of its own, never made by link, copy or rename of the
 *    agent's file: the agent may still hold that one open (P5).
 *
 * Names are `dir.<claim name>` and `copy.<arrival ms>.<random>.<id or ->`.
 *
 * @module
 */
import { readdirSync, renameSync, rmdirSync, unlinkSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { agentPaths } from "./agent_paths.ts";
import { look } from "./look.ts";
import { writeNewFile } from "./write_new_file.ts";

/** Directories kept an agent. */
export const MAX_DIRECTORIES = 100;
/** Directories that may stand among an agent's claims; more are not claimed. */
export const MAX_STANDING = 1000;
/** Copies of refused files kept an agent. */
export const MAX_COPIES = 200;
/** Time for which `MAX_COPIES` are enough, milliseconds. */
const COPIES_MS = 60_000;
/** Bytes kept of each refused file. */
export const MAX_COPY_BYTES = 64 * 1024;

/** What `takeDirectory` says when there is no room. */
export const QUARANTINE_FULL = "QUARANTINE-FULL";

/**
 * Removes a directory when it is empty, else moves it into quarantine.
 *
 * @param path the directory, in a place that only the host can change
 * @param name what it is called there: parts that the host chose
 * @returns null when it has left `path`, else the error code, or `QUARANTINE_FULL`
 */
export function takeDirectory(agent: string, path: string, name: string): string | null {
  const left = takeAway(agent, path, name);
  if (left === null) standingOf(agent).delete(path);
  return left;
}

function takeAway(agent: string, path: string, name: string): string | null {
  try {
    rmdirSync(path);
    return null;
  } catch (error) {
    const code = errorCode(error);
    if (code === "ENOENT") return null;
    if (code !== "ENOTEMPTY" && code !== "EEXIST") return code ?? "unknown";
  }
  const { quarantine } = agentPaths(agent);
  try {
    const kept = readdirSync(quarantine).filter((entry) => entry.startsWith("dir.")).length;
    if (kept >= MAX_DIRECTORIES) return QUARANTINE_FULL;
    renameSync(path, `${quarantine}/dir.${name}`);
    return null;
  } catch (error) {
    return errorCode(error) ?? "unknown";
  }
}

/** Directories among the claims, of each `claims/`, by that directory's identity. */
const STANDING = new Map<string, Set<string>>();

function standingOf(agent: string): Set<string> {
  const key = identityOf(agentPaths(agent).claims);
  let standing = STANDING.get(key);
  if (standing === undefined) {
    standing = new Set();
    STANDING.set(key, standing);
  }
  return standing;
}

/** A claim turned out to be a directory: it stands among the claims until `takeDirectory` took it. */
export function noteDirectory(agent: string, path: string): void {
  standingOf(agent).add(path);
}

/** True when another directory may be claimed. */
export function mayClaimDirectory(agent: string): boolean {
  const standing = standingOf(agent);
  if (standing.size < MAX_STANDING) return true;
  // The oldest first, and few at a time: a person removes what stands there as the stuck list says.
  let looks = 0;
  for (const path of standing) {
    if (looks++ >= 8) break;
    standing.delete(path);
    if (look(path) !== null) standing.add(path);
  }
  return standing.size < MAX_STANDING;
}

/**
 * Stores a copy of a refused file and removes the ones kept longest beyond the bound.
 *
 * @param bytes the first `MAX_COPY_BYTES` of them are kept
 * @param now monotonic clock, milliseconds
 * @returns false when enough were stored in this minute
 * @throws a system error, such as ENOSPC; no partial copy is left then
 */
export function storeCopy(
  agent: string,
  about: { readonly arrival_ms: number; readonly random: string; readonly id: string | null },
  bytes: Uint8Array,
  now: number = performance.now(),
): boolean {
  const { quarantine } = agentPaths(agent);
  const copies = knownCopies(quarantine);
  if (now - copies.since >= COPIES_MS) {
    copies.since = now;
    copies.stored = 0;
  }
  if (copies.stored >= MAX_COPIES) return false;
  const name = `copy.${about.arrival_ms}.${about.random}.${about.id ?? "-"}`;
  writeNewFile(`${quarantine}/${name}`, bytes.subarray(0, MAX_COPY_BYTES), 0o600);
  copies.stored++;
  copies.names.push(name);
  while (copies.names.length > MAX_COPIES) {
    const old = copies.names.shift();
    if (old === undefined) break;
    try {
      unlinkSync(`${quarantine}/${old}`);
    } catch (error) {
      // A person who looked into it may have cleared it away.
      if (errorCode(error) !== "ENOENT") throw error;
    }
  }
  return true;
}

/** The copies of one quarantine. */
interface Copies {
  /** Oldest first. */
  readonly names: string[];
  /** When the minute began that is counted, and what was stored in it. */
  since: number;
  stored: number;
}

/**
 * The copies of each quarantine by the directory's identity: listed once, because a listing for every
 * broken entry of a flood costs more than the copy itself (Q5). Only this process adds copies; one
 * that somebody removed still counts until its turn comes.
 */
const COPIES = new Map<string, Copies>();

function knownCopies(quarantine: string): Copies {
  const key = identityOf(quarantine);
  let copies = COPIES.get(key);
  if (copies === undefined) {
    const names = readdirSync(quarantine).filter((entry) => entry.startsWith("copy."));
    names.sort((a, b) => arrivalIn(a) - arrivalIn(b));
    copies = { names, since: -Infinity, stored: 0 };
    COPIES.set(key, copies);
  }
  return copies;
}

function identityOf(directory: string): string {
  const seen = look(directory);
  return `${seen?.dev}:${seen?.ino}`;
}

function arrivalIn(name: string): number {
  const arrival = Number(name.split(".")[1]);
  return Number.isFinite(arrival) ? arrival : 0;
}
