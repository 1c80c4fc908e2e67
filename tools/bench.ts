/**
 * `deno task bench`: starts the benchmark with the `@std` modules that are at hand.
 *
 * @module
 */
import { cacheEnvironment, decideStd, inRepository, QUIET, stdFlags } from "./launcher.ts";

const { std, why } = await decideStd();
console.error(`std: ${std} (${why})`);
const child = new Deno.Command(Deno.execPath(), {
  args: [
    "run",
    "-A",
    "--quiet",
    ...stdFlags(std),
    inRepository("tools/bench_run.ts"),
    ...Deno.args,
  ],
  env: { ...QUIET, ...cacheEnvironment() },
  stdin: "null",
}).spawn();
Deno.exit((await child.status).code);
