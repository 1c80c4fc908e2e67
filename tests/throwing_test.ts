/**
 * Faults of the program itself (S13): one that belongs to a request is that request's answer; one
 * that belongs to nobody ends the daemon, and the next start decides from the ledger.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { inRepository } from "../tools/launcher.ts";
import { until } from "./helpers/bridge.ts";
import { countedBridge, marking } from "./helpers/counting.ts";
import { lives } from "./helpers/tracer.ts";

Deno.test("S13 a check that throws is the answer to its request alone; a rejection that nobody handles ends the daemon, and nothing runs twice", async () => {
  await using c = await countedBridge({
    verbs: {
      count: marking(),
      slow: marking(["wait"], { class: "mutating" }),
      throws: marking(),
      rejects: marking(),
    },
    then: '[ "$2" != wait ] || sleep 2',
  });
  const { bridge } = c;
  const path = bridge.path("bin/chb");
  const sound = Deno.readTextFileSync(path);
  const main = inRepository("main.ts");
  assertStringIncludes(sound, main);
  const put = (text: string) => {
    Deno.removeSync(path);
    Deno.writeTextFileSync(path, text, { mode: 0o755 });
  };
  put(sound.replaceAll(main, inRepository("tests", "helpers", "throwing_main.ts")));
  await bridge.serve();
  bridge.submit("bad", { verb: "throws" });
  bridge.submit("good", { verb: "count" });
  const bad = await bridge.final("bad");
  assertEquals([bad.code, bad.reason, bad.next], [70, "internal", "ask-human"]);
  assert(!JSON.stringify(bad).includes("built in"), "what a fault says is not for agents");
  assertStringIncludes(bridge.log, "a fault that is built in");
  assertEquals((await bridge.final("good")).outcome, "succeeded");
  assertEquals((await bridge.ask("again", { verb: "count" })).outcome, "succeeded");

  // In the middle of a run, so that there is something to lose.
  bridge.submit("slow", { verb: "slow" });
  await until("the run", () => c.runs().includes("slow"));
  const { pid } = bridge;
  bridge.submit("worse", { verb: "rejects" });
  await until("the end of the daemon", () => !lives(pid));
  assertEquals(await bridge.stop(), 70);
  assertStringIncludes(bridge.log, "nobody handles this");
  put(sound);
  await bridge.serve();
  assertEquals((await bridge.final("slow")).outcome, "succeeded");
  assertEquals((await bridge.final("worse")).outcome, "succeeded");
  assertEquals(c.runs(), ["good", "again", "slow", "worse"]);
});
