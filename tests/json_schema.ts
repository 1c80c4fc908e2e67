/**
 * A small JSON Schema validator, so that tests can hold what the bridge writes against the schemas
 * that it prints. It knows the keywords of draft 2020-12 that our schemas use and refuses every
 * other one: a keyword that it would skip could not fail.
 *
 * @module
 */

type Json = Record<string, unknown>;
type Check = (want: unknown, value: unknown, schema: Json, path: string) => string[];

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Equality of JSON values: the order of members does not count, 1 and 1.0 are one number. */
export function sameJson(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) {
    return a.length === b.length && a.every((item, index) => sameJson(item, b[index]));
  }
  if (isObject(a) && isObject(b)) {
    const keys = Object.keys(a);
    return keys.length === Object.keys(b).length &&
      keys.every((key) => Object.hasOwn(b, key) && sameJson(a[key], b[key]));
  }
  return false;
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value;
}

function hasType(name: unknown, value: unknown): boolean {
  if (name === "integer") return typeof value === "number" && Number.isInteger(value);
  return typeOf(value) === name;
}

function asSchemas(want: unknown): unknown[] {
  if (!Array.isArray(want) || want.length === 0) throw new TypeError("Wanted a list of schemas");
  return want;
}

function asEntries(want: unknown): [string, unknown][] {
  if (!isObject(want)) throw new TypeError("Wanted an object of schemas");
  return Object.entries(want);
}

function asNumber(want: unknown): number {
  if (typeof want !== "number") throw new TypeError("Wanted a number");
  return want;
}

function fails(failed: boolean, path: string, message: string): string[] {
  return failed ? [`${path || "/"}: ${message}`] : [];
}

/** A check that is about numbers only. */
function onNumber(wrong: (value: number, bound: number) => boolean, words: string): Check {
  return (want, value, _schema, path) =>
    fails(typeof value === "number" && wrong(value, asNumber(want)), path, `${words} ${want}`);
}

/** A check that is about a size only. */
function onSize(
  size: (value: unknown) => number | null,
  wrong: (size: number, bound: number) => boolean,
  words: string,
): Check {
  return (want, value, _schema, path) => {
    const found = size(value);
    return fails(found !== null && wrong(found, asNumber(want)), path, `${words} ${want}`);
  };
}

const characters = (value: unknown) => typeof value === "string" ? [...value].length : null;
const items = (value: unknown) => Array.isArray(value) ? value.length : null;
const members = (value: unknown) => isObject(value) ? Object.keys(value).length : null;
const below = (a: number, b: number) => a < b;
const above = (a: number, b: number) => a > b;

const ANNOTATIONS = new Set(["$schema", "$id", "title", "description", "default"]);

const CHECKS: ReadonlyMap<string, Check> = new Map<string, Check>([
  ["type", (want, value, _schema, path) => {
    const names = Array.isArray(want) ? want : [want];
    return fails(!names.some((name) => hasType(name, value)), path, `wanted type ${names}`);
  }],
  [
    "enum",
    (want, value, _schema, path) =>
      fails(!asSchemas(want).some((one) => sameJson(one, value)), path, `wanted one of ${want}`),
  ],
  [
    "const",
    (want, value, _schema, path) =>
      fails(!sameJson(want, value), path, `wanted ${JSON.stringify(want)}`),
  ],
  ["minimum", onNumber(below, "wanted at least")],
  ["maximum", onNumber(above, "wanted at most")],
  ["exclusiveMinimum", onNumber((value, bound) => value <= bound, "wanted above")],
  ["minLength", onSize(characters, below, "wanted a length of at least")],
  ["maxLength", onSize(characters, above, "wanted a length of at most")],
  ["minItems", onSize(items, below, "wanted items of at least")],
  ["maxItems", onSize(items, above, "wanted items of at most")],
  ["minProperties", onSize(members, below, "wanted members of at least")],
  ["maxProperties", onSize(members, above, "wanted members of at most")],
  ["pattern", (want, value, _schema, path) => {
    if (typeof want !== "string") throw new TypeError("Wanted a pattern");
    const pattern = new RegExp(want, "u");
    return fails(typeof value === "string" && !pattern.test(value), path, `wanted ${want}`);
  }],
  ["uniqueItems", (want, value, _schema, path) => {
    if (want !== true || !Array.isArray(value)) return [];
    const twice = value.some((a, i) => value.slice(i + 1).some((b) => sameJson(a, b)));
    return fails(twice, path, "wanted no item twice");
  }],
  [
    "items",
    (want, value, _schema, path) =>
      Array.isArray(value)
        ? value.flatMap((item, index) => validate(want, item, `${path}/${index}`))
        : [],
  ],
  ["required", (want, value, _schema, path) => {
    if (!Array.isArray(want)) throw new TypeError("Wanted a list of names");
    if (!isObject(value)) return [];
    return want.flatMap((key) => fails(!Object.hasOwn(value, String(key)), path, `lacks "${key}"`));
  }],
  [
    "properties",
    (want, value, _schema, path) =>
      asEntries(want).flatMap(([key, schema]) =>
        isObject(value) && Object.hasOwn(value, key)
          ? validate(schema, value[key], `${path}/${key}`)
          : []
      ),
  ],
  ["additionalProperties", (want, value, schema, path) => {
    if (!isObject(value)) return [];
    const known = schema["properties"] === undefined ? [] : asEntries(schema["properties"]);
    const names = new Set(known.map(([key]) => key));
    return Object.entries(value).filter(([key]) => !names.has(key)).flatMap(([key, item]) =>
      validate(want, item, `${path}/${key}`)
    );
  }],
  [
    "propertyNames",
    (want, value, _schema, path) =>
      isObject(value)
        ? Object.keys(value).flatMap((key) => validate(want, key, `${path}/${key}`))
        : [],
  ],
  [
    "allOf",
    (want, value, _schema, path) => asSchemas(want).flatMap((one) => validate(one, value, path)),
  ],
  [
    "anyOf",
    (want, value, _schema, path) =>
      fails(!asSchemas(want).some((one) => fits(one, value)), path, "fits none of anyOf"),
  ],
  ["oneOf", (want, value, _schema, path) => {
    const fitting = asSchemas(want).filter((one) => fits(one, value)).length;
    return fails(fitting !== 1, path, `fits ${fitting} of oneOf`);
  }],
  [
    "not",
    (want, value, _schema, path) => fails(fits(want, value), path, "fits what it must not"),
  ],
  ["if", (want, value, schema, path) => {
    const branch = schema[fits(want, value) ? "then" : "else"];
    return branch === undefined ? [] : validate(branch, value, path);
  }],
  // Looked at by "if".
  ["then", () => []],
  ["else", () => []],
]);

function fits(schema: unknown, value: unknown): boolean {
  return validate(schema, value).length === 0;
}

/**
 * Everything that is wrong with a value, each as `path: what was wanted`; empty when it fits.
 *
 * @throws {TypeError} when the schema has a keyword that this validator does not know, or one with
 *   a value of the wrong type
 */
export function validate(schema: unknown, value: unknown, path = ""): string[] {
  if (schema === true) return [];
  if (schema === false) return [`${path || "/"}: not wanted`];
  if (!isObject(schema)) throw new TypeError(`Wanted a schema at ${path || "/"}`);
  return Object.entries(schema).flatMap(([keyword, want]) => {
    if (ANNOTATIONS.has(keyword)) return [];
    const check = CHECKS.get(keyword);
    if (check === undefined) throw new TypeError(`Unknown keyword "${keyword}"`);
    return check(want, value, schema, path);
  });
}
