/**
 * Stands in for `@std/fs/ensure-dir`: makes a directory and its parents where they are missing.
 *
 * @module
 */

/**
 * After this `dir` is a directory, or the call throws. Needs read and write permission for it.
 *
 * @throws {Error} when something else than a directory has the name.
 */
export async function ensureDir(dir: string | URL): Promise<void> {
  await Deno.mkdir(dir, { recursive: true });
}

/** `ensureDir`, at once. */
export function ensureDirSync(dir: string | URL): void {
  Deno.mkdirSync(dir, { recursive: true });
}
