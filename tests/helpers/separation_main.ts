/**
 * The program itself, and on its way out an attempt at everything that it must not be able to do.
 *
 * `base/tries.json` says what is tried. The real entry point runs with the real command line; when
 * it ends the process, what it gave up at its start is given up still, and one line of JSON on
 * standard output tells what each attempt came to. With the one word `control` the entry point is
 * left out: the same attempts with the same grants, by a process that gave up nothing.
 *
 * @module
 */
import { closeSync, lstatSync, openSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";

/** What is tried. Paths are relative to the root or absolute. */
export interface Tries {
  /** The command that tries: `serve`, `once` or `shim`. The daemon's own shims are left alone. */
  readonly who: string;
  /** Programs to start. */
  readonly run: readonly string[];
  /** Files to read. */
  readonly read: readonly string[];
  /** Directories to list. */
  readonly list: readonly string[];
  /** Directories to write in: each has a file `try-WAY` for each way. */
  readonly write: readonly string[];
}

/** Only the program reads it; a test imports this file for its names. */
const tries: Tries = import.meta.main
  ? JSON.parse(Deno.readTextFileSync("base/tries.json"))
  : { who: "", run: [], read: [], list: [], write: [] };

function attempt(action: () => unknown): string {
  try {
    action();
    return "ok";
  } catch (error) {
    if (!(error instanceof Error)) return "thrown";
    return "code" in error && typeof error.code === "string" && error.name === "Error"
      ? error.code
      : error.name;
  }
}

const quiet = { clearEnv: true, stdin: "null", stdout: "null", stderr: "null" } as const;

/** Each way that there is to start a program, by name. */
const RUN: Record<string, (program: string) => unknown> = {
  run: (program) => new Deno.Command(program, quiet).outputSync(),
  spawn: (program) => new Deno.Command(program, { ...quiet, stdin: "piped" }).spawn(),
};

const READ: Record<string, (path: string) => unknown> = {
  read: (path) => Deno.readFileSync(path),
  open: (path) => Deno.openSync(path, { read: true }).close(),
  stat: (path) => Deno.lstatSync(path),
  real: (path) => Deno.realPathSync(path),
  "node read": (path) => readFileSync(path),
  "node stat": (path) => statSync(path),
  "node lstat": (path) => lstatSync(path),
  "node open": (path) => closeSync(openSync(path, "r")),
  database: (path) => new DatabaseSync(path, { readOnly: true }).close(),
};

const LIST: Record<string, (path: string) => unknown> = {
  list: (path) => [...Deno.readDirSync(path)],
  watch: (path) => Deno.watchFs(path).close(),
};

/** Each way to change something; every one gets a file of its own. */
export const WRITE: Record<string, (path: string) => unknown> = {
  write: (path) => Deno.writeTextFileSync(path, "evil"),
  append: (path) => Deno.writeTextFileSync(path, "evil", { append: true, create: false }),
  create: (path) => Deno.openSync(`${path}.new`, { write: true, createNew: true }).close(),
  truncate: (path) => Deno.truncateSync(path, 0),
  rename: (path) => Deno.renameSync(path, `${path}.moved`),
  remove: (path) => Deno.removeSync(path),
  directory: (path) => Deno.mkdirSync(`${path}.d`),
  link: (path) => Deno.linkSync(path, `${path}.link`),
  chmod: (path) => Deno.chmodSync(path, 0o777),
  "node-write": (path) => writeFileSync(path, "evil"),
};

/** Powers that no process of this program has. */
const POWERS: Record<string, () => unknown> = {
  net: () => Deno.listen({ port: 0, hostname: "127.0.0.1" }).close(),
  // Older runtimes count a socket among files: then only where this process may write anyway.
  unix: () => Deno.listen({ transport: "unix", path: "base/socket" }).close(),
  env: () => Deno.env.toObject(),
  sys: () => Deno.hostname(),
  ffi: () => Deno.dlopen("libc.so.6", {}),
  "kill others": () => Deno.kill(1, "SIGCONT"),
  "read anything": () => Deno.readTextFileSync("/etc/hostname"),
  "write anything": () => Deno.makeTempDirSync(),
};

function tryAll(): Record<string, string> {
  const out: Record<string, string> = {};
  const go = (ways: Record<string, (what: string) => unknown>, list: readonly string[]) => {
    for (const what of list) {
      for (const [way, action] of Object.entries(ways)) {
        out[`${way} ${what}`] = attempt(() => action(what));
      }
    }
  };
  go(RUN, tries.run);
  go(READ, tries.read);
  go(LIST, tries.list);
  for (const dir of tries.write) {
    for (const [way, action] of Object.entries(WRITE)) {
      out[`${way} in ${dir}`] = attempt(() => action(`${dir}/try-${way}`));
    }
  }
  for (const [power, action] of Object.entries(POWERS)) out[power] = attempt(action);
  return out;
}

function tell(): void {
  console.log(JSON.stringify(tryAll()));
}

if (import.meta.main) {
  if (Deno.args.includes("control")) tell();
  else {
    if (Deno.args.includes(tries.who)) globalThis.addEventListener("unload", tell);
    await import("../../main.ts");
  }
}
