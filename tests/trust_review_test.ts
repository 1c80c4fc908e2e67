/** What a human sees before a policy is trusted. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { policyDiff, policyLines } from "../src/human/policy_words.ts";
import { composeConfig } from "../src/policy/compose_command.ts";
import { deniedCompose } from "../src/policy/compose_denials.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import type { Policy } from "../src/policy/policy.ts";
import { put, sample } from "./policy_fixture.ts";
import { TestBridge } from "./helpers/bridge.ts";

function parsed(value: unknown): Policy {
  const policy = parsePolicy(new TextEncoder().encode(JSON.stringify(value)));
  assert(policy.ok, JSON.stringify(policy));
  return policy.policy;
}

const VERB = {
  description: "A.",
  class: "mutating",
  argv: ["/usr/bin/true", "{n}"],
  args: { n: { type: "integer", min: 1, max: 9 } },
  timeout_s: 60,
};
const SMALL = {
  agents: { main: { verbs: ["a"], scope: "mutating" } },
  verbs: { a: VERB },
  env: { PATH: "/usr/bin", API_TOKEN: "sesame-sesame" },
  redact: ["do-not-show"],
};

/** Name, what is changed, lines that must be there. */
const CHANGES: readonly [string, (p: typeof SMALL) => unknown, readonly string[]][] = [
  ["a limit", (p) => ({ ...p, limits: { concurrency: 7 } }), [
    "~ limits",
    "    concurrency",
    "      was 1",
    "      now 7",
  ]],
  ["a time limit", (p) => ({ ...p, verbs: { a: { ...VERB, timeout_s: 90 } } }), [
    "~ verb a",
    "    timeout_s",
    "      was 60",
    "      now 90",
  ]],
  ["an argument vector", (p) => ({
    ...p,
    verbs: { a: { ...VERB, argv: ["/usr/bin/true", "--all", "{n}"] } },
  }), ["~ verb a", "    runs", "      was /usr/bin/true {n}", "      now /usr/bin/true --all {n}"]],
  ["an argument's bound", (p) => ({
    ...p,
    verbs: { a: { ...VERB, args: { n: { type: "integer", min: 1, max: 99 } } } },
  }), ["~ verb a", "    args"]],
  ["a wider scope", (p) => ({
    ...p,
    agents: { main: { verbs: ["a"], scope: "destructive" } },
  }), ["~ agent main", "    scope", "      was mutating", "      now destructive"]],
  ["a new verb", (p) => ({ ...p, verbs: { ...p.verbs, b: { ...VERB, lock: "x" } } }), [
    "+ verb b",
    "    runs: /usr/bin/true {n}",
    "    lock: x",
  ]],
  ["an agent that is gone", (p) => ({
    ...p,
    agents: { other: { verbs: ["a"], scope: "mutating" } },
  }), ["- agent main", "+ agent other"]],
  ["how long things are kept", (p) => ({ ...p, retention: { audit_days: 5 } }), [
    "~ retention",
    "    audit_days",
  ]],
  ["an environment value", (p) => ({ ...p, env: { ...p.env, PATH: "/bin" } }), [
    "~ verb a",
    "    env",
  ]],
  ["a secret environment value", (p) => ({ ...p, env: { ...p.env, API_TOKEN: "other-one" } }), [
    "~ verb a",
    "    env",
  ]],
  ["what is masked", (p) => ({ ...p, redact: ["do-not-tell"] }), ["~ policy", "    redact"]],
  ["what a stop does", (p) => ({ ...p, on_stop: "cancel" }), [
    "    on_stop",
    "      was leave",
    "      now cancel",
  ]],
];

for (const [name, change, wanted] of CHANGES) {
  Deno.test(`the review tells ${name}`, () => {
    const lines = policyDiff(parsed(SMALL), parsed(change(SMALL)), "salt");
    for (const line of wanted) assert(lines.includes(line), `${line} in\n${lines.join("\n")}`);
    const text = lines.join("\n");
    for (const secret of ["sesame", "other-one", "do-not"]) assert(!text.includes(secret), secret);
  });
}

Deno.test("the review tells nothing when nothing but the text differs, and all the first time", () => {
  assertEquals(policyDiff(parsed(SMALL), parsed({ $schema: "x", ...SMALL }), "salt"), []);
  const text = policyLines(parsed(SMALL), "salt").join("\n");
  assertStringIncludes(text, "verb a\n    runs: /usr/bin/true {n}\n");
  assertStringIncludes(text, "API_TOKEN=(not shown, ");
  assert(!text.includes("sesame") && !text.includes("do-not"), text);
  assert(!/description [,)]/.test(text), "an argument without words of its own");
  const { description: _, ...silent } = VERB;
  const none = policyLines(parsed({ ...SMALL, verbs: { a: silent } }), "salt").join("\n");
  assert(!none.includes("description"), "a verb without words of its own");
});

Deno.test("every value of a policy that changes is told", () => {
  const before = parsed(sample());
  const walk = (value: unknown, path: (string | number)[] = []): (string | number)[][] =>
    typeof value === "number"
      ? [path]
      : typeof value === "object" && value !== null
      ? Object.entries(value).flatMap(([k, v]) =>
        walk(v, [...path, Array.isArray(value) ? Number(k) : k])
      )
      : [];
  let told = 0;
  for (const path of walk(sample())) {
    const changed = sample();
    let old: unknown = changed;
    for (const step of path) old = (old as Record<string | number, unknown>)[step];
    put(changed, path, Number(old) + 1);
    const policy = parsePolicy(new TextEncoder().encode(JSON.stringify(changed)));
    if (!policy.ok) continue;
    told++;
    assert(policyDiff(before, policy.policy, "s").length > 0, path.join("."));
  }
  assert(told >= 10, `${told} values`);
});

const ROOT = "/srv/bridge";
const service = (fields: unknown) => ({ services: { web: fields } });

/** Compose services that hand over the host, by the path that is named. */
const DENIED: readonly [string, unknown][] = [
  ["services.web.privileged", { privileged: true }],
  ["services.web.cap_add", { cap_add: ["SYS_ADMIN"] }],
  ["services.web.devices", { devices: ["/dev/sda"] }],
  ["services.web.pid", { pid: "host" }],
  ["services.web.pid", { pid: "container:x" }],
  ["services.web.ipc", { ipc: "host" }],
  ["services.web.userns_mode", { userns_mode: "host" }],
  ["services.web.network_mode", { network_mode: "host" }],
  ["services.web.network_mode", { network_mode: "container:x" }],
  ["services.web.security_opt", { security_opt: ["seccomp:unconfined"] }],
  ["services.web.volumes_from", { volumes_from: ["container:x"] }],
  ["services.web.runtime", { runtime: "/tmp/r" }],
  ["services.web.volumes[0]", { volumes: [{ type: "bind", source: "/", target: "/h" }] }],
  ["services.web.volumes[0]", { volumes: ["/var/run/docker.sock:/s"] }],
  ["services.web.volumes[1]", {
    volumes: [{ type: "volume", source: "d" }, { type: "bind", source: "/etc", target: "/e" }],
  }],
  ["services.web.volumes[0]", { volumes: [{ type: "bind", source: `${ROOT}/base/a` }] }],
  ["services.web.volumes[0]", {
    volumes: [{ type: "bind", source: `${ROOT}/state`, read_only: true }],
  }],
  ["services.web.volumes[0]", { volumes: [{ type: "bind", source: "/srv", read_only: true }] }],
  ["services.web.build", { build: "/" }],
  ["services.web.build", { build: 7 }],
  ["services.web.build.context", { build: { context: "/" } }],
  ["services.web.build.context", { build: { context: "/home/me" } }],
  ["services.web.build.context", { build: { context: `${ROOT}/keys` } }],
  ["services.web.build.context", { build: { context: "../.." } }],
  ["services.web.build.additional_contexts.h", {
    build: { context: "/srv/project", additional_contexts: { h: "/root" } },
  }],
  ["services.web.build.additional_contexts.h", {
    build: { context: "/srv/project", additional_contexts: ["h=/etc"] },
  }],
  ["services.web.build.privileged", { build: { context: "/srv/project", privileged: true } }],
  ["services.web.build.network", { build: { context: "/srv/project", network: "host" } }],
  ["services.web.build.entitlements", {
    build: { context: "/srv/project", entitlements: ["security.insecure"] },
  }],
  ["services.web.build.ssh", { build: { context: "/srv/project", ssh: ["default"] } }],
  ["services.web.provider", { provider: { type: "model" } }],
  ["services.web.use_api_socket", { use_api_socket: true }],
  ["services.web.post_start[1].privileged", {
    post_start: [{ command: ["true"] }, { command: ["true"], privileged: true }],
  }],
  ["services.web.pre_stop[0].privileged", { pre_stop: [{ privileged: "true" }] }],
  ["services.web", 7],
];

Deno.test("what a compose file hands over is named", () => {
  for (const [path, fields] of DENIED) {
    assertEquals(deniedCompose(service(fields), ROOT).map((d) => d.path), [path]);
  }
  const file = { services: {}, secrets: { s: { file: "/root/.ssh/id_rsa" } } };
  assertEquals(deniedCompose(file, ROOT).map((d) => d.path), ["secrets.s.file"]);
  const volume = { services: {}, volumes: { v: { driver_opts: { type: "none", device: "/" } } } };
  assertEquals(deniedCompose(volume, ROOT).map((d) => d.path), ["volumes.v.driver_opts.device"]);
  for (const o of ["lowerdir=/srv/a:/,upperdir=/srv/b", "bind,lowerdir=/srv/a,workdir=/etc"]) {
    const overlay = { services: {}, volumes: { v: { driver_opts: { device: "overlay", o } } } };
    assertEquals(deniedCompose(overlay, ROOT).map((d) => d.path), ["volumes.v.driver_opts.o"]);
  }
  for (const wrong of [null, [], 7, {}, { services: [] }]) {
    assertEquals(deniedCompose(wrong, ROOT).length, 1);
  }
});

Deno.test("what a compose file may have is let through", () => {
  const fields = {
    image: "x",
    privileged: false,
    network_mode: "none",
    pid: "service:db",
    security_opt: ["no-new-privileges:true"],
    use_api_socket: false,
    post_start: [{ command: ["true"], privileged: false }, { command: ["true"] }],
    cap_drop: ["ALL"],
    volumes: [
      { type: "volume", source: "data", target: "/d" },
      { type: "bind", source: "/srv/project", target: "/p" },
      { type: "bind", source: `${ROOT}/base/conf`, target: "/c", read_only: true },
    ],
    networks: { default: null },
    build: {
      context: `${ROOT}/base/image`,
      dockerfile: "Dockerfile",
      additional_contexts: { other: "docker-image://alpine", more: "/srv/project/more" },
      network: "none",
      privileged: false,
    },
  };
  assertEquals(deniedCompose(service(fields), ROOT), []);
});

Deno.test("the command that shows a compose file is the verb's own up to its subcommand", () => {
  const config = (argv: readonly string[], args = {}) => {
    const policy = parsed({
      agents: { main: { verbs: ["a"], scope: "mutating" } },
      verbs: { a: { ...VERB, argv, args } },
    });
    const verb = policy.verbs.get("a");
    assert(verb !== undefined);
    return composeConfig(verb, ROOT);
  };
  const file = `${ROOT}/base/c.yaml`;
  const end = ["config", "--format", "json"];
  const rows: [string[], string[]][] = [
    [["/usr/bin/docker-compose", "-p", "app", "-f", "base/c.yaml", "restart", "web"], [
      "-p",
      "app",
      "-f",
      file,
    ]],
    [["/usr/bin/docker", "compose", "--file=base/c.yaml", "--verbose", "ps"], [
      "compose",
      `--file=${file}`,
      "--verbose",
    ]],
  ];
  for (const [argv, words] of rows) {
    const found = config(argv);
    assert(found !== null && "command" in found, JSON.stringify(found));
    assertEquals(found.command.argv, [...words, ...end]);
    assertEquals(found.files, ["base/c.yaml"]);
  }
  assertEquals(config(["/usr/bin/docker", "ps"]), null);
  assertEquals(config(["/usr/bin/true"]), null);
  const none = config(["/usr/bin/docker-compose", "ps"]);
  assert(none !== null && "why" in none);
});

Deno.test("chb trust shows what differs, files that are others, and what compose says; denied changes nothing", async () => {
  await using outer = await TestBridge.make({ trust: false });
  const compose = join(outer.outside, "docker-compose");
  Deno.writeTextFileSync(
    compose,
    `#!/bin/sh\ncase "$*" in *"config --format json") cat "${outer.outside}/config.json" ;; esac\n`,
  );
  Deno.chmodSync(compose, 0o755);
  const tell = (value: unknown) =>
    Deno.writeTextFileSync(join(outer.outside, "config.json"), JSON.stringify(value));
  const policy = {
    agents: { main: { verbs: ["up"], scope: "mutating" } },
    verbs: {
      up: {
        description: "Up.",
        class: "mutating",
        argv: [compose, "-f", "base/c.yaml", "up", "-d"],
        timeout_s: 60,
        requires: ["base/c.yaml"],
      },
    },
    env: { PATH: "/usr/bin:/bin" },
  };
  await using bridge = await TestBridge.make({
    policy,
    scripts: { "c.yaml": "services: {}\n" },
    trust: false,
  });
  tell({ services: { web: { image: "x" } } });
  const first = await bridge.chb("trust", "--yes");
  assertEquals(first.code, 0, first.err);
  assertStringIncludes(first.out, "verb up\n");
  assertStringIncludes(first.out, "compose base/c.yaml (up): nothing of it hands over the host");
  for (const path of ["base/c.yaml", "bin/chb", compose]) {
    assertStringIncludes(first.out, `+ file ${path}\n    sha256 `);
  }

  const same = await bridge.chb("trust", "--yes");
  assertStringIncludes(same.out, "The policy is the one in force.");
  assert(!same.out.includes("file base/c.yaml"), same.out);

  Deno.writeTextFileSync(bridge.path("base/c.yaml"), "services: {web: {}}\n");
  const changed = { ...policy, limits: { concurrency: 3 } };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(changed));
  const shown = await bridge.chb("trust");
  assertEquals(shown.code, 64, "no terminal to ask at");
  assertStringIncludes(shown.out, "~ limits\n    concurrency\n      was 1\n      now 3\n");
  assertStringIncludes(shown.out, "~ file base/c.yaml\n      was sha256 ");
  const trusted = () => JSON.stringify(bridge.audit().filter((r) => r["event"] === "trusted"));
  const before = trusted();

  tell({ services: { web: { privileged: true } } });
  const denied = await bridge.chb("trust", "--yes");
  assertEquals(denied.code, 78);
  assertStringIncludes(denied.out, "compose base/c.yaml (up): DENIED\n    services.web.privileged");
  assertEquals(trusted(), before, "nothing was trusted");

  Deno.writeTextFileSync(join(outer.outside, "config.json"), "services:\n  web: {}\n");
  const unknown = await bridge.chb("trust", "--yes");
  assertEquals(unknown.code, 0, unknown.err);
  assertStringIncludes(unknown.out, "NOT CHECKED, the engine's config gave no JSON");
});
