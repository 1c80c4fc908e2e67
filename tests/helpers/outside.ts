/**
 * What lies outside of a bridge's root in tests of attacks: files of the host that no attack may
 * touch, and the tally in which every run of a verb leaves a line. With it, a bridge whose verbs
 * write that tally, and the assertions that each attack ends with.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { isEmptyFile } from "./agreement.ts";
import { type BridgeOptions, TestBridge, there, until, verb } from "./bridge.ts";

/** Stands in every secret; it must never appear below a root. */
export const MARKER = "HOST-SECRET-4f1d9c";

/** Would run the verb `leak`, were it ever taken for a request. */
export const SECRET = `{"verb":"leak","note":"${MARKER}"}\n`;

interface Seen {
  readonly text: string;
  readonly mode: number | null;
  readonly mtime: number | undefined;
  readonly ino: number | null;
  readonly nlink: number | null;
  readonly uid: number | null;
}

function see(path: string): Seen {
  const { mode, mtime, ino, nlink, uid } = Deno.lstatSync(path);
  return { text: Deno.readTextFileSync(path), mode, mtime: mtime?.getTime(), ino, nlink, uid };
}

export class Outside implements Disposable {
  /** An absolute directory, of the test's user alone. */
  readonly dir: string;
  readonly #secrets = new Map<string, Seen>();

  constructor() {
    this.dir = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-outside-" }));
  }

  path(...parts: string[]): string {
    return join(this.dir, ...parts);
  }

  /** Makes a file of the host and remembers it. */
  secret(name: string, text = SECRET): string {
    const path = this.path(name);
    Deno.writeTextFileSync(path, text, { createNew: true });
    Deno.chmodSync(path, 0o640);
    // A time that no accident produces.
    Deno.utimeSync(path, 1_600_000_000, 1_600_000_000);
    this.#secrets.set(path, see(path));
    return path;
  }

  /** Fails when one of the host's files is not exactly what it was. */
  untouched(): void {
    for (const [path, seen] of this.#secrets) assertEquals(see(path), seen, path);
  }

  /** What ran, a line each, in order. */
  runs(): string[] {
    const path = this.path("tally");
    return there(path) ? Deno.readTextFileSync(path).split("\n").filter((l) => l !== "") : [];
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.dir, { recursive: true });
  }
}

/** Scripts of the verbs of `attacked`. */
export const SCRIPTS: Readonly<Record<string, string>> = Object.freeze({
  "count.sh": '#!/bin/sh\necho "$1" >> "$TALLY"\n',
  "leak.sh": '#!/bin/sh\necho LEAK >> "$TALLY"\n',
});

/**
 * The verbs that every attacked bridge has: `count` leaves the id of its request in the tally, and
 * `leak`, which nobody ever asks for, leaves the word LEAK.
 */
export const VERBS: Readonly<Record<string, unknown>> = Object.freeze({
  count: verb(["base/count.sh", "{id}"]),
  leak: verb(["base/leak.sh"]),
});

/** What a bridge is made of besides the usual verbs and scripts. */
export interface AttackOptions extends Omit<BridgeOptions, "policy"> {
  readonly limits?: Readonly<Record<string, unknown>>;
  /** More keys for each agent in the policy. */
  readonly agent?: Readonly<Record<string, unknown>>;
}

/** Options of a bridge whose verbs write the tally. */
export function attacked(outside: Outside, options: AttackOptions = {}): BridgeOptions {
  const verbs = { ...VERBS, ...options.verbs };
  const agents = options.agents ?? ["main"];
  const agent = { verbs: Object.keys(verbs), scope: "mutating", ...options.agent };
  return {
    ...options,
    scripts: { ...SCRIPTS, ...options.scripts },
    policy: {
      agents: Object.fromEntries(agents.map((name) => [name, agent])),
      verbs,
      limits: { concurrency: 2, answers: 100_000, ...options.limits },
      env: { PATH: "/usr/bin:/bin", TALLY: outside.path("tally"), OUTSIDE: outside.dir },
    },
  };
}

/** A bridge that is attacked, and what follows every attack. */
export class Attack {
  readonly bridge: TestBridge;
  readonly outside: Outside;
  #valid = 0;

  constructor(bridge: TestBridge, outside: Outside) {
    this.bridge = bridge;
    this.outside = outside;
  }

  /**
   * Plants an attack, submits a valid request behind it, and asserts that the attack got what
   * `check` expects, that the valid request was run, once, and that nothing else was.
   *
   * @param alsoRun ids of requests that the attack itself is expected to have run, in any order
   */
  async run(
    plant: () => void | Promise<void>,
    check: () => void | Promise<void>,
    alsoRun: readonly string[] = [],
  ): Promise<void> {
    const before = this.outside.runs();
    await plant();
    await this.valid();
    await check();
    const ran = this.outside.runs().slice(before.length);
    assertEquals(ran.toSorted(), [`valid-${this.#valid}`, ...alsoRun].toSorted());
    this.outside.untouched();
  }

  /** A valid request, to its result. */
  async valid(): Promise<void> {
    const id = `valid-${++this.#valid}`;
    this.bridge.submit(id, { verb: "count" });
    const result = await this.bridge.final(id, 30_000);
    assertEquals([result.code, result.outcome], [0, "succeeded"], result.message);
  }

  /**
   * Waits for the refusal of an entry whose name is a request's, and asserts that it is the only
   * answer and that the entry has gone.
   */
  async refused(
    id: string,
    expected: { code: number; reason: string; stage: string },
  ): Promise<void> {
    const { bridge } = this;
    const result = await bridge.final(id);
    const { code, reason, stage } = result;
    assertEquals<unknown>({ code, reason, stage }, expected, `${id}: ${result.message}`);
    assertEquals([result.outcome, result.exit_code ?? null], ["rejected", null]);
    assert(!there(bridge.queue(`${id}.json`)), `${id}.json is still in the queue`);
    assertEquals(this.recordsOf((r) => r["id"] === id).length, 1, `answers to ${id}`);
    assert(!there(bridge.path("spool/main/results", `${id}.refused.json`)));
    assertEquals(notesOf(bridge, `${id}.json`), [], "a note besides the result");
  }

  /**
   * The same for an entry whose name is no request's: its answer is a note.
   *
   * @param shown the name as it must be shown
   */
  async refusedNote(
    name: string,
    shown: string,
    expected: { code: number; reason: string; stage: string },
  ): Promise<void> {
    const { bridge } = this;
    const note = await until(`a note on ${shown}`, () => notesOf(bridge, shown)[0] ?? null);
    const { code, reason, stage } = note;
    assertEquals<unknown>({ code, reason, stage }, expected, `${shown}: ${note["message"]}`);
    assert(!there(bridge.queue(name)), `${shown} is still in the queue`);
    assertEquals(notesOf(bridge, shown).length, 1, `notes on ${shown}`);
    assertEquals(this.recordsOf((r) => r["name"] === shown).length, 1, `records of ${shown}`);
  }

  /** Answers in the audit log. */
  recordsOf(match: (record: Record<string, unknown>) => boolean): Record<string, unknown>[] {
    const answers = ["refused", "answered", "accepted", "replayed", "joined", "shed"];
    return this.bridge.audit().filter((r) => answers.includes(String(r["event"])) && match(r));
  }

  /** What must hold when all is over: no secret in any file, no run of `leak`, nothing held back. */
  async end(): Promise<void> {
    const { bridge, outside } = this;
    await until(
      "the last claim",
      () => [...Deno.readDirSync(bridge.path("work/main/claims"))].length === 0,
    );
    assertEquals(bridge.queued(), []);
    // A file without content is kept for the next result.
    const staging = bridge.path("work/main/staging");
    const staged = [...Deno.readDirSync(staging)].map(({ name }) => name);
    assertEquals(staged.filter((name) => !isEmptyFile(join(staging, name))), []);
    assert(!outside.runs().includes("LEAK"), "a secret was taken for a request");
    outside.untouched();
    await noMarker(bridge);
  }
}

/** Fails when a file below the root holds the marker of a secret. */
export async function noMarker(bridge: TestBridge): Promise<void> {
  const { stdout } = await new Deno.Command("grep", {
    args: ["-rlaD", "skip", MARKER, bridge.root],
    stderr: "null",
  }).output();
  assertEquals(new TextDecoder().decode(stdout), "", "a secret went into the root");
}

/** The notes in `inbox/refused/` on an entry, by its name as it is shown. */
export function notesOf(bridge: TestBridge, shown: string): Record<string, unknown>[] {
  return bridge.refused().filter((note) => note["name"] === shown);
}

/** Runs a shell command in a directory and asserts that it succeeds. */
export async function sh(command: string, cwd: string, ...args: string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command("/bin/sh", {
    args: ["-c", command, "sh", ...args],
    cwd,
    stdin: "null",
  }).output();
  assert(success, `${command}: ${new TextDecoder().decode(stderr)}`);
  return new TextDecoder().decode(stdout);
}
