/**
 * A running bridge for attacks: scripts that leave a line for each of their runs outside the spool,
 * and the checks that every refused entry has to pass, whatever it was.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { codeOf, type Reason } from "../../src/codes.ts";
import { schemas } from "../../src/policy/schema.ts";
import type { Result } from "../../src/result.ts";
import { validate } from "../json_schema.ts";
import { isEmptyFile } from "./agreement.ts";
import { TestBridge, there, until } from "./bridge.ts";

/**
 * What every counting script begins with: one line in `ran`, outside of everything that an agent
 * reaches, with each argument in angle brackets. One write, so that lines of two runs stay apart.
 */
const COUNT = `#!/bin/sh
line=
for word in "$@"; do line="$line<$word>"; done
printf '%s\\n' "$line" >> "\${0%/*}/../ran"
`;

const RESULT_SCHEMA = schemas().result;

/** What an arena is made of. */
export interface ArenaOptions {
  /** Below `base/`, by name: what a script does after it has left its line. */
  readonly scripts: Readonly<Record<string, string>>;
  /** Verbs as they stand in the policy, but for what `start` fills in. */
  readonly verbs: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  readonly limits?: Readonly<Record<string, unknown>>;
  readonly scope?: string;
  /** Programs to grant besides those of the policy. */
  readonly programs?: readonly string[];
  /** Other files below `base/`. */
  readonly files?: Readonly<Record<string, string>>;
}

/** How an entry is expected to be refused. */
export interface Refused {
  readonly reason: Reason;
  readonly stage: string;
  /** What the message has to say. */
  readonly message?: RegExp;
  readonly hint?: RegExp;
}

export class Arena implements AsyncDisposable {
  readonly bridge: TestBridge;
  #probes = 0;

  private constructor(bridge: TestBridge) {
    this.bridge = bridge;
  }

  /** Makes a root, trusts its policy and serves it. The verb `ok` is always there. */
  static async start(options: ArenaOptions): Promise<Arena> {
    const verbs = Object.fromEntries(
      Object.entries({ ok: { argv: ["base/ok", "ok"] }, ...options.verbs }).map(([name, more]) => [
        name,
        { description: "A verb of a test.", class: "observe", timeout_s: 60, ...more },
      ]),
    );
    const bridge = await TestBridge.make({
      policy: {
        agents: { main: { verbs: Object.keys(verbs), scope: options.scope ?? "mutating" } },
        verbs,
        env: { PATH: "/usr/bin:/bin" },
        limits: { concurrency: 2, answers: 100_000, grace_s: 0.5, ...options.limits },
      },
      scripts: {
        ...Object.fromEntries(
          Object.entries({ ok: "", ...options.scripts }).map(([name, text]) => [
            name,
            `${COUNT}${text}\n`,
          ]),
        ),
        ...options.files,
      },
      ...(options.programs === undefined ? {} : { programs: options.programs }),
    });
    try {
      await bridge.serve();
    } catch (error) {
      await bridge[Symbol.asyncDispose]();
      throw error;
    }
    return new Arena(bridge);
  }

  /** One line for each start of a script since the root was made. */
  ran(): string[] {
    const path = this.bridge.path("ran");
    return there(path) ? Deno.readTextFileSync(path).split("\n").slice(0, -1) : [];
  }

  /** Names in `results/`. */
  results(): string[] {
    return [...Deno.readDirSync(this.bridge.path("spool/main/results"))].map((e) => e.name);
  }

  /** What lies in a directory of the host. */
  #names(...parts: string[]): string[] {
    return [...Deno.readDirSync(this.bridge.path(...parts))].map((e) => e.name);
  }

  /** Audit records about an id. */
  records(id: string): Record<string, unknown>[] {
    return this.bridge.audit().filter((record) => record["id"] === id);
  }

  /** Submits a request that must run, and waits for it: whoever was there before is behind it. */
  async behind(): Promise<string> {
    const id = `zz-behind-${++this.#probes}`;
    const result = await this.bridge.ask(id, { verb: "ok" });
    assertEquals([result.outcome, result.exit_code], ["succeeded", 0], JSON.stringify(result));
    return id;
  }

  /**
   * Plants an entry and a valid request behind it. The entry must be refused as expected and leave
   * nothing behind but its one answer; the valid request must run.
   *
   * @param plant content that is renamed into place, or what puts the entry there
   */
  async refuses(
    id: string,
    plant: string | Uint8Array | (() => void | Promise<void>),
    want: Refused,
  ): Promise<Result> {
    const { bridge } = this;
    const before = this.ran().length;
    const pid = bridge.pid;
    const notes = bridge.refused().length;
    if (typeof plant === "function") await plant();
    else bridge.submitText(id, plant);
    await this.behind();
    const result = await bridge.final(id);
    const row = codeOf(want.reason);
    assertEquals(
      [result.state, result.outcome, result.code, result.reason, result.stage, result.next],
      ["done", row.outcome, row.code, want.reason, want.stage, row.next],
      JSON.stringify(result),
    );
    assertEquals([result.id, result.agent], [id, "main"]);
    if (want.message !== undefined) assertMatch(result.message ?? "", want.message);
    if (want.hint !== undefined) assertMatch(result.hint ?? "", want.hint);
    for (const text of [result.message ?? "", result.hint ?? ""]) {
      assert(text !== "", "a refusal says what was wrong and what to do");
      // deno-lint-ignore no-control-regex
      assert(!/[\x00-\x1f\x7f-\x9f]/.test(text), "no control character in a sentence of ours");
    }
    assertEquals([result.exit_code, result.started_at, result.stdout], [
      undefined,
      undefined,
      undefined,
    ], "nothing was started");
    assertEquals(validate(RESULT_SCHEMA, result), [], "the result fits its schema");
    // Nothing ran but the request behind it.
    assertEquals(this.ran().slice(before), ["<ok>"]);
    // One answer, one record, and the entry is nowhere any more.
    assertEquals(this.results().filter((n) => n.startsWith(`${id}.`)), [`${id}.json`]);
    assertEquals(bridge.refused().length, notes, "no second answer as a note");
    assertEquals(this.records(id).map((r) => r["event"]), ["refused"]);
    assertEquals(bridge.queued(), []);
    // A status file may be on its way at any moment, so this is waited for. A file without content is
    // kept for the next result.
    for (const room of ["work/main/claims", "work/main/staging"]) {
      const isLeft = (name: string) => !isEmptyFile(bridge.path(room, name));
      await until(`empty ${room}`, () => !this.#names(room).some(isLeft));
    }
    assertEquals(bridge.pid, pid);
    assert(there(`/proc/${pid}/status`), "the daemon lives");
    return result;
  }

  /** Submits a request that must run and gives its result and the line that its script left. */
  async runs(
    id: string,
    request: string | Record<string, unknown>,
  ): Promise<{ result: Result; line: string }> {
    const before = this.ran().length;
    this.bridge.submitText(id, typeof request === "string" ? request : JSON.stringify(request));
    const result = await this.bridge.final(id);
    assertEquals(
      [result.outcome, result.code, result.reason, result.exit_code],
      ["succeeded", 0, "ok", 0],
      JSON.stringify(result),
    );
    assertEquals(validate(RESULT_SCHEMA, result), [], "the result fits its schema");
    const lines = this.ran().slice(before);
    assertEquals(lines.length, 1, "it ran once");
    assertEquals(this.results().filter((n) => n.startsWith(`${id}.`)), [`${id}.json`]);
    return { result, line: lines[0] ?? "" };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.bridge[Symbol.asyncDispose]();
  }
}
