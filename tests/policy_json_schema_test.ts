/** The validator that other tests rely on: each keyword with a value that fits and one that does not. */
import { assertEquals, assertThrows } from "@std/assert";
import { sameJson, validate } from "./json_schema.ts";

const ROWS: readonly [name: string, schema: unknown, fits: unknown[], not: unknown[]][] = [
  ["true", true, [1, null], []],
  ["false", false, [], [1, null]],
  ["type", { type: "string" }, ["", "a"], [1, null, [], {}, true]],
  ["type null", { type: "null" }, [null], [0, "", false]],
  ["type array", { type: "array" }, [[]], [{}, "a"]],
  ["type object", { type: "object" }, [{}], [[], null]],
  ["type integer", { type: "integer" }, [1, 1.0, -3], [1.5, "1", NaN, Infinity]],
  ["type list", { type: ["string", "boolean"] }, ["a", false], [1, null]],
  ["enum", { enum: ["a", 1, null] }, ["a", 1, null], ["b", 2, undefined]],
  ["const", { const: { a: [1] } }, [{ a: [1] }], [{ a: [2] }, { a: [1], b: 1 }, {}]],
  ["minimum", { minimum: 2 }, [2, 3, "x"], [1.9]],
  ["maximum", { maximum: 2 }, [2, 1, "x"], [2.1]],
  ["exclusiveMinimum", { exclusiveMinimum: 0 }, [0.1, "x"], [0, -1]],
  ["minLength", { minLength: 2 }, ["ab", 1], ["a", "\u{1f600}"]],
  ["maxLength", { maxLength: 1 }, ["a", "\u{1f600}", 1], ["ab"]],
  ["minItems", { minItems: 1 }, [[1], "x"], [[]]],
  ["maxItems", { maxItems: 1 }, [[1], "x"], [[1, 2]]],
  ["minProperties", { minProperties: 1 }, [{ a: 1 }, []], [{}]],
  ["maxProperties", { maxProperties: 1 }, [{ a: 1 }, []], [{ a: 1, b: 2 }]],
  ["pattern", { pattern: "^a.$" }, ["ab", 1], ["b", "a"]],
  ["uniqueItems", { uniqueItems: true }, [[1, 2], [[1], [2]]], [[1, 1], [{ a: 1 }, { a: 1 }]]],
  ["uniqueItems false", { uniqueItems: false }, [[1, 1]], []],
  ["items", { items: { type: "string" } }, [["a"], [], "x"], [["a", 1]]],
  ["required", { required: ["a"] }, [{ a: undefined }, { a: 1, b: 1 }, 5], [{}, { b: 1 }]],
  ["properties", { properties: { a: { type: "string" } } }, [{}, { a: "x" }, 5], [{ a: 1 }]],
  [
    "additionalProperties",
    { properties: { a: true }, additionalProperties: false },
    [{}, { a: 1 }],
    [{ b: 1 }, { toString: 1 }],
  ],
  [
    "additionalProperties with a schema",
    { additionalProperties: { type: "string" } },
    [{}, { a: "x" }],
    [{ a: 1 }],
  ],
  ["propertyNames", { propertyNames: { pattern: "^[a-z]+$" } }, [{ a: 1 }], [{ A: 1 }]],
  ["allOf", { allOf: [{ minimum: 1 }, { maximum: 2 }] }, [1, 2], [0, 3]],
  ["anyOf", { anyOf: [{ const: 1 }, { const: 2 }] }, [1, 2], [3]],
  ["oneOf", { oneOf: [{ minimum: 1 }, { maximum: 5 }] }, [0, 6], [3]],
  ["not", { not: { const: 1 } }, [2], [1]],
  [
    "if then else",
    { if: { const: 1 }, then: { type: "string" }, else: { const: 2 } },
    [2],
    [1, 3],
  ],
  ["annotations", { $schema: "x", $id: "x", title: "x", description: "x", default: 1 }, [1], []],
];

for (const [name, schema, fits, not] of ROWS) {
  Deno.test(`validate() tells fitting from wrong values for ${name}`, () => {
    for (const value of fits) assertEquals(validate(schema, value), [], JSON.stringify(value));
    for (const value of not) {
      assertEquals(validate(schema, value).length > 0, true, `accepted ${JSON.stringify(value)}`);
    }
  });
}

Deno.test("validate() refuses a schema with a keyword that it does not know", () => {
  assertThrows(() => validate({ format: "date" }, "x"), TypeError, "format");
  assertThrows(() => validate({ properties: { a: { $ref: "#" } } }, { a: 1 }), TypeError, "$ref");
  assertThrows(() => validate({ minimum: "1" }, 1), TypeError);
  assertThrows(() => validate("string", 1), TypeError);
});

Deno.test("validate() names the path of what is wrong", () => {
  const schema = { properties: { a: { items: { type: "string" } } } };
  assertEquals(validate(schema, { a: ["x", 1] }), ["/a/1: wanted type string"]);
});

Deno.test("sameJson() compares values, not their order or identity", () => {
  assertEquals(sameJson({ a: 1, b: [2] }, { b: [2], a: 1 }), true);
  assertEquals(sameJson({ a: 1 }, { a: 1, b: undefined }), false);
  assertEquals(sameJson([1], { 0: 1 }), false);
  assertEquals(sameJson(null, {}), false);
});
