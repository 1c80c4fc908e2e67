/**
 * Runs chb from source: `deno task chb --root DIR <command...>`. It keeps `DIR/bin/chb` up to date,
 * a wrapper that grants exactly what the program may have, and runs the command through it, as the
 * daemon runs its shims.
 *
 * @module
 */
import { createHash, randomBytes } from "node:crypto";
import { join, resolve } from "node:path";
import { GENERIC_PROGRAMS, killPath } from "../src/permissions.ts";
import { currentCommit } from "./commit.ts";
import {
  decideStd,
  invocationDirectory,
  ownCache,
  RegistryError,
  removeTemporaryCache,
} from "./launcher.ts";
import { policyNeeds } from "./programs.ts";
import { lookUpwards, rootFindings } from "./root_check.ts";
import { WRAPPER_HEAD, type WrapperFacts, wrapperFacts, wrapperText } from "./wrapper.ts";

const USAGE = `usage: deno task chb --root DIR COMMAND [ARGUMENT...]

Runs chb from source in DIR, through DIR/bin/chb, which is written when it is missing or out of
date. Example:  deno task chb --root ~/.local/share/chb/app status`;

/** Exit codes, those of chb itself. */
const EXIT = { usage: 64, refused: 77, config: 78 };

/** Commands that say nothing useful outside a bridge. */
const NEEDS_BRIDGE = new Set(["check", "trust", "status", "mounts", "serve", "once"]);

/** A cache that nothing can be written to: local modules are then compiled at every start. */
const NO_CACHE = "/dev/null/deno";

/** Ends this program with a message. */
export class Stop extends Error {
  readonly exitCode: number;
  constructor(exitCode: number, message: string) {
    super(message);
    this.exitCode = exitCode;
  }
}

interface CommandLine {
  readonly root: string;
  readonly command: readonly string[];
}

function parseCommandLine(args: readonly string[]): CommandLine {
  const [first = "", ...rest] = args;
  if (first.startsWith("--root=") && rest.length > 0) {
    return { root: first.slice("--root=".length), command: rest };
  }
  const [root, ...command] = rest;
  if (first !== "--root" || root === undefined || root === "" || command.length === 0) {
    throw new Stop(EXIT.usage, USAGE);
  }
  return { root, command };
}

/** The real path of the root. Only `init` starts from nothing. */
function openRoot(root: string, command: readonly string[]): string {
  const path = resolve(invocationDirectory(), root);
  if (command[0] === "init") Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
  try {
    if (!Deno.statSync(path).isDirectory) throw new Stop(EXIT.config, `${path} is no directory`);
    return Deno.realPathSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.PermissionDenied) {
      throw new Stop(
        EXIT.config,
        `This user may not look at ${path}. Run chb as the owner of the root`,
      );
    }
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new Stop(
      EXIT.config,
      `There is no ${path}. The command init makes it and prints what to run in it`,
    );
  }
}

/** True when the init script has been run in `root`, or a human has put a policy there. */
function isBridge(root: string): boolean {
  return exists(join(root, "bridge.jsonc")) || exists(join(root, "state"));
}

/** Texts of the policies whose programs must be runnable: as edited, and as ever trusted. */
function policyFiles(root: string): string[] {
  const files: string[] = [];
  try {
    Deno.statSync(join(root, "bridge.jsonc"));
    files.push(join(root, "bridge.jsonc"));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  const trusted = join(root, "state", "policies");
  try {
    for (const { name } of Deno.readDirSync(trusted)) {
      if (name.endsWith(".jsonc")) files.push(join(trusted, name));
    }
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  return files.sort();
}

/** What the texts say together: the copy that is made by trusting one changes nothing. */
function digestOf(files: readonly string[]): string {
  const sha256 = (data: string | Uint8Array) => createHash("sha256").update(data).digest("hex");
  const texts = new Set(files.map((file) => sha256(Deno.readFileSync(file))));
  return sha256([...texts].sort().join("\n"));
}

function readText(path: string): string | undefined {
  try {
    return Deno.readTextFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}

/** What the wrapper of `root` should be made from; `before` saves asking what was asked before. */
async function gatherFacts(
  root: string,
  before: WrapperFacts | undefined,
): Promise<WrapperFacts> {
  const files = policyFiles(root);
  const policies = digestOf(files);
  const cache = ownCache();
  const here = {
    commit: currentCommit(),
    kill: killPath(exists),
    deno: Deno.execPath(),
    cache: cache ?? NO_CACHE,
  };
  const forced = Deno.env.get("CHB_STD");
  if (
    before !== undefined && before.policies === policies && (forced ?? before.std) === before.std
  ) {
    return { ...before, ...here };
  }
  // Without a cache that stays, the registry's modules would be gone at the next start.
  if (cache === undefined && forced === "jsr") {
    throw new Stop(EXIT.config, "CHB_STD=jsr needs a cache that can be written: set DENO_DIR");
  }
  const { std, why } = cache === undefined
    ? { std: "fallback" as const, why: "there is no cache that can be written" }
    : await decideStd();
  console.error(`std: ${std} (${why})`);
  const mirror = Deno.env.get("JSR_URL");
  const base = { std, ...here, ...(std === "jsr" && mirror ? { registry: mirror } : {}) };
  const generic = { programs: GENERIC_PROGRAMS, agents: ["main"] };
  if (files.length === 0) return { ...base, policies, ...generic };
  const needs = await policyNeeds(std, files);
  const { programs, agents, why: unread } = needs;
  if (unread === null) return { ...base, policies, programs, agents };
  // What is trusted goes on running while its successor is being written.
  console.error(`A policy can not be read, so nothing is granted for it: ${unread}`);
  return {
    ...base,
    policies: "unreadable",
    programs: [...new Set([...generic.programs, ...programs])].sort(),
    agents: [...new Set([...generic.agents, ...agents])].sort(),
  };
}

/**
 * Makes `bin/chb` what it should be. It is replaced by rename, so a process that runs it goes on.
 *
 * @param root real path of the root
 * @throws {Stop} when `bin/chb` is no wrapper
 */
export async function updateWrapper(root: string): Promise<void> {
  const bin = join(root, "bin");
  const path = join(bin, "chb");
  const before = readText(path);
  if (before !== undefined && !before.startsWith(WRAPPER_HEAD)) {
    throw new Stop(
      EXIT.refused,
      `${path} is an installed chb, not a wrapper: run it from ${root}, or remove it first`,
    );
  }
  const known = before === undefined ? undefined : wrapperFacts(before);
  const facts = await gatherFacts(root, known);
  const text = wrapperText(facts);
  if (before === text) return;
  if (!exists(bin)) {
    Deno.mkdirSync(bin);
    Deno.chmodSync(bin, 0o755);
  }
  const temporary = join(bin, `.chb.${randomBytes(8).toString("hex")}`);
  Deno.writeTextFileSync(temporary, text, { createNew: true });
  Deno.chmodSync(temporary, 0o555);
  Deno.renameSync(temporary, path);
}

/** Runs the wrapper in its root, with our streams; resolves to its exit code. */
export async function runWrapper(root: string, command: readonly string[]): Promise<number> {
  // Listened to before there is a child: a signal is delivered between turns, so none gets lost.
  const listeners = (["SIGTERM", "SIGHUP", "SIGINT"] as const).map((signal) => {
    const listener = () => {
      // A terminal sends its interrupt to both of us.
      if (signal === "SIGINT" && Deno.stdin.isTerminal()) return;
      try {
        child.kill(signal);
      } catch {
        // It has ended already.
      }
    };
    Deno.addSignalListener(signal, listener);
    return () => Deno.removeSignalListener(signal, listener);
  });
  const child = new Deno.Command(join(root, "bin", "chb"), {
    args: [...command],
    cwd: root,
    stdin: "inherit",
  }).spawn();
  const { code } = await child.status;
  for (const remove of listeners) remove();
  return code;
}

async function main(): Promise<number> {
  const { root: given, command } = parseCommandLine(Deno.args);
  const root = openRoot(given, command);
  // Nothing is left in a directory that was named by mistake.
  if (NEEDS_BRIDGE.has(command[0] ?? "") && !isBridge(root)) {
    throw new Stop(EXIT.config, `${root} is no bridge: run init first, then the script it prints`);
  }
  if (command[0] === "serve" || command[0] === "once") {
    const findings = rootFindings(lookUpwards(root), Deno.uid() ?? -1);
    if (findings.length > 0) throw new Stop(EXIT.config, findings.join("\n"));
  }
  try {
    await updateWrapper(root);
  } finally {
    removeTemporaryCache();
  }
  return await runWrapper(root, command);
}

if (import.meta.main) {
  try {
    Deno.exit(await main());
  } catch (error) {
    if (!(error instanceof Stop || error instanceof RegistryError)) throw error;
    console.error(error.message);
    Deno.exit(error instanceof Stop ? error.exitCode : EXIT.config);
  }
}
