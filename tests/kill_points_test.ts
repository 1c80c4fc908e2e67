/**
 * Kill points, found and not listed: first the daemon and then its shims are killed at the N-th call
 * of every system call with an effect, from the submission on. After each kill a normal start must
 * bring everything into agreement, and no key may have been started twice (S6, S7, X18).
 *
 * By default a fixed number of points is taken, spread over all of them; `SLOW=1` takes every one.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { assertAgreement } from "./helpers/agreement.ts";
import { sleep, type TestBridge, until, verb } from "./helpers/bridge.ts";
import { type Counted, countedBridge } from "./helpers/counting.ts";
import {
  cannotTrace,
  countCalls,
  type Effect,
  killAt,
  lives,
  processesOf,
} from "./helpers/tracer.ts";

const SLOW = Deno.env.get("SLOW") === "1";
/** Points of a run that does not take all. */
const SAMPLE = { daemon: 30, shim: 12 };
/** Bridges that are tried side by side. */
const LANES = 2;
/** How long after the last answer calls still belong to a request: what was published is noted. */
const AFTER_MS = 1300;

const noTrace = cannotTrace();

/** Requests of one round: an observing one, a changing one, one more with its key, and a refused one. */
class Round {
  readonly #counted: Counted;
  readonly ids: readonly string[];
  readonly keys: readonly string[];
  readonly #name: string;

  constructor(counted: Counted, name: string) {
    this.#counted = counted;
    this.#name = name;
    this.ids = ["look", "change", "join", "wrong"].map((word) => `${word}-${name}`);
    this.keys = [`look-${name}`, `key-${name}`];
  }

  submit(): void {
    const { bridge } = this.#counted;
    const [look = "", change = "", join = "", wrong = ""] = this.ids;
    bridge.submit(look, { verb: "look" });
    bridge.submit(change, { verb: "change", idempotency_key: `key-${this.#name}` });
    bridge.submit(join, { verb: "change", idempotency_key: `key-${this.#name}` });
    bridge.submit(wrong, { verb: "no-such-verb" });
  }

  final(): boolean {
    return this.ids.every((id) => {
      const state = this.#counted.bridge.result(id)?.state;
      return state === "done" || state === "uncertain";
    });
  }

  /** Waits until every request has its answer. */
  async finals(): Promise<void> {
    await until(`the answers of ${this.#name}`, () => this.final(), 60_000);
  }

  /** Fails unless all that is stored and told about this round agrees. */
  async agree(mayBeUncertain: boolean): Promise<void> {
    const keys = new Set(this.keys);
    await assertAgreement(this.#counted.bridge, {
      ids: this.ids,
      starts: this.#counted.runs().filter((key) => keys.has(key)),
      mayBeUncertain: () => mayBeUncertain,
    }, `after ${this.#name}`);
  }
}

async function counted(): Promise<Counted> {
  const mark = ["base/mark.sh", "{idempotency_key}"];
  return await countedBridge({
    verbs: { look: verb(mark), change: verb(mark, { class: "mutating", lock: "one" }) },
    then: 'echo "ran $1"; echo "told $1" >&2',
    limits: { concurrency: 1 },
  });
}

/** Shims that wait for an order; the daemon keeps one and a spare. */
async function shims(bridge: TestBridge): Promise<number[]> {
  return await until("the shims", () => {
    const all = processesOf(bridge.root).filter((pid) => pid !== bridge.pid);
    return all.length >= 2 ? all : null;
  });
}

interface Point {
  readonly call: Effect;
  readonly n: number;
}

/** Every point that a round without a kill showed, or a sample of them that holds every call. */
function points(
  counts: readonly { call: Effect; count: number }[],
  sample: number,
): Point[] {
  const most = new Map<Effect, number>();
  for (const { call, count } of counts) most.set(call, Math.max(most.get(call) ?? 0, count));
  const all = [...most].flatMap(([call, count]) =>
    Array.from({ length: count }, (_, i): Point => ({ call, n: i + 1 }))
  );
  if (SLOW || all.length <= sample) return all;
  const chosen = new Set<Point>();
  for (let i = 0; i < sample; i++) {
    const point = all[Math.floor(i * all.length / sample)];
    if (point !== undefined) chosen.add(point);
  }
  // The first of each call, so that none is left out.
  for (const point of all) if (point.n === 1) chosen.add(point);
  return all.filter((point) => chosen.has(point));
}

/** Threads of the daemon that were there before the work came. */
function tasks(pid: number): Set<number> {
  return new Set([...Deno.readDirSync(`/proc/${pid}/task`)].map((entry) => Number(entry.name)));
}

/** What became of the points of one lane. */
interface Tally {
  killed: number;
  readonly tried: Map<Effect, number>;
}

/** Tells how many points there were, and fails when there were too few. */
function tell(who: string, list: readonly Point[], tallies: readonly Tally[], least: number): void {
  let killed = 0;
  const tried = new Map<Effect, number>();
  for (const tally of tallies) {
    killed += tally.killed;
    for (const [call, n] of tally.tried) tried.set(call, (tried.get(call) ?? 0) + n);
  }
  console.log(
    `kill points of ${who}: ${killed} of ${list.length} tried; ` +
      [...tried].map(([call, n]) => `${call} ${n}`).join(", "),
  );
  assert(killed >= least, `${killed} kill points`);
}

/** Kills the daemon at each of these points, and starts it again after each. */
async function killDaemon(c: Counted, list: readonly Point[]): Promise<Tally> {
  const { bridge } = c;
  const tally: Tally = { killed: 0, tried: new Map() };
  for (const { call, n } of list) {
    const round = new Round(c, `d-${call}-${n}`);
    await shims(bridge);
    {
      await using _tracer = await killAt([bridge.pid], call, n);
      round.submit();
      let since: number | null = null;
      await until(`the end of ${call} ${n}`, () => {
        if (!lives(bridge.pid)) return true;
        since ??= round.final() ? performance.now() : null;
        return since !== null && performance.now() - since > AFTER_MS;
      }, 60_000);
    }
    tally.tried.set(call, (tally.tried.get(call) ?? 0) + 1);
    if (!lives(bridge.pid)) {
      tally.killed++;
      await bridge.stop("SIGKILL");
      await bridge.serve();
    }
    await round.finals();
    await round.agree(false);
  }
  return tally;
}

Deno.test({
  name: "S6 S7 X18 the daemon is killed at every call with an effect, and nothing runs twice, " +
    "is lost or is called uncertain" + (noTrace === null ? "" : ` # SKIP ${noTrace}`),
  ignore: noTrace !== null,
  async fn() {
    await using c = await counted();
    const { bridge } = c;
    await bridge.serve();
    await shims(bridge);
    const first = new Round(c, "d-none");
    const own = tasks(bridge.pid);
    const seen = await countCalls([bridge.pid], async () => {
      first.submit();
      await first.finals();
      await sleep(AFTER_MS);
    }, true);
    await first.agree(false);
    const all = tasks(bridge.pid);
    const unwatched = seen.filter(({ thread }) => !own.has(thread) && all.has(thread));
    assertEquals(unwatched, [], "every effect comes from a thread that is watched");
    const list = points(seen.filter(({ thread }) => own.has(thread)), SAMPLE.daemon);
    await using others = new AsyncDisposableStack();
    const lanes = [c];
    for (let i = 1; i < LANES; i++) {
      const lane = others.use(await counted());
      await lane.bridge.serve();
      lanes.push(lane);
    }
    const tallies = await Promise.all(
      lanes.map((lane, i) => killDaemon(lane, list.filter((_, at) => at % lanes.length === i))),
    );
    tell("the daemon", list, tallies, Math.floor(list.length * 0.8));
  },
});

Deno.test({
  name: "S7 X18 a shim is killed at every call with an effect, and nothing runs twice or is lost" +
    (noTrace === null ? "" : ` # SKIP ${noTrace}`),
  ignore: noTrace !== null,
  async fn() {
    await using c = await counted();
    const { bridge } = c;
    await bridge.serve();
    const first = new Round(c, "s-none");
    const seen = await countCalls(await shims(bridge), async () => {
      first.submit();
      await first.finals();
      await sleep(AFTER_MS);
    });
    await first.agree(false);
    const list = points(seen, SAMPLE.shim);
    const tally: Tally = { killed: 0, tried: new Map() };
    for (const { call, n } of list) {
      const round = new Round(c, `s-${call}-${n}`);
      const watched = await shims(bridge);
      {
        await using tracer = await killAt(watched, call, n);
        round.submit();
        await round.finals();
        if (tracer.trace.includes("killed by SIGKILL")) tally.killed++;
      }
      tally.tried.set(call, (tally.tried.get(call) ?? 0) + 1);
      await round.agree(true);
      assert(lives(bridge.pid), "the daemon lives");
    }
    tell("the shims", list, [tally], Math.floor(list.length * 0.8));
  },
});
