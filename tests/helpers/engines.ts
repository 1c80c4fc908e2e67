/**
 * Container engines and service managers for tests, each in namespaces of its own: network, mounts
 * and processes. What a test starts there is gone when the engine's first process is, and the host's
 * network is never touched.
 *
 * Where the machine does not offer one, `missing…` says why, and the test is skipped with it.
 *
 * @module
 */
import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { sleep, there } from "./bridge.ts";
import { removeTree } from "./engine.ts";

/** Bounds that engines set for every container: the defaults are higher than some hosts allow. */
const FILES = "nofile=20000:20000";

/** Namespaces of an engine. */
const APART = ["--net", "--mount", "--pid", "--mount-proc"];

/** An image with a shell, made from the host's static busybox. */
export const IMAGE = "busybox:1";

/** Why namespaces cannot be made here, or null. */
function missingNamespaces(): string | null {
  if (Deno.uid() !== 0) return "an engine needs root";
  const made = new Deno.Command("unshare", {
    args: [...APART, "--fork", "/bin/true"],
    stdout: "null",
    stderr: "null",
  });
  try {
    return made.outputSync().success ? null : "no namespaces can be made here";
  } catch {
    return "unshare is missing";
  }
}

function missingFiles(paths: readonly string[]): string | null {
  const missing = paths.filter((path) => !there(path));
  return missing.length === 0 ? null : `missing: ${missing.join(" ")}`;
}

/** Why there can be no Docker engine, or null. */
export function missingDocker(): string | null {
  return missingFiles(["/usr/sbin/dockerd", "/usr/bin/docker", "/usr/bin/busybox"]) ??
    missingNamespaces();
}

/** Why there can be no Podman service, or null. */
export function missingPodman(): string | null {
  return missingFiles(["/usr/bin/podman", "/usr/sbin/runc", "/usr/bin/busybox"]) ??
    missingNamespaces();
}

/** Why there can be no service manager of a user, or null. */
export function missingUserManager(): string | null {
  return missingFiles(["/usr/lib/systemd/systemd", "/usr/bin/systemctl"]) ?? missingNamespaces();
}

/** Runs a program to its end; fails unless it succeeds. Returns what it printed. */
export async function run(
  program: string,
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args: [...args],
    env,
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  assert(
    code === 0,
    `${program} ${args.join(" ")} exited ${code}: ${text.decode(stderr)}${text.decode(stdout)}`,
  );
  return text.decode(stdout);
}

/** A program in namespaces of its own, with a directory and a socket that the host can reach. */
export class Engine implements AsyncDisposable {
  readonly directory: string;
  readonly socket: string;
  readonly #child: Deno.ChildProcess;
  readonly #log: string;

  private constructor(directory: string, socket: string, child: Deno.ChildProcess) {
    this.directory = directory;
    this.socket = socket;
    this.#child = child;
    this.#log = join(directory, "log");
  }

  /** Starts `script` with `DIR` as its directory and waits until `ready` holds. */
  static async #start(
    kind: string,
    socket: string,
    namespaces: readonly string[],
    script: string,
    ready: (engine: Engine) => Promise<boolean>,
  ): Promise<Engine> {
    const directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: `chb-${kind}-` }));
    const child = new Deno.Command("unshare", {
      args: [
        ...namespaces,
        ...["--fork", "--kill-child"],
        ...["/bin/sh", "-c", `exec >"$DIR/log" 2>&1\nmount -t tmpfs none /run\n${script}`],
      ],
      env: { DIR: directory },
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
    const engine = new Engine(directory, join(directory, socket), child);
    let over = false;
    child.status.then(() => over = true);
    const end = performance.now() + 60_000;
    while (!(there(engine.socket) && await ready(engine))) {
      if (over || performance.now() > end) {
        const log = there(engine.#log) ? Deno.readTextFileSync(engine.#log) : "";
        await engine[Symbol.asyncDispose]();
        throw new Error(`No ${kind}: ${log.slice(-2000)}`);
      }
      await sleep(100);
    }
    return engine;
  }

  /** A Docker engine with an empty store and its own bridge, at `DOCKER_HOST=unix://<socket>`. */
  static async docker(): Promise<Engine> {
    const engine = await Engine.#start(
      "docker",
      "sock",
      APART,
      `busybox ip link set lo up
exec dockerd --iptables=false --ip6tables=false --ip-masq=false --ip-forward=false \\
  --storage-driver=vfs --data-root="$DIR/data" --exec-root="$DIR/exec" --pidfile="$DIR/pid" \\
  --default-ulimit ${FILES} -H "unix://$DIR/sock"`,
      async ({ socket }) =>
        (await new Deno.Command("/usr/bin/docker", {
          args: ["-H", `unix://${socket}`, "version"],
          stdout: "null",
          stderr: "null",
        }).output()).success,
    );
    await engine.#image("/usr/bin/docker", ["-H", `unix://${engine.socket}`]);
    return engine;
  }

  /** A Podman service with an empty store; containers have no network. */
  static async podman(): Promise<Engine> {
    const engine = await Engine.#start(
      "podman",
      "sock",
      APART,
      `printf '[containers]\\ndefault_ulimits = ["${FILES}", "nproc=4096:4096"]\\n' >"$DIR/conf"
export CONTAINERS_CONF="$DIR/conf"
exec podman --runtime /usr/sbin/runc --storage-driver vfs --root "$DIR/data" --runroot /run/c \\
  --tmpdir /run/t --cgroup-manager cgroupfs --events-backend file \\
  system service --time 0 "unix://$DIR/sock"`,
      () => Promise.resolve(true),
    );
    await engine.#image("/usr/bin/podman", ["--remote", "--url", `unix://${engine.socket}`]);
    return engine;
  }

  /** A service manager of a user, for `XDG_RUNTIME_DIR=<directory>`, with units by name. */
  static userManager(units: Readonly<Record<string, string>>): Promise<Engine> {
    const files = Object.entries(units).map(([name, text]) =>
      `cat >"$DIR/systemd/user/${name}" <<'END'\n${text}END\n`
    );
    return Engine.#start(
      "systemd",
      "systemd/private",
      // Its clients have to be in its process namespace.
      ["--mount"],
      `mkdir -p /run/systemd/system "$DIR/systemd/user"
${files.join("")}XDG_RUNTIME_DIR="$DIR" HOME=/nonexistent /usr/lib/systemd/systemd --user \\
  --log-target=console &
manager=$!
trap 'kill "$manager"; wait "$manager"; exit 0' TERM
wait "$manager"`,
      () => Promise.resolve(true),
    );
  }

  async #image(program: string, options: readonly string[]): Promise<void> {
    const bin = join(this.directory, "image/bin");
    Deno.mkdirSync(bin, { recursive: true });
    Deno.copyFileSync("/usr/bin/busybox", join(bin, "busybox"));
    for (const name of ["sh", "sleep", "timeout", "id", "ls", "touch"]) {
      Deno.symlinkSync("busybox", join(bin, name));
    }
    const archive = join(this.directory, "image.tar");
    await run("tar", ["-C", join(this.directory, "image"), "-cf", archive, "."]);
    await run(program, [...options, "import", archive, IMAGE]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The first process of the namespaces, as this one sees it: it ends what it started.
    try {
      const children = `/proc/${this.#child.pid}/task/${this.#child.pid}/children`;
      const first = Number(Deno.readTextFileSync(children).trim().split(" ")[0]);
      if (first > 1) Deno.kill(first, "SIGTERM");
    } catch {
      // It has left by itself.
    }
    const late = setTimeout(() => this.#child.kill("SIGKILL"), 20_000);
    await this.#child.status;
    clearTimeout(late);
    await run("chmod", ["-R", "u+rwx", this.directory]).catch(() => "");
    await removeTree(this.directory);
  }
}
