/**
 * The text of `bin/chb` for a program that runs from source: a shell script that becomes Deno with
 * fixed flags, and nothing else.
 *
 * Rules
 * 1. It starts from an empty environment: a variable of the caller could load code, replace the
 *    permission decisions or move the cache (X6).
 * 2. Nothing is looked up on the way: interpreter, `env`, Deno, program and import map are named
 *    absolutely, and no configuration file beside the program is read (X5).
 * 3. It grants exactly what `src/permissions.ts` says, for the programs that the policy names.
 * 4. It is replaced by `exec`, so the process id stays, and it closes what its caller left open:
 *    Deno's children would inherit it.
 * 5. A shim gets an entry point of its own, with the same permissions, that loads less.
 * 6. The runtime keeps its memory small (`runtime_flags.ts`).
 * 7. The facts that it was made from stand in it, so that the next start can tell whether they
 *    still hold without asking registry and policy again.
 *
 * @module
 */
import { MALLOC_ENVIRONMENT, permissionFlags, programsWord } from "../src/permissions.ts";
import { importMapUrl } from "./import_map.ts";
import { inRepository, type Std } from "./launcher.ts";
import { v8Word } from "./runtime_flags.ts";

/** What a wrapper is made from. */
export interface WrapperFacts {
  readonly std: Std;
  readonly commit: string;
  /** Digest over the policies that the programs come from. */
  readonly policies: string;
  readonly programs: readonly string[];
  readonly agents: readonly string[];
  /** Absolute path of the helper that signals process groups. */
  readonly kill: string;
  /** Absolute path of the Deno to run. */
  readonly deno: string;
  /** The registry that the cached modules came from, when it is not the usual one. */
  readonly registry?: string;
  /** Absolute path of the program's entry point; that of this source tree when absent. */
  readonly main?: string;
  /** Absolute directory of Deno's cache. */
  readonly cache: string;
}

/** How every wrapper begins. */
export const WRAPPER_HEAD = "#!/bin/sh\n# Runs chb from source.";

const FACTS = "# facts: ";

/** The entry points of a source tree, of the whole program and of a shim alone. */
export const ENTRIES = Object.freeze({
  main: inRepository("main.ts"),
  shim: inRepository("src", "run", "shim_main.ts"),
});

/** What stands for the entry point until it is known who is started. */
const ENTRY = '"$entry"';

/** One word of a shell command, whatever characters it holds. */
function quote(word: string): string {
  return /^[A-Za-z0-9_./:=,@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The flags of `deno run` that the wrapper starts the program with, up to its own words. */
export function runFlags(facts: WrapperFacts): string[] {
  return [...flagsBefore(facts), facts.main ?? ENTRIES.main, programsWord(facts.programs)];
}

function flagsBefore(facts: WrapperFacts): string[] {
  return [
    "run",
    "--quiet",
    "--no-config",
    "--no-lock",
    // Deno takes cached modules of the registry for remote ones.
    ...(facts.std === "jsr" ? [] : ["--no-remote"]),
    "--no-npm",
    "--cached-only",
    "--unstable-raw-imports",
    v8Word(false),
    `--import-map=${importMapUrl(facts.std, facts.commit)}`,
    ...permissionFlags(facts.programs, facts.kill, facts.agents),
  ];
}

/** The whole script. */
export function wrapperText(facts: WrapperFacts): string {
  const command = [
    ...[facts.deno, ...flagsBefore(facts)].map(quote),
    ENTRY,
    quote(programsWord(facts.programs)),
  ];
  const environment = [
    "DENO_NO_UPDATE_CHECK=1",
    ...MALLOC_ENVIRONMENT,
    `DENO_DIR=${facts.cache}`,
    ...(facts.registry === undefined ? [] : [`JSR_URL=${facts.registry}`]),
  ];
  return [
    `${WRAPPER_HEAD} Written by \`deno task chb\`, and again whenever it would differ.`,
    `${FACTS}${JSON.stringify(facts)}`,
    `entry=${quote(facts.main ?? ENTRIES.main)}`,
    ...(facts.main === undefined ? [`[ "$1" != shim ] || entry=${quote(ENTRIES.shim)}`] : []),
    "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-",
    `exec /usr/bin/env -i \${NO_COLOR:+NO_COLOR=1} ${environment.map(quote).join(" ")} \\`,
    `  ${command.join(" \\\n  ")} "$@"`,
    "",
  ].join("\n");
}

/** The facts that a wrapper was made from, or undefined when it is not one of ours. */
export function wrapperFacts(text: string): WrapperFacts | undefined {
  const line = text.split("\n").find((candidate) => candidate.startsWith(FACTS));
  if (line === undefined) return undefined;
  try {
    const facts: WrapperFacts = JSON.parse(line.slice(FACTS.length));
    // Whoever edited the script gets a new one: only a script that says what it does is believed.
    return wrapperText(facts) === text ? facts : undefined;
  } catch {
    return undefined;
  }
}
