/**
 * What an entry is, judged without opening it: type, links, owner, size. Pure.
 *
 * 1. Only a regular file passes; a symlink is refused for being one, wherever it leads (P1, P8).
 * 2. Exactly one link: a second name could lie anywhere on the file system and belong to a host
 *    file (P4).
 * 3. An owner that is not accepted is refused before a byte of the file is read.
 * 4. A size above the bound is refused before the file is opened (J14).
 *
 * @module
 */
import type { Reason } from "../codes.ts";
import type { Look } from "./types.ts";

/** Why an entry cannot be a request. `detail` is a fixed phrase, never taken from the entry. */
export interface ObjectRefusal {
  readonly reason: Extract<Reason, "not-regular" | "malformed">;
  readonly detail: string;
}

/** The bounds of the check. */
export interface ObjectBounds {
  /** Bytes. */
  readonly size_max: number;
  /** Accepted owners, or "any" in a role mount. */
  readonly owners: ReadonlySet<number> | "any";
}

/**
 * Judges a claimed entry by its look.
 *
 * @returns null when it may be opened
 */
export function objectRefusal(look: Look, bounds: ObjectBounds): ObjectRefusal | null {
  switch (look.kind) {
    case "symlink":
      return notRegular("a symbolic link");
    case "directory":
      return notRegular("a directory");
    case "other":
      return notRegular(look.fifo === true ? "a named pipe" : "a socket or device");
    case "file":
      if (look.nlink !== 1) return notRegular("a file with more than one link");
      if (bounds.owners !== "any" && !bounds.owners.has(look.uid)) {
        return notRegular("a file of an owner who is not accepted here");
      }
      if (!(look.size <= bounds.size_max)) {
        return { reason: "malformed", detail: `larger than ${bounds.size_max} bytes` };
      }
      return null;
    default:
      return notRegular("of an unknown type");
  }
}

function notRegular(detail: string): ObjectRefusal {
  return { reason: "not-regular", detail };
}
