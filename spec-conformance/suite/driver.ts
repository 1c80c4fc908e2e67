/**
 * Starts, stops and kills the implementation by its command line, as the README describes. Nothing
 * is known of it but that command.
 *
 * @module
 */
import type { Work } from "./work.ts";

/** A line that says that it serves now. */
const READY = /^(?:\S+:? )?ready\b/m;
const READY_MS = 120_000;
const STOP_MS = 20_000;

/** The suite or the start failed, not a vector. */
export class DriverError extends Error {
  override name = "DriverError";
}

export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

export class Driver {
  readonly #command: string;
  readonly #work: Work;
  #child: Deno.ChildProcess | null = null;
  #said = "";
  #over = false;
  #reading: Promise<unknown> = Promise.resolve();

  /** @param command words for a shell, to which the suite adds its own */
  constructor(command: string, work: Work) {
    this.#command = command;
    this.#work = work;
  }

  /** What it wrote since its last start. */
  get said(): string {
    return this.#said;
  }

  get runs(): boolean {
    return this.#child !== null && !this.#over;
  }

  #spawn(words: readonly string[]): Deno.ChildProcess {
    return new Deno.Command("/bin/sh", {
      args: ["-c", `exec ${this.#command} "$@"`, "conformance", ...words],
      cwd: this.#work.directory,
      env: { CONFORMANCE_LEAK: "leaked" },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
  }

  /** Starts it and waits until it says that it serves. */
  async start(): Promise<void> {
    if (this.#child !== null) throw new DriverError("It is started already");
    const child = this.#spawn(["serve", this.#work.root, this.#work.policy]);
    this.#child = child;
    this.#said = "";
    this.#over = false;
    const read = async (stream: ReadableStream<Uint8Array>) => {
      const decoder = new TextDecoder();
      for await (const chunk of stream) {
        // What a talkative implementation says is looked at no further than needed.
        this.#said = (this.#said + decoder.decode(chunk, { stream: true })).slice(-100_000);
      }
    };
    this.#reading = Promise.allSettled([read(child.stdout), read(child.stderr)]);
    child.status.then(() => this.#over = true);
    const end = performance.now() + READY_MS;
    while (!READY.test(this.#said)) {
      if (this.#over || performance.now() > end) {
        await this.crash();
        throw new DriverError(`It did not say that it is ready:\n${this.#said}`);
      }
      await sleep(5);
    }
  }

  /** Asks it to leave, and waits until it has. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    this.#signal(child, "SIGTERM");
    const end = performance.now() + STOP_MS;
    while (!this.#over && performance.now() < end) await sleep(5);
    const late = !this.#over;
    await this.crash();
    if (late) throw new DriverError(`It did not leave within ${STOP_MS} ms after TERM`);
  }

  /** Ends it at once, without a chance to do anything. */
  async crash(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    this.#child = null;
    this.#signal(child, "SIGKILL");
    await child.status;
    // Children that it left may hold the pipes; they are not waited for.
    let timer: ReturnType<typeof setTimeout> | undefined;
    await Promise.race([this.#reading, new Promise((done) => timer = setTimeout(done, 100))]);
    clearTimeout(timer);
  }

  #signal(child: Deno.ChildProcess, signal: Deno.Signal): void {
    try {
      child.kill(signal);
    } catch {
      // It has left by itself.
    }
  }

  /** A deed of a human on the host: what follows the command's own words. */
  async host(words: readonly string[]): Promise<void> {
    const [deed = "", ...rest] = words;
    const child = this.#spawn([deed, this.#work.root, ...rest]);
    const { code, stdout, stderr } = await child.output();
    if (code === 0) return;
    const text = new TextDecoder();
    throw new DriverError(
      `"${words.join(" ")}" ended with ${code}: ${text.decode(stderr)}${text.decode(stdout)}`,
    );
  }

  /** Ends it and everything that still works in its root, found by working directory. */
  async end(): Promise<void> {
    await this.crash();
    for (let tries = 0; tries < 50; tries++) {
      const left = processesIn(this.#work.directory);
      if (left.length === 0) return;
      for (const pid of left) {
        try {
          Deno.kill(pid, "SIGKILL");
        } catch {
          // Gone.
        }
      }
      await sleep(20);
    }
  }
}

/** Processes that work in a directory, or run a program of it. */
function processesIn(directory: string): number[] {
  const found: number[] = [];
  for (const { name } of Deno.readDirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid <= 1 || pid === Deno.pid) continue;
    try {
      const cwd = Deno.readLinkSync(`/proc/${pid}/cwd`);
      const line = Deno.readTextFileSync(`/proc/${pid}/cmdline`);
      if (cwd.startsWith(`${directory}/`) || cwd === directory || line.includes(directory)) {
        found.push(pid);
      }
    } catch {
      // Gone, or somebody else's.
    }
  }
  return found;
}
