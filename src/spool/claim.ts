/**
 * Takes an entry out of `queue/` by renaming it to a name in `claims/` that only the host can reach.
 * Exactly one process wins an entry; a name that has gone is a normal answer.
 *
 * Rules
 * 1. Nothing is decided about an entry while the agent can still exchange it: first the rename, then
 *    the look that counts (P2). A rename moves a symlink itself and follows nothing.
 * 2. The new name is made of checked parts only: a valid id or `-`, a number, 128 random bits. No
 *    hostile byte gets into a path of ours (P15, P17, P18).
 * 3. A name that the runtime cannot address exactly is left alone and reported (P16).
 * 4. What this user cannot move is reported as stuck, with the system's error code, and never makes
 *    a pass fail (P10, P12, P13, Q7).
 * 5. Never copy and delete in place of a rename: a rename that would cross file systems is a stuck
 *    entry (P20).
 * 6. An entry withdrawn in between is not worth a word (Q14).
 * 7. Only so many directories are claimed as there is room for: beyond that one that is not empty
 *    stays in `queue/`, where it is stuck and its maker can still remove it (Q5, Q7).
 *
 * A crash after the rename leaves a claim, which `leftoverClaims` finds at the next start.
 *
 * @module
 */
import { mkdirSync, readdirSync, renameSync, rmdirSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { isId } from "../names.ts";
import { agentPaths } from "./agent_paths.ts";
import { isAddressable, requestId } from "./entry_name.ts";
import { look } from "./look.ts";
import { mayClaimDirectory, noteDirectory, QUARANTINE_FULL } from "./quarantine.ts";
import type { Claim, ClaimOutcome, Look } from "./types.ts";

/**
 * Errors that belong to one entry. Any other one (no space, read-only, broken device) belongs to the
 * host and is thrown.
 */
const ENTRY_ERRORS: ReadonlySet<string> = new Set([
  "EACCES",
  "EPERM",
  "EBUSY",
  "ELOOP",
  "ENAMETOOLONG",
  "ENOTDIR",
  "EXDEV",
  "EINVAL",
  "EILSEQ",
  "ETXTBSY",
]);

/** The parts of a claim's file name. */
export interface ClaimName {
  /** Null when the entry had no valid request name. */
  readonly id: string | null;
  /** Wall clock, milliseconds since the epoch. */
  readonly arrival_ms: number;
  /** 32 hex digits. */
  readonly random: string;
}

const CLAIM_NAME = /^([a-z0-9][a-z0-9_-]{0,63}|-)\.(0|[1-9][0-9]{0,15})\.([0-9a-f]{32})$/;

/**
 * The file name of a claim.
 *
 * @throws {RangeError} when a part is outside its grammar
 */
export function claimName({ id, arrival_ms, random }: ClaimName): string {
  const name = `${id ?? "-"}.${arrival_ms}.${random}`;
  if ((id !== null && !isId(id)) || !CLAIM_NAME.test(name)) {
    throw new RangeError("Cannot name claim: id, arrival or random part is outside its grammar");
  }
  return name;
}

/** The parts of a claim's file name, or null when it is none. */
export function parseClaimName(name: string): ClaimName | null {
  const [, id, arrival, random] = CLAIM_NAME.exec(name) ?? [];
  if (id === undefined || arrival === undefined || random === undefined) return null;
  const arrival_ms = Number(arrival);
  if (!Number.isSafeInteger(arrival_ms)) return null;
  return { id: id === "-" ? null : id, arrival_ms, random };
}

/** What the caller knows of the entry. */
export interface ClaimOptions {
  /** Wall clock of the first sight, milliseconds. An earlier ctime counts instead. */
  readonly arrival_ms: number;
  /** 32 fresh hex digits. */
  readonly random: string;
  /** A look at the entry just taken, to spare another one. */
  readonly before?: Look;
}

/**
 * Claims one entry. Read and write permission on `./spool` and `./work`.
 *
 * @param name a name as listed in `queue/`; hostile text
 * @throws a system error that concerns the host and not the entry, such as ENOSPC or EROFS, and
 *   ENOENT when `claims/` itself is missing
 */
export function claimEntry(agent: string, name: string, options: ClaimOptions): ClaimOutcome {
  if (!isAddressable(name)) return { kind: "stuck", error: "EILSEQ" };
  const paths = agentPaths(agent);
  const from = `${paths.queue}/${name}`;
  let before: Look | null;
  try {
    before = options.before ?? look(from);
  } catch (error) {
    return stuckOrThrow(error);
  }
  if (before === null) return { kind: "gone" };
  const id = requestId(name);
  const { random } = options;
  const arrival_ms = arrivalOf(before, options.arrival_ms);
  const path = `${paths.claims}/${claimName({ id, arrival_ms, random })}`;
  if (before.kind === "directory" && !mayClaimDirectory(agent)) {
    if (!takeEmptyDirectory(from, path)) return { kind: "stuck", error: QUARANTINE_FULL };
    return claimed({ agent, name, id, path, random, arrival_ms });
  }
  try {
    renameSync(from, path);
  } catch (error) {
    if (errorCode(error) === "ENOENT") {
      // Withdrawn, or there is nowhere to move it to: the second is a fault of the host.
      if (look(paths.claims) === null) throw error;
      return { kind: "gone" };
    }
    if (before.kind === "directory" && isRefusedMove(error) && takeEmptyDirectory(from, path)) {
      return claimed({ agent, name, id, path, random, arrival_ms });
    }
    // Reported as failed and done all the same: nobody else could give it this name (S5).
    if (isThere(path)) return claimed({ agent, name, id, path, random, arrival_ms });
    return stuckOrThrow(error);
  }
  return claimed({ agent, name, id, path, random, arrival_ms });
}

function claimed(claim: Omit<Claim, "look">): ClaimOutcome {
  const after = look(claim.path);
  // Only the host reaches this path, so an entry that is not there was removed by a person.
  if (after === null) return { kind: "gone" };
  if (after.kind === "directory") noteDirectory(claim.agent, claim.path);
  return { kind: "claimed", claim: { ...claim, look: after } };
}

/** True when something has the name for sure. */
function isThere(path: string): boolean {
  try {
    return look(path) !== null;
  } catch {
    return false;
  }
}

function stuckOrThrow(error: unknown): ClaimOutcome {
  const code = errorCode(error);
  if (code !== undefined && ENTRY_ERRORS.has(code)) return { kind: "stuck", error: code };
  throw error;
}

function isRefusedMove(error: unknown): boolean {
  const code = errorCode(error);
  return code === "EACCES" || code === "EPERM";
}

/**
 * A directory of another user cannot be moved elsewhere, because that would rewrite its `..`; but an
 * empty one can be removed where it stands. An empty directory of ours then stands for it among the
 * claims, so that it gets its answer like every other entry.
 */
function takeEmptyDirectory(from: string, path: string): boolean {
  mkdirSync(path, 0o700);
  try {
    // Neither follows a symlink nor removes anything but an empty directory.
    rmdirSync(from);
    return true;
  } catch {
    rmdirSync(path);
    return false;
  }
}

/**
 * When the entry arrived: the earlier of ctime and first sight. The ctime is known to the second;
 * its last millisecond is taken, so that nothing seems to arrive before it was written.
 */
function arrivalOf(before: Look, firstSight_ms: number): number {
  return Math.max(0, Math.trunc(Math.min(firstSight_ms, before.ctime_ms + 999)));
}

/**
 * Claims that an earlier daemon left, oldest arrival first. Their names in `queue/` are not known any
 * more: `name` is `<id>.json`, or the claim's own name where there was no id. Entries of `claims/`
 * whose names are not claims are nobody's business and left out.
 *
 * @throws a system error when `claims/` cannot be listed
 */
export function leftoverClaims(agent: string): Claim[] {
  const directory = agentPaths(agent).claims;
  const claims: Claim[] = [];
  for (const file of readdirSync(directory)) {
    const parts = parseClaimName(file);
    if (parts === null) continue;
    const path = `${directory}/${file}`;
    const seen = look(path);
    if (seen === null) continue;
    if (seen.kind === "directory") noteDirectory(agent, path);
    claims.push({
      agent,
      name: parts.id === null ? file : `${parts.id}.json`,
      path,
      look: seen,
      ...parts,
    });
  }
  return claims.sort((a, b) => a.arrival_ms - b.arrival_ms || (a.random < b.random ? -1 : 1));
}
