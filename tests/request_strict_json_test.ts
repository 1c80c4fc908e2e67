/** Bytes to JSON: what is taken, what is refused, and that no refusal tells what was in the text. */
import { assert, assertEquals } from "@std/assert";
import { parseStrictJson, type StrictJson } from "../src/request/strict_json.ts";
import { scanJson } from "../src/request/scan_json.ts";

const LIMITS = { bytes: 65_536, depth: 16, keys: 64, string_bytes: 8_192 };

function read(input: string | Uint8Array, limits = LIMITS): StrictJson {
  return parseStrictJson(typeof input === "string" ? bytes(input) : input, limits);
}

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function refused(input: string | Uint8Array, limits = LIMITS) {
  const outcome = read(input, limits);
  assert(!outcome.ok, "the text was taken");
  assert(outcome.message !== "" && outcome.hint !== "");
  return outcome;
}

/** A plain copy, for comparing: the values that the reader makes have no prototype. */
function plain(outcome: StrictJson): unknown {
  assert(outcome.ok, outcome.ok ? "" : outcome.message);
  return JSON.parse(JSON.stringify(outcome.value));
}

Deno.test("parseStrictJson() gives back what JSON.parse gives, without prototypes", () => {
  const text =
    ' {"verb":"logs","args":{"n":-0.5e1,"a":[1,true,null,"\\u00e9\\ud83d\\ude00"],"o":{}},"":""}\r\n\t';
  assertEquals(plain(read(text)), JSON.parse(text));
  const outcome = read(text);
  assert(outcome.ok && outcome.value !== null && typeof outcome.value === "object");
  assertEquals(Object.getPrototypeOf(outcome.value), null);
  assert(!Array.isArray(outcome.value));
  assertEquals(Object.getPrototypeOf(outcome.value["args"]), null);
});

for (
  const [name, text] of [
    ["a repeated key", '{"verb":"status","verb":"down"}'],
    ["a key repeated by an escape", '{"verb":"status","\\u0076erb":"down"}'],
    ["a repeated key deep inside", '{"a":[{"b":1,"c":{"b":1},"b":2}]}'],
    ["a repeated __proto__", '{"__proto__":1,"__proto__":2}'],
    ["a __proto__ repeated by an escape", '{"__proto__":1,"\\u005f_proto__":2}'],
    ["a repeated empty key", '{"":1,"":2}'],
  ] as const
) {
  Deno.test(`J1 parseStrictJson() refuses ${name}`, () => {
    assert(refused(text).message.includes("twice"));
  });
}

Deno.test("J1 parseStrictJson() takes one key in several objects", () => {
  assertEquals(plain(read('{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}')), {
    a: { a: { a: 1 } },
    b: [{ a: 1 }, { a: 2 }],
  });
});

Deno.test("J2 parseStrictJson() makes __proto__ and constructor plain keys of their object only", () => {
  const outcome = read('{"__proto__":{"polluted":1},"constructor":{"x":1}}');
  assert(outcome.ok);
  const value = outcome.value as Record<string, unknown>;
  assertEquals(Object.keys(value), ["__proto__", "constructor"]);
  assertEquals(Object.getPrototypeOf(value), null);
  assertEquals(value["polluted"], undefined);
  assertEquals(({} as Record<string, unknown>)["polluted"], undefined);
  assertEquals(value["toString"], undefined);
});

Deno.test("J4 parseStrictJson() refuses numbers that are not what was written", () => {
  for (
    const text of ["9007199254740993", "-9007199254740992", "1e999", "-1e999", "1e300", "1E16"]
  ) {
    const { message } = refused(`{"n":${text}}`);
    assert(message.includes("number"), message);
  }
  assertEquals(plain(read('{"n":[9007199254740991,-9007199254740991,1.0,1E2,0.1,1e-999]}')), {
    n: [9007199254740991, -9007199254740991, 1, 100, 0.1, 0],
  });
  const zero = read("[-0, -0.0]");
  assert(zero.ok && Array.isArray(zero.value));
  assert(zero.value.every((item) => Object.is(item, 0)));
});

Deno.test("J6 parseStrictJson() refuses a NUL, raw or escaped, in values and keys", () => {
  for (const text of ['{"a":"x\\u0000y"}', '{"a\\u0000":1}', '{"a":"x\0y"}', "\0", '{"a":1}\0']) {
    const { message } = refused(text);
    assert(message.includes("NUL"), message);
  }
});

Deno.test("J7 parseStrictJson() refuses a byte order mark and bytes that are not UTF-8", () => {
  assert(refused("\ufeff{}").message.includes("byte order mark"));
  for (
    const content of [
      [0x7b, 0x22, 0xff, 0x22, 0x7d],
      [0x22, 0xc3, 0x28, 0x22],
      [0x22, 0xed, 0xa0, 0x80, 0x22], // half a surrogate pair in bytes
      [0x22, 0xc0, 0x80, 0x22], // NUL in two bytes
      [0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00],
      [0xfe, 0xff, 0x00, 0x7b],
    ]
  ) {
    const outcome = refused(new Uint8Array(content));
    assert(outcome.message.includes("UTF-8"), outcome.message);
    assertEquals(outcome.truncated, false);
  }
});

Deno.test("J7 parseStrictJson() refuses half a surrogate pair written as an escape", () => {
  for (const text of ['"\\ud800"', '{"\\udc00":1}', '"\\ude00\\ud83d"']) {
    assert(refused(text).message.includes("surrogate"));
  }
  assertEquals(plain(read('"\\ud83d\\ude00"')), "\u{1f600}");
});

Deno.test("J8 parseStrictJson() counts depth and refuses one level more, however deep", () => {
  const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
  assert(read(nested(16)).ok);
  assert(refused(nested(17)).message.includes("deeper than 16"));
  assert(refused("[".repeat(60_000)).message.includes("deeper"));
  assert(refused('{"a":'.repeat(10_000)).message.includes("deeper"));
  const wide = { ...LIMITS, bytes: 20_000_000 };
  assert(refused("[".repeat(10_000_000), wide).message.includes("deeper"));
  assert(read('"' + "[".repeat(100) + '"').ok, "brackets in strings are no depth");
  assert(read('["' + '\\"['.repeat(50) + '"]').ok);
});

Deno.test("J9 parseStrictJson() counts bytes, keys and string bytes to the last one", () => {
  const object = (keys: number) =>
    `{${Array.from({ length: keys }, (_, n) => `"k${n}":0`).join(",")}}`;
  assert(read(object(64)).ok);
  assert(refused(object(65)).message.includes("more than 64 keys"));
  assert(refused(`{"args":${object(65)}}`).message.includes("keys"));
  assert(read(`"${"x".repeat(8192)}"`).ok);
  assert(refused(`"${"x".repeat(8193)}"`).message.includes("8192 bytes"));
  assert(read(`"${"\u00e9".repeat(4096)}"`).ok);
  assert(refused(`"${"\u00e9".repeat(4096)}x"`).message.includes("8192 bytes"));
  assert(refused(`{"${"k".repeat(8193)}":1}`).message.includes("8192 bytes"));
  const padded = `{}${" ".repeat(65_534)}`;
  assert(read(padded).ok);
  assert(refused(padded + " ").message.includes("65536 bytes"));
  const low = { bytes: 10, depth: 1, keys: 1, string_bytes: 1 };
  assert(read('{"a":"b"}', low).ok);
  assert(!read('{"a":"bc"}', low).ok);
  assert(!read('{"a":[1]}', low).ok);
});

Deno.test("J10 parseStrictJson() gives any outermost value; the shape is judged later", () => {
  for (const text of ["null", "[]", '"verb"', "7", "true"]) {
    assertEquals(plain(read(text)), JSON.parse(text));
  }
});

Deno.test("J11 parseStrictJson() refuses everything beside the grammar", () => {
  for (
    const text of [
      "{} {}",
      "{}x",
      "[1,]",
      '{"a":1,}',
      "{,}",
      "[,1]",
      "{a:1}",
      "{'a':1}",
      '{"a" 1}',
      '{"a":}',
      '{"a":1 "b":2}',
      "[1 2]",
      "// c\n{}",
      "/* c */{}",
      "NaN",
      "Infinity",
      "-Infinity",
      "undefined",
      "01",
      "-01",
      "+1",
      ".5",
      "1.",
      "[1.]",
      "[1e]",
      "0x10",
      "1_000",
      '"\\x41"',
      '"\\u12g4"',
      '"a\nb"',
      '"a\tb"',
      "[}",
      "{]",
      '{"a":1]',
      "]",
      "}",
      ":",
      ",",
      "\u00a0{}",
      "{}\u2028",
      "nulll",
      "True",
      "\u000b{}",
    ]
  ) {
    assert(!read(text).ok, text);
  }
});

Deno.test("J14 parseStrictJson() judges the size before it looks at the content", () => {
  assert(refused(new Uint8Array(LIMITS.bytes + 1)).message.includes("larger than"));
  assert(refused(new Uint8Array(LIMITS.bytes)).message.includes("NUL"));
});

Deno.test("J15 parseStrictJson() calls every beginning of a request truncated, with the hint to rename", () => {
  const whole = bytes(
    '{"verb":"r\\u00e9\u00e9\u{1f600}","args":{"a":[true,false,null,-1.5e+3],"b":{}},"n":1.5}',
  );
  assert(read(whole).ok);
  for (let length = 0; length < whole.length; length++) {
    const outcome = refused(whole.subarray(0, length));
    assert(outcome.truncated, `${length} bytes: ${outcome.message}`);
    assert(outcome.hint.includes("rename"));
  }
  assert(refused("").message.includes("empty"));
  assert(refused(" \n\t ").truncated);
});

Deno.test("J15 parseStrictJson() does not call a text truncated that was wrong before its end", () => {
  for (const text of ['{"a" 1', "{]", '{"a":1}}', '{"a":tru }', '{"a":01', "[1,,", '{"a":1,"a":']) {
    assertEquals(refused(text).truncated, false, text);
  }
});

Deno.test("J16 P1 no refusal quotes the text or the runtime's own message", () => {
  const secret = "root:x:0:0 \u001b[2J AKIASECRET";
  for (
    const text of [
      secret,
      `{"${secret.slice(0, 10)}": ${secret}}`,
      `{"AKIASECRET":1,"AKIASECRET":2}`,
      `{"a":"AKIASECRET`,
      `{"a":"AKIASECRET\\u0000"}`,
      `"AKIASECRET" AKIASECRET`,
      `["AKIASECRET\u0007"]`,
    ]
  ) {
    const { message, hint } = refused(text);
    for (const words of [message, hint]) {
      assert(!words.includes("AKIA") && !words.includes("root"), words);
      assert(!/[Uu]nexpected token|position|JSON\.parse/.test(words), words);
      assert(/^[\x20-\x7e]*$/.test(words), words);
    }
  }
});

Deno.test("a refusal names line and column of a syntax error", () => {
  assert(refused('{\n  "a": 1,\n  b: 2\n}').message.includes("line 3, column 3"));
  assert(refused("x").message.includes("line 1, column 1"));
});

/** A small generator of pseudo-random numbers, so that a failure can be seen again. */
function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * below);
  };
}

Deno.test("law: scanJson() accepts exactly the texts that JSON.parse accepts", () => {
  const seed = Number(Deno.env.get("SEED") ?? Date.now() % 2 ** 31);
  const next = random(seed);
  const pieces =
    '{ } [ ] , : "a" "b\\n" "\\u0041" " \\ 0 1 -1 1.5 1e5 01 - . e true false null tru nul \n \t u x {"a":1} [1,2]'
      .split(" ").concat(" ");
  const wide = { depth: 1e9, keys: 1e9, string_bytes: 1e9 };
  let accepted = 0;
  const seeds = ['{"a":[1,{"b":null}],"c":"d"}', "[[],{}]", '"a"', "-0.5e-7", '{"":{"":""}}'];
  for (let run = 0; run < 20_000; run++) {
    let text = "";
    if (run % 2 === 0) {
      for (let n = next(8); n >= 0; n--) text += pieces[next(pieces.length)];
    } else {
      text = seeds[next(seeds.length)] ?? "";
      for (let n = next(3); n > 0; n--) {
        const at = next(text.length + 1);
        text = text.slice(0, at) + pieces[next(pieces.length)] + text.slice(at + next(2));
      }
    }
    let valid = true;
    try {
      JSON.parse(text);
    } catch {
      valid = false;
    }
    const problem = scanJson(text, wide);
    if (problem?.kind === "duplicate") continue;
    assertEquals(problem === null, valid, `SEED=${seed}: ${JSON.stringify(text)}`);
    if (valid) accepted++;
  }
  assert(accepted > 1000, "the generator makes valid texts, too");
});
