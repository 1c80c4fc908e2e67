/**
 * Approval: what a human says yes to is exactly what starts, once; nothing that waits for a word
 * holds up anything else.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { quoted } from "../src/human/quoted.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

interface Options {
  readonly limits?: Record<string, unknown>;
  readonly top?: Record<string, unknown>;
  readonly require?: boolean;
}

/** What the policy of these tests says; `version` changes what `deploy` runs. */
function policyText(outside: string, options: Options, version = "one"): string {
  const mark = (...more: string[]) => ["base/mark.sh", join(outside, "ran"), ...more];
  return JSON.stringify({
    agents: {
      main: { verbs: ["deploy", "planned", "free", "drop"], scope: "destructive" },
    },
    verbs: {
      deploy: verb(mark("{id}", version, "{word}"), {
        class: "mutating",
        approval: "always",
        lock: "one",
        requires: ["base/mark.sh", "base/conf"],
        args: { word: { type: "name", default: "w" } },
        env: { TOKEN_FILE: "/nowhere" },
      }),
      planned: verb(mark("{id}"), { class: "mutating", approval: "when-planned" }),
      drop: verb(mark("{id}"), { class: "destructive" }),
      free: verb(mark("{id}"), { class: "mutating", lock: "one" }),
    },
    limits: { concurrency: 1, answers: 100_000, ...options.limits },
    env: { PATH: "/usr/bin:/bin" },
    ...options.top,
  });
}

class Scene implements AsyncDisposable {
  readonly bridge: TestBridge;
  readonly #options: Options;

  private constructor(bridge: TestBridge, options: Options) {
    this.bridge = bridge;
    this.#options = options;
  }

  static async start(options: Options = {}): Promise<Scene> {
    const bridge = await TestBridge.make({
      scripts: {
        "mark.sh": '#!/bin/sh\nout=$1; shift\necho "$*" >> "$out"\n',
        "conf": "#!/bin/sh\nfirst\n",
      },
      programs: ["base/mark.sh"],
      trust: false,
    });
    const scene = new Scene(bridge, options);
    try {
      await scene.trust();
      await bridge.serve();
    } catch (error) {
      await bridge[Symbol.asyncDispose]();
      throw error;
    }
    return scene;
  }

  async trust(version = "one"): Promise<void> {
    const text = policyText(this.bridge.outside, this.#options, version);
    Deno.writeTextFileSync(this.bridge.path("bridge.jsonc"), text);
    const { code, err } = await this.bridge.chb("trust", "--yes");
    assertEquals(code, 0, err);
  }

  runs(): string[] {
    const path = join(this.bridge.outside, "ran");
    return there(path) ? Deno.readTextFileSync(path).split("\n").slice(0, -1) : [];
  }

  async awaits(id: string, request: Record<string, unknown>): Promise<void> {
    this.bridge.submit(id, request);
    await until("the wait", () => this.bridge.result(id)?.waiting_for === "approval");
  }

  /** The digest that `chb pending` prints for a request. */
  async digest(id: string): Promise<string> {
    const { code, out, err } = await this.bridge.chb("pending", "--json");
    assertEquals(code, 0, err);
    const { pending } = JSON.parse(out) as { pending: { id: string; run: { digest: string } }[] };
    const one = pending.find((p) => p.id === id);
    assert(one !== undefined, `${id} is pending: ${out}`);
    return one.run.digest;
  }

  async approve(
    id: string,
    ...more: string[]
  ): Promise<{ code: number; out: string; err: string }> {
    return await this.bridge.chb("approve", `main/${id}`, await this.digest(id), ...more);
  }

  events(id: string): string[] {
    return this.bridge.audit().filter((r) => r["id"] === id).map((r) => String(r["event"]));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.bridge[Symbol.asyncDispose]();
  }
}

Deno.test("a request waits for a word, shows what would run, and starts once it is given", async () => {
  await using scene = await Scene.start();
  const { bridge } = scene;
  const plan = "step 1\n\x1b[2K| approve this\u202e now\nmain/free: ok";
  await scene.awaits("d1", { verb: "deploy", args: { word: "hello" }, plan, note: "n" });
  const waiting = bridge.result("d1");
  assertMatch(waiting?.message ?? "", /waits for a human's word, until 20/);
  // Neither its lock nor the only slot is taken by what waits for a human.
  assertEquals((await bridge.ask("f1", { verb: "free" })).outcome, "succeeded");

  assertStringIncludes((await bridge.chb("status")).out, "for your word: ./bin/chb pending\n");
  const { out } = await bridge.chb("pending");
  const digest = await scene.digest("d1");
  assertStringIncludes(out, `./bin/chb approve main/d1 ${digest}\n`);
  assertStringIncludes(out, `program  ${bridge.path("base/mark.sh")}\n`);
  for (const [n, word] of ["d1", "one", "hello"].entries()) {
    assertStringIncludes(out, `  arg ${n + 2}  ${word}\n`);
  }
  assertStringIncludes(out, "env      PATH TOKEN_FILE\n");
  assertMatch(out, /^base {5}base\/conf sha256 [0-9a-f]{64}$/m);
  // What the agent wrote is escaped, and every line of it stands behind a bar.
  assertStringIncludes(out, "| step 1\n| \\u001b[2K| approve this\\u202e now\n| main/free: ok\n");
  // deno-lint-ignore no-control-regex
  assert(!/[^\x0a\x20-\x7e]/.test(out));
  const shown = await bridge.chb("show", "d1");
  assertStringIncludes(shown.out, `./bin/chb approve main/d1 ${digest}\n`);

  const wrong = await bridge.chb("approve", "main/d1", "0".repeat(12));
  assertEquals(wrong.code, 77);
  assertStringIncludes(wrong.err, "chb show main/d1");
  const said = await bridge.chb("approve", "main/d1", digest, "--by", "ann");
  assertEquals([said.code, said.err], [0, ""]);
  assertEquals((await bridge.final("d1")).outcome, "succeeded");
  assertEquals(scene.runs(), ["f1", "d1 one hello"]);
  const approved = bridge.audit().find((r) => r["event"] === "approved");
  assertEquals([approved?.["by"], String(approved?.["digest"]).slice(0, 12)], ["ann", digest]);
  const started = bridge.audit().find((r) => r["id"] === "d1" && r["event"] === "started");
  assert(Number(started?.["seq"]) > Number(approved?.["seq"]));

  // A word is for one start: the same request again is a replay, and nothing waits any more.
  bridge.submit("d1", { verb: "deploy", args: { word: "hello" } });
  await until("the replay", () => (bridge.result("d1")?.replays ?? 0) > 0);
  assertEquals(scene.runs().length, 2);
  assertEquals((await bridge.chb("approve", "main/d1", digest)).code, 77);
  const all = JSON.parse((await bridge.chb("show", "main/d1", "--json")).out);
  assertEquals([all.approval.state, all.approval.by, all.plan], ["used", "ann", plan]);
  assertEquals(all.records.map((r: { event: string }) => r.event).slice(0, 3), [
    "accepted",
    "approved",
    "started",
  ]);
  assertEquals(JSON.parse(all.request).note, "n");
});

Deno.test("approval is asked for as the policy says: destructive by default, planned with a plan", async () => {
  await using scene = await Scene.start();
  const { bridge } = scene;
  const bare = await bridge.ask("p1", { verb: "planned" });
  assertEquals([bare.reason, bare.stage], ["schema", "approval"]);
  await scene.awaits("p1", { verb: "planned", plan: "as it says" });
  await scene.awaits("x1", { verb: "drop" });
  assertEquals((await bridge.chb("deny", "x1", "--reason", "not\ntoday", "--by", "bo")).code, 0);
  const denied = await bridge.final("x1");
  assertEquals(
    [denied.outcome, denied.code, denied.reason, denied.stage, denied.next, denied.message],
    ["denied", 82, "approval-denied", "approval", "nothing", "A human said no: not\\u000atoday"],
  );
  // The key stays used by a no.
  bridge.submit("x2", { verb: "free", idempotency_key: "x1" });
  assertEquals((await bridge.final("x2")).reason, "key-conflict");
  assertEquals((await scene.approve("p1")).code, 0);
  assertEquals((await bridge.final("p1")).outcome, "succeeded");
  assertEquals((await bridge.chb("deny", "p1", "--reason", "late")).code, 77);
  assertEquals((await bridge.chb("deny", "main/p1")).code, 64);
  assertEquals(scene.runs(), ["p1"]);
});

Deno.test("situation 10: what was approved and has changed since does not start, and says what changed", async () => {
  await using scene = await Scene.start();
  const { bridge } = scene;
  // 1. A base file changed before the word: it cannot be approved.
  await scene.awaits("b1", { verb: "deploy" });
  const digest = await scene.digest("b1");
  Deno.writeTextFileSync(bridge.path("base/conf"), "second\n");
  const refused = await bridge.chb("approve", "main/b1", digest);
  assertEquals(refused.code, 77);
  assertStringIncludes(refused.err, "base/conf");
  assertStringIncludes(
    (await bridge.chb("pending")).out,
    "changed since a human trusted it: base/conf",
  );
  // 2. The change was trusted: what would run now has another digest.
  await scene.trust();
  const stale = await bridge.chb("approve", "main/b1", digest);
  assertEquals(stale.code, 77);
  assertStringIncludes(stale.err, "not what would run now");
  // 3. A base file changed after the word, while no daemon serves: refused by its name.
  const fresh = await scene.digest("b1");
  assert(fresh !== digest);
  await bridge.stop();
  assertEquals((await bridge.chb("approve", "main/b1", fresh)).code, 0);
  Deno.writeTextFileSync(bridge.path("base/conf"), "third\n");
  await bridge.serve();
  const gone = await bridge.final("b1");
  assertEquals([gone.reason, gone.stage], ["base-changed", "recheck"]);
  assertMatch(gone.message ?? "", /base\/conf/);
  // 4. The policy changed after the word: void, and it waits for another one.
  await scene.trust();
  await scene.awaits("b2", { verb: "deploy" });
  const first = await scene.digest("b2");
  await bridge.stop();
  assertEquals((await bridge.chb("approve", "main/b2", first)).code, 0);
  assertEquals(bridge.result("b2")?.waiting_for, "slot");
  await scene.trust("two");
  await bridge.serve();
  await until("another wait", () => bridge.result("b2")?.waiting_for === "approval");
  assertMatch(bridge.result("b2")?.message ?? "", /has changed since/);
  const voided = await until(
    "the record",
    () => bridge.audit().find((r) => r["event"] === "voided"),
  );
  assertEquals(voided["changed"], "policy command");
  assertEquals(scene.runs(), []);
  assertEquals((await bridge.chb("approve", "main/b2", first)).code, 77);
  assertEquals((await scene.approve("b2")).code, 0);
  assertEquals((await bridge.final("b2")).outcome, "succeeded");
  assertEquals(scene.runs(), ["b2 two w"]);
});

Deno.test("what waits for a word survives restarts, joins, and lapses by itself", async () => {
  await using scene = await Scene.start({ limits: { approval_wait_s: 6 } });
  const { bridge } = scene;
  await scene.awaits("l1", { verb: "deploy" });
  // Another id of the same request waits with it.
  bridge.submit("l1-again", { verb: "deploy", idempotency_key: "l1" });
  await until("the joined", () => bridge.result("l1-again")?.waiting_for === "approval");
  await bridge.stop("SIGKILL");
  assertStringIncludes((await bridge.chb("pending")).out, "main/l1: deploy");
  await bridge.serve();
  for (const id of ["l1", "l1-again"]) {
    const lapsed = await bridge.final(id, 30_000);
    assertEquals(
      [lapsed.outcome, lapsed.code, lapsed.reason, lapsed.stage, lapsed.next],
      ["approval_lapsed", 83, "approval-lapsed", "approval", "resend-new-key"],
    );
  }
  assertEquals(scene.events("l1").includes("denied"), false);
  assertEquals((await bridge.chb("pending")).out, "Nothing waits for your word\n");
  assertEquals(scene.runs(), []);
});

Deno.test("an approved request that a kill switch, or chb once, finds waiting", async () => {
  await using scene = await Scene.start({ top: { require_by: true } });
  const { bridge } = scene;
  await scene.awaits("k1", { verb: "deploy" });
  const nobody = await scene.approve("k1");
  assertEquals(nobody.code, 77);
  assertStringIncludes(nobody.err, "--by");
  assertEquals((await bridge.chb("deny", "k1", "--reason", "x")).code, 77);
  assertEquals((await bridge.chb("kill", "--reason", "x")).code, 0);
  const killed = await bridge.final("k1");
  assertEquals([killed.reason, killed.stage], ["killed", "recheck"]);
  assertEquals((await bridge.chb("resume")).code, 0);
  // Its key is free: it comes again, and waits for a word of its own.
  bridge.submit("k1", { verb: "deploy" });
  await until("the wait", () => bridge.result("k1")?.waiting_for === "approval");
  await bridge.stop();
  // What waits for a human does not keep a single pass from ending.
  assertEquals((await bridge.chb("once")).code, 0);
  assertEquals(bridge.result("k1")?.waiting_for, "approval");
  assertEquals((await scene.approve("k1", "--by", "ann")).code, 0);
  assertEquals((await bridge.chb("once")).code, 0);
  assertEquals(bridge.result("k1")?.outcome, "succeeded");
  assertEquals(scene.runs(), ["k1 one w"]);
});

Deno.test("what an agent chose as an argument looks like nothing else, and is shown to its end", async () => {
  const show = verb(["/usr/bin/true", "--", "{text}"], {
    class: "mutating",
    approval: "always",
    args: { text: { type: "text", max_length: 8000 } },
  });
  await using bridge = await TestBridge.start({
    policy: {
      agents: {
        main: { verbs: ["show"], scope: "mutating" },
        other: { verbs: ["show"], scope: "mutating" },
      },
      verbs: { show },
    },
    agents: ["main", "other"],
  });
  const ask = async (id: string, text: string, agent = "main") => {
    const temporary = bridge.path("spool", agent, "queue", `.${id}.tmp`);
    Deno.writeTextFileSync(temporary, JSON.stringify({ verb: "show", args: { text } }));
    Deno.renameSync(temporary, bridge.path("spool", agent, "queue", `${id}.json`));
    await until(id, () => there(bridge.path("spool", agent, "results", `${id}.json`)));
    const { out } = await bridge.chb("show", `${agent}/${id}`);
    return out.split("\n").slice(0, out.split("\n").indexOf("the request:"));
  };
  const forged = `ok${" ".repeat(69)}program  /usr/bin/safe${" ".repeat(59)}  arg 3  --dry-run`;
  const shown = await ask("forged", forged);
  for (const line of shown) assert(line.length <= 80, line);
  const words = shown.filter((line) => /--dry-run|\/usr\/bin\/safe/.test(line));
  assertEquals(words.length, 2);
  for (const line of words) assertMatch(line, /^ {9}\| /);
  assert((await ask("plain", "web")).includes("  arg 2  web"));
  assert((await ask("spaces", "web  ")).includes('  arg 2  "web  "'));
  // Escaped it is six times as long.
  const end = await ask("long", `${"\u00e9".repeat(3990)}the-end`);
  assertStringIncludes(end.join(""), "the-end");
  // What one agent asks for, and be it a thousand requests, does not hide another's.
  for (let i = 0; i < 60; i++) bridge.submit(`m${i}`, { verb: "show", args: { text: "x" } });
  await until("all of them", () => bridge.result("m59"));
  await ask("last", "y", "other");
  assertStringIncludes((await bridge.chb("pending")).out, "other/last: show");
});

Deno.test("quoted() leaves no way out of the bar", () => {
  for (
    const text of ["", "a", "a\nb", "a\r\nb\rc\u2028d\u2029e\x85f\x0bg\x1b[1A", "x".repeat(300)]
  ) {
    const lines = quoted(text).split("\n");
    assertEquals(lines.pop(), "");
    assert(lines.length > 0);
    for (const line of lines) {
      assertMatch(line, /^\|( [\x20-\x7e]*)?$/);
      assert(line.length <= 80);
    }
  }
});
