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
import { sleep, until } from "./helpers/bridge.ts";
import type { Counted } from "./helpers/counting.ts";
import { AFTER_MS, type Point, points, Round, roundBridge, shims, SLOW } from "./helpers/round.ts";
import { cannotTrace, countCalls, type Effect, killAt, lives } from "./helpers/tracer.ts";

/** Points of a run that does not take all. */
const SAMPLE = { daemon: 30, shim: 10 };
/** Bridges that are tried side by side. */
const LANES = 2;

const noTrace = cannotTrace();

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
    await using c = await roundBridge();
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
      const lane = others.use(await roundBridge());
      await lane.bridge.serve();
      lanes.push(lane);
    }
    const tallies = await Promise.all(
      lanes.map((lane, i) => killDaemon(lane, list.filter((_, at) => at % lanes.length === i))),
    );
    tell("the daemon", list, tallies, SLOW ? 40 : Math.floor(list.length * 0.6));
  },
});

Deno.test({
  name: "S7 X18 a shim is killed at every call with an effect, and nothing runs twice or is lost" +
    (noTrace === null ? "" : ` # SKIP ${noTrace}`),
  ignore: noTrace !== null,
  async fn() {
    await using c = await roundBridge();
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
    tell("the shims", list, [tally], Math.floor(list.length * 0.5));
  },
});
