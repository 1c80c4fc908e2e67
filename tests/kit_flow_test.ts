/**
 * The kit against a real bridge, as an agent uses it: with nothing but the inbox to read, from
 * shells with and without jq. What the daemon published is what runs here.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { BUILTINS } from "../src/surface.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { runKit, type Said, type Sandbox, Sandboxes } from "./helpers/sandbox.ts";

const CANCEL = (BUILTINS as readonly string[]).includes("bridge.cancel");

/** Scripts of the host. `count` notes its runs, `build` prints a line now and then. */
const SCRIPTS = {
  "count.sh": '#!/bin/sh\necho ran >> "$COUNT_FILE"\necho "restarted $1"\necho note >&2\n',
  "build.sh": '#!/bin/sh\nfor i in 1 2 3 4 5; do echo "step $i of $1"; sleep 0.3; done\n',
  "end.sh": "#!/bin/sh\necho out; echo err >&2\n[ $1 = signal ] && kill -KILL $$\nexit $1\n",
  "long.sh": '#!/bin/sh\ni=0\nwhile [ $i -lt 6000 ]; do echo "line $i of many"; i=$((i+1)); done\n',
  "slow.sh": "#!/bin/sh\necho started\nsleep 60\n",
};

const TARGET = { target: { type: "name" } };
const VERBS = {
  build: verb(["base/build.sh", "{target}"], { args: TARGET, description: "Build one target." }),
  restart: verb(["base/count.sh", "{service}"], {
    class: "mutating",
    description: "Restart one service.",
    args: { service: { type: "enum", values: ["web", "db"] } },
    shim: ["docker compose restart {service}", "docker-compose restart {service}"],
  }),
  end: verb(["base/end.sh", "{how}"], {
    args: { how: { type: "name" } },
    shim: ["podman wait --code={how}"],
  }),
  long: verb(["base/long.sh"]),
  slow: verb(["base/slow.sh"], { timeout_s: 90, args: {} }),
};

/** A bridge, and what an agent in one kind of sandbox says to it. */
class Agent implements AsyncDisposable {
  private constructor(readonly bridge: TestBridge, readonly sandboxes: Sandboxes) {}

  static async start(options: { serve?: boolean; trust?: boolean } = {}): Promise<Agent> {
    const bridge = await TestBridge.make({ verbs: VERBS, scripts: SCRIPTS, trust: false });
    const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
    policy.env = { COUNT_FILE: join(bridge.outside, "count"), PATH: "/usr/bin:/bin" };
    policy.limits.concurrency = 4;
    Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
    if (options.trust !== false) assertEquals((await bridge.chb("trust", "--yes")).code, 0);
    if (options.serve !== false) await bridge.serve();
    return new Agent(bridge, new Sandboxes());
  }

  get chb(): string {
    return this.bridge.path("spool/main");
  }

  /** How often the counting script ran. */
  get runs(): number {
    const path = join(this.bridge.outside, "count");
    return there(path) ? Deno.readTextFileSync(path).trim().split("\n").length : 0;
  }

  /** The first sandbox whose name starts so. */
  sandbox(name = ""): Sandbox {
    const found = this.sandboxes.all.find((one) => one.name.startsWith(name));
    assert(found !== undefined, `no ${name}`);
    return found;
  }

  async ask(sandbox: Sandbox, ...args: string[]): Promise<Said> {
    return await runKit(sandbox, join(this.chb, "inbox/kit/chb-request"), args, this.chb);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.sandboxes[Symbol.dispose]();
    await this.bridge[Symbol.asyncDispose]();
  }
}

const MISSING = (() => {
  using sandboxes = new Sandboxes();
  return sandboxes.missing;
})();

Deno.test({
  name: `dash, bash and busybox are what the kit is tried in${
    MISSING.length === 0 ? "" : ` (skipped: ${MISSING.join(", ")} missing)`
  }`,
  ignore: MISSING.length > 0,
  fn() {
    using sandboxes = new Sandboxes();
    for (const name of ["dash without jq", "bash with", "busybox alone"]) {
      assert(sandboxes.all.some((one) => one.name.startsWith(name)), `no ${name}`);
    }
  },
});

Deno.test("in every shell: look, ask, follow, cancel, and find work again", async () => {
  await using agent = await Agent.start();
  let n = 0;
  for (const sandbox of agent.sandboxes.all) {
    const ask = (...args: string[]) => agent.ask(sandbox, ...args);
    const tell = (said: Said) => `${sandbox.name}: ${JSON.stringify(said)}`;

    const verbs = await ask("--verbs");
    assertEquals(verbs.code, 0, tell(verbs));
    for (const text of [...Object.keys(VERBS), "    service: enum: web|db\n", "--intent"]) {
      assertStringIncludes(verbs.out, text, tell(verbs));
    }

    const intent = `${sandbox.name} ${n}`;
    const words = ["restart", "service=web", "--intent", intent, "--wait"];
    const first = await ask(...words);
    assertEquals([first.code, first.out], [0, "restarted web\n"], tell(first));
    assertMatch(first.err, /^note\nchb: restart-[0-9a-f]{24} succeeded\n$/, tell(first));
    assertEquals(agent.runs, ++n, sandbox.name);
    const again = await ask(...words);
    assertEquals([again.code, again.out], [0, "restarted web\n"], tell(again));
    assertMatch(
      again.err,
      / succeeded\. This is the stored result from .*another --intent/,
      tell(again),
    );
    assertEquals(agent.runs, n, "the same line ran it twice");

    // Followed in two calls, whose output together is that of the command, once.
    const one = await ask("build", "target=all", "--follow", "--wait=1");
    assertEquals(one.code, 75, tell(one));
    const line = /go on with: chb-request (--result \S+ --wait --follow --from \S+)\n/.exec(
      one.err,
    );
    assert(line !== null, tell(one));
    const two = await ask(...(line[1] ?? "").split(" "));
    assertEquals(two.code, 0, tell(two));
    assertEquals(one.out + two.out, [1, 2, 3, 4, 5].map((i) => `step ${i} of all\n`).join(""));

    // An agent that was killed and has forgotten the id finds its work.
    const sent = await ask("slow");
    assertEquals(sent.code, 0, tell(sent));
    const id = sent.out.trim();
    const found = await until(`${id} among the newest`, () => {
      const recent = agent.bridge.status()?.["recent"] as { id: string; state: string }[];
      return recent.some((row) => row.id === id && row.state === "running");
    });
    assert(found);
    const recent = await ask("--recent");
    assertStringIncludes(recent.out, `${id}\trunning\tslow`, tell(recent));
    if (CANCEL) {
      const cancelled = await ask("bridge.cancel", `id=${id}`, "--wait");
      assertEquals(cancelled.code, 0, tell(cancelled));
      const ended = await ask("--result", id, "--wait");
      assertEquals([ended.code, ended.out], [3, "started\n"], tell(ended));
    } else {
      const waiting = await ask("--result", id, "--wait", "0");
      assertEquals([waiting.code, waiting.out], [75, ""], tell(waiting));
      break;
    }
  }
});

Deno.test("the exit code is the command's own below 64, and else says what the bridge says", async () => {
  await using agent = await Agent.start();
  const sandbox = agent.sandbox();
  const rows: [string[], number, string][] = [
    [["end", "how=0"], 0, "succeeded"],
    [["end", "how=2"], 2, "code 1 (command-failed)"],
    [["end", "how=63"], 63, "code 1 (command-failed)"],
    [["end", "how=64"], 125, "The command exited with 64"],
    [["end", "how=255"], 125, "The command exited with 255"],
    [["end", "how=signal"], 125, "The command was ended by SIGKILL"],
    [["slow", "--timeout", "0.3"], 2, "timed_out, code 2 (timed-out)"],
    [["end"], 79, "next: fix-request"],
    [["end", "how=a/b"], 79, "next: fix-request"],
    [["restart", "service=mail", "--intent", "x"], 79, "next: fix-request"],
    [["build", "target=x", "--max-spend", "-1"], 64, "--max-spend takes a number"],
    [["build", "target=x", "--scope", "destructive", "--id", "s1"], 0, "s1 succeeded"],
    [["restart", "service=web", "--intent", "x", "--scope", "observe"], 84, "scope"],
    [["bridge.ping"], 0, "succeeded"],
  ];
  for (const [words, code, text] of rows) {
    const said = await agent.ask(sandbox, ...words, "--wait");
    assertEquals(said.code, code, `${words.join(" ")}: ${JSON.stringify(said)}`);
    assertStringIncludes(said.err, text, words.join(" "));
  }
  const json = await agent.ask(sandbox, "end", "how=5", "--wait", "--json");
  assertEquals([json.code, JSON.parse(json.out).exit_code, json.err], [5, 5, ""]);

  // An id of the caller's own that belongs to another request: the answer stands beside its result.
  const mine = await agent.ask(sandbox, "end", "how=0", "--id", "mine", "--wait");
  assertEquals(mine.code, 0, mine.err);
  const other = await agent.ask(sandbox, "end", "how=3", "--id", "mine", "--wait");
  assertEquals(other.code, 86, other.err);
  assertStringIncludes(other.err, "next: resend-new-key");
  const kept = await agent.ask(sandbox, "--result", "mine");
  assertEquals([kept.code, kept.out], [0, "out\n"]);
});

Deno.test("long output: both ends, where the rest is, and all of it when asked", async () => {
  await using agent = await Agent.start();
  const sandbox = agent.sandbox("busybox");
  const whole = Array.from({ length: 6000 }, (_, i) => `line ${i} of many\n`).join("");
  const said = await agent.ask(sandbox, "long", "--id", "long1", "--wait");
  assertEquals(said.code, 0, said.err);
  const file = join(agent.chb, "results/long1.stdout");
  const marker = `\n[chb: ${whole.length - 32768} bytes left out here; all of it: ${file}]\n`;
  assertEquals(said.out, whole.slice(0, 16384) + marker + whole.slice(-16384));
  const full = await agent.ask(sandbox, "--result", "long1", "--full");
  assertEquals(full.out, whole);
});

Deno.test("one waiting call ends with the result, not with its own limit", async () => {
  await using agent = await Agent.start();
  for (const name of ["dash without jq", "dash with jq"]) {
    const begun = performance.now();
    const said = await agent.ask(agent.sandbox(name), "build", "target=x", "--wait", "600");
    assertEquals(said.code, 0, said.err);
    assert(performance.now() - begun < 60_000, "it waited for its limit");
  }
});

Deno.test("untrusted, killed, stopped and never started: said at once, and nothing is left", async () => {
  await using agent = await Agent.start({ serve: false, trust: false });
  const sandbox = agent.sandbox();
  const { bridge } = agent;
  const kit = join(bridge.outside, "kit");
  Deno.mkdirSync(kit);
  const ask = (...args: string[]) => runKit(sandbox, join(kit, "chb-request"), args, agent.chb);
  const source = new URL("../agent/chb-request", import.meta.url);
  Deno.copyFileSync(source, join(kit, "chb-request"));

  const never = await ask("build", "target=x", "--wait");
  assertEquals(never.code, 69, never.err);
  assertStringIncludes(never.err, "never been started; nothing was sent. next: ask-human");
  assertStringIncludes(Deno.readTextFileSync(join(agent.chb, "inbox/README")), "not been started");

  await bridge.serve();
  assertStringIncludes(Deno.readTextFileSync(join(agent.chb, "inbox/README")), "kit/AGENTS.md");
  const untrusted = await ask("build", "target=x");
  assertEquals(untrusted.code, 81, untrusted.err);
  assertStringIncludes(untrusted.err, "a human runs: chb trust");
  assertStringIncludes(untrusted.err, "next: ask-human");

  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  await until("the status to say so", () => bridge.status()?.["state"] === "serving");
  assertEquals((await ask("build", "target=x", "--wait")).code, 0);

  Deno.writeTextFileSync(bridge.path("state/KILL"), "");
  await until("the status to say so", () => bridge.status()?.["state"] === "killed");
  const killed = await ask("build", "target=x");
  assertEquals(killed.code, 80, killed.err);
  assertStringIncludes(killed.err, "kill switch");
  Deno.removeSync(bridge.path("state/KILL"));
  const lowered = await ask("build", "target=x", "--wait");
  assertEquals(lowered.code, 0, lowered.err);

  await bridge.stop();
  const stopped = await ask("build", "target=x", "--wait");
  assertEquals(stopped.code, 69, stopped.err);
  assertStringIncludes(stopped.err, "it was stopped; nothing was sent");
  assertEquals(bridge.queued(), []);
  const status = await ask("--status");
  assertEquals([status.code, status.out], [69, ""]);
});

Deno.test("a bridge that died is noticed within 20 s, and what was not taken is taken back", async () => {
  await using agent = await Agent.start();
  const sandbox = agent.sandbox();
  const running = await agent.ask(sandbox, "slow", "--id", "slow1", "--wait", "2");
  assertEquals(running.code, 75, running.err);
  await agent.bridge.stop("SIGKILL");
  const begun = performance.now();
  const [sent, looked, status] = await Promise.all([
    agent.ask(sandbox, "build", "target=x", "--id", "b1", "--wait"),
    agent.ask(sandbox, "--result", "slow1", "--wait"),
    agent.ask(agent.sandbox("busybox"), "--status"),
  ]);
  const took = performance.now() - begun;
  assertEquals([sent.code, looked.code, status.code], [69, 69, 69]);
  assertEquals(sent.err.trim().split("\n").length, 1);
  assertStringIncludes(sent.err, "the request was taken back, nothing ran");
  assertStringIncludes(looked.err, "slow1 was accepted and is running");
  assertEquals(agent.bridge.queued(), []);
  // 15 s by design; the rest is room for a machine that has much else to do.
  assert(took < 45_000, `it took ${took} ms`);
});

Deno.test("stand-ins ask for the verb of the policy, and say what there is for anything else", async () => {
  await using agent = await Agent.start();
  const sandbox = agent.sandbox();
  const call = (name: string, ...args: string[]) =>
    runKit(sandbox, join(agent.chb, "inbox/kit/shims", name), args, agent.chb);
  for (
    const [name, ...args] of [["docker", "compose", "restart", "web"], [
      "docker-compose",
      "restart",
      "db",
    ]]
  ) {
    const said = await call(name ?? "", ...args);
    assertEquals([said.code, said.out], [0, `restarted ${args.at(-1)}\n`], said.err);
  }
  assertEquals(agent.runs, 2);
  // Typed again it is meant again: the first has ended.
  assertEquals((await call("docker", "compose", "restart", "web")).code, 0);
  assertEquals(agent.runs, 3);
  // A value that the policy does not give is the bridge's to refuse.
  assertEquals((await call("docker", "compose", "restart", "mail")).code, 79);
  for (
    const args of [
      [],
      ["ps"],
      ["compose", "restart"],
      ["compose", "restart", "web", "db"],
      ["compose", "restart", "--help"],
      ["compose", "restart", ""],
      ["compose", "up", "web"],
      ["run", "--privileged", "-v", "/:/host", "alpine"],
    ]
  ) {
    const said = await call("docker", ...args);
    assertEquals([said.code, said.out], [77, ""], args.join(" "));
    assertStringIncludes(said.err, "docker compose restart {service}   (verb restart)");
    assertStringIncludes(said.err, "--verbs");
  }
  assertEquals((await call("podman", "compose", "restart", "web")).code, 77);
  // The tail of an option is an argument as well; the command's own exit code comes through.
  assertEquals((await call("podman", "wait", "--code=5")).code, 5);
  for (const args of [["--code="], ["--code=-5"], ["--code", "5"], ["--code=5", "x"]]) {
    assertEquals((await call("podman", "wait", ...args)).code, 77, args.join(" "));
  }
  assertEquals(agent.runs, 3);
});

Deno.test("every example of the catalogue is a request that is taken", async () => {
  await using agent = await Agent.start();
  const catalogue = JSON.parse(
    Deno.readTextFileSync(join(agent.chb, "inbox/catalogue.json")),
  ) as { verbs: { verb: string; builtin: boolean; example: unknown }[] };
  const names = catalogue.verbs.map(({ verb }) => verb);
  assertEquals(names, [...Object.keys(VERBS), ...BUILTINS]);
  for (const [i, { verb, example }] of catalogue.verbs.entries()) {
    agent.bridge.submit(`example-${i}`, example);
    await until(`an answer to the example of ${verb}`, () => {
      const result = agent.bridge.result(`example-${i}`);
      if (result === null) return false;
      assert(
        result.state !== "done" || (result.code ?? 0) < 64 || verb === "bridge.cancel" ||
          verb === "bridge.reply",
        `${verb}: ${JSON.stringify(result)}`,
      );
      return true;
    });
  }
});
