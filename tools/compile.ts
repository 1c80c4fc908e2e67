/**
 * Makes the host-only executable: `deno task compile [--policy FILE] [--out FILE]
 * [--target TARGET] [--jit]`. The grants are compiled in, so a policy decides what the executable
 * can run at all.
 *
 * Rules
 * 1. Nothing in the executable points outside of it: modules are embedded and found by relative
 *    path. An absolute path in the import map would make it load source from the disk, unverified.
 * 2. The same source and policy give the same bytes, wherever the tree lies and whenever its files
 *    were written: it is compiled from a copy whose times are all the same, since Deno embeds them.
 * 3. No npm package gets in, and in `jsr` mode nothing that the lock file does not name.
 * 4. The executable keeps no code cache: it would lie under a name that anybody can guess in the
 *    temporary directory, and what it holds is run unverified.
 * 5. It makes no machine code while it runs, unless that is asked for: a unit can then deny that to
 *    it and to all that it starts. It costs this program nothing that can be measured: it waits for
 *    the disk and for its children.
 * 6. The executable appears under its name whole, by a rename, and takes the mode of what it
 *    replaces: a running program, or the wrapper that runs from source, which Deno by itself would
 *    not overwrite.
 * 7. Types are not checked again: that takes most of the time, and changes nothing of what is made.
 *
 * `DENO_COMPILE` names another Deno to compile with, and `DENORT_BIN`, Deno's own variable, the
 * runtime that it builds on. Without it Deno fetches the runtime of the target.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { basename, dirname, join, resolve } from "node:path";
import {
  genericPrograms,
  killPath,
  permissionFlags,
  programsWord,
  SYSTEM,
  type System,
} from "../src/permissions.ts";
import { currentCommit } from "./commit.ts";
import { importMap } from "./import_map.ts";
import {
  cacheEnvironment,
  decideStd,
  invocationDirectory,
  QUIET,
  RegistryError,
  removeTemporaryCache,
  REPOSITORY,
  type Std,
} from "./launcher.ts";
import { policyNeeds } from "./programs.ts";
import { v8Word } from "./runtime_flags.ts";

/** What an executable can be made for. */
export const TARGETS = [
  "x86_64-unknown-linux-gnu",
  "aarch64-unknown-linux-gnu",
  "x86_64-apple-darwin",
  "aarch64-apple-darwin",
] as const;

export type Target = (typeof TARGETS)[number];

const USAGE = `usage: deno task compile [--policy FILE] [--out FILE] [--target TARGET] [--jit]

Makes the executable, ./chb by default. With a policy it may run the programs of that policy and no
others; without one, docker, podman and their companions where they usually are, and date.
--target makes it for another machine: ${TARGETS.join(", ")}.
It makes no code while it runs, so that a unit can deny it that; --jit makes one that does.
Example:  deno task compile --policy bridge.jsonc --out chb`;

const EXIT = { usage: 64, config: 78 };

interface Options {
  readonly policy: string | undefined;
  readonly out: string;
  readonly target: Target | undefined;
  readonly jitless: boolean;
}

/** The choices on a command line, or undefined when they are none. */
export function parseOptions(args: readonly string[]): Options | undefined {
  const given = new Map<string, string>();
  let jitless = true;
  for (let i = 0; i < args.length; i++) {
    if (args[i] === "--jit" && jitless) {
      jitless = false;
      continue;
    }
    const [, name, inline] = /^--(policy|out|target)(?:=(.+))?$/s.exec(args[i] ?? "") ?? [];
    const value = inline ?? args[++i];
    if (name === undefined || value === undefined || given.has(name)) return undefined;
    given.set(name, value);
  }
  const target = TARGETS.find((known) => known === given.get("target"));
  if (given.has("target") && target === undefined) return undefined;
  const path = (name: string) => {
    const value = given.get(name);
    return value === undefined ? undefined : resolve(invocationDirectory(), value);
  };
  return {
    policy: path("policy"),
    out: path("out") ?? resolve(invocationDirectory(), "chb"),
    target,
    jitless,
  };
}

/** The system of a target; of this machine when there is none. */
export function systemOf(target: Target | undefined): System {
  if (target === undefined) return SYSTEM;
  return target.endsWith("-darwin") ? "darwin" : "linux";
}

/**
 * The kill helper; the executable can use no other. Of this machine when it is made for its kind,
 * else where the other system has it.
 */
function kill(system: System): string {
  if (system !== SYSTEM) return system === "darwin" ? "/bin/kill" : "/usr/bin/kill";
  return killPath((path) => {
    try {
      return Deno.statSync(path).isFile;
    } catch {
      return false;
    }
  });
}

/** What a program may embed: everything but hidden names and what was built before. */
function isSource(entry: Deno.DirEntry): boolean {
  return !entry.name.startsWith(".") && entry.name !== "node_modules";
}

/** Largest file that is taken for source, in bytes: an executable in the tree is larger. */
const SOURCE_MAX = 4 * 1024 * 1024;

/** Copies the source files below `from` to `to`, all with one modification time. */
function copySource(from: string, to: string): void {
  Deno.mkdirSync(to, { recursive: true });
  for (const entry of Deno.readDirSync(from)) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (!isSource(entry)) continue;
    if (entry.isDirectory) copySource(source, target);
    else if (entry.isFile && Deno.statSync(source).size <= SOURCE_MAX) {
      Deno.copyFileSync(source, target);
      Deno.utimeSync(target, 0, 0);
    }
  }
}

/** Name of the generated import map in the copy; it lies at the top, so that it stays relative. */
const IMPORT_MAP = "import_map.json";

/**
 * A copy of the source tree, ready to be compiled, in a new temporary directory.
 *
 * @returns its path; the caller removes it
 */
export function stageSource(std: Std, commit: string): string {
  const stage = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-compile-" }));
  copySource(REPOSITORY, stage);
  const map = JSON.stringify(importMap(std, commit, "./"));
  Deno.writeTextFileSync(join(stage, IMPORT_MAP), map);
  return stage;
}

/** The arguments of `deno compile` for a staged tree. */
export function compileArgs(
  stage: string,
  std: Std,
  permissions: readonly string[],
  programs: readonly string[],
  out: string,
  more: { readonly target?: Target | undefined; readonly jitless?: boolean } = {},
): string[] {
  return [
    "compile",
    "--quiet",
    "--no-config",
    "--no-check",
    ...(std === "jsr"
      ? [`--lock=${join(stage, "deno.lock")}`, "--frozen"]
      : ["--no-lock", "--no-remote"]),
    "--no-npm",
    "--no-code-cache",
    ...(more.target === undefined ? [] : [`--target=${more.target}`]),
    v8Word(more.jitless === true),
    "--unstable-raw-imports",
    `--import-map=${join(stage, IMPORT_MAP)}`,
    ...permissions,
    `--output=${out}`,
    join(stage, "main.ts"),
    programsWord(programs),
  ];
}

/** The mode of the file at a path; null when nothing is there. */
function modeOf(path: string): number | null {
  try {
    return (Deno.statSync(path).mode ?? 0o755) & 0o777;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return null;
    throw error;
  }
}

/** Puts a finished file where it belongs, in place of what is there. */
function putInPlace(made: string, out: string): void {
  const mode = modeOf(out);
  if (mode !== null) Deno.chmodSync(made, mode | 0o111);
  Deno.renameSync(made, out);
}

async function main(): Promise<number> {
  const options = parseOptions(Deno.args);
  if (options === undefined) {
    console.error(USAGE);
    return EXIT.usage;
  }
  const { std, why } = await decideStd();
  console.log(`std: ${std} (${why})`);
  const system = systemOf(options.target);
  let programs: readonly string[] = genericPrograms(system);
  let agents: readonly string[] = ["main"];
  if (options.policy !== undefined) {
    const needs = await policyNeeds(std, [options.policy]);
    if (needs.why !== null) {
      console.error(`Cannot compile for this policy: ${needs.why}`);
      return EXIT.config;
    }
    ({ programs, agents } = needs);
  }
  const permissions = permissionFlags(programs, kill(system), agents);
  Deno.mkdirSync(dirname(options.out), { recursive: true });
  const beside = Deno.makeTempDirSync({ dir: dirname(options.out), prefix: ".chb-compile-" });
  const made = join(beside, basename(options.out));
  const stage = stageSource(std, currentCommit());
  let code: number;
  try {
    ({ code } = await new Deno.Command(Deno.env.get("DENO_COMPILE") || Deno.execPath(), {
      args: compileArgs(stage, std, permissions, programs, made, options),
      cwd: stage,
      env: { ...QUIET, ...cacheEnvironment() },
      stdin: "null",
      stdout: "inherit",
      stderr: "inherit",
    }).output());
    if (code === 0) putInPlace(made, options.out);
  } finally {
    Deno.removeSync(stage, { recursive: true });
    Deno.removeSync(beside, { recursive: true });
  }
  if (code !== 0) return code;
  const bytes = Deno.readFileSync(options.out);
  console.log(permissions.join("\n"));
  console.log(v8Word(options.jitless));
  console.log(`target: ${options.target ?? Deno.build.target}`);
  console.log(`file:   ${options.out}`);
  console.log(`size:   ${bytes.length} bytes`);
  console.log(`sha256: ${createHash("sha256").update(bytes).digest("hex")}`);
  return 0;
}

if (import.meta.main) {
  let code: number = EXIT.config;
  try {
    code = await main();
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    console.error(error.message);
  } finally {
    removeTemporaryCache();
  }
  Deno.exit(code);
}
