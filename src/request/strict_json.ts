/**
 * Bytes to a JSON value, or a refusal that says what to mend. Pure.
 *
 * Rules:
 * 1. The bytes must be UTF-8 as they stand: no byte order mark is taken off, nothing is replaced
 *    (J7).
 * 2. Size, depth, number of keys and repeated keys are judged before anything is built, so the cost
 *    of a text is bounded by its permitted size (J1, J8, J9).
 * 3. A number must be finite, and safe where it is whole: what was read is what was written. Minus
 *    zero is read as zero (J4).
 * 4. A string, keys included, must be whole Unicode text without NUL: later readers end a text at
 *    a NUL, and half a surrogate pair has no bytes (J6).
 * 5. Objects have no prototype, so no name that the text did not bring can be found in one (J2).
 * 6. No message holds a piece of the text, and none comes from the runtime (J16).
 *
 * @module
 */
import type { Json, JsonLimits } from "./request.ts";
import { scanJson, type ScanProblem } from "./scan_json.ts";

/** The outcome. `truncated`: the text ends too early, so its writer may not have been done. */
export type StrictJson =
  | { readonly ok: true; readonly value: Json }
  | {
    readonly ok: false;
    readonly message: string;
    readonly hint: string;
    readonly truncated: boolean;
  };

type Refused = Extract<StrictJson, { ok: false }>;

const RENAME =
  "Write the whole text under a temporary name such as queue/.request.tmp, then rename it to <id>.json";
const UTF8 = "Write the file as UTF-8 without a byte order mark";
const CHECK = "Check the text with a JSON parser: one object, no comments, no trailing commas";

/**
 * Reads one JSON text.
 *
 * @param bytes the whole file
 * @param limits `bytes`: longest text; `depth`: nesting, the outermost value counts 1; `keys`: of
 *   one object; `string_bytes`: UTF-8 bytes of one string or key
 */
export function parseStrictJson(
  bytes: Uint8Array,
  limits: JsonLimits & { readonly bytes: number },
): StrictJson {
  if (bytes.length > limits.bytes) {
    return refuse(
      `The request is larger than ${limits.bytes} bytes`,
      "Send less: large content belongs in a file that the verb reads",
    );
  }
  const text = decode(bytes);
  if (typeof text !== "string") return text;
  if (text.trim() === "") return refuse("The request is empty", RENAME, true);
  const problem = scanJson(text, limits);
  if (problem !== null) return explain(problem, text, limits);
  let value: Json;
  try {
    value = JSON.parse(text);
  } catch {
    // The scan accepts exactly what the parser accepts; should they ever differ, the answer is no.
    return refuse("The request is not one JSON text", CHECK);
  }
  const fault = new Faults(limits);
  const copy = fault.copy(value);
  return fault.first === null ? { ok: true, value: copy } : fault.first;
}

/** Bytes as text, or why they are none. */
function decode(bytes: Uint8Array): string | Refused {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text: string;
  try {
    text = decoder.decode(bytes, { stream: true });
  } catch {
    return refuse("The request is not valid UTF-8", UTF8);
  }
  try {
    text += decoder.decode();
  } catch {
    return refuse("The request ends inside a character", RENAME, true);
  }
  if (text.startsWith("\ufeff")) {
    return refuse("The request begins with a byte order mark", UTF8);
  }
  if (text.includes("\0")) return refuse("The request holds a NUL byte", UTF8);
  return text;
}

/** Words for a problem of the scan. */
function explain(problem: ScanProblem, text: string, limits: JsonLimits): Refused {
  const where = place(text, problem.offset);
  switch (problem.kind) {
    case "early-end":
      return refuse("The request ends too early to be a JSON text", RENAME, true);
    case "trailing":
      return refuse(`The request goes on after its JSON text, at ${where}`, "Send one JSON object");
    case "depth":
      return refuse(
        `The request is nested deeper than ${limits.depth}, at ${where}`,
        "Use fewer levels of objects and arrays",
      );
    case "keys":
      return refuse(
        `An object of the request has more than ${limits.keys} keys, at ${where}`,
        "Use fewer keys",
      );
    case "duplicate":
      return refuse(
        `An object of the request has the same key twice, at ${where}`,
        "Give each key once; two spellings of one key count as the same",
      );
    case "syntax":
      return refuse(`The request is not a JSON text: unexpected text at ${where}`, CHECK);
  }
}

/** Line and column, counted from 1; columns in UTF-16 units. */
function place(text: string, offset: number): string {
  const before = text.slice(0, offset);
  const line = before.split("\n").length;
  return `line ${line}, column ${offset - before.lastIndexOf("\n")}`;
}

function refuse(message: string, hint: string, truncated = false): Refused {
  return { ok: false, message, hint, truncated };
}

/** Copies a value that is known to be shallow, and keeps the first thing that is wrong with it. */
class Faults {
  first: Refused | null = null;
  readonly #limits: JsonLimits;
  readonly #encoder = new TextEncoder();

  constructor(limits: JsonLimits) {
    this.#limits = limits;
  }

  copy(value: Json): Json {
    if (typeof value === "string") return this.#text(value);
    if (typeof value === "number") return this.#number(value);
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map((item) => this.copy(item));
    const copy: { [key: string]: Json } = Object.create(null);
    for (const [key, item] of Object.entries(value)) copy[this.#text(key)] = this.copy(item);
    return copy;
  }

  #number(value: number): number {
    if (!Number.isFinite(value)) {
      this.first ??= refuse("A number of the request is too large", "Send it as a string");
    } else if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
      this.first ??= refuse(
        `A whole number of the request lies outside plus or minus ${Number.MAX_SAFE_INTEGER}`,
        "Send it as a string",
      );
    }
    return value === 0 ? 0 : value;
  }

  #text(value: string): string {
    if (value.includes("\0")) {
      this.first ??= refuse("A string of the request holds a NUL", "Leave NUL characters out");
    } else if (!value.isWellFormed()) {
      this.first ??= refuse(
        "A string of the request holds half a surrogate pair",
        "Write the character itself in UTF-8, or both halves of its escape",
      );
    } else if (
      value.length > this.#limits.string_bytes ||
      value.length * 3 > this.#limits.string_bytes &&
        this.#encoder.encode(value).length > this.#limits.string_bytes
    ) {
      this.first ??= refuse(
        `A string of the request is longer than ${this.#limits.string_bytes} bytes`,
        "Send less: large content belongs in a file that the verb reads",
      );
    }
    return value;
  }
}
