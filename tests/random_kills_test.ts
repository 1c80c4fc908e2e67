/**
 * Daemon, shims or both are killed at random moments while requests of every kind come in. However it
 * goes, no key is started twice, every request ends, and all that is left agrees (S6, S7, X18).
 *
 * By default a few kills; `SLOW=1` takes more than 200. The seed is printed; `SEED=N` repeats one.
 *
 * @module
 */
import { assert } from "@std/assert";
import { assertAgreement } from "./helpers/agreement.ts";
import { sleep, until, verb } from "./helpers/bridge.ts";
import { countedBridge } from "./helpers/counting.ts";
import { SLOW } from "./helpers/round.ts";
import { lives, processesOf } from "./helpers/tracer.ts";

const KILLS = SLOW ? 210 : 12;

/** Numbers from 0 to below 1, the same ones for the same seed. */
function numbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

Deno.test("S6 S7 X18 random kills of daemon and shims over mixed verbs start nothing twice and lose nothing", async () => {
  const seed = Number(Deno.env.get("SEED") ?? Math.trunc(Math.random() * 2 ** 31));
  console.log(`seed ${seed}`);
  const random = numbers(seed);
  const mark = (how: string) => ["base/mark.sh", "{idempotency_key}", how];
  await using c = await countedBridge({
    verbs: {
      look: verb(mark("")),
      slow: verb(mark("sleep 0.3")),
      change: verb(mark("echo changed"), { class: "mutating" }),
      locked: verb(mark("sleep 0.1"), { class: "mutating", lock: "one" }),
      fails: verb(mark("exit 3"), { class: "mutating" }),
    },
    then: 'eval "$2"',
    limits: { concurrency: 2 },
  });
  const { bridge } = c;
  await bridge.serve();
  const verbs = ["look", "slow", "change", "locked", "fails"];
  let killed = 0;
  let n = 0;
  let shimsKilled = 0;
  while (killed < KILLS) {
    const ids: string[] = [];
    for (let i = 0; i < 4; i++) {
      const id = `r${++n}`;
      bridge.submit(id, { verb: verbs[Math.trunc(random() * verbs.length)] });
      ids.push(id);
      if (random() < 0.3) {
        await sleep(random() * 60);
        // The same key under another id, where it still runs or not any more.
        const again = `r${++n}`;
        bridge.submit(
          again,
          JSON.parse(JSON.stringify({ verb: "change", idempotency_key: `k${id}` })),
        );
        ids.push(again);
      }
    }
    await sleep(random() * 350);
    const who = Math.trunc(random() * 3);
    const pid = bridge.pid;
    let shimKilled = false;
    if (who !== 0) {
      for (const shim of processesOf(bridge.root)) {
        if (shim === pid || random() < 0.4) continue;
        Deno.kill(shim, "SIGKILL");
        shimKilled = true;
        killed++;
      }
    }
    if (shimKilled) shimsKilled++;
    if (who !== 1) {
      await bridge.stop("SIGKILL");
      killed++;
      await bridge.serve();
    }
    for (const id of ids) {
      await until(`${id} (seed ${seed})`, () => {
        const state = bridge.result(id)?.state;
        return state === "done" || state === "uncertain";
      }, 60_000);
    }
    const keys = new Set(ids.flatMap((id) => [id, `k${id}`]));
    await assertAgreement(bridge, {
      ids,
      starts: c.runs().filter((key) => keys.has(key)),
      mayBeUncertain: () => shimKilled,
    }, `seed ${seed}`);
    assert(lives(bridge.pid));
  }
  console.log(`${killed} kills, ${n} requests, shims killed in ${shimsKilled} rounds`);
});
