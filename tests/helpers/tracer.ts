/**
 * System calls of a running process, counted or interfered with from outside: the program itself
 * knows nothing of it and runs under its real permissions.
 *
 * 1. Every thread that the process has when it is taken up is watched, and no process that it starts
 *    later: so what is done to a daemon is not done to its shims, and what is done to a shim is not
 *    done to its command. All effects of this program happen in threads that live from its start
 *    on; `countCalls` with `follow` shows that.
 * 2. A process that is killed at a call dies before the call has an effect. What it leaves right
 *    after that call is what it leaves before its next one, so all calls together cover both.
 *
 * @module
 */
import { assert } from "@std/assert";
import { sleep, until } from "./bridge.ts";

/** Calls that change what another process can see, by the name that they are counted under. */
export const EFFECTS = [
  "rename",
  "renameat",
  "renameat2",
  "link",
  "linkat",
  "unlink",
  "unlinkat",
  "rmdir",
  "mkdir",
  "mkdirat",
  "write",
  "pwrite64",
  "writev",
  "ftruncate",
  "fsync",
  "fdatasync",
  "clone",
  "clone3",
  "vfork",
  "fork",
] as const;

export type Effect = (typeof EFFECTS)[number];

/** Why processes cannot be traced here, or null. */
export function cannotTrace(): string | null {
  const sleeper = new Deno.Command("/bin/sleep", {
    args: ["20"],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).spawn();
  try {
    const tracer = new Deno.Command("timeout", {
      args: ["-s", "INT", "0.3", "strace", "-qq", "-o", "/dev/null", "-p", String(sleeper.pid)],
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).outputSync();
    const said = new TextDecoder().decode(tracer.stderr).trim();
    return said === "" ? null : `strace cannot trace here: ${said.split("\n")[0]}`;
  } catch {
    return "there is no strace or no timeout";
  } finally {
    sleeper.kill("SIGKILL");
    sleeper.status.catch(() => {});
  }
}

/** Threads of a process. */
function threads(pid: number): string[] {
  try {
    return [...Deno.readDirSync(`/proc/${pid}/task`)].map((entry) => entry.name);
  } catch {
    return [];
  }
}

/** True while the process is there and not a zombie. */
export function lives(pid: number): boolean {
  try {
    const stat = Deno.readTextFileSync(`/proc/${pid}/stat`);
    return !/\) [ZX] /.test(stat.slice(stat.lastIndexOf(")")));
  } catch {
    return false;
  }
}

/** Processes whose working directory is `root`, in the order of their start: daemon and shims. */
export function processesOf(root: string): number[] {
  const found: number[] = [];
  for (const { name } of Deno.readDirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid <= 1) continue;
    try {
      if (Deno.readLinkSync(`/proc/${pid}/cwd`) === root && lives(pid)) found.push(pid);
    } catch {
      // Gone, or somebody else's.
    }
  }
  return found.sort((a, b) => a - b);
}

/** A tracer that is attached to processes until it is disposed of. */
export class Tracer implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #file: string;
  #said = "";
  readonly #reading: Promise<void>;

  private constructor(child: Deno.ChildProcess, file: string) {
    this.#child = child;
    this.#file = file;
    this.#reading = (async () => {
      const decoder = new TextDecoder();
      for await (const chunk of child.stderr) this.#said += decoder.decode(chunk);
    })();
  }

  /**
   * Attaches to processes; returns when every thread of them is watched.
   *
   * @param words options of `strace`: what to trace and to inject
   * @param follow also watches what the processes start from now on
   */
  static async attach(
    pids: readonly number[],
    words: readonly string[],
    follow = false,
  ): Promise<Tracer> {
    const file = Deno.makeTempFileSync({ prefix: "chb-trace-" });
    const tids = pids.flatMap(threads);
    const child = new Deno.Command("strace", {
      args: [
        "-qq",
        ...(follow ? ["-f"] : []),
        ...["-o", file, ...words],
        // Following takes up every thread of a process by itself.
        ...(follow ? pids.map(String) : tids).flatMap((tid) => ["-p", tid]),
      ],
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    const tracer = new Tracer(child, file);
    const watched = (tid: string) => {
      try {
        return !/^TracerPid:\s+0$/m.test(Deno.readTextFileSync(`/proc/${tid}/status`));
      } catch {
        return true;
      }
    };
    await until("the tracer", () => tids.every(watched));
    return tracer;
  }

  /** What was traced so far, one call a line. */
  get trace(): string {
    return Deno.readTextFileSync(this.#file);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    let over = false;
    const status = this.#child.status.then(() => over = true);
    // It may wait for ever for a thread of a process that was killed beside it; those that live are
    // let go however it ends.
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      try {
        this.#child.kill(signal);
      } catch {
        // Everything that it watched has ended, and it with it.
      }
      for (let tries = 0; !over && tries < 50; tries++) await sleep(10);
    }
    await status;
    await this.#reading;
    Deno.removeSync(this.#file);
    const said = this.#said.split("\n").filter((l) => l !== "" && !l.includes("No such process"));
    assert(said.length === 0, `strace: ${said.join("\n")}`);
  }
}

/** Kills a process, or one of several, at the `n`-th call of a name that one of its threads makes. */
export function killAt(pids: readonly number[], call: Effect, n: number): Promise<Tracer> {
  return Tracer.attach(pids, [
    ...["-e", `trace=${call}`],
    ...["-e", `inject=${call}:signal=KILL:when=${n}`],
  ]);
}

/** How often each thread makes each call with an effect, while `work` goes on. */
export async function countCalls(
  pids: readonly number[],
  work: () => Promise<void>,
  follow = false,
): Promise<{ thread: number; call: Effect; count: number }[]> {
  const counts = new Map<string, number>();
  {
    await using tracer = await Tracer.attach(
      pids,
      ["-e", `trace=${EFFECTS.join(",")}`],
      follow,
    );
    await work();
    // What it has seen is written as soon as the call returns.
    await sleep(100);
    for (const line of tracer.trace.split("\n")) {
      const [, thread, call] = /^([0-9]+) +([a-z0-9]+)\(/.exec(line) ?? [];
      if (thread === undefined || call === undefined) continue;
      counts.set(`${thread} ${call}`, (counts.get(`${thread} ${call}`) ?? 0) + 1);
    }
  }
  return [...counts].map(([key, count]) => {
    const [thread, call] = key.split(" ");
    return { thread: Number(thread), call: call as Effect, count };
  });
}

/** The two ways in which a call can fail: without its effect, or with all of it. */
export type Failure = "lost" | "applied";

/** The two places at which a thread can be held up: before a call has its effect, or after. */
export type Hold = "before" | "after";

/** Why calls cannot be made to fail after they had their effect here, or null. */
export function cannotInject(): string | null {
  if (Deno.build.os !== "linux" || Deno.build.arch !== "x86_64") {
    return "results of calls can be exchanged on Linux on x86_64 only";
  }
  return cannotTrace();
}

/** Makes calls of processes fail, or holds a process up at one, until it is disposed of. */
export class Injector implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #reading: Promise<void>;
  #said = "";

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.#reading = (async () => {
      const decoder = new TextDecoder();
      for await (const chunk of child.stdout) this.#said += decoder.decode(chunk);
    })();
  }

  /**
   * Starts to make calls fail, or to wait for the one at which it holds its thread up.
   *
   * @param how what fails and how, `when` counted over all threads, 0 for every one; `about` is a
   *   part of the name that the call is about
   */
  static async start(pids: readonly number[], how: {
    readonly mode: Failure | Hold;
    readonly call: string;
    /** What the caller is told; of no meaning where it is only held up. */
    readonly error?: string;
    readonly when?: number;
    readonly about?: string;
  }): Promise<Injector> {
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "-A", "--quiet", "--no-check", "--no-config", "--no-lock"],
        new URL("./fault_main.ts", import.meta.url).pathname,
        ...[how.mode, how.call, how.error ?? "EIO", String(how.when ?? 1), how.about ?? ""],
        ...pids.flatMap(threads),
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const injector = new Injector(child);
    await until("the injector", () => injector.#said.startsWith("ready\n"), 30_000);
    return injector;
  }

  /** The calls that were made to fail so far, or at which a thread is held up. */
  get injected(): string[] {
    return this.#said.split("\n").slice(1, -1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // It has ended: nothing that it watched is left.
    }
    await this.#child.status;
    await this.#reading;
  }
}
