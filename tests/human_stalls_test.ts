/**
 * Human commands beside a running daemon: however much is stored, and whatever a person asks, the
 * loop that serves agents never stands still for more than 50 ms for it, and no other process keeps
 * the ledger from being written for as long.
 *
 * The daemon runs with a probe that tells every late round of its loop. What the machine gave to
 * others in that time, by the scheduler's own account, is taken off: it is not the command's doing.
 * Who holds the ledger's lock for writing is told by the kernel.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { inRepository } from "../tools/launcher.ts";
import { fill } from "../tools/bench_fill.ts";
import { sh } from "./helpers/outside.ts";
import { SLOW } from "./helpers/round.ts";
import { sleep, TestBridge, until, verb } from "./helpers/bridge.ts";

/** Milliseconds that the loop may stand still. */
const LIMIT_MS = 50;
/** Requests in the ledger; what is asked of a command grows with them. */
const ROWS = SLOW ? 50_000 : 10_000;

/**
 * How often a command is asked whose stall was too long: what is its doing is there each time, and
 * what a disk does that has other work, besides, is not.
 */
const TRIES = 3;

/** What a thread did at a time: milliseconds on a processor so far, and waiting for one. */
interface Sample {
  readonly at: number;
  readonly ran: number;
  readonly waited: number;
}

/** The scheduler's account of the daemon's main thread, which has its loop. */
class Account {
  readonly #samples: Sample[] = [];
  readonly #timer: ReturnType<typeof setInterval>;

  constructor(pid: number) {
    const look = () => {
      // Time on a processor and in the run queue, both in nanoseconds, and the number of slices.
      const words = Deno.readTextFileSync(`/proc/${pid}/schedstat`).split(" ");
      const [ran = NaN, waited = NaN] = words.map((word) => Number(word) / 1e6);
      this.#samples.push({ at: performance.timeOrigin + performance.now(), ran, waited });
    };
    look();
    this.#timer = setInterval(look, 5);
  }

  /**
   * How long the loop stood still of itself between two times of the wall clock: the time without
   * what it waited for a processor, and no less than it certainly ran.
   */
  stood(from: number, to: number): number {
    const samples = this.#samples;
    const before = samples.findLast(({ at }) => at <= from) ?? samples[0];
    const after = samples.find(({ at }) => at >= to) ?? samples.at(-1);
    const within = samples.filter(({ at }) => at >= from && at <= to);
    const waited = (after?.waited ?? 0) - (before?.waited ?? 0);
    const ran = (within.at(-1)?.ran ?? 0) - (within[0]?.ran ?? 0);
    return Math.round(Math.max(to - from - waited, ran));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

/** Which byte of the file beside the ledger a writer locks: a fixed place of its format. */
const WRITE_BYTE = 120;
/** The byte that everybody locks who has the ledger open. */
const OPEN_BYTE = 128;

/** Looks who holds the ledger's lock for writing. */
class Locks implements Disposable {
  readonly #daemon: number;
  readonly #timer: ReturnType<typeof setInterval>;
  /** The ledger's file as the kernel names it. */
  readonly #file: string;
  #since: number | null = null;
  #longest = 0;

  /** @param beside path of the file beside the ledger; the runtime has such files of its own open */
  constructor(daemon: number, beside: string) {
    this.#daemon = daemon;
    const { ino } = Deno.statSync(beside);
    const open = this.#lines().find(({ pid, file, from, to }) =>
      pid === daemon && file.endsWith(`:${ino}`) && from <= OPEN_BYTE && to >= OPEN_BYTE
    );
    assert(open !== undefined, "the kernel tells what the daemon has open");
    this.#file = open.file;
    this.#timer = setInterval(() => this.#look(), 5);
  }

  #lines(): { kind: string; pid: number; file: string; from: number; to: number }[] {
    return Deno.readTextFileSync("/proc/locks").split("\n").flatMap((line) => {
      const m = /POSIX +\w+ +(READ|WRITE) +(\d+) +(\S+) +(\d+) +(\d+)$/.exec(line);
      if (m === null) return [];
      const [, kind = "", pid, file = "", from, to] = m;
      return [{ kind, pid: Number(pid), file, from: Number(from), to: Number(to) }];
    });
  }

  #look(): void {
    const now = performance.now();
    const holders = this.#lines().filter(({ kind, file, from, to }) =>
      kind === "WRITE" && file === this.#file && from <= WRITE_BYTE && to >= WRITE_BYTE
    );
    if (!holders.some(({ pid }) => pid !== this.#daemon)) this.#since = null;
    else {
      this.#since ??= now;
      // A single look proves no more than a moment.
      this.#longest = Math.max(this.#longest, now - this.#since, 1);
    }
  }

  /** The longest time since the last call that another process held it, milliseconds. */
  take(): number {
    const longest = Math.round(this.#longest);
    this.#longest = 0;
    return longest;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

/** How long the loop stood still each time since `from`, longest first. */
function stalls(log: string, account: Account, from: number): number[] {
  return [...log.matchAll(/^late ([0-9.]+) ([0-9.]+)$/gm)]
    .map((m) => [Number(m[1]), Number(m[2])] as const)
    .filter(([begun]) => begun >= from)
    .map(([begun, ended]) => account.stood(begun, ended))
    .toSorted((a, b) => b - a);
}

Deno.test("human commands beside a daemon never hold up its loop for more than 50 ms", async () => {
  const bridge = await TestBridge.make({
    verbs: {
      observe: verb(["/usr/bin/true"]),
      ask: verb(["/usr/bin/true"], { class: "mutating", approval: "always" }),
      hold: verb(["/usr/bin/sleep", "60"], { class: "mutating", timeout_s: 60 }),
    },
    limits: { answers: 100_000, concurrency: 2 * TRIES },
  });
  await using _ = bridge;
  fill(bridge, ROWS);
  // Sixty days old for the clock that ages are counted by, too.
  assertEquals((await bridge.chb("reap")).code, 0);
  const db = new DatabaseSync(bridge.path("state/ledger.db"));
  db.prepare("UPDATE hours SET at_ms = at_ms - ?").run(60 * 24 * 3_600_000);
  db.close();
  const path = bridge.path("bin/chb");
  const text = Deno.readTextFileSync(path);
  Deno.removeSync(path);
  Deno.writeTextFileSync(
    path,
    text.replaceAll(inRepository("main.ts"), inRepository("tests", "helpers", "lag_main.ts")),
    { mode: 0o755 },
  );
  await bridge.serve();
  using account = new Account(bridge.pid);
  using locks = new Locks(bridge.pid, bridge.path("state/ledger.db-shm"));
  const all = (name: string) => Array.from({ length: TRIES }, (_, n) => `${name}-${n}`);
  for (const id of [...all("yes"), ...all("no")]) bridge.submit(id, { verb: "ask" });
  for (const id of [...all("long"), ...all("lost")]) bridge.submit(id, { verb: "hold" });
  for (const id of all("no")) {
    await until("what waits", () => bridge.result(id)?.waiting_for === "approval");
  }
  for (const id of [...all("long"), ...all("lost")]) {
    await until("what runs", () => bridge.result(id)?.state === "running");
  }
  for (const { name } of Deno.readDirSync(bridge.path("state/runs"))) {
    const { id, pgid } = JSON.parse(
      Deno.readTextFileSync(bridge.path("state/runs", name, "taken.json")),
    );
    if (id.startsWith("lost")) Deno.kill(-pgid, "SIGKILL");
  }
  for (const id of all("lost")) {
    await until("what is lost", () => bridge.result(id)?.state === "uncertain");
  }
  // What the start itself has to do first is not a command's doing.
  await sleep(1500);

  const worst = new Map<string, number[]>();
  const held = new Map<string, number>();
  /** Asks, again where that took too long, and returns what was printed. */
  const asked = async (name: string, words: (n: number) => string[]) => {
    for (let n = 0;; n++) {
      const args = words(n);
      locks.take();
      const from = performance.timeOrigin + performance.now();
      const { code, out, err } = await bridge.chb(...args);
      // What a command asked for may be done in the steps after its answer.
      await sleep(250);
      const all = stalls(bridge.log, account, from);
      worst.set(name, all);
      held.set(name, locks.take());
      // A ledger that is in use has lost nothing, and its command is refused.
      const fine = args[0] === "ledger" ? code === 77 : code === 0 || code === 1;
      assert(fine, `${args.join(" ")}: ${code} ${err}`);
      if ((all[0] ?? 0) <= LIMIT_MS || n + 1 === TRIES) return out;
    }
  };
  const told = (...args: string[]) => asked(args.join(" "), () => args);
  await told("status");
  await told("show", "yes-0");
  const { pending } = JSON.parse(await told("pending", "--json")) as {
    pending: { id: string; run: { digest: string } }[];
  };
  await asked("approve", (n) => {
    const digest = pending.find(({ id }) => id === `yes-${n}`)?.run.digest ?? "";
    return ["approve", `yes-${n}`, digest, "--by", "a person"];
  });
  await asked("deny", (n) => ["deny", `no-${n}`, "--reason", "not now"]);
  await told("tell", "How is it going?", "--ask");
  await told("replies");
  await asked("cancel", (n) => ["cancel", `long-${n}`]);
  await asked("resolve", (n) => ["resolve", `lost-${n}`, "--as", "done"]);
  await told("history", "--limit", "5000");
  await told("history", "--verb", "none");
  await told("report");
  await told("ledger", "accept-loss", "--reason", "a test");
  await told("audit", "verify");
  await told("audit", "tail");
  await told("audit", "head");
  await told("doctor");
  await told("check");
  await told("permissions");
  await sh(await told("key", "new", "laptop"), bridge.root);
  await told("key", "list");
  await told("key", "show", "laptop");
  for (const words of ["init", "unit", "mounts", "agent-note", "schema", "version"]) {
    await told(words);
  }
  await told("completions", "--names", "requests");
  await told("kill", "--reason", "a test");
  await asked("resume", (n) => {
    if (n > 0) Deno.writeTextFileSync(bridge.path("state/KILL"), "a test\n");
    return ["resume"];
  });
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  await asked("trust", (n) => {
    policy.retention = { ledger_days: 30 + n, results_days: 7 };
    Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
    return ["trust", "--yes"];
  });
  const reaped = JSON.parse(await told("reap", "--json"));
  assertEquals(reaped.removed.rows, ROWS);
  // Every command has been asked.
  const { out: help } = await bridge.chb("--help");
  const names = [...help.matchAll(/^ {2}([a-z-]+) {2,}/gm)].map(([, name]) => name ?? "");
  const seen = new Set([...worst.keys()].map((words) => words.split(" ")[0]));
  assertEquals(names.filter((name) => !seen.has(name)), ["serve", "once"]);
  // The looks do see a writer: this test is one for a moment.
  locks.take();
  const writer = new DatabaseSync(bridge.path("state/ledger.db"));
  writer.exec("BEGIN IMMEDIATE");
  await sleep(200);
  writer.exec("ROLLBACK");
  writer.close();
  const own = locks.take();
  assert(own > LIMIT_MS, `a lock held for 200 ms was seen for ${own} ms`);
  const longest = [...held].filter(([, ms]) => ms > 0);
  console.log(`ledger held by others, ms: ${longest.map((one) => one.join(" ")).join(", ")}`);
  assertEquals(longest.filter(([, ms]) => ms > LIMIT_MS), []);
  // The probe is in there: on any machine the loop was a little late sometimes.
  assert([...worst.values()].flat().length > 0, bridge.log);
  const most = [...worst].map(([words, all]) => [words, all[0] ?? 0] as const);
  console.log(`longest stalls, ms: ${most.map(([words, ms]) => `${words} ${ms}`).join(", ")}`);
  assertEquals(most.filter(([, ms]) => ms > LIMIT_MS), []);
});
