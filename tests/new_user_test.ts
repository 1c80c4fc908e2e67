/**
 * The bridge as somebody meets it who has nothing but the three mounts and reads the inbox first: a
 * sandbox with a shell and jq, one with busybox and nothing else, and an MCP client whose server was
 * compiled on its own. Each finds out what there is, runs a verb, follows a long build, is killed and
 * has forgotten the id, finds its work again, and cancels.
 *
 * The sandboxes are containers made with bubblewrap: own processes, no network, no file of the host
 * but libraries and the tools named here.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { cannotCompile } from "./helpers/compiled.ts";
import { canContain, Client, compileServer, container, NO_SDK } from "./helpers/mcp.ts";

/** The build stops after its first step until the test lets it go on. */
const SCRIPTS = {
  "hello.sh": '#!/bin/sh\necho "hello $1"\n',
  "build.sh": "#!/bin/sh\n" + 'echo "ran $1" >> "$MARKS/runs"\necho "step 1 of $1"\n' +
    'while [ ! -e "$MARKS/go-$1" ]; do sleep 0.1; done\necho "step 2 of $1"\n',
  "slow.sh": "#!/bin/sh\necho started\nsleep 90\n",
  "long.sh": '#!/bin/sh\ni=0\nwhile [ $i -lt 4000 ]; do echo "line $i of many"; i=$((i+1)); done\n',
};
const NAME = { type: "name" };
const VERBS = {
  hello: verb(["base/hello.sh", "{who}"], { description: "Greet.", args: { who: NAME } }),
  build: verb(["base/build.sh", "{target}"], {
    class: "mutating",
    description: "Build one target.",
    args: { target: NAME },
    timeout_s: 100,
  }),
  slow: verb(["base/slow.sh"], { description: "Take long.", timeout_s: 100 }),
  long: verb(["base/long.sh"], { description: "Say much." }),
};

/** Where a program is, or undefined. */
function find(name: string): string | undefined {
  return ["/usr/bin", "/bin"].map((directory) => join(directory, name)).find(there);
}

/** What a sandbox with sh and jq has. */
const TOOLS = "awk cat cut date grep head jq ls mv od sed sha256sum sleep sort sync tail tr wc"
  .split(
    " ",
  );

/** Flags that put tools into `/bin`, or the name of one that this machine lacks. */
function shellAndJq(): string[] | string {
  const flags: string[] = [];
  for (const [name, source] of [["sh", "dash"], ...TOOLS.map((tool) => [tool, tool] as const)]) {
    const path = find(source ?? "");
    if (path === undefined) return source ?? "";
    flags.push("--ro-bind", Deno.realPathSync(path), `/bin/${name}`);
  }
  return flags;
}

function busyboxAlone(): string[] | string {
  const path = find("busybox");
  if (path === undefined) return "busybox";
  const { stdout } = new Deno.Command(path, { args: ["--list"] }).outputSync();
  const applets = new TextDecoder().decode(stdout).split("\n").filter((a) =>
    /^[a-z0-9_-]+$/.test(a)
  );
  return [
    ...["--ro-bind", path, "/bin/busybox"],
    ...applets.filter((a) => a !== "busybox").flatMap((a) => ["--symlink", "busybox", `/bin/${a}`]),
  ];
}

/** A bridge that is served, and what is known outside of the sandboxes. */
class Host implements AsyncDisposable {
  private constructor(readonly bridge: TestBridge) {}

  static async start(): Promise<Host> {
    const bridge = await TestBridge.make({ verbs: VERBS, scripts: SCRIPTS, trust: false });
    const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
    policy.env = { MARKS: bridge.outside, PATH: "/usr/bin:/bin" };
    policy.limits.concurrency = 4;
    Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
    assertEquals((await bridge.chb("trust", "--yes")).code, 0);
    await bridge.serve();
    return new Host(bridge);
  }

  get chb(): string {
    return this.bridge.path("spool/main");
  }

  /** Lets the build of a target go on. */
  go(target: string): void {
    Deno.writeTextFileSync(join(this.bridge.outside, `go-${target}`), "");
  }

  /** How often a target was built. */
  builds(target: string): number {
    const path = join(this.bridge.outside, "runs");
    if (!there(path)) return 0;
    return Deno.readTextFileSync(path).split("\n").filter((l) => l === `ran ${target}`).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.bridge[Symbol.asyncDispose]();
  }
}

/** One process of an agent in a fresh sandbox, which may be killed. */
class Process {
  readonly #child: Deno.ChildProcess;
  readonly #reading: Promise<void>[];
  out = "";
  err = "";

  constructor(host: Host, tools: readonly string[], script: string) {
    const [program = "", ...flags] = container(host.chb);
    const child = new Deno.Command(program, {
      args: [...flags, ...tools, "--setenv", "PATH", "/bin", "/bin/sh", "-c", script],
      clearEnv: true,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    this.#child = child;
    const read = async (stream: ReadableStream<Uint8Array>, take: (text: string) => void) => {
      const decoder = new TextDecoder();
      for await (const chunk of stream) take(decoder.decode(chunk, { stream: true }));
    };
    this.#reading = [
      read(child.stdout, (text) => this.out += text),
      read(child.stderr, (text) => this.err += text),
    ];
  }

  /** Waits for its end. */
  async end(): Promise<{ code: number; out: string; err: string }> {
    const { code } = await this.#child.status;
    await Promise.all(this.#reading);
    return { code, out: this.out, err: this.err };
  }

  /** Ends the whole sandbox without a word. */
  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.end();
  }
}

/** Runs a script of an agent to its end. */
async function agent(host: Host, tools: readonly string[], script: string) {
  return await new Process(host, tools, script).end();
}

const NO_CONTAINER = canContain() ? null : "bubblewrap cannot make a container here";

/** A test in a sandbox; skipped, with the reason, where it cannot be made. */
function sandboxed(
  name: string,
  tools: readonly string[] | string,
  fn: (host: Host, tools: readonly string[]) => Promise<void>,
): void {
  const lacks = typeof tools === "string" ? `${tools} is missing` : NO_CONTAINER;
  Deno.test({
    name: lacks === null ? name : `${name} # SKIP ${lacks}`,
    ignore: lacks !== null,
    async fn() {
      await using host = await Host.start();
      await fn(host, tools as readonly string[]);
    },
  });
}

sandboxed(
  "a newcomer with a shell and jq gets along with files alone",
  shellAndJq(),
  async (host, tools) => {
    const seen = await agent(host, tools, "ls / /chb /home /root 2>&1; cat /chb/inbox/README");
    assertStringIncludes(seen.out, "kit/AGENTS.md");
    assert(!seen.out.includes("bridge.jsonc"), seen.out);
    // The page says how, without the helper; the catalogue has an example of everything.
    const page = await agent(host, tools, "cat /chb/inbox/kit/AGENTS.md");
    for (const text of ["jq -n", "catalogue.json", "until `state` is `done` or `uncertain`"]) {
      assertStringIncludes(page.out, text);
    }
    const untilDone = 'until jq -e \'.state == "done"\' "$r" >/dev/null 2>&1; do sleep 0.1; done';
    const hello = await agent(
      host,
      tools,
      "jq '.verbs[] | select(.verb == \"hello\") | .example' /chb/inbox/catalogue.json" +
        " > /chb/queue/.h1.tmp && mv /chb/queue/.h1.tmp /chb/queue/h1.json; r=/chb/results/h1.json; " +
        `${untilDone}; jq -r .stdout.head $r`,
    );
    assertMatch(hello.out, /^hello \S+\n\n$/, hello.err);

    // Follows the output as it grows, and is killed.
    const first = new Process(
      host,
      tools,
      'jq -n \'{verb: "build", args: {target: "jq"}, note: "release 5"}\' > /chb/queue/.b1.tmp; ' +
        "mv /chb/queue/.b1.tmp /chb/queue/build-it.json; " +
        "while :; do cat /chb/results/build-it.stdout 2>/dev/null; sleep 0.1; done",
    );
    await until("the build's first step", () => first.out.includes("step 1 of jq"));
    await first.kill();
    host.go("jq");
    const found = await agent(
      host,
      tools,
      'id=; while [ -z "$id" ]; do sleep 0.1; id=$(jq -r \'[.recent[] | select(.note == "release 5")' +
        "][0].id // empty' /chb/inbox/status.json); done; r=/chb/results/$id.json; " +
        `${untilDone}; echo "$id"; jq -r .stdout.head $r`,
    );
    assertEquals(found.out, "build-it\nstep 1 of jq\nstep 2 of jq\n\n", found.err);

    const cancelled = await agent(
      host,
      tools,
      'echo \'{"verb":"slow"}\' > /chb/queue/.s.tmp; mv /chb/queue/.s.tmp /chb/queue/s1.json; ' +
        'until [ "$(jq -r .state /chb/results/s1.json 2>/dev/null)" = running ]; do sleep 0.1; done; ' +
        'jq -n \'{verb: "bridge.cancel", args: {id: "s1"}}\' > /chb/queue/.c.tmp; ' +
        `mv /chb/queue/.c.tmp /chb/queue/c1.json; r=/chb/results/s1.json; ${untilDone}; ` +
        "jq -r .outcome $r",
    );
    assertEquals(cancelled.out, "cancelled\n", cancelled.err);
    assertEquals(host.builds("jq"), 1);
  },
);

sandboxed(
  "a newcomer with busybox and nothing else gets along",
  busyboxAlone(),
  async (host, tools) => {
    const helper = "sh /chb/inbox/kit/chb-request";
    const read = await agent(host, tools, "cat /chb/inbox/README");
    assertStringIncludes(read.out, `${helper} --verbs`);
    // What the listing prints for a verb is a line that works.
    const verbs = await agent(host, tools, `${helper} --verbs`);
    const line = /^ +chb-request (hello .*)$/m.exec(verbs.out)?.[1];
    assert(line !== undefined, verbs.out + verbs.err);
    const hello = await agent(host, tools, `${helper} ${line}`);
    assertMatch(hello.out, /^hello \S+\n$/, hello.err);
    assertEquals(hello.code, 0);

    // Where the rest of long output lies is a place that can be read from here.
    const long = await agent(host, tools, `${helper} long --wait`);
    const whole = /bytes left out here; all of it: (\S+)\]/.exec(long.out)?.[1];
    assert(whole?.startsWith("/chb/results/"), long.err);
    const found = await agent(host, tools, `grep -x 'line 1999 of many' ${whole}`);
    assertEquals([found.code, found.out], [0, "line 1999 of many\n"]);

    const build = `${helper} build target=bb --intent 'release 5'`;
    const first = new Process(host, tools, `${build} --follow --wait 50`);
    await until("the build's first step", () => first.out.includes("step 1 of bb"));
    await first.kill();
    host.go("bb");
    // It has forgotten what it asked; the newest requests tell.
    // They are a few seconds old.
    let recent = await agent(host, tools, `${helper} --recent`);
    const listed = () => /^(\S+)\t[^\t]*\tbuild\trelease 5$/m.exec(recent.out)?.[1];
    for (let tries = 0; tries < 40 && listed() === undefined; tries++) {
      await new Promise((resolve) => setTimeout(resolve, 250));
      recent = await agent(host, tools, `${helper} --recent`);
    }
    const id = listed();
    assert(id !== undefined, recent.out + recent.err);
    const rest = await agent(host, tools, `${helper} --result ${id} --follow --wait`);
    assertEquals([rest.code, rest.out], [0, "step 1 of bb\nstep 2 of bb\n"], rest.err);
    // And who remembers what it asked says the same once more.
    const again = await agent(host, tools, `${build} --wait`);
    assertEquals([again.code, again.out], [0, rest.out], again.err);
    assertEquals(host.builds("bb"), 1);

    const sent = await agent(host, tools, `${helper} slow`);
    assertEquals(sent.code, 0, sent.err);
    const slow = sent.out.trim();
    await until("the slow verb", () => host.bridge.result(slow)?.state === "running");
    const cancel = await agent(host, tools, `${helper} bridge.cancel id=${slow} --wait`);
    assertEquals(cancel.code, 0, cancel.err);
    const ended = await agent(host, tools, `${helper} --result ${slow} --wait`);
    assertEquals([ended.code, ended.out], [3, "started\n"], ended.err);
  },
);

const NO_SERVER = NO_SDK ?? cannotCompile() ?? NO_CONTAINER;

Deno.test({
  name: `a newcomer with an MCP client, and the server compiled on its own, gets along${
    NO_SERVER === null ? "" : ` # SKIP ${NO_SERVER}`
  }`,
  ignore: NO_SERVER !== null,
  async fn() {
    await using host = await Host.start();
    const server = await compileServer(host.bridge.outside);
    // In the container there are the mounts, libraries and this one file.
    const command = [...container(host.chb), "--ro-bind", server, "/bin/chb-mcp", "/bin/chb-mcp"];
    {
      await using client = new Client(command);
      await client.send({ list: true });
      const tools = await client.next<{ name: string }[]>();
      for (const name of ["hello", "build", "slow", "wait", "recent", "bridge_cancel"]) {
        assert(tools.some((tool) => tool.name === name), JSON.stringify(tools));
      }
      const hello = await client.call("hello", { who: "you" });
      assertStringIncludes(hello.text ?? "", "hello you");
      assertEquals(hello.error, false);

      const args = { target: "mcp", _intent: "release 5", _wait_s: 3 };
      const build = await client.call("build", args);
      assertStringIncludes(build.text ?? JSON.stringify(build), "running. next: wait");
      assert(build.progress.some((text) => text === "step 1 of mcp"), JSON.stringify(build));
      await client.send({ name: "slow", args: {} });
      await until(
        "the slow verb",
        () =>
          (host.bridge.status()?.["recent"] as { verb: string; state: string }[])
            .some((row) => row.verb === "slow" && row.state === "running"),
        30_000,
      );
      client.kill();
    }
    host.go("mcp");
    await using client = new Client(command);
    const recent = await client.call("recent", {});
    const id = /^(build-\S+)\t[^\t]*\tbuild\trelease 5$/m.exec(recent.text ?? "")?.[1];
    const slow = /^(slow-\S+)\trunning\tslow\t/m.exec(recent.text ?? "")?.[1];
    assert(id !== undefined && slow !== undefined, JSON.stringify(recent));
    const built = await client.call("wait", { id });
    assertStringIncludes(built.text ?? "", "step 1 of mcp\nstep 2 of mcp");
    assertEquals(host.builds("mcp"), 1);
    const cancel = await client.call("bridge_cancel", { id: slow, _intent: "not needed" });
    assertEquals(cancel.error, false, JSON.stringify(cancel));
    const ended = await client.call("wait", { id: slow });
    assertStringIncludes(ended.text ?? "", `${slow}: cancelled`);
    assertStringIncludes(ended.text ?? "", "started");
  },
});
