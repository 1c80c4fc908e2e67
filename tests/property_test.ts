/**
 * Whatever lands in a queue, and however it is named, leaves it with exactly one answer or stands on
 * the stuck list; nothing runs but valid requests, each of them once; the daemon lives.
 *
 * 2,000 random entries a run, 100,000 with `SLOW=1`. The seed is printed; `SEED=…` gives the same
 * entries again.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { codeOf } from "../src/codes.ts";
import { printable } from "../src/names.ts";
import type { Result } from "../src/result.ts";
import { isEmptyFile } from "./helpers/agreement.ts";
import { type TestBridge, there, until } from "./helpers/bridge.ts";
import { countedBridge, marking } from "./helpers/counting.ts";
import { EntryMaker, run } from "./helpers/entries.ts";
import { type Case, CASE_WORDS, type Host, Random, randomCase } from "./helpers/random_cases.ts";
import { validate } from "./json_schema.ts";

const CASES = Deno.env.get("SLOW") === "1" ? 100_000 : 2000;
const SEED = Number(Deno.env.get("SEED") ?? Math.floor(Math.random() * 2 ** 31));
/** Fewer than the notes that are kept in `inbox/refused/`. */
const BATCH = 150;
/** What is in the host file that links lead to. */
const CANARY = "canary-of-the-host";
/** Stuck entries stand to the end: so many are enough. */
const MAX_STUCK = 500;

const VERBS = {
  mark: marking(),
  say: marking(["{word}", "--level={level}"], {
    args: {
      word: { type: "enum", values: [...CASE_WORDS] },
      level: { type: "integer", min: 0, max: 9, default: 3 },
    },
  }),
  alter: marking([], { class: "mutating" }),
};

/** Finds out what this user may do and what this runtime can see. */
function thisHost(): Host {
  const room = Deno.makeTempDirSync();
  try {
    run("sh", "-c", `: > "$1/$(printf '\\377')"`, "sh", room);
    const listsRaw = [...Deno.readDirSync(room)].length === 1;
    let free = true;
    try {
      Deno.writeFileSync(`${room}/sealed`, new Uint8Array(), { mode: 0 });
      Deno.openSync(`${room}/sealed`).close();
    } catch {
      free = false;
    }
    return { free, listsRaw };
  } finally {
    Deno.removeSync(room, { recursive: true });
  }
}

/** One note of `inbox/refused/`. */
interface Note {
  readonly n: number;
  readonly name: string;
  readonly reason: string;
}

/** Everything that is held against the bridge, batch by batch. */
class Trial {
  readonly #bridge: TestBridge;
  readonly #maker: EntryMaker;
  readonly #schema: unknown;
  readonly #runs: () => string[];
  readonly #stuckNames: string[] = [];
  #seenRuns = 0;
  /** Bytes of the audit text that were read. */
  #seenAudit = 0;
  #notes = 0;
  #memory = 0;
  stuck = 0;

  constructor(bridge: TestBridge, maker: EntryMaker, schema: unknown, runs: () => string[]) {
    this.#bridge = bridge;
    this.#maker = maker;
    this.#schema = schema;
    this.#runs = runs;
  }

  /** Puts a batch into the queue and holds what comes of it against what must come. */
  async batch(cases: readonly Case[], number: number): Promise<void> {
    const bridge = this.#bridge;
    const shells = cases.flatMap((c) => c.shell ?? []);
    if (shells.length > 0) {
      run("sh", "-c", `cd "$1" || exit 1\n${shells.join("\n")}`, "sh", bridge.queue(""));
    }
    for (const c of cases) this.#place(c);
    const last = `last-${number}`;
    bridge.submit(last, { verb: "mark" });
    // What is written first is not always what is found first, so each is waited for.
    const leaving = cases.filter((c) => c.expect.kind !== "stuck" && c.expect.kind !== "left");
    const results = new Map<string, Result>();
    let open = leaving;
    await this.#until(`answers to batch ${number}`, () => {
      open = open.filter((c) => !this.#answered(c, results));
      return open.length === 0 && bridge.result(last)?.state === "done";
    }, () => open.slice(0, 5).map((c) => `${this.#where(c)} ${this.#words(c)}`).join("\n"));
    assertEquals(bridge.result(last)?.outcome, "succeeded", "the valid request behind the batch");

    this.#checkQueue(cases, leaving);
    const expected: string[] = [last];
    for (const c of leaving) {
      if (c.id !== null) this.#checkResult(c, results.get(c.id), expected);
    }
    this.#checkFiles(leaving, last);
    await this.#checkRooms();
    this.#checkNotes(leaving.filter((c) => c.id === null));
    await this.#checkAudit(leaving, last, results);
    const ran = this.#runs().slice(this.#seenRuns);
    assertEquals(ran.sort(), expected.sort(), "what ran");
    this.#seenRuns += ran.length;
    this.#maker.assertHostUntouched();
    this.#clean(cases, number);
  }

  #place(c: Case): void {
    if (c.shell !== null) return;
    if (typeof c.entry === "object") this.#maker.sparse(c.name, c.entry.sparse);
    else if (c.direct) this.#maker.write(c.name, c.bytes);
    else this.#maker.make(c.entry, c.name, c.bytes);
  }

  /** The entry has left, and its answer is there and final. */
  #answered(c: Case, results: Map<string, Result>): boolean {
    if (there(this.#bridge.queue(c.name))) return false;
    // Notes are counted when the whole batch has left.
    if (c.id === null) return true;
    const result = this.#bridge.result(c.id);
    if (result === null || (result.state !== "done" && result.state !== "uncertain")) return false;
    results.set(c.id, result);
    return true;
  }

  async #until(what: string, probe: () => boolean, more: () => string): Promise<void> {
    try {
      await until(what, probe, 30_000);
    } catch (error) {
      throw new Error(
        `${error instanceof Error ? error.message : error}\nopen:\n${more()}\n` +
          `daemon: ${there(`/proc/${this.#bridge.pid}/status`) ? "there" : "gone"}\n` +
          `status: ${JSON.stringify(this.#bridge.status()).slice(0, 2000)}\n` +
          `log:\n${this.#bridge.log.slice(-3000)}`,
      );
    }
  }

  /** How far an entry came, for failures. */
  #where(c: Case): string {
    if (there(this.#bridge.queue(c.name))) return "[in the queue]";
    return `[${c.id === null ? "gone" : this.#bridge.result(c.id)?.state ?? "without an answer"}]`;
  }

  #words(c: Case): string {
    return `seed ${SEED}, case ${c.n}: ${c.what}, ${c.direct ? "written" : "renamed"} as ` +
      `${JSON.stringify(c.name)}, wanted ${JSON.stringify(c.expect)}, ` +
      `bytes ${JSON.stringify(new TextDecoder().decode(c.bytes.slice(0, 300)))}`;
  }

  /** What may stay has stayed, and nothing else. */
  #checkQueue(cases: readonly Case[], leaving: readonly Case[]): void {
    const queued = this.#bridge.queued().filter((name) => !name.startsWith(".chb-probe-"));
    for (const c of leaving) assert(!queued.includes(c.name), `still queued: ${this.#words(c)}`);
    for (const c of cases) {
      if (c.expect.kind === "left") assert(queued.includes(c.name), `taken: ${this.#words(c)}`);
      if (c.expect.kind !== "stuck") continue;
      this.stuck += c.expect.count;
      if (c.expect.listed) this.#stuckNames.push(c.name);
    }
    const left = cases.filter((c) => c.expect.kind === "left").length;
    assertEquals(queued.length, this.stuck + left, "entries in the queue");
  }

  #checkResult(c: Case, result: Result | undefined, ran: string[]): void {
    const words = this.#words(c);
    assert(result !== undefined, words);
    assertEquals(validate(this.#schema, result), [], words);
    assertEquals([result.id, result.agent], [c.id, "main"], words);
    const { reason } = result;
    assert(reason !== undefined, words);
    const row = codeOf(reason);
    assertEquals([result.code, result.next], [row.code, row.next], words);
    const told = [reason, result.stage ?? null];
    switch (c.expect.kind) {
      case "runs":
        assertEquals([...told, result.exit_code], ["ok", null, 0], words);
        ran.push(c.id ?? "");
        break;
      case "answered":
        assertEquals(told, ["ok", null], words);
        assert(result.answer !== undefined, words);
        break;
      case "refused":
        assertEquals(told, [c.expect.reason, c.expect.stage], words);
        assert((result.message ?? "") !== "" && (result.hint ?? "") !== "", words);
        break;
      case "any": {
        if (!c.expect.json) assertEquals(told, ["malformed", "parse"], words);
        const started = result.exit_code !== undefined && result.replay_of === undefined;
        if (started) assertEquals(reason, "ok", words);
        if (started) ran.push(c.id ?? "");
        break;
      }
      default:
        throw new Error(`Answered although it must not be: ${words}`);
    }
  }

  /** `results/` has exactly one file an id. */
  #checkFiles(leaving: readonly Case[], last: string): void {
    const dir = this.#bridge.path("spool/main/results");
    const files = [...Deno.readDirSync(dir)].map((e) => e.name).sort();
    const wanted = [last, ...leaving.flatMap((c) => c.id ?? [])].map((id) => `${id}.json`).sort();
    assertEquals(files, wanted, "files in results/");
    for (const file of files) {
      const text = Deno.readTextFileSync(`${dir}/${file}`);
      assert(!text.includes(CANARY), `${file} holds a host file`);
      Deno.removeSync(`${dir}/${file}`);
    }
  }

  /** Nothing of the batch is left where the bridge works. */
  async #checkRooms(): Promise<void> {
    for (const room of ["claims", "staging"]) {
      const path = this.#bridge.path("work/main", room);
      const held = () => [...Deno.readDirSync(path)].map((entry) => `${path}/${entry.name}`);
      // The status is written there too, now and then, and a file is kept for the next result.
      const isFree = (left: readonly string[]) =>
        left.length === 0 || (room === "staging" && left.length === 1 && left.every(isEmptyFile));
      await until(`an empty ${room}/`, () => isFree(held()));
    }
  }

  /** Every entry without a usable name has one note, under a number of its own. */
  #checkNotes(unnamed: readonly Case[]): void {
    const dir = this.#bridge.path("spool/main/inbox/refused");
    const notes = (this.#bridge.refused() as unknown as Note[]).filter((n) => n.n > this.#notes);
    assertEquals(notes.map((n) => n.n), notes.map((_, i) => this.#notes + i + 1));
    for (const note of notes) {
      assertEquals(validate(this.#schema, note), [], JSON.stringify(note));
      assertMatch(JSON.stringify(note), /^[ -~]*$/);
    }
    const told = notes.map((n) => `${n.reason} ${n.name}`).sort();
    const wanted = unnamed.map((c) => {
      assert(c.expect.kind === "refused", this.#words(c));
      return `${c.expect.reason} ${printable(c.name)}`;
    });
    assertEquals(told, wanted.sort(), "notes in inbox/refused/");
    this.#notes += notes.length;
    if (!there(dir)) return;
    assert([...Deno.readDirSync(dir)].length <= 200, "notes are kept without end");
  }

  /** One record tells of each answer, in whole lines. */
  async #checkAudit(
    leaving: readonly Case[],
    last: string,
    results: ReadonlyMap<string, Result>,
  ): Promise<void> {
    const records: Record<string, unknown>[] = [];
    await until("the audit text", () => {
      records.push(...this.#newRecords());
      return records.some((r) => r["event"] === "finished" && r["id"] === last);
    });
    const told = new Map<string, number>();
    for (const record of records) {
      const { event, id, name } = record as Record<string, string>;
      const who = id === undefined ? `name ${name}` : `id ${id}`;
      const key = `${event} ${who}`;
      told.set(key, (told.get(key) ?? 0) + 1);
    }
    const once = (event: string, who: string, c: Case) => {
      assertEquals(told.get(`${event} ${who}`), 1, `records of ${event}: ${this.#words(c)}`);
      told.delete(`${event} ${who}`);
    };
    for (const c of leaving) {
      const who = c.id === null ? `name ${printable(c.name)}` : `id ${c.id}`;
      const result = c.id === null ? undefined : results.get(c.id);
      if (result?.replay_of !== undefined) once("joined", who, c);
      else if (result?.answer !== undefined) once("answered", who, c);
      else if (result?.exit_code !== undefined) {
        for (const event of ["accepted", "started", "finished"]) once(event, who, c);
      } else once("refused", who, c);
    }
    for (const event of ["accepted", "started", "finished"]) told.delete(`${event} id ${last}`);
    for (const key of told.keys()) assertMatch(key, /^(trusted|started-daemon|stuck|pins) /);
  }

  /** Records of the audit text since the last call; a line that is not whole yet is left. */
  #newRecords(): Record<string, unknown>[] {
    using file = Deno.openSync(this.#bridge.path("state/audit/audit.jsonl"));
    const { size } = file.statSync();
    file.seekSync(this.#seenAudit, Deno.SeekMode.Start);
    const bytes = new Uint8Array(size - this.#seenAudit);
    for (let at = 0; at < bytes.length;) at += file.readSync(bytes.subarray(at)) ?? bytes.length;
    const end = bytes.lastIndexOf(0x0a) + 1;
    this.#seenAudit += end;
    const text = new TextDecoder().decode(bytes.subarray(0, end));
    return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
  }

  /** What a human would clear away, so that a long run does not run into its bounds. */
  #clean(cases: readonly Case[], number: number): void {
    for (const c of cases) {
      if (c.expect.kind !== "left") continue;
      const path = this.#bridge.queue(c.name);
      if (Deno.lstatSync(path).isDirectory) run("chmod", "-R", "u+rwx", "--", path);
      Deno.removeSync(path, { recursive: true });
    }
    const quarantine = this.#bridge.path("work/main/quarantine");
    const kept = [...Deno.readDirSync(quarantine)].map((e) => `${quarantine}/${e.name}`);
    for (const path of kept) {
      const text = Deno.lstatSync(path).isFile ? Deno.readTextFileSync(path) : "";
      assert(!text.includes(CANARY), `${path} holds a host file`);
    }
    run("chmod", "-R", "u+rwx", quarantine);
    for (const path of kept) Deno.removeSync(path, { recursive: true });
    const memory = this.#bridge.memory();
    // Warm by then: what comes later must not need more and more.
    if (number === 3) this.#memory = memory;
    if (number > 3) {
      assert(memory < this.#memory + 64 * 2 ** 20, `memory grew to ${memory} bytes`);
    }
  }

  /** The stuck list names what stands, its commands remove it, and nothing else happened. */
  async end(): Promise<void> {
    const bridge = this.#bridge;
    type Stuck = { count: number; entries: { name: string }[]; commands: string[] };
    const listed = () => bridge.status()?.["stuck"] as Stuck | undefined;
    const report = await until(
      `${this.stuck} stuck entries in the status, which are now ${JSON.stringify(listed())}`,
      () => listed()?.count === this.stuck ? listed() : null,
      20_000,
    );
    const names = report.entries.map((e) => e.name);
    for (const name of this.#stuckNames.slice(0, 50)) {
      assert(names.includes(printable(name)), `not on the stuck list: ${printable(name)}`);
    }
    const told = bridge.audit().filter((r) => r["event"] === "stuck").length;
    assert(told <= this.#stuckNames.length + 2, `${told} records of stuck entries`);
    if (this.stuck > 0) assert(told > 0 && report.commands.length > 0);
    // In place of the rights that the commands ask for.
    for (const name of this.#stuckNames) run("chmod", "u+rwx", "--", bridge.queue(name));
    for (const command of report.commands) {
      run("sh", "-c", `cd "$1" && ${command.replaceAll("sudo ", "")}`, "sh", bridge.root);
    }
    if (this.#stuckNames.length <= 100) {
      assertEquals(bridge.queued().filter((n) => !n.startsWith(".chb-probe-")), []);
    }
    await until("an empty stuck list", () => listed()?.count === 0, 20_000);
    assertEquals((await bridge.ask("the-end", { verb: "mark" })).outcome, "succeeded");
    assert(!bridge.log.includes(CANARY), "the log holds a host file");
    const lines = bridge.log.split("\n").length;
    assert(lines < 200 + told, `${lines} lines of log`);
    assertEquals(await bridge.stop(), 0, "the daemon's exit");
  }
}

Deno.test(
  `every one of ${CASES} random entries is answered once or stuck, and only valid ones run`,
  async () => {
    console.log(`SEED=${SEED}`);
    const random = new Random(SEED);
    await using counted = await countedBridge({
      verbs: VERBS,
      limits: { answers: 1_000_000 },
      agent: { scope: "observe" },
    });
    const { bridge } = counted;
    const { out } = await bridge.chb("schema", "result");
    await bridge.serve();
    const { pid } = bridge;
    using maker = new EntryMaker(bridge.queue(""), `{"verb":"mark","note":"${CANARY}"}`);
    const trial = new Trial(bridge, maker, JSON.parse(out), counted.runs);
    const host = thisHost();
    for (let n = 0, number = 0; n < CASES; number++) {
      const cases: Case[] = [];
      let stuck = trial.stuck;
      while (cases.length < BATCH && n + cases.length < CASES) {
        const one = randomCase(random, n + cases.length, host);
        if (one.expect.kind === "stuck") {
          if (stuck >= MAX_STUCK) continue;
          stuck += one.expect.count;
        }
        cases.push(one);
      }
      await trial.batch(cases, number);
      n += cases.length;
    }
    assertEquals(bridge.pid, pid);
    await trial.end();
  },
);
