/**
 * Imports every `@std` module that the program and its tests use. The launcher lets Deno fetch it
 * to learn whether the JSR registry answers, and so that all of them are cached when it does.
 *
 * @module
 */
import "@std/assert";
import "@std/cli/parse-args";
import "@std/fs/ensure-dir";
import "@std/fs/exists";
import "@std/jsonc";
import "@std/path/dirname";
import "@std/path/join";
