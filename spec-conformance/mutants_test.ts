/**
 * A sample of the mutants, one a room: `deno task mutants` has them all, and takes a while.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { judgeAll, MUTANTS } from "./mutants.ts";

const SAMPLE = ["allow: the agent's own list", "scan: a key twice", "object: more than one link"];

Deno.test("a check that is taken out of the program makes a vector fail", async () => {
  const mutants = MUTANTS.filter(({ what }) => SAMPLE.includes(what));
  assertEquals(mutants.length, SAMPLE.length);
  for (const { what, killed, by } of await judgeAll(mutants, 30_000)) {
    assert(killed, what);
    // It was a vector that noticed, not a start that failed.
    assertEquals(by.filter((one) => one.startsWith("error")), [], what);
  }
});
