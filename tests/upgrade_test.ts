import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { BUILD } from "#build";
import { killPath } from "../src/permissions.ts";
import { wrapperText } from "../tools/wrapper.ts";
import { sleep, type TestBridge, there, until } from "./helpers/bridge.ts";
import { cacheDirectory } from "./helpers/cache.ts";
import { countedBridge, marking, UNTIL_GO } from "./helpers/counting.ts";

/** The run directory of a request. */
async function runOf(bridge: TestBridge, id: string): Promise<string> {
  const started = () => bridge.audit().find((r) => r["id"] === id && r["event"] === "started");
  return bridge.path("state/runs", String((await until("the record", started))["run"]));
}

/** Puts another build of the program in the place of the first. */
function upgrade(bridge: TestBridge): void {
  const text = wrapperText({
    std: BUILD.std,
    commit: "another",
    policies: "test",
    programs: ["base/mark.sh"],
    agents: ["main"],
    kill: killPath(there),
    deno: Deno.execPath(),
    cache: cacheDirectory(),
  });
  const path = bridge.path("bin/chb");
  assert(Deno.readTextFileSync(path) !== text, "another build is another file");
  Deno.writeTextFileSync(`${path}.new`, text);
  Deno.chmodSync(`${path}.new`, 0o555);
  Deno.renameSync(`${path}.new`, path);
}

Deno.test("an upgrade in the middle of a long run loses nothing and interrupts nothing", async () => {
  await using counted = await countedBridge({
    verbs: {
      long: marking(["long"], { class: "mutating", lock: "one", timeout_s: 120 }),
      short: marking(["short"], { class: "mutating", timeout_s: 1 }),
      after: marking([], { class: "mutating", lock: "one" }),
    },
    then: `case $2 in long) ${UNTIL_GO}; echo whole;; short) sleep 60;; esac`,
    limits: { concurrency: 3, grace_s: 0.3 },
  });
  const { bridge, runs } = counted;
  await bridge.serve();
  const before = (await bridge.chb("version", "--json")).out;
  bridge.submit("long", { verb: "long" });
  bridge.submit("short", { verb: "short" });
  await until("both", () => runs().includes("long") && runs().includes("short"));
  bridge.submit("after", { verb: "after" });
  await until("the waiter", () => bridge.result("after")?.waiting_for === "lock");
  const short = await runOf(bridge, "short");
  assertEquals(await bridge.stop(), 0);

  // Its shim keeps the time limit of a run while no daemon is there.
  await until("the end of the short one", () => there(join(short, "exit.json")));
  assertEquals(JSON.parse(Deno.readTextFileSync(join(short, "exit.json"))).kind, "timed_out");
  upgrade(bridge);
  assert((await bridge.chb("version", "--json")).out !== before, "it is another build");
  bridge.submit("queued", { verb: "after" });
  await bridge.serve();
  assertEquals((await bridge.final("short")).outcome, "timed_out");
  await until("the second waiter", () => bridge.result("queued")?.waiting_for === "lock");
  assertEquals(bridge.result("long")?.state, "running");

  counted.go();
  const long = await bridge.final("long");
  assertEquals([long.outcome, long.stdout?.head, long.attempt], ["succeeded", "whole\n", 1]);
  for (const id of ["after", "queued"]) {
    assertEquals((await bridge.final(id)).outcome, "succeeded");
  }
  assertEquals(runs().toSorted(), ["after", "long", "queued", "short"]);
});

Deno.test("situation 7 two daemons on one root and a killed one: twenty requests run once each", async () => {
  await using counted = await countedBridge({
    verbs: { work: marking([], { class: "mutating" }) },
    then: "sleep 0.2",
    limits: { concurrency: 3 },
  });
  const { bridge, runs } = counted;
  const ids = Array.from({ length: 20 }, (_, n) => `r${n}`);
  await bridge.serve();
  for (const id of ids) bridge.submit(id, { verb: "work" });
  const [rival, once] = await Promise.all([bridge.chb("serve"), bridge.chb("once")]);
  for (const { code, err } of [rival, once]) {
    assertEquals(code, 78, err);
    assertStringIncludes(err, `pid=${bridge.pid}`);
  }
  await until("some runs", () => runs().length > 0);
  await bridge.stop("SIGKILL");
  await bridge.serve();
  for (const id of ids) assertEquals((await bridge.final(id, 60_000)).outcome, "succeeded");
  assertEquals(runs().toSorted(), ids.toSorted());
});

Deno.test("human commands beside a daemon fork no chain and hold nobody up", async () => {
  await using counted = await countedBridge({
    verbs: { work: marking([], { class: "mutating" }) },
    limits: { concurrency: 2 },
  });
  const { bridge, runs } = counted;
  await bridge.serve();
  const control = bridge.path("state/control");
  // As the commands leave them, and much faster than processes could.
  const names = Array.from({ length: 120 }, (_, n) => `1-${n.toString(16).padStart(16, "0")}.json`);
  for (const [n, name] of names.entries()) {
    const request = { chb: 1, command: "cancel", by: "", agent: "main", id: `x${n}`, reason: null };
    Deno.writeTextFileSync(join(control, `${name}.new`), JSON.stringify(request));
    Deno.renameSync(join(control, `${name}.new`), join(control, name));
  }
  const commands = Promise.all([
    bridge.chb("trust", "--yes"),
    bridge.chb("status", "--json"),
    bridge.chb("cancel", "main/nobody"),
  ]);
  const waits: number[] = [];
  for (let n = 0; n < 12; n++) {
    const begun = performance.now();
    const verb = n % 3 === 0 ? "work" : "bridge.ping";
    assertEquals((await bridge.ask(`p${n}`, { verb })).outcome, "succeeded");
    waits.push(performance.now() - begun);
    await sleep(50);
  }
  const [trusted, status, cancelled] = await commands;
  assertEquals([trusted.code, status.code, cancelled.code], [0, 0, 77], trusted.err + status.err);
  await until("every answer", () => names.every((name) => there(join(control, `${name}.answer`))));
  assert(waits.toSorted((a, b) => a - b)[6]! < 5000, `answers took ${waits.map(Math.round)} ms`);
  assertEquals(runs(), ["p0", "p3", "p6", "p9"]);
  await bridge.stop();
  const { code, out, err } = await bridge.chb("audit", "verify");
  assertEquals(code, 0, out + err);
});

Deno.test("a shim that was stopped: the daemon ends a cancelled run itself, lock and all", async () => {
  await using counted = await countedBridge({
    verbs: {
      stuck: marking(["stuck"], { class: "mutating", lock: "one", timeout_s: 600 }),
      next: marking([], { class: "mutating", lock: "one" }),
    },
    then: 'case $2 in stuck) kill -STOP $PPID; echo stopped >> "$MARKS"; sleep 60;; esac',
    limits: { concurrency: 2, grace_s: 0.2 },
  });
  const { bridge, runs } = counted;
  await bridge.serve();
  bridge.submit("stuck", { verb: "stuck" });
  await until("a stopped shim", () => runs().includes("stopped"));
  bridge.submit("next", { verb: "next" });
  await until("the waiter", () => bridge.result("next")?.waiting_for === "lock");
  assertEquals((await bridge.chb("cancel", "stuck")).code, 0);
  const result = await bridge.final("stuck", 60_000);
  assertEquals([result.outcome, result.signal], ["cancelled", "SIGKILL"]);
  assertEquals((await bridge.final("next")).outcome, "succeeded");
  assertEquals(runs(), ["stuck", "stopped", "next"]);
});

Deno.test("a request known under 32 ids takes no further one, and all of them see every state", async () => {
  await using counted = await countedBridge({
    verbs: { long: marking([], { class: "mutating", timeout_s: 120 }) },
    then: UNTIL_GO,
    limits: { concurrency: 1 },
  });
  const { bridge, runs } = counted;
  await bridge.serve();
  const ids = Array.from({ length: 32 }, (_, n) => `j${n}`);
  const send = (id: string) => bridge.submit(id, { verb: "long", idempotency_key: "key" });
  send("j0");
  await until("the run", () => bridge.result("j0")?.state === "running");
  for (const id of ids.slice(1)) send(id);
  await until("every id", () => ids.every((id) => bridge.result(id)?.state === "running"));
  send("j32");
  const busy = await bridge.final("j32");
  assertEquals([busy.reason, busy.stage], ["busy", "replay"]);
  counted.go();
  for (const id of ids) {
    const result = await bridge.final(id);
    assertEquals([result.outcome, result.replay_of], ["succeeded", id === "j0" ? undefined : "j0"]);
  }
  assertEquals(runs(), ["j0"]);
});
