/**
 * Notifications: a human is told of what waits for them, while kill switches are up as well; what
 * the program does, or does not do, harms nothing.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { processesOf } from "./helpers/tracer.ts";

async function start(then: string): Promise<{ bridge: TestBridge; told(): string[] }> {
  const bridge = await TestBridge.make({
    scripts: { "tell.sh": `#!/bin/sh\necho "$WHERE $*" >> "$TOLD"\n${then}\n` },
    programs: ["base/tell.sh", "/usr/bin/true"],
    trust: false,
  });
  const out = join(bridge.outside, "told");
  const policy = {
    agents: { main: { verbs: ["ask", "ok"], scope: "mutating" } },
    verbs: {
      ask: verb(["/usr/bin/true"], { class: "mutating", approval: "always" }),
      ok: verb(["/usr/bin/true"]),
    },
    limits: { concurrency: 1, answers: 100_000, grace_s: 0.5 },
    env: { PATH: "/usr/bin:/bin", TOLD: out, WHERE: "host" },
    notify: ["base/tell.sh", "chb", "{event}", "{id}"],
  };
  try {
    Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
    const { code, err } = await bridge.chb("trust", "--yes");
    assertEquals(code, 0, err);
    await bridge.serve();
  } catch (error) {
    await bridge[Symbol.asyncDispose]();
    throw error;
  }
  return {
    bridge,
    told: () => there(out) ? Deno.readTextFileSync(out).split("\n").slice(0, -1) : [],
  };
}

Deno.test("a human is told of what waits for a word and of a kill switch, once each", async () => {
  const { bridge, told } = await start("");
  await using _ = bridge;
  bridge.submit("a1", { verb: "ask" });
  await until("the word", () => told().length === 1, 30_000);
  assertEquals(told(), ["host chb approval main/a1"]);
  // It is told although nothing else may start.
  Deno.writeTextFileSync(bridge.path("state/KILL"), "");
  await until("the other word", () => told().length === 2, 30_000);
  assertEquals(told()[1], "host chb kill KILL");
  assertEquals((await bridge.final("a1")).reason, "killed");
  Deno.removeSync(bridge.path("state/KILL"));
  // Nothing of it is a request, and its run directories go.
  await until("the clearing", () => [...Deno.readDirSync(bridge.path("state/runs"))].length === 0);
  assertEquals(bridge.audit().filter((r) => r["event"] === "started"), []);
  assertEquals((await bridge.ask("n1", { verb: "notify" })).reason, "unknown-verb");
});

Deno.test("a notification that hangs or fails holds up no request, and is a line in the log", async () => {
  const { bridge, told } = await start('test "$2" = kill && exec sleep 60\nexit 3');
  await using _ = bridge;
  bridge.submit("a1", { verb: "ask" });
  await until("the word", () => told().length === 1, 30_000);
  await until("the line", () => bridge.log.includes("notify-failed"), 30_000);
  Deno.writeTextFileSync(bridge.path("state/KILL.main"), "");
  await until("the hanging word", () => told().length === 2, 30_000);
  Deno.removeSync(bridge.path("state/KILL.main"));
  assertEquals((await bridge.ask("n1", { verb: "ok" })).outcome, "succeeded");
  // A program that is not the trusted one any more is not started.
  Deno.writeTextFileSync(bridge.path("base/tell.sh"), '#!/bin/sh\necho evil >> "$TOLD"\n');
  bridge.submit("a2", { verb: "ask" });
  await until("the wait", () => bridge.result("a2")?.waiting_for === "approval");
  await until(
    "the refusal",
    () =>
      bridge.log.split("\n").some((l) => l.includes("notify-failed") && l.includes("base_changed")),
    60_000,
  );
  assert(!told().includes("evil"));
  assertStringIncludes(told()[1] ?? "", "kill KILL.main");
});

Deno.test("the order of a notification stays until it is taken, in a directory that is hours old", async () => {
  const { bridge, told } = await start("");
  await using _ = bridge;
  await bridge.ask("n1", { verb: "ok" });
  await bridge.stop();
  const db = new DatabaseSync(bridge.path("state/ledger.db"));
  db.exec("UPDATE hours SET at_ms = at_ms - 86400000");
  db.close();
  await bridge.serve();
  const shims = () => processesOf(bridge.root).filter((pid) => pid !== bridge.pid);
  await until("a shim and a spare", () => shims().length === 2);
  await bridge.ask("n2", { verb: "ok" });
  const stopped = shims();
  for (const pid of stopped) Deno.kill(pid, "SIGSTOP");
  bridge.submit("a1", { verb: "ask" });
  const runs = bridge.path("state/runs");
  const order = await until("its order", () => {
    const found = [...Deno.readDirSync(runs)].map(({ name }) => `${runs}/${name}/order.json`);
    return found.find(there);
  });
  // As old as one that was made beforehand may be.
  Deno.utimeSync(dirname(order), 1, 1);
  assertEquals((await bridge.chb("reap", "--by", "a test")).code, 0);
  assert(there(order), "it is gone");
  for (const pid of stopped) Deno.kill(pid, "SIGCONT");
  await until("the word", () => told().length === 1, 30_000);
});
