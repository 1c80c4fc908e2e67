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
import { sh } from "./outside.ts";

/** Bounds that engines set for every container: the defaults are higher than some hosts allow. */
const FILES = "nofile=20000:20000";

/** Namespaces of an engine. */
const APART = ["--net", "--mount", "--pid", "--mount-proc"];

/** The name of the image that every engine has: a shell, from the host's static busybox. */
export const IMAGE = "busybox:1";

const BUSYBOX = "/usr/bin/busybox";

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

/** Which of these files are missing, in words, or null. */
export function missingFiles(paths: readonly string[]): string | null {
  const missing = paths.filter((path) => !there(path));
  return missing.length === 0 ? null : `missing: ${missing.join(" ")}`;
}

/** Why there can be no Docker engine, or null. */
export function missingDocker(): string | null {
  return missingFiles(["/usr/sbin/dockerd", "/usr/bin/docker"]) ?? missingContainers();
}

/** Why there can be no Podman service, or null. */
export function missingPodman(): string | null {
  return missingFiles(["/usr/bin/podman", "/usr/sbin/runc"]) ?? missingContainers();
}

/** Why there can be no containers at all, or null. */
function missingContainers(): string | null {
  const missing = missingFiles([BUSYBOX]) ?? missingNamespaces();
  if (missing !== null) return missing;
  const { success } = new Deno.Command("ldd", { args: [BUSYBOX], stdout: "null", stderr: "null" })
    .outputSync();
  return success ? "busybox is not the static one" : null;
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

/** Removes a directory that what ended a moment ago may still be writing to. */
export async function removeTree(directory: string): Promise<void> {
  for (let tries = 0; there(directory); tries++) {
    try {
      return Deno.removeSync(directory, { recursive: true });
    } catch (error) {
      if (tries > 50) throw error;
      await sleep(100);
    }
  }
}

/** The files of the image, as a tar archive: busybox, and the three mount points of a sandbox. */
export async function makeImage(directory: string): Promise<string> {
  const image = join(directory, "image");
  for (const name of ["bin", "proc", "dev", "tmp", "chb/queue", "chb/results", "chb/inbox"]) {
    Deno.mkdirSync(join(image, name), { recursive: true });
  }
  Deno.copyFileSync(BUSYBOX, join(image, "bin/busybox"));
  const list = await run(BUSYBOX, ["--list"]);
  for (const applet of list.split("\n").filter((name) => name !== "" && name !== "busybox")) {
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

/** A program in namespaces of its own, with a directory and a socket that the host can reach. */
export class Apart implements AsyncDisposable {
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
    ready: (engine: Apart) => Promise<boolean>,
  ): Promise<Apart> {
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
    const engine = new Apart(directory, join(directory, socket), child);
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
  static docker(): Promise<Apart> {
    return Apart.#start(
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
  }

  /** A Podman service with an empty store; containers have no network. */
  static async podman(): Promise<Apart> {
    const engine = await Apart.#start(
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
    const archive = await makeImage(engine.directory);
    const remote = ["--remote", "--url", `unix://${engine.socket}`];
    await run("/usr/bin/podman", [...remote, "import", archive, IMAGE]);
    return engine;
  }

  /** A service manager of a user, for `XDG_RUNTIME_DIR=<directory>`, with units by name. */
  static userManager(units: Readonly<Record<string, string>>): Promise<Apart> {
    const files = Object.entries(units).map(([name, text]) =>
      `cat >"$DIR/systemd/user/${name}" <<'END'\n${text}END\n`
    );
    return Apart.#start(
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
