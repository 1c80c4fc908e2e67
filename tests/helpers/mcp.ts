/**
 * The MCP server for tests: its SDK, the two ways to start it (from source and compiled on its own), a
 * container with the mounts of a sandbox and no more, and the official client.
 *
 * @module
 */
import { assert } from "@std/assert";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { inRepository } from "../../tools/launcher.ts";
import { there, until } from "./bridge.ts";

const HERE = inRepository("agent", "mcp");
const CONFIG = join(HERE, "deno.json");

interface Info {
  readonly denoDir: string;
}

/** Where Deno's modules are, once those of the server are there; or why they are not. */
function prepared(): Info | string {
  try {
    const cached = new Deno.Command(Deno.execPath(), {
      args: ["cache", "--quiet", "--config", CONFIG, join(HERE, "mcp.ts"), join(HERE, "drive.ts")],
      stdin: "null",
    }).outputSync();
    if (!cached.success) return "the MCP SDK cannot be had from the npm registry";
    const { stdout } = new Deno.Command(Deno.execPath(), { args: ["info", "--json"] }).outputSync();
    return JSON.parse(new TextDecoder().decode(stdout));
  } catch (error) {
    return error instanceof Error ? error.message : "unknown";
  }
}
const INFO = prepared();
/** Why the server cannot be tested here, or null. */
export const NO_SDK: string | null = typeof INFO === "string" ? INFO : null;

/** Flags of a container that sees the three mounts, system libraries and `see`, and no network. */
export function container(chb: string, see: readonly string[] = []): string[] {
  return [
    "bwrap",
    ...[
      "--unshare-all",
      "--die-with-parent",
      "--proc",
      "/proc",
      "--dev",
      "/dev",
      "--tmpfs",
      "/tmp",
    ],
    ...["/usr/lib", "/lib", "/lib64", ...see].flatMap((path) => ["--ro-bind-try", path, path]),
    ...["--bind", join(chb, "queue"), "/chb/queue"],
    ...["--ro-bind", join(chb, "results"), "/chb/results"],
    ...["--ro-bind", join(chb, "inbox"), "/chb/inbox"],
    ...["--chdir", "/", "--setenv", "HOME", "/tmp"],
  ];
}

/** What the server needs in a container when it runs from source. */
export function sourceFlags(): string[] {
  const { denoDir } = INFO as Info;
  const deno = dirname(Deno.realPathSync(Deno.execPath()));
  return [
    ...["/etc/ssl", "/etc/passwd", HERE, deno, denoDir]
      .flatMap((path) => ["--ro-bind-try", path, path]),
    ...["--setenv", "DENO_DIR", denoDir],
  ];
}

/** The command that starts the server from source, with exactly what it is compiled with. */
export function serverCommand(base: string): string[] {
  const roles = ["queue", "results", "inbox"].map((role) => `${base}/${role}`);
  return [
    Deno.realPathSync(Deno.execPath()),
    ...["run", "--quiet", "--no-prompt", "--cached-only", "--config", CONFIG],
    `--allow-read=${roles.join(",")}`,
    `--allow-write=${base}/queue`,
    join(HERE, "mcp.ts"),
    base,
  ];
}

/**
 * Compiles the server as its own task does, for a bridge at `/chb`.
 *
 * @returns the executable, in `directory`
 */
export async function compileServer(directory: string): Promise<string> {
  const { tasks } = JSON.parse(Deno.readTextFileSync(CONFIG));
  const words: string[] = tasks.compile.command.split(" ");
  const made = join(directory, "chb-mcp");
  assert(words[0] === "deno" && words.includes("--output=chb-mcp"), words.join(" "));
  const { success, stderr } = await new Deno.Command(
    Deno.env.get("DENO_COMPILE") || Deno.execPath(),
    {
      args: words.slice(1).map((w) => w === "--output=chb-mcp" ? `--output=${made}` : w),
      cwd: HERE,
      stdin: "null",
    },
  ).output();
  assert(success, new TextDecoder().decode(stderr));
  return made;
}

/** True where a container can be made of namespaces. */
export function canContain(): boolean {
  try {
    const args = ["--ro-bind", "/", "/", "--unshare-all", "--proc", "/proc", "true"];
    return new Deno.Command("bwrap", { args, stderr: "null" }).outputSync().success;
  } catch {
    return false;
  }
}

export interface Came {
  readonly text: string;
  readonly error?: boolean;
  readonly thrown?: string;
  readonly progress: readonly string[];
}

/** A client with its server. */
export class Client implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  #out = "";
  #reading: Promise<void>;

  /**
   * @param command starts the server
   * @param limitMs how long a call may take before the client gives up
   */
  constructor(command: readonly string[], readonly limitMs: number = 30_000) {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--quiet", "--config", CONFIG, join(HERE, "drive.ts"), ...command],
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#child = child;
    this.#writer = child.stdin.getWriter();
    const decoder = new TextDecoder();
    this.#reading = (async () => {
      for await (const chunk of child.stdout) {
        this.#out += decoder.decode(chunk, { stream: true });
      }
    })();
  }

  send(call: unknown): Promise<void> {
    return this.#writer.write(new TextEncoder().encode(JSON.stringify(call) + "\n"));
  }

  async next<T = Came>(): Promise<T> {
    const at = await until("the client's answer", () => {
      const found = this.#out.indexOf("\n");
      return found < 0 ? null : { found };
    }, this.limitMs + 30_000);
    const line = this.#out.slice(0, at.found);
    this.#out = this.#out.slice(at.found + 1);
    return JSON.parse(line);
  }

  async call(name: string, args: Record<string, unknown>, more: Record<string, unknown> = {}) {
    await this.send({ name, args, timeout_ms: this.limitMs, ...more });
    return await this.next();
  }

  /** Ends client and server without a word, as a crash does. */
  kill(): void {
    const children = `/proc/${this.#child.pid}/task/${this.#child.pid}/children`;
    const servers = there(children) ? Deno.readTextFileSync(children).trim().split(" ") : [];
    for (const pid of servers.map(Number)) if (pid > 1) Deno.kill(pid, "SIGKILL");
    this.#child.kill("SIGKILL");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writer.close().catch(() => {});
    await this.#child.status;
    await this.#reading;
  }
}
