/** The shape of a request: known fields, their types and bounds, and words for what is wrong. */
import { assert, assertEquals } from "@std/assert";
import { parseRequest, REQUEST_FIELDS } from "../src/request/parse_request.ts";
import { parseStrictJson } from "../src/request/strict_json.ts";
import type { Json } from "../src/request/request.ts";

const LIMITS = { bytes: 65_536, depth: 16, keys: 64, string_bytes: 8_192 };

/** What the two stages together make of a text, as the intake calls them. */
function parse(text: string, id = "r1") {
  const json = parseStrictJson(new TextEncoder().encode(text), LIMITS);
  assert(json.ok, json.ok ? "" : json.message);
  return parseRequest(json.value, { id });
}

function refused(value: unknown, id = "r1") {
  const outcome = parse(JSON.stringify(value), id);
  assert(!outcome.ok, "the request was taken");
  assert(outcome.message !== "" && outcome.hint !== "");
  return outcome;
}

/** A right value for every field. */
const RIGHT = {
  verb: "restart",
  args: { service: "web", n: 1, deep: { a: [null] } },
  id: "r1",
  idempotency_key: "deploy-2f9c",
  timeout_s: 120,
  max_age_s: 0.5,
  scope: "mutating",
  max_spend: 0,
  plan: "text\nof two lines",
  note: "",
  chb: 1,
} as const;

Deno.test("parseRequest() takes a request with every field", () => {
  assertEquals(Object.keys(RIGHT).sort(), [...REQUEST_FIELDS].sort());
  const outcome = parse(JSON.stringify(RIGHT));
  assert(outcome.ok);
  const { chb: _, ...fields } = RIGHT;
  assertEquals(JSON.parse(JSON.stringify(outcome.request)), fields);
  assert(Object.isFrozen(outcome.request) && Object.isFrozen(outcome.request.args));
});

Deno.test("parseRequest() takes a verb alone and leaves absent fields absent", () => {
  const outcome = parse('{"verb":"ps"}');
  assert(outcome.ok);
  assertEquals(Object.keys(outcome.request), ["verb", "args"]);
  assertEquals(Object.keys(outcome.request.args), []);
  assertEquals(Object.getPrototypeOf(outcome.request.args), null);
});

/** Thrown at every field; the fields for which a value is right are named beside it. */
const WRONG: readonly (readonly [name: string, value: unknown, right: readonly string[]])[] = [
  ["null", null, []],
  ["true", true, []],
  ["false", false, []],
  ["zero", 0, ["max_spend"]],
  ["one", 1, ["timeout_s", "max_age_s", "max_spend", "chb"]],
  ["a negative number", -1, []],
  ["a fraction", 0.25, ["timeout_s", "max_age_s", "max_spend"]],
  ["an empty string", "", ["plan", "note"]],
  ["a number as text", "1", ["verb", "idempotency_key", "plan", "note"]],
  ["a text with spaces", "a b", ["verb", "plan", "note"]],
  ["a text with a newline at its end", "r1\n", ["verb", "plan", "note"]],
  ["an upper-case text", "R1", ["verb", "plan", "note"]],
  ["a text of 129 characters", "a".repeat(129), ["verb", "plan", "note"]],
  ["a path", "../../x", ["verb", "plan", "note"]],
  ["a text of 8193 bytes", "x".repeat(8_191) + "\u00e9", ["verb"]],
  ["an empty array", [], []],
  ["an array with a right text", ["restart"], []],
  ["an array with a number", [1], []],
  ["an empty object", {}, ["args"]],
  ["an object that turns into text", { toString: "restart" }, ["args"]],
];

for (const field of REQUEST_FIELDS) {
  Deno.test(`J3 parseRequest() refuses every wrong-typed value of "${field}"`, () => {
    for (const [name, value, right] of WRONG) {
      const whole = JSON.stringify({ verb: "restart", [field]: value });
      // The reader refuses long strings by itself; this stage must not rely on it.
      const outcome = parseRequest(JSON.parse(whole) as Json, { id: "r1" });
      assertEquals(outcome.ok, right.includes(field), `${field} = ${name}`);
      if (outcome.ok) continue;
      assertEquals(outcome.path, field, name);
      assert(outcome.message.includes(field) || field === "chb", outcome.message);
    }
  });
}

Deno.test("J3 parseRequest() says what it found and what would be right", () => {
  const array = refused({ verb: ["restart"] });
  assertEquals(array.message, 'Field "verb" must be the name of a verb; it is an array');
  assertEquals(refused({ verb: "ps", note: null }).hint, 'Leave "note" out instead of null');
  const bound = refused({ verb: "ps", timeout_s: 0 });
  assertEquals(bound.message, 'Field "timeout_s" must be a number of seconds above 0');
  assert(refused({ verb: "ps", scope: "mutatin" }).hint.includes('"mutating"'));
  assert(refused({ args: {} }).message.includes('"verb"'));
});

for (
  const [name, text] of [
    ["null", "null"],
    ["an array", '[{"verb":"ps"}]'],
    ["a string", '"ps"'],
    ["a number", "1"],
    ["a boolean", "true"],
  ] as const
) {
  Deno.test(`J10 parseRequest() refuses ${name} as the outermost value`, () => {
    const outcome = parse(text);
    assert(!outcome.ok);
    assertEquals(outcome.path, "");
    assertEquals(outcome.message, `The request is ${name}, not an object`);
  });
}

Deno.test("J2 parseRequest() refuses unknown keys, those of every object's prototype included", () => {
  for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"]) {
    const outcome = parse(`{"verb":"ps","${name}":{"verb":"down"}}`);
    assert(!outcome.ok, name);
    assertEquals(outcome.path, name);
  }
  const inArgs = parse('{"verb":"ps","args":{"__proto__":{"service":"web"}}}');
  assert(inArgs.ok);
  assertEquals(Object.keys(inArgs.request.args), ["__proto__"]);
  assertEquals(inArgs.request.args["service"], undefined);
});

Deno.test("J2 parseRequest() does not find a missing verb in a prototype", () => {
  assert(!parseRequest(JSON.parse("{}"), { id: "r1" }).ok);
  assert(!parse('{"__proto__":{"verb":"ps"}}').ok);
});

Deno.test("parseRequest() suggests the field that was meant and lists all", () => {
  const near = refused({ verb: "ps", timeout: 5 });
  assertEquals(near.path, "timeout");
  assert(near.hint.includes('Did you mean "timeout_s"?'), near.hint);
  assert(near.hint.includes("idempotency_key"));
  assert(refused({ verb: "ps", idempotencyKey: "x" }).hint.includes('"idempotency_key"'));
  assert(!refused({ verb: "ps", zzzzzzzzz: 1 }).hint.includes("Did you mean"));
});

Deno.test("P18 J16 parseRequest() prints hostile names as ASCII and never prints values", () => {
  const outcome = refused({ verb: "ps", ["\u001b[2J\u202e\n" + "A".repeat(500)]: "SECRET" });
  for (const words of [outcome.path, outcome.message, outcome.hint]) {
    assert(/^[\x20-\x7e]*$/.test(words), words);
    assert(!words.includes("SECRET"));
    assert(words.length < 400);
  }
  const value = refused({ verb: "ps", scope: "SECRET", note: "n" });
  assert(!value.message.includes("SECRET") && !value.hint.includes("SECRET"));
});

Deno.test("P15 parseRequest() takes no id but the file's", () => {
  assert(parse('{"verb":"ps","id":"r1"}', "r1").ok);
  const outcome = refused({ verb: "ps", id: "r2" }, "r1");
  assertEquals(outcome.path, "id");
  assert(outcome.message.includes('"r1"') && !outcome.message.includes("r2"));
  for (const id of ["../../x", "a/b", "..", "%2e%2e", "R1", "r1.json", "", "a".repeat(65)]) {
    assertEquals(refused({ verb: "ps", id }, "r1").path, "id");
  }
});

Deno.test("J13 parseRequest() has no field for the agent's own time", () => {
  for (const name of ["created_at", "expires_at", "date"]) {
    assertEquals(refused({ verb: "ps", [name]: "2026-01-01T00:00:00Z" }).path, name);
  }
});

Deno.test("parseRequest() names the protocol versions served, before any other fault", () => {
  const outcome = refused({ chb: 2, action: "ps", verb: 1 });
  assertEquals(outcome.path, "chb");
  assert(outcome.hint.includes("Versions served: 1"));
});

Deno.test("parseRequest() recognises a signed envelope and says what to send instead", () => {
  const outcome = refused({
    payload: '{"verb":"ps"}',
    auth: { alg: "hmac-sha256", key: "laptop-1", sig: "00" },
  });
  assertEquals(outcome.path, "auth");
  assert(outcome.message.includes("signed"));
  assert(outcome.hint.includes("payload"));
  assertEquals(refused({ payload: "{}" }).path, "payload");
  assertEquals(refused({ verb: "ps", auth: {} }).path, "auth");
});
