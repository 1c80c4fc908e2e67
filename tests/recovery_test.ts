import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import type { TestBridge } from "./helpers/bridge.ts";
import { until } from "./helpers/bridge.ts";
import { type Counted, countedBridge, LOOKUP, marking } from "./helpers/counting.ts";

/**
 * What the counted script does, by its second word: `die` ends its own shim on the first attempt and
 * with it every trace of the end, `ask` is the lookup and exits with what the answer file says.
 */
const SCRIPT = `case $2 in
die) [ -e "$OUT/again" ] && exit 0; : > "$OUT/again"; kill -KILL 0;;
dies) kill -KILL 0;;
ask) [ -e "$OUT/slow" ] && sleep 5; exit $(cat "$OUT/answer");;
esac`;

async function bridgeOf(
  verbs: Record<string, unknown>,
  limits: Record<string, unknown> = {},
): Promise<Counted & { out: string }> {
  const out = Deno.makeTempDirSync({ prefix: "chb-out-" });
  const counted = await countedBridge({
    verbs,
    then: SCRIPT.replaceAll("$OUT", out),
    limits: { grace_s: 0.5, concurrency: 1, ...limits },
  });
  return {
    ...counted,
    out,
    async [Symbol.asyncDispose]() {
      await counted[Symbol.asyncDispose]();
      Deno.removeSync(out, { recursive: true });
    },
  };
}

function dying(how: string, more: Record<string, unknown> = {}): unknown {
  return marking([how], { class: "mutating", lock: "one", ...more });
}

/** The audit records of a request by name, once one of them is `last`. */
async function eventsOf(bridge: TestBridge, id: string, last: string) {
  return await until("the records", () => {
    const events = bridge.audit().filter((r) => r["id"] === id);
    return events.at(-1)?.["event"] === last ? events : null;
  });
}

Deno.test("S7 on_crash lookup: what the downstream says decides, and nothing runs on a guess", async (t) => {
  await using counted = await bridgeOf({
    die: dying("die", LOOKUP),
    dies: dying("dies", LOOKUP),
    free: marking([], { class: "mutating", lock: "one" }),
  });
  const { bridge, runs, out } = counted;
  await bridge.serve();
  const answer = (code: number) => Deno.writeTextFileSync(join(out, "answer"), String(code));
  const ask = async (id: string, verb: string) => {
    bridge.submit(id, { verb, idempotency_key: `k-${id}` });
    return await bridge.final(id, 60_000);
  };

  await t.step("done: it succeeded, as looked up", async () => {
    answer(0);
    const result = await ask("done", "dies");
    assertEquals([result.outcome, result.code, result.exit_code], ["succeeded", 0, null]);
    assertEquals([result.resolved?.as, result.resolved?.by], ["done", "lookup"]);
    assertEquals(result.attempt, 1);
    const events = await eventsOf(bridge, "done", "resolved");
    assertEquals(events.map((r) => r["event"]), ["accepted", "started", "started", "resolved"]);
    assertEquals(events[2]?.["lookup_of"], events[1]?.["run"]);
    assertEquals(runs(), ["done", "k-done"]);
  });
  await t.step("neither: nobody knows", async () => {
    answer(7);
    assertEquals((await ask("neither", "dies")).state, "uncertain");
    const events = await eventsOf(bridge, "neither", "uncertain");
    assertEquals([events.at(-1)?.["exit_code"], events.at(-1)?.["why"]], [7, "no-answer"]);
  });
  await t.step("not done: it starts once more, and no third time", async () => {
    answer(1);
    const again = await ask("again", "die");
    assertEquals([again.outcome, again.attempt], ["succeeded", 2]);
    assertEquals(runs().slice(-3), ["again", "k-again", "again"]);
    const result = await ask("twice", "dies");
    assertEquals([result.outcome, result.code, result.attempt], ["failed", 1, 2]);
    assertEquals(result.resolved?.by, "lookup");
    assertEquals(runs().slice(-4), ["twice", "k-twice", "twice", "k-twice"]);
  });
  await t.step(
    "slot and lock are free afterwards, and output of a lookup is nobody's",
    async () => {
      assertEquals((await ask("free", "free")).outcome, "succeeded");
      assertEquals(bridge.result("done")?.stdout, undefined);
    },
  );
  await t.step("the daemon dies while it is asked: the answer is heard by the next", async () => {
    answer(0);
    Deno.writeTextFileSync(join(out, "slow"), "");
    bridge.submit("slow", { verb: "dies", idempotency_key: "k-slow" });
    await until("the question", () => runs().includes("k-slow"), 60_000);
    await bridge.stop("SIGKILL");
    await bridge.serve();
    const result = await bridge.final("slow", 60_000);
    assertEquals([result.outcome, result.resolved?.by], ["succeeded", "lookup"]);
    assertEquals(runs().filter((id) => id === "slow").length, 1);
  });
});

Deno.test("chb resolve: done, failed and retry are seen by the agent, with or without a daemon", async (t) => {
  await using counted = await bridgeOf({
    die: dying("die"),
    dies: dying("dies"),
    rerun: dying("dies", { on_crash: "rerun", idempotent: true }),
  });
  const { bridge, runs, out } = counted;
  await bridge.serve();
  const lose = async (id: string, verb = "dies") => {
    bridge.submit(id, { verb });
    assertEquals((await bridge.final(id, 60_000)).state, "uncertain");
  };

  await t.step("done, with a joined id", async () => {
    await lose("one");
    bridge.submit("one-2", { verb: "dies", idempotency_key: "one" });
    assertEquals((await bridge.final("one-2")).state, "uncertain");
    const { code, out: text } = await bridge.chb(
      "resolve",
      "main/one",
      "--as",
      "done",
      "--note",
      "seen\u001b[1m",
      "--by",
      "ann",
      "--json",
    );
    assertEquals(code, 0);
    assertEquals(JSON.parse(text).as, "done");
    for (const id of ["one", "one-2"]) {
      const result = await until("the outcome", () => {
        const now = bridge.result(id);
        return now?.state === "done" ? now : null;
      });
      assertEquals([result.outcome, result.resolved?.note], ["succeeded", "seen\\u001b[1m"]);
    }
    const record = await until(
      "the record",
      () => bridge.audit().find((r) => r["event"] === "resolved"),
    );
    assertEquals([record["human"], record["by"], record["as"]], ["ann", "human", "done"]);
  });
  await t.step("only once, and only what is uncertain", async () => {
    const { code, err } = await bridge.chb("resolve", "main/one", "--as", "failed");
    assertEquals(code, 77);
    assertStringIncludes(err, "is not uncertain: it is succeeded");
    assertEquals(bridge.result("one")?.outcome, "succeeded");
    assertEquals((await bridge.chb("resolve", "main/one", "--as", "maybe")).code, 64);
    assertEquals((await bridge.chb("resolve", "main/nobody", "--as", "done")).code, 77);
  });
  await t.step("retry starts it once more under its key", async () => {
    await lose("two", "die");
    assertEquals((await bridge.chb("resolve", "two", "--as", "retry")).code, 0);
    const result = await until("the second attempt", () => {
      const now = bridge.result("two");
      return now?.state === "done" ? now : null;
    }, 60_000);
    assertEquals([result.outcome, result.attempt], ["succeeded", 2]);
    assertEquals(runs().filter((id) => id === "two").length, 2);
  });
  await t.step("a retry that must not start leaves it uncertain, and its key bound", async () => {
    await lose("three");
    await bridge.stop();
    assertEquals((await bridge.chb("resolve", "three", "--as", "retry")).code, 0);
    assertEquals(bridge.result("three")?.state, "pending");
    Deno.writeTextFileSync(bridge.path("state/KILL"), "");
    await bridge.serve();
    await until("the end of the wait", () => bridge.result("three")?.state === "uncertain");
    Deno.removeSync(bridge.path("state/KILL"));
    bridge.submit("three", { verb: "dies" });
    await until("the replay", () => (bridge.result("three")?.replays ?? 0) > 0);
    assertEquals(bridge.result("three")?.state, "uncertain");
    assertEquals(runs().filter((id) => id === "three").length, 1);
  });
  await t.step("failed, while no daemon runs", async () => {
    await bridge.stop();
    assertEquals((await bridge.chb("resolve", "three", "--as", "failed")).code, 0);
    const result = bridge.result("three");
    assertEquals([result?.state, result?.outcome, result?.code], ["done", "failed", 1]);
  });
  await t.step("rerun starts it twice by itself, and no third time", async () => {
    await bridge.serve();
    await lose("four", "rerun");
    assertEquals(runs().filter((id) => id === "four").length, 2);
    assert(bridge.result("four")?.attempt === 2);
  });
  assert(out !== "");
});
