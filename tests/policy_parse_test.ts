/** Policy text to a frozen policy: what is wrong is told with its path, what is right beside it. */
import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import { LIMITS } from "../src/policy/policy_table.ts";
import { FrozenMap } from "../src/policy/frozen.ts";
import { policyPrograms } from "../src/policy/programs.ts";
import { MAX_POLICY_BYTES } from "../src/policy/read_jsonc.ts";
import { changed, errorsOf, parseObject, parseText, sample, valid } from "./policy_fixture.ts";

type Path = readonly (string | number)[];
const RESTART: Path = ["verbs", "restart"];
const DEPLOY: Path = ["verbs", "deploy"];
const NOTE: Path = ["verbs", "note"];

/** One wrong value, the path that the error has to name, and a neighbour that is fine. */
interface Row {
  readonly name: string;
  readonly at: Path;
  readonly wrong: unknown;
  readonly error: string;
  readonly fine: unknown;
}

function row(name: string, at: Path, wrong: unknown, error: string, fine: unknown): Row {
  return { name, at, wrong, error, fine };
}

const EMPTY_BESIDES = { class: "observe", argv: ["/usr/bin/true"], timeout_s: 1 };

const ROWS: readonly Row[] = [
  row("agents missing", ["agents"], undefined, "", { main: { verbs: [] } }),
  row("agents empty", ["agents"], {}, "agents", { main: { verbs: [] } }),
  row("agents a list", ["agents"], [], "agents", { a: { verbs: ["ps"] } }),
  row("agent name with a dot", ["agents", "a.b"], { verbs: [] }, 'agents["a.b"]', undefined),
  row("agent name in capitals", ["agents", "Main"], { verbs: [] }, "agents.Main", undefined),
  row(
    "agent name too long",
    ["agents", "a".repeat(65)],
    { verbs: [] },
    `agents.${"a".repeat(65)}`,
    undefined,
  ),
  row("agent without verbs", ["agents", "other", "verbs"], undefined, "agents.other", []),
  row("unknown verb of an agent", ["agents", "other", "verbs"], ["sp"], "agents.other.verbs[0]", [
    "ps",
  ]),
  row("verb named twice", ["agents", "other", "verbs"], ["ps", "ps"], "agents.other.verbs[1]", [
    "ps",
    "note",
  ]),
  row(
    "built-in verb listed",
    ["agents", "other", "verbs"],
    ["bridge.ping"],
    "agents.other.verbs[0]",
    [],
  ),
  row("scope misspelt", ["agents", "main", "scope"], "mutate", "agents.main.scope", "mutating"),
  row("scope a number", ["agents", "main", "scope"], 1, "agents.main.scope", "observe"),
  row(
    "auth by an algorithm",
    ["agents", "main", "auth"],
    "hmac-sha256",
    "agents.main.auth",
    "signed",
  ),
  row(
    "synced mount without signatures",
    ["agents", "other", "mount"],
    "synced",
    "agents.other.mount",
    "role",
  ),
  row(
    "window of no time",
    ["agents", "main", "signature_window_s"],
    0,
    "agents.main.signature_window_s",
    1,
  ),
  row(
    "window of more than a day",
    ["agents", "main", "signature_window_s"],
    86_401,
    "agents.main.signature_window_s",
    86_400,
  ),
  row(
    "single mount without uid",
    ["agents", "main", "mount"],
    "single",
    "agents.main.mount",
    "role",
  ),
  row("uid below zero", ["agents", "other", "agent_uid"], -1, "agents.other.agent_uid", 0),
  row(
    "uid of nobody at all",
    ["agents", "other", "agent_uid"],
    4294967295,
    "agents.other.agent_uid",
    4294967294,
  ),
  row("gid as text", ["agents", "main", "agent_gid"], "1000", "agents.main.agent_gid", 1000),
  row("uids not a list", ["agents", "main", "uids"], 5, "agents.main.uids", [5]),
  row("uids with a fraction", ["agents", "main", "uids"], [1.5], "agents.main.uids[0]", [1]),
  row("unknown key of an agent", ["agents", "main", "verb"], ["ps"], "agents.main.verb", undefined),

  row("verb name with a space", ["verbs", "a b"], EMPTY_BESIDES, 'verbs["a b"]', undefined),
  row("verb without class", [...RESTART, "class"], undefined, "verbs.restart", "mutating"),
  row("verb without timeout", [...RESTART, "timeout_s"], undefined, "verbs.restart", 1),
  row("verb without argv", [...NOTE, "argv"], undefined, "verbs.note", [
    "/usr/bin/logger",
    "--tag={tag}",
    "--",
    "{text}",
  ]),
  row("class misspelt", [...RESTART, "class"], "mutatin", "verbs.restart.class", "destructive"),
  row("class a list", [...RESTART, "class"], ["mutating"], "verbs.restart.class", "mutating"),
  row("timeout of zero", [...RESTART, "timeout_s"], 0, "verbs.restart.timeout_s", 1),
  row("timeout above a week", [...RESTART, "timeout_s"], 604801, "verbs.restart.timeout_s", 604800),
  row("timeout as text", [...RESTART, "timeout_s"], "soon", "verbs.restart.timeout_s", 2.5),
  row("argv empty", [...NOTE, "argv"], [], "verbs.note.argv", [
    "/usr/bin/logger",
    "--tag={tag}",
    "--",
    "{text}",
  ]),
  row("argv with a number", [...NOTE, "argv", 1], 5, "verbs.note.argv[1]", "--tag={tag}"),
  row(
    "argv with a newline",
    [...RESTART, "argv", 3],
    "re\nstart",
    "verbs.restart.argv[3]",
    "restart",
  ),
  row(
    "argv with NUL (J6)",
    [...RESTART, "argv", 3],
    "re\0start",
    "verbs.restart.argv[3]",
    "restart",
  ),
  row(
    "argv with a lone surrogate",
    [...RESTART, "argv", 3],
    "\ud800",
    "verbs.restart.argv[3]",
    "\u{1f600}",
  ),
  row(
    "argv with a direction override",
    [...RESTART, "argv", 3],
    "a\u202eb",
    "verbs.restart.argv[3]",
    "aéb",
  ),
  row(
    "argv too long an element",
    [...RESTART, "argv", 3],
    "a".repeat(4097),
    "verbs.restart.argv[3]",
    "a".repeat(4096),
  ),
  row(
    "unknown placeholder",
    [...RESTART, "argv", 4],
    "{servce}",
    "verbs.restart.argv[4]",
    "{service}",
  ),
  row(
    "placeholder glued to text",
    [...RESTART, "argv", 4],
    "x{service}",
    "verbs.restart.argv[4]",
    "{service}",
  ),
  row(
    "placeholder with a tail",
    [...RESTART, "argv", 4],
    "--s={service}x",
    "verbs.restart.argv[4]",
    "--s={service}",
  ),
  row(
    "placeholder behind one dash",
    [...RESTART, "argv", 4],
    "-s={service}",
    "verbs.restart.argv[4]",
    "--s={service}",
  ),
  row(
    "placeholder without a flag",
    [...RESTART, "argv", 4],
    "s={service}",
    "verbs.restart.argv[4]",
    "{service}",
  ),
  row(
    "two placeholders in one",
    [...RESTART, "argv", 4],
    "{service}{id}",
    "verbs.restart.argv[4]",
    "{service}",
  ),
  row(
    "placeholder in doubled braces",
    [...RESTART, "argv", 4],
    "{{service}}",
    "verbs.restart.argv[4]",
    "--s={service}",
  ),
  row(
    "a brace alone",
    [...RESTART, "argv", 3],
    "a}b",
    "verbs.restart.argv[3]",
    "{{.Names}} {{json .}}",
  ),
  row(
    "base path that climbs",
    [...RESTART, "argv", 2],
    "base/../keys/k",
    "verbs.restart.argv[2]",
    "base/a/b.yaml",
  ),
  row(
    "base path with a dot part",
    [...RESTART, "argv", 2],
    "--f=base/./a",
    "verbs.restart.argv[2]",
    "--f=base/a",
  ),
  row(
    "base path with an empty part",
    [...RESTART, "argv", 2],
    "base//a",
    "verbs.restart.argv[2]",
    "base/",
  ),
  row(
    "argument that is not used",
    [...RESTART, "args", "more"],
    { type: "name" },
    "verbs.restart.args.more",
    undefined,
  ),
  row(
    "argument with the name of a placeholder",
    [...RESTART, "args", "id"],
    { type: "name" },
    "verbs.restart.args.id",
    undefined,
  ),
  row(
    "argument name in capitals",
    [...RESTART, "args", "Service"],
    { type: "name" },
    "verbs.restart.args.Service",
    undefined,
  ),
  row("lock with a space", [...RESTART, "lock"], "my lock", "verbs.restart.lock", "my-lock"),
  row(
    "requires outside base",
    [...RESTART, "requires"],
    ["/etc/passwd"],
    "verbs.restart.requires[0]",
    ["base/a"],
  ),
  row(
    "requires that climbs",
    [...RESTART, "requires"],
    ["base/../keys/a"],
    "verbs.restart.requires[0]",
    ["base/a..b"],
  ),
  row(
    "requires the same twice",
    [...RESTART, "requires"],
    ["base/a", "base/a"],
    "verbs.restart.requires[1]",
    [],
  ),
  row("approval misspelt", [...RESTART, "approval"], "allways", "verbs.restart.approval", "always"),
  row(
    "rerun of what is not idempotent",
    [...NOTE, "on_crash"],
    "rerun",
    "verbs.note.on_crash",
    "uncertain",
  ),
  row("lookup without one", [...NOTE, "on_crash"], "lookup", "verbs.note.on_crash", "uncertain"),
  row(
    "lookup that nothing asks for",
    [...RESTART, "on_crash"],
    "uncertain",
    "verbs.restart.lookup",
    "lookup",
  ),
  row(
    "lookup without placeholder",
    [...RESTART, "lookup", "argv"],
    ["base/x", "a"],
    "verbs.restart.lookup.argv",
    ["base/x", "{id}"],
  ),
  row(
    "lookup with the grant",
    [...RESTART, "lookup", "argv"],
    ["base/x", "{max_spend}"],
    "verbs.restart.lookup.argv[1]",
    ["base/x", "--k={service}"],
  ),
  row("lookup without done", [...RESTART, "lookup", "done"], undefined, "verbs.restart.lookup", [
    0,
    3,
  ]),
  row("lookup with done empty", [...RESTART, "lookup", "done"], [], "verbs.restart.lookup.done", [
    0,
  ]),
  row(
    "exit code above 255",
    [...RESTART, "lookup", "done"],
    [256],
    "verbs.restart.lookup.done[0]",
    [255],
  ),
  row(
    "exit code in both lists",
    [...RESTART, "lookup", "not_done"],
    [0],
    "verbs.restart.lookup.not_done",
    [2],
  ),
  row(
    "lookup timeout of zero",
    [...RESTART, "lookup", "timeout_s"],
    0,
    "verbs.restart.lookup.timeout_s",
    0.1,
  ),
  row("unknown need", [...RESTART, "needs"], ["networks"], "verbs.restart.needs[0]", [
    "network",
    "jit",
  ]),
  row("need to write everything", [...RESTART, "needs"], ["write:/"], "verbs.restart.needs[0]", [
    "write:/srv",
  ]),
  row("cost below zero", [...RESTART, "cost"], -1, "verbs.restart.cost", 0),
  row("cost beside the grant", [...DEPLOY, "cost"], 1, "verbs.deploy.cost", undefined),
  row("grant without limits.spend", ["limits", "spend"], undefined, "verbs.deploy.argv", {
    per_request: 1,
    per_day: 1,
  }),
  row("cwd relative", [...RESTART, "cwd"], "base", "verbs.restart.cwd", "/"),
  row("cwd with a trailing slash", [...RESTART, "cwd"], "/srv/", "verbs.restart.cwd", "/srv"),
  row("cwd that climbs", [...RESTART, "cwd"], "/srv/../etc", "verbs.restart.cwd", "/srv/a..b"),
  row("env name with a dash", [...RESTART, "env"], { "A-B": "1" }, "verbs.restart.env.A-B", {
    A_B: "1",
  }),
  row("env value a number", [...RESTART, "env"], { A: 1 }, "verbs.restart.env.A", { A: "1" }),
  row(
    "runs_workspace_code as text",
    [...RESTART, "runs_workspace_code"],
    "yes",
    "verbs.restart.runs_workspace_code",
    true,
  ),
  row("shim empty", [...RESTART, "shim"], [""], "verbs.restart.shim[0]", ["docker restart"]),
  row("shim of two verbs", [...RESTART, "shim"], ["docker ps"], "agents.main.verbs", [
    "docker restart",
  ]),
  ...[
    ["without a program", "{service} restart"],
    ["with a path", "/usr/bin/docker restart {service}"],
    ["with two spaces", "docker  restart {service}"],
    ["with a quote", "docker restart 'web'"],
    ["with a glob", "docker restart *"],
    ["with a glued placeholder", "docker restart x{service}"],
    ["with an unknown placeholder", "docker restart {servcie}"],
    ["that gives an argument twice", "docker restart {service} {service}"],
  ].map(([name, call]) =>
    row(`shim ${name}`, [...RESTART, "shim"], [call], "verbs.restart.shim[0]", [
      "docker compose restart --timeout=5 {service}",
      "docker-compose restart --service={service}",
    ])
  ),
  row("shim without an argument", [...NOTE, "shim"], ["note"], "verbs.note.shim[0]", [
    "note --text={text} {tag}",
  ]),
  row("unknown key of a verb", [...RESTART, "timeout"], 5, "verbs.restart.timeout", undefined),

  row(
    "argument without type",
    [...RESTART, "args", "service"],
    { values: ["web"] },
    "verbs.restart.args.service",
    { type: "enum", values: ["web"] },
  ),
  row(
    "argument type misspelt",
    [...RESTART, "args", "service", "type"],
    "enumm",
    "verbs.restart.args.service.type",
    "enum",
  ),
  row(
    "argument type a list",
    [...RESTART, "args", "service", "type"],
    ["enum"],
    "verbs.restart.args.service.type",
    "enum",
  ),
  row(
    "key of another type",
    [...RESTART, "args", "service", "min"],
    1,
    "verbs.restart.args.service.min",
    undefined,
  ),
  row(
    "enum without values",
    [...RESTART, "args", "service"],
    { type: "enum" },
    "verbs.restart.args.service",
    { type: "enum", values: ["a"] },
  ),
  row(
    "enum with no value",
    [...RESTART, "args", "service"],
    { type: "enum", values: [] },
    "verbs.restart.args.service.values",
    { type: "enum", values: ["a"] },
  ),
  row(
    "enum with a value twice",
    [...RESTART, "args", "service", "values"],
    ["web", "web"],
    "verbs.restart.args.service.values[1]",
    ["web", "db"],
  ),
  row(
    "enum with an empty value",
    [...RESTART, "args", "service", "values"],
    ["web", ""],
    "verbs.restart.args.service.values[1]",
    ["web", " "],
  ),
  row(
    "default that is no value",
    [...RESTART, "args", "service", "default"],
    "wep",
    "verbs.restart.args.service.default",
    "db",
  ),
  row(
    "default of another type",
    [...RESTART, "args", "service", "default"],
    1,
    "verbs.restart.args.service.default",
    "db",
  ),
  row(
    "default a list",
    [...RESTART, "args", "service", "default"],
    ["web"],
    "verbs.restart.args.service.default",
    "web",
  ),
  row(
    "min above max",
    [...DEPLOY, "args", "count"],
    { type: "integer", min: 5, max: 4 },
    "verbs.deploy.args.count.min",
    { type: "integer", min: 4, max: 4 },
  ),
  row(
    "default above max",
    [...DEPLOY, "args", "count", "default"],
    10,
    "verbs.deploy.args.count.default",
    9,
  ),
  row(
    "min not exact (J4)",
    [...DEPLOY, "args", "count", "min"],
    2 ** 53,
    "verbs.deploy.args.count.min",
    1,
  ),
  row(
    "boolean without element",
    ["verbs", "ps", "args", "all"],
    { type: "boolean" },
    "verbs.ps.args.all",
    { type: "boolean", element: "-a" },
  ),
  row(
    "boolean with braces",
    ["verbs", "ps", "args", "all", "element"],
    "{id}",
    "verbs.ps.args.all.element",
    "{{.Names}}",
  ),
  row(
    "boolean that climbs",
    ["verbs", "ps", "args", "all", "element"],
    "base/../a",
    "verbs.ps.args.all.element",
    "base/a",
  ),
  row(
    "boolean default as text",
    ["verbs", "ps", "args", "all", "default"],
    "true",
    "verbs.ps.args.all.default",
    true,
  ),
  row(
    "boolean behind an option",
    ["verbs", "ps", "argv", 4],
    "--x={all}",
    "verbs.ps.argv[4]",
    "{all}",
  ),
  row(
    "max_length of zero",
    [...NOTE, "args", "tag", "max_length"],
    0,
    "verbs.note.args.tag.max_length",
    1,
  ),
  row(
    "max_length above the request's",
    [...NOTE, "args", "tag", "max_length"],
    8193,
    "verbs.note.args.tag.max_length",
    8192,
  ),
  row(
    "sha shorter than one can be",
    [...DEPLOY, "args", "commit", "max_length"],
    6,
    "verbs.deploy.args.commit.max_length",
    7,
  ),
  row(
    "semver shorter than one can be",
    [...DEPLOY, "args", "version", "max_length"],
    4,
    "verbs.deploy.args.version.max_length",
    5,
  ),
  row(
    "path without root",
    [...DEPLOY, "args", "file"],
    { type: "path" },
    "verbs.deploy.args.file",
    { type: "path", root: "base/x" },
  ),
  row(
    "text before --",
    [...NOTE, "argv"],
    ["/usr/bin/logger", "--tag={tag}", "{text}", "--"],
    "verbs.note.argv[2]",
    ["/usr/bin/logger", "--tag={tag}", "--msg={text}"],
  ),

  row("limits a list", ["limits"], [], "limits", { spend: { per_request: 1, per_day: 1 } }),
  row("unknown limit", ["limits", "concurency"], 1, "limits.concurency", undefined),
  row("concurrency of zero", ["limits", "concurrency"], 0, "limits.concurrency", 1),
  row("concurrency of 65", ["limits", "concurrency"], 65, "limits.concurrency", 64),
  row("concurrency of one and a half", ["limits", "concurrency"], 1.5, "limits.concurrency", 2),
  row("waiting of zero", ["limits", "waiting"], 0, "limits.waiting", 1),
  row("backlog misspelt", ["limits", "backlog"], "refused", "limits.backlog", "refuse"),
  row("answers of zero", ["limits", "answers"], 0, "limits.answers", 1),
  row(
    "rate of an unknown class",
    ["limits", "rate"],
    { mutable: { max: 1, per_s: 1 } },
    "limits.rate.mutable",
    {},
  ),
  row("rate without window", ["limits", "rate", "mutating"], { max: 1 }, "limits.rate.mutating", {
    max: 1,
    per_s: 1,
  }),
  row("rate of zero", ["limits", "rate", "mutating", "max"], 0, "limits.rate.mutating.max", 1),
  row(
    "spend of a request above the day's",
    ["limits", "spend"],
    { per_request: 2, per_day: 1 },
    "limits.spend.per_request",
    { per_request: 1, per_day: 1 },
  ),
  row("spend without the day's", ["limits", "spend"], { per_request: 2 }, "limits.spend", {
    per_request: 1,
    per_day: 1,
  }),
  row("request_bytes raised", ["limits", "request_bytes"], 65537, "limits.request_bytes", 65536),
  row("depth raised", ["limits", "depth"], 17, "limits.depth", 16),
  row("keys raised", ["limits", "keys"], 65, "limits.keys", 64),
  row("string_bytes raised", ["limits", "string_bytes"], 8193, "limits.string_bytes", 8192),
  row("output_bytes too few", ["limits", "output_bytes"], 1024, "limits.output_bytes", 32768),
  row("max_age_s of zero", ["limits", "max_age_s"], 0, "limits.max_age_s", 1),
  row("approval_wait_s of zero", ["limits", "approval_wait_s"], 0, "limits.approval_wait_s", 1),
  row("grace_s below a tenth", ["limits", "grace_s"], 0.09, "limits.grace_s", 0.1),
  row("grace_s above five minutes", ["limits", "grace_s"], 300.5, "limits.grace_s", 300),
  row("results_files too few", ["limits", "results_files"], 99, "limits.results_files", 100),
  row("results_bytes too few", ["limits", "results_bytes"], 1000, "limits.results_bytes", 1048576),
  row(
    "retention without sense",
    ["retention"],
    { results_days: 31, ledger_days: 30 },
    "retention.results_days",
    { results_days: 30, ledger_days: 30 },
  ),
  row("retention of no day", ["retention", "ledger_days"], 0, "retention.ledger_days", 3),
  row("PATH with an empty part", ["env", "PATH"], "/usr/bin::/bin", "env.PATH", "/usr/bin:/bin"),
  row("notify relative", ["notify"], ["notify-send"], "notify[0]", ["base/notify"]),
  row(
    "notify with an argument of a request",
    ["notify"],
    ["base/notify", "{service}"],
    "notify[1]",
    ["base/notify", "{id}"],
  ),
  row("notify with a glued placeholder", ["notify"], ["base/notify", "--e={event}"], "notify[1]", [
    "base/notify",
    "{event}",
  ]),
  row("redact too short", ["redact"], ["abc"], "redact[0]", ["abcd"]),
  row("on_stop misspelt", ["on_stop"], "waits", "on_stop", "wait"),
  row("unknown key at the top", ["verb"], {}, "verb", undefined),
  row("$schema a number", ["$schema"], 5, "$schema", "x"),
];

Deno.test("parsePolicy() accepts the sample, which uses every key", () => {
  const parsed = parseObject(sample());
  assertEquals(parsed.ok ? [] : parsed.errors, []);
});

for (const { name, at, wrong, error, fine } of ROWS) {
  Deno.test(`parsePolicy() tells where: ${name}`, () => {
    const errors = errorsOf(changed([at, wrong]));
    const paths = errors.map((e) => e.path);
    assert(paths.includes(error), `wanted an error at "${error}", found ${JSON.stringify(errors)}`);
    for (const e of errors) {
      assertNotEquals(e.message, "", "an error without a message");
      assertNotEquals(e.hint, "", "an error without a hint");
      assert(e.path === "" || e.line !== undefined, `no line: ${JSON.stringify(e)}`);
      assert(!/\p{Cc}|\p{Cs}/u.test(e.message + e.hint + e.path), "a control character");
    }
    const neighbour = errorsOf(changed([at, fine]));
    assertEquals(neighbour, [], "the neighbour is not fine");
  });
}

Deno.test("parsePolicy() fills in the narrowest meaning for what is left out", () => {
  const policy = valid({
    agents: { main: { verbs: ["look", "lose"] } },
    verbs: {
      look: { class: "observe", argv: ["/usr/bin/true"], timeout_s: 1 },
      lose: { class: "destructive", argv: ["/usr/bin/true"], timeout_s: 1 },
    },
  });
  assertEquals(policy.limits, {
    concurrency: 1,
    waiting: 1000,
    backlog: "refuse",
    answers: 600,
    rate: {},
    spend: null,
    request_bytes: 65536,
    depth: 16,
    keys: 64,
    string_bytes: 8192,
    output_bytes: 16 * 1024 * 1024,
    max_age_s: 86400,
    approval_wait_s: 3600,
    grace_s: 10,
    results_files: 20000,
    results_bytes: 2 * 1024 * 1024 * 1024,
  });
  assertEquals(policy.retention, {
    results_days: 7,
    ledger_days: 90,
    ledger_rows: 1_000_000,
    audit_days: 400,
    audit_segment_days: 30,
    audit_segment_bytes: 67_108_864,
  });
  assertEquals(policy.audit_gid, null);
  assertEquals([policy.on_stop, policy.notify, policy.redact], ["leave", null, []]);
  assertEquals(policy.agents.get("main"), {
    name: "main",
    verbs: ["look", "lose"],
    auth: "placement",
    signature_window_s: 300,
    scope: "observe",
    concurrency: null,
    mount: "role",
    agent_uid: null,
    agent_gid: null,
    uids: [],
  });
  const look = policy.verbs.get("look");
  assertEquals([look?.approval, look?.cwd, look?.on_crash], ["never", "/", "uncertain"]);
  assertEquals([look?.lock, look?.cost, look?.lookup, look?.idempotent], [null, null, null, false]);
  assertEquals(policy.verbs.get("lose")?.approval, "always");
});

Deno.test("parsePolicy() lets a destructive verb go unapproved only when it says so", () => {
  const parsed = parseObject(changed([[...DEPLOY, "approval"], "never"]));
  assert(parsed.ok);
  assertEquals(parsed.policy.verbs.get("deploy")?.approval, "never");
  assert(parsed.warnings.some(({ rule }) => rule === "unapproved-destruction"));
});

Deno.test("parsePolicy() lets no request wait longer than its key is remembered", () => {
  const retention = { results_days: 1, ledger_days: 1 };
  const errors = errorsOf(changed([["retention"], retention], [["limits", "max_age_s"], 86401]));
  assertEquals(errors.map((e) => e.path), ["limits.max_age_s"]);
  const fine = changed([["retention"], retention], [["limits", "max_age_s"], 86400]);
  assertEquals(errorsOf(fine), []);
});

Deno.test("parsePolicy() takes no braces of another program for a lookup's placeholder", () => {
  const errors = errorsOf(changed([[...RESTART, "lookup", "argv"], ["base/x", "{{.id}}"]]));
  assertEquals(errors.map((e) => e.path), ["verbs.restart.lookup.argv"]);
});

Deno.test("parsePolicy() keeps everything that the sample says", () => {
  const policy = valid(sample());
  const restart = policy.verbs.get("restart");
  assertEquals(restart?.env, {
    PATH: "/usr/bin:/bin",
    HOME: "/home/me",
    COMPOSE_DISABLE_ENV_FILE: "1",
  }, "the verb's variables lie on top of the policy's");
  assertEquals(restart?.program, "/usr/bin/docker-compose");
  assertEquals(restart?.argv, [
    { kind: "fixed", text: "-f" },
    { kind: "base", prefix: "", path: "base/compose.yaml" },
    { kind: "fixed", text: "restart" },
    { kind: "placeholder", prefix: "", name: "service" },
  ]);
  assertEquals(restart?.args.get("service"), {
    type: "enum",
    description: "Which.",
    values: ["web", "db"],
    default: "web",
  });
  assertEquals(restart?.lookup?.done, [0]);
  assertEquals(policy.verbs.get("deploy")?.takes_max_spend, true);
  assertEquals(policy.limits.rate, { mutating: { max: 30, per_s: 60 } });
  assertEquals(policy.limits.spend, { per_request: 5, per_day: 20 });
  assertEquals(policy.notify, ["/usr/bin/notify-send", "chb", "{event}", "{id}"]);
  assertEquals(policy.agents.get("other")?.agent_uid, 2000);
});

Deno.test("parsePolicy() names the policy by the SHA-256 of its exact bytes", () => {
  const one = new TextEncoder().encode(JSON.stringify(sample()));
  const other = new TextEncoder().encode(JSON.stringify(sample(), null, 1));
  const [a, b] = [parsePolicy(one), parsePolicy(other)];
  assert(a.ok && b.ok);
  assertEquals(a.policy.digest, createHash("sha256").update(one).digest("hex"));
  assertNotEquals(a.policy.digest, b.policy.digest);
});

Deno.test("parsePolicy() freezes the policy all the way down", () => {
  const frozen = (value: unknown, path: string): void => {
    if (typeof value !== "object" || value === null) return;
    assert(Object.isFrozen(value), `${path} is not frozen`);
    const entries = value instanceof FrozenMap ? [...value] : Object.entries(value);
    for (const [key, item] of entries) frozen(item, `${path}.${key}`);
  };
  const parsed = parseObject(sample());
  assert(parsed.ok);
  frozen(parsed.policy, "policy");
  frozen(parsed.warnings, "warnings");
  const { verbs } = parsed.policy;
  assertEquals("set" in verbs, false, "a frozen map has nothing that writes");
  assertThrows(() => Map.prototype.set.call(verbs, "x", 1), TypeError);
});

Deno.test("J2 parsePolicy() takes no name from a prototype", () => {
  for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
    const asVerb = parseText(
      `{"agents":{"main":{"verbs":["${name}"]}},"verbs":{"ps":{"class":"observe","argv":["/usr/bin/true"],"timeout_s":1}}}`,
    );
    assert(!asVerb.ok, `${name} is no verb`);
    assertEquals(asVerb.errors.map((e) => e.path), ["agents.main.verbs[0]"]);
    const asKey = parseText(`{"agents":{"main":{"verbs":[]}},"verbs":{},"${name}":{}}`);
    assert(!asKey.ok, `${name} is no key`);
    assertEquals(asKey.errors.map((e) => e.path), [name]);
    const asType = parseText(
      `{"agents":{"main":{"verbs":["v"]}},"verbs":{"v":{"class":"observe","argv":["/usr/bin/true","{a}"],"timeout_s":1,"args":{"a":{"type":"${name}"}}}}}`,
    );
    assert(!asType.ok, `${name} is no type`);
    assertEquals(asType.errors.map((e) => e.path), ["verbs.v.args.a.type"]);
    const asClass = errorsOf(changed([[...RESTART, "class"], name]));
    assertEquals(asClass.map((e) => e.path), ["verbs.restart.class"]);
  }
  const inherited = parseText(
    `{"agents":{"main":{"verbs":["v"]}},"verbs":{"v":{"__proto__":{"class":"observe"},"argv":["/usr/bin/true"],"timeout_s":1}}}`,
  );
  assert(!inherited.ok, "an own __proto__ lends its members to nobody");
  assert(inherited.errors.some((e) => e.path === "verbs.v" && e.message.includes("class")));
});

Deno.test("J2 parsePolicy() keeps a verb with the name of a prototype's member apart", () => {
  const policy = valid({
    agents: { main: { verbs: ["constructor"], scope: "observe" } },
    verbs: { constructor: { class: "observe", argv: ["/usr/bin/true"], timeout_s: 1 } },
  });
  assertEquals(policy.verbs.get("constructor")?.name, "constructor");
  assertEquals(policy.verbs.get("toString"), undefined);
});

Deno.test("parsePolicy() tells all errors of a text at once, from top to bottom", () => {
  const errors = errorsOf({
    agents: { main: { verbs: ["sp"], scop: "observe" } },
    verbs: {
      ps: { class: "obsrve", argv: ["/bin/sh", "{x}"], timeout_s: "soon", lok: "a" },
      up: { argv: ["up"] },
    },
    limits: { concurrency: 0, waitng: 5 },
  });
  assertEquals(errors.map((e) => e.path), [
    "agents.main.verbs[0]",
    "agents.main.scop",
    "verbs.ps.class",
    "verbs.ps.argv[0]",
    "verbs.ps.argv[1]",
    "verbs.ps.timeout_s",
    "verbs.ps.lok",
    "verbs.up",
    "verbs.up",
    "verbs.up.argv[0]",
    "limits.concurrency",
    "limits.waitng",
  ]);
});

const SUGGESTIONS: readonly [name: string, at: Path, value: unknown, wanted: string][] = [
  ["a key of the top", ["limts"], {}, "limits"],
  ["a key of a verb", [...RESTART, "timeout"], 1, "timeout_s"],
  ["a key of an agent", ["agents", "main", "verb"], 1, "verbs"],
  ["a limit", ["limits", "concurency"], 1, "concurrency"],
  ["a class", [...RESTART, "class"], "destuctive", "destructive"],
  ["a verb", ["agents", "other", "verbs"], ["restrat"], "restart"],
  ["a type", [...RESTART, "args", "service", "type"], "enmu", "enum"],
  ["a placeholder", [...RESTART, "argv", 4], "{servise}", "service"],
];

for (const [name, at, value, wanted] of SUGGESTIONS) {
  Deno.test(`parsePolicy() says what was meant by ${name}`, () => {
    const hints = errorsOf(changed([at, value])).map((e) => e.hint);
    assert(hints.some((h) => h.startsWith(`Did you mean "${wanted}"? `)), JSON.stringify(hints));
  });
}

const MINIMAL = `"agents": { "main": { "verbs": [] } }, "verbs": {}`;

const SYNTAX: readonly [name: string, text: string, line: number, column: number][] = [
  ["an empty text", "", 1, 1],
  ["only a comment", "// nothing\n", 2, 1],
  ["a missing brace", '{\n  "agents": {\n', 3, 1],
  ["a missing comma", '{\n  "agents": {}\n  "verbs": {}\n}', 3, 3],
  ["single quotes", "{\n  'agents': {} }", 2, 3],
  ["a bare name", "{ agents: {} }", 1, 3],
  ["two texts", `{ ${MINIMAL} }\n{}`, 2, 1],
  ["a comma too many", '{ "agents": {},, }', 1, 16],
  ["a word that is no value", '{ "agents": True }', 1, 13],
  ["a number with a leading zero", '{ "a": 01 }', 1, 8],
  ["a wrong escape", '{ "a": "\\q" }', 1, 8],
  ["a text over two lines", '{ "a": "x\ny" }', 1, 8],
  ["an open comment", '{ "a": 1 /* ', 1, 13],
  ["the wrong bracket", '{ "a": [1} }', 1, 10],
  ["carriage returns as lines", '{\r"a": tru\r}', 2, 6],
  ["carriage returns before newlines", '{\r\n"a": tru\r\n}', 2, 6],
];

for (const [name, text, line, column] of SYNTAX) {
  Deno.test(`parsePolicy() tells line and column of ${name}`, () => {
    const parsed = parseText(text);
    assert(!parsed.ok);
    const [error, ...rest] = parsed.errors;
    assertEquals(rest, []);
    assertEquals([error?.path, error?.line, error?.column], ["", line, column]);
    assertNotEquals(error?.hint, "");
  });
}

Deno.test("parsePolicy() says which bracket is not closed", () => {
  const parsed = parseText('{\n  "agents": {\n    "main": [');
  assert(!parsed.ok);
  assertEquals(parsed.errors[0]?.hint, "Close the [ that opens on line 3, column 13");
});

Deno.test("parsePolicy() takes comments and trailing commas", () => {
  const parsed = parseText(`// first
  { /* a // b */ ${MINIMAL}, // "limits": 5
    "redact": ["a // b /* c", ], }
  // last`);
  assert(parsed.ok);
  assertEquals(parsed.policy.redact, ["a // b /* c"]);
});

const DUPLICATES: readonly [name: string, text: string, path: string][] = [
  ["at the top", `{ ${MINIMAL}, "limits": {}, "limits": {} }`, "limits"],
  ["deeper", `{ ${MINIMAL}, "limits": { "depth": 3, "depth": 4 } }`, "limits.depth"],
  ["by an escape", `{ ${MINIMAL}, "limits": { "depth": 3, "dep\\u0074h": 4 } }`, "limits.depth"],
  ["in a list", `{ ${MINIMAL}, "redact": [{ "a": 1, "a": 2 }] }`, "redact[0].a"],
  ["around a comment", `{ ${MINIMAL}, "on_stop": "wait", /* "x */ "on_stop": "wait" }`, "on_stop"],
];

for (const [name, text, path] of DUPLICATES) {
  Deno.test(`J1 parsePolicy() refuses a key that stands twice ${name}`, () => {
    const parsed = parseText(text);
    assert(!parsed.ok);
    const found = parsed.errors.filter((e) => e.message.includes("twice"));
    assertEquals(found.map((e) => e.path), [path]);
    assertEquals(found[0]?.line, 1);
  });
}

Deno.test("J1 parsePolicy() takes the same key in two objects, and as a value", () => {
  assert(
    parseText(
      `{ ${MINIMAL}, "limits": { "rate": { "observe": { "max": 1, "per_s": 1 }, "mutating": { "max": 1, "per_s": 1 } } }, "redact": ["max_", "max__"] }`,
    ).ok,
  );
});

Deno.test("J7 parsePolicy() refuses a byte order mark and bytes that are not UTF-8", () => {
  const text = new TextEncoder().encode(`{\n ${MINIMAL} }`);
  const marked = parsePolicy(new Uint8Array([0xef, 0xbb, 0xbf, ...text]));
  assert(!marked.ok);
  assertEquals([marked.errors[0]?.line, marked.errors[0]?.column], [1, 1]);
  assert(marked.errors[0]?.message.includes("byte order mark"));
  const bad = parsePolicy(new Uint8Array([...text.subarray(0, 4), 0xff, ...text.subarray(4)]));
  assert(!bad.ok);
  assertEquals([bad.errors[0]?.line, bad.errors[0]?.column], [2, 3]);
  const latin = parsePolicy(Uint8Array.from(`{ "redact": ["caf\xe9"] }`, (c) => c.charCodeAt(0)));
  assert(!latin.ok);
  const wide = parsePolicy(Uint8Array.from([...`{}`].flatMap((c) => [c.charCodeAt(0), 0])));
  assert(!wide.ok, "UTF-16");
});

Deno.test("J8 parsePolicy() answers a text that nests without end", () => {
  for (const text of ["[".repeat(400_000), '{"a":'.repeat(150_000), "[".repeat(33)]) {
    const parsed = parseText(text);
    assert(!parsed.ok);
    assert(parsed.errors[0]?.message.startsWith("Nested more than 32"));
  }
  const fine = parseText("[".repeat(32) + "]".repeat(32));
  assert(!fine.ok);
  assert(fine.errors[0]?.message.startsWith("Wrong type"), "32 is read, and is no object");
});

Deno.test("J9 parsePolicy() refuses more bytes than any policy has", () => {
  const parsed = parsePolicy(new Uint8Array(MAX_POLICY_BYTES + 1).fill(0x20));
  assert(!parsed.ok);
  assert(parsed.errors[0]?.message.startsWith("Too large"));
  const spaces = " ".repeat(MAX_POLICY_BYTES - MINIMAL.length - 2);
  assert(parseText(`{${MINIMAL}}${spaces}`).ok);
});

Deno.test("J10 parsePolicy() refuses everything that is no object", () => {
  for (const text of ["null", "[]", '"x"', "5", "true", "[null]"]) {
    const parsed = parseText(text);
    assert(!parsed.ok, text);
    assertEquals(parsed.errors.map((e) => e.path), [""]);
  }
});

Deno.test("J4 parsePolicy() takes whole numbers in every spelling, and only exact ones", () => {
  const withWaiting = (number: string) =>
    parseText(`{ ${MINIMAL}, "limits": { "waiting": ${number} } }`);
  for (const number of ["100", "1e2", "1E2", "100.0", "1.0e+2"]) {
    const parsed = withWaiting(number);
    assert(parsed.ok, number);
    assertEquals(parsed.policy.limits.waiting, 100);
  }
  for (const number of ["1e999", "-1e999", "9007199254740993", "0.5", "-0", "-1", "1e-9"]) {
    const parsed = withWaiting(number);
    assert(!parsed.ok, number);
    assertEquals(parsed.errors.map((e) => e.path), ["limits.waiting"]);
  }
});

/** Values of every JavaScript type, for every key. */
const WRONG_TYPES: readonly unknown[] = [null, true, 0, -1, 0.5, "", "x", [], [null], {}, {
  a: null,
}, [[]]];

Deno.test("J3 parsePolicy() answers any value at any key, and converts nothing", () => {
  const walk = (value: unknown, path: Path): Path[] => {
    if (typeof value !== "object" || value === null) return [path];
    const inner = Object.entries(value).flatMap(([key, item]) =>
      walk(item, [...path, Array.isArray(value) ? Number(key) : key])
    );
    return path.length === 0 ? inner : [path, ...inner];
  };
  let refused = 0;
  for (const [index, at] of walk(sample(), []).entries()) {
    // Every second value at every key, each value at every second key: enough, and quick.
    for (const wrong of WRONG_TYPES.filter((_, which) => which % 2 === index % 2)) {
      const parsed = parseObject(changed([at, wrong]));
      if (parsed.ok) continue;
      refused++;
      assertNotEquals(parsed.errors.length, 0);
    }
  }
  assert(refused > 500, `only ${refused} were refused`);
});

/** A small generator of numbers from a printed seed. */
function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

Deno.test("parsePolicy() answers texts with bytes changed at random", () => {
  const seed = crypto.getRandomValues(new Uint32Array(1))[0] ?? 1;
  console.log(`seed ${seed}`);
  const pick = random(seed);
  const original = new TextEncoder().encode(JSON.stringify(sample(), null, 1));
  const marks = [...'{}[]:,"\\/*\n -0eE.tfn'].map((c) => c.charCodeAt(0));
  for (let round = 0; round < 300; round++) {
    const bytes = [...original];
    for (let change = pick(4); change >= 0; change--) {
      const at = pick(bytes.length);
      const mark = pick(2) === 0 ? pick(256) : marks[pick(marks.length)] ?? 0;
      switch (pick(3)) {
        case 0:
          bytes[at] = mark;
          break;
        case 1:
          bytes.splice(at, 1 + pick(20));
          break;
        default:
          bytes.splice(at, 0, mark);
      }
    }
    const parsed = parsePolicy(Uint8Array.from(bytes));
    if (parsed.ok) assert(Object.isFrozen(parsed.policy));
    else assert(parsed.errors.length > 0, `seed ${seed}, round ${round}`);
  }
});

const WARNINGS: readonly [rule: string, at: Path, value: unknown, path: string][] = [
  ["few-slots", ["limits", "concurrency"], 1, "limits.concurrency"],
  ["unused-verb", ["agents", "main", "verbs"], ["ps", "restart", "deploy"], "verbs.note"],
  ["no-verbs", ["agents", "other", "verbs"], [], "agents.other.verbs"],
  ["scope-too-narrow", ["agents", "main", "scope"], "mutating", "agents.main.scope"],
  ["workspace-code", ["on_stop"], "wait", "verbs.deploy.runs_workspace_code"],
  ["agent-writable", ["on_stop"], "wait", "verbs.deploy.args.work.agent_writable"],
  ["untracked-base", [...RESTART, "requires"], ["base/other"], "verbs.restart.requires"],
  ["untracked-base", [...DEPLOY, "requires"], [], "verbs.deploy.requires"],
  ["local-podman", [...NOTE, "argv", 0], "/usr/bin/podman", "verbs.note.argv"],
  ["compose-lookup", [...NOTE, "argv", 0], "/usr/bin/docker-compose", "verbs.note.argv"],
  ["program-in-tmp", [...NOTE, "argv", 0], "/tmp/x", "verbs.note.argv[0]"],
];

for (const [rule, at, value, path] of WARNINGS) {
  Deno.test(`parsePolicy() warns of ${rule} at ${path}`, () => {
    const parsed = parseObject(changed([at, value]));
    assert(parsed.ok, JSON.stringify(parsed));
    const found = parsed.warnings.filter((warning) => warning.rule === rule);
    assert(found.some((w) => w.path === path), JSON.stringify(parsed.warnings));
    assert(found.every((w) => w.line !== undefined));
  });
}

Deno.test("parsePolicy() warns of nothing in a policy that is plain", () => {
  const parsed = parseObject({
    agents: { main: { verbs: ["ps"] } },
    verbs: {
      ps: {
        class: "observe",
        argv: ["/usr/bin/podman", "--remote", "ps"],
        timeout_s: 1,
      },
    },
  });
  assert(parsed.ok);
  assertEquals(parsed.warnings, []);
});

Deno.test("policyPrograms() lists every program once: verbs, lookups, notification", () => {
  assertEquals(policyPrograms(valid(sample())), [
    "/usr/bin/docker-compose",
    "/usr/bin/logger",
    "/usr/bin/notify-send",
    "base/deploy",
    "base/was-restarted",
  ]);
  assertEquals(policyPrograms(valid({ agents: { main: { verbs: [] } }, verbs: {} })), []);
});

Deno.test("the limits that guard the daemon can only be lowered", () => {
  for (const key of ["request_bytes", "depth", "keys", "string_bytes"] as const) {
    assertEquals(LIMITS[key].max, LIMITS[key].default);
  }
});
