/**
 * Random queue entries, each with what must become of it: a name, a type, a content, and the answer
 * that follows from them. The expectation is made together with the entry, by the rules that an
 * agent is told, and never by running the program's own checks.
 *
 * @module
 */
import type { Reason } from "../../src/codes.ts";
import { type EntryKind, OTHER_KINDS } from "./entries.ts";

/** A small generator of random numbers (xorshift32): the same seed gives the same cases anywhere. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed ^ 0x9e3779b9) >>> 0 || 1;
    for (let i = 0; i < 8; i++) this.below(2);
  }

  /** A whole number from 0 to `bound` - 1. */
  below(bound: number): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x >>> 0;
    return Math.floor((this.#state / 0x1_0000_0000) * bound);
  }

  chance(percent: number): boolean {
    return this.below(100) < percent;
  }

  pick<T>(list: readonly T[]): T {
    const found = list[this.below(list.length)];
    if (found === undefined) throw new RangeError("Nothing to pick from");
    return found;
  }
}

/** What must become of an entry. */
export type Expect =
  /** It runs, once, and succeeds. */
  | { readonly kind: "runs" }
  /** The bridge answers it itself. */
  | { readonly kind: "answered" }
  | { readonly kind: "refused"; readonly reason: Reason; readonly stage: string }
  /** Its bytes were changed at random: it runs once or is refused; `json` says if it parses. */
  | { readonly kind: "any"; readonly json: boolean }
  /** It stays in the queue, on the stuck list, as so many entries. */
  | { readonly kind: "stuck"; readonly count: number; readonly listed: boolean }
  /** A temporary name: it stays, and is no business of ours for ten minutes. */
  | { readonly kind: "left" };

export interface Case {
  readonly n: number;
  /** In words, for failures. */
  readonly what: string;
  /** "" when the name is none that this runtime can say. */
  readonly name: string;
  /** The id, when the name has a valid one. */
  readonly id: string | null;
  readonly entry: EntryKind | { readonly sparse: number };
  /** Written right under its name, instead of renamed to it. */
  readonly direct: boolean;
  readonly bytes: Uint8Array;
  /** A command that makes the entries in the queue, where the name cannot be said. */
  readonly shell: string | null;
  readonly expect: Expect;
}

const REQUEST_MAX = 64 * 1024;
const STRING_MAX = 8 * 1024;

/** The policy that the cases are made for. */
export const CASE_WORDS = ["alpha", "beta", "gamma"] as const;

type Bytes = Uint8Array;
interface Content {
  readonly what: string;
  readonly bytes: Bytes;
  readonly expect: Expect;
}

const encoder = new TextEncoder();
const utf8 = (text: string): Bytes => encoder.encode(text);

function refused(reason: Reason, stage: string): Expect {
  return { kind: "refused", reason, stage };
}

function joined(...parts: readonly Bytes[]): Bytes {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Text of a note: anything that JSON can carry and a request may hold. */
function prose(random: Random): string {
  const pieces = [
    "plain",
    "\u00e9",
    "\u{1f600}",
    "\n\t\r",
    "\u001b[2J",
    "\u202e",
    "\u2028",
    "\u009b",
    '"\\',
    "__proto__",
    "{}",
    "$(id)",
  ];
  let text = "";
  for (let i = random.below(6); i >= 0; i--) text += random.pick(pieces);
  return text;
}

/** A valid request as an object. */
function validObject(random: Random, id: string): Record<string, unknown> {
  const object: Record<string, unknown> = random.chance(60)
    ? { verb: "mark" }
    : { verb: "say", args: { word: random.pick(CASE_WORDS) } };
  if (object["verb"] === "say" && random.chance(50)) {
    object["args"] = { level: random.below(10), word: random.pick(CASE_WORDS) };
  }
  const more: [string, unknown][] = [
    ["id", id],
    ["idempotency_key", `k-${id}`],
    ["timeout_s", random.pick([30, 40.5, 1e9])],
    ["max_age_s", random.pick([3600, 1e15])],
    ["scope", random.pick(["observe", "mutating", "destructive"])],
    ["max_spend", random.pick([0, 2.5])],
    ["plan", prose(random)],
    ["note", prose(random)],
    ["chb", 1],
  ];
  const entries: [string, unknown][] = Object.entries(object);
  for (const one of more) {
    if (random.chance(20)) entries.splice(random.below(entries.length + 1), 0, one);
  }
  return Object.fromEntries(entries);
}

/** The same as text, without white space around it. */
function validText(random: Random, id: string): string {
  return JSON.stringify(validObject(random, id), null, random.pick([0, 0, 0, 1, "\t"]));
}

function valid(random: Random, id: string): Content {
  let text = validText(random, id);
  let what = "valid";
  const dice = random.below(100);
  if (dice < 15) {
    text = random.pick(["", " ", "\n\r\t"]) + text + random.pick(["\n", " \n", "\r\n\r\n"]);
  } else if (dice < 20) {
    what = "valid of the greatest size";
    text += " ".repeat(REQUEST_MAX - utf8(text).length);
  } else if (dice < 25) {
    what = "valid with the longest string";
    text = `{"verb":"mark","note":"${"n".repeat(STRING_MAX)}"}`;
  }
  return { what, bytes: utf8(text), expect: { kind: "runs" } };
}

function builtin(random: Random): Content {
  const verb = random.pick(["bridge.ping", "bridge.verbs", "bridge.status"]);
  return { what: verb, bytes: utf8(`{"verb":"${verb}"}`), expect: { kind: "answered" } };
}

/** A valid text with something put into it that no JSON reader may take for valid. */
const MALFORMED: readonly (readonly [string, (random: Random, id: string) => Bytes])[] = [
  ["empty", () => new Uint8Array()],
  ["white space", (random) => utf8(random.pick([" ", "\n", " \t\r\n"]))],
  ["cut short", (random, id) => {
    const whole = utf8(validText(random, id));
    return whole.slice(0, 1 + random.below(whole.length - 1));
  }],
  ["byte order mark", (random, id) => utf8("\ufeff" + validText(random, id))],
  ["UTF-16", (random, id) => {
    const text = "\ufeff" + validText(random, id);
    const big = random.chance(50);
    const bytes = new Uint8Array(text.length * 2);
    const view = new DataView(bytes.buffer);
    for (let i = 0; i < text.length; i++) view.setUint16(i * 2, text.charCodeAt(i), !big);
    return bytes;
  }],
  ["bytes that are not UTF-8", (random) => {
    const bad = random.pick([[0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xe2, 0x28], [0x80]]);
    return joined(utf8('{"verb":"mark","note":"'), new Uint8Array(bad), utf8('"}'));
  }],
  [
    "a NUL byte",
    (random) =>
      random.chance(50) ? utf8('{"verb":"mark"}\0') : utf8('{"verb":"mark","note":"a\0b"}'),
  ],
  ["an escaped NUL", () => utf8('{"verb":"mark","note":"a\\u0000b"}')],
  [
    "half a surrogate pair",
    (random) =>
      utf8(`{"verb":"mark","note":"${random.pick(["\\ud800", "\\udc00x", "\\ud83d\\ud83d"])}"}`),
  ],
  ["a control character", () => utf8('{"verb":"mark","note":"a\u0001b"}')],
  ["two texts", (random, id) => utf8(validText(random, id) + "\n" + validText(random, id))],
  [
    "something behind it",
    (random, id) =>
      utf8(validText(random, id) + random.pick(["x", ",", "}", "\u00a0", "//", "\u2028"])),
  ],
  ["no JSON", (random) =>
    utf8(random.pick([
      "{verb:'mark'}",
      "{'verb':'mark'}",
      '{"verb":"mark",}',
      '{"verb":"mark"/**/}',
      "verb=mark",
      "<verb>mark</verb>",
      '{"verb":"mark","timeout_s":NaN}',
      '{"verb":"mark","timeout_s":Infinity}',
      '{"verb":"mark","timeout_s":01}',
      '{"verb":"mark","timeout_s":+1}',
      '{"verb":"mark","timeout_s":.5}',
      '{"verb":"mark","timeout_s":1.}',
      '{"verb":"mark","timeout_s":0x10}',
      '{"verb" "mark"}',
      '{"verb":"mark","note":"\\x41"}',
      "\u001b[31m{}",
      "undefined",
    ]))],
  ["a key twice", (random) =>
    utf8(random.pick([
      '{"verb":"mark","verb":"mark"}',
      '{"verb":"mark","verb":"say","args":{"word":"alpha"}}',
      '{"verb":"mark","\\u0076erb":"mark"}',
      '{"verb":"mark","__proto__":1,"__proto__":1}',
      '{"verb":"mark","note":"a","note":"b"}',
      '{"verb":"say","args":{"word":"alpha","w\\u006frd":"alpha"}}',
      '{"verb":"mark","id":"x","id":"y"}',
    ]))],
  ["too deep", (random) => {
    const depth = random.pick([15, 16, 100, 10_000]);
    const [open, close] = random.pick([["[", "]"], ['{"a":', "}"]] as const);
    const middle = random.chance(50) ? "1" : "[]";
    return utf8(
      `{"verb":"mark","args":{"a":${open.repeat(depth)}${middle}${close.repeat(depth)}}}`,
    );
  }],
  ["too many keys", (random) => {
    const keys = Array.from({ length: 65 + random.below(500) }, (_, i) => `"k${i}":1`);
    return utf8(
      random.chance(50)
        ? `{"verb":"mark",${keys.join(",")}}`
        : `{"verb":"say","args":{${keys.join(",")}}}`,
    );
  }],
  ["a string too long", (random) => {
    const long = random.chance(50) ? "x".repeat(STRING_MAX + 1) : "\u20ac".repeat(2731);
    return utf8(
      random.chance(50) ? `{"verb":"mark","note":"${long}"}` : `{"verb":"mark","${long}":1}`,
    );
  }],
  [
    "a number out of bounds",
    (random) =>
      utf8(
        `{"verb":"mark","timeout_s":${
          random.pick([
            "1e999",
            "-1e999",
            "9007199254740993",
            "1e16",
            "123456789012345678901234567890",
          ])
        }}`,
      ),
  ],
];

/** JSON of the wrong shape. `$ID` is the id of the name. */
const SHAPES: readonly string[] = [
  "[]",
  "[1,2]",
  '["mark"]',
  "5",
  "-0",
  '""',
  '"mark"',
  "null",
  "true",
  "{}",
  '{"args":{}}',
  '{"verb":null}',
  '{"verb":""}',
  '{"verb":["mark"]}',
  '{"verb":{"mark":1}}',
  '{"verb":1}',
  '{"verb":true}',
  '{"Verb":"mark"}',
  '{"verb":"mark","__proto__":{"verb":"say"}}',
  '{"verb":"mark","constructor":1}',
  '{"verb":"mark","timeout":5}',
  '{"verb":"mark","cwd":"/"}',
  '{"verb":"mark","env":{"A":"b"}}',
  '{"verb":"mark","args":[]}',
  '{"verb":"mark","args":null}',
  '{"verb":"mark","args":"word"}',
  '{"verb":"mark","timeout_s":"soon"}',
  '{"verb":"mark","timeout_s":0}',
  '{"verb":"mark","timeout_s":-0}',
  '{"verb":"mark","timeout_s":-1}',
  '{"verb":"mark","timeout_s":null}',
  '{"verb":"mark","timeout_s":[5]}',
  '{"verb":"mark","max_age_s":"1"}',
  '{"verb":"mark","max_age_s":0}',
  '{"verb":"mark","scope":"root"}',
  '{"verb":"mark","scope":["observe"]}',
  '{"verb":"mark","scope":"Observe"}',
  '{"verb":"mark","max_spend":-1}',
  '{"verb":"mark","max_spend":"1"}',
  '{"verb":"mark","id":"another"}',
  '{"verb":"mark","id":"../../etc/passwd"}',
  '{"verb":"mark","id":5}',
  '{"verb":"mark","id":""}',
  '{"verb":"mark","idempotency_key":""}',
  '{"verb":"mark","idempotency_key":["$ID"]}',
  '{"verb":"mark","idempotency_key":{"a":1}}',
  '{"verb":"mark","idempotency_key":"UPPER"}',
  '{"verb":"mark","idempotency_key":"a/b"}',
  `{"verb":"mark","idempotency_key":"${"k".repeat(129)}"}`,
  '{"verb":"mark","note":1}',
  '{"verb":"mark","note":{}}',
  '{"verb":"mark","plan":[]}',
  '{"verb":"mark","chb":2}',
  '{"verb":"mark","chb":"1"}',
  '{"verb":"mark","chb":null}',
  '{"payload":"{\\"verb\\":\\"mark\\"}","auth":{"alg":"hmac-sha256","key":"k","sig":"00"}}',
];

const DENIED = ["exec", "shell", "sh", "bash", "sudo", "eval", "ssh", "trust", "bridge.trust"];
const UNKNOWN = [
  "marc",
  "Mark",
  "toString",
  "constructor",
  "__proto__",
  "hasOwnProperty",
  " mark",
  "mark\n",
  "m\u00e4rk",
  "../mark",
  "ps",
];
const WRONG_ARGS: readonly string[] = [
  '"verb":"say"',
  '"verb":"say","args":{}',
  '"verb":"say","args":{"word":"delta"}',
  '"verb":"say","args":{"word":""}',
  '"verb":"say","args":{"word":null}',
  '"verb":"say","args":{"word":["alpha"]}',
  '"verb":"say","args":{"word":{"alpha":1}}',
  '"verb":"say","args":{"word":1}',
  '"verb":"say","args":{"word":"--help"}',
  '"verb":"say","args":{"word":"alpha;id"}',
  '"verb":"say","args":{"word":"$(id)"}',
  '"verb":"say","args":{"word":"alpha","more":1}',
  '"verb":"say","args":{"word":"alpha","__proto__":{}}',
  '"verb":"say","args":{"word":"alpha","level":10}',
  '"verb":"say","args":{"word":"alpha","level":-1}',
  '"verb":"say","args":{"word":"alpha","level":1.5}',
  '"verb":"say","args":{"word":"alpha","level":"1"}',
  '"verb":"say","args":{"word":"alpha","level":true}',
  '"verb":"mark","args":{"word":"alpha"}',
  '"verb":"bridge.ping","args":{"a":1}',
];

/** Valid bytes with a few of them changed. What a plain reader says of them is known. */
function mutated(random: Random, id: string): Content {
  let bytes = utf8(validText(random, id));
  for (let i = random.below(4); i >= 0; i--) {
    const at = random.below(bytes.length);
    const before = bytes.slice(0, at);
    switch (random.below(4)) {
      case 0:
        bytes = joined(before, bytes.slice(at + 1));
        break;
      case 1:
        bytes = joined(before, new Uint8Array([random.below(256)]), bytes.slice(at));
        break;
      case 2:
        bytes = joined(before, bytes.slice(at, at + 4), bytes.slice(at));
        break;
      default:
        bytes = joined(before, new Uint8Array([random.below(256)]), bytes.slice(at + 1));
    }
    if (bytes.length === 0) break;
  }
  let json = true;
  try {
    JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    json = false;
  }
  return { what: "changed bytes", bytes, expect: { kind: "any", json } };
}

function content(random: Random, id: string): Content {
  const dice = random.below(100);
  if (dice < 22) return valid(random, id);
  if (dice < 26) return builtin(random);
  if (dice < 54) {
    const [what, make] = random.pick(MALFORMED);
    return { what, bytes: make(random, id), expect: refused("malformed", "parse") };
  }
  if (dice < 72) {
    const text = random.pick(SHAPES).replace("$ID", id);
    return { what: `shape ${text}`, bytes: utf8(text), expect: refused("schema", "schema") };
  }
  if (dice < 76) {
    const verb = random.pick(DENIED);
    return {
      what: `denied ${verb}`,
      bytes: utf8(JSON.stringify({ verb })),
      expect: refused("denied-verb", "denial"),
    };
  }
  if (dice < 80) {
    const verb = random.pick(UNKNOWN);
    return {
      what: `unknown ${verb}`,
      bytes: utf8(JSON.stringify({ verb })),
      expect: refused("unknown-verb", "allow"),
    };
  }
  if (dice < 86) {
    const text = `{${random.pick(WRONG_ARGS)}}`;
    return { what: `arguments ${text}`, bytes: utf8(text), expect: refused("bad-args", "args") };
  }
  if (dice < 88) {
    return {
      what: "above the scope",
      bytes: utf8('{"verb":"alter"}'),
      expect: refused("scope-exceeded", "scope"),
    };
  }
  return mutated(random, id);
}

/** Ids; the number makes each of them new. */
function validId(random: Random, n: number): string {
  const word = random.pick([
    "c",
    "a_b-",
    "0",
    "constructor-",
    "tostring_",
    "x".repeat(20),
    "null-",
    "refused-",
  ]);
  const id = `${word}${n}`;
  return random.chance(5) ? id + "z".repeat(64 - id.length) : id;
}

/** Names that are no `<id>.json` and that the runtime can say. The number makes each of them new. */
function badName(random: Random, n: number): string {
  return random.pick<() => string>([
    () => `${`${n}`.padEnd(65, "a")}.json`,
    () => `${`${n}`.padEnd(250, "b")}.json`,
    () => `Upper-${n}.json`,
    () => `${n} space.json`,
    () => ` ${n}.json`,
    () => `${n}.json `,
    () => `${n}\nforged: yes.json`,
    () => `${n}\t.json`,
    () => `${n}\r.json`,
    () => `\u001b[2J${n}.json`,
    () => `\u007f${n}.json`,
    () => `\u009b${n}.json`,
    () => `\u202e${n}.json`,
    () => `\u2028${n}.json`,
    () => `\u{1f600}${n}.json`,
    () => `\u00e9-${n}.json`,
    () => `e\u0301-${n}.json`,
    () => `${n}.json.json`,
    () => `a.b-${n}.json`,
    () => `-${n}.json`,
    () => `_${n}.json`,
    () => `--help-${n}.json`,
    () => `-rf ${n}`,
    () => `$(touch ${n}).json`,
    () => `\`id\`${n}.json`,
    () => `${n};id.json`,
    () => `*${n}.json`,
    () => `\\${n}.json`,
    () => `"${n}".json`,
    () => `{"forged":${n}}.json`,
    () => `%2e%2e%2f${n}.json`,
    () => `${n}.JSON`,
    () => `${n}.txt`,
    () => `${n}.json5`,
    () => `${n}`,
  ])();
}

function temporaryName(random: Random, n: number): string {
  return random.pick<() => string>([
    () => `.${n}.json`,
    () => `.request-${n}.tmp`,
    () => `${n}.json.tmp`,
    () => `${n}.json~`,
    () => `~${n}.json`,
    () => `${n}.part`,
    () => `.${n}`,
  ])();
}

/** U+FFFD in UTF-8, as text for `printf`. */
const REPLACEMENT = "\\357\\277\\275";

/** Names that are not UTF-8, or that look like one of those; as text for `printf`. */
function rawNames(random: Random, n: number): string[] {
  return random.pick<() => string[]>([
    () => [`u${n}\\377.json`],
    () => [`\\377\\376-${n}.json`],
    () => [`${n}\\303.json`],
    () => [`\\355\\240\\200${n}.json`],
    () => [`${REPLACEMENT}${n}.json`],
    // The second is listed like the first, and is the one that the listed name addresses.
    () => [`\\377-${n}.json`, `${REPLACEMENT}-${n}.json`],
  ])();
}

function rawCase(random: Random, n: number, host: Host): Case {
  const names = rawNames(random, n);
  const listed = names.filter((name) => host.listsRaw || name.startsWith(REPLACEMENT));
  const [what, make] = random.pick([
    ["file", `printf '{"verb":"mark"}' > "$f"`],
    ["file", `printf '{"verb":"mark"}' > "$f"`],
    ["directory", `mkdir "$f"`],
    ["symlink", `ln -s /etc/passwd "$f"`],
    ["FIFO", `mkfifo "$f"`],
  ]);
  return {
    n,
    what: `${what} under ${names.join(" and ")}`,
    name: "",
    id: null,
    entry: "file",
    direct: true,
    bytes: new Uint8Array(),
    shell: names.map((name) => `f=$(printf '${name}') && ${make}`).join(" && "),
    expect: { kind: "stuck", count: listed.length, listed: false },
  };
}

/** What the entries of a case meet. */
export interface Host {
  /** No permission binds this user, so nothing is unreadable or unmovable. */
  readonly free: boolean;
  /** The runtime lists names that are not UTF-8; Deno before 2.8 leaves them out. */
  readonly listsRaw: boolean;
}

/** Sizes above the limit, of files that take no room. */
const TOO_LARGE = [REQUEST_MAX + 1, 1 << 20, 2 ** 31 + 1, 2 ** 33];

/** Makes case number `n`. */
export function randomCase(random: Random, n: number, host: Host): Case {
  const dice = random.below(100);
  if (dice < 4) return rawCase(random, n, host);
  const id = dice < 76 ? validId(random, n) : null;
  const temporary = dice >= 95;
  const name = id !== null
    ? `${id}.json`
    : temporary
    ? temporaryName(random, n)
    : badName(random, n);
  const common = { n, name, id, direct: false, shell: null };
  if (random.chance(3)) {
    return {
      ...common,
      what: "too large",
      entry: { sparse: random.pick(TOO_LARGE) },
      bytes: new Uint8Array(),
      expect: temporary ? { kind: "left" } : refused("malformed", "object"),
    };
  }
  if (random.chance(28)) {
    const entry = random.pick(OTHER_KINDS);
    // What would run if the entry were taken for what it is not.
    const bytes = utf8('{"verb":"mark"}');
    const expect: Expect = temporary ? { kind: "left" } : otherExpect(entry, id, host.free);
    return { ...common, what: entry, entry, bytes, expect };
  }
  const { what, bytes, expect } = content(random, id ?? `x${n}`);
  return {
    ...common,
    what,
    entry: "file",
    direct: random.chance(40),
    bytes,
    expect: temporary ? { kind: "left" } : id === null ? refused("bad-name", "name") : expect,
  };
}

function otherExpect(entry: EntryKind, id: string | null, free: boolean): Expect {
  if (entry === "unreadable") {
    if (id === null) return refused("bad-name", "name");
    return free ? { kind: "runs" } : refused("not-regular", "read");
  }
  if (entry === "sealed-directory" && !free) return { kind: "stuck", count: 1, listed: true };
  return refused("not-regular", "object");
}
