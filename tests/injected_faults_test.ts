/**
 * Single calls that fail, at every place of a round and in both ways: the call had no effect, or it
 * had all of it and was reported as failed. Whatever the daemon makes of it, going on or giving up
 * and being started again, no key may be started twice, nothing may be lost, and all that is stored
 * and told must agree (S1, S4, S5).
 *
 * By default a sample of the places is taken; `SLOW=1` takes every one.
 *
 * @module
 */
import { assert, assertNotEquals } from "@std/assert";
import { sleep, until } from "./helpers/bridge.ts";
import type { Counted } from "./helpers/counting.ts";
import { AFTER_MS, type Point, points, Round, roundBridge, shims } from "./helpers/round.ts";
import {
  cannotInject,
  countCalls,
  type Effect,
  type Failure,
  Injector,
  lives,
} from "./helpers/tracer.ts";

/** Calls that are made to fail; a process that was made is not one that could not be. */
const CALLS: readonly Effect[] = ["rename", "unlink", "mkdir", "write", "pwrite64", "fsync"];
/** Places of a run that does not take all, for each way of failing. */
const SAMPLE = { daemon: 5, shim: 3 };

const cannot = cannotInject();

/** What a round without a fault calls, as far as it is made to fail. */
async function places(c: Counted, who: "daemon" | "shim", sample: number): Promise<Point[]> {
  const round = new Round(c, `${who}-none`);
  const found = await shims(c.bridge);
  const seen = await countCalls(who === "daemon" ? [c.bridge.pid] : found, async () => {
    round.submit();
    await round.finals();
    await sleep(AFTER_MS);
  });
  await round.agree(false);
  return points(seen.filter(({ call }) => CALLS.includes(call)), sample);
}

/** One round with one fault in it, and the end that it must come to. */
async function tryFault(
  c: Counted,
  who: "daemon" | "shim",
  mode: Failure,
  { call, n }: Point,
): Promise<"missed" | "went on" | "gave up"> {
  const { bridge } = c;
  const round = new Round(c, `${who}-${mode}-${call}-${n}`);
  const found = await shims(bridge);
  let gaveUp = false;
  let hit = false;
  {
    await using injector = await Injector.start(who === "daemon" ? [bridge.pid] : found, {
      mode,
      call,
      error: "EIO",
      when: n,
      about: bridge.root,
    });
    round.submit();
    let since: number | null = null;
    await until(`the end of ${round.ids[0]}`, () => {
      if (!lives(bridge.pid)) return true;
      since ??= round.final() ? performance.now() : null;
      return since !== null && performance.now() - since > AFTER_MS;
    }, 60_000);
    hit = injector.injected.length > 0;
  }
  if (!lives(bridge.pid)) {
    gaveUp = true;
    // A supervisor starts what ended with an error again.
    assertNotEquals(await bridge.stop(), 0, "giving up is told");
    await bridge.serve();
  }
  await round.finals();
  await round.agree(false);
  return gaveUp ? "gave up" : hit ? "went on" : "missed";
}

for (const who of ["daemon", "shim"] as const) {
  Deno.test({
    name: `S1 S4 S5 a call of the ${who} fails, with and without its effect, and nothing runs ` +
      "twice or is lost" + (cannot === null ? "" : ` # SKIP ${cannot}`),
    ignore: cannot !== null,
    async fn() {
      await using c = await roundBridge();
      await c.bridge.serve();
      const list = await places(c, who, SAMPLE[who]);
      const came = { "missed": 0, "went on": 0, "gave up": 0 };
      for (const mode of ["lost", "applied"] as const) {
        for (const point of list) {
          const what = await tryFault(c, who, mode, point).catch((error) => {
            throw new Error(`${mode} ${point.call} ${point.n}: log:\n${c.bridge.log}`, {
              cause: error,
            });
          });
          if (Deno.env.get("TELL") === "1") console.log(mode, point.call, point.n, what);
          came[what]++;
        }
      }
      console.log(`faults of the ${who}: ${JSON.stringify(came)}`);
      assert(came["went on"] + came["gave up"] >= list.length, "faults were met");
    },
  });
}
