/**
 * Agents in real containers, and a bridge beside them that drives a stack of others: what a person
 * sets up, from the outside. Agents write their requests by hand, with the shell of busybox.
 *
 * The bridge is the compiled program where one can be made, else it runs from source. Engines are the
 * test's own; where one is missing or may not run, its test says so.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { TestBridge, there } from "./helpers/bridge.ts";
import { cannotCompile, compile } from "./helpers/compiled.ts";
import { Docker, type Engine } from "./helpers/engine.ts";

const COMPOSE = ["/usr/bin/docker-compose", "/usr/local/bin/docker-compose"].find(there);

const noDocker = Docker.missing() ??
  (COMPOSE === undefined ? "docker-compose is missing" : null);
/** What an agent's shell knows: to ask, and to wait for the result. */
const AGENT = `
ask() { printf '%s' "$2" > "/chb/queue/.$1.tmp" && mv "/chb/queue/.$1.tmp" "/chb/queue/$1.json"; }
await() {
  n=0
  until grep -q '"state":"done"' "/chb/results/$1.json" 2>/dev/null; do
    n=$((n + 1)); [ $n -lt 600 ] || { echo "no result of $1" >&2; exit 1; }; sleep 0.1
  done
  cat "/chb/results/$1.json"; echo
}
`;

/** Runs an agent's script in its container; the results that it printed, one a line. */
// deno-lint-ignore no-explicit-any
async function agent(engine: Engine, name: string, script: string): Promise<any[]> {
  const { code, out, err } = await engine.script(name, AGENT + script);
  assertEquals([code, err], [0, ""]);
  return out.split("\n").filter((l) => l !== "").map((l) => JSON.parse(l));
}

/** The options that \`chb mounts\` prints. */
async function mounts(bridge: TestBridge, name: string, engine: string): Promise<string[]> {
  const { code, out, err } = await bridge.chb("mounts", "--agent", name, "--engine", engine);
  assertEquals(code, 0, err);
  // As a shell would read them: nothing in a test's root has to be quoted.
  return out.trim().split(/\s+/).filter((word) => word !== "--userns=keep-id");
}

const STACK = `version: "2.4"
services:
${
  ["web", "db"].map((name) =>
    `  ${name}:
    image: box
    command: ["/bin/sh", "-c", "trap 'exit 0' TERM; echo ${name} is up; while :; do sleep 0.1; done"]
    network_mode: none
    stop_grace_period: 3s
    ulimits: { nofile: 20000 }
`
  ).join("")
}`;

function policy(host: string, marks: string): unknown {
  const compose = (...words: string[]) => [
    ...[COMPOSE ?? "", "-p", "app", "-f", "base/compose.yaml"],
    ...["--project-directory", "base/", "--env-file", "base/empty.env", ...words],
  ];
  const verb = (kind: string, argv: string[], more = {}) => ({
    description: "A verb of the stack.",
    class: kind,
    argv,
    timeout_s: 120,
    requires: argv[0]?.startsWith("base/") ? [argv[0]] : ["base/compose.yaml", "base/empty.env"],
    ...more,
  });
  const stack = { lock: "stack", approval: "never" };
  const service = { service: { type: "enum", values: ["web", "db"] } };
  const verbs = {
    up: verb("mutating", compose("up", "-d"), stack),
    ps: verb("observe", compose("ps")),
    logs: verb("observe", compose("logs", "--no-color", "{service}"), { args: service }),
    restart: verb("mutating", compose("restart", "{service}"), { ...stack, args: service }),
    down: verb("destructive", compose("down"), stack),
    work: verb("mutating", ["base/work.sh", "{id}"]),
  };
  return {
    agents: {
      main: { verbs: Object.keys(verbs), scope: "destructive", agent_gid: 1000, uids: [1000] },
      other: { verbs: ["work"], scope: "mutating" },
    },
    verbs,
    limits: { concurrency: 4, answers: 100_000 },
    env: {
      PATH: "/usr/bin:/bin",
      HOME: "/nonexistent",
      MARKS: marks,
      DOCKER_HOST: host,
      COMPOSE_DISABLE_ENV_FILE: "1",
    },
  };
}

/** A stack, two agents, and a bridge between them; the bridge serves. */
class World implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  /** Outside of everything: what the host has besides the bridge. */
  readonly canary = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-canary-" }));
  readonly marks = join(this.canary, "marks");
  engine!: Docker;
  bridge!: TestBridge;

  static async make(): Promise<World> {
    const world = new World();
    const stack = world.#stack;
    try {
      stack.defer(() => Deno.removeSync(world.canary, { recursive: true }));
      world.engine = stack.use(await Docker.start());
      const text = policy(world.engine.host, world.marks);
      const made = join(world.engine.directory, "made");
      Deno.writeTextFileSync(`${made}.jsonc`, JSON.stringify(text));
      const compiled = cannotCompile() === null;
      if (compiled) await compile("--policy", `${made}.jsonc`, "--out", made);
      world.bridge = stack.use(
        await TestBridge.make({
          policy: text,
          programs: [COMPOSE ?? ""],
          agents: ["main", "other"],
          scripts: {
            "compose.yaml": STACK,
            "empty.env": "",
            "work.sh": '#!/bin/sh\necho "$1" >> "$MARKS"\nsleep 2\necho "$1" is done\n',
          },
          ...(compiled ? { binary: made } : {}),
        }),
      );
      // As the bridge wants it where the agent is of another group.
      const queue = world.bridge.path("spool/main/queue");
      Deno.chownSync(queue, null, 1000);
      Deno.chmodSync(queue, 0o2770);
      await world.bridge.serve();
      await world.agent("main");
      await world.agent("other");
    } catch (error) {
      await stack.disposeAsync();
      throw error;
    }
    return world;
  }

  /** Starts the container of an agent: one as an ordinary user, the other as root. */
  async agent(name: "main" | "other"): Promise<void> {
    const user = name === "main" ? "1000:1000" : "0:0";
    await this.engine.start(name, "-u", user, ...await mounts(this.bridge, name, "docker"));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}

/** Ids of the stack's containers with when each was started. */
async function services(engine: Engine): Promise<Map<string, string>> {
  const ids = (await engine.ask("ps", "-q", "--filter", "label=com.docker.compose.project=app"))
    .split("\n").filter((l) => l !== "");
  if (ids.length === 0) return new Map();
  const format = '{{index .Config.Labels "com.docker.compose.service"}} {{.State.StartedAt}}';
  const lines = await engine.ask("inspect", "--format", format, ...ids);
  return new Map(lines.split("\n").map((l) => l.split(" ") as [string, string]));
}

async function stack({ engine, bridge }: World): Promise<void> {
  const [up, ps, logs] = await agent(
    engine,
    "main",
    `ask up-1 '{"verb":"up"}'; await up-1
    # Written in place, as people do by hand.
    echo '{"verb":"ps"}' > /chb/queue/ps-1.json; await ps-1
    ask logs-1 '{"verb":"logs","args":{"service":"web"}}'; await logs-1`,
  );
  assertEquals([up.outcome, up.exit_code], ["succeeded", 0], JSON.stringify(up));
  assertMatch(ps.stdout.head, /app_web_1.*Up/);
  assertMatch(ps.stdout.head, /app_db_1.*Up/);
  assertStringIncludes(logs.stdout.head, "web is up");
  const before = await services(engine);
  assertEquals([...before.keys()].toSorted(), ["db", "web"]);

  const [restart, wrong] = await agent(
    engine,
    "main",
    `ask restart-1 '{"verb":"restart","args":{"service":"web"}}'; await restart-1
    ask restart-2 '{"verb":"restart","args":{"service":"web; id"}}'; await restart-2`,
  );
  assertEquals(restart.outcome, "succeeded", JSON.stringify(restart));
  assertEquals([wrong.outcome, wrong.reason], ["rejected", "bad-args"]);
  const after = await services(engine);
  assert(after.get("web") !== before.get("web"), "web was started anew");
  assertEquals(after.get("db"), before.get("db"));
  assertEquals(bridge.queued(), []);
}

interface Wrong {
  readonly name: string;
  readonly options: (bridge: TestBridge) => string[];
  /** What the sandbox's own check says of it. */
  readonly inside: RegExp;
  /** What doctor finds. */
  readonly findings: readonly string[];
}

const ROLE = (bridge: TestBridge, role: string, how: string) =>
  `-v=${bridge.path("spool/other", role)}:/chb/${role}:${how}`;

const WRONG: readonly Wrong[] = [{
  name: "results can be written",
  options: (b) => [ROLE(b, "queue", "rw"), ROLE(b, "results", "rw"), ROLE(b, "inbox", "ro")],
  inside: /results can be written from here/,
  findings: ["mount-mode"],
}, {
  name: "the queue is read-only",
  options: (b) => [ROLE(b, "queue", "ro"), ROLE(b, "results", "ro"), ROLE(b, "inbox", "ro")],
  inside: /queue is mounted read-only/,
  findings: ["mount-mode"],
}, {
  name: "one mount of all directories",
  options: (b) => [`-v=${b.path("spool/other")}:/chb:rw`],
  inside: /queue is no mount of its own, and can be renamed from here/,
  findings: ["mount-single"],
}, {
  name: "the whole root",
  options: (b) => [`-v=${b.root}:/root:rw`, "-e=CHB_DIR=/root/spool/other"],
  inside: /the bridge's own bridge.jsonc can be seen from here/,
  findings: ["mount-host", "mount-missing"],
}, {
  name: "no inbox",
  options: (b) => [ROLE(b, "queue", "rw"), ROLE(b, "results", "ro")],
  inside: /inbox is no mount of its own/,
  findings: ["mount-missing"],
}];

/** Right and wrong mounts, as the sandbox and as doctor see them. */
async function mounted({ engine, bridge }: World): Promise<void> {
  for (const name of ["main", "other"] as const) {
    const said = await engine.script(name, "exec /bin/sh /chb/inbox/kit/check-mounts");
    assertEquals(said, { code: 0, out: "mounts: ok\n", err: "" });
  }
  const check = `-v=${inRepository("agent", "check-mounts")}:/check-mounts:ro`;
  for (const [n, wrong] of WRONG.entries()) {
    const options = [`--name=wrong-${n}`, ...wrong.options(bridge), check];
    const { code, out } = await engine.once(options, ["/bin/sh", "/check-mounts"]);
    assertMatch(out, wrong.inside, wrong.name);
    assertEquals(code, 1, wrong.name);
  }
  const { out } = await bridge.chbWith(
    await engine.ask("inspect", "main", "other", ...WRONG.map((_, n) => `wrong-${n}`)),
    ...["doctor", "--mounts", "-", "--json"],
  );
  const findings: { check: string; path: string }[] = JSON.parse(out).findings;
  const of = (name: string) =>
    findings.filter(({ path }) => path.split(":")[0] === name).map(({ check }) => check);
  for (const name of ["main", "other"]) assertEquals(of(name), []);
  for (const [n, wrong] of WRONG.entries()) {
    assertEquals(of(`wrong-${n}`), [...wrong.findings], wrong.name);
  }
}

Deno.test({
  name: "agents in Docker containers drive a stack through a bridge" +
    (noDocker === null ? "" : ` # SKIP ${noDocker}`),
  ignore: noDocker !== null,
  async fn(t) {
    await using world = await World.make();
    await t.step("mounts as the sandbox and doctor see them", () => mounted(world));
    await t.step("a stack is brought up, looked at and restarted", () => stack(world));
  },
});
