/**
 * The entry point: starts one of three programs, the daemon, a shim, or a human command.
 *
 * The first word may be `--programs=A,B`, put there by whoever built or wrapped the program: the
 * programs that it was granted to run. A process can drop a grant only by naming it.
 *
 * Each of the three is loaded when it is the one: a start takes about as long as its modules do.
 *
 * @module
 */
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
  if (name === "shim") {
    const { runShim } = await import("./src/run/shim.ts");
    return await runShim();
  }
  const program = name === "serve" || name === "once" ? name : null;
  if (program !== null && !words.includes("--help") && !words.includes("-h")) {
    const { serve } = await import("./src/daemon/serve.ts");
    return await serve(words, programs);
  }
  const { programHelp, runHuman } = await import("./src/human/run_human.ts");
  const { terminalIo } = await import("./src/human/terminal_io.ts");
  if (program === null) return await runHuman(words, terminalIo(), programs);
  terminalIo().out(await programHelp(program));
  return 0;
}

Deno.exit(await main(Deno.args));
