/**
 * Remembers which directories an agent's roles are, by device and inode, and notices when one of
 * them has become another: then paths below it lead somewhere else, and nothing may be claimed or
 * published there until a human looked (P3).
 *
 * Rules
 * 1. An agent that is served is held to its pins: `holdPins` once, then `comparePins` before every
 *    batch of claims, and `assertPinned` before every name that is put into one of its directories
 *    or taken out. Whoever publishes does not have to remember it, because `publish.ts` does.
 * 2. An agent that is held stays held when it is not served any more: its last results are still
 *    to be published.
 *
 * @module
 */
import { agentPaths } from "./agent_paths.ts";
import { look } from "./look.ts";

/** The pinned directories, in the order in which they are compared. */
export const ROLES = Object.freeze(
  ["queue", "results", "inbox", "claims", "staging", "quarantine"] as const,
);

export type Role = (typeof ROLES)[number];

/** A directory's identity; decimal strings, as numbers they may be too large. */
export interface Pin {
  readonly dev: string;
  readonly ino: string;
}

export type Pins = Readonly<Record<Role, Pin>>;

/**
 * Reads the identities as they are now.
 *
 * @throws {TypeError} when a role directory is missing or no directory
 * @throws a system error
 */
export function readPins(agent: string): Pins {
  const pin = (role: Role): Pin => {
    const found = pinOf(agent, role);
    if (found === null) {
      throw new TypeError(`Cannot pin "${agentPaths(agent)[role]}": no directory`);
    }
    return found;
  };
  return Object.freeze({
    queue: pin("queue"),
    results: pin("results"),
    inbox: pin("inbox"),
    claims: pin("claims"),
    staging: pin("staging"),
    quarantine: pin("quarantine"),
  });
}

/**
 * Compares. Cheap enough for every pass: one `lstat` a role.
 *
 * @returns the first role directory that is missing, no directory, or another one; null when all are
 *   the pinned ones
 */
export function comparePins(pins: Pins, agent: string): Role | null {
  for (const role of ROLES) {
    let now: Pin | null;
    try {
      now = pinOf(agent, role);
    } catch {
      // What cannot be looked at is not known to be the pinned one.
      return role;
    }
    const { dev, ino } = pins[role];
    if (now === null || now.dev !== dev || now.ino !== ino) return role;
  }
  return null;
}

function pinOf(agent: string, role: Role): Pin | null {
  const seen = look(agentPaths(agent)[role]);
  if (seen?.kind !== "directory") return null;
  return { dev: seen.dev, ino: seen.ino };
}

/** What agents are held to. One process serves one root, so there is one such list. */
const held = new Map<string, Pins>();

/** From now on nothing is published for this agent but into the pinned directories. */
export function holdPins(agent: string, pins: Pins): void {
  held.set(agent, pins);
}

/** A role directory is not the pinned one: nothing may be put there. */
export class ReplacedError extends Error {
  override name = "ReplacedError";
  readonly code = "REPLACED";
  constructor(path: string) {
    super(`Cannot publish: "${path}" was replaced`);
  }
}

/**
 * Compares one directory. An agent that is not held passes.
 *
 * @throws {ReplacedError} when it is missing, no directory, or another one
 */
export function assertPinned(agent: string, role: Role): void {
  const pins = held.get(agent);
  if (pins === undefined) return;
  let now: Pin | null = null;
  try {
    now = pinOf(agent, role);
  } catch {
    // What cannot be looked at is not known to be the pinned one.
  }
  const { dev, ino } = pins[role];
  if (now?.dev !== dev || now.ino !== ino) throw new ReplacedError(agentPaths(agent)[role]);
}
