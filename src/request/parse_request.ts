/**
 * A JSON value to a typed request: exactly the known fields, each of its type and within its
 * bounds. Pure; what depends on policy is judged later.
 *
 * Rules:
 * 1. The outermost value must be an object before anything of it is looked at (J10).
 * 2. A field is judged by `typeof` before it is used, so that no array or object passes for the
 *    text that it would turn into (J3).
 * 3. An unknown field is a refusal: a mistyped limit must not be a missing one (J2).
 * 4. The id in the text, when there is one, is the id of the file name; the file name decides
 *    (P15).
 * 5. Names out of the request appear in a message as printable ASCII only (P18).
 *
 * @module
 */
import { isId, isKey, printable } from "../names.ts";
import { type Class, CLASSES } from "../policy/policy.ts";
import { didYouMean } from "../policy/suggest.ts";
import { INSTANT_WORDS, parseInstant } from "./instant.ts";
import { type Json, PROTOCOL, type Request } from "./request.ts";

/** The outcome: a request, or the path of the wrong field ("" for the whole) with words for it. */
export type ParsedRequest =
  | { readonly ok: true; readonly request: Request }
  | {
    readonly ok: false;
    readonly path: string;
    readonly message: string;
    readonly hint: string;
  };

/** Longest plan or note, UTF-8 bytes. */
export const TEXT_BYTES = 8 * 1024;

/** What is right for a field, in words that follow "must be". */
interface Field {
  readonly kind: "a string" | "a number" | "an object";
  readonly must: string;
  readonly holds: (value: Json) => boolean;
}

function text(must: string, holds: (value: Json) => boolean): Field {
  return { kind: "a string", must, holds };
}

function number(must: string, holds: (value: number) => boolean): Field {
  return { kind: "a number", must, holds: (value) => typeof value === "number" && holds(value) };
}

const isText = (value: Json): value is string =>
  typeof value === "string" && new TextEncoder().encode(value).length <= TEXT_BYTES;
const isClass = (value: Json): value is Class => CLASSES.some((name) => name === value);

/** Every field of a plain request. The order is the order in which they are judged and listed. */
const FIELDS: ReadonlyMap<string, Field> = new Map<string, Field>([
  ["verb", text("the name of a verb", (value) => typeof value === "string" && value !== "")],
  ["args", { kind: "an object", must: "an object of the verb's arguments", holds: isObject }],
  ["id", text("1 to 64 of a-z 0-9 - _, starting with a letter or digit", isId)],
  ["idempotency_key", text("1 to 128 of a-z 0-9 - _, starting with a letter or digit", isKey)],
  ["timeout_s", number("a number of seconds above 0", (value) => value > 0)],
  ["max_age_s", number("a number of seconds above 0", (value) => value > 0)],
  ["scope", text(`one of ${CLASSES.map((name) => `"${name}"`).join(", ")}`, isClass)],
  ["max_spend", number("a number, 0 or above", (value) => value >= 0)],
  ["plan", text(`a string of at most ${TEXT_BYTES} bytes`, isText)],
  ["note", text(`a string of at most ${TEXT_BYTES} bytes`, isText)],
  ["chb", number(`${PROTOCOL}`, (value) => value === PROTOCOL)],
]);

const isInstant = (value: Json): value is string =>
  typeof value === "string" && parseInstant(value) !== null;

/** What a signed request has besides, and must have. */
const SIGNED_FIELDS: ReadonlyMap<string, Field> = new Map<string, Field>([
  ...FIELDS,
  ["agent", text("the name of the agent", isId)],
  ["created_at", text(INSTANT_WORDS, isInstant)],
]);

/** The names of the fields, in their order. */
export const REQUEST_FIELDS: readonly string[] = Object.freeze([...FIELDS.keys()]);

/** Fields that a signed request must have besides the verb. */
export const SIGNED_REQUIRED = ["id", "agent", "created_at"] as const;

function allFields(fields: ReadonlyMap<string, Field>): string {
  return `Fields: ${[...fields.keys()].join(", ")}`;
}

/**
 * Checks the shape of a request. The first fault in this order answers: no object, another
 * protocol version, a signed envelope, an unknown field, a missing verb, a field of wrong type or
 * bounds, an id that is not the file's.
 *
 * @param value what `parseStrictJson` gave
 * @param ctx `id`: the id in the file name; `signed`: it is the payload of a signed request
 */
export function parseRequest(
  value: Json,
  ctx: { readonly id: string; readonly signed?: boolean },
): ParsedRequest {
  const fields = ctx.signed === true ? SIGNED_FIELDS : FIELDS;
  if (!isObject(value)) {
    return wrong("", `The request is ${kindOf(value)}, not an object`, allFields(fields));
  }
  // Another version may know other fields: its number is the only thing that can be judged.
  const version = value["chb"];
  if (version !== undefined && version !== PROTOCOL) {
    return wrong(
      "chb",
      "The request is for a protocol version that is not served here",
      `Versions served: ${PROTOCOL}. Send "chb": ${PROTOCOL}, or leave it out`,
    );
  }
  if (
    ctx.signed !== true && Object.hasOwn(value, "payload") && Object.hasOwn(value, "auth")
  ) {
    return wrong(
      "auth",
      "The request is signed, and this bridge takes plain requests from this agent",
      "Send the object that payload holds as the file itself, without created_at and agent",
    );
  }
  for (const name of Object.keys(value)) {
    if (fields.has(name)) continue;
    return wrong(
      printable(name, 64),
      `Unknown field "${printable(name, 64)}"`,
      `${didYouMean(name, [...fields.keys()])}${allFields(fields)}`,
    );
  }
  if (!Object.hasOwn(value, "verb")) {
    return wrong(
      "verb",
      'Missing field "verb"',
      'Name a verb, such as {"verb": "bridge.ping"}; inbox/catalogue.json lists them all',
    );
  }
  for (const name of ctx.signed === true ? SIGNED_REQUIRED : []) {
    if (Object.hasOwn(value, name)) continue;
    return wrong(
      name,
      `Missing field "${name}", which a signed request must have`,
      `Sign a payload with ${SIGNED_REQUIRED.join(", ")}`,
    );
  }
  for (const [name, field] of fields) {
    const found = value[name];
    if (found === undefined || field.holds(found)) continue;
    const near = name === "scope" && typeof found === "string" ? didYouMean(found, CLASSES) : "";
    const kind = kindOf(found);
    return wrong(
      name,
      `Field "${name}" must be ${field.must}${kind === field.kind ? "" : `; it is ${kind}`}`,
      found === null ? `Leave "${name}" out instead of null` : `${near}Correct "${name}"`,
    );
  }
  if (value["id"] !== undefined && value["id"] !== ctx.id) {
    return wrong(
      "id",
      `Field "id" differs from the file name, which says "${printable(ctx.id, 64)}"`,
      'Leave "id" out, or give the file the name <id>.json',
    );
  }
  return { ok: true, request: typed(value) };
}

/** The fields of a value that has passed every check. */
function typed(value: { readonly [key: string]: Json }): Request {
  const { agent, created_at } = value;
  const created_ms = typeof created_at === "string" ? parseInstant(created_at) : null;
  const args = value["args"];
  const { verb, id, idempotency_key, timeout_s, max_age_s, scope, max_spend, plan, note } = value;
  return Object.freeze({
    verb: String(verb),
    args: Object.freeze(args !== undefined && isObject(args) ? args : Object.create(null)),
    ...(typeof id === "string" ? { id } : {}),
    ...(typeof idempotency_key === "string" ? { idempotency_key } : {}),
    ...(typeof timeout_s === "number" ? { timeout_s } : {}),
    ...(typeof max_age_s === "number" ? { max_age_s } : {}),
    ...(scope !== undefined && isClass(scope) ? { scope } : {}),
    ...(typeof max_spend === "number" ? { max_spend } : {}),
    ...(typeof plan === "string" ? { plan } : {}),
    ...(typeof note === "string" ? { note } : {}),
    ...(typeof agent === "string" ? { agent } : {}),
    ...(created_ms === null ? {} : { created_ms }),
  });
}

function isObject(value: Json): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a value is, in a word; never the value itself. */
function kindOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  switch (typeof value) {
    case "object":
      return "an object";
    case "string":
      return value === "" ? "an empty string" : "a string";
    case "number":
      return "a number";
    default:
      return "a boolean";
  }
}

function wrong(path: string, message: string, hint: string): ParsedRequest {
  return { ok: false, path, message, hint };
}
