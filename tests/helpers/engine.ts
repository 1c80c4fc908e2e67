/**
 * Real container engines for tests: a Docker daemon of the test's own, in a directory that goes away
 * with it, and podman with a store of its own. Both have one image, `box`: busybox and the three
 * mount points of a sandbox. No container has a network.
 *
 * @module
 */
import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { sleep, there } from "./bridge.ts";
import { sh } from "./outside.ts";

/** Options of every container: the machines that run tests are containers too, with low limits. */
const CONFINED = ["--network=none", "--ulimit=nofile=20000:20000", "--ulimit=nproc=4096:4096"];

const BUSYBOX = ["/usr/bin/busybox", "/bin/busybox"].find(there);

/** Where a program is, or undefined. */
function which(name: string): string | undefined {
  return ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    .map((directory) => join(directory, name)).find(there);
}

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

/** The files of the image, as a tar archive. */
async function makeImage(directory: string): Promise<string> {
  const image = join(directory, "image");
  for (const name of ["bin", "proc", "dev", "tmp", "chb/queue", "chb/results", "chb/inbox"]) {
    Deno.mkdirSync(join(image, name), { recursive: true });
  }
  Deno.copyFileSync(BUSYBOX ?? "", join(image, "bin/busybox"));
  const { out } = await run([BUSYBOX ?? "", "--list"]);
  for (const applet of out.split("\n").filter((name) => name !== "" && name !== "busybox")) {
    Deno.symlinkSync("busybox", join(image, "bin", applet));
  }
  // Busybox links what a name leads to only as a name; coreutils as the file itself.
  await sh(
    'for f in /bin/ln $(ldd /bin/ln | grep -o "/[^ )]*"); do cp --parents --remove-destination -L "$f" . ; done; ' +
      "mv bin/ln bin/gnu-ln; ln -s busybox bin/ln; tar -cf ../box.tar .",
    image,
  );
  return join(directory, "box.tar");
}

/** Removes a directory that what ended a moment ago may still be writing to. */
export async function removeTree(directory: string): Promise<void> {
  for (let tries = 0;; tries++) {
    try {
      return Deno.removeSync(directory, { recursive: true });
    } catch (error) {
      if (tries > 50) throw error;
      await sleep(100);
    }
  }
}

/** An engine, and what is asked of it as on its command line. */
export abstract class Engine implements AsyncDisposable {
  readonly directory: string;

  /** @param dir what its directory is made in; the usual place for temporary files by default */
  constructor(dir?: string) {
    const options = dir === undefined ? {} : { dir };
    this.directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-engine-", ...options }));
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
  readonly host = `unix://${this.directory}/docker.sock`;
  readonly client = [which("docker") ?? "", "-H", this.host];
  readonly #daemon: Deno.ChildProcess;
  #over = false;

  private constructor() {
    super();
    this.#daemon = new Deno.Command("/bin/sh", {
      args: [
        "-c",
        'exec "$@" >"$0" 2>&1',
        join(this.directory, "log"),
        which("dockerd") ?? "",
        ...["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"],
        ...["data-root", "exec-root"].map((name) => `--${name}=${join(this.directory, name)}`),
        `--pidfile=${join(this.directory, "pid")}`,
        ...["-H", this.host],
      ],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
    this.#daemon.status.then(() => this.#over = true);
  }

  /** Why there is none here, or null. */
  static missing(): string | null {
    if (Deno.build.os !== "linux") return "a Docker engine is started on Linux only";
    if (Deno.uid() !== 0) return "only root can start a Docker engine";
    const programs = ["dockerd", "containerd", "runc", "docker"].filter((name) => !which(name));
    if (programs.length > 0) return `${programs.join(", ")} is missing`;
    return noContainers();
  }

  /** @throws {Error} with the end of its log when it does not come up */
  static async start(): Promise<Docker> {
    const engine = new Docker();
    try {
      const end = performance.now() + 60_000;
      while ((await engine.try(["version"])).code !== 0) {
        if (engine.#over || performance.now() > end) {
          const log = Deno.readTextFileSync(join(engine.directory, "log"));
          throw new Error(`dockerd does not come up: ${log.slice(-2000)}`);
        }
        await sleep(100);
      }
      await engine.importImage();
    } catch (error) {
      await engine[Symbol.asyncDispose]();
      throw error;
    }
    return engine;
  }

  protected async end(): Promise<void> {
    if (!this.#over) this.#daemon.kill("SIGTERM");
    for (let n = 0; !this.#over && n < 300; n++) await sleep(50);
    if (!this.#over) this.#daemon.kill("SIGKILL");
    await this.#daemon.status;
  }
}

/** Why there can be no containers at all, or null. */
function noContainers(): string | null {
  const apart = new Deno.Command("unshare", {
    args: ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "/bin/true"],
    stderr: "null",
  }).outputSync();
  if (!apart.success) return "name spaces may not be made here";
  if (BUSYBOX === undefined) return "busybox is missing";
  const { success } = new Deno.Command("ldd", { args: [BUSYBOX], stdout: "null", stderr: "null" })
    .outputSync();
  return success ? "busybox is not the static one" : null;
}

/** Podman, which needs no daemon. */
export class Podman extends Engine {
  constructor() {
    // It takes no longer path than 50 bytes.
    super("/tmp");
  }

  readonly client = [
    which("podman") ?? "",
    ...["--root", join(this.directory, "root"), "--runroot", join(this.directory, "run")],
    ...["--tmpdir", join(this.directory, "tmp"), "--storage-driver=vfs"],
    ...["--cgroup-manager=cgroupfs", "--events-backend=none", "--runtime", which("runc") ?? ""],
  ];

  static missing(): string | null {
    if (Deno.build.os !== "linux" || Deno.uid() !== 0) return "podman is tested by root on Linux";
    const programs = ["podman", "runc", "conmon"].filter((name) => !which(name));
    return programs.length > 0 ? `${programs.join(", ")} is missing` : noContainers();
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
