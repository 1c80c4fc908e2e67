/**
 * Where the Deno that runs the tests keeps its cache, so that programs started from an empty
 * environment share it.
 *
 * @module
 */
import { join } from "@std/path/join";

/** Absolute path of the cache directory; one in a temporary directory when none is known. */
export function cacheDirectory(): string {
  const own = Deno.env.get("DENO_DIR");
  if (own !== undefined && own !== "") return own;
  const xdg = Deno.env.get("XDG_CACHE_HOME");
  if (xdg !== undefined && xdg !== "") return join(xdg, "deno");
  const home = Deno.env.get("HOME");
  return home === undefined || home === "" ? "/dev/null/deno" : join(home, ".cache/deno");
}
