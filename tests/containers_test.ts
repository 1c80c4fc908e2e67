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
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { claimName } from "../src/spool/claim.ts";
import { isAddressable, isTemporary } from "../src/spool/entry_name.ts";
import { inRepository } from "../tools/launcher.ts";
import { TestBridge, there, until } from "./helpers/bridge.ts";
import { BINARY, cannotCompile, compile } from "./helpers/compiled.ts";
import { Docker, type Engine, Podman, type Said } from "./helpers/engine.ts";

const COMPOSE = ["/usr/bin/docker-compose", "/usr/local/bin/docker-compose"].find(there);

const noDocker = Docker.missing() ??
  (COMPOSE === undefined ? "docker-compose is missing" : null);
const noPodman = Podman.missing();

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
    command: ["/bin/sh", "-c", "trap 'exit 0' TERM; echo ${name} is up; sleep 100000 & wait"]
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
    say: verb("mutating", ["base/say.sh", "{word}"], {
      args: { word: { type: "enum", values: ["kept", "sold"] } },
    }),
    "say-asked": verb("mutating", ["base/say.sh", "{word}"], {
      args: { word: { type: "enum", values: ["kept", "sold"] } },
      approval: "always",
    }),
  };
  return {
    agents: {
      main: { verbs: Object.keys(verbs), scope: "destructive", agent_gid: 1000, uids: [1000] },
      other: { verbs: ["work", "say", "say-asked"], scope: "mutating" },
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
            "say.sh": '#!/bin/sh\necho "say $1" >> "$MARKS"\necho "$1"\n',
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

  async killAgent(name: "main" | "other"): Promise<void> {
    await this.engine.kill(name);
  }

  /** How often an event was told in the audit log of a request. */
  told(id: string, event: string): number {
    return this.bridge.audit().filter((r) => r["id"] === id && r["event"] === event).length;
  }

  async running(id: string, agent = "main"): Promise<void> {
    const path = this.bridge.path("spool", agent, "results", `${id}.json`);
    await until(`${id} to run`, () => there(path) && /"running"/.test(Deno.readTextFileSync(path)));
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

/** Kills agent, daemon and both in mid-run; every verb of the stack still has its one effect. */
async function kills(world: World): Promise<void> {
  const { engine, bridge } = world;
  const before = await services(engine);
  await agent(engine, "main", `ask kill-1 '{"verb":"restart","args":{"service":"db"}}'`);
  await world.running("kill-1");
  await world.killAgent("main");
  await world.agent("main");
  const [restarted] = await agent(engine, "main", "await kill-1");
  assertEquals(restarted.outcome, "succeeded", JSON.stringify(restarted));
  const after = await services(engine);
  assert(after.get("db") !== before.get("db"), "db was started anew");

  await agent(engine, "main", `ask kill-2 '{"verb":"work"}'`);
  await world.running("kill-2");
  await bridge.stop("SIGKILL");
  // Nobody serves: what is asked now is answered later.
  await agent(engine, "main", `ask kill-3 '{"verb":"work"}'`);
  await bridge.serve();
  const both = await agent(engine, "main", "await kill-2; await kill-3");
  assertEquals(both.map((r) => r.stdout.head), ["kill-2 is done\n", "kill-3 is done\n"]);

  await agent(engine, "main", `ask kill-4 '{"verb":"down"}'; ask kill-5 '{"verb":"work"}'`);
  await world.running("kill-4");
  await world.running("kill-5");
  await bridge.stop("SIGKILL");
  await world.killAgent("main");
  await bridge.serve();
  await world.agent("main");
  const ended = await agent(engine, "main", "await kill-4; await kill-5");
  assertEquals(ended.map((r) => [r.outcome, r.attempt]), [["succeeded", 1], ["succeeded", 1]]);
  assertEquals(await services(engine), new Map());

  for (const id of ["kill-1", "kill-2", "kill-3", "kill-4", "kill-5"]) {
    assertEquals([world.told(id, "started"), world.told(id, "finished")], [1, 1], id);
  }
  const ran = Deno.readTextFileSync(world.marks).trim().split("\n");
  assertEquals(ran.filter((id) => id.startsWith("kill-")), ["kill-2", "kill-3", "kill-5"]);
}

/** The other agent sees nothing of the first, and cannot act for it. */
async function apart(world: World): Promise<void> {
  const { engine } = world;
  await agent(engine, "main", `ask long '{"verb":"work","note":"nobody else knows"}'`);
  await world.running("long");
  const said = await agent(
    engine,
    "other",
    `ask stop '{"verb":"bridge.cancel","args":{"id":"long"}}'; await stop
    ask long '{"verb":"work"}'; await long
    ask foreign '{"verb":"up"}'; await foreign`,
  );
  assertEquals(said[0].outcome, "rejected", JSON.stringify(said[0]));
  assertEquals([said[1].agent, said[1].outcome], ["other", "succeeded"]);
  assertEquals([said[2].outcome, said[2].reason], ["rejected", "unknown-verb"]);
  const [own] = await agent(engine, "main", "await long");
  assertEquals([own.agent, own.outcome, own.replays ?? 0], ["main", "succeeded", 0]);
  const seen = await engine.script(
    "other",
    "grep -rl 'nobody else' /chb; ls /chb/results/up-1.json; ls -a /chb/..; :",
  );
  assertEquals(seen.out.includes("/chb/"), false, seen.out);
  assert(!seen.out.includes("bridge.jsonc") && !seen.out.includes("spool"), seen.out);
}

/** A request's text; both words make it equally long. */
const said = (verb: string, word: "kept" | "sold") =>
  JSON.stringify({ verb, idempotency_key: verb, args: { word } });

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/**
 * Root in a container keeps a request's file open while the host claims it: it changes the bytes
 * afterwards, and links the file back into the queue. What was checked is what runs, once.
 */
async function held({ engine, bridge, marks }: World): Promise<void> {
  const spoken = () => Deno.readTextFileSync(marks).split("\n").filter((l) => /^say /.test(l));
  const hold = (id: string, verb: string, then: string) =>
    engine.script(
      "other",
      `cd /chb/queue
      printf '%s' '${said(verb, "kept")}' > .${id}.tmp
      exec 3<>.${id}.tmp
      mv .${id}.tmp ${id}.json
      n=0
      while [ -e ${id}.json ] && [ $n -lt 600 ]; do n=$((n + 1)); sleep 0.1; done
      ${then}`,
    );

  // Changed between the check and the start.
  const waits = `until grep -q approval /chb/results/held-1.json; do sleep 0.1; done
    printf '%s' '${said("say-asked", "sold")}' >&3
    gnu-ln -L /proc/$$/fd/3 back-1.json 2>&1; ls`;
  const late = await hold("held-1", "say-asked", waits);
  assertMatch(late.out, /^gnu-ln: .*No such file or directory\n$/);
  const { pending } = JSON.parse((await bridge.chb("pending", "--json")).out);
  assertEquals(pending.length, 1);
  const { code, err } = await bridge.chb("approve", "other/held-1", pending[0].run.digest);
  assertEquals(code, 0, err);
  const [one] = await agent(engine, "other", "await held-1");
  assertEquals([one.outcome, one.stdout.head], ["succeeded", "kept\n"]);
  assertEquals(one.request_sha256, sha256(said("say-asked", "kept")));
  assertEquals(spoken(), ["say kept"]);

  // Linked back while the claim is there: the daemon dies between the claim and the look at it.
  await bridge.stop("SIGKILL");
  const back = hold(
    "held-2",
    "say",
    `gnu-ln -L /proc/$$/fd/3 back-2.json; printf '%s' '${said("say", "sold")}' >&3`,
  );
  const queued = bridge.path("spool/other/queue/held-2.json");
  await until("held-2", () => there(queued));
  const claim = claimName({ id: "held-2", arrival_ms: Date.now(), random: "a".repeat(32) });
  Deno.renameSync(queued, bridge.path("work/other/claims", claim));
  assertEquals(await back, { code: 0, out: "", err: "" });
  await bridge.serve();
  const two = await agent(engine, "other", "await held-2; await back-2");
  assertEquals(two.map((r) => [r.outcome, r.reason]), [["rejected", "not-regular"], [
    "succeeded",
    "ok",
  ]]);
  // A request of its own, with what was in the file when it was read.
  assertEquals([two[1].stdout.head, two[1].request_sha256], [
    "sold\n",
    sha256(said("say", "sold")),
  ]);
  assertEquals(spoken(), ["say kept", "say sold"]);
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

/** Tries everything to get out, or to make the host touch what it should not. */
const ESCAPE = `
canary=$1
root=$2
no() { if "$@" 2>/dev/null; then echo "could: $*"; fi; }

# The directories themselves.
for role in queue results inbox; do
  no mv /chb/$role /chb/gone
  no rmdir /chb/$role
  no umount /chb/$role
  no mount -o remount,rw /chb/$role
  no mount -t tmpfs none /chb/$role
done
# What is not the agent's to write.
for role in results inbox; do
  no sh -c ": > /chb/$role/forged.json"
  no mkdir /chb/$role/forged
  no ln -s "$canary" /chb/$role/forged.link
  no mknod /chb/$role/forged.pipe p
  no chmod 777 /chb/$role
  no chown 1000 /chb/$role
  no mv /chb/queue/.x /chb/$role/x
done
no sh -c 'echo 1 >> /chb/results/before.json'
no rm -f /chb/results/before.json
no rm -rf /chb/inbox/kit
no ln /chb/results/before.json /chb/queue/linked.json

cd /chb/queue
# Links to the host, by every way that a path can take.
n=0
for to in "$canary/secret.json" "$canary" "$root/bridge.jsonc" "$root/state/ledger.db" /etc/shadow \\
  ../results/before.json ../../../bridge.jsonc ../../../state ../../other . .. / /dev/zero \\
  /proc/self/environ /proc/1/root link-99.json; do
  n=$((n + 1))
  ln -s "$to" link-$n.json
  ln -s "$to" .link-$n.tmp
done
ln -s loop-b.json loop-a.json; ln -s loop-a.json loop-b.json
# Everything that is no file.
mknod zero.json c 1 5
mknod mem.json c 1 1
mknod disk.json b 8 0
mknod pipe.json p
mkdir -p dir.json/deep/deeper full.json
: > full.json/request.json
chmod 0 dir.json
ln -s "$canary" dir.json/deep/out
# One inode under several names, one of them a request's.
echo '{"verb":"work"}' > .one.tmp
ln .one.tmp hard-1.json
ln .one.tmp hard-2.json
ln -s .one.tmp soft.json
# A program's bits on a request.
echo '{"verb":"work","id":"suid"}' > .suid.tmp; chmod 6777 .suid.tmp; chown 1234:1234 .suid.tmp
mv .suid.tmp suid.json
# Names.
: > "$(printf 'new\\nline.json')"; : > "$(printf 'esc\\033[2J.json')"; : > .json; : > "..json"
: > "$(printf 'bad\\377.json')"; : > '$(touch x).json'; : > "--help.json"

# A descriptor that is held over the claim, and an inode that is linked back whenever it can be.
echo '{"verb":"work","id":"held"}' > .held.tmp
exec 3<>.held.tmp
mv .held.tmp held.json
n=0
while [ $n -lt 100 ]; do
  n=$((n + 1))
  gnu-ln -L /proc/$$/fd/3 back-$n.json 2>/dev/null
done
printf '{"verb":"leak","id":"held"}' >&3

# A directory that one is in while the host puts it away: above it lies the host.
mkdir -p inside.json/deep; : > inside.json/deep/x
exec 4< inside.json/deep
cd inside.json/deep
n=0
while [ -e /chb/queue/inside.json ] && [ $n -lt 300 ]; do n=$((n + 1)); sleep 0.1; done
[ ! -e /chb/queue/inside.json ] || echo "inside.json was not taken away"
no ls ../../..
no cat ../../../../../bridge.jsonc
no sh -c 'cd ../../.. && ls'
no ls /proc/$$/fd/4/../../..
no sh -c ': > ../../../planted'
no mv x ../../../planted
# Into itself, once it lies with the host.
ln -s "$canary" link; mkdir more; : > more/file
exit 0
`;

/** What only the host's files hold. */
const SECRET = "nobody but the host knows";

/** Kind, owner, mode, times and content of everything in a tree, but for what `skip` names. */
function listing(tree: string, skip: (path: string) => boolean): Map<string, string> {
  const seen = new Map<string, string>();
  const walk = (path: string) => {
    const info = Deno.lstatSync(path);
    const kind = info.isDirectory ? "d" : info.isFile ? "f" : info.isSymlink ? "l" : "?";
    const facts = [kind, info.ino, info.mode, info.uid, info.gid];
    if (info.isFile) {
      const hash = createHash("sha256").update(Deno.readFileSync(path)).digest("hex");
      facts.push(info.nlink, info.size, info.mtime?.getTime() ?? 0, hash);
    }
    if (info.isSymlink) facts.push(Deno.readLinkSync(path));
    seen.set(path.slice(tree.length), facts.join(" "));
    if (!info.isDirectory) return;
    for (const { name } of Deno.readDirSync(path)) {
      if (!isAddressable(name) || skip(join(path, name).slice(tree.length + 1))) continue;
      walk(join(path, name));
    }
  };
  walk(tree);
  return seen;
}

/** What a bridge at work changes itself: what lies in the directories of its agents, and its state. */
const OWN =
  /^(spool\/\w+\/\w+\/|work\/\w+\/\w+\/|state\/(ledger\.db|runs\/|blank\/|audit\/|control\/|daemon\.json|reserve))/;

async function escape(world: World): Promise<void> {
  const { engine, bridge, canary } = world;
  await agent(engine, "other", `ask before '{"verb":"work"}'; await before`);
  Deno.mkdirSync(join(canary, "deep"));
  for (const name of ["secret.json", "deep/secret"]) {
    Deno.writeTextFileSync(join(canary, name), `{"verb":"work","note":"${SECRET}"}\n`);
  }
  const marks = (path: string) => path === "marks";
  const own = (path: string) => OWN.test(path);
  const before = [listing(bridge.root, own), listing(canary, marks)];
  const ran = () => Deno.readTextFileSync(world.marks).trim().split("\n");
  const ranBefore = ran().length;

  const said: Said = await engine.script("other", ESCAPE, canary, bridge.root);
  assertEquals({ ...said, err: "" }, { code: 0, out: "", err: "" }, said.err);

  // The bridge goes on: for the other agent, and for the one that tried.
  const [well] = await agent(engine, "main", `ask well '{"verb":"work"}'; await well`);
  assertEquals(well.outcome, "succeeded");
  const [own2] = await agent(engine, "other", `ask well '{"verb":"work"}'; await well`);
  assertEquals(own2.outcome, "succeeded");
  const queue = bridge.path("spool/other/queue");
  await until(
    "the end of the claims",
    () => [...Deno.readDirSync(bridge.path("work/other/claims"))].length === 0,
    30_000,
  );
  // Only what the runtime cannot name, and temporary names, whose time has not come.
  const left = [...Deno.readDirSync(queue)].map(({ name }) => name)
    .filter((name) => !isTemporary(name));
  assertEquals(left, ["bad\ufffd.json"]);
  await until("the end of all runs", () => {
    const of = (event: string) => bridge.audit().filter((r) => r["event"] === event).length;
    return of("started") === of("finished");
  }, 30_000);
  assertEquals([listing(bridge.root, own), listing(canary, marks)], before);
  // Once each, and only what may have been a request of its own.
  const now = ran().slice(ranBefore);
  assertEquals(now.length, new Set(now).size + (now.filter((id) => id === "well").length - 1));
  const allowed = /^(well|held|suid|hard-[12]|back-\d+|again)$/;
  assertEquals(now.filter((id) => !allowed.test(id)), []);
  for (const place of ["spool", "work", "state"]) {
    for (const [path, facts] of listing(bridge.path(place), () => false)) {
      if (!facts.startsWith("f")) continue;
      const bytes = Buffer.from(Deno.readFileSync(bridge.path(place) + path));
      assert(!bytes.includes(SECRET), `${place}${path}`);
    }
  }
  const doctor = await bridge.chb("doctor", "--json");
  const checks = JSON.parse(doctor.out).findings.filter((f: { level: string; check: string }) =>
    // Where it could not be compiled it runs from source, which is one.
    f.level === "error" && f.check !== "source"
  );
  assertEquals(checks, []);
}

Deno.test({
  name: "agents in Docker containers drive a stack, are killed, are kept apart and cannot leave" +
    (noDocker === null ? "" : ` # SKIP ${noDocker}`),
  ignore: noDocker !== null,
  async fn(t) {
    await using world = await World.make();
    await t.step("mounts as the sandbox and doctor see them", () => mounted(world));
    await t.step("a stack is brought up, looked at and restarted", () => stack(world));
    await t.step("agent, daemon and both are killed in mid-run", () => kills(world));
    await t.step("a second agent is apart", () => apart(world));
    await t.step("bytes change after the claim", () => held(world));
    await t.step(
      "nothing outside of the spool changes, whatever an agent tries",
      () => escape(world),
    );
  },
});

Deno.test({
  name: "an agent in a podman container" + (noPodman === null ? "" : ` # SKIP ${noPodman}`),
  ignore: noPodman !== null,
  async fn() {
    await using engine = await Podman.start();
    await using bridge = await TestBridge.make({
      policy: {
        agents: { main: { verbs: ["date"], agent_gid: 1000, uids: [1000] } },
        verbs: {
          date: {
            description: "The time.",
            class: "observe",
            argv: ["/usr/bin/date", "+%s"],
            timeout_s: 20,
          },
        },
      },
      ...(BINARY === undefined ? {} : { binary: BINARY }),
    });
    const queue = bridge.path("spool/main/queue");
    Deno.chownSync(queue, null, 1000);
    Deno.chmodSync(queue, 0o2770);
    await bridge.serve();
    const options = await mounts(bridge, "main", "podman");
    await engine.start("main", "-u=1000:1000", ...options);
    const check = await engine.script("main", "exec /bin/sh /chb/inbox/kit/check-mounts");
    assertEquals(check, { code: 0, out: "mounts: ok\n", err: "" });
    const [date] = await agent(engine, "main", `ask d1 '{"verb":"date"}'; await d1`);
    assertMatch(date.stdout.head, /^\d+\n$/);
    const inspected = await engine.ask("inspect", "main");
    const { out } = await bridge.chbWith(inspected, "doctor", "--mounts", "-", "--json");
    assertEquals(
      JSON.parse(out).findings.filter((f: { check: string }) => /^mount/.test(f.check)),
      [],
    );

    await agent(engine, "main", `ask d2 '{"verb":"date"}'`);
    await engine.kill("main");
    await engine.start("main", "-u=1000:1000", ...options);
    const [again] = await agent(engine, "main", "await d2");
    assertEquals(again.outcome, "succeeded");
    assertEquals(bridge.queued(), []);
  },
});
