/**
 * The kill switch: by touch and by command, for all and for one agent, with and without a daemon,
 * over what waits and what runs.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { SwitchDir } from "../src/daemon/kill_switch.ts";
import { markUnfinishedRuns } from "../src/run/mark_runs.ts";
import { AgentSide } from "./helpers/agents.ts";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";

Deno.test("SwitchDir sees every switch that goes up or down, by a look at its directory", () => {
  const before = Deno.cwd();
  const root = Deno.makeTempDirSync({ prefix: "chb-switch-" });
  try {
    Deno.chdir(root);
    const names = ["KILL", "KILL.a"];
    const gone = new SwitchDir(Date.now);
    assertEquals(gone.raised(names), null, "nothing is there, as far as can be seen");
    Deno.writeTextFileSync("state", "");
    assertEquals(gone.raised(names), "KILL", "what cannot be seen down is up");
    Deno.removeSync("state");
    Deno.mkdirSync("state");
    const dir = new SwitchDir(Date.now);
    // While the directory's last change is young, and when it is old: up is seen at once.
    for (const old of [false, true]) {
      const long = new Date(Date.now() - 60_000);
      const assertDown = () => {
        if (old) Deno.utimeSync("state", long, long);
        assertEquals([dir.raised(names), dir.raised(names), dir.raised(names)], [null, null, null]);
      };
      for (const name of names) {
        assertDown();
        Deno.writeTextFileSync(`state/${name}`, "");
        assertEquals([dir.raised(names), dir.raised(names)], [name, name]);
        Deno.removeSync(`state/${name}`);
        assertDown();
        Deno.symlinkSync("/nowhere", `state/${name}`);
        assertEquals(dir.raised(names), name, "a name is enough");
        Deno.removeSync(`state/${name}`);
      }
      assertDown();
      Deno.writeTextFileSync("state/KILL.b", "");
      assertEquals([dir.raised(names), dir.raised(["KILL", "KILL.b"])], [null, "KILL.b"]);
      Deno.removeSync("state/KILL.b");
    }
  } finally {
    Deno.chdir(before);
    Deno.removeSync(root, { recursive: true });
  }
});

/** Two agents; one slot, so that a second request of either waits. */
async function twoAgents(concurrency = 1): Promise<{
  bridge: TestBridge;
  a: AgentSide;
  b: AgentSide;
}> {
  const policy = {
    agents: {
      a: { verbs: ["long", "short", "locked"], scope: "mutating" },
      b: { verbs: ["long", "short"], scope: "mutating" },
    },
    verbs: {
      long: verb(["/usr/bin/sleep", "60"], { class: "mutating", timeout_s: 120, lock: "one" }),
      short: verb(["/usr/bin/true"], { class: "mutating" }),
      locked: verb(["/usr/bin/true"], { class: "mutating", lock: "one" }),
    },
    limits: { concurrency, grace_s: 1, answers: 100_000 },
  };
  const bridge = await TestBridge.start({ policy, agents: ["a", "b"] });
  return { bridge, a: new AgentSide(bridge, "a"), b: new AgentSide(bridge, "b") };
}

function records(bridge: TestBridge, ...events: string[]): Record<string, unknown>[] {
  return bridge.audit().filter((r) => events.includes(String(r["event"])));
}

Deno.test("a switch is seen within a second or so, whatever its directory's time of change says", async () => {
  await using bridge = await TestBridge.start({ serve: ["--poll-ms", "500"] });
  await sleep(3000);
  assertEquals((await bridge.ask("before", { verb: "bridge.ping" })).outcome, "succeeded");
  const { atime, mtime } = Deno.statSync(bridge.path("state"));
  assert(atime !== null && mtime !== null);
  Deno.writeTextFileSync(bridge.path("state/KILL"), "");
  Deno.utimeSync(bridge.path("state"), atime, mtime);
  await sleep(2500);
  assertEquals((await bridge.ask("after", { verb: "bridge.ping" })).reason, "killed");
});

Deno.test("chb kill --now answers what waits, ends what runs, and chb resume lets both come again", async () => {
  const { bridge, a, b } = await twoAgents(2);
  await using _ = bridge;
  a.submit("run", { verb: "long" });
  await a.until("run", (r) => r.state === "running");
  a.submit("wait-lock", { verb: "locked" });
  await a.until("wait-lock", (r) => r.waiting_for === "lock");
  const { code, out, err } = await bridge.chb(
    "kill",
    "--now",
    "--reason",
    "wrong\nstack",
    "--by",
    "ann",
  );
  assertEquals([code, err], [0, ""]);
  assertStringIncludes(out, "KILL is up\n1 running command is asked to end\n");
  const waited = await a.until("wait-lock");
  assertEquals([waited.code, waited.reason, waited.stage], [80, "killed", "recheck"]);
  assertEquals((await a.until("run")).outcome, "cancelled");
  for (const side of [a, b]) {
    const refused = await side.ask("new", { verb: "short" });
    assertEquals([refused.reason, refused.stage, refused.next], ["killed", "kill", "ask-human"]);
    await until("status", () => side.status()?.["state"] === "killed", 10_000);
    assertMatch(String(side.status()?.["why"]), /kill switch KILL\b/);
  }
  const [killed, ...more] = records(bridge, "killed");
  assertEquals(more, []);
  assertEquals(
    [killed?.["switch"], killed?.["by"], killed?.["why"], killed?.["now"], killed?.["marked"]],
    ["KILL", "ann", "wrong\\u000astack", true, 1],
  );
  assertStringIncludes((await bridge.chb("status")).out, "wrong\\u000astack\n  ./bin/chb resume\n");
  const resumed = await bridge.chb("resume", "--by", "ann");
  assertEquals([resumed.code, resumed.out], [0, "KILL is down\n"]);
  assertEquals(records(bridge, "resumed").map((r) => r["by"]), ["ann"]);
  assertEquals((await b.ask("other", { verb: "short" })).outcome, "succeeded");
  // Its id and key were given up, as for every refusal before a start.
  a.submit("wait-lock", { verb: "locked" });
  await a.until("wait-lock", (r) => r.outcome === "succeeded");
});

Deno.test("chb kill --agent A leaves the others alone, what they run included", async () => {
  const { bridge, a, b } = await twoAgents(3);
  await using _ = bridge;
  b.submit("run", { verb: "long" });
  await b.until("run", (r) => r.state === "running");
  a.submit("wait", { verb: "locked" });
  await a.until("wait", (r) => r.waiting_for === "lock");
  const { code, out } = await bridge.chb(
    "kill",
    "--agent",
    "a",
    "--now",
    "--reason",
    "x",
    "--json",
  );
  assertEquals([code, JSON.parse(out)], [0, {
    ok: true,
    switch: "KILL.a",
    marked: 0,
    recorded: true,
  }]);
  assertEquals((await a.until("wait")).reason, "killed");
  assertEquals((await a.ask("again", { verb: "short" })).reason, "killed");
  assertEquals((await b.ask("other", { verb: "short" })).outcome, "succeeded");
  assertEquals(b.result("run")?.state, "running");
  // Lowering everybody's switch lowers nobody's own.
  assertStringIncludes((await bridge.chb("resume")).out, "KILL.a is still up");
  assertEquals((await a.ask("still", { verb: "short" })).reason, "killed");
  assertEquals((await bridge.chb("resume", "--agent", "a")).code, 0);
  assertEquals((await a.ask("free", { verb: "short" })).outcome, "succeeded");
});

Deno.test("chb kill --now works without a daemon: what runs ends, what waits is answered", async () => {
  const { bridge, a } = await twoAgents();
  await using _ = bridge;
  a.submit("run", { verb: "long" });
  await a.until("run", (r) => r.state === "running");
  a.submit("wait-slot", { verb: "short" });
  await a.until("wait-slot", (r) => r.waiting_for === "slot");
  await bridge.stop("SIGKILL");
  const { code, err } = await bridge.chb("kill", "--now", "--reason", "nobody serves");
  assertEquals([code, err], [0, ""]);
  // No daemon had a part in this.
  assertEquals(a.result("wait-slot")?.reason, "killed");
  const runs = [...Deno.readDirSync(bridge.path("state/runs"))].map((entry) => entry.name);
  await until(
    "the exit record",
    () => runs.some((run) => there(bridge.path("state/runs", run, "exit.json"))),
    20_000,
  );
  await bridge.serve();
  assertEquals((await a.until("run")).outcome, "cancelled");
  assertEquals((await a.ask("new", { verb: "short" })).reason, "killed");
  await bridge.stop();
  assertEquals((await bridge.chb("resume")).code, 0);
  await bridge.serve();
  assertEquals((await a.ask("newer", { verb: "short" })).outcome, "succeeded");
  assertEquals(records(bridge, "killed", "resumed").map((r) => r["event"]), ["killed", "resumed"]);
});

Deno.test("a switch that was touched is recorded once, over restarts too, and so is its end", async () => {
  await using bridge = await TestBridge.start();
  Deno.writeTextFileSync(bridge.path("state/KILL.main"), "by hand\n\x1b[31mred");
  await until("the record", () => records(bridge, "killed").length === 1);
  const [killed] = records(bridge, "killed");
  assertEquals([killed?.["switch"], killed?.["agent"], killed?.["why"]], [
    "KILL.main",
    "main",
    "by hand",
  ]);
  await bridge.stop();
  await bridge.serve();
  assertEquals((await bridge.ask("no", { verb: "true" })).reason, "killed");
  Deno.removeSync(bridge.path("state/KILL.main"));
  await until("the other record", () => records(bridge, "resumed").length === 1);
  assertEquals((await bridge.ask("yes", { verb: "true" })).outcome, "succeeded");
  assertEquals(records(bridge, "killed").length, 1);
});

Deno.test("chb kill raises the switch although the ledger cannot be used, and says so", async () => {
  await using bridge = await TestBridge.make();
  Deno.writeTextFileSync(bridge.path("state/ledger.db"), "no ledger");
  const { code, out, err } = await bridge.chb("kill", "--reason", "broken");
  assertEquals(code, 1);
  assertStringIncludes(out, "KILL is up");
  assertStringIncludes(err, "could not be recorded");
  assert(there(bridge.path("state/KILL")));
  // Nothing goes down without a record of it.
  assert((await bridge.chb("resume")).code !== 0);
  assert(there(bridge.path("state/KILL")));
});

Deno.test("chb kill refuses what would raise no switch: no reason, no such agent, a path", async () => {
  await using bridge = await TestBridge.make();
  assertEquals((await bridge.chb("kill")).code, 64);
  for (const agent of ["mian", "../x", "MAIN", "."]) {
    const { code, err } = await bridge.chb("kill", "--reason", "x", "--agent", agent);
    assertEquals(code, 64);
    assertStringIncludes(err, "main");
  }
  const up = [...Deno.readDirSync(bridge.path("state"))].filter((e) => e.name.startsWith("KILL"));
  assertEquals(up, []);
});

Deno.test("chb resume lowers the switch of an agent that was never served, and says what it cannot", async () => {
  await using bridge = await TestBridge.make();
  // What status and doctor print for it has to work.
  Deno.writeTextFileSync(bridge.path("state/KILL.mian"), "");
  assertStringIncludes((await bridge.chb("status")).out, "./bin/chb resume --agent mian");
  const { code, err } = await bridge.chb("resume", "--agent", "mian");
  assertEquals(code, 0, err);
  assert(!there(bridge.path("state/KILL.mian")));
  assertEquals((await bridge.chb("resume", "--agent", "mian")).code, 64);
  Deno.mkdirSync(bridge.path("state/KILL/full"), { recursive: true });
  const held = await bridge.chb("resume");
  assertEquals(held.code, 1);
  assertStringIncludes(held.err, "rm -r state/KILL");
  assert(there(bridge.path("state/KILL")));
});

Deno.test("markUnfinishedRuns() marks what has no outcome, of one agent or of all", () => {
  const root = Deno.makeTempDirSync({ prefix: "chb-mark-" });
  try {
    const order = (run: string, agent: string) =>
      JSON.stringify({
        chb: 1,
        run,
        agent,
        id: "r",
        idempotency_key: "r",
        verb: "v",
        args: {},
        attempt: 1,
        policy: "0".repeat(64),
        command_sha256: "0".repeat(64),
        program: { path: "/usr/bin/true", dev: "1", ino: "1", size: 1, mtime_ms: 1 },
        max_spend: null,
        timeout_ms: 1,
        grace_ms: 1,
        output_cap: 1,
        pgid: 2,
        reuse: false,
      });
    const make = (digit: string, agent: string, ...names: string[]) => {
      const run = digit.repeat(32);
      const dir = join(root, "state/runs", run);
      Deno.mkdirSync(dir, { recursive: true });
      for (const name of names) Deno.writeTextFileSync(join(dir, name), order(run, agent));
      return () => there(join(dir, "cancel"));
    };
    const taken = make("1", "a", "taken.json");
    const ordered = make("2", "a", "order.json");
    const over = make("3", "a", "taken.json", "exit.json");
    const named = make("4", "a", "exit-exited-0-none-0-0");
    const voided = make("5", "a", "void.json");
    const others = make("6", "b", "taken.json");
    const empty = make("7", "a");
    Deno.mkdirSync(join(root, "state/runs/not-a-run"));
    assertEquals(markUnfinishedRuns("a", root), { marked: 2, failed: [] });
    const all = [taken, ordered, over, named, voided, others, empty];
    assertEquals(all.map((marked) => marked()), [true, true, false, false, false, false, false]);
    // Its order may be on its way: who ends everything ends that one too.
    assertEquals(markUnfinishedRuns(null, root).marked, 4);
    assertEquals(all.map((marked) => marked()), [true, true, false, false, false, true, true]);
    assert(!there(join(root, "state/runs/not-a-run/cancel")));
  } finally {
    Deno.removeSync(root, { recursive: true });
  }
});

Deno.test("chb kill beside a daemon that was stopped says that the record comes later, and it does", async () => {
  await using bridge = await TestBridge.start();
  Deno.kill(bridge.pid, "SIGSTOP");
  try {
    const { code, out, err } = await bridge.chb("kill", "--reason", "it hangs");
    assertEquals(code, 1);
    assertStringIncludes(out, "KILL is up");
    assertMatch(err, /^chb kill: KILL is up, and .* did not answer, so it is not recorded yet/);
  } finally {
    Deno.kill(bridge.pid, "SIGCONT");
  }
  await until("the record", () => records(bridge, "killed").length === 1);
});
