/** The smallest program with a shim in it, for tests that start one under the real permissions. */
import { runShim } from "../../src/run/shim.ts";

Deno.exit(await runShim());
