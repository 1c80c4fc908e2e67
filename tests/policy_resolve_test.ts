/** From a verb and checked arguments to one command, and to its digest. */
import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import { checkArgs } from "../src/policy/check_args.ts";
import {
  type CommandContext,
  commandDigest,
  resolveCommand,
  resolveLookup,
} from "../src/policy/resolve_command.ts";
import type { CheckedArgs, ResolvedCommand, VerbPolicy } from "../src/policy/policy.ts";
import { sample, valid, verbOf } from "./policy_fixture.ts";

const CONTEXT: CommandContext = {
  id: "req-1",
  idempotency_key: "key-1",
  root: "/srv/chb",
  max_spend: null,
  run_dir: "state/runs/0123",
};

function checked(verb: VerbPolicy, args: Record<string, unknown>): CheckedArgs {
  const outcome = checkArgs(verb, args);
  assert(outcome.ok, JSON.stringify(outcome));
  return outcome.args;
}

function resolved(
  argv: readonly string[],
  types: unknown,
  args: Record<string, unknown>,
  more: object = {},
  context: Partial<CommandContext> = {},
): ResolvedCommand {
  const verb = verbOf(argv, types, more);
  return resolveCommand(verb, checked(verb, args), { ...CONTEXT, ...context });
}

Deno.test("resolveCommand() puts each kind of element and value in its place", () => {
  const command = resolved(
    [
      "/usr/bin/tool",
      "fixed text",
      "--format={{.Names}}",
      "base/compose.yaml",
      "--file=base/a/b.yaml",
      "base/",
      "{which}",
      "--count={count}",
      "{file}",
      "--work={work}",
      "{id}",
      "--key={idempotency_key}",
      "--",
      "{text}",
    ],
    {
      which: { type: "enum", values: ["web", "db"] },
      count: { type: "integer", min: -5, max: 5 },
      file: { type: "path", root: "base/conf" },
      work: { type: "path", root: "/srv/tree", agent_writable: true },
      text: { type: "text" },
    },
    { which: "db", count: -5, file: "a/b", work: "c", text: "{id} $(x) base/y" },
  );
  assertEquals(command, {
    program: "/usr/bin/tool",
    argv: [
      "fixed text",
      "--format={{.Names}}",
      "/srv/chb/base/compose.yaml",
      "--file=/srv/chb/base/a/b.yaml",
      "/srv/chb/base/",
      "db",
      "--count=-5",
      "/srv/chb/base/conf/a/b",
      "--work=/srv/tree/c",
      "req-1",
      "--key=key-1",
      "--",
      "{id} $(x) base/y",
    ],
    cwd: "/",
    env: {},
  });
});

Deno.test("resolveCommand() adds a boolean's element or leaves it out", () => {
  const types = {
    all: { type: "boolean", element: "--all" },
    file: { type: "boolean", element: "--f=base/x" },
  };
  const argv = ["/usr/bin/tool", "{all}", "x", "{file}"];
  assertEquals(resolved(argv, types, {}).argv, ["x"]);
  assertEquals(resolved(argv, types, { all: true }).argv, ["--all", "x"]);
  assertEquals(resolved(argv, types, { file: true }).argv, ["x", "--f=/srv/chb/base/x"]);
});

Deno.test("resolveCommand() makes a script in base/ absolute, and takes cwd and env of the policy", () => {
  const more = { cwd: "/srv/app", env: { A: "1" } };
  const command = resolved(["base/deploy"], {}, {}, more);
  assertEquals(command, {
    program: "/srv/chb/base/deploy",
    argv: [],
    cwd: "/srv/app",
    env: { A: "1" },
  });
  const slash = resolved(["base/deploy"], {}, {}, {}, { root: "/srv/chb/" });
  assertEquals(slash.program, "/srv/chb/base/deploy");
  assertEquals(resolved(["base/deploy"], {}, {}, {}, { root: "/" }).program, "/base/deploy");
});

Deno.test("resolveCommand() gives the grant, and where to report what was spent", () => {
  const argv = ["/usr/bin/tool", "--budget={max_spend}"];
  const of = (max_spend: number, run_dir = CONTEXT.run_dir) =>
    resolved(argv, {}, {}, {}, { max_spend, run_dir });
  assertEquals(of(2.5).argv, ["--budget=2.5"]);
  assertEquals(of(2.5).env, { CHB_SPEND_FILE: "/srv/chb/state/runs/0123/spend" });
  assertEquals(of(0, "/x/y").env, { CHB_SPEND_FILE: "/x/y/spend" });
  for (
    const [value, text] of [
      [0, "0"],
      [-0, "0"],
      [5, "5"],
      [0.1, "0.1"],
      [1e-7, "0.0000001"],
      [1e9, "1000000000"],
      [123456.789, "123456.789"],
    ] as const
  ) {
    assertEquals(of(value).argv, [`--budget=${text}`]);
  }
  for (const wrong of [-1, NaN, Infinity, 1e21]) assertThrows(() => of(wrong), RangeError);
  assertThrows(() => resolved(argv, {}, {}), RangeError, "nothing was granted");
  assertEquals(resolved(["/usr/bin/tool"], {}, {}, {}, { max_spend: 5 }).env, {});
});

Deno.test("X2 resolveCommand() takes only checked arguments of this verb", () => {
  const verb = verbOf(["/usr/bin/tool", "{n}", "{s}", "{b}", "{p}"], {
    n: { type: "integer" },
    s: { type: "name" },
    b: { type: "boolean", element: "-b" },
    p: { type: "path", root: "base/x" },
  });
  const good = { n: 1, s: "x", b: true, p: "y" };
  assertEquals(resolveCommand(verb, good, CONTEXT).argv, ["1", "x", "-b", "/srv/chb/base/x/y"]);
  for (
    const wrong of [{ n: "1" }, { n: 1.5 }, { n: NaN }, { s: 1 }, { b: "true" }, {
      p: 1,
    }] as Record<
      string,
      string | number
    >[]
  ) {
    assertThrows(() => resolveCommand(verb, { ...good, ...wrong }, CONTEXT), TypeError);
  }
  for (const missing of Object.keys(good)) {
    const rest = Object.fromEntries(Object.entries(good).filter(([key]) => key !== missing));
    assertThrows(() => resolveCommand(verb, rest, CONTEXT), TypeError, missing);
  }
  const inherits: CheckedArgs = Object.create(good);
  assertThrows(() => resolveCommand(verb, inherits, CONTEXT), TypeError);
});

Deno.test("resolveCommand() takes no root that is relative, and no id that is none", () => {
  const verb = verbOf(["/usr/bin/tool", "{id}"]);
  for (const wrong of [{ root: "srv" }, { id: "-x" }, { id: "" }, { idempotency_key: "../x" }]) {
    assertThrows(() => resolveCommand(verb, {}, { ...CONTEXT, ...wrong }), RangeError);
  }
});

Deno.test("resolveCommand() is deterministic and its result cannot be changed", () => {
  const policy = valid(sample());
  const verb = policy.verbs.get("restart");
  assert(verb !== undefined);
  const one = resolveCommand(verb, checked(verb, { service: "db" }), CONTEXT);
  const two = resolveCommand(verb, checked(verb, { service: "db" }), CONTEXT);
  assertEquals(one, two);
  assertEquals(commandDigest(one), commandDigest(two));
  for (const part of [one, one.argv, one.env]) assert(Object.isFrozen(part));
});

Deno.test("resolveLookup() asks with the same arguments, and is null without a lookup", () => {
  const policy = valid(sample());
  const restart = policy.verbs.get("restart");
  const ps = policy.verbs.get("ps");
  assert(restart !== undefined && ps !== undefined);
  assertEquals(resolveLookup(restart, checked(restart, { service: "db" }), CONTEXT), {
    program: "/srv/chb/base/was-restarted",
    argv: ["key-1", "db"],
    cwd: "/srv/app",
    env: { PATH: "/usr/bin:/bin", HOME: "/home/me", COMPOSE_DISABLE_ENV_FILE: "1" },
  });
  assertEquals(resolveLookup(ps, checked(ps, {}), CONTEXT), null);
});

Deno.test("commandDigest() is the SHA-256 of a JSON array with sorted environment", () => {
  const command = { program: "/p", argv: ["a"], cwd: "/", env: { B: "2", A: "1" } };
  const text = '["/p",["a"],"/",[["A","1"],["B","2"]]]';
  assertEquals(commandDigest(command), createHash("sha256").update(text).digest("hex"));
});

Deno.test("commandDigest() differs wherever two commands differ", () => {
  const base = { program: "/p", argv: ["a", "b"], cwd: "/", env: { A: "1", B: "2" } };
  const others: ResolvedCommand[] = [
    { ...base, program: "/q" },
    { ...base, argv: ["ab"] },
    { ...base, argv: ["a", "b", ""] },
    { ...base, argv: ["a b"] },
    { ...base, argv: ['a","b'] },
    { ...base, argv: ["b", "a"] },
    { ...base, program: "/p,a", argv: ["b"] },
    { ...base, cwd: "/x" },
    { ...base, env: { A: "1" } },
    { ...base, env: { A: "2", B: "1" } },
    { ...base, env: { A: "1", B: "2", C: "" } },
    { ...base, argv: ["a"], cwd: "b/" },
  ];
  const digests = [base, ...others].map(commandDigest);
  assertEquals(new Set(digests).size, digests.length);
  assertEquals(commandDigest({ ...base, env: { B: "2", A: "1" } }), digests[0]);
  assertNotEquals(digests[0], "");
});
