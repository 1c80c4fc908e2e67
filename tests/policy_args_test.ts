/** Arguments of a request: every type at its limits, and what a hostile request may send. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { patternOf, STRING_TYPES } from "../src/policy/arg_types.ts";
import { checkArgs, checkPathArgs } from "../src/policy/check_args.ts";
import { resolveCommand } from "../src/policy/resolve_command.ts";
import { exampleArgs, verbArgsSchema } from "../src/policy/schema.ts";
import type { VerbPolicy } from "../src/policy/policy.ts";
import { validate } from "./json_schema.ts";
import { verbOf } from "./policy_fixture.ts";

/** A verb with one argument `a` of this type. */
function taking(spec: object): VerbPolicy {
  return verbOf(["/usr/bin/tool", "--", "{a}"], { a: spec });
}

/** True when the check and the schema of the catalogue both take the value; they have to agree. */
function takes(verb: VerbPolicy, value: unknown): boolean {
  const { ok } = checkArgs(verb, { a: value });
  const schema = validate(verbArgsSchema(verb), { a: value }).length === 0;
  assertEquals(schema, ok, `check says ${ok}, schema ${schema}: ${JSON.stringify(value)}`);
  return ok;
}

const LONG_NAME = "a".repeat(128);

/** Types with what they take and what they refuse. */
const TYPES: readonly [name: string, spec: object, fine: unknown[], wrong: unknown[]][] = [
  ["enum", { type: "enum", values: ["web", "db", "-x"] }, ["web", "db", "-x"], [
    "",
    "we",
    "WEB",
    "web ",
    "web\n",
    "constructor",
    "__proto__",
  ]],
  ["integer", { type: "integer", min: -2, max: 5 }, [-2, 0, -0, 5, 1.0, 1e0], [
    -3,
    6,
    0.5,
    NaN,
    Infinity,
    -Infinity,
    2 ** 53,
    "1",
    1n,
  ]],
  ["integer with the usual bounds", { type: "integer" }, [0, 2147483647], [-1, 2147483648]],
  [
    "integer with the widest bounds",
    {
      type: "integer",
      min: -9007199254740991,
      max: 9007199254740991,
    },
    [9007199254740991, -9007199254740991],
    [9007199254740992, -9007199254740992, 1e300],
  ],
  ["name", { type: "name" }, ["a", "A", "0", "_x", "a.b-c_d", "a..b", "a-", LONG_NAME], [
    "",
    "-a",
    "--file=x",
    ".a",
    "..",
    "a/b",
    "a b",
    "a\n",
    "\na",
    "a\0",
    "a\0b",
    "é",
    "a$b",
    "a;b",
    "@a",
    "a@b",
    "a=b",
    "a:b",
    LONG_NAME + "a",
  ]],
  ["name with a length", { type: "name", max_length: 3 }, ["abc"], ["abcd"]],
  ["name with a leading dash", { type: "name", allow_leading_dash: true }, ["-a", "a"], ["@a", ""]],
  ["path", { type: "path", root: "base/x" }, [
    "a",
    "a/b",
    "a.b/.c",
    "a..b",
    "...",
    "a-/b~",
    "é/ü",
    "a b",
    "a".repeat(255),
  ], [
    "",
    ".",
    "..",
    "/",
    "/a",
    "a/",
    "a//b",
    "./a",
    "a/.",
    "a/..",
    "../a",
    "a/../b",
    "a/./b",
    "-a",
    "~",
    "~/a",
    "@a",
    "a\\b",
    "..\\a",
    "a\0",
    "a\nb",
    "a\u2028b",
    "a\u202eb",
  ]],
  [
    "git-ref",
    { type: "git-ref" },
    [
      "main",
      "feature/x",
      "v1.0",
      "a/b/c",
      "x@y",
      "a+b",
      "release-1_2",
      "é",
      "a{b}",
      "a@b{",
      "HEAD",
    ],
    [
      "",
      "-f",
      "--upload-pack=x",
      "+main",
      "a..b",
      "a:b",
      "a b",
      "a~1",
      "a^",
      "a?b",
      "a*",
      "a[b",
      "a\\b",
      "/a",
      "a/",
      "a//b",
      ".a",
      "a/.b",
      "a.",
      "a.lock",
      "a.lock/b",
      "a@{1}",
      "@{u}",
      "@",
      "a\x7f",
      "a\tb",
      "a\n",
      "a".repeat(201),
    ],
  ],
  ["semver", { type: "semver" }, [
    "0.0.0",
    "1.2.3",
    "1.2.3-rc.1",
    "1.2.3-0a.--",
    "1.2.3+build.007",
    "10.20.30-alpha-1+x-y",
  ], [
    "",
    "1",
    "1.2",
    "v1.2.3",
    "01.2.3",
    "1.02.3",
    "1.2.3-01",
    "1.2.3-",
    "1.2.3+",
    "1.2.3-a..b",
    " 1.2.3",
    "1.2.3\n",
    "1.2.3.4",
    "-1.2.3",
    1.2,
  ]],
  ["sha", { type: "sha" }, ["0123abc", "0123ABC", "f".repeat(40), "0".repeat(64)], [
    "",
    "012345",
    "g123456",
    "0".repeat(65),
    "0123abc\n",
    "-123456",
    1234567,
  ]],
  ["decimal", { type: "decimal" }, ["0", "1", "12.50", "0.000001", "123456789.5"], [
    "",
    "-1",
    "+1",
    "1.",
    ".5",
    "01",
    "1e3",
    "1,5",
    "0x1",
    "NaN",
    "Infinity",
    " 1",
    "1\n",
    "١",
    1.5,
    "1".repeat(33),
  ]],
  ["decimal with a leading dash", { type: "decimal", allow_leading_dash: true }, ["-1.5", "1"], [
    "--1",
    "-",
    "-01",
  ]],
  ["text", { type: "text" }, [
    "a",
    " ",
    "any text; with $(marks) `and` 'quotes' \"too\" | > &",
    "é \u{1f600} 漢字",
    "a-b",
    "x".repeat(1024),
  ], [
    "",
    "-a",
    "--file=/tmp/x",
    "-H=tcp://x",
    "@file",
    "a\nb",
    "a\rb",
    "a\tb",
    "a\0b",
    "a\x1b[0m",
    "a\x7f",
    "a\x85b",
    "a\x9bb",
    "a\u2028b",
    "a\u2029b",
    "a\u202eb",
    "a\u2066b",
    "a\ufeffb",
    "\ud800",
    "a\udc00b",
    "x".repeat(1025),
  ]],
  ["text with a leading dash", { type: "text", allow_leading_dash: true }, ["-a", "@a", "a"], [
    "",
    "-a\n",
  ]],
];

for (const [name, spec, fine, wrong] of TYPES) {
  Deno.test(`X1 J6 checkArgs() takes what fits and refuses the rest for ${name}`, () => {
    const verb = taking(spec);
    for (const value of fine) assertEquals(takes(verb, value), true, JSON.stringify(value));
    for (const value of wrong) {
      if (typeof value === "bigint") continue;
      assertEquals(takes(verb, value), false, `took ${JSON.stringify(value)}`);
    }
  });

  Deno.test(`J3 checkArgs() looks at the JavaScript type first for ${name}`, () => {
    const verb = taking(spec);
    const text = typeof fine[0] === "string" ? fine[0] : "1";
    for (
      const value of [
        null,
        undefined,
        [],
        [text],
        {},
        { toString: () => text },
        true,
        5n,
        () => text,
        Symbol("x"),
        new String(text),
        typeof fine[0] === "string" ? 5 : text,
      ]
    ) {
      const outcome = checkArgs(verb, { a: value });
      assert(!outcome.ok, `took ${String(value)}`);
      assertEquals(outcome.path, "args.a");
      assertStringIncludes(outcome.message, "Wrong type");
    }
  });
}

Deno.test("checkArgs() takes booleans as booleans only", () => {
  const verb = verbOf(["/usr/bin/tool", "{a}"], { a: { type: "boolean", element: "--all" } });
  for (const value of [true, false]) assert(takes(verb, value));
  for (const value of ["true", 1, 0, null, [], {}]) assert(!takes(verb, value));
});

Deno.test("checkArgs() counts lengths in UTF-8 bytes", () => {
  const verb = taking({ type: "text", max_length: 4 });
  assert(checkArgs(verb, { a: "éé" }).ok);
  assert(checkArgs(verb, { a: "\u{1f600}" }).ok);
  assert(!checkArgs(verb, { a: "éé!" }).ok);
  assert(!checkArgs(verb, { a: "\u{1f600}!" }).ok);
});

Deno.test("checkArgs() refuses a part of a path that no file system takes", () => {
  const verb = taking({ type: "path", root: "base/x" });
  assert(checkArgs(verb, { a: "a/" + "é".repeat(127) }).ok);
  assert(!checkArgs(verb, { a: "a/" + "é".repeat(128) }).ok);
});

Deno.test("checkArgs() names what is unknown or missing, and what was meant", () => {
  const verb = verbOf(["/usr/bin/tool", "{service}", "{count}"], {
    service: { type: "enum", values: ["web", "db"] },
    count: { type: "integer", default: 3 },
  });
  assertEquals(checkArgs(verb, { servic: "web" }), {
    ok: false,
    path: "args.servic",
    message: 'The verb "v" has no argument "servic"',
    hint: 'Did you mean "service"? Arguments: service, count',
  });
  assertEquals(checkArgs(verb, {}), {
    ok: false,
    path: "args.service",
    message: 'The argument "service" is missing',
    hint: "Values: web, db",
  });
  assertEquals(checkArgs(verb, { service: "wbe" }), {
    ok: false,
    path: "args.service",
    message: 'Argument "service": No value "wbe" here',
    hint: 'Did you mean "web"? Values: web, db',
  });
  const none = checkArgs(verbOf(["/usr/bin/tool"]), { x: 1 });
  assert(!none.ok);
  assertEquals(none.hint, "It takes no arguments");
});

Deno.test("checkArgs() says what was wrong with a text", () => {
  const verb = taking({ type: "text", max_length: 10 });
  for (
    const [value, words] of [
      ["", "Empty text"],
      ["a\nb", "A control character"],
      ["\ud800", "A control character"],
      ["-a", 'The value starts with "-"'],
      ["@a", 'The value starts with "@"'],
      ["x".repeat(11), "Too long: more than 10 bytes"],
    ] as const
  ) {
    const outcome = checkArgs(verb, { a: value });
    assert(!outcome.ok);
    assertStringIncludes(outcome.message, words);
  }
});

Deno.test("checkArgs() fills in defaults, sorts, freezes, and keeps nothing of the request", () => {
  const verb = verbOf(["/usr/bin/tool", "{z}", "{b}", "{m}"], {
    z: { type: "integer", default: 3 },
    m: { type: "name", default: "x" },
    b: { type: "boolean", element: "-b" },
  });
  const outcome = checkArgs(verb, { z: 5 });
  assert(outcome.ok);
  assertEquals(Object.entries(outcome.args), [["b", false], ["m", "x"], ["z", 5]]);
  assertEquals(Object.getPrototypeOf(outcome.args), null);
  assert(Object.isFrozen(outcome.args));
});

Deno.test("J4 checkArgs() hands on one spelling of zero", () => {
  const outcome = checkArgs(taking({ type: "integer" }), { a: -0 });
  assert(outcome.ok);
  assert(Object.is(outcome.args["a"], 0));
});

Deno.test("J2 checkArgs() knows no name from a prototype", () => {
  const verb = verbOf(["/usr/bin/tool", "{constructor}"], { constructor: { type: "name" } });
  assert(!checkArgs(verb, {}).ok, "the inherited constructor is no value");
  assert(checkArgs(verb, JSON.parse('{"constructor":"x"}')).ok);
  const plain = verbOf(["/usr/bin/tool"]);
  for (const name of ["__proto__", "constructor", "toString", "valueOf"]) {
    const outcome = checkArgs(plain, JSON.parse(`{"${name}":"x"}`));
    assert(!outcome.ok);
    assertEquals(outcome.path, `args.${name}`);
  }
  const inherits = Object.create({ a: "x" });
  assert(!checkArgs(taking({ type: "name" }), inherits).ok);
});

Deno.test("checkArgs() quotes no hostile text as it stands", () => {
  const hostile = ["\x1b[2J\nforged", "\u202eabc", "\u0000", "x".repeat(50_000), "\ud800"];
  const verbs = [
    taking({ type: "enum", values: ["web"] }),
    taking({ type: "name" }),
    taking({ type: "semver" }),
    taking({ type: "path", root: "base/x" }),
  ];
  for (const value of hostile) {
    for (const verb of verbs) {
      for (const outcome of [checkArgs(verb, { a: value }), checkArgs(verb, { [value]: 1 })]) {
        assert(!outcome.ok);
        const told = outcome.path + outcome.message + outcome.hint;
        assert(/^[\x20-\x7e…]*$/.test(told), JSON.stringify(told));
        assert(told.length < 1000, `${told.length} characters`);
      }
    }
  }
});

Deno.test("X2 no checked value can add, split or change an argument, whatever a request holds", () => {
  const seed = crypto.getRandomValues(new Uint32Array(1))[0] ?? 1;
  console.log(`seed ${seed}`);
  let state = seed;
  const pick = (below: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const pieces = [
    ..."aZ0._-/@+~^:?*[]{}()\\$;&|<>'\"` \t\n\r\0é",
    "\u2028",
    "\u202e",
    "\ud800",
    "\u{1f600}",
    "..",
    "--",
    "@{",
    ".lock",
    "1.2.3",
    "-rf",
    "=",
    "base/",
    "{id}",
  ];
  const verbs = TYPES.map(([, spec]) => taking(spec));
  let taken = 0;
  for (let round = 0; round < 4000; round++) {
    const text = Array.from({ length: 1 + pick(5) }, () => pieces[pick(pieces.length)]).join("");
    const value = pick(8) === 0 ? pick(20) - 10 : text;
    const verb = verbs[pick(verbs.length)];
    assert(verb !== undefined);
    if (!takes(verb, value)) continue;
    const outcome = checkArgs(verb, { a: value });
    assert(outcome.ok);
    taken++;
    const { argv } = resolveCommand(verb, outcome.args, {
      id: "r1",
      idempotency_key: "r1",
      root: "/srv/chb",
      max_spend: null,
      run_dir: "state/runs/x",
    });
    const root = verb.args.get("a")?.type === "path" ? "/srv/chb/base/x/" : "";
    assertEquals(argv, ["--", root + String(value)], `seed ${seed}, round ${round}`);
    const spec = verb.args.get("a");
    const mayDash = spec?.type === "integer" || spec?.type === "enum" ||
      (spec !== undefined && "allow_leading_dash" in spec && spec.allow_leading_dash);
    const start = String(value).charAt(0);
    assert(mayDash || (start !== "-" && start !== "@"), String(value));
    assert(!/\p{Cc}/u.test(String(value)));
  }
  assert(taken > 100, `only ${taken} values were taken: the test tests nothing`);
});

Deno.test("exampleArgs() gives arguments that pass, for every type and the shortest bounds", () => {
  for (const [name, spec] of TYPES) {
    const verb = taking(spec);
    const outcome = checkArgs(verb, exampleArgs(verb));
    assert(outcome.ok, name);
    assertEquals(validate(verbArgsSchema(verb), exampleArgs(verb)), []);
  }
  for (const [type, { min_length }] of Object.entries(STRING_TYPES)) {
    const verb = taking({ type, max_length: min_length });
    assert(checkArgs(verb, exampleArgs(verb)).ok, type);
  }
  const tiny = taking({ type: "path", root: "base/x", max_length: 1 });
  assert(checkArgs(tiny, exampleArgs(tiny)).ok);
  const negative = taking({ type: "integer", min: -9, max: -3 });
  assert(checkArgs(negative, exampleArgs(negative)).ok);
});

Deno.test("patternOf() leaves the first character free only where the type says so", () => {
  const name = { type: "name", description: "", max_length: 9 } as const;
  assert(!new RegExp(patternOf({ ...name, allow_leading_dash: false }), "u").test("-a"));
  assert(new RegExp(patternOf({ ...name, allow_leading_dash: true }), "u").test("-a"));
});

Deno.test("X3 checkPathArgs() wants real directories down to a real file or directory", () => {
  const verb = taking({ type: "path", root: "base/conf" });
  const tree: Record<string, "directory" | "file" | "other"> = {
    "base": "directory",
    "base/conf": "directory",
    "base/conf/web": "directory",
    "base/conf/web/a.yaml": "file",
    "base/conf/link": "other",
    "base/conf/link/x": "file",
    "base/conf/file": "file",
    "base/conf/file/x": "file",
  };
  const asked: string[] = [];
  const fs = {
    lstat: (path: string) => {
      asked.push(path);
      return tree[path] ?? null;
    },
  };
  const outcome = (value: string) => {
    const checked = checkArgs(verb, { a: value });
    assert(checked.ok);
    return checkPathArgs(verb, checked.args, fs);
  };
  assertEquals(outcome("web/a.yaml"), { ok: true });
  assertEquals(asked, ["base", "base/conf", "base/conf/web", "base/conf/web/a.yaml"]);
  assertEquals(outcome("web"), { ok: true });
  for (
    const [value, words] of [["link", "no real"], ["link/x", "no real"], ["file/x", "no real"], [
      "none",
      "no such",
    ], ["web/none", "no such"]] as const
  ) {
    const refused = outcome(value);
    assert(!refused.ok, value);
    assertEquals(refused.path, "args.a");
    assertStringIncludes(refused.message, words);
  }
});

Deno.test("checkPathArgs() does not look where an agent can write, and wants checked arguments", () => {
  const lstat = () => {
    throw new Error("looked");
  };
  const writable = taking({ type: "path", root: "/srv/work", agent_writable: true });
  const checked = checkArgs(writable, { a: "x" });
  assert(checked.ok);
  assertEquals(checkPathArgs(writable, checked.args, { lstat }), { ok: true });
  const verb = taking({ type: "path", root: "base/conf" });
  assertThrows(() => checkPathArgs(verb, {}, { lstat }), TypeError);
});
