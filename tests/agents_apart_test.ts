/**
 * Several agents in one daemon: none sees, slows, cancels or answers for another, and no agent
 * reaches what a human command does.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { normalize } from "node:path/posix";
import { join } from "@std/path/join";
import { deniedVerb } from "../src/policy/denials.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import { BUILTINS } from "../src/surface.ts";
import { readModules } from "../tools/rooms.ts";
import { AgentSide } from "./helpers/agents.ts";
import { TestBridge, until, verb } from "./helpers/bridge.ts";

function names(path: string): string[] {
  return [...Deno.readDirSync(path)].map((entry) => entry.name);
}

async function start(limits: Record<string, unknown> = {}): Promise<{
  bridge: TestBridge;
  a: AgentSide;
  b: AgentSide;
}> {
  const bridge = await TestBridge.start({
    policy: {
      agents: {
        a: { verbs: ["say", "only-a", "ask"], scope: "mutating" },
        b: { verbs: ["say"], scope: "observe" },
      },
      verbs: {
        say: verb(["/usr/bin/true"]),
        "only-a": verb(["/usr/bin/true"], { class: "mutating" }),
        ask: verb(["/usr/bin/true"], { class: "mutating", approval: "always" }),
      },
      limits: {
        concurrency: 2,
        answers: 100_000,
        rate: { observe: { max: 3, per_s: 3600 } },
        ...limits,
      },
    },
    agents: ["a", "b"],
    serve: ["--poll-ms", "100"],
  });
  return { bridge, a: new AgentSide(bridge, "a"), b: new AgentSide(bridge, "b") };
}

Deno.test("an agent that the policy drops is told so, and the other one is served on", async () => {
  const { bridge, b } = await start();
  await using _ = bridge;
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  delete policy.agents.a;
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  const status = () => JSON.parse(Deno.readTextFileSync(bridge.path("spool/a/inbox/status.json")));
  await until("the last status", () => status().state === "stopped");
  assertEquals(status().why, "The policy does not name this agent any more");
  assertEquals((await b.ask("on", { verb: "say" })).outcome, "succeeded");
});

Deno.test("what was staged for an agent goes with a crash, also when the policy has dropped it since", async () => {
  const { bridge, a, b } = await start();
  await using _ = bridge;
  await a.ask("one", { verb: "say" });
  await b.ask("one", { verb: "say" });
  const staged = (agent: string) => names(bridge.path("work", agent, "staging"));
  await until("files made beforehand", () => staged("a").length + staged("b").length === 2);
  const before = [...staged("a"), ...staged("b")];
  await bridge.stop("SIGKILL");
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  delete policy.agents.a;
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  await bridge.serve();
  assertEquals([...staged("a"), ...staged("b")].filter((name) => before.includes(name)), []);
  // Another directory in its place is nobody's to clear.
  await bridge.stop();
  Deno.renameSync(bridge.path("work/a/staging"), bridge.path("work/a/before"));
  Deno.mkdirSync(bridge.path("work/a/staging"), { mode: 0o700 });
  Deno.writeTextFileSync(bridge.path("work/a/staging", "0".repeat(32)), "");
  await bridge.serve();
  assertEquals((await b.ask("two", { verb: "say" })).outcome, "succeeded");
  assert(staged("a").includes("0".repeat(32)));
});

Deno.test("agents have ids, keys, verbs, scopes, rates and caps of their own, and see nothing of each other", async () => {
  const { bridge, a, b } = await start();
  await using _ = bridge;
  // The same id, key and digest are another request in another queue.
  assertEquals((await a.ask("same", { verb: "say" })).outcome, "succeeded");
  const own = await b.ask("same", { verb: "say" });
  assertEquals([own.outcome, own.replays, own.agent], ["succeeded", undefined, "b"]);
  assertEquals((await b.ask("not-b", { verb: "only-a" })).reason, "unknown-verb");
  a.submit("waits", { verb: "ask" });
  await a.until("waits", (r) => r.waiting_for === "approval");
  // An id or a key of another agent names nothing.
  const cancel = await b.ask("c1", { verb: "bridge.cancel", args: { id: "waits" } });
  assert(cancel.outcome === "succeeded" || cancel.outcome === "rejected");
  assert(!JSON.stringify(cancel).includes("only-a"));
  assertEquals(a.result("waits")?.state, "pending");
  // Who names an agent in a request is not believed.
  assertEquals((await b.ask("forged", { verb: "say", agent: "a" })).reason, "schema");
  // The rate of one is used up by its own starts alone.
  for (const n of [2, 3]) {
    assertEquals((await a.ask(`s${n}`, { verb: "say" })).outcome, "succeeded");
  }
  const limited = await a.ask("s4", { verb: "say" });
  assertEquals([limited.reason, limited.stage], ["rate-limited", "rate"]);
  assert((limited.retry_after_ms ?? 0) > 0, "Q8 a refusal says when to come again");
  assertEquals((await b.ask("s2", { verb: "say" })).outcome, "succeeded");
  // Q9 a restart forgets none of it, however it came.
  await bridge.stop("SIGKILL");
  await bridge.serve();
  assertEquals((await a.ask("s5", { verb: "say" })).reason, "rate-limited");
  assertEquals((await b.ask("s3", { verb: "say" })).outcome, "succeeded");
  assertEquals((await b.ask("s4", { verb: "say" })).reason, "rate-limited");
  const status = JSON.stringify((await b.ask("st", { verb: "bridge.status" })).answer);
  assert(!status.includes('"waits"') && !status.includes("only-a"), status);
  assert(!b.results().some((name) => name.startsWith("waits")));
  const verbs = JSON.stringify((await b.ask("v", { verb: "bridge.verbs" })).answer);
  assert(!verbs.includes("only-a"));
});

Deno.test("Q8 Q4 a flood of one agent is held by its own cap, and the other is answered meanwhile", async () => {
  const { bridge, a, b } = await start({ answers: 200, rate: {} });
  await using _ = bridge;
  const flood = 2000;
  for (let i = 0; i < flood; i++) a.submit(`f${i}`, i % 2 === 0 ? {} : { verb: "bridge.ping" });
  const waits: number[] = [];
  for (let i = 0; i < 5; i++) {
    const begun = performance.now();
    assertEquals((await b.ask(`p${i}`, { verb: "bridge.ping" })).outcome, "succeeded");
    waits.push(performance.now() - begun);
  }
  // Generous for a busy machine; the flood alone takes longer than that to be worked off.
  assert(Math.max(...waits) < 15_000, waits.join());
  await until(
    "the end of the flood",
    () => [...Deno.readDirSync(bridge.path("spool/a/queue"))].every((e) => e.name.startsWith(".")),
    60_000,
  );
  const answered = a.results().filter((name) => name.startsWith("f")).length;
  // The window slides while it lasts, so a slow machine gives a few more.
  assert(answered >= 200 && answered < flood / 2, `${answered} answers`);
  await bridge.stop();
  const shed = bridge.audit().filter((r) => r["event"] === "shed");
  assertEquals(shed.reduce((sum, r) => sum + Number(r["count"]), 0), flood - answered);
  assert(shed.every((r) => r["agent"] === "a"));
});

Deno.test("long commands of one agent leave a slot to the other, which starts at once", async () => {
  const hold = verb(["/usr/bin/sleep", "60"], { timeout_s: 60 });
  const bridge = await TestBridge.start({
    policy: {
      agents: {
        a: { verbs: ["hold"], concurrency: 3 },
        b: { verbs: ["say"] },
      },
      verbs: { hold, say: verb(["/usr/bin/true"]) },
      limits: { concurrency: 3 },
    },
    agents: ["a", "b"],
    serve: ["--poll-ms", "100"],
  });
  await using _ = bridge;
  const [a, b] = [new AgentSide(bridge, "a"), new AgentSide(bridge, "b")];
  for (let n = 0; n < 6; n++) a.submit(`h${n}`, { verb: "hold" });
  const states = () => Array.from({ length: 6 }, (_, n) => a.result(`h${n}`)?.state ?? "").sort();
  const flooded = ["pending", "pending", "pending", "pending", "running", "running"];
  await until("the flood to run", () => states().join() === flooded.join());
  assertEquals(a.result("h5")?.waiting_for, "slot");
  for (const n of [1, 2, 3]) {
    assertEquals((await b.ask(`s${n}`, { verb: "say" })).outcome, "succeeded");
  }
  assertEquals(states(), flooded, "nothing ended for it, and the kept slot stayed kept");
  // A bound of its own, trusted while both run, holds for what starts from then on.
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  policy.agents.a.concurrency = 1;
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  const catalogue = () =>
    JSON.parse(Deno.readTextFileSync(bridge.path("spool/a/inbox/catalogue.json")));
  await until("the new bound", () => catalogue().limits.concurrency === 1);
  const running = ["h0", "h1", "h2", "h3", "h4", "h5"]
    .filter((id) => a.result(id)?.state === "running");
  a.submit("end", { verb: "bridge.cancel", args: { id: running[0] } });
  await a.until(running[0] ?? "");
  assertEquals((await b.ask("s4", { verb: "say" })).outcome, "succeeded");
  assertEquals(states().filter((state) => state === "running").length, 1);
});

Deno.test("no path leads from a request or an order to a human command", () => {
  const modules = readModules();
  const reach = (starts: string[]) => {
    const seen = new Set(starts);
    for (const path of seen) {
      for (const one of modules.get(path)?.imports ?? []) {
        if (one.typeOnly || !one.specifier.startsWith(".")) continue;
        seen.add(normalize(join(path, "..", one.specifier)));
      }
    }
    return [...seen];
  };
  const paths = [...modules.keys()];
  const human = (path: string) =>
    path.startsWith("src/human/") || /^src\/daemon\/control_?\w*\.ts$/.test(path);
  const request = paths.filter((path) => /^src\/(?:request|gates|spool)\//.test(path));
  const order = paths.filter((path) => path.startsWith("src/run/"));
  assert(request.length > 10 && order.length > 10);
  const reached = reach([...request, ...order, "src/daemon/intake.ts", "src/daemon/builtins.ts"]);
  // The walk itself works: the daemon's loop does take control files.
  assert(reach(["src/daemon/bridge.ts"]).some(human));
  assertEquals(reached.filter(human), []);
});

Deno.test("no verb can be named or made a human command", () => {
  for (const name of ["approve", "resume", "trust", "policy"]) {
    assert(deniedVerb(name) !== null, name);
  }
  for (const name of BUILTINS) assertMatch(name, /^bridge\.[a-z]+$/);
  for (
    const program of [
      "/srv/bridge/bin/chb",
      "/usr/local/bin/chb",
      "base/../bin/chb",
      "bin/chb",
      "/usr/bin/env",
      "/bin/sh",
    ]
  ) {
    const parsed = parsePolicy(
      new TextEncoder().encode(JSON.stringify({
        agents: { main: { verbs: ["x"] } },
        verbs: { x: { class: "observe", argv: [program, "approve", "main/x"], timeout_s: 5 } },
      })),
    );
    assert(!parsed.ok, program);
  }
});
