/**
 * A root with policy, programs and `bin/chb`, in which tests start shims as real processes under
 * the program's real permissions, and play the daemon by hand.
 *
 * @module
 */
import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { BUILD } from "#build";
import { randomHex } from "../../src/names.ts";
import { killPath } from "../../src/permissions.ts";
import { checkArgs } from "../../src/policy/check_args.ts";
import { parsePolicy } from "../../src/policy/parse_policy.ts";
import type { Policy } from "../../src/policy/policy.ts";
import { commandDigest, resolveCommand } from "../../src/policy/resolve_command.ts";
import { readExit } from "../../src/run/exit_record.ts";
import { hashFile, lookProgram } from "../../src/run/file_identity.ts";
import { killGroup } from "../../src/run/kill_group.ts";
import { LineReader } from "../../src/run/line_reader.ts";
import type { Exit, Order } from "../../src/run/order.ts";
import { prepareRun } from "../../src/run/order_file.ts";
import { resolveContext, runDir } from "../../src/run/run_dir.ts";
import { inRepository } from "../../tools/launcher.ts";
import { ENTRIES, wrapperText } from "../../tools/wrapper.ts";
import { cacheDirectory } from "./cache.ts";

export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Calls `probe` until it gives something, or fails after `ms`. */
export async function until<T>(
  what: string,
  probe: () => T | null | false | Promise<T | null | false>,
  ms = 15_000,
): Promise<T> {
  const end = performance.now() + ms;
  for (;;) {
    const value = await probe();
    if (value !== null && value !== false) return value;
    if (performance.now() > end) throw new Error(`Waited ${ms} ms for ${what}`);
    await sleep(5);
  }
}

function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

/** Processes of a group that are not zombies, which only wait for somebody to look at them. */
function living(pgid: number): number {
  let n = 0;
  for (const { name } of Deno.readDirSync("/proc")) {
    if (!/^[0-9]+$/.test(name)) continue;
    try {
      // pid (command) state ppid pgrp …; a command may hold spaces and brackets.
      const stat = Deno.readTextFileSync(`/proc/${name}/stat`);
      const [state, , group] = stat.slice(stat.lastIndexOf(") ") + 2).split(" ");
      if (Number(group) === pgid && state !== "Z") n++;
    } catch {
      // It ended meanwhile.
    }
  }
  return n;
}

/** One shim process whose daemon is the test. */
export class RawShim {
  readonly child: Deno.ChildProcess;
  readonly pid: number;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #lines = new LineReader();
  readonly #waiting: string[] = [];

  constructor(child: Deno.ChildProcess) {
    this.child = child;
    this.pid = child.pid;
    this.#writer = child.stdin.getWriter();
    this.#reader = child.stdout.getReader();
  }

  /** Writes bytes as they are. */
  async write(text: string): Promise<void> {
    await this.#writer.write(new TextEncoder().encode(text));
  }

  async closeStdin(): Promise<void> {
    await this.#writer.close();
  }

  /** The next line, or null at the end. */
  async line(): Promise<string | null> {
    for (;;) {
      const line = this.#waiting.shift();
      if (line !== undefined) return line;
      const { value, done } = await this.#reader.read();
      if (done) return null;
      this.#waiting.push(...this.#lines.push(value));
    }
  }

  /** Nobody reads its standard output any more. */
  async deafen(): Promise<void> {
    await this.#reader.cancel();
  }

  /** Waits for its end and lets go of its pipes. */
  async close(): Promise<Deno.CommandStatus> {
    const status = await this.child.status;
    await this.#writer.close().catch(() => {});
    await this.#reader.cancel().catch(() => {});
    return status;
  }

  /** Sends a run and gives the next line. */
  async run(run: string): Promise<string | null> {
    await this.write(`${run}\n`);
    return await this.line();
  }
}

/** What a root is made of. */
export interface ShimRootOptions {
  /** Scripts below `base/`, by name: `#!/bin/sh` and the text. Each becomes a verb of that name. */
  readonly scripts?: Readonly<Record<string, string>>;
  /** Changes to the verbs: by name, on top of the defaults or of those of a script. */
  readonly verbs?: Readonly<Record<string, Record<string, unknown>>>;
  readonly limits?: Readonly<Record<string, unknown>>;
  readonly env?: Readonly<Record<string, string>>;
  /** Agents whose kill switch a shim is granted to see. */
  readonly seenAgents?: readonly string[];
  /** Files below `base/` that are no programs. */
  readonly files?: Readonly<Record<string, string>>;
  /** Verbs by agent, instead of one agent that has all. */
  readonly agents?: Readonly<Record<string, readonly string[]>>;
  /** The program that `bin/chb` runs, below the repository. */
  readonly main?: string;
  /** Changes to the text of `bin/chb`. */
  readonly wrapper?: (text: string) => string;
}

/** A temporary root. */
export class ShimRoot implements AsyncDisposable {
  readonly root: string;
  readonly policy: Policy;
  readonly #pids = new Set<number>();
  readonly #shims: RawShim[] = [];

  private constructor(root: string, policy: Policy) {
    this.root = root;
    this.policy = policy;
  }

  static make(options: ShimRootOptions = {}): ShimRoot {
    const root = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-shim-" }));
    for (const dir of ["bin", "keys", "base", "spool", "work", "state/runs", "state/policies"]) {
      Deno.mkdirSync(join(root, dir), { recursive: true });
    }
    const scripts = { ...options.scripts };
    const verbs: Record<string, Record<string, unknown>> = {
      true: { argv: ["/usr/bin/true"] },
    };
    for (const [name, text] of Object.entries(scripts)) {
      Deno.writeTextFileSync(join(root, "base", name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
      verbs[name] = { argv: [`base/${name}`] };
    }
    for (const [name, more] of Object.entries(options.verbs ?? {})) {
      verbs[name] = { ...verbs[name], ...more };
    }
    for (const [name, text] of Object.entries(options.files ?? {})) {
      Deno.writeTextFileSync(join(root, "base", name), text);
    }
    const agents = options.agents ?? { main: Object.keys(verbs) };
    const document = {
      agents: Object.fromEntries(
        Object.entries(agents).map(([name, list]) => [name, { verbs: list, scope: "mutating" }]),
      ),
      verbs: Object.fromEntries(
        Object.entries(verbs).map(([name, more]) => [name, {
          description: "A verb of a test.",
          class: "observe",
          timeout_s: 60,
          ...more,
        }]),
      ),
      env: { PATH: "/usr/bin:/bin", ...options.env },
      limits: { ...options.limits },
    };
    const bytes = new TextEncoder().encode(JSON.stringify(document));
    const parsed = parsePolicy(bytes);
    assert(parsed.ok, Deno.inspect(parsed, { depth: 5 }));
    Deno.writeFileSync(join(root, "state/policies", `${parsed.policy.digest}.jsonc`), bytes);
    const programs = [...parsed.policy.verbs.values()].map((verb) => verb.program);
    const text = wrapperText({
      std: BUILD.std,
      commit: "test",
      policies: "test",
      programs: [...new Set(programs)],
      agents: options.seenAgents ?? ["main"],
      kill: killPath(exists),
      deno: Deno.execPath(),
      cache: cacheDirectory(),
    }).replaceAll(ENTRIES.shim, inRepository(options.main ?? "src/run/shim_main.ts"));
    const wrapper = options.wrapper?.(text) ?? text;
    Deno.writeTextFileSync(join(root, "bin/chb"), wrapper, { mode: 0o755 });
    return new ShimRoot(root, parsed.policy);
  }

  path(...names: string[]): string {
    return join(this.root, ...names);
  }

  /** Starts a shim; it need not be ready yet. */
  spawn(detached = true): RawShim {
    const shim = new RawShim(
      new Deno.Command(this.path("bin/chb"), {
        args: ["shim"],
        detached,
        clearEnv: true,
        cwd: this.root,
        stdin: "piped",
        stdout: "piped",
        stderr: Deno.env.get("CHB_TEST_STDERR") === undefined ? "null" : "inherit",
      }).spawn(),
    );
    if (detached) this.#pids.add(shim.pid);
    this.#shims.push(shim);
    return shim;
  }

  /** Starts a shim and waits until it is ready. */
  async shim(): Promise<RawShim> {
    const shim = this.spawn();
    const line = await shim.line();
    assert(line === `ready ${shim.pid}`, `the shim said: ${line}`);
    return shim;
  }

  /** The group ends with this root, whatever it does. */
  adopt(pgid: number): void {
    this.#pids.add(pgid);
  }

  /** An order as the daemon would write it. */
  order(
    shim: { readonly pid: number },
    verbName: string,
    args: Record<string, unknown> = {},
    more: Partial<Order> = {},
  ): Order {
    const verb = this.policy.verbs.get(verbName);
    assert(verb !== undefined);
    const checked = checkArgs(verb, args);
    assert(checked.ok, Deno.inspect(checked));
    const facts = { run: randomHex(16), id: "r1", idempotency_key: "r1", max_spend: null };
    const command = resolveCommand(verb, checked.args, resolveContext(facts, this.root));
    const look = lookProgram(command.program);
    const program = look.ok
      ? look.identity
      : { path: "x", dev: "0", ino: "0", size: 0, mtime_ms: 0 };
    return {
      chb: 1,
      ...facts,
      agent: "main",
      verb: verbName,
      args: checked.args,
      attempt: 1,
      policy: this.policy.digest,
      command_sha256: commandDigest(command),
      program,
      requires: verb.requires.map((path) => ({ path, sha256: hashFile(this.path(path)) })),
      timeout_ms: verb.timeout_s * 1000,
      grace_ms: 500,
      output_cap: this.policy.limits.output_bytes,
      pgid: shim.pid,
      reuse: verb.class === "observe",
      ...more,
    };
  }

  /** Writes an order and gives its run. */
  prepare(...order: Parameters<ShimRoot["order"]>): string {
    const full = this.order(...order);
    prepareRun(full, this.root);
    return full.run;
  }

  dir(run: string): string {
    return runDir(run, this.root);
  }

  exit(run: string): Exit | null {
    return readExit(this.dir(run), run);
  }

  /** The exit record, which must be there. */
  mustExit(run: string): Exit {
    const exit = this.exit(run);
    assert(exit !== null, `no exit record; ${Deno.inspect(this.files(run))}`);
    return exit;
  }

  /** Names in the run directory, but for the empty file that a record will be written into. */
  files(run: string): string[] {
    return [...Deno.readDirSync(this.dir(run))].map((entry) => entry.name)
      .filter((name) => name !== "exit.json.tmp" || this.read(run, name) !== "").sort();
  }

  read(run: string, name: string): string {
    return Deno.readTextFileSync(join(this.dir(run), name));
  }

  /** Waits until nothing of a group runs any more. */
  async groupEnds(pgid: number): Promise<void> {
    await until(`the end of group ${pgid}`, () => living(pgid) === 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pid of this.#pids) {
      await killGroup(pid, "CONT");
      await killGroup(pid, "KILL");
    }
    for (const shim of this.#shims) await shim.close();
    Deno.removeSync(this.root, { recursive: true });
  }
}
