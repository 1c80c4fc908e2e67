/**
 * A shim that stands still: people and agents are told before its limit is over, with the command
 * that lets it go on, and not any longer once it goes on. One that runs something, one that is idle,
 * one whose daemon is gone.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { beatOf } from "../src/run/beat.ts";
import type { Finding } from "../src/spool/types.ts";
import { sleep, type TestBridge, until, verb } from "./helpers/bridge.ts";
import { type Counted, countedBridge, UNTIL_GO } from "./helpers/counting.ts";
import { sh } from "./helpers/outside.ts";
import { processesOf } from "./helpers/tracer.ts";

const WAIT = `[ "$2" != wait ] || ${UNTIL_GO}`;

async function bridgeWith(timeout_s = 600): Promise<Counted> {
  return await countedBridge({
    verbs: {
      change: verb(["base/mark.sh", "{id}"], { class: "mutating" }),
      wait: verb(["base/mark.sh", "{id}", "wait"], { class: "mutating", timeout_s }),
    },
    agents: ["main", "other"],
    top: {
      agents: {
        main: { verbs: ["change", "wait"], scope: "mutating" },
        other: { verbs: ["change"], scope: "mutating" },
      },
    },
    limits: { concurrency: 1, grace_s: 0.5 },
    then: WAIT,
  });
}

/** The one run that is going on, and the shim that does it. */
async function taken(bridge: TestBridge): Promise<{ run: string; pid: number }> {
  return await until("a taken order", () => {
    for (const { name: run } of Deno.readDirSync(bridge.path("state/runs"))) {
      try {
        const text = Deno.readTextFileSync(bridge.path("state/runs", run, "taken.json"));
        return { run, pid: Number(JSON.parse(text).pgid) };
      } catch {
        // Not taken yet.
      }
    }
    return null;
  });
}

/** What doctor says of processes that stand still. */
async function found(bridge: TestBridge): Promise<Finding[]> {
  const { out } = await bridge.chb("doctor", "--json");
  const { findings, not_checked } = JSON.parse(out) as {
    findings: Finding[];
    not_checked: { failed: boolean }[];
  };
  assertEquals(not_checked.filter(({ failed }) => failed), []);
  return findings.filter(({ check }) => check === "stands-still");
}

function why(bridge: TestBridge, agent = "main"): string {
  const path = bridge.path("spool", agent, "inbox/status.json");
  const { state, why } = JSON.parse(Deno.readTextFileSync(path));
  assertEquals(state, "serving");
  return why;
}

Deno.test("a shim that was stopped in a run is told of until it goes on, and the run ends well", async () => {
  await using c = await bridgeWith();
  const { bridge } = c;
  await bridge.serve();
  bridge.submit("long", { verb: "wait" });
  const { run, pid } = await taken(bridge);
  await until("two beats", () => (beatOf(run, bridge.root) ?? 0) >= 2000);
  assertEquals(why(bridge), "", "a command that takes its time is no process that stands still");
  assertEquals(await found(bridge), []);

  Deno.kill(pid, "SIGSTOP");
  const since = performance.now();
  await until("the word to its agent", () => why(bridge).startsWith("What runs long stands still"));
  const told_ms = performance.now() - since;
  // The other agent's status is written just after it, and says nothing of the request.
  await until("the word to the other", () => why(bridge, "other") !== "");
  assertMatch(why(bridge, "other"), /^A process of the bridge stands still/);
  const [finding, ...more] = await found(bridge);
  assertEquals(more, []);
  assertEquals([finding?.level, finding?.path, finding?.mend], [
    "warning",
    "main/long",
    `kill -CONT ${pid}`,
  ]);
  const { out } = await bridge.chb("status");
  assertStringIncludes(out, `which runs main/long; let it go on:\n  kill -CONT ${pid}\n`);
  console.log(`told after ${Math.round(told_ms)} ms`);

  await sh(finding?.mend ?? "", bridge.root);
  await until("no word of it", () => why(bridge) === "" && why(bridge, "other") === "");
  assertEquals(await found(bridge), []);
  assert(!(await bridge.chb("status")).out.includes("stands still"));
  c.go();
  assertEquals((await bridge.final("long")).outcome, "succeeded");
  assertEquals(c.runs(), ["long"]);
});

Deno.test("an idle shim that was stopped is told of and taken last", async () => {
  await using c = await bridgeWith();
  const { bridge } = c;
  await bridge.serve();
  const shims = () => processesOf(bridge.root).filter((pid) => pid !== bridge.pid);
  await until("a shim and a spare", () => shims().length === 2);
  // Long enough that one of them has been asked and has answered.
  await sleep(6000);
  assertEquals(why(bridge), "");
  // The newest, which a run that may change something would be given otherwise.
  const pid = Math.max(...shims());
  Deno.kill(pid, "SIGSTOP");
  // They are asked in turn.
  await until(
    "the word",
    () => why(bridge).startsWith("A process of the bridge stands still"),
    30_000,
  );
  const [finding, ...more] = await found(bridge);
  assertEquals(more, []);
  assertEquals([finding?.path, finding?.mend], ["state/runs", `kill -CONT ${pid}`]);
  // One that is given to it is taken back after ten seconds only.
  bridge.submit("change", { verb: "change" });
  assertEquals((await bridge.final("change", 9000)).outcome, "succeeded");

  await sh(finding?.mend ?? "", bridge.root);
  await until("no word of it", () => why(bridge) === "");
  assertEquals(await found(bridge), []);
  assertEquals(c.runs(), ["change"]);
});

Deno.test("a stopped shim whose daemon is gone is told of by doctor, and ended by the next daemon", async () => {
  await using c = await bridgeWith(100);
  const { bridge } = c;
  await bridge.serve();
  bridge.submit("long", { verb: "wait" });
  const { run, pid } = await taken(bridge);
  await until("the start", () => c.runs().length === 1);
  await bridge.stop("SIGKILL");
  assertEquals(await found(bridge), []);
  Deno.kill(pid, "SIGSTOP");
  const [finding] = await found(bridge);
  assertEquals([finding?.path, finding?.mend], ["main/long", `kill -CONT ${pid}`]);
  await sh(finding?.mend ?? "", bridge.root);
  assertEquals(await found(bridge), []);

  // As if it had been stopped a second before its limit of 100 s.
  Deno.kill(pid, "SIGSTOP");
  const at = new Date(99_000);
  Deno.utimeSync(bridge.path("state/runs", run, "taken.json"), at, at);
  await bridge.serve();
  // A second, the grace time, and the ten that a shim has to end it by itself.
  const { outcome } = await bridge.final("long", 60_000);
  assertEquals(outcome, "timed_out");
  assertEquals(c.runs(), ["long"]);
});

Deno.test("a shim that is gone does not stand still, though what it started lives on", async () => {
  await using c = await bridgeWith();
  const { bridge } = c;
  await bridge.serve();
  bridge.submit("long", { verb: "wait" });
  const { run, pid } = await taken(bridge);
  await until("a beat", () => (beatOf(run, bridge.root) ?? 0) >= 100);
  await until("its mark", () => c.runs().length === 1);
  Deno.kill(pid, "SIGKILL");
  for (const end = performance.now() + 9000; performance.now() < end;) {
    assertEquals(why(bridge), "");
    await sleep(100);
  }
  assertEquals(await found(bridge), []);
  assertEquals(bridge.result("long")?.state, "running", "its group lives");
  c.go();
  assertEquals((await bridge.final("long")).state, "uncertain");
  assertEquals(c.runs(), ["long"]);
});
