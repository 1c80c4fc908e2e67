import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";

/** A script that notes each of its runs, so that runs can be counted. */
function counter(
  text: string,
): { scripts: Record<string, string>; runs: (b: TestBridge) => number } {
  return {
    scripts: { "count.sh": `#!/bin/sh\necho ran >> "$COUNT_FILE"\n${text}\n` },
    runs: (b) => {
      const path = join(b.outside, "count");
      return there(path) ? Deno.readTextFileSync(path).trim().split("\n").length : 0;
    },
  };
}

/** A verb of the counting script. The count lies in a directory that only the host has. */
async function counting(
  text: string,
  more: Record<string, unknown> = {},
): Promise<{ bridge: TestBridge; runs: () => number }> {
  const { scripts, runs } = counter(text);
  const bridge = await TestBridge.make({
    verbs: { count: verb(["base/count.sh"], { class: "mutating", ...more }) },
    scripts,
    trust: false,
  });
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  policy.env = { COUNT_FILE: join(bridge.outside, "count"), PATH: "/usr/bin:/bin" };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  const { code, err } = await bridge.chb("trust", "--yes");
  assertEquals(code, 0, err);
  await bridge.serve();
  return { bridge, runs: () => runs(bridge) };
}

Deno.test("a request written directly is answered and leaves the queue", async () => {
  await using bridge = await TestBridge.start({
    verbs: { hello: verb(["/usr/bin/printf", "hello\\n"]) },
  });
  Deno.writeTextFileSync(bridge.queue("ps.json"), '{"verb":"hello"}\n');
  const result = await bridge.final("ps");
  assertEquals(
    [result.state, result.outcome, result.code, result.reason, result.exit_code, result.next],
    ["done", "succeeded", 0, "ok", 0, "nothing"],
  );
  assertEquals(result.stdout?.head, "hello\n");
  assertEquals(result.stdout?.bytes, 6);
  assertEquals(result.stdout?.file, "ps.stdout");
  assertEquals(Deno.readTextFileSync(bridge.path("spool/main/results/ps.stdout")), "hello\n");
  assertEquals(bridge.queued(), []);
  assertEquals([...Deno.readDirSync(bridge.path("work/main/claims"))], []);
});

Deno.test("a request written by jq through a redirection is answered", async () => {
  await using bridge = await TestBridge.start();
  const jq = await new Deno.Command("sh", {
    args: ["-c", `jq -n '{verb:"true"}' > "$1"`, "sh", bridge.queue("jq.json")],
  }).output();
  assert(jq.success, "jq is needed");
  assertEquals((await bridge.final("jq")).outcome, "succeeded");
});

Deno.test("a writer of one byte every 20 ms for a second is waited for", async () => {
  await using bridge = await TestBridge.start();
  const text = '{"verb":"true","note":"' + "x".repeat(27) + '"}';
  const file = Deno.openSync(bridge.queue("slow.json"), { write: true, createNew: true });
  for (const byte of new TextEncoder().encode(text)) {
    file.writeSync(new Uint8Array([byte]));
    await sleep(20);
  }
  file.close();
  const result = await bridge.final("slow");
  assertEquals([result.outcome, result.reason], ["succeeded", "ok"]);
});

Deno.test("a request that ends too early is malformed and told to use a rename", async () => {
  await using bridge = await TestBridge.start();
  Deno.writeTextFileSync(bridge.queue("cut.json"), '{"verb":"tr');
  const result = await bridge.final("cut");
  assertEquals([result.code, result.stage], [64, "parse"]);
  assertStringIncludes(result.hint ?? "", "rename");
});

Deno.test("the result of a failing command has both codes", async () => {
  await using bridge = await TestBridge.start({
    verbs: { fail: verb(["base/fail.sh"]) },
    scripts: { "fail.sh": "#!/bin/sh\necho no >&2\nexit 78\n" },
  });
  const result = await bridge.ask("f1", { verb: "fail" });
  assertEquals(
    [result.outcome, result.code, result.reason, result.exit_code, result.signal],
    ["failed", 1, "command-failed", 78, null],
  );
  assertEquals(result.stderr?.head, "no\n");
  assertEquals(result.next, "resend-new-key");
});

Deno.test("the same request again is a replay and runs nothing", async () => {
  const { bridge, runs } = await counting("echo done");
  await using _ = bridge;
  const first = await bridge.ask("r1", { verb: "count" });
  assertEquals([first.outcome, runs()], ["succeeded", 1]);
  bridge.submit("r1", { verb: "count" });
  const again = await until("a replay", () => {
    const r = bridge.result("r1");
    return (r?.replays ?? 0) > 0 ? r : null;
  });
  assertEquals([again.outcome, again.stdout?.head, again.replays], ["succeeded", "done\n", 1]);
  assertStringIncludes(again.hint ?? "", "stored result");
  assert(again.replayed_at !== undefined);
  // The same key under another id joins the row.
  bridge.submit("r2", { verb: "count", idempotency_key: "r1" });
  const joined = await bridge.final("r2");
  assertEquals([joined.replay_of, joined.outcome, runs()], ["r1", "succeeded", 1]);
});

Deno.test("Q2 a bound id or key with another request is a conflict and keeps its result", async () => {
  const { bridge, runs } = await counting('echo "$1"', {
    argv: ["base/count.sh", "{n}"],
    args: { n: { type: "integer", min: 1, max: 9 } },
  });
  await using _ = bridge;
  await bridge.ask("a", { verb: "count", args: { n: 1 } });
  bridge.submit("a", { verb: "count", args: { n: 2 } });
  const refused = await bridge.final("a.refused");
  assertEquals([refused.code, refused.reason, refused.stage], [86, "key-conflict", "replay"]);
  assertEquals(bridge.result("a")?.stdout?.head, "1\n");
  const byKey = await bridge.ask("b", { verb: "count", args: { n: 2 }, idempotency_key: "a" });
  assertEquals([byKey.code, byKey.reason], [86, "key-conflict"]);
  // The refusal bound nothing: the id is free.
  const free = await bridge.ask("b", { verb: "count", args: { n: 3 } });
  await until("b's own result", () => bridge.result("b")?.outcome === "succeeded");
  assertEquals(free.id, "b");
  assertEquals(runs(), 2);
});

Deno.test("a refusal binds nothing: the same name may come again and its result is replaced", async () => {
  await using bridge = await TestBridge.start();
  const wrong = await bridge.ask("x", { verb: "treu" });
  assertEquals([wrong.code, wrong.stage], [78, "allow"]);
  assertStringIncludes(wrong.hint ?? "", '"true"');
  bridge.submit("x", { verb: "true" });
  await until("the second result", () => bridge.result("x")?.outcome === "succeeded");
});

Deno.test("a raised kill switch answers everything and starts nothing", async () => {
  const { bridge, runs } = await counting("true");
  await using _ = bridge;
  Deno.writeTextFileSync(bridge.path("state/KILL.main"), "");
  const killed = await bridge.ask("k", { verb: "count" });
  assertEquals([killed.code, killed.stage, killed.next], [80, "kill", "ask-human"]);
  // Poison is still drained, with its own answer.
  Deno.symlinkSync("/etc/passwd", bridge.queue("link.json"));
  assertEquals((await bridge.final("link")).reason, "not-regular");
  Deno.removeSync(bridge.path("state/KILL.main"));
  bridge.submit("k", { verb: "count" });
  await until("a run", () => bridge.result("k")?.outcome === "succeeded");
  assertEquals(runs(), 1);
});

Deno.test("without a trusted policy only built-in verbs are answered", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  assertMatch(await bridge.serve(), /UNTRUSTED$/);
  const refused = await bridge.ask("a", { verb: "true" });
  assertEquals([refused.code, refused.reason], [81, "base-changed"]);
  assertStringIncludes(refused.message ?? "", "chb trust");
  const ping = await bridge.ask("p", { verb: "bridge.ping" });
  assertEquals([ping.outcome, (ping.answer as { pong: boolean }).pong], ["succeeded", true]);
  const { code } = await bridge.chb("trust", "--yes");
  assertEquals(code, 0);
  const now = await bridge.ask("b", { verb: "true" });
  assertEquals(now.outcome, "succeeded");
});

Deno.test("an edited policy changes nothing until it is trusted, then within a second", async () => {
  await using bridge = await TestBridge.start({ programs: ["/usr/bin/false"] });
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  policy.verbs.other = verb(["/usr/bin/true"]);
  policy.agents.main.verbs.push("other");
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.ask("a", { verb: "other" })).reason, "unknown-verb");
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  await until("the catalogue", () => {
    const text = Deno.readTextFileSync(bridge.path("spool/main/inbox/catalogue.json"));
    return text.includes('"other"');
  }, 2000);
  assertEquals((await bridge.ask("b", { verb: "other" })).outcome, "succeeded");
});

Deno.test("X8 a program that was replaced after trust is refused and not run", async () => {
  const { bridge, runs } = await counting("true");
  await using _ = bridge;
  const path = bridge.path("base/count.sh");
  const trusted = Deno.readTextFileSync(path);
  Deno.writeTextFileSync(path, "");
  const empty = await bridge.ask("e", { verb: "count" });
  assertEquals([empty.code, empty.reason, empty.stage], [81, "base-changed", "base"]);
  // Another one of the same length is another one.
  Deno.writeTextFileSync(path, trusted.replace("true", "fals"));
  assertEquals((await bridge.ask("s", { verb: "count" })).reason, "base-changed");
  assertEquals(runs(), 0);
  // Byte for byte what it was, it is the trusted one, in its old file or in a new one.
  Deno.writeTextFileSync(path, trusted);
  assertEquals((await bridge.ask("old", { verb: "count" })).outcome, "succeeded");
  Deno.writeTextFileSync(`${path}.new`, trusted, { mode: 0o755 });
  Deno.renameSync(`${path}.new`, path);
  assertEquals((await bridge.ask("new", { verb: "count" })).outcome, "succeeded");
  assertEquals(runs(), 2);
});

Deno.test("bridge.verbs and the catalogue show what the agent may ask", async () => {
  await using bridge = await TestBridge.start();
  const result = await bridge.ask("v", { verb: "bridge.verbs" });
  const { verbs } = result.answer as { verbs: { verb: string; example: unknown }[] };
  assertEquals(verbs.map((v) => v.verb).slice(0, 2), ["true", "bridge.ping"]);
  const file = JSON.parse(
    Deno.readTextFileSync(bridge.path("spool/main/inbox/catalogue.json")),
  );
  assertEquals(file.verbs.length, verbs.length);
});

Deno.test("status.json tells the newest requests and moves on", async () => {
  await using bridge = await TestBridge.start();
  await bridge.ask("s1", { verb: "true", note: "the reason" });
  const status = await until("a recent entry", () => {
    const s = bridge.status() as { seq: number; recent: { id: string; note: string }[] } | null;
    return s !== null && s.recent.some((r) => r.id === "s1") ? s : null;
  });
  assertEquals(status.recent[0]?.note, "the reason");
  await until("the next writing", () => {
    const s = bridge.status() as { seq: number } | null;
    return s !== null && s.seq > status.seq;
  }, 8000);
  await bridge.stop();
  assertEquals((bridge.status() as { state: string }).state, "stopped");
});

Deno.test("a second daemon on the same root refuses and names the first one's pid", async () => {
  await using bridge = await TestBridge.start();
  const second = await bridge.chb("serve");
  assertEquals(second.code, 78);
  assertStringIncludes(second.err, `pid=${bridge.pid}`);
});

Deno.test("a run survives the death of the daemon and its result is published", async () => {
  const { bridge, runs } = await counting("sleep 1.5; echo survived", { timeout_s: 30 });
  await using _ = bridge;
  bridge.submit("long", { verb: "count" });
  await until("the run", () => bridge.result("long")?.state === "running");
  await until("the script", () => runs() === 1);
  await bridge.stop("SIGKILL");
  await bridge.serve();
  const result = await bridge.final("long");
  assertEquals([result.outcome, result.stdout?.head], ["succeeded", "survived\n"]);
  assertEquals(runs(), 1);
});

Deno.test("requests above the concurrency wait and all finish, locks one at a time", async () => {
  const script = '#!/bin/sh\nmkdir "$1" || { echo two at once; exit 9; }\nsleep 0.1\nrmdir "$1"\n';
  await using bridge = await TestBridge.make({
    trust: false,
    scripts: { "lock.sh": script },
    programs: ["base/lock.sh"],
  });
  const policy = {
    agents: { main: { verbs: ["locked"], scope: "mutating" } },
    verbs: {
      locked: verb(["base/lock.sh", join(bridge.outside, "held")], {
        class: "mutating",
        lock: "one",
      }),
    },
    limits: { concurrency: 3 },
    env: { PATH: "/usr/bin:/bin" },
  };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  const trusted = await bridge.chb("trust", "--yes");
  assertEquals(trusted.code, 77 - 77, trusted.err);
  await bridge.serve();
  for (let i = 0; i < 6; i++) bridge.submit(`l${i}`, { verb: "locked" });
  await until(
    "one that waits",
    () => [0, 1, 2, 3, 4, 5].some((i) => bridge.result(`l${i}`)?.waiting_for === "lock"),
  );
  for (let i = 0; i < 6; i++) {
    const result = await bridge.final(`l${i}`);
    assertEquals([result.outcome, result.stdout?.head], ["succeeded", ""]);
  }
});

Deno.test("Q9 what waits for a slot counts towards the rate, so a burst starts no more than it", async () => {
  await using bridge = await TestBridge.start({
    verbs: { slow: verb(["/usr/bin/sleep", "0.2"], { class: "mutating" }) },
    limits: { concurrency: 1, rate: { mutating: { max: 3, per_s: 600 } } },
  });
  const ids = Array.from({ length: 10 }, (_, i) => `burst-${i}`);
  for (const id of ids) bridge.submit(id, { verb: "slow" });
  const reasons = (await Promise.all(ids.map((id) => bridge.final(id)))).map((r) => r.reason);
  assertEquals(reasons.filter((reason) => reason === "ok").length, 3);
  assertEquals(reasons.filter((reason) => reason === "rate-limited").length, 7);
  assertEquals(bridge.audit().filter((r) => r["event"] === "started").length, 3);
});

Deno.test("X18 an uncertain run that lives on keeps its lock, until a human resolves it", async () => {
  await using bridge = await TestBridge.start({
    // It ends its own shim, so that nobody is left who could end it at its limit.
    scripts: { "stays.sh": "#!/bin/sh\ntrap '' TERM\nkill -KILL $PPID\nexec sleep 60\n" },
    verbs: {
      stays: verb(["base/stays.sh"], { class: "mutating", lock: "one", timeout_s: 1 }),
      next: verb(["/usr/bin/true"], { class: "mutating", lock: "one" }),
      free: verb(["/usr/bin/true"], { class: "mutating" }),
      nap: verb(["/usr/bin/sleep", "60"], { class: "mutating", timeout_s: 90 }),
    },
    limits: { concurrency: 2, grace_s: 0.5 },
  });
  bridge.submit("stays", { verb: "stays" });
  const stays = await bridge.final("stays");
  assertEquals([stays.state, stays.reason], ["uncertain", "uncertain"]);
  const lost = await until(
    "the record",
    () => bridge.audit().find((r) => r["event"] === "uncertain"),
  );
  const pgid = Number(lost["pgid"]);
  assert(pgid > 1, "the audit log names the group");
  const waits = () => bridge.result("next")?.waiting_for === "lock";
  try {
    bridge.submit("next", { verb: "next" });
    await until("the waiter", waits);
    // Longer than the look that every second brings, and than one at the group itself.
    await sleep(3500);
    assert(waits(), "the lock is kept while the group lives");
    assertEquals((await bridge.ask("free", { verb: "free" })).outcome, "succeeded");
    await bridge.stop();
    await bridge.serve();
    assertEquals((await bridge.ask("free-2", { verb: "free" })).outcome, "succeeded");
    assert(waits(), "the lock is kept over a restart");
    // Nor does it hang on the run directory.
    await bridge.stop();
    Deno.removeSync(bridge.path("state/runs", String(lost["run"])), { recursive: true });
    await bridge.serve();
    assertEquals((await bridge.ask("free-3", { verb: "free" })).outcome, "succeeded");
    assert(waits(), "the lock is kept without the run directory");
  } finally {
    Deno.kill(-pgid, "SIGKILL");
  }
  // Two slots, one of them held by the group: this needs both.
  bridge.submit("nap", { verb: "nap" });
  await until("the nap", () => bridge.result("nap")?.state === "running");
  assertEquals((await bridge.ask("free-4", { verb: "free" })).outcome, "succeeded");
  assert(waits(), "the lock is kept when the group has ended, since nobody has looked");
  const resolved = await bridge.chb("resolve", "stays", "--as", "failed", "--note", "half of it");
  assertEquals(resolved.code, 0, resolved.err);
  assertEquals((await bridge.final("next")).outcome, "succeeded");
  const told = await bridge.final("stays");
  assertEquals([told.state, told.outcome, told.code], ["done", "failed", 1]);
  assertEquals([told.resolved?.as, told.resolved?.by, told.resolved?.note], [
    "failed",
    "human",
    "half of it",
  ]);
  Deno.kill(-pgidOf(bridge, "nap"), "SIGKILL");
});

/** The process group of a request's newest run. */
function pgidOf(bridge: TestBridge, id: string): number {
  const run = bridge.audit().findLast((r) => r["id"] === id && r["event"] === "started")?.["run"];
  const order = Deno.readTextFileSync(bridge.path("state/runs", String(run), "taken.json"));
  return Number(JSON.parse(order).pgid);
}

Deno.test("chb once handles what is there and leaves", async () => {
  await using bridge = await TestBridge.make();
  bridge.submit("o1", { verb: "true" });
  Deno.writeTextFileSync(bridge.queue("bad.json"), "[]");
  const { code, err } = await bridge.chb("once");
  assertEquals(code, 0, err);
  assertEquals(bridge.result("o1")?.outcome, "succeeded");
  assertEquals(bridge.result("bad")?.reason, "schema");
  assertEquals(bridge.queued(), []);
});

Deno.test("a run's directory and the file of its result are made beforehand, and nothing of it stays", async () => {
  const go = "go";
  await using bridge = await TestBridge.make({
    verbs: { "true": verb(["/usr/bin/true"]), wait: verb(["base/wait.sh"]) },
    scripts: { "wait.sh": `#!/bin/sh\nwhile [ ! -e "\${0%/*}/${go}" ]; do sleep 0.05; done\n` },
  });
  const names = (path: string) =>
    there(bridge.path(path)) ? [...Deno.readDirSync(bridge.path(path))].map((e) => e.name) : [];
  const made = () => until("two directories", () => names("state/blank").length === 2);
  await bridge.serve();
  await made();
  const first = names("state/blank");
  await bridge.stop("SIGKILL");
  await bridge.serve();
  await made();
  const second = names("state/blank");
  assert(second.every((name) => !first.includes(name)), "an earlier daemon's are not used");
  assertEquals((await bridge.ask("one", { verb: "true" })).outcome, "succeeded");
  const run = String(bridge.audit().findLast((r) => r["event"] === "started")?.["run"]);
  assert(second.includes(run), "the run's directory was there before");
  await made();
  assert(!names("state/blank").includes(run));
  await until("the file of the next result", () => names("work/main/staging").length === 1);
  const staged = Deno.statSync(
    bridge.path("work/main/staging", names("work/main/staging")[0] ?? ""),
  );
  bridge.submit("two", { verb: "wait" });
  await until("the start", () => bridge.result("two")?.state === "running");
  Deno.writeTextFileSync(bridge.path("base", go), "");
  assertEquals((await bridge.final("two")).outcome, "succeeded");
  const { ino } = Deno.statSync(bridge.path("spool/main/results/two.json"));
  assertEquals(ino, staged.ino, "the file of the result was there before");
  await until("the file of the next result", () => names("work/main/staging").length === 1);
  await bridge.stop();
  assertEquals([names("state/blank"), names("work/main/staging")], [[], []]);
});
