/**
 * Real container engines for tests, as they are asked on a command line: a Docker daemon of the
 * test's own, and podman with a store of its own. Both have one image, `box`, which is `busybox:1` as
 * well: busybox and the three mount points of a sandbox. No container has a network.
 *
 * @module
 */
import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { sleep } from "./bridge.ts";
import {
  Apart,
  IMAGE,
  makeImage,
  missingDocker,
  missingFiles,
  missingPodman,
  removeTree,
} from "./engines.ts";
import { sh } from "./outside.ts";

/** Options of every container: the machines that run tests are containers too, with low limits. */
const CONFINED = ["--network=none", "--ulimit=nofile=20000:20000", "--ulimit=nproc=4096:4096"];

/** What a command came to. */
export interface Said {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function run(argv: readonly string[], stdin = "", env = {}): Promise<Said> {
  const [program = "", ...args] = argv;
  const child = new Deno.Command(program, {
    args,
    env,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(stdin)).catch(() => {});
  await writer.close().catch(() => {});
  const { code, stdout, stderr } = await child.output();
  const text = new TextDecoder();
  return { code, out: text.decode(stdout), err: text.decode(stderr) };
}

/** An engine, and what is asked of it as on its command line. */
export abstract class Engine implements AsyncDisposable {
  readonly directory: string;

  /** @param directory its own, which goes away with it */
  constructor(directory: string) {
    this.directory = directory;
  }

  /** Its client with what comes before every command. */
  protected abstract readonly client: readonly string[];

  /** Runs its client; what it said. */
  async try(args: readonly string[], stdin = ""): Promise<Said> {
    return await run([...this.client, ...args], stdin);
  }

  /** The same, where it must succeed; its standard output. */
  async ask(...args: string[]): Promise<string> {
    const { code, out, err } = await this.try(args);
    assert(code === 0, `${args.join(" ")}: exit code ${code}: ${err}`);
    return out.trim();
  }

  /** A container that lives until it is killed. */
  async start(name: string, ...more: string[]): Promise<void> {
    const options = ["run", "-d", "--name", name, ...CONFINED, ...more];
    await this.ask(...options, "box", "/bin/sleep", "100000");
  }

  /** Kills a container, at once. */
  async kill(name: string): Promise<void> {
    await this.ask("kill", name);
    await this.ask("rm", "-f", name);
  }

  /** A command in a container that ends with it, and can still be looked at. */
  async once(options: readonly string[], command: readonly string[]): Promise<Said> {
    return await this.try(["run", ...CONFINED, ...options, "box", ...command]);
  }

  /** A shell script in a container that runs, from standard input. */
  async script(name: string, text: string, ...args: string[]): Promise<Said> {
    return await this.try(["exec", "-i", name, "/bin/sh", "-s", ...args], text);
  }

  protected async importImage(): Promise<void> {
    await this.ask("import", await makeImage(this.directory), "box");
    await this.ask("tag", "box", IMAGE);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      const names = (await this.try(["ps", "-q"])).out.split("\n").filter((l) => l !== "");
      if (names.length > 0) await this.try(["kill", ...names]);
      await this.end();
    } finally {
      await sh(
        `awk '{print $5}' /proc/self/mountinfo | grep '^${this.directory}/' | sort -r |` +
          " while read -r m; do umount -l $m; done; :",
        "/",
      );
      await removeTree(this.directory);
    }
  }

  protected abstract end(): Promise<void>;
}

/** A Docker daemon. */
export class Docker extends Engine {
  readonly host: string;
  readonly client: readonly string[];
  readonly #apart: Apart;

  private constructor(apart: Apart) {
    super(apart.directory);
    this.#apart = apart;
    this.host = `unix://${apart.socket}`;
    this.client = ["/usr/bin/docker", "-H", this.host];
  }

  /** Why there is none here, or null. */
  static missing(): string | null {
    return missingDocker();
  }

  /** @throws {Error} with the end of its log when it does not come up */
  static async start(): Promise<Docker> {
    const engine = new Docker(await Apart.docker());
    try {
      await engine.importImage();
    } catch (error) {
      await engine[Symbol.asyncDispose]();
      throw error;
    }
    return engine;
  }

  protected async end(): Promise<void> {
    await this.#apart[Symbol.asyncDispose]();
  }
}

/** Podman, which needs no daemon. */
export class Podman extends Engine {
  constructor() {
    // It takes no longer path than 50 bytes.
    super(Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-engine-", dir: "/tmp" })));
  }

  readonly client = [
    "/usr/bin/podman",
    ...["--root", join(this.directory, "root"), "--runroot", join(this.directory, "run")],
    ...["--tmpdir", join(this.directory, "tmp"), "--storage-driver=vfs"],
    ...["--cgroup-manager=cgroupfs", "--events-backend=none", "--runtime", "/usr/sbin/runc"],
  ];

  static missing(): string | null {
    return missingFiles(["/usr/bin/conmon"]) ?? missingPodman();
  }

  static async start(): Promise<Podman> {
    const engine = new Podman();
    try {
      await engine.importImage();
    } catch (error) {
      await engine[Symbol.asyncDispose]();
      throw error;
    }
    return engine;
  }

  /** What watches over a container cleans up after it, in processes of its own. */
  protected async end(): Promise<void> {
    for (let tries = 0; tries < 200 && this.#atWork(); tries++) await sleep(50);
  }

  #atWork(): boolean {
    return [...Deno.readDirSync("/proc")].some(({ name }) => {
      try {
        return /^\d+$/.test(name) &&
          Deno.readTextFileSync(`/proc/${name}/cmdline`).includes(this.directory);
      } catch {
        return false;
      }
    });
  }
}
