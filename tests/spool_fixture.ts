/**
 * What the tests of the spool share: a root in a temporary directory that is the working directory
 * while a test runs, and entries of every kind.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { randomHex } from "../src/names.ts";
import { agentPaths, ensureAgent } from "../src/spool/layout.ts";
import { claimEntry } from "../src/spool/claim.ts";
import type { Claim } from "../src/spool/types.ts";

export const AGENT = "main";
export const PATHS = agentPaths(AGENT);
export const IS_ROOT = Deno.uid() === 0;

/** A root with the layout that `chb init` makes, and a place beside it for files of the host. */
export class SpoolRoot {
  readonly root: string;
  /** Absolute; no sandbox would see it. */
  readonly outside: string;
  readonly #before = Deno.cwd();

  constructor() {
    const top = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-spool-" }));
    this.root = join(top, "root");
    this.outside = join(top, "host");
    for (const [path, mode] of [[this.root, 0o700], [this.outside, 0o755]] as const) {
      Deno.mkdirSync(path);
      Deno.chmodSync(path, mode);
    }
    Deno.chdir(this.root);
    for (const [path, mode] of [["bin", 0o755], ["base", 0o755], ["state", 0o700]] as const) {
      Deno.mkdirSync(path);
      Deno.chmodSync(path, mode);
    }
    Deno.writeTextFileSync("bin/chb", "#!/bin/sh\n");
    Deno.chmodSync("bin/chb", 0o555);
    ensureAgent(AGENT, null);
  }

  /** Writes a file of the host and returns its absolute path. */
  hostFile(name: string, text: string): string {
    const path = join(this.outside, name);
    Deno.writeTextFileSync(path, text);
    return path;
  }

  [Symbol.dispose](): void {
    Deno.chdir(this.#before);
    // A test may have left directories that cannot be listed.
    run("chmod", ["-R", "u+rwx", "--", join(this.root, "..")], { mayFail: true });
    Deno.removeSync(join(this.root, ".."), { recursive: true });
  }
}

/** Runs a program to its end and returns what it printed. */
export function run(
  program: string,
  args: readonly string[],
  options: { mayFail?: boolean; env?: Record<string, string> } = {},
): string {
  const { code, stdout, stderr } = new Deno.Command(program, {
    args: [...args],
    stdin: "null",
    ...(options.env === undefined ? {} : { env: options.env }),
  }).outputSync();
  const decoder = new TextDecoder();
  if (options.mayFail !== true) assertEquals(code, 0, decoder.decode(stderr));
  return decoder.decode(stdout);
}

/** Runs a line of shell. */
export function sh(line: string): string {
  return run("sh", ["-c", line]);
}

/** Path of an entry of the queue. */
export function entry(name: string): string {
  return `${PATHS.queue}/${name}`;
}

/** Puts a file into the queue. */
export function put(name: string, text = "{}"): void {
  Deno.writeTextFileSync(entry(name), text);
}

/** Claims an entry that is there. */
export function claim(name: string): Claim {
  const outcome = claimEntry(AGENT, name, { arrival_ms: Date.now(), random: randomHex(16) });
  if (outcome.kind !== "claimed") throw new Error(`${name}: ${JSON.stringify(outcome)}`);
  return outcome.claim;
}

/** Names in a directory, sorted. */
export function names(directory: string): string[] {
  return Array.from(Deno.readDirSync(directory), (one) => one.name).sort();
}

/** True when something has the name, whatever it is. */
export function there(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Permission bits in octal. */
export function modeOf(path: string): string {
  return ((Deno.lstatSync(path).mode ?? 0) & 0o7777).toString(8).padStart(4, "0");
}

export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Waits until `probe` is true, or fails. */
export async function until(what: string, probe: () => boolean, ms = 5000): Promise<void> {
  const end = performance.now() + ms;
  while (!probe()) {
    if (performance.now() > end) throw new Error(`Waited ${ms} ms for ${what}`);
    await sleep(5);
  }
}

/** A test for some users or machines only; where it is skipped, its name says why. */
export function testWhen(when: boolean, reason: string, name: string, fn: () => void): void {
  Deno.test({ name: when ? name : `${name} # SKIP ${reason}`, ignore: !when, fn });
}

/** Mounts a file system of 64 KiB over a directory. */
export function mountSmall(directory: string): void {
  run("mount", ["-t", "tmpfs", "-o", "size=64k", "none", directory]);
}

/** True when this user can mount a file system for the time of a test. */
export function canMount(): boolean {
  if (!IS_ROOT) return false;
  const directory = Deno.makeTempDirSync({ prefix: "chb-mount-" });
  try {
    mountSmall(directory);
    run("umount", [directory]);
    return true;
  } catch {
    return false;
  } finally {
    Deno.removeSync(directory);
  }
}
