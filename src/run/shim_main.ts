/**
 * The entry point of a shim that is started from source. It comes to the same as `main.ts shim`, and
 * loads only what a shim runs: a fifth of the program's modules, which matters where each is read,
 * compiled and set up anew with every start.
 *
 * @module
 */
import { runShim } from "./shim.ts";

Deno.exit(await runShim());
