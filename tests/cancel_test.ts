import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { countedBridge, marking } from "./helpers/counting.ts";

const SLOW = "case $2 in slow) sleep 60;; esac";

/** One slot, a slow verb and a quick one; what ran is counted. */
function slowBridge() {
  return countedBridge({
    verbs: {
      slow: marking(["slow"], { class: "mutating", timeout_s: 120 }),
      quick: marking([], { class: "mutating" }),
    },
    then: SLOW,
    limits: { concurrency: 1, grace_s: 0.5 },
    top: {},
  });
}

interface Answer {
  readonly what: string;
  readonly id: string;
  readonly state: string;
}

Deno.test("bridge.cancel ends what waits and what runs, under every id, and says what it did", async (t) => {
  await using counted = await slowBridge();
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("run", { verb: "slow", idempotency_key: "k-run" });
  await until("the run", () => runs().includes("run"));
  bridge.submit("wait", { verb: "quick", idempotency_key: "k-wait" });
  await until("the waiter", () => bridge.result("wait")?.waiting_for === "slot");
  bridge.submit("wait-2", { verb: "quick", idempotency_key: "k-wait" });
  await until("the joined id", () => bridge.result("wait-2")?.replay_of === "wait");

  await t.step("before the start, by a joined id", async () => {
    const asked = await bridge.ask("c1", { verb: "bridge.cancel", args: { id: "wait-2" } });
    const { what, id, state } = asked.answer as Answer;
    assertEquals([asked.outcome, what, id, state], ["succeeded", "cancelled", "wait", "done"]);
    for (const name of ["wait", "wait-2"]) {
      const result = await bridge.final(name);
      assertEquals([result.outcome, result.code], ["cancelled", 3]);
      assertStringIncludes(result.message ?? "", "by its agent");
    }
  });
  await t.step("what is over stays as it is", async () => {
    const asked = await bridge.ask("c2", { verb: "bridge.cancel", args: { id: "wait" } });
    assertEquals((asked.answer as Answer).what, "over");
    assertEquals(bridge.result("wait")?.outcome, "cancelled");
  });
  await t.step("the key stays bound", async () => {
    bridge.submit("wait-3", { verb: "quick", idempotency_key: "k-wait" });
    assertEquals((await bridge.final("wait-3")).outcome, "cancelled");
  });
  await t.step("while it runs, by its key", async () => {
    const asked = await bridge.ask("c3", {
      verb: "bridge.cancel",
      args: { idempotency_key: "k-run" },
    });
    assertEquals((asked.answer as Answer).what, "asked");
    const result = await bridge.final("run");
    assertEquals([result.outcome, result.reason], ["cancelled", "cancelled"]);
    assertStringIncludes(result.message ?? "", "by its agent");
  });
  await t.step("what is not this agent's is not known", async () => {
    const asked = await bridge.ask("c4", { verb: "bridge.cancel", args: { id: "nobody" } });
    assertEquals([asked.reason, asked.stage], ["bad-args", "args"]);
    for (const args of [{}, { id: "A" }, { id: "a", idempotency_key: "b" }, { run: "x" }]) {
      const wrong = await bridge.ask(
        `c5-${Object.keys(args).join("-")}-${Math.random()}`.replace(
          /[^a-z0-9-]/g,
          "",
        ),
        { verb: "bridge.cancel", args },
      );
      assertEquals(wrong.reason, "bad-args");
    }
  });
  assertEquals(runs(), ["run"]);
  const records = await until("both records", () => {
    const found = bridge.audit().filter((r) => r["event"] === "cancelled");
    return found.length >= 2 ? found : null;
  });
  assertEquals(records.map((r) => [r["id"], r["what"], r["by"]]), [
    ["wait", "cancelled", "agent"],
    ["run", "asked", "agent"],
  ]);
});

Deno.test("a request and its cancel in one batch: it never runs, or its run is ended", async () => {
  await using counted = await slowBridge();
  const { bridge } = counted;
  bridge.submit("a-first", { verb: "slow" });
  bridge.submit("b-second", { verb: "slow", args: {} });
  bridge.submit("c-cancel", { verb: "bridge.cancel", args: { id: "a-first" } });
  await bridge.serve();
  const answer = await bridge.final("c-cancel");
  // Whichever was handled first: known and ended, or not known yet.
  if (answer.reason === "bad-args") {
    await bridge.ask("d-cancel", { verb: "bridge.cancel", args: { id: "a-first" } });
  }
  assertEquals((await bridge.final("a-first")).outcome, "cancelled");
  await bridge.ask("e-cancel", { verb: "bridge.cancel", args: { id: "b-second" } });
  assertEquals((await bridge.final("b-second")).outcome, "cancelled");
});

Deno.test("chb cancel beside a daemon: what waits, what runs, and what it refuses", async () => {
  await using counted = await slowBridge();
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("007", { verb: "slow" });
  await until("the run", () => runs().includes("007"));
  bridge.submit("wait", { verb: "quick" });
  await until("the waiter", () => bridge.result("wait")?.waiting_for === "slot");

  const waited = await bridge.chb(
    "cancel",
    "main/wait",
    "--reason",
    "not\u001b now",
    "--by",
    "ann",
  );
  assertEquals(waited.code, 0, waited.err);
  const result = await bridge.final("wait");
  assertEquals(result.outcome, "cancelled");
  assertEquals(result.message, "The request was cancelled by a human: not\\u001b now");

  const ran = await bridge.chb("cancel", "007", "--json");
  assertEquals(ran.code, 0, ran.err);
  assertEquals(JSON.parse(ran.out), { ok: true, what: "asked", agent: "main", id: "007" });
  assertEquals((await bridge.final("007")).message, "The request was cancelled by a human");

  const over = await bridge.chb("cancel", "main/007");
  assertEquals(over.code, 77);
  assertStringIncludes(over.err, "is over: cancelled");
  assertEquals((await bridge.chb("cancel", "main/nobody")).code, 77);
  assertEquals((await bridge.chb("cancel", "Main/x")).code, 64);
  assertEquals((await bridge.chb("cancel")).code, 64);
  const record = bridge.audit().find((r) => r["event"] === "cancelled");
  assertEquals([record?.["by"], record?.["human"]], ["human", "ann"]);
  assertEquals(runs(), ["007"]);
});

Deno.test("chb cancel while no daemon runs: what waits is settled, what runs is ended", async () => {
  await using counted = await slowBridge();
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("run", { verb: "slow" });
  await until("the run", () => runs().includes("run"));
  bridge.submit("wait", { verb: "quick" });
  await until("the waiter", () => bridge.result("wait")?.waiting_for === "slot");
  await bridge.stop();

  assertEquals((await bridge.chb("cancel", "main/wait")).code, 0);
  assertEquals(bridge.result("wait")?.outcome, "cancelled");
  const asked = await bridge.chb("cancel", "main/run");
  assertEquals(asked.code, 0, asked.err);
  const [started] = bridge.audit().filter((r) => r["id"] === "run" && r["event"] === "started");
  const dir = bridge.path("state/runs", String(started?.["run"]));
  await until("the end of the run", () => there(join(dir, "exit.json")));
  assertEquals(bridge.result("run")?.state, "running");
  await bridge.serve();
  assertEquals((await bridge.final("run")).outcome, "cancelled");
  assertEquals(runs(), ["run"]);
});

Deno.test("a cancel that reached only the ledger is carried out by the next daemon", async () => {
  await using counted = await slowBridge();
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("run", { verb: "slow" });
  await until("the run", () => runs().includes("run"));
  const started = () => bridge.audit().find((r) => r["event"] === "started");
  const run = String((await until("the record", started))["run"]);
  await bridge.stop("SIGKILL");
  // The mark cannot be left: its place is taken, as it would be on a disk that refuses it.
  const dir = bridge.path("state/runs", run);
  Deno.chmodSync(dir, 0o500);
  try {
    const asked = await bridge.chb("cancel", "main/run");
    assertEquals(asked.code, 0, asked.err);
  } finally {
    Deno.chmodSync(dir, 0o700);
  }
  // Root is not kept out by a mode.
  if (there(join(dir, "cancel"))) Deno.removeSync(join(dir, "cancel"));
  await bridge.serve();
  assertEquals((await bridge.final("run")).outcome, "cancelled");
});

Deno.test("a daemon that does not answer: chb cancel ends what runs all the same", async () => {
  await using counted = await slowBridge();
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("run", { verb: "slow" });
  await until("the run", () => runs().includes("run"));
  Deno.kill(bridge.pid, "SIGSTOP");
  try {
    const asked = await bridge.chb("cancel", "main/run");
    assertEquals(asked.code, 75);
    assertStringIncludes(asked.err, "asked to end all the same");
  } finally {
    Deno.kill(bridge.pid, "SIGCONT");
  }
  assertEquals((await bridge.final("run")).outcome, "cancelled");
});

Deno.test("waiting_for follows what a request waits for, and a lock goes round the agents", async () => {
  const policy = {
    agents: {
      main: { verbs: ["hold", "next"], scope: "mutating" },
      other: { verbs: ["next"], scope: "mutating" },
    },
    verbs: {
      hold: verb(["/usr/bin/sleep", "60"], { class: "mutating", lock: "one" }),
      next: verb(["/usr/bin/sleep", "0.2"], { class: "mutating", lock: "one" }),
      busy: verb(["/usr/bin/sleep", "60"]),
    },
    limits: { concurrency: 1, grace_s: 0.3 },
  };
  await using bridge = await TestBridge.start({ policy, agents: ["main", "other"] });
  bridge.submit("hold", { verb: "hold" });
  await until("the holder", () => bridge.result("hold")?.state === "running");
  for (let n = 0; n < 12; n++) bridge.submit(`n${n}`, { verb: "next", idempotency_key: `n${n}` });
  await until("the waiters", () => {
    for (let n = 0; n < 12; n++) if (bridge.result(`n${n}`)?.waiting_for !== "lock") return false;
    return true;
  });
  const temporary = bridge.path("spool/other/queue/.o.tmp");
  Deno.writeTextFileSync(temporary, JSON.stringify({ verb: "next" }));
  Deno.renameSync(temporary, bridge.path("spool/other/queue/o.json"));
  const other = () => {
    const path = bridge.path("spool/other/results/o.json");
    return there(path) ? JSON.parse(Deno.readTextFileSync(path)) : null;
  };
  await until("the other waiter", () => other()?.waiting_for === "lock");
  await bridge.ask("c", { verb: "bridge.cancel", args: { id: "hold" } });
  await until("the other's end", () => other()?.state === "done");
  const done = Array.from({ length: 12 }, (_, n) => bridge.result(`n${n}`)?.state)
    .filter((state) => state === "done").length;
  assert(done <= 3, `${done} requests of one agent came before another agent's`);
  for (let n = 0; n < 12; n++) assertEquals((await bridge.final(`n${n}`)).outcome, "succeeded");
});

Deno.test("waiting_for turns from lock to slot when the lock is free and the slots are not", async () => {
  const policy = {
    agents: { main: { verbs: ["hold", "busy", "next"], scope: "mutating" } },
    verbs: {
      hold: verb(["/usr/bin/sleep", "60"], { class: "mutating", lock: "one" }),
      next: verb(["/usr/bin/true"], { class: "mutating", lock: "one" }),
      busy: verb(["/usr/bin/sleep", "60"], { class: "mutating" }),
    },
    limits: { concurrency: 2, grace_s: 0.3 },
  };
  await using bridge = await TestBridge.start({ policy });
  bridge.submit("hold", { verb: "hold" });
  bridge.submit("busy", { verb: "busy" });
  await until("both", () => ["hold", "busy"].every((id) => bridge.result(id)?.state === "running"));
  bridge.submit("next", { verb: "next" });
  await until("the lock's waiter", () => bridge.result("next")?.waiting_for === "lock");
  bridge.submit("busy-2", { verb: "busy" });
  bridge.submit("busy-3", { verb: "busy" });
  await until("the slots' waiters", () => bridge.result("busy-3")?.waiting_for === "slot");
  // The slot goes to the older of the two lines' heads, `next`; its lock must be free for that.
  await bridge.chb("cancel", "main/next", "--reason", "it comes back younger");
  bridge.submit("young", { verb: "next" });
  await until("the young one", () => bridge.result("young")?.waiting_for === "lock");
  await bridge.ask("c", { verb: "bridge.cancel", args: { id: "hold" } });
  await until("the turn", () => bridge.result("young")?.waiting_for === "slot");
  for (const id of ["busy", "busy-2", "busy-3"]) {
    await bridge.ask(`x-${id}`, { verb: "bridge.cancel", args: { id } });
  }
  assertEquals((await bridge.final("young")).outcome, "succeeded");
  await sleep(0);
});

Deno.test("a cancel of a run whose shim died says that it may have done something, and nothing runs again", async () => {
  await using counted = await countedBridge({
    verbs: { slow: marking(["slow"], { on_crash: "rerun", timeout_s: 120 }) },
    then: SLOW,
    limits: { grace_s: 0.5 },
  });
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("run", { verb: "slow" });
  await until("the run", () => runs().includes("run"));
  const record = () => bridge.audit().find((r) => r["id"] === "run" && r["event"] === "started");
  const started = await until("the record", record);
  const taken = bridge.path("state/runs", String(started["run"]), "taken.json");
  const { pgid } = JSON.parse(Deno.readTextFileSync(taken));
  // It stands still, so that the cancel comes before its death is seen and it cannot obey.
  Deno.kill(pgid, "SIGSTOP");
  assertEquals((await bridge.chb("cancel", "run")).code, 0);
  Deno.kill(-pgid, "SIGKILL");
  const result = await bridge.final("run", 30_000);
  assertEquals([result.outcome, result.attempt], ["cancelled", 1]);
  assertStringIncludes(result.hint ?? "", "What it did until then may stand");
  const finished = await until(
    "the record",
    () => bridge.audit().find((r) => r["id"] === "run" && r["event"] === "finished"),
  );
  assertEquals(finished["started"], true);
  assertEquals(runs(), ["run"]);
});

Deno.test("what grew too old while no daemon ran is not started by the next one", async () => {
  await using counted = await countedBridge({
    verbs: {
      slow: marking(["slow"], { class: "mutating", timeout_s: 120 }),
      quick: marking([], { class: "mutating" }),
    },
    then: "case $2 in slow) sleep 2;; esac",
    limits: { concurrency: 1 },
  });
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("slow", { verb: "slow" });
  await until("the run", () => runs().includes("slow"));
  bridge.submit("old", { verb: "quick", max_age_s: 1 });
  await until("the waiter", () => bridge.result("old") !== null);
  await bridge.stop();
  const [started] = bridge.audit().filter((r) => r["id"] === "slow" && r["event"] === "started");
  const dir = bridge.path("state/runs", String(started?.["run"]));
  await until("the end of the run", () => there(join(dir, "exit.json")));
  await sleep(1000);
  await bridge.serve();
  assertEquals((await bridge.final("slow")).outcome, "succeeded");
  assertEquals((await bridge.final("old")).outcome, "expired");
  assertEquals(runs(), ["slow"]);
});
