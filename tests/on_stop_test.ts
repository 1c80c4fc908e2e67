import { assert, assertEquals } from "@std/assert";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

/** A served bridge whose policy says what a stop does, with one slow command running. */
async function running(on_stop: string): Promise<TestBridge> {
  const policy = {
    agents: { main: { verbs: ["slow"], scope: "mutating" } },
    verbs: { slow: verb(["base/slow.sh"], { class: "mutating" }) },
    limits: { grace_s: 0.5 },
    env: { PATH: "/usr/bin:/bin" },
    on_stop,
  };
  const script = "#!/bin/sh\necho begun\nsleep 2\necho ended\n";
  const bridge = await TestBridge.start({ policy, scripts: { "slow.sh": script } });
  bridge.submit("s", { verb: "slow" });
  await until("the run", () => bridge.result("s")?.state === "running");
  return bridge;
}

Deno.test("on_stop leave: the daemon leaves at once and the command runs on", async () => {
  await using bridge = await running("leave");
  const start = performance.now();
  assertEquals(await bridge.stop(), 0);
  assert(performance.now() - start < 1900, "it waited for the command");
  assertEquals(bridge.result("s")?.state, "running");
  await bridge.serve();
  const result = await bridge.final("s");
  assertEquals([result.outcome, result.stdout?.head], ["succeeded", "begun\nended\n"]);
});

Deno.test("on_stop wait: the daemon leaves when the command has ended, with its result told", async () => {
  await using bridge = await running("wait");
  assertEquals(await bridge.stop(), 0);
  const result = bridge.result("s");
  assertEquals([result?.state, result?.outcome], ["done", "succeeded"]);
});

Deno.test("on_stop cancel: the command is ended, and its result says so", async () => {
  await using bridge = await running("cancel");
  assertEquals(await bridge.stop(), 0);
  const result = bridge.result("s");
  assertEquals([result?.state, result?.outcome, result?.code], ["done", "cancelled", 3]);
  assert(!(result?.stdout?.head ?? "").includes("ended"));
});

Deno.test("a run that has just started is told before the daemon leaves", async () => {
  await using bridge = await running("leave");
  await bridge.final("s");
  const runs = bridge.path("state/runs");
  const taken = () =>
    [...Deno.readDirSync(runs)].some(({ name }) =>
      !before.has(name) && there(`${runs}/${name}/taken.json`)
    );
  const before = new Set([...Deno.readDirSync(runs)].map(({ name }) => name));
  bridge.submit("t", { verb: "slow" });
  // Without a pause: some milliseconds later it would have been told anyway.
  for (const end = performance.now() + 10_000; !taken();) assert(performance.now() < end);
  assertEquals(await bridge.stop(), 0);
  assertEquals(bridge.result("t")?.state, "running");
  await bridge.serve();
  assertEquals((await bridge.final("t")).outcome, "succeeded");
});
