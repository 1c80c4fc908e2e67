/**
 * The agent's side of a bridge, for tests of the kit: the shells that a sandbox may have, tool
 * directories with and without what may be missing, and a way to run a script of the kit in them.
 *
 * @module
 */
import { join } from "@std/path/join";
import { there } from "./bridge.ts";

/** Where programs are looked for when a tool directory is made. */
const DIRECTORIES = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/** What the kit may use where it finds it; nothing else is in a directory of tools. */
const TOOLS = [
  ..."awk cat chmod cp cut date dd env grep head id ls mkdir mktemp mv od printf rm".split(
    " ",
  ),
  ..."sed sha256sum sleep sort sync tail touch tr true uname wc xxd".split(" "),
];

function find(name: string): string | undefined {
  return DIRECTORIES.map((directory) => join(directory, name)).find(there);
}

/** One kind of sandbox. */
export interface Sandbox {
  readonly name: string;
  /** The interpreter and its first words. */
  readonly shell: readonly string[];
  readonly path: string;
}

/** Directories of tools in a temporary place, removed with it. */
export class Sandboxes implements Disposable {
  readonly directory: string = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-tools-" }));
  readonly all: readonly Sandbox[];
  /** Shells that this machine lacks. */
  readonly missing: readonly string[];

  constructor() {
    const all: Sandbox[] = [];
    const missing: string[] = [];
    for (const name of ["dash", "bash"]) {
      const shell = find(name);
      if (shell === undefined) missing.push(name);
      else {
        const bare = this.#tools(name, shell, TOOLS);
        const jq = this.#tools(`${name}-jq`, shell, [...TOOLS, "jq", "inotifywait"]);
        all.push({ name: `${name} without jq`, shell: [shell], path: bare });
        all.push({ name: `${name} with jq`, shell: [shell], path: jq });
      }
    }
    const busybox = find("busybox");
    if (busybox === undefined) missing.push("busybox");
    else {
      const only = join(this.directory, "busybox");
      Deno.mkdirSync(only);
      const { stdout } = new Deno.Command(busybox, { args: ["--list"] }).outputSync();
      for (const applet of new TextDecoder().decode(stdout).split("\n")) {
        if (/^[a-z0-9_[-]+$/.test(applet)) Deno.symlinkSync(busybox, join(only, applet));
      }
      all.push({ name: "busybox alone", shell: [busybox, "sh"], path: only });
      const found = find("jq");
      if (found !== undefined) {
        const both = join(this.directory, "busybox-jq");
        Deno.mkdirSync(both);
        Deno.symlinkSync(found, join(both, "jq"));
        all.push({ name: "busybox with jq", shell: [busybox, "sh"], path: `${both}:${only}` });
      }
    }
    this.all = all;
    this.missing = missing;
  }

  /** A directory of tools whose `sh` is `shell`. */
  #tools(name: string, shell: string, tools: readonly string[]): string {
    const directory = join(this.directory, name);
    Deno.mkdirSync(directory);
    Deno.symlinkSync(shell, join(directory, "sh"));
    for (const tool of tools) {
      const path = find(tool);
      if (path !== undefined) Deno.symlinkSync(path, join(directory, tool));
    }
    return directory;
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.directory, { recursive: true });
  }
}

/** What a script of the kit said. */
export interface Said {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a script of the kit in a sandbox. `chb` is its `$CHB_DIR`. */
export async function runKit(
  sandbox: Sandbox,
  script: string,
  args: readonly string[],
  chb: string,
  more: { env?: Record<string, string>; stdin?: string } = {},
): Promise<Said> {
  const [program = "", ...words] = sandbox.shell;
  const child = new Deno.Command(program, {
    args: [...words, script, ...args],
    cwd: "/",
    clearEnv: true,
    env: { PATH: sandbox.path, CHB_DIR: chb, ...more.env },
    stdin: more.stdin === undefined ? "null" : "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  if (more.stdin !== undefined) {
    const writer = child.stdin.getWriter();
    await writer.write(new TextEncoder().encode(more.stdin)).catch(() => {});
    await writer.close().catch(() => {});
  }
  const { code, stdout, stderr } = await child.output();
  const text = new TextDecoder();
  return { code, out: text.decode(stdout), err: text.decode(stderr) };
}
