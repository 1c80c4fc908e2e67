/**
 * Prints which `@std` modules a start from source would use here: `jsr` or `fallback`.
 *
 * @module
 */
import { decideStd, RegistryError, removeTemporaryCache } from "./launcher.ts";

if (import.meta.main) {
  let code = 0;
  try {
    console.log((await decideStd()).std);
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    console.error(error.message);
    code = 78;
  } finally {
    removeTemporaryCache();
  }
  Deno.exit(code);
}
