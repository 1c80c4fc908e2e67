/**
 * The entry point: starts one of three programs, the daemon, a shim, or a human command.
 *
 * The first word may be `--programs=A,B`, put there by whoever built or wrapped the program: the
 * programs that it was granted to run. A process can drop a grant only by naming it.
 *
 * @module
 */
import { serve } from "./src/daemon/serve.ts";
import { programHelp, runHuman } from "./src/human/run_human.ts";
import { terminalIo } from "./src/human/terminal_io.ts";
import { runShim } from "./src/run/shim.ts";

const PROGRAMS = "--programs=";

async function main(args: readonly string[]): Promise<number> {
  let words = args;
  let programs: string[] = [];
  const [first] = words;
  if (first !== undefined && first.startsWith(PROGRAMS)) {
    programs = first.slice(PROGRAMS.length).split(",").filter((p) => p !== "");
    words = words.slice(1);
  }
  const [name] = words;
  if (name === "shim") return await runShim();
  if (name === "serve" || name === "once") {
    if (words.includes("--help") || words.includes("-h")) {
      terminalIo().out(programHelp(name));
      return 0;
    }
    return await serve(words, programs);
  }
  return await runHuman(words, terminalIo(), programs);
}

Deno.exit(await main(Deno.args));
