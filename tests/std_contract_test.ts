/**
 * The contract of the `@std` modules: one table that both the JSR registry's modules and the
 * stand-ins of `tools/std` are held to, whichever are mapped. It covers what the program and its
 * tests rely on.
 */
import * as assert from "@std/assert";
import { parseArgs } from "@std/cli/parse-args";
import { ensureDir, ensureDirSync } from "@std/fs/ensure-dir";
import { exists, existsSync } from "@std/fs/exists";
import { parse } from "@std/jsonc";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";

/** Equality that does not lean on what is tested here. */
function same(actual: unknown, expected: unknown, what: string): void {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: got ${a}, expected ${b}`);
}

/** What `fn` throws; fails when it throws nothing. */
function thrown(fn: () => unknown): unknown {
  try {
    fn();
  } catch (error) {
    return error;
  }
  throw new Error("Expected a throw");
}

// ---------------------------------------------------------------------------------------- jsonc

const VALUES: readonly [string, unknown][] = [
  ["null", null],
  [" true ", true],
  ["-0.5e+2", -50],
  ['"a\\u0041\\n\\\\"', "aA\n\\"],
  ["[]", []],
  ["[1,2,]", [1, 2]],
  ["{}", {}],
  ['{"a":1,}', { a: 1 }],
  ['{"a":{"b":[{},[]]}}', { a: { b: [{}, []] } }],
  ["// first\n1", 1],
  ["1 // last", 1],
  ["1// last", 1],
  ["/* a */ [ /* b */ 1 /**/ , // c\r\n 2 ] /* d */", [1, 2]],
  ['{/**/"a"/**/:/**/1/**/}', { a: 1 }],
  ['"// no comment"', "// no comment"],
  ['"/* nor */ this"', "/* nor */ this"],
  ['{"a":1,"a":2}', { a: 2 }],
  ['{"":0}', { "": 0 }],
  ["[1e400]", [Infinity]],
  ["/***/ 1", 1],
  ["// a\r1", 1],
];

for (const [text, value] of VALUES) {
  Deno.test(`jsonc parse() reads ${JSON.stringify(text)}`, () => {
    same(parse(text), value, text);
  });
}

/** Text and the position that the error must name; null for a text that ends too early. */
const ERRORS: readonly [string, number | null][] = [
  ["", null],
  [" \n\t", null],
  ["// only a comment", null],
  ["/* never closed", null],
  ["1 /* never closed", null],
  ["[", null],
  ["[1", null],
  ["[1,", null],
  ['{"a"', null],
  ['{"a":', null],
  ['{"a":1', null],
  ['{"a":1,', null],
  ["{", null],
  ["[,]", 1],
  ["[1,,2]", 3],
  ["[1 2]", 3],
  ["{,}", 1],
  ["{a:1}", 1],
  ["{1:1}", 1],
  ['{"a" 1}', 5],
  ['{"a":}', 5],
  ['{"a":1 "b":2}', 7],
  ['{"a":1]', 6],
  ["[1}", 2],
  ["]", 0],
  [":", 0],
  ["1 2", 2],
  ["{} x", 3],
  ["01", 0],
  ["+1", 0],
  [".5", 0],
  ["1.", 0],
  ["NaN", 0],
  ["Infinity", 0],
  ["undefined", 0],
  ["tru", 0],
  ["TRUE", 0],
  ["'a'", 0],
  ['["a\nb"]', 1],
  ['["\\x"]', 1],
  ['["abc', 1],
  ['["abc\\"]', 1],
  ["1 / 2", 2],
  ["/ 1", 0],
  ["# 1", 0],
  ["\ufeff1", 0],
  ["\u00a01", 0],
  ["\v1", 0],
  [`["${"x".repeat(200)}\u0001"]`, 1],
];

for (const [text, position] of ERRORS) {
  const shown = text.length > 40 ? `${text.slice(0, 40)}...` : text;
  const where = position === null ? "an unexpected end" : `position ${position}`;
  Deno.test(`jsonc parse() of ${JSON.stringify(shown)} names ${where}`, () => {
    const error = thrown(() => parse(text));
    if (!(error instanceof SyntaxError)) throw new Error(`Expected a SyntaxError, got ${error}`);
    const named = / position (\d+)$/.exec(error.message)?.[1];
    same(named === undefined ? null : Number(named), position, error.message);
    if (position === null && !error.message.includes("unexpected end")) {
      throw new Error(`Expected "unexpected end" in: ${error.message}`);
    }
    if (error.message.length > 120) throw new Error(`Too long a message: ${error.message}`);
  });
}

Deno.test("jsonc parse() makes __proto__ an own property and changes no prototype", () => {
  const value = parse('{"__proto__":{"x":1}}');
  if (typeof value !== "object" || value === null) throw new Error("Expected an object");
  same(Object.keys(value), ["__proto__"], "own keys");
  same(Object.getPrototypeOf(value) === Object.prototype, true, "prototype");
  same(Reflect.get({}, "x"), undefined, "every other object");
});

// ------------------------------------------------------------------------------------ parseArgs

/** Each call spelled out, so that its types are checked as they are in the program. */
const COMMAND_LINES: readonly [string, () => object, object][] = [
  ["nothing", () => parseArgs([], {}), { _: [] }],
  ["operands", () => parseArgs(["a", "b"], {}), { _: ["a", "b"] }],
  ["a lone dash is an operand", () => parseArgs(["-"], { string: ["_"] }), { _: ["-"] }],
  [
    "operands that look like numbers become numbers",
    () => parseArgs(["7", "0x10", "1e3", "-"], {}),
    { _: [7, 16, 1000, "-"] },
  ],
  ["operands stay strings where _ is one", () => parseArgs(["7", "x"], { string: ["_"] }), {
    _: ["7", "x"],
  }],
  ["string with a space", () => parseArgs(["--root", "x"], { string: ["root"] }), {
    _: [],
    root: "x",
  }],
  ["string with an equals sign", () => parseArgs(["--root=x=y"], { string: ["root"] }), {
    _: [],
    root: "x=y",
  }],
  ["string stays a string", () => parseArgs(["--root=7"], { string: ["root"] }), {
    _: [],
    root: "7",
  }],
  ["string without a value is empty", () => parseArgs(["--root"], { string: ["root"] }), {
    _: [],
    root: "",
  }],
  [
    "string before another option is empty",
    () => parseArgs(["--root", "--json"], { string: ["root"], boolean: ["json"] }),
    { _: [], root: "", json: true },
  ],
  [
    "string does not take a value with a dash",
    () => parseArgs(["--root", "-x"], { string: ["root", "x"] }),
    { _: [], root: "", x: "" },
  ],
  [
    "an equals sign at the end belongs to the name",
    () => parseArgs(["--root="], { string: ["root"] }),
    { _: [], "root=": true },
  ],
  ["the last of two wins", () => parseArgs(["--root=a", "--root=b"], { string: ["root"] }), {
    _: [],
    root: "b",
  }],
  ["boolean", () => parseArgs(["--json", "x"], { boolean: ["json"] }), { _: ["x"], json: true }],
  ["boolean that is missing is false", () => parseArgs([], { boolean: ["json"] }), {
    _: [],
    json: false,
  }],
  [
    "boolean takes true and false",
    () => parseArgs(["--json", "false", "x"], { boolean: ["json"] }),
    { _: ["x"], json: false },
  ],
  ["boolean with =false", () => parseArgs(["--json=false"], { boolean: ["json"] }), {
    _: [],
    json: false,
  }],
  ["boolean with =anything", () => parseArgs(["--json=no"], { boolean: ["json"] }), {
    _: [],
    json: true,
  }],
  ["negatable", () => parseArgs(["--no-color"], { boolean: ["color"], negatable: ["color"] }), {
    _: [],
    color: false,
  }],
  [
    "no- of what is not negatable is a name",
    () => parseArgs(["--no-color"], { boolean: ["color"] }),
    { _: [], "no-color": true, color: false },
  ],
  ["collect", () => parseArgs(["--arg=a", "--arg", "b"], { string: ["arg"], collect: ["arg"] }), {
    _: [],
    arg: ["a", "b"],
  }],
  ["collect that is missing is empty", () => parseArgs([], { string: ["arg"], collect: ["arg"] }), {
    _: [],
    arg: [],
  }],
  ["alias", () => parseArgs(["-h"], { boolean: ["help"], alias: { help: "h" } }), {
    _: [],
    h: true,
    help: true,
  }],
  [
    "alias of a string",
    () => parseArgs(["-r", "x"], { string: ["root"], alias: { root: ["r"] } }),
    { _: [], r: "x", root: "x" },
  ],
  [
    "alias that is collected",
    () =>
      parseArgs(["-a", "1", "--arg=2"], { string: ["arg"], collect: ["arg"], alias: { arg: "a" } }),
    { _: [], a: ["1", "2"], arg: ["1", "2"] },
  ],
  ["default", () => parseArgs([], { string: ["root"], default: { root: "." } }), {
    _: [],
    root: ".",
  }],
  [
    "default gives way",
    () => parseArgs(["--root=x"], { string: ["root"], default: { root: "." } }),
    { _: [], root: "x" },
  ],
  [
    "default of an alias",
    () => parseArgs([], { string: ["root"], alias: { root: "r" }, default: { root: "." } }),
    { _: [], root: ".", r: "." },
  ],
  ["-- ends the options", () => parseArgs(["--json", "--", "--root", "x"], { boolean: ["json"] }), {
    _: ["--root", "x"],
    json: true,
  }],
  ["-- under a name of its own", () => parseArgs(["a", "--", "-b", "7"], { "--": true }), {
    _: ["a"],
    "--": ["-b", "7"],
  }],
  ["what follows -- stays a string", () => parseArgs(["--", "7"], {}), { _: ["7"] }],
  [
    "stopEarly",
    () => parseArgs(["--json", "run", "--root", "x"], { boolean: ["json"], stopEarly: true }),
    { _: ["run", "--root", "x"], json: true },
  ],
  ["stopEarly stops before --", () => parseArgs(["run", "-a", "--", "b"], { stopEarly: true }), {
    _: ["run", "-a", "b"],
  }],
  ["a cluster of letters", () => parseArgs(["-abc"], { boolean: ["a", "b", "c"] }), {
    _: [],
    a: true,
    b: true,
    c: true,
  }],
  ["a letter with its number", () => parseArgs(["-n5"], { string: ["n"] }), { _: [], n: "5" }],
  ["a letter with an equals sign", () => parseArgs(["-n=x"], { string: ["n"] }), { _: [], n: "x" }],
  [
    "the last letter takes a value",
    () => parseArgs(["-vr", "x"], { boolean: ["v"], string: ["r"] }),
    { _: [], v: true, r: "x" },
  ],
  ["an option that is not declared", () => parseArgs(["--x", "1"], {}), { _: [], x: 1 }],
  ["an empty argument", () => parseArgs(["", "--root", ""], { string: ["root", "_"] }), {
    _: ["", ""],
    root: "",
  }],
];

/** With its keys in order: the order in which options were set is nobody's business. */
function sorted(value: object): [string, unknown][] {
  return Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
}

for (const [name, parsed, expected] of COMMAND_LINES) {
  Deno.test(`parseArgs(): ${name}`, () => {
    same(sorted(parsed()), sorted(expected), name);
  });
}

Deno.test("parseArgs() asks about what was not declared and leaves out what is refused", () => {
  const asked: unknown[][] = [];
  const parsed = parseArgs(["--x=1", "-y", "a", "--json", "--z", "v", "b", "--", "--w"], {
    boolean: ["json"],
    unknown: (...words) => {
      asked.push(words);
      return false;
    },
  });
  same(asked, [["--x=1", "x", "1"], ["-y", "y", "a"], ["--z", "z", "v"], ["b"]], "asked");
  same(sorted(parsed), [["_", ["--w"]], ["json", true]], "kept");
});

Deno.test("parseArgs() does not ask about declared names, their aliases, and operands it keeps", () => {
  const asked: string[] = [];
  const parsed = parseArgs(["-r", "x", "--json", "run", "7"], {
    boolean: ["json"],
    string: ["root", "_"],
    alias: { root: "r" },
    unknown: (arg, key) => {
      if (key === undefined) return true;
      asked.push(arg);
      return false;
    },
  });
  same(asked, [], "asked");
  same(parsed._, ["run", "7"], "operands");
});

Deno.test("parseArgs() gives declared options their types", () => {
  const parsed = parseArgs(["--root=x", "--json", "--arg=a"], {
    boolean: ["json"],
    string: ["root", "arg"],
    collect: ["arg"],
  });
  const root: string | undefined = parsed.root;
  const json: boolean = parsed.json;
  const args: string[] = parsed.arg;
  const operands: (string | number)[] = parsed._;
  same([root, json, args, operands], ["x", true, ["a"], []], "values");
});

// ----------------------------------------------------------------------------------------- path

Deno.test("join() puts segments together and normalises", () => {
  same(join("a", "b", "c.json"), "a/b/c.json", "plain");
  same(join("a/", "/b", "..", "./c"), "a/c", "dots");
  same(join("/a", "../../b"), "/b", "above the root");
  same(join("a", "..", "..", "b"), "../b", "above the start");
  same(join("a", ""), "a", "an empty segment");
  same(join("./a"), "a", "a leading dot");
});

Deno.test("dirname() takes off the last segment", () => {
  const rows: [string, string][] = [["/a/b.ts", "/a"], ["a", "."], ["/", "/"], ["a/b/", "a"]];
  for (const [path, expected] of rows) same(dirname(path), expected, path);
});

// ------------------------------------------------------------------------------------------- fs

/** Runs `fn` with a temporary directory that is removed afterwards. */
async function withDirectory(fn: (directory: string) => void | Promise<void>): Promise<void> {
  const directory = Deno.makeTempDirSync();
  try {
    await fn(directory);
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
}

Deno.test("exists() follows links and tells files from directories", async () => {
  await withDirectory(async (top) => {
    Deno.writeTextFileSync(join(top, "file"), "");
    Deno.symlinkSync("file", join(top, "link"));
    Deno.symlinkSync("nothing", join(top, "dangling"));
    const rows: [string, Parameters<typeof exists>[1], boolean][] = [
      ["file", {}, true],
      ["file", { isFile: true }, true],
      ["file", { isDirectory: true }, false],
      [".", { isDirectory: true }, true],
      [".", { isFile: true }, false],
      ["link", { isFile: true }, true],
      ["dangling", {}, false],
      ["missing", {}, false],
    ];
    for (const [name, options, expected] of rows) {
      same(existsSync(join(top, name), options), expected, `existsSync ${name}`);
      same(await exists(join(top, name), options), expected, `exists ${name}`);
    }
  });
});

Deno.test("ensureDir() makes parents, keeps what is there, and refuses a file", async () => {
  await withDirectory(async (top) => {
    ensureDirSync(join(top, "a", "b"));
    Deno.writeTextFileSync(join(top, "a", "b", "file"), "kept");
    ensureDirSync(join(top, "a", "b"));
    await ensureDir(join(top, "c", "d"));
    await ensureDir(join(top, "c", "d"));
    same(Deno.readTextFileSync(join(top, "a", "b", "file")), "kept", "content");
    same(Deno.statSync(join(top, "c", "d")).isDirectory, true, "directory");
    same(thrown(() => ensureDirSync(join(top, "a", "b", "file"))) instanceof Error, true, "file");
  });
});

// --------------------------------------------------------------------------------------- assert

/** Values that are equal, whichever comes first. */
const EQUAL: readonly [string, unknown, unknown][] = [
  ["numbers", 1, 1],
  ["not-a-number", NaN, NaN],
  ["strings", "a", "a"],
  ["null", null, null],
  ["arrays", [1, [2, "x"]], [1, [2, "x"]]],
  ["objects in another order", { a: 1, b: { c: 2 } }, { b: { c: 2 }, a: 1 }],
  ["an object without a prototype", Object.assign(Object.create(null), { a: 1 }), { a: 1 }],
  ["bytes", new Uint8Array([1, 2]), new Uint8Array([1, 2])],
  ["dates", new Date(7), new Date(7)],
  ["regular expressions", /a/g, /a/g],
  ["maps", new Map([["a", [1]]]), new Map([["a", [1]]])],
  ["sets", new Set([1, 2]), new Set([2, 1])],
];

const UNEQUAL: readonly [string, unknown, unknown][] = [
  ["numbers", 1, 2],
  ["number and string", 1, "1"],
  ["null and undefined", null, undefined],
  ["arrays of other length", [1, 2], [1]],
  ["arrays of other order", [1, 2], [2, 1]],
  ["array and object", [], {}],
  ["objects of other value", { a: 1 }, { a: 2 }],
  ["objects of other keys", { a: 1 }, { b: 1 }],
  ["a missing and an undefined property", { a: undefined }, {}],
  ["a deep difference", { a: [{ b: 1 }] }, { a: [{ b: 2 }] }],
  ["bytes", new Uint8Array([1, 2]), new Uint8Array([1, 3])],
  ["dates", new Date(7), new Date(8)],
  ["regular expressions", /a/g, /a/i],
  ["maps", new Map([["a", 1]]), new Map([["a", 2]])],
  ["sets", new Set([1]), new Set([1, 2])],
];

for (const [name, a, b] of EQUAL) {
  Deno.test(`assertEquals() takes as equal: ${name}`, () => {
    assert.assertEquals(a, b);
    assert.assertEquals(b, a);
    same(thrown(() => assert.assertNotEquals(a, b)) instanceof assert.AssertionError, true, name);
  });
}

for (const [name, a, b] of UNEQUAL) {
  Deno.test(`assertEquals() takes as different: ${name}`, () => {
    assert.assertNotEquals(a, b);
    assert.assertNotEquals(b, a);
    same(thrown(() => assert.assertEquals(a, b)) instanceof assert.AssertionError, true, name);
    same(thrown(() => assert.assertEquals(b, a)) instanceof assert.AssertionError, true, name);
  });
}

/** Each assertion once where it holds and once where it does not. */
const ASSERTIONS: readonly [string, () => void, () => void][] = [
  ["assert()", () => assert.assert("x"), () => assert.assert("")],
  ["assertFalse()", () => assert.assertFalse(0), () => assert.assertFalse(1)],
  ["assertExists()", () => assert.assertExists(0), () => assert.assertExists(null)],
  [
    "assertStrictEquals()",
    () => assert.assertStrictEquals(NaN, NaN),
    () => assert.assertStrictEquals({}, {}),
  ],
  [
    "assertInstanceOf()",
    () => assert.assertInstanceOf(new TypeError("x"), Error),
    () => assert.assertInstanceOf({}, Error),
  ],
  [
    "assertStringIncludes()",
    () => assert.assertStringIncludes("abc", "bc"),
    () => assert.assertStringIncludes("abc", "cb"),
  ],
  ["assertMatch()", () => assert.assertMatch("abc", /b/), () => assert.assertMatch("abc", /^b/)],
  [
    "assertNotMatch()",
    () => assert.assertNotMatch("abc", /^b/),
    () => assert.assertNotMatch("abc", /b/),
  ],
  [
    "assertArrayIncludes()",
    () => assert.assertArrayIncludes([{ a: 1 }, 2], [{ a: 1 }]),
    () => assert.assertArrayIncludes([1, 2], [3]),
  ],
  ["assertGreater()", () => assert.assertGreater(2, 1), () => assert.assertGreater(1, 1)],
  [
    "assertGreaterOrEqual()",
    () => assert.assertGreaterOrEqual(1, 1),
    () => assert.assertGreaterOrEqual(0, 1),
  ],
  ["assertLess()", () => assert.assertLess(1, 2), () => assert.assertLess(1, 1)],
  [
    "assertLessOrEqual()",
    () => assert.assertLessOrEqual(1, 1),
    () => assert.assertLessOrEqual(2, 1),
  ],
  ["assertThrows()", () => {
    assert.assertThrows(
      () => {
        throw new RangeError("out of range");
      },
      RangeError,
      "range",
    );
  }, () => {
    assert.assertThrows(() => {});
  }],
  ["fail()", () => {}, () => assert.fail("x")],
  ["unreachable()", () => {}, () => assert.unreachable()],
];

for (const [name, holds, breaks] of ASSERTIONS) {
  Deno.test(`${name} throws AssertionError when it does not hold, and only then`, () => {
    holds();
    same(thrown(breaks) instanceof assert.AssertionError, true, name);
  });
}

Deno.test("assertThrows() returns what was thrown and checks class and message", () => {
  const boom = () => {
    throw new TypeError("boom");
  };
  same(assert.assertThrows(boom) instanceof TypeError, true, "anything");
  same(assert.assertThrows(boom, Error).message, "boom", "a base class");
  const wrong = [
    () => assert.assertThrows(boom, RangeError),
    () => assert.assertThrows(boom, TypeError, "bang"),
  ];
  for (const fn of wrong) same(thrown(fn) instanceof assert.AssertionError, true, "wrong");
});

Deno.test("assertRejects() returns the reason and checks class and message", async () => {
  const boom = () => Promise.reject(new TypeError("boom"));
  same((await assert.assertRejects(boom)) instanceof TypeError, true, "anything");
  same((await assert.assertRejects(boom, Error, "oo")).message, "boom", "a base class");
  const wrong = [
    () => assert.assertRejects(() => Promise.resolve(1)),
    () => assert.assertRejects(boom, RangeError),
    () => assert.assertRejects(boom, TypeError, "bang"),
  ];
  for (const fn of wrong) {
    const reason: unknown = await fn().then(() => undefined, (error) => error);
    same(reason instanceof assert.AssertionError, true, "wrong");
  }
});
