/**
 * The protocol from outside: every reason that this version can give, with its stage, hint and next;
 * what a request that waits or runs tells; replays, joins, conflicts, lapses and the kill switch; and
 * the answer cap.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { codeOf, CODES, type Reason } from "../src/codes.ts";
import { STAGES } from "../src/gates/stages.ts";
import type { Result } from "../src/result.ts";
import { sleep, TestBridge, there, until } from "./helpers/bridge.ts";
import { type Counted, countedBridge, marking } from "./helpers/counting.ts";
import { validate } from "./json_schema.ts";

/** Reasons that belong to parts which this version has not got, or to faults of its own. */
const NOT_YET: readonly Reason[] = [
  "internal",
  "unavailable",
];

/** Reasons that only an agent that signs is given: `signatures_test.ts`. */
const OF_SIGNATURES: readonly Reason[] = [
  "unauthenticated",
  "replayed-request",
  "stale-signature",
];

/** How a command ended, or what is known of it; every other reason is a refusal by a stage. */
const ENDINGS: readonly Reason[] = [
  "ok",
  "command-failed",
  "timed-out",
  "cancelled",
  "uncertain",
];

async function schemaOf(bridge: TestBridge, name: string): Promise<unknown> {
  const { code, out, err } = await bridge.chb("schema", name);
  assertEquals(code, 0, err);
  return JSON.parse(out);
}

/** What holds for every final result. */
function assertWhole(result: Result, schema: unknown, reason: Reason, stage: string | null): void {
  assertEquals(validate(schema, result), [], JSON.stringify(result));
  const row = codeOf(reason);
  assertEquals(
    [result.reason, result.code, result.outcome ?? null, result.next, result.stage ?? null],
    [reason, row.code, row.outcome, row.next, stage],
  );
  assertEquals(result.state, row.outcome === null ? "uncertain" : "done");
  assert((result.message ?? "") !== "" || reason === "ok", "no message");
  if (reason !== "ok") assertMatch(result.hint ?? "", /\S{2}/);
  if (stage !== null) assert((STAGES as readonly string[]).includes(stage), `no stage "${stage}"`);
  assert(result.audit !== undefined && /^[0-9a-f]{64}$/.test(result.audit.hash));
}

/** The records that answer an id. */
function answersTo(bridge: TestBridge, id: string): string[] {
  return bridge.audit().filter((r) => r["id"] === id).map((r) => String(r["event"]));
}

Deno.test("every reason that can be given is given once from outside, whole and valid", async (t) => {
  await using one = await countedBridge({
    verbs: {
      mark: marking(),
      fail: marking(["fail"]),
      slow: marking(["slow"], { timeout_s: 1 }),
      long: marking(["long"], { class: "mutating", timeout_s: 60 }),
      limited: marking(["limited"], { class: "destructive", approval: "never" }),
      "no-start": { class: "observe", argv: ["base/no-start.sh"], timeout_s: 5 },
      changed: { class: "observe", argv: ["base/changed.sh"], timeout_s: 5 },
      paid: marking(["paid"], { cost: 1 }),
      typed: marking(["{n}"], { args: { n: { type: "integer", min: 1, max: 9 } } }),
    },
    then: 'case "$2" in\nfail) exit 3 ;;\nslow) sleep 60 ;;\nlong) exec sleep 60 ;;\nesac',
    scripts: {
      "no-start.sh": "#!/nonexistent/interpreter\n",
      "changed.sh": "#!/bin/sh\n",
    },
    agent: { scope: "destructive" },
    limits: {
      concurrency: 4,
      rate: { destructive: { max: 1, per_s: 3600 } },
      spend: { per_request: 5, per_day: 20 },
    },
    top: { on_stop: "cancel" },
  });
  const { bridge } = one;
  const schema = await schemaOf(bridge, "result");
  await bridge.serve();
  const ran: string[] = [];
  const seen = new Set<Reason>();

  /** Submits, and holds the answer against the table; `runs` says if it was started. */
  const give = async (
    reason: Reason,
    stage: string | null,
    request: unknown,
    runs = false,
  ): Promise<Result> => {
    let result: Result | null = null;
    await t.step(`${reason}${stage === null ? "" : ` at ${stage}`}`, async () => {
      const id = `give-${reason}`;
      if (typeof request === "string") bridge.submitText(id, request);
      else bridge.submit(id, request);
      result = await bridge.final(id);
      assertWhole(result, schema, reason, stage);
      if (runs) ran.push(id);
      assertEquals(one.runs(), ran, "what ran");
      assert(!there(bridge.queue(`${id}.json`)));
      // The text follows the commit, and so may come after the result.
      const answers = () =>
        answersTo(bridge, id).filter((e) => e === "refused" || e === "finished").length;
      await until("the record", () => answers() > 0);
      assertEquals(answers(), 1);
      seen.add(reason);
    });
    assert(result !== null);
    return result;
  };

  await give("ok", null, { verb: "mark" }, true);
  const failed = await give("command-failed", null, { verb: "fail" }, true);
  assertEquals([failed.exit_code, failed.signal], [3, null]);
  const late = await give("timed-out", null, { verb: "slow", timeout_s: 0.5 }, true);
  assert((late.duration_ms ?? 0) < 20_000);
  await give("malformed", "parse", '{"verb":"mark","verb":"mark"}');
  await give("schema", "schema", { verb: "mark", wrong: 1 });
  await t.step("not-regular at object", async () => {
    Deno.symlinkSync("/etc/passwd", bridge.queue("give-link.json"));
    assertWhole(await bridge.final("give-link"), schema, "not-regular", "object");
    seen.add("not-regular");
  });
  await t.step("bad-name at name", async () => {
    Deno.writeTextFileSync(bridge.queue("Bad Name.json"), '{"verb":"mark"}');
    const [note] = await until("a note", () => bridge.refused().length > 0 && bridge.refused());
    assertEquals(validate(schema, note), []);
    assertEquals(
      [note?.["reason"], note?.["code"], note?.["stage"], note?.["next"], note?.["name"]],
      ["bad-name", 67, "name", "fix-request", "Bad Name.json"],
    );
    assertMatch(String(note?.["hint"]), /letter or digit/);
    seen.add("bad-name");
  });
  await give("spawn-failed", "start", { verb: "no-start" });
  await give("denied-verb", "denial", { verb: "exec" });
  const unknown = await give("unknown-verb", "allow", { verb: "marc" });
  assertMatch(unknown.hint ?? "", /"mark"/);
  await give("bad-args", "args", { verb: "typed", args: { n: 10 } });
  await t.step("killed at kill", async () => {
    Deno.writeTextFileSync(bridge.path("state/KILL"), "");
    bridge.submit("give-killed", { verb: "mark" });
    assertWhole(await bridge.final("give-killed"), schema, "killed", "kill");
    Deno.removeSync(bridge.path("state/KILL"));
    seen.add("killed");
  });
  await t.step("base-changed at base", async () => {
    Deno.writeTextFileSync(bridge.path("base/changed.sh"), "#!/bin/sh\n# another one\n");
    assertWhole(
      await bridge.ask("give-changed", { verb: "changed" }),
      schema,
      "base-changed",
      "base",
    );
    seen.add("base-changed");
  });
  await give("scope-exceeded", "scope", { verb: "limited", scope: "observe" });
  await give("spend-exceeded", "spend", { verb: "paid", max_spend: 0.5 });
  await t.step("key-conflict at replay", async () => {
    bridge.submit("give-ok", { verb: "fail" });
    const result = await bridge.final("give-ok.refused");
    assertWhole(result, schema, "key-conflict", "replay");
    assertEquals(bridge.result("give-ok")?.reason, "ok");
    seen.add("key-conflict");
  });
  await t.step("rate-limited at rate", async () => {
    assertEquals((await bridge.ask("give-first", { verb: "limited" })).outcome, "succeeded");
    ran.push("give-first");
    const result = await bridge.ask("give-second", { verb: "limited" });
    assertWhole(result, schema, "rate-limited", "rate");
    const wait = result.retry_after_ms ?? 0;
    assert(wait > 0 && wait <= 3_600_000, `retry_after_ms ${wait}`);
    assertEquals(one.runs(), ran);
    seen.add("rate-limited");
  });
  await t.step("uncertain", async () => {
    bridge.submit("give-uncertain", { verb: "long" });
    ran.push("give-uncertain");
    await until("the run", () => one.runs().includes("give-uncertain"));
    killGroupOf(bridge, "give-uncertain");
    const result = await bridge.final("give-uncertain", 30_000);
    assertWhole(result, schema, "uncertain", null);
    seen.add("uncertain");
  });
  await t.step("cancelled", async () => {
    bridge.submit("give-cancelled", { verb: "long" });
    ran.push("give-cancelled");
    await until("the run", () => one.runs().includes("give-cancelled"));
    assertEquals(await bridge.stop(), 0);
    const result = await bridge.final("give-cancelled");
    assertWhole(result, schema, "cancelled", null);
    seen.add("cancelled");
  });
  // Given by tests of their own, below and in approval_test.ts.
  for (const reason of ["expired", "busy", "approval-denied", "approval-lapsed"] as const) {
    seen.add(reason);
  }
  assertEquals(
    [...seen, ...NOT_YET, ...OF_SIGNATURES].sort(),
    CODES.map((row) => row.reason).sort(),
    "reasons given, and those of parts to come",
  );
  assertEquals(ENDINGS.filter((reason) => seen.has(reason)), [...ENDINGS]);
  assertEquals(one.runs(), ran);
});

/** Ends whatever runs a request, shim and all, as a power cut would. */
function killGroupOf(bridge: TestBridge, id: string): void {
  const started = bridge.audit().find((r) => r["event"] === "started" && r["id"] === id);
  const run = bridge.path("state/runs", String(started?.["run"]));
  const { pgid } = JSON.parse(Deno.readTextFileSync(`${run}/taken.json`));
  assert(Number.isInteger(pgid) && pgid > 1);
  Deno.kill(-pgid, "SIGKILL");
}

/** A bridge with a verb that runs until its gate is opened. */
async function gated(
  limits: Record<string, unknown>,
): Promise<Counted & { open(): void }> {
  const room = Deno.makeTempDirSync({ prefix: "chb-gate-" });
  const gate = `${room}/open`;
  const counted = await countedBridge({
    verbs: {
      hold: marking([gate], { class: "mutating", timeout_s: 60 }),
      quick: marking([], { class: "mutating" }),
    },
    then: 'test -z "$2" || while [ ! -e "$2" ]; do sleep 0.05; done; echo done',
    limits: { concurrency: 1, ...limits },
  });
  return {
    ...counted,
    runs: counted.runs,
    open: () => Deno.writeTextFileSync(gate, ""),
    [Symbol.asyncDispose]: async () => {
      await counted[Symbol.asyncDispose]();
      Deno.removeSync(room, { recursive: true });
    },
  };
}

/** Submits a request that holds the only slot, and waits until it runs. */
async function hold(one: Counted): Promise<void> {
  one.bridge.submit("hold", { verb: "hold" });
  await until("the run", () => one.runs().includes("hold"));
  await until("its state", () => one.bridge.result("hold")?.state === "running");
}

async function pending(bridge: TestBridge, id: string): Promise<Result> {
  return await until(`${id} to wait`, () => {
    const result = bridge.result(id);
    return result?.state === "pending" ? result : null;
  });
}

Deno.test("Q1 replays and joins of a request that runs or waits tell its state and run nothing", async () => {
  await using one = await gated({});
  const { bridge } = one;
  const schema = await schemaOf(bridge, "result");
  await bridge.serve();
  await hold(one);
  const running = bridge.result("hold");
  assertEquals(validate(schema, running), []);
  assertEquals([running?.next, running?.outcome, running?.attempt], ["wait", undefined, 1]);
  assert((running?.poll_after_ms ?? 0) > 0 && running?.deadline_at !== undefined);
  // The same again, under its id and under another one.
  bridge.submit("hold", { verb: "hold" });
  const again = await until("the replay", () => {
    const result = bridge.result("hold");
    return result?.replays === 1 ? result : null;
  });
  assertEquals([again.state, again.replay_of], ["running", undefined]);
  bridge.submit("hold-too", { verb: "hold", idempotency_key: "hold" });
  const joined = await until("the join", () => bridge.result("hold-too"));
  assertEquals([joined.state, joined.replay_of, joined.next], ["running", "hold", "wait"]);
  assertEquals(validate(schema, joined), []);
  // A request that waits, and one that joins it.
  bridge.submit("next", { verb: "quick" });
  const waits = await pending(bridge, "next");
  assertEquals([waits.waiting_for, waits.next, waits.started_at], ["slot", "wait", undefined]);
  assertEquals(validate(schema, waits), []);
  bridge.submit("next-too", { verb: "quick", idempotency_key: "next" });
  assertEquals((await pending(bridge, "next-too")).replay_of, "next");
  // Neither may take the other's name for something else.
  bridge.submit("hold", { verb: "quick" });
  const conflict = await bridge.final("hold.refused");
  assertEquals([conflict.reason, conflict.id], ["key-conflict", "hold"]);
  assertMatch(conflict.message ?? "", /running/);
  bridge.submit("another", { verb: "quick", idempotency_key: "hold" });
  assertEquals((await bridge.final("another")).reason, "key-conflict");
  assertEquals(bridge.result("hold")?.state, "running");
  one.open();
  for (
    const [id, of] of [["hold", undefined], ["hold-too", "hold"], ["next", undefined]] as const
  ) {
    const result = await bridge.final(id);
    assertEquals([result.outcome, result.replay_of], ["succeeded", of], id);
  }
  const last = await bridge.final("next-too");
  assertEquals([last.outcome, last.replay_of, last.stdout?.head], ["succeeded", "next", "done\n"]);
  assertEquals(one.runs(), ["hold", "next"]);
});

Deno.test("Q5 above the number that may wait a request is busy, binds nothing and may come again", async () => {
  await using one = await gated({ waiting: 2 });
  const { bridge } = one;
  const schema = await schemaOf(bridge, "result");
  await bridge.serve();
  await hold(one);
  for (const id of ["w1", "w2"]) {
    bridge.submit(id, { verb: "quick" });
    await pending(bridge, id);
  }
  const busy = await bridge.ask("w3", { verb: "quick" });
  assertWhole(busy, schema, "busy", "rate");
  assert((busy.retry_after_ms ?? 0) > 0);
  assertEquals(bridge.queued().filter((name) => name.endsWith(".json")), []);
  // Built-in verbs need no slot and do not wait.
  assertEquals((await bridge.ask("ping", { verb: "bridge.ping" })).outcome, "succeeded");
  one.open();
  for (const id of ["hold", "w1", "w2"]) {
    assertEquals((await bridge.final(id)).outcome, "succeeded");
  }
  bridge.submit("w3", { verb: "quick" });
  await until("w3 to run", () => bridge.result("w3")?.outcome === "succeeded");
  assertEquals(one.runs(), ["hold", "w1", "w2", "w3"]);
});

Deno.test("Q5 a backlog that stays in the queue is not refused, can be withdrawn, and runs in time", async () => {
  await using one = await gated({ waiting: 1, backlog: "queue" });
  const { bridge } = one;
  await bridge.serve();
  await hold(one);
  bridge.submit("w1", { verb: "quick" });
  await pending(bridge, "w1");
  for (const id of ["w2", "w3", "w4"]) bridge.submit(id, { verb: "quick" });
  // A look at the queue has come and gone when the status tells of a poll later than that.
  const seq = () => Number(bridge.status()?.["seq"]);
  const then = seq();
  await until("a status later", () => seq() > then + 1);
  const left = bridge.queued().filter((name) => !name.startsWith(".chb-probe-")).sort();
  assertEquals(left, ["w2.json", "w3.json", "w4.json"]);
  for (const id of ["w2", "w3", "w4"]) assertEquals(bridge.result(id), null);
  Deno.removeSync(bridge.queue("w4.json"));
  one.open();
  for (const id of ["hold", "w1", "w2", "w3"]) {
    assertEquals((await bridge.final(id)).outcome, "succeeded", id);
  }
  assertEquals((await bridge.ask("w5", { verb: "quick" })).outcome, "succeeded");
  assertEquals(bridge.result("w4"), null);
  assertEquals(one.runs().sort(), ["hold", "w1", "w2", "w3", "w5"]);
});

Deno.test("Q5 of a long backlog that stays in the queue many are taken in at once", async () => {
  await using bridge = await TestBridge.make({
    limits: { concurrency: 1, waiting: 100, backlog: "queue" },
  });
  const count = 240;
  for (let n = 0; n < count; n++) bridge.submit(`b-${n}`, { verb: "true" });
  await bridge.serve();
  const left = () => bridge.queued().filter((name) => name.startsWith("b-")).length;
  const lengths: number[] = [];
  await until("the last to be taken in", () => {
    const now = left();
    if (lengths.at(-1) !== now) lengths.push(now);
    return now === 0;
  }, 120_000);
  // Hundred at first, and then not each by itself: what was seen in the middle of a turn counts too.
  assert(lengths.filter((now) => now < count - 100).length < 60, lengths.join(" "));
  for (let n = 0; n < count; n++) assertEquals((await bridge.final(`b-${n}`)).outcome, "succeeded");
});

Deno.test("N5 a request that waits longer than it wants to is expired, and is never run for it", async () => {
  await using one = await gated({});
  const { bridge } = one;
  const schema = await schemaOf(bridge, "result");
  await bridge.serve();
  await hold(one);
  bridge.submit("short", { verb: "quick", max_age_s: 1 });
  bridge.submit("patient", { verb: "quick" });
  const expired = await bridge.final("short");
  assertWhole(expired, schema, "expired", "slot");
  assertEquals(expired.started_at, undefined);
  // It keeps its name: the same request again is the same answer again.
  bridge.submit("short", { verb: "quick", max_age_s: 1 });
  const again = await until("the replay", () => {
    const result = bridge.result("short");
    return (result?.replays ?? 0) > 0 ? result : null;
  });
  assertEquals([again.reason, again.next], ["expired", "resend-new-key"]);
  one.open();
  assertEquals((await bridge.final("patient")).outcome, "succeeded");
  const fresh = await bridge.ask("short-2", { verb: "quick", max_age_s: 600 });
  assertEquals(fresh.outcome, "succeeded");
  assertEquals(one.runs(), ["hold", "patient", "short-2"]);
});

Deno.test("N6 age counts from the host's first sight, whatever times the file has", async () => {
  await using one = await countedBridge({ verbs: { mark: marking() } });
  const { bridge } = one;
  const schema = await schemaOf(bridge, "result");
  bridge.submit("old", { verb: "mark", max_age_s: 1 });
  for (const [id, time] of [["past", 0], ["future", 4_000_000_000]] as const) {
    bridge.submit(id, { verb: "mark", max_age_s: 600 });
    Deno.utimeSync(bridge.queue(`${id}.json`), time, time);
  }
  // Times are known to the second, so two of them make it surely too old.
  await sleep(2100);
  await bridge.serve();
  assertWhole(await bridge.final("old"), schema, "expired", "fresh");
  for (const id of ["past", "future"]) {
    const result = await bridge.final(id);
    assertEquals(result.outcome, "succeeded", id);
    assert(Math.abs(Date.parse(result.received_at ?? "") - Date.now()) < 60_000, id);
  }
  assertEquals(one.runs().sort(), ["future", "past"]);
  // Nothing was bound: the same name may be used for a fresh one.
  bridge.submit("old", { verb: "mark" });
  await until("the fresh one", () => bridge.result("old")?.outcome === "succeeded");
});

Deno.test("X8 what changed while a request waited keeps it from starting and frees its names", async () => {
  await using one = await gated({});
  const { bridge } = one;
  const schema = await schemaOf(bridge, "result");
  await bridge.serve();
  await hold(one);
  bridge.submit("w1", { verb: "quick" });
  await pending(bridge, "w1");
  const script = bridge.path("base/mark.sh");
  const trusted = Deno.readTextFileSync(script);
  Deno.writeTextFileSync(script, `${trusted}# changed\n`);
  one.open();
  assertWhole(await bridge.final("w1"), schema, "base-changed", "recheck");
  assertEquals(one.runs(), ["hold"]);
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  bridge.submit("w1", { verb: "quick" });
  await until("w1 to run", () => bridge.result("w1")?.outcome === "succeeded");
  assertEquals(one.runs(), ["hold", "w1"]);
});

Deno.test("a raised kill switch answers what waits and frees its names; what runs goes on", async () => {
  await using one = await gated({});
  const { bridge } = one;
  const schema = await schemaOf(bridge, "result");
  await bridge.serve();
  await hold(one);
  for (const id of ["w1", "w2"]) {
    bridge.submit(id, { verb: "quick" });
    await pending(bridge, id);
  }
  bridge.submit("w1-too", { verb: "quick", idempotency_key: "w1" });
  await pending(bridge, "w1-too");
  Deno.writeTextFileSync(bridge.path("state/KILL.main"), "");
  for (const id of ["w1", "w2"]) {
    assertWhole(await bridge.final(id), schema, "killed", "recheck");
  }
  const joined = await bridge.final("w1-too");
  assertEquals([joined.reason, joined.replay_of], ["killed", "w1"]);
  assertEquals(bridge.result("hold")?.state, "running");
  assertEquals((await bridge.ask("late", { verb: "quick" })).stage, "kill");
  one.open();
  assertEquals((await bridge.final("hold")).outcome, "succeeded");
  // Nothing starts, although the slot is free now.
  await until("a status that tells of it", () => bridge.status()?.["state"] === "killed");
  assertEquals(one.runs(), ["hold"]);
  Deno.removeSync(bridge.path("state/KILL.main"));
  // Ids and keys are free: even for other requests.
  bridge.submit("w1", { verb: "quick" });
  bridge.submit("w2", { verb: "quick", idempotency_key: "other" });
  bridge.submit("w1-too", { verb: "quick", idempotency_key: "w2" });
  for (const id of ["w1", "w2", "w1-too"]) {
    await until(`${id} to run`, () => bridge.result(id)?.outcome === "succeeded");
    assertEquals(bridge.result(id)?.replay_of, undefined);
  }
  assertEquals(one.runs().sort(), ["hold", "w1", "w1-too", "w2"]);
});

Deno.test("Q5 Q8 above the answer cap entries are shed and counted, and valid requests still run", async () => {
  const cap = 20;
  await using one = await countedBridge({
    verbs: { mark: marking() },
    limits: { answers: cap },
  });
  const { bridge } = one;
  const statusSchema = await schemaOf(bridge, "status");
  await bridge.serve();
  const first = await bridge.ask("first", { verb: "mark" });
  assertEquals(first.outcome, "succeeded");
  for (let i = 0; i < 60; i++) bridge.submitText(`bad-${i}`, "[]");
  await until("an empty queue", () => bridge.queued().every((n) => n.startsWith(".chb-probe-")));
  // Replays and built-in verbs are answers too; what passes every check is not.
  bridge.submit("ping", { verb: "bridge.ping" });
  bridge.submit("first", { verb: "mark" });
  const valid = await bridge.ask("valid", { verb: "mark" });
  assertEquals(valid.outcome, "succeeded");
  Deno.writeTextFileSync(bridge.queue("last\u001b[2J.json"), "");
  await until("the last one", () => !there(bridge.queue("last\u001b[2J.json")));
  const counting = await until("a status that counts them", () => {
    const status = bridge.status();
    return status?.["shedding"] === 60 - (cap - 1) + 3 ? status : null;
  });
  assertEquals(validate(statusSchema, counting), []);
  const answered = [...Deno.readDirSync(bridge.path("spool/main/results"))]
    .filter((e) => e.name.startsWith("bad-")).length;
  assertEquals(answered, cap - 1);
  assertEquals(bridge.result("ping"), null);
  assertEquals(bridge.result("first")?.replays, undefined);
  assertEquals(bridge.refused(), []);
  assertEquals(one.runs(), ["first", "valid"]);
  assertEquals(await bridge.stop(), 0);
  const shed = bridge.audit().filter((r) => r["event"] === "shed");
  assertEquals(shed.length, 1);
  assertEquals([shed[0]?.["count"], shed[0]?.["last"]], [44, "last\\u001b[2J.json"]);
  assertMatch(String(shed[0]?.["first"]), /^bad-\d+\.json$/);
  const told = bridge.status()?.["shed"] as { count: number; first: string; last: string };
  assertEquals([told.count, told.last], [44, "last\\u001b[2J.json"]);
  assertNotEquals(told.first, told.last);
});
