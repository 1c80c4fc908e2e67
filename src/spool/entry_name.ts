/**
 * What can be said of an entry by its listed name alone, before anything is asked of the disk.
 *
 * @module
 */
import { isId } from "../names.ts";

/**
 * True when the runtime can act on exactly the entry that it listed under this name.
 *
 * Names that are not UTF-8 are listed with U+FFFD in place of the bad bytes, and a path with U+FFFD
 * in it addresses another entry: whichever really has that name. Both look alike in a listing, so
 * neither is ever touched (P16).
 */
export function isAddressable(name: string): boolean {
  return name !== "" && name !== "." && name !== ".." && name.isWellFormed() &&
    !/[\uFFFD\0/]/.test(name);
}

/** The id that a request file of this name would have, or null when the name is no `<id>.json`. */
export function requestId(name: string): string | null {
  if (!name.endsWith(".json")) return null;
  const stem = name.slice(0, -".json".length);
  return isId(stem) ? stem : null;
}

/**
 * Names that writers and sync programs give to files that are not finished: hidden files, `~x` and
 * `x~`, and the endings of transfers under way.
 */
const TEMPORARY = /^[.~]|(?:~|\.(?:tmp|temp|part|partial|filepart|crdownload|!sync))$/i;

/**
 * True for a name that promises to be replaced by another one. `.json` alone is not among them: it
 * is what `queue/$ID.json` becomes when `ID` is empty, and its writer should hear of it at once.
 */
export function isTemporary(name: string): boolean {
  return name !== ".json" && TEMPORARY.test(name);
}
