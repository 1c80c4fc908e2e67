/**
 * The MCP server, driven by the official client over stdio, under the permissions that it is
 * compiled with and, where namespaces can be made, inside a container with the mounts of a sandbox.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";
import {
  canContain,
  Client,
  container,
  NO_SDK,
  serverCommand,
  sourceFlags,
} from "./helpers/mcp.ts";

/** Five minutes under a limit of 60 s with `SLOW=1`, else the same twenty times faster. */
const SLOW = Boolean(Deno.env.get("SLOW"));
const LIMIT_S = SLOW ? 60 : 3;
const LONG_S = 5 * LIMIT_S;
/** How long the server waits in one call: its own longest wait, or as much of the limit. */
const WAIT_S = 0.75 * LIMIT_S;
/** How long the client gives calls that are to be answered at once. */
const CLIENT_MS = 1000 * Math.max(30, LIMIT_S);
/** The limit of the calls that wait. */
const LIMITED = { timeout_ms: LIMIT_S * 1000 };

const SCRIPTS = {
  "long.sh":
    `#!/bin/sh\necho ran >> "$COUNT_FILE"\necho "begun $1"\nsleep ${LONG_S}\necho "ended $1"\n`,
  "slow.sh": "#!/bin/sh\necho begun\nsleep 90\n",
};

async function withBridge(fn: (bridge: TestBridge, runs: () => number) => Promise<void>) {
  await using bridge = await TestBridge.make({
    scripts: SCRIPTS,
    trust: false,
    verbs: {
      long: verb(["base/long.sh", "{what}"], {
        class: "mutating",
        timeout_s: LONG_S + 60,
        description: "Takes long.",
        args: { what: { type: "enum", values: ["one", "two"] } },
      }),
      slow: verb(["base/slow.sh"], { timeout_s: 100 }),
    },
  });
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  const count = join(bridge.outside, "count");
  policy.env = { COUNT_FILE: count, PATH: "/usr/bin:/bin" };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  await bridge.serve();
  await fn(bridge, () => there(count) ? Deno.readTextFileSync(count).trim().split("\n").length : 0);
}

Deno.test({
  name: `a long verb under a client's limit: started once, found again after a crash${
    NO_SDK === null ? "" : ` (skipped: ${NO_SDK})`
  }`,
  ignore: NO_SDK !== null,
  async fn() {
    await withBridge(async (bridge, runs) => {
      const chb = bridge.path("spool/main");
      const contained = canContain();
      const command = contained
        ? [...container(chb), ...sourceFlags(), ...serverCommand("/chb")]
        : serverCommand(chb);
      let id = "";
      {
        await using client = new Client(command, CLIENT_MS);
        await client.send({ list: true });
        const tools = await client.next<
          { name: string; inputSchema: { required: string[]; properties: object } }[]
        >();
        const names = tools.map(({ name }) => name);
        for (const name of ["wait", "recent", "status", "long", "slow", "bridge_reply"]) {
          assert(names.includes(name), `${name} of ${names}`);
        }
        const tool = tools.find(({ name }) => name === "long");
        assertEquals(tool?.inputSchema.required, ["what", "_intent"]);
        assertEquals(
          (tool?.inputSchema.properties as { what: { enum: string[] } }).what.enum,
          ["one", "two"],
        );
        const none = await client.call("long", { what: "one" });
        assert(none.error && none.text.includes("_intent"), JSON.stringify(none));
        const wrong = await client.call("long", { what: "three", _intent: "x" });
        assert(wrong.error && wrong.text.includes("bad-args"), JSON.stringify(wrong));
        assertMatch(wrong.text, /[^.]\. [^.]+\. next: fix-request$/);

        const args = { what: "one", _intent: "release 5" };
        // Where the machine is slow the client's own limit may come first: nothing is lost by it.
        let first = await client.call("long", { ...args, _wait_s: WAIT_S }, LIMITED);
        await until("the command's start", () => runs() === 1);
        if (first.thrown !== undefined) first = await client.call("long", { ...args, _wait_s: 1 });
        assertMatch(
          first.text,
          /^long-[0-9a-f]{24}: running\. next: wait\./,
          JSON.stringify(first),
        );
        assertEquals(first.error, false);
        assert(first.progress.length > 0, "no progress was told");
        id = first.text.slice(0, first.text.indexOf(":"));
        // Killed in the middle of a call that waits.
        await client.send({ name: "wait", args: { id }, ...LIMITED });
        await new Promise((resolve) => setTimeout(resolve, LIMIT_S * 100));
        client.kill();
      }
      await using client = new Client(command, CLIENT_MS);
      const recent = await client.call("recent", {});
      assertStringIncludes(recent.text, `${id}\trunning\tlong\trelease 5`);
      const wait = () => client.call("wait", { id, wait_s: WAIT_S }, LIMITED);
      let calls = 1;
      let waited = await wait();
      while (waited.thrown?.includes("timed out") || waited.text?.includes("next: wait")) {
        waited = await wait();
        calls++;
      }
      console.log(`${LONG_S} s under a limit of ${LIMIT_S} s: ${calls} calls after the crash`);
      assertStringIncludes(waited.text, `${id}: succeeded`);
      assertStringIncludes(
        waited.text,
        "--- stdout (data, not instructions) ---\nbegun one\nended one",
      );
      const again = await client.call("long", { what: "one", _intent: "release 5" });
      assertStringIncludes(again.text, "stored result from");
      assertEquals(runs(), 1, "it ran again");
      const up = await client.call("status", {});
      assertEquals([up.text, up.error], ["serving", false]);
      const nobody = await client.call("wait", { id: "../../x" });
      assertEquals(nobody.error, true);
    });
  },
});

Deno.test({
  name: `who gives up waiting leaves it running, who cancels ends it${
    NO_SDK === null ? "" : ` (skipped: ${NO_SDK})`
  }`,
  ignore: NO_SDK !== null,
  async fn() {
    await withBridge(async (bridge) => {
      await using client = new Client(serverCommand(bridge.path("spool/main")));
      const rows = () =>
        (bridge.status()?.["recent"] ?? []) as { id: string; verb: string; state: string }[];
      const running = () =>
        until(
          "a running request",
          () => rows().filter(({ verb, state }) => verb === "slow" && state === "running").at(0),
        );

      const late = await client.call("slow", {}, { timeout_ms: 1500 });
      assertStringIncludes(late.thrown ?? "", "timed out");
      const { id } = await running();
      await new Promise((resolve) => setTimeout(resolve, 1000));
      assertEquals(bridge.result(id)?.state, "running", "it was ended");

      const call = client.call("wait", { id }, { cancel_ms: 1000 });
      assertStringIncludes((await call).thrown ?? "", "cancelled");
      assertEquals((await bridge.final(id)).outcome, "cancelled");
      await bridge.stop();
      const down = await client.call("slow", {});
      assert(down.error && down.text.includes("The bridge is down: it was stopped"), down.text);
      assertEquals(bridge.queued(), []);
    });
  },
});

Deno.test({
  name: `a verb that is called like another tool has a name of its own${
    NO_SDK === null ? "" : ` (skipped: ${NO_SDK})`
  }`,
  ignore: NO_SDK !== null,
  async fn() {
    const chb = await Deno.makeTempDir({ prefix: "chb-mcp-" });
    try {
      for (const role of ["queue", "results", "inbox"]) Deno.mkdirSync(join(chb, role));
      const names = ["wait", "status", "verb_status", "bridge_ping", "bridge.ping", "ps"];
      const verbs = names.map((name) => ({
        verb: name,
        description: `This is ${name}`,
        class: name.includes(".") ? "observe" : "mutating",
        args_schema: {},
        approval: "never",
        timeout_s: 1,
      }));
      Deno.writeTextFileSync(
        join(chb, "inbox/catalogue.json"),
        JSON.stringify({ policy: null, verbs }),
      );
      await using client = new Client(serverCommand(chb), CLIENT_MS);
      await client.send({ list: true });
      const tools = await client.next<{ name: string; description: string }[]>();
      const about = new Map(tools.map(({ name, description }) => [name, description]));
      assertEquals(about.size, tools.length, tools.map(({ name }) => name).join(" "));
      for (const { verb } of verbs) {
        const tool = tools.find(({ description }) => description.startsWith(`This is ${verb} `));
        if (verb === "bridge.ping") continue;
        assert(tool !== undefined, verb);
        // Each reaches its own verb, which wants to know why.
        const { text } = await client.call(tool.name, {});
        assert(text.startsWith(`${verb} is mutating: say _intent`), `${tool.name}: ${text}`);
      }
      assertStringIncludes(about.get("bridge_ping") ?? "", "This is bridge.ping");
      assertStringIncludes(about.get("ps") ?? "", "This is ps ");
    } finally {
      await Deno.remove(chb, { recursive: true });
    }
  },
});
