/**
 * Stands in for `@std/fs/exists`, as far as it is used here: does a path lead to something, and,
 * when asked, to a file or a directory. Symbolic links are followed.
 *
 * @module
 */

/** What kind of thing counts as existing. Without either, anything does. */
export interface ExistsOptions {
  readonly isFile?: boolean;
  readonly isDirectory?: boolean;
}

function wanted(info: Deno.FileInfo, options: ExistsOptions): boolean {
  if (options.isFile && options.isDirectory) {
    throw new TypeError("Cannot look for a file and a directory at once: pass one of them");
  }
  if (options.isFile) return info.isFile;
  return options.isDirectory ? info.isDirectory : true;
}

/**
 * True when `path` exists. Only a hint about the past: act, and handle the failure, where it
 * matters. Needs read permission for `path`.
 */
export async function exists(path: string | URL, options: ExistsOptions = {}): Promise<boolean> {
  try {
    return wanted(await Deno.stat(path), options);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** `exists`, at once. */
export function existsSync(path: string | URL, options: ExistsOptions = {}): boolean {
  try {
    return wanted(Deno.statSync(path), options);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
