/**
 * Stands in for `@std/fs/walk`, as far as it is used here: every entry below a directory, the
 * directory itself first, without following symbolic links.
 *
 * @module
 */
import { basename, join } from "node:path";

/** An entry with its path, which starts with the path that was walked. */
export interface WalkEntry extends Deno.DirEntry {
  path: string;
}

/** What to leave out. Extensions are matched with or without their dot. */
export interface WalkOptions {
  readonly includeFiles?: boolean;
  readonly includeDirs?: boolean;
  readonly exts?: string[];
}

function included(entry: WalkEntry, options: WalkOptions): boolean {
  if (entry.isDirectory ? options.includeDirs === false : options.includeFiles === false) {
    return false;
  }
  const exts = options.exts;
  if (exts === undefined) return true;
  return exts.some((ext) => entry.path.endsWith(ext.startsWith(".") ? ext : `.${ext}`));
}

/**
 * Yields the entries below `root`, in the order that the file system lists them. Needs read
 * permission for `root`.
 */
export function* walkSync(root: string, options: WalkOptions = {}): IterableIterator<WalkEntry> {
  const info = Deno.lstatSync(root);
  const self: WalkEntry = {
    path: root,
    name: basename(root),
    isFile: info.isFile,
    isDirectory: info.isDirectory,
    isSymlink: info.isSymlink,
  };
  if (included(self, options)) yield self;
  if (!info.isDirectory) return;
  for (const entry of Deno.readDirSync(root)) {
    const path = join(root, entry.name);
    if (entry.isDirectory) yield* walkSync(path, options);
    else if (included({ ...entry, path }, options)) yield { ...entry, path };
  }
}
