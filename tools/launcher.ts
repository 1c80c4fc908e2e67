/**
 * Decides how the program is started from source: with the `@std` modules of the JSR registry
 * where it answers, else with the ones of `tools/std`, and in which environment Deno runs.
 *
 * Rules
 * 1. The decision ends. A registry that says nothing for a while counts as one that is not there,
 *    so a machine behind a wall waits seconds, not for ever.
 * 2. A registry that answers with other bytes than the lock file names is never taken for one that
 *    is not there: that is an error, and nothing runs.
 * 3. Nothing here, and nothing that it imports, imports `@std`: the tools must start before the
 *    decision is made.
 *
 * @module
 */
import { dirname, isAbsolute, join, resolve } from "node:path";

/** Where the `@std` modules come from. */
export type Std = "jsr" | "fallback";

/** A decision with its reason, for people. */
export interface StdChoice {
  readonly std: Std;
  readonly why: string;
}

/** Absolute path of the source tree. */
export const REPOSITORY: string = dirname(import.meta.dirname ?? Deno.cwd());

/** Absolute path of a file of the source tree. */
export function inRepository(...names: string[]): string {
  return join(REPOSITORY, ...names);
}

/** Milliseconds without a sign of life after which the registry counts as silent. */
const SILENCE_MS = 5_000;
/** Milliseconds after which a registry counts as too slow, whatever it says. */
const PATIENCE_MS = 60_000;

/** How to look for the registry; the defaults are right for everybody but the tests. */
export interface ProbeOptions {
  /** Environment on top of this process's own. */
  readonly env?: Readonly<Record<string, string>>;
  readonly silenceMs?: number;
  readonly patienceMs?: number;
  /** Lock file to hold the answer against, or null for none. */
  readonly lock?: string | null;
}

/** The registry's modules are not the ones of the lock file, or Deno could not judge them. */
export class RegistryError extends Error {
  override name = "RegistryError";
}

/** Environment of every Deno that the tools start. */
export const QUIET: Readonly<Record<string, string>> = Object.freeze({
  DENO_NO_UPDATE_CHECK: "1",
  DENO_NO_PROMPT: "1",
});

/**
 * Lets Deno fetch and cache all `@std` modules, and tells whether that worked. What has been
 * cached before needs no network.
 *
 * @throws {RegistryError} when what the registry gave is not what the lock file names.
 */
export async function probeRegistry(options: ProbeOptions = {}): Promise<StdChoice> {
  const lock = options.lock === undefined ? inRepository("deno.lock") : options.lock;
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "cache",
      `--config=${inRepository("deno.json")}`,
      ...(lock === null ? ["--no-lock"] : [`--lock=${lock}`]),
      inRepository("tools", "std", "probe.ts"),
    ],
    env: { ...QUIET, NO_COLOR: "1", ...options.env },
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();

  let gaveUp = "";
  const giveUp = (why: string) => {
    gaveUp ||= why;
    try {
      child.kill("SIGKILL");
    } catch {
      // It has ended by itself.
    }
  };
  const silenceMs = options.silenceMs ?? SILENCE_MS;
  const patience = setTimeout(() => giveUp("is too slow"), options.patienceMs ?? PATIENCE_MS);
  let silence = setTimeout(() => giveUp("is silent"), silenceMs);
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of child.stderr) {
    text = (text + decoder.decode(chunk, { stream: true })).slice(-4_000);
    clearTimeout(silence);
    silence = setTimeout(() => giveUp("is silent"), silenceMs);
  }
  const status = await child.status;
  clearTimeout(silence);
  clearTimeout(patience);

  if (gaveUp !== "") return { std: "fallback", why: `the JSR registry ${gaveUp}` };
  if (status.success) return { std: "jsr", why: "the JSR registry answers" };
  if (/integrity|lock ?file/i.test(text)) {
    throw new RegistryError(`Cannot use the JSR registry's modules:\n${text.trim()}`);
  }
  return { std: "fallback", why: "the JSR registry can not be reached" };
}

let decided: Promise<StdChoice> | undefined;

/**
 * Which `@std` modules to use. `CHB_STD=jsr` and `CHB_STD=fallback` decide by force; otherwise the
 * registry is asked, once a process.
 *
 * @throws {RegistryError} when the registry is required and not there, or not to be trusted.
 */
export function decideStd(): Promise<StdChoice> {
  decided ??= decide(Deno.env.get("CHB_STD") ?? "");
  return decided;
}

async function decide(forced: string): Promise<StdChoice> {
  if (forced === "fallback") return { std: "fallback", why: "CHB_STD says so" };
  if (forced !== "" && forced !== "jsr") {
    throw new RegistryError(`Cannot use CHB_STD: "${forced}" is neither "jsr" nor "fallback"`);
  }
  const choice = await probeRegistry({ env: cacheEnvironment() });
  if (forced === "jsr" && choice.std !== "jsr") {
    throw new RegistryError(`Cannot use @std as CHB_STD=jsr asks: ${choice.why}`);
  }
  return choice;
}

/** Flags of `deno run`, `test` and `check` that put the decision in force. */
export function stdFlags(std: Std): string[] {
  const config = `--config=${inRepository("deno.json")}`;
  if (std === "jsr") return [config];
  return [
    config,
    `--import-map=${inRepository("tools", "std", "import_map.json")}`,
    "--no-lock",
    "--no-remote",
    "--no-npm",
  ];
}

/** Where Deno keeps its cache for this user, or undefined when the environment does not say. */
export function cacheDirectory(): string | undefined {
  const own = Deno.env.get("DENO_DIR");
  if (own) return resolve(own);
  const xdg = Deno.env.get("XDG_CACHE_HOME");
  if (xdg && isAbsolute(xdg)) return join(xdg, "deno");
  const home = Deno.env.get("HOME");
  if (!home || !isAbsolute(home)) return undefined;
  return Deno.build.os === "darwin"
    ? join(home, "Library", "Caches", "deno")
    : join(home, ".cache", "deno");
}

function isWritable(directory: string): boolean {
  try {
    Deno.mkdirSync(directory, { recursive: true });
    Deno.removeSync(Deno.makeTempDirSync({ dir: directory, prefix: ".chb-" }));
    return true;
  } catch {
    return false;
  }
}

/** Deno's cache of this user when it can be written, else undefined. */
export function ownCache(): string | undefined {
  const own = cacheDirectory();
  return own !== undefined && isWritable(own) ? own : undefined;
}

let temporaryCache: string | undefined;

/**
 * The part of the environment that tells Deno where its cache is: the user's own, or a temporary
 * one, removed by `removeTemporaryCache`, for a user without a home that can be written.
 */
export function cacheEnvironment(): Record<string, string> {
  temporaryCache ??= ownCache() === undefined
    ? Deno.makeTempDirSync({ prefix: "chb-deno-" })
    : undefined;
  const directory = temporaryCache ?? cacheDirectory();
  return directory === undefined ? {} : { DENO_DIR: directory };
}

/** Removes the cache that `cacheEnvironment` made, if it did. */
export function removeTemporaryCache(): void {
  if (temporaryCache === undefined) return;
  Deno.removeSync(temporaryCache, { recursive: true });
  temporaryCache = undefined;
}

/** The directory that the human typed the command in; `deno task` itself changes it. */
export function invocationDirectory(): string {
  return Deno.env.get("INIT_CWD") ?? Deno.cwd();
}

/** Runs Deno in the source tree with this process's streams; resolves to its exit code. */
export async function runDeno(args: string[], env: Record<string, string> = {}): Promise<number> {
  const child = new Deno.Command(Deno.execPath(), {
    args,
    cwd: REPOSITORY,
    env: { ...QUIET, ...cacheEnvironment(), ...env },
    stdin: "null",
  }).spawn();
  return (await child.status).code;
}
