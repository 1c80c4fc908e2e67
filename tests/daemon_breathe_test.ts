/**
 * How long the loop rests between two turns, and what it lets a scan do meanwhile.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { setImmediate } from "node:timers";
import { breathe } from "../src/daemon/breathe.ts";

async function took(work: Promise<void>): Promise<number> {
  const begun = performance.now();
  await work;
  return performance.now() - begun;
}

Deno.test("after a short turn the event loop goes round once", async () => {
  let rounds = 0;
  setImmediate(() => rounds++);
  await breathe(1, new Set());
  assertEquals(rounds, 1);
});

Deno.test("without a scan the loop rests for a quarter of the turn", async () => {
  const rest = await took(breathe(40, new Set()));
  assert(rest >= 9, `${rest} ms`);
});

Deno.test("a scan has as long as the turn had, and no longer than it needs (Q5)", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const long = await took(breathe(40, new Set([promise])));
  resolve();
  let quick = Infinity;
  for (let n = 0; n < 5; n++) {
    quick = Math.min(quick, await took(breathe(40, new Set([promise]))));
  }
  assert(quick >= 9 && long >= 39 && quick < long, `${quick} ms and ${long} ms`);
});
