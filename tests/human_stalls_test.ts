/**
 * Human commands beside a running daemon: however much is stored, and whatever a person asks, the
 * loop that serves agents never stands still for more than 50 ms for it.
 *
 * The daemon runs with a probe that tells every late round of its loop. What the machine gave to
 * others in that time, by the scheduler's own account, is taken off: it is not the command's doing.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { inRepository } from "../tools/launcher.ts";
import { fill } from "../tools/bench_rows.ts";
import { SLOW } from "./helpers/round.ts";
import { sleep, TestBridge, until, verb } from "./helpers/bridge.ts";

/** Milliseconds that the loop may stand still. */
const LIMIT_MS = 50;
/** Requests in the ledger; what is asked of a command grows with them. */
const ROWS = SLOW ? 50_000 : 10_000;

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
    limits: { answers: 100_000 },
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
  for (const id of ["yes", "no"]) bridge.submit(id, { verb: "ask" });
  bridge.submit("long", { verb: "hold" });
  await until("what waits", () => bridge.result("no")?.waiting_for === "approval");
  await until("what runs", () => bridge.result("long")?.state === "running");
  // What the start itself has to do first is not a command's doing.
  await sleep(1500);

  const worst = new Map<string, number[]>();
  const told = async (...args: string[]) => {
    const from = performance.timeOrigin + performance.now();
    const { code, out, err } = await bridge.chb(...args);
    // What a command asked for may be done in the steps after its answer.
    await sleep(250);
    worst.set(args.join(" "), stalls(bridge.log, account, from));
    assert(code === 0 || code === 1, `${args.join(" ")}: ${code} ${err}`);
    return out;
  };
  await told("status");
  await told("show", "yes");
  const { pending } = JSON.parse(await told("pending", "--json")) as {
    pending: { id: string; run: { digest: string } }[];
  };
  const digest = pending.find(({ id }) => id === "yes")?.run.digest ?? "";
  await told("approve", "yes", digest, "--by", "a person");
  await told("deny", "no", "--reason", "not now");
  await told("tell", "How is it going?", "--ask");
  await told("replies");
  await told("cancel", "long");
  await told("audit", "verify");
  await told("audit", "tail");
  await told("audit", "head");
  await told("doctor");
  await told("check");
  await told("permissions");
  await told("kill", "--reason", "a test");
  await told("resume");
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  policy.retention = { ledger_days: 30, results_days: 7 };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  await told("trust", "--yes");
  const reaped = JSON.parse(await told("reap", "--json"));
  assertEquals(reaped.removed.rows, ROWS);
  // The probe is in there: on any machine the loop was a little late sometimes.
  assert([...worst.values()].flat().length > 0, bridge.log);
  const most = [...worst].map(([words, all]) => [words, all[0] ?? 0] as const);
  console.log(`longest stalls, ms: ${most.map(([words, ms]) => `${words} ${ms}`).join(", ")}`);
  assertEquals(most.filter(([, ms]) => ms > LIMIT_MS), []);
});
