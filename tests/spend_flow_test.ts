/**
 * Spending from outside: reports are believed as far as the rules go, what waits holds its grant,
 * and neither a restart nor a lost run gives anything back.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { AgentSide } from "./helpers/agents.ts";
import { TestBridge, until, verb } from "./helpers/bridge.ts";

/** What a command does with its report; `$1` is how, `$2` the grant. */
const SCRIPT = `#!/bin/sh
case "$1" in
none) ;;
fifo) mkfifo "$CHB_SPEND_FILE" ;;
link) ln -s /etc/hostname "$CHB_SPEND_FILE" ;;
long) sleep 60 ;;
*) printf '%s\\n' "$1" > "$CHB_SPEND_FILE" ;;
esac
echo "$2"
`;

async function start(limits: Record<string, unknown>): Promise<TestBridge> {
  const verbs = {
    metered: verb(["base/spend.sh", "{how}", "{max_spend}"], {
      class: "mutating",
      args: { how: { type: "name", max_length: 40 } },
    }),
    long: verb(["base/spend.sh", "long", "{max_spend}"], { class: "mutating", timeout_s: 120 }),
    fixed: verb(["/usr/bin/true"], { class: "mutating", cost: 0.1 }),
  };
  return await TestBridge.start({
    policy: {
      agents: {
        main: { verbs: Object.keys(verbs), scope: "mutating" },
        other: { verbs: Object.keys(verbs), scope: "mutating" },
      },
      verbs,
      limits: { concurrency: 1, answers: 100_000, ...limits },
      env: { PATH: "/usr/bin:/bin" },
    },
    scripts: { "spend.sh": SCRIPT },
    programs: ["/usr/bin/true"],
    agents: ["main", "other"],
  });
}

/** What the record of the end says was granted, charged, and on what grounds. */
async function account(bridge: TestBridge, id: string): Promise<unknown[]> {
  const record = await until(
    "the record",
    () => bridge.audit().find((r) => r["id"] === id && r["event"] === "finished"),
  );
  return [record["granted"], record["charged"], record["spend"]];
}

Deno.test("a report corrects the reserve; what is no report charges all of it; a day is exact and survives restarts", async () => {
  await using bridge = await start({ spend: { per_request: 0.3, per_day: 1 } });
  const run = async (id: string, how: string, more: Record<string, unknown> = {}) => {
    const result = await bridge.ask(id, { verb: "metered", args: { how }, ...more });
    assertEquals(result.outcome, "succeeded", JSON.stringify(result));
    return [result.stdout?.head, ...await account(bridge, id)];
  };
  // The command is told its grant; the request's own limit only narrows it.
  assertEquals(await run("a", "0.1"), ["0.3\n", "0.3", "0.1", "reported"]);
  assertEquals(await run("b", "0", { max_spend: 0.2 }), ["0.2\n", "0.2", "0", "reported"]);
  assertEquals(await run("c", "none", { max_spend: 0.1 }), ["0.1\n", "0.1", "0.1", "missing"]);
  assertEquals(await run("d", "fifo", { max_spend: 0.1 }), ["0.1\n", "0.1", "0.1", "missing"]);
  assertEquals(await run("e", "link", { max_spend: 0.1 }), ["0.1\n", "0.1", "0.1", "missing"]);
  assertEquals(await run("f", "1e9", { max_spend: 0.1 }), ["0.1\n", "0.1", "0.1", "missing"]);
  // 0.5 of 1 are spent, whatever floating-point numbers make of that sum.
  await bridge.stop("SIGKILL");
  await bridge.serve();
  for (const id of ["g", "h", "i", "j"]) {
    assertEquals((await bridge.ask(id, { verb: "fixed" })).outcome, "succeeded");
    assertEquals(await account(bridge, id), ["0.1", "0.1", "fixed"]);
  }
  const most = await bridge.ask("k", {
    verb: "metered",
    args: { how: "none" },
    max_spend: 0.1000001,
  });
  assertEquals([most.reason, most.stage], ["spend-exceeded", "spend"]);
  assertMatch(most.message ?? "", /0\.9 of 1 /);
  assertEquals((await bridge.ask("l", { verb: "fixed" })).outcome, "succeeded");
  assertEquals((await bridge.ask("m", { verb: "fixed" })).reason, "spend-exceeded");
  // It is the agent's own day.
  const other = new AgentSide(bridge, "other");
  assertEquals((await other.ask("a", { verb: "fixed" })).outcome, "succeeded");
  const shown = await bridge.chb("show", "main/a", "--json");
  assertEquals(JSON.parse(shown.out).spend.charged, "0.1");
});

Deno.test("a report above the grant is charged and ends the agent's spending for the day", async () => {
  await using bridge = await start({ spend: { per_request: 1, per_day: 100 } });
  const above = await bridge.ask("a", { verb: "metered", args: { how: "1.000000001" } });
  assertEquals(above.outcome, "succeeded");
  assertEquals(await account(bridge, "a"), ["1", "1.000000001", "reported"]);
  const blocked = await bridge.ask("b", { verb: "fixed" });
  assertEquals([blocked.reason, blocked.stage], ["spend-exceeded", "spend"]);
  assertMatch(blocked.message ?? "", /more than it was granted/);
  await bridge.stop();
  await bridge.serve();
  assertEquals((await bridge.ask("c", { verb: "fixed" })).reason, "spend-exceeded");
  const other = new AgentSide(bridge, "other");
  assertEquals((await other.ask("a", { verb: "fixed" })).outcome, "succeeded");
});

Deno.test("what waits together does not overshoot together, and an uncertain run keeps its grant", async () => {
  await using bridge = await start({ spend: { per_request: 4, per_day: 10 } });
  bridge.submit("run", { verb: "long" });
  await until("the run", () => bridge.result("run")?.state === "running");
  bridge.submit("w1", { verb: "metered", args: { how: "1" } });
  await until("the waiter", () => bridge.result("w1")?.waiting_for === "slot");
  // 4 are reserved and 4 held: there is room for 2.
  const full = await bridge.ask("w2", { verb: "metered", args: { how: "1" } });
  assertEquals([full.reason, full.stage], ["spend-exceeded", "spend"]);
  bridge.submit("w3", { verb: "metered", args: { how: "2" }, max_spend: 2 });
  await until("the other waiter", () => bridge.result("w3")?.waiting_for === "slot");
  assertEquals((await bridge.ask("w4", { verb: "fixed" })).reason, "spend-exceeded");
  // What gives up waiting frees what it held.
  assertEquals((await bridge.chb("cancel", "main/w3")).code, 0);
  const started = bridge.audit().find((r) => r["event"] === "started" && r["id"] === "run");
  const taken = bridge.path("state/runs", String(started?.["run"]), "taken.json");
  await until("the command", () => JSON.parse(Deno.readTextFileSync(taken)).pgid);
  await bridge.stop("SIGKILL");
  const { pgid } = JSON.parse(Deno.readTextFileSync(taken));
  assert(Number.isInteger(pgid) && pgid > 1);
  Deno.kill(-pgid, "SIGKILL");
  await bridge.serve();
  assertEquals((await bridge.final("run", 30_000)).state, "uncertain");
  assertEquals((await bridge.final("w1")).outcome, "succeeded");
  // 4 stay with the uncertain run and 1 with the reported one: 5 of 10.
  const last = await bridge.ask("l", { verb: "metered", args: { how: "none" }, max_spend: 4 });
  assertEquals(last.outcome, "succeeded");
  const over = await bridge.ask("o", { verb: "metered", args: { how: "none" }, max_spend: 1.1 });
  assertEquals(over.reason, "spend-exceeded");
  assertMatch(over.message ?? "", /9 of 10 /);
  assertEquals(
    (await bridge.ask("p", { verb: "metered", args: { how: "none" }, max_spend: 1 })).outcome,
    "succeeded",
  );
});
