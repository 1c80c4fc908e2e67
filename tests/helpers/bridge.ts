/**
 * A whole bridge in a temporary directory, for tests that look at it from outside: the layout that
 * the init script makes, a wrapper with the program's real permissions, and a daemon process.
 *
 * @module
 */
import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { BUILD } from "#build";
import { schemas } from "../../src/policy/schema.ts";
import { validate } from "../json_schema.ts";
import { initScript } from "../../src/human/init.ts";
import type { Result } from "../../src/result.ts";
import { killPath } from "../../src/permissions.ts";
import { cacheDirectory } from "./cache.ts";
import { wrapperText } from "../../tools/wrapper.ts";

// A test that fails leaves a bridge whose files may not fit either: both are shown then, not only
// that one error hid the other.
Object.defineProperty(SuppressedError.prototype, "cause", {
  configurable: true,
  get(this: SuppressedError) {
    return new AggregateError([this.suppressed, this.error], "both failed, the first one first");
  },
});

/** What a bridge is made of. */
export interface BridgeOptions {
  /** Verbs as they stand in the policy. */
  readonly verbs?: Readonly<Record<string, unknown>>;
  /** The whole policy, instead of one agent with all verbs. */
  readonly policy?: unknown;
  /** Files below `base/`, executable. */
  readonly scripts?: Readonly<Record<string, string>>;
  readonly limits?: Readonly<Record<string, unknown>>;
  /** Programs to grant besides those of the policy. */
  readonly programs?: readonly string[];
  readonly agents?: readonly string[];
  /** False leaves the policy untrusted. */
  readonly trust?: boolean;
  /** Words after `serve`; by default it polls twice a second. */
  readonly serve?: readonly string[];
  /** A compiled program that is `bin/chb`, instead of a wrapper that runs from source. */
  readonly binary?: string;
  /** Whose root it is and who serves it; only root can make one for somebody else. */
  readonly uid?: number;
  /** The directory that the root is made in; a temporary one by default. */
  readonly within?: string;
}

/** A verb that runs a program without arguments. */
export function verb(argv: readonly string[], more: Record<string, unknown> = {}): unknown {
  return { description: "A verb of a test.", class: "observe", argv, timeout_s: 20, ...more };
}

export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Calls `probe` until it gives something, or fails after `ms`. */
export async function until<T>(
  what: string,
  probe: () => T | null | undefined | false,
  ms = 15_000,
): Promise<T> {
  const end = performance.now() + ms;
  for (;;) {
    const value = probe();
    if (value !== null && value !== undefined && value !== false) return value;
    if (performance.now() > end) throw new Error(`Waited ${ms} ms for ${what}`);
    await sleep(5);
  }
}

/** The entry's name when it is there, whatever it is. */
export function there(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

function readJson<T>(path: string): T | null {
  try {
    return JSON.parse(Deno.readTextFileSync(path));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return null;
    throw error;
  }
}

export class TestBridge implements AsyncDisposable {
  readonly root: string;
  /** A directory of the host that lies outside the root, for what commands of a test leave. */
  readonly outside: string;
  readonly #serve: readonly string[];
  readonly #uid: number | undefined;
  /** What `serve` starts, from the root: another wrapper than the usual one, for a test that watches it. */
  program = "./bin/chb";
  #daemon: Deno.ChildProcess | null = null;
  #stderr = "";
  #reading: Promise<void> | null = null;

  private constructor(root: string, serve: readonly string[], uid: number | undefined) {
    this.root = root;
    this.outside = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-outside-" }));
    this.#serve = serve;
    this.#uid = uid;
  }

  /** Makes a root; the daemon is not started yet. */
  static async make(options: BridgeOptions = {}): Promise<TestBridge> {
    const root = Deno.realPathSync(
      Deno.makeTempDirSync({
        prefix: "chb-test-",
        ...(options.within === undefined ? {} : { dir: options.within }),
      }),
    );
    const bridge = new TestBridge(root, options.serve ?? ["--poll-ms", "500"], options.uid);
    const verbs = options.verbs ?? { "true": verb(["/usr/bin/true"]) };
    const policy = options.policy ?? {
      agents: { main: { verbs: Object.keys(verbs), scope: "mutating" } },
      verbs,
      limits: { concurrency: 2, answers: 100_000, ...options.limits },
    };
    const programs = new Set(options.programs ?? []);
    for (
      const v of Object.values((policy as { verbs: Record<string, { argv?: string[] }> }).verbs)
    ) {
      const [program] = v.argv ?? [];
      if (program !== undefined) programs.add(program);
    }
    Deno.mkdirSync(join(root, "bin"));
    Deno.chmodSync(join(root, "bin"), 0o755);
    if (options.binary !== undefined) Deno.copyFileSync(options.binary, join(root, "bin/chb"));
    else {
      Deno.writeTextFileSync(
        join(root, "bin/chb"),
        wrapperText({
          std: BUILD.std,
          commit: "test",
          policies: "test",
          programs: [...programs],
          agents: options.agents ?? ["main"],
          kill: killPath(there),
          deno: Deno.execPath(),
          cache: options.uid === undefined ? cacheDirectory() : join(root, "cache"),
        }),
      );
    }
    Deno.chmodSync(join(root, "bin/chb"), 0o555);
    const script = join(root, "init.sh");
    Deno.writeTextFileSync(script, initScript(null));
    const made = await new Deno.Command("/bin/sh", {
      args: [script],
      cwd: root,
      env: { CHB_INIT_ANYWHERE: "1" },
      stdin: "null",
    }).output();
    assert(made.success, `init.sh: ${new TextDecoder().decode(made.stderr)}`);
    for (const [name, text] of Object.entries(options.scripts ?? {})) {
      Deno.writeTextFileSync(join(root, "base", name), text);
      Deno.chmodSync(join(root, "base", name), 0o755);
    }
    Deno.writeTextFileSync(join(root, "bridge.jsonc"), JSON.stringify(policy, null, 2));
    if (options.trust !== false) {
      const { code, err } = await bridge.chb("trust", "--yes");
      assert(code === 0, `trust exited ${code}: ${err}`);
    }
    if (options.uid !== undefined) {
      const args = ["-R", `${options.uid}:${options.uid}`, root];
      assert((await new Deno.Command("chown", { args }).output()).success, "chown");
    }
    return bridge;
  }

  /** Makes a root and serves it. */
  static async start(options: BridgeOptions = {}): Promise<TestBridge> {
    const bridge = await TestBridge.make(options);
    try {
      await bridge.serve();
    } catch (error) {
      await bridge[Symbol.asyncDispose]();
      throw error;
    }
    return bridge;
  }

  path(...parts: string[]): string {
    return join(this.root, ...parts);
  }

  queue(name: string): string {
    return this.path("spool/main/queue", name);
  }

  /** Runs a human command to its end. */
  async chb(...args: string[]): Promise<{ code: number; out: string; err: string }> {
    return await this.chbWith("", ...args);
  }

  /** The same with something on standard input. */
  async chbWith(
    stdin: string,
    ...args: string[]
  ): Promise<{ code: number; out: string; err: string }> {
    const child = new Deno.Command("./bin/chb", {
      args,
      cwd: this.root,
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

  /** Starts the daemon and waits for its ready line. */
  async serve(...extra: string[]): Promise<string> {
    assert(this.#daemon === null, "the daemon runs already");
    const child = new Deno.Command(this.program, {
      args: ["serve", ...this.#serve, ...extra],
      cwd: this.root,
      ...(this.#uid === undefined ? {} : { uid: this.#uid, gid: this.#uid }),
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    this.#daemon = child;
    this.#stderr = "";
    const decoder = new TextDecoder();
    this.#reading = (async () => {
      for await (const chunk of child.stderr) {
        this.#stderr += decoder.decode(chunk, { stream: true });
      }
    })();
    let over = false;
    child.status.then(() => over = true);
    return await until("the ready line", () => {
      const line = this.#stderr.split("\n").find((l) => l.startsWith("chb: ready"));
      if (line !== undefined) return line;
      if (over) throw new Error(`The daemon left:\n${this.#stderr}`);
      return null;
    }, 60_000);
  }

  /** What the daemon wrote to standard error so far. */
  get log(): string {
    return this.#stderr;
  }

  get pid(): number {
    assert(this.#daemon !== null, "no daemon runs");
    return this.#daemon.pid;
  }

  /** Resident memory of the daemon, bytes. */
  memory(): number {
    const text = Deno.readTextFileSync(`/proc/${this.pid}/status`);
    return Number(/VmRSS:\s+(\d+) kB/.exec(text)?.[1] ?? NaN) * 1024;
  }

  /** Ends the daemon and waits for it. */
  async stop(signal: Deno.Signal = "SIGTERM"): Promise<number> {
    const child = this.#daemon;
    if (child === null) return 0;
    this.#daemon = null;
    try {
      child.kill(signal);
    } catch {
      // It has left by itself.
    }
    const { code } = await child.status;
    await this.#reading;
    return code;
  }

  /** Writes a temporary name and renames it, as an agent should. */
  submit(id: string, request: unknown): void {
    this.submitText(id, JSON.stringify(request));
  }

  submitText(id: string, text: string | Uint8Array): void {
    const temporary = this.queue(`.${id}.tmp`);
    Deno.writeFileSync(temporary, typeof text === "string" ? new TextEncoder().encode(text) : text);
    Deno.renameSync(temporary, this.queue(`${id}.json`));
  }

  /** What the result file says now. */
  result(name: string): Result | null {
    return readJson<Result>(this.path("spool/main/results", `${name}.json`));
  }

  /** Waits for a final result. */
  async final(name: string, ms = 15_000): Promise<Result> {
    return await until(`results/${name}.json`, () => {
      const result = this.result(name);
      return result !== null && (result.state === "done" || result.state === "uncertain")
        ? result
        : null;
    }, ms);
  }

  /** Submits and waits for the final result. */
  async ask(id: string, request: unknown): Promise<Result> {
    this.submit(id, request);
    return await this.final(id);
  }

  /** The notes in `inbox/refused/`, oldest first. */
  refused(): Record<string, unknown>[] {
    const dir = this.path("spool/main/inbox/refused");
    if (!there(dir)) return [];
    return [...Deno.readDirSync(dir)].map((e) => parseInt(e.name)).sort((a, b) => a - b)
      .map((n) => readJson<Record<string, unknown>>(join(dir, `${n}.json`)) ?? {});
  }

  /** The audit log's records. */
  audit(): Record<string, unknown>[] {
    const path = this.path("state/audit/audit.jsonl");
    if (!there(path)) return [];
    return Deno.readTextFileSync(path).split("\n").filter((l) => l !== "").map((l) =>
      JSON.parse(l)
    );
  }

  /** What `inbox/status.json` says. */
  status(): Record<string, unknown> | null {
    return readJson(this.path("spool/main/inbox/status.json"));
  }

  /** Names in the queue. */
  queued(): string[] {
    return [...Deno.readDirSync(this.path("spool/main/queue"))].map((e) => e.name);
  }

  /** What of the files that agents and people read does not fit its published schema. */
  schemaErrors(): string[] {
    const errors: string[] = [];
    const all = schemas();
    const judge = (kind: keyof typeof all, path: string, value: unknown) => {
      for (const e of validate(all[kind], value)) errors.push(`${path} (${kind}): ${e}`);
    };
    for (const agent of Deno.readDirSync(this.path("spool"))) {
      const base = this.path("spool", agent.name);
      for (const dir of ["results", "inbox/refused"]) {
        if (!there(join(base, dir))) continue;
        let n = 0;
        for (const { name, isFile } of Deno.readDirSync(join(base, dir))) {
          if (!isFile || !name.endsWith(".json") || n++ > 300) continue;
          const path = join(base, dir, name);
          judge("result", path, readJson(path));
        }
      }
      for (const kind of ["status", "catalogue"] as const) {
        const path = join(base, "inbox", `${kind}.json`);
        if (there(path)) judge(kind, path, readJson(path));
      }
    }
    for (const record of this.audit().slice(-500)) judge("audit-record", "audit.jsonl", record);
    return errors;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop("SIGKILL");
    await this.#endShims();
    let errors: string[];
    try {
      errors = this.schemaErrors();
    } catch {
      // A test that made directories unreadable judges its files itself.
      errors = [];
    }
    // A test may have left a directory that its owner cannot enter.
    await new Deno.Command("chmod", { args: ["-R", "u+rwx", this.root], stderr: "null" }).output();
    Deno.removeSync(this.root, { recursive: true });
    Deno.removeSync(this.outside, { recursive: true });
    assert(errors.length === 0, `files do not fit their schema:\n${errors.join("\n")}`);
  }

  /** Ends shims that outlived the daemon, found by their working directory. */
  async #endShims(): Promise<void> {
    for (let tries = 0; tries < 50; tries++) {
      let left = 0;
      for (const entry of Deno.readDirSync("/proc")) {
        const pid = Number(entry.name);
        if (!Number.isInteger(pid) || pid <= 1 || pid === Deno.pid) continue;
        try {
          if (Deno.readLinkSync(`/proc/${pid}/cwd`) !== this.root) continue;
          left++;
          // A shim leads its group: what it runs has another working directory and ends with it.
          const stat = Deno.readTextFileSync(`/proc/${pid}/stat`);
          const group = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[2]);
          Deno.kill(group === pid ? -pid : pid, "SIGKILL");
        } catch {
          // Gone, or somebody else's.
        }
      }
      if (left === 0) return;
      await sleep(20);
    }
  }
}
