/** What a daemon does while nothing happens: little, and nothing later than it should. */
import { assert, assertEquals } from "@std/assert";
import { Unchanged } from "../src/daemon/unchanged.ts";
import { untilGrid } from "../src/spool/grid.ts";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";

Deno.test("Unchanged believes an old time of change only, and sees every entry that comes or goes", () => {
  const directory = Deno.makeTempDirSync({ prefix: "chb-unchanged-" });
  try {
    let now = Date.now();
    const unchanged = new Unchanged(directory, () => now);
    assert(!unchanged.look(), "it was never read");
    assert(!unchanged.look(), "the change is too young to be told from a later one");
    now += 10_000;
    assert(!unchanged.look(), "it is read once more when the change is old");
    assert(unchanged.look());
    assert(unchanged.look());
    Deno.utimeSync(directory, new Date(now - 60_000), new Date(now - 60_000));
    assert(!unchanged.look(), "another time is a change, an earlier one too");
    assert(unchanged.look());
    Deno.writeTextFileSync(`${directory}/a`, "");
    assert(!unchanged.look());
    Deno.utimeSync(directory, new Date(now - 30_000), new Date(now - 30_000));
    now = 0;
    assert(!unchanged.look());
    assert(!unchanged.look(), "by a clock that was set back every change is young");
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
  const gone = new Unchanged(directory, Date.now);
  assert(!gone.look() && !gone.look(), "what is not there is for the reader to meet");
});

Deno.test("untilGrid() gives whole milliseconds to the next multiple, never none", () => {
  assertEquals([0, 1, 499.5, 500, 999.999].map((now) => untilGrid(now, 500)), [
    500,
    499,
    1,
    500,
    1,
  ]);
});

Deno.test({
  name: "an idle daemon wakes seldom, tells its heartbeat, and sees a switch and a lost ledger" +
    (Deno.build.os === "linux" ? "" : " # SKIP it counts wake-ups in /proc"),
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    await using bridge = await TestBridge.start({ serve: [] });
    const seq = () => Number(bridge.status()?.["seq"]);
    // The first looks find changes that are young, and shims are being started.
    await sleep(10_000);
    const wakes = () => {
      const text = Deno.readTextFileSync(`/proc/${bridge.pid}/status`);
      return Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(text)?.[1]);
    };
    const before = { wakes: wakes(), seq: seq(), at: performance.now() };
    await until("two heartbeats", () => seq() > before.seq + 1, 20_000);
    const rate = (wakes() - before.wakes) * 1000 / (performance.now() - before.at);
    console.log(`main thread: ${rate.toFixed(1)} wake-ups a second`);
    // With a timer for each thing that recurs there are more than ten.
    assert(rate < 7.5, `${rate} wake-ups a second`);
    Deno.writeTextFileSync(bridge.path("state/KILL"), "");
    await until("the switch in the status", () => bridge.status()?.["state"] === "killed");
    Deno.removeSync(bridge.path("state/KILL"));
    await until("the switch to be seen down", () => bridge.status()?.["state"] === "serving");
    const { code } = await bridge.chb("tell", "Is anybody there?");
    assertEquals(code, 0, "a human command is answered");
    Deno.renameSync(bridge.path("state/ledger.db"), bridge.path("state/ledger.db.away"));
    await until("its end", () => bridge.log.includes("replaced or removed"), 20_000);
    assert(!there(bridge.path("state/ledger.db")), "no other ledger was made in its place");
  },
});

Deno.test("the heartbeats of several agents come each five seconds, and not in one go", async () => {
  const agents = ["a", "b", "c", "d", "e"];
  await using bridge = await TestBridge.start({
    agents,
    policy: {
      agents: Object.fromEntries(agents.map((name) => [name, { verbs: ["v"] }])),
      verbs: { v: verb(["/usr/bin/true"]) },
    },
  });
  const status = (agent: string): { seq: number; at: string } =>
    JSON.parse(Deno.readTextFileSync(bridge.path("spool", agent, "inbox/status.json")));
  const seqs = () => agents.map((agent) => status(agent).seq);
  // What the start changed is told by then.
  await sleep(7000);
  const before = seqs();
  await until(
    "a heartbeat of each",
    () => seqs().every((seq, i) => seq > (before[i] ?? NaN)),
    8000,
  );
  const times = agents.map((agent) => Date.parse(status(agent).at)).sort((a, b) => a - b);
  const apart = times.slice(1).map((at, i) => at - (times[i] ?? NaN));
  console.log(`milliseconds apart: ${apart.join(" ")}`);
  assert(apart.filter((ms) => ms > 300).length >= 3, "most are written beats apart");
});
