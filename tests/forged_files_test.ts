/**
 * What stands in the directories of an agent is a copy. Where a sandbox can write `results` and
 * `inbox` after all, it can deceive itself and nobody else: the host believes its own state, and
 * writes what it has to say again. Times that an agent can set decide nothing.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

Deno.test("Q4 forged results, status, mirror and kill switch deceive neither the host nor its people", async () => {
  await using bridge = await TestBridge.start({
    verbs: { fail: verb(["/usr/bin/false"], { class: "mutating" }), say: verb(["/usr/bin/true"]) },
  });
  const results = (name: string) => bridge.path("spool/main/results", name);
  const inbox = (name: string) => bridge.path("spool/main/inbox", name);
  const failed = await bridge.ask("deploy", { verb: "fail" });
  assertEquals(failed.outcome, "failed");
  const { seq, hash } = failed.audit ?? {};

  // A result that says something else, and one of a request that never was.
  const forged = { ...failed, outcome: "succeeded", code: 0, reason: "ok", exit_code: 0 };
  Deno.writeTextFileSync(results("deploy.json"), JSON.stringify(forged));
  Deno.writeTextFileSync(results("never.json"), JSON.stringify({ ...forged, id: "never" }));
  // A mirror of the audit log that tells a story of its own.
  await until("the mirror", () => there(inbox("audit.jsonl")));
  Deno.writeTextFileSync(
    inbox("audit.jsonl"),
    Deno.readTextFileSync(inbox("audit.jsonl")).replaceAll("deploy", "others"),
  );
  // What people on the host are told comes from the ledger.
  const shown = JSON.parse((await bridge.chb("show", "main/deploy", "--json")).out);
  assertEquals([shown.result.outcome, shown.result.exit_code], ["failed", 1]);
  assert((await bridge.chb("show", "main/never", "--json")).code !== 0);
  const verified = JSON.parse((await bridge.chb("audit", "verify", "--json")).out);
  assertEquals(verified.ok, true, JSON.stringify(verified));

  // Asking again gives the host's answer: it failed, with the same record, and nothing ran again.
  bridge.submit("deploy", { verb: "fail" });
  const replay = await until("the replay", () => {
    const result = bridge.result("deploy");
    return result?.outcome === "failed" ? result : null;
  });
  assertEquals([replay.replays, replay.exit_code, replay.audit], [1, 1, { seq, hash }]);
  // So does another id of the same key, whose file was squatted before.
  Deno.writeTextFileSync(results("deploy-2.json"), JSON.stringify({ ...forged, id: "deploy-2" }));
  bridge.submit("deploy-2", { verb: "fail", idempotency_key: "deploy" });
  await until("the joined", () => bridge.result("deploy-2")?.replay_of === "deploy");
  assertEquals(bridge.result("deploy-2")?.outcome, "failed");

  // A kill switch of the agent's own making stops nothing, wherever it puts it.
  for (const name of ["KILL", "KILL.main"]) {
    Deno.writeTextFileSync(inbox(name), "");
    Deno.writeTextFileSync(results(name), "");
    Deno.writeTextFileSync(bridge.queue(name), "");
  }
  assertEquals((await bridge.ask("s1", { verb: "say" })).outcome, "succeeded");
  // And the real one is not lowered by what the agent is told of it.
  assertEquals((await bridge.chb("kill", "--reason", "enough")).code, 0);
  await until("the status", () => bridge.status()?.["state"] === "killed");
  const lie = { ...bridge.status(), state: "serving", why: undefined };
  Deno.writeTextFileSync(inbox("status.json"), JSON.stringify(lie));
  for (const name of ["KILL", "KILL.main"]) Deno.removeSync(inbox(name));
  assertEquals((await bridge.ask("s2", { verb: "say" })).reason, "killed");
  assertStringIncludes((await bridge.chb("status")).out, "KILL is up");
  await until("the status again", () => bridge.status()?.["state"] === "killed", 30_000);
  assertEquals((await bridge.chb("resume")).code, 0);

  // What was deleted is made again from the ledger: by a start, and by the next record.
  for (const name of ["deploy.json", "s1.json", "never.json"]) Deno.removeSync(results(name));
  Deno.removeSync(inbox("audit.jsonl"));
  await bridge.stop();
  await bridge.serve();
  assertEquals((await bridge.ask("s3", { verb: "say" })).outcome, "succeeded");
  bridge.submit("deploy", { verb: "fail" });
  await until("the result again", () => (bridge.result("deploy")?.replays ?? 0) >= 2);
  await until(
    "the mirror again",
    () => there(inbox("audit.jsonl")) && Deno.readTextFileSync(inbox("audit.jsonl")).includes("s3"),
  );
  assert(!Deno.readTextFileSync(inbox("audit.jsonl")).includes('"others"'));
  const started = bridge.audit().filter((r) => r["event"] === "started").map((r) => r["id"]);
  assertEquals(started, ["deploy", "s1", "s3"]);
});

Deno.test("N6 what waits starts in the order of its arrival, whatever times the files claim", async () => {
  const hold = verb(["base/hold.sh"]);
  await using bridge = await TestBridge.make({
    verbs: { hold, say: verb(["/usr/bin/true"]) },
    limits: { concurrency: 1 },
    scripts: {
      "hold.sh": '#!/bin/sh\nwhile [ ! -e "${0%/*}/go" ]; do /usr/bin/sleep 0.05; done\n',
    },
  });
  await bridge.serve();
  bridge.submit("hold", { verb: "hold" });
  await until("the slot to be taken", () => bridge.result("hold")?.state === "running");
  // The first has a date of the future, the last one the oldest of all.
  const times = [4_000_000_000, 2_000_000_000, 1_000_000_000, 0];
  for (const [i, time] of times.entries()) {
    const temporary = bridge.queue(`.w${i}.tmp`);
    Deno.writeTextFileSync(temporary, '{"verb":"say"}');
    Deno.utimeSync(temporary, time, time);
    Deno.renameSync(temporary, bridge.queue(`w${i}.json`));
    await until(`w${i} to wait`, () => bridge.result(`w${i}`)?.waiting_for === "slot");
  }
  Deno.writeTextFileSync(join(bridge.root, "base/go"), "");
  for (const i of times.keys()) {
    const { outcome, received_at } = await bridge.final(`w${i}`, 60_000);
    assertEquals(outcome, "succeeded");
    assert(Math.abs(Date.now() - Date.parse(received_at ?? "")) < 300_000, received_at ?? "");
  }
  const started = bridge.audit().filter((r) => r["event"] === "started").map((r) => r["id"]);
  assertEquals(started, ["hold", "w0", "w1", "w2", "w3"]);
});
