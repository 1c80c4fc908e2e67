/**
 * A compose project whose inputs change between a human's word and the start: each changed input is
 * named, the word is void, and nothing starts. The engine is a script that tells what it was given.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { deniedEnvironment } from "../src/policy/denials.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import { argvErrors, errorsOf, verbPolicy } from "./policy_fixture.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

/** What a compose project is made of, and what an agent would make of it. */
const INPUTS: readonly (readonly [file: string, change: (path: string) => void])[] = [
  ["compose.yaml", write("services: {web: {image: x, privileged: true}}\n")],
  ["compose.override.yaml", write("services: {web: {pid: host}}\n")],
  [".env", write("COMPOSE_FILE=/tmp/agent.yaml\n")],
  ["included.yaml", write('services: {w: {volumes: ["/:/host"]}}\n')],
  ["Dockerfile", write("FROM agent/image\nRUN evil\n")],
  ["bind-source", (path) => {
    Deno.removeSync(path);
    Deno.symlinkSync("/", path);
  }],
];

function write(text: string): (path: string) => void {
  return (path) => Deno.writeTextFileSync(path, text);
}

/** A variable of whoever starts the daemon, by name, that must reach no command. */
const HOSTILE = {
  BASH_ENV: "/tmp/evil.sh",
  ENV: "/tmp/evil.sh",
  DOCKER_HOST: "tcp://127.0.0.1:1",
  DOCKER_CONFIG: "/tmp/evil",
  COMPOSE_FILE: "/tmp/evil.yaml",
  COMPOSE_PROJECT_NAME: "evil",
  LD_LIBRARY_PATH: "/tmp/evil",
};

/** Directories of a test, gone at its end. */
class Place implements Disposable {
  readonly path = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-compose-" }));

  /** The engine: `config` prints a file, `wait` waits for one, all else is noted. */
  engine(): string {
    const dir = this.path;
    const path = join(dir, "docker-compose");
    Deno.writeTextFileSync(
      path,
      `#!/bin/sh
case "$*" in
*"config --format json") cat "${dir}/config.json" ;;
*wait) while [ ! -e "${dir}/go" ]; do sleep 0.05; done; echo wait >> "${dir}/ran" ;;
*) pwd > "${dir}/said"; env | sort >> "${dir}/said"; printf 'arg %s\\n' "$@" >> "${dir}/said"
  echo up >> "${dir}/ran" ;;
esac
`,
    );
    Deno.chmodSync(path, 0o755);
    return path;
  }

  config(service: unknown): void {
    Deno.writeTextFileSync(
      join(this.path, "config.json"),
      JSON.stringify({ services: { web: service } }),
    );
  }

  ran(): string[] {
    const path = join(this.path, "ran");
    return there(path) ? Deno.readTextFileSync(path).trim().split("\n") : [];
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.path, { recursive: true });
  }
}

Deno.test("situation 10 X3 X7: every input of a compose project that changed is named, voids the word, and nothing starts", async () => {
  using place = new Place();
  place.config({ image: "x" });
  const engine = place.engine();
  const id = (file: string) => `up-${file.replaceAll(".", "-").toLowerCase()}`.replace("--", "-");
  const argv = [
    engine,
    "-p",
    "app",
    "-f",
    "base/compose.yaml",
    "--env-file",
    "/dev/null",
    "up",
    "-d",
  ];
  const verbs = Object.fromEntries(INPUTS.map(([file]) => [
    id(file),
    verb(argv, { class: "mutating", approval: "always", requires: [`base/${file}`] }),
  ]));
  await using bridge = await TestBridge.make({
    policy: {
      agents: { main: { verbs: ["hold", ...Object.keys(verbs)], scope: "mutating" } },
      verbs: {
        hold: verb([engine, "-f", "base/compose.yaml", "wait"], { class: "mutating" }),
        ...verbs,
      },
      limits: { concurrency: 1, answers: 100_000 },
      env: { PATH: "/usr/bin:/bin", COMPOSE_DISABLE_ENV_FILE: "1" },
    },
    scripts: Object.fromEntries(INPUTS.map(([file]) => [file, `#!/bin/sh\n# trusted ${file}\n`])),
  });
  // Whoever starts the daemon has a hostile environment.
  bridge.program = join(place.path, "start");
  const exports = Object.entries(HOSTILE).map(([name, value]) => `export ${name}=${value}\n`);
  Deno.writeTextFileSync(bridge.program, `#!/bin/sh\n${exports.join("")}exec ./bin/chb "$@"\n`);
  Deno.chmodSync(bridge.program, 0o755);
  await bridge.serve();

  for (const [file] of INPUTS) bridge.submit(id(file), { verb: id(file), plan: "bring it up" });
  for (const [file] of INPUTS) {
    await until(`${file} to wait`, () => bridge.result(id(file))?.waiting_for === "approval");
  }
  bridge.submit("hold", { verb: "hold" });
  await until("the slot to be taken", () => bridge.result("hold")?.state === "running");
  const listed = JSON.parse((await bridge.chb("pending", "--json")).out);
  for (const { id, run } of listed.pending as { id: string; run: { digest: string } }[]) {
    const { code, err } = await bridge.chb("approve", `main/${id}`, run.digest);
    assertEquals(code, 0, err);
  }
  for (const [file] of INPUTS) {
    await until(`${file} to be approved`, () => bridge.result(id(file))?.waiting_for === "slot");
  }

  for (const [file, change] of INPUTS) change(bridge.path("base", file));
  Deno.writeTextFileSync(join(place.path, "go"), "");
  for (const [file] of INPUTS) {
    const { outcome, reason, stage, message } = await bridge.final(id(file), 60_000);
    assertEquals([file, outcome, reason, stage], [file, "rejected", "base-changed", "recheck"]);
    assertStringIncludes(message ?? "", `base/${file}`);
  }
  assertEquals(place.ran(), ["wait"]);
  const started = bridge.audit().filter((r) => r["event"] === "started").map((r) => r["id"]);
  assertEquals(started, ["hold"]);

  // Put back, each waits for a word again: the one that was given was for another base.
  for (const [file] of INPUTS) {
    const path = bridge.path("base", file);
    Deno.removeSync(path);
    Deno.writeTextFileSync(path, `#!/bin/sh\n# trusted ${file}\n`);
    bridge.submit(id(file), { verb: id(file), plan: "bring it up" });
  }
  for (const [file] of INPUTS) {
    await until(`${file} to wait`, () => bridge.result(id(file))?.waiting_for === "approval");
  }
  assertEquals(place.ran(), ["wait"]);

  // What starts in the end has the host's environment, and only what the policy names.
  const again = JSON.parse((await bridge.chb("pending", "--json")).out);
  const [one] = again.pending as { id: string; run: { digest: string } }[];
  assert(one !== undefined);
  const word = await bridge.chb("approve", `main/${one.id}`, one.run.digest);
  assertEquals(word.code, 0, word.err);
  assertEquals((await bridge.final(one.id)).outcome, "succeeded");
  assertEquals(place.ran(), ["wait", "up"]);
  const said = Deno.readTextFileSync(join(place.path, "said")).trim().split("\n");
  // The shell of the script sets these two itself.
  const own = said.filter((line) => !/^(?:PWD|OLDPWD|SHLVL|_)=/.test(line));
  assertEquals(own, [
    "/",
    "COMPOSE_DISABLE_ENV_FILE=1",
    "PATH=/usr/bin:/bin",
    ...["-p", "app", "-f", bridge.path("base/compose.yaml")].map((word) => `arg ${word}`),
    ...["--env-file", "/dev/null", "up", "-d"].map((word) => `arg ${word}`),
  ]);

  // A change that a human is about to trust: what it hands over is named, and nothing is changed.
  place.config({
    cap_add: ["SYS_ADMIN"],
    security_opt: ["seccomp:unconfined"],
    pid: "container:x",
    devices: ["/dev/sda"],
    build: { context: "/" },
    volumes: [{ type: "bind", source: "/", target: "/host" }],
  });
  const before = bridge.audit().filter((r) => r["event"] === "trusted").length;
  const denied = await bridge.chb("trust", "--yes");
  assertEquals(denied.code, 78);
  for (
    const field of ["cap_add", "security_opt", "pid", "devices", "build.context", "volumes[0]"]
  ) {
    assertStringIncludes(denied.out, `    services.web.${field}: `);
  }
  // So is a tree that was copied into base/ with a link in it that leads to the host.
  place.config({ image: "x" });
  Deno.symlinkSync("/", bridge.path("base/copied"));
  const linked = await bridge.chb("trust", "--yes");
  assertEquals(linked.code, 78, linked.out);
  assertStringIncludes(linked.out + linked.err, "base/copied");
  assertEquals(bridge.audit().filter((r) => r["event"] === "trusted").length, before);
});

Deno.test("situation 10 X7: no request sets environment, working directory, input or program", async () => {
  const verbs = { up: verb(["/usr/bin/true"]) };
  await using bridge = await TestBridge.start({ verbs });
  const names = ["BASH_ENV", "LD_PRELOAD", "DOCKER_HOST", "COMPOSE_FILE", "PATH"];
  const requests: Record<string, unknown>[] = [
    ...names.flatMap((name) => [
      { verb: "up", env: { [name]: "x" } },
      { verb: "up", environment: [`${name}=x`] },
      { verb: "up", [name]: "x" },
      { verb: "up", args: { [name]: "x" } },
      { verb: "up", args: { env: { [name]: "x" } } },
    ]),
    { verb: "up", cwd: "/tmp" },
    { verb: "up", stdin: "x" },
    { verb: "up", argv: ["/usr/bin/id"] },
    { verb: "up", program: "/usr/bin/id" },
  ];
  requests.forEach((request, i) => bridge.submit(`r${i}`, request));
  for (const [i, request] of requests.entries()) {
    const { outcome, reason, message } = await bridge.final(`r${i}`, 60_000);
    const inArgs = "args" in request;
    assertEquals(
      [outcome, reason],
      ["rejected", inArgs ? "bad-args" : "schema"],
      JSON.stringify(request),
    );
    const field = Object.keys(inArgs ? request["args"] as object : request).find((k) =>
      k !== "verb"
    );
    assertStringIncludes(message ?? "", field ?? "", "the field is named");
  }
  assertEquals(bridge.audit().filter((r) => r["event"] === "started").length, 0);
});

Deno.test("situation 10 X7: no policy sets what makes programs load or run something", () => {
  for (
    const [name, value, rule] of [
      ["BASH_ENV", "/srv/x", "environment-name"],
      ["LD_PRELOAD", "/srv/x.so", "environment-name"],
      ["PATH", "/tmp/bin:/usr/bin", "environment-path"],
      ["PATH", "", "environment-path"],
      ["COMPOSE_FILE", "spool/main/queue/c.yaml", "spool-path"],
      ["DOCKER_CONFIG", "spool/main/queue", "spool-path"],
    ] as const
  ) {
    const verb = {
      class: "observe",
      timeout_s: 5,
      argv: ["/usr/bin/true"],
      env: { [name]: value },
    };
    assertEquals(errorsOf(verbPolicy(verb)).map((e) => [e.path, e.rule]), [[
      `verbs.v.env.${name}`,
      rule,
    ]]);
    const whole = { ...(verbPolicy({ ...verb, env: {} }) as object), env: { [name]: value } };
    assertEquals(errorsOf(whole).map((e) => [e.path, e.rule]), [[`env.${name}`, rule]]);
  }
  // Which engine is a host's matter; a request can choose none.
  assertEquals(deniedEnvironment("DOCKER_HOST", "unix:///run/user/1000/docker.sock"), null);
  const chosen = argvErrors(["/usr/bin/docker", "-H", "{h}", "ps"], { h: { type: "name" } });
  assertEquals(chosen.map((e) => e.rule), ["container-endpoint"]);
});

Deno.test("X3 a compose command that would look for its files itself is warned of", () => {
  const warned = (argv: string[], env: Record<string, string> = {}) => {
    const policy = verbPolicy({
      class: "mutating",
      timeout_s: 5,
      argv,
      cwd: "/srv/app",
      env,
      requires: [],
    });
    const parsed = parsePolicy(new TextEncoder().encode(JSON.stringify(policy)));
    assert(parsed.ok, JSON.stringify(parsed));
    return parsed.warnings.map((w) => w.rule).filter((rule) => rule === "compose-lookup");
  };
  for (
    const argv of [
      ["/usr/bin/docker-compose", "up"],
      ["/usr/bin/docker-compose", "-f", "compose.yaml", "up"],
      ["/usr/bin/docker", "compose", "--file=./compose.yaml", "up"],
    ]
  ) assertEquals(warned(argv), ["compose-lookup"], argv.join(" "));
  assertEquals(warned(["/usr/bin/docker-compose", "-f", "base/compose.yaml", "up"]), []);
});
