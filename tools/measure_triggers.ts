/**
 * Starts the measurement of triggers with the `@std` modules that are at hand:
 * `deno run -A tools/measure_triggers.ts [--help]`.
 *
 * @module
 */
import { cacheEnvironment, decideStd, inRepository, QUIET, stdFlags } from "./launcher.ts";

const { std } = await decideStd();
const child = new Deno.Command(Deno.execPath(), {
  args: [
    "run",
    "-A",
    "--quiet",
    ...stdFlags(std),
    inRepository("tools/measure_triggers_run.ts"),
    ...Deno.args,
  ],
  env: { ...QUIET, ...cacheEnvironment() },
  stdin: "null",
}).spawn();
Deno.exit((await child.status).code);
