/**
 * A small bridge of level `core` that knows nothing of our program, for the suite to be tested with:
 * `bridge.ts [--fault NAME] serve ROOT POLICY`. Without a fault it passes every vector of `core`; with
 * one it fails those that name the fault in `catches`. It is no bridge to use: it trusts its disk, and
 * does its waiting by polling.
 *
 * Faults
 * - `leaves-entries`: what is no file, link included, is answered and left in the queue
 * - `follows-symlinks`: a link to a regular file is taken for one
 * - `answers-out-of-order`: the name is judged before what the entry is
 * - `runs-twice`: what ran when it was killed is run again at the next start
 * - `runs-replays`: a request that is known is run again
 * - `uses-a-shell`: a command is a line for a shell
 *
 * @module
 */
import { join } from "node:path";

type Json = Record<string, unknown>;
type ArgSpec = {
  type: string;
  values?: string[];
  min?: number;
  max?: number;
  max_length?: number;
  element?: string;
  default?: unknown;
};
type Verb = {
  class: string;
  argv: string[];
  args?: Record<string, ArgSpec>;
  timeout_s: number;
};
interface Policy {
  agents: Record<string, { verbs: string[]; scope: string }>;
  verbs: Record<string, Verb>;
  env: Record<string, string>;
}
/** What is known of an accepted request; kept on disk for as long as the bridge exists. */
interface Known {
  id: string;
  key: string;
  digest: string;
  verb: string;
  args: Json;
  timeout_s: number;
  replays: number;
  ids: string[];
}

const words = [...Deno.args];
const fault = words[0] === "--fault" ? words.splice(0, 2)[1] : undefined;
const [, root = "", policyFile = ""] = words;
const policy: Policy = JSON.parse(Deno.readTextFileSync(policyFile));
const CODES: { code: number; reason: string; outcome: string | null; next: string }[] = JSON.parse(
  Deno.readTextFileSync(join(import.meta.dirname ?? ".", "..", "codes.json")),
);
const at = (...parts: string[]) => join(root, ...parts);
const queue = at("spool/main/queue");
const results = at("spool/main/results");
const refused = at("spool/main/inbox/refused");
const CLASSES = ["observe", "mutating", "destructive"];
const DENIED = /^(?:exec|shell|sh|bash|run-command|eval|sudo|ssh|approve|resume|trust|policy)$/;
const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const bytesOf = (text: string) => new TextEncoder().encode(text).length;

class Refusal extends Error {
  constructor(readonly stage: string, readonly reason: string, message: string) {
    super(message);
  }
}

/** The named value in an object, and nothing of its prototype. */
const own = (of: unknown, name: string): unknown =>
  Object.getOwnPropertyDescriptor(of ?? {}, name)?.value;

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function publish(directory: string, name: string, value: Json): void {
  const staged = at("own/staging", crypto.randomUUID());
  Deno.writeTextFileSync(staged, JSON.stringify(value) + "\n");
  Deno.renameSync(staged, join(directory, name));
}

function coded(reason: string): Json {
  const row = CODES.find((one) => one.reason === reason);
  return { code: row?.code, reason, outcome: row?.outcome ?? null, next: row?.next };
}

/** Walks over a text that JSON.parse takes: keys that stand twice, depth, number of keys. */
function shapeFault(text: string): string | null {
  const stack: (Set<string> | null)[] = [];
  let isKey = false;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]/g)) {
    if (token === "{" || token === "[") {
      stack.push(token === "{" ? new Set() : null);
      if (stack.length > 16) return "It is nested too deep";
      isKey = token === "{";
    } else if (token === "}" || token === "]") stack.pop();
    else if (token === ",") isKey = stack.at(-1) instanceof Set;
    else if (token === ":") isKey = false;
    else if (isKey) {
      const keys = stack.at(-1);
      const key: string = JSON.parse(token);
      if (keys?.has(key)) return "A key stands twice";
      keys?.add(key);
      if ((keys?.size ?? 0) > 64) return "An object has too many keys";
    }
  }
  return null;
}

function parse(bytes: Uint8Array): unknown {
  const malformed = (why: string) => new Refusal("parse", "malformed", why);
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(text);
  } catch {
    throw malformed("It is not one JSON text in UTF-8");
  }
  const shape = shapeFault(text);
  if (shape !== null) throw malformed(shape);
  const judge = (one: unknown): void => {
    if (typeof one === "string" && (bytesOf(one) > 8192 || one.includes("\0"))) {
      throw malformed("A string is too long or holds a NUL");
    }
    if (typeof one === "number" && Number.isInteger(one) && !Number.isSafeInteger(one)) {
      throw malformed("A whole number is not exact");
    }
    if (typeof one === "object" && one !== null) {
      Object.keys(one).forEach(judge);
      Object.values(one).forEach(judge);
    }
  };
  judge(value);
  return value;
}

const isText = (value: unknown) => typeof value === "string";
const isPositive = (value: unknown) => typeof value === "number" && value > 0;
const FIELDS: Readonly<Record<string, (value: unknown) => boolean>> = {
  verb: (value) => isText(value) && value !== "",
  args: isObject,
  id: isText,
  idempotency_key: (value) => isText(value) && /^[a-z0-9][a-z0-9_-]{0,127}$/.test(String(value)),
  timeout_s: isPositive,
  max_age_s: isPositive,
  scope: (value) => isText(value) && CLASSES.includes(String(value)),
  max_spend: (value) => typeof value === "number" && value >= 0,
  plan: isText,
  note: isText,
  chb: (value) => value === 1,
};

function checkShape(value: unknown, id: string): Json {
  const wrong = (why: string) => new Refusal("schema", "schema", why);
  if (!isObject(value)) throw wrong("It is no object");
  for (const name of Object.keys(value)) {
    if (!Object.hasOwn(FIELDS, name)) throw wrong("It has an unknown field");
  }
  if (own(value, "verb") === undefined) throw wrong("It has no verb");
  for (const [name, holds] of Object.entries(FIELDS)) {
    if (Object.hasOwn(value, name) && !holds(own(value, name))) {
      throw wrong(`The field ${name} is wrong`);
    }
  }
  if (Object.hasOwn(value, "id") && own(value, "id") !== id) throw wrong("The id is another one");
  return value;
}

function fits(spec: ArgSpec, value: unknown): boolean {
  switch (spec.type) {
    case "boolean":
      return typeof value === "boolean";
    case "integer":
      return Number.isSafeInteger(value) && Number(value) >= (spec.min ?? 0) &&
        Number(value) <= (spec.max ?? 2 ** 31 - 1);
    case "enum":
      return typeof value === "string" && spec.values?.includes(value) === true;
    case "name":
      return typeof value === "string" && /^[A-Za-z0-9_][A-Za-z0-9._-]*$/.test(value) &&
        value.length <= (spec.max_length ?? 128);
    case "text":
      return typeof value === "string" && /^[^-@\p{Cc}][^\p{Cc}]*$/u.test(value) &&
        bytesOf(value) <= (spec.max_length ?? 1024);
    default:
      return false;
  }
}

/** The arguments with defaults, or undefined when they are not those of the verb. */
function checkArgs(verb: Verb, given: Json): Json | undefined {
  const specs = verb.args ?? {};
  const args: Json = {};
  if (Object.keys(given).some((name) => !Object.hasOwn(specs, name))) return undefined;
  for (const [name, spec] of Object.entries(specs).sort()) {
    const value = Object.hasOwn(given, name)
      ? given[name]
      : spec.default ?? (spec.type === "boolean" ? false : undefined);
    if (!fits(spec, value)) return undefined;
    args[name] = value;
  }
  return args;
}

function command(verb: Verb, args: Json): string[] {
  return verb.argv.flatMap((word) => {
    const [, before = "", name] = /^(.*=|)\{([a-z0-9_-]+)\}$/.exec(word) ?? [];
    if (name === undefined) return [word];
    const element = verb.args?.[name]?.element;
    if (element !== undefined) return args[name] === true ? [element] : [];
    return [before + String(args[name])];
  });
}

const knownPath = (id: string) => at("own/known", id);
const known = new Map<string, Known>();
const running = new Set<string>();

function remember(row: Known): void {
  const staged = at("own/staging", crypto.randomUUID());
  Deno.writeTextFileSync(staged, JSON.stringify(row));
  Deno.renameSync(staged, knownPath(row.id));
  for (const id of row.ids) known.set(id, row);
}

function publishResult(row: Known, value: Json): void {
  Deno.writeTextFileSync(at("own/staging/last"), JSON.stringify(value));
  Deno.renameSync(at("own/staging/last"), at("own/last", row.id));
  for (const id of row.ids) tell(row, id, value);
}

function tell(row: Known, id: string, value: Json): void {
  publish(results, `${id}.json`, {
    ...value,
    id,
    ...(id === row.id ? {} : { replay_of: row.id }),
    ...(row.replays > 0 ? { replays: row.replays } : {}),
  });
}

const base = (row: Known): Json => ({
  chb: 1,
  id: row.id,
  agent: "main",
  verb: row.verb,
  idempotency_key: row.key,
});

async function run(row: Known): Promise<void> {
  const verb = policy.verbs[row.verb];
  if (verb === undefined) return;
  running.add(row.id);
  publishResult(row, { ...base(row), state: "running", next: "wait" });
  const [program = "", ...args] = command(verb, row.args);
  const child = new Deno.Command(fault === "uses-a-shell" ? "/bin/sh" : program, {
    args: fault === "uses-a-shell" ? ["-c", [program, ...args].join(" ")] : args,
    cwd: "/",
    clearEnv: true,
    env: policy.env,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    detached: true,
  }).spawn();
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    try {
      Deno.kill(-child.pid, "SIGKILL");
    } catch {
      // It ended by itself a moment ago.
    }
  }, row.timeout_s * 1000);
  const { code, signal, stdout, stderr } = await child.output();
  clearTimeout(timer);
  const head = (bytes: Uint8Array) => ({
    head: new TextDecoder().decode(bytes.subarray(0, 16384)),
    bytes: bytes.length,
  });
  publishResult(row, {
    ...base(row),
    state: "done",
    ...coded(late ? "timed-out" : code === 0 ? "ok" : "command-failed"),
    exit_code: signal === null ? code : null,
    stdout: head(stdout),
    stderr: head(stderr),
  });
  running.delete(row.id);
}

/** What stands at a path, judged without opening it. */
function objectFault(info: Deno.FileInfo, path: string): Refusal | null {
  if (fault === "follows-symlinks" && info.isSymlink) {
    try {
      if (Deno.statSync(path).isFile) return null;
    } catch {
      // It leads nowhere.
    }
  }
  if (!info.isFile || info.nlink !== 1) {
    return new Refusal("object", "not-regular", "It is no file");
  }
  return info.size > 65536 ? new Refusal("object", "malformed", "It is too large") : null;
}

function nameFault(id: string | null): Refusal | null {
  return id === null ? new Refusal("name", "bad-name", "Its name is no <id>.json") : null;
}

function judge(path: string, info: Deno.FileInfo, id: string | null): void {
  const object = objectFault(info, path);
  const isUp = exists(at("state/KILL"));
  if (isUp && object === null && id !== null) {
    throw new Refusal("kill", "killed", "The kill switch is up");
  }
  const checks = [object, nameFault(id)];
  if (fault === "answers-out-of-order") checks.reverse();
  for (const check of checks) if (check !== null) throw check;
  let bytes: Uint8Array;
  try {
    bytes = Deno.readFileSync(path);
  } catch {
    throw new Refusal("read", "not-regular", "It cannot be read");
  }
  if (id !== null) decide(checkShape(parse(bytes), id), id);
}

function decide(request: Json, id: string): void {
  const key = String(own(request, "idempotency_key") ?? id);
  const name = String(own(request, "verb"));
  const given = own(request, "args");
  const verb = Object.hasOwn(policy.verbs, name) ? policy.verbs[name] : undefined;
  const args = verb && checkArgs(verb, isObject(given) ? given : {});
  const digest = JSON.stringify([name, args, own(request, "scope"), own(request, "max_spend")]);
  const byId = known.get(id);
  const row = byId ?? [...known.values()].find((one) => one.key === key);
  if (row !== undefined) {
    if (row.key !== key || row.digest !== digest) {
      throw new Refusal("replay", "key-conflict", "The id or key belongs to another request");
    }
    if (byId === undefined) row.ids.push(id);
    else if (!running.has(row.id)) row.replays++;
    remember(row);
    if (fault === "runs-replays" && !running.has(row.id)) void run(row);
    else if (!running.has(row.id) || byId === undefined) {
      tell(row, id, JSON.parse(Deno.readTextFileSync(at("own/last", row.id))));
    }
    return;
  }
  if (DENIED.test(name) || name.startsWith("bridge.")) {
    throw new Refusal("denial", "denied-verb", "No policy can give this verb");
  }
  const agent = policy.agents["main"];
  if (verb === undefined || agent?.verbs.includes(name) !== true) {
    throw new Refusal("allow", "unknown-verb", "There is no such verb");
  }
  if (args === undefined) throw new Refusal("args", "bad-args", "The arguments are wrong");
  const scopes = [agent.scope, String(own(request, "scope") ?? "destructive")];
  if (scopes.some((scope) => CLASSES.indexOf(verb.class) > CLASSES.indexOf(scope))) {
    throw new Refusal("scope", "scope-exceeded", "The class of the verb is above the scope");
  }
  const timeout_s = Math.min(verb.timeout_s, Number(own(request, "timeout_s") ?? Infinity));
  const fresh = { id, key, digest, verb: name, args, timeout_s, replays: 0, ids: [id] };
  remember(fresh);
  void run(fresh);
}

function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

function printable(name: string): string {
  return name.replaceAll("\\", "\\\\")
    .replace(/[^ -~]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

let notes = 0;
const answered = new Set<string>();

function handle(name: string): void {
  const stem = name.endsWith(".json") ? name.slice(0, -5) : "";
  const id = ID.test(stem) ? stem : null;
  const path = at("own/claims", crypto.randomUUID());
  const isSpecial = !Deno.lstatSync(join(queue, name)).isFile &&
    !Deno.lstatSync(join(queue, name)).isSymlink;
  const leaves = fault === "leaves-entries" && isSpecial;
  if (leaves && answered.has(name)) return;
  answered.add(name);
  const from = leaves ? join(queue, name) : path;
  try {
    if (!leaves) Deno.renameSync(join(queue, name), path);
    judge(from, Deno.lstatSync(from), id);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const answer = {
      chb: 1,
      agent: "main",
      state: "done",
      ...coded(error.reason),
      stage: error.stage,
      message: error.message,
      hint: "See the README of the suite",
    };
    if (id === null) {
      notes++;
      publish(refused, `${notes}.json`, { ...answer, n: notes, name: printable(name) });
    } else publish(results, `${id}${known.has(id) ? ".refused" : ""}.json`, { ...answer, id });
  }
}

const TEMPORARY = /^[.~]|(?:~|\.(?:tmp|temp|part|partial))$/;
const seen = new Map<string, { print: string; since: number }>();

/** True when a file has stood still for as long as its writer is waited for. */
function isSettled(name: string): boolean {
  const info = Deno.lstatSync(join(queue, name));
  if (!info.isFile || !ID.test(name.replace(/\.json$/, ""))) return true;
  const print = `${info.ino} ${info.size} ${info.ctime?.getTime()} ${info.mtime?.getTime()}`;
  const before = seen.get(name);
  if (before?.print !== print) seen.set(name, { print, since: performance.now() });
  const still = performance.now() - (before?.print === print ? before.since : performance.now());
  // It was written to a moment ago, by the clock of the disk: its writer may not be done.
  return still >= (info.size === 0 ? 1000 : 250);
}

function pass(): void {
  for (const { name } of [...Deno.readDirSync(queue)]) {
    if (name !== ".json" && TEMPORARY.test(name)) continue;
    try {
      if (!isSettled(name)) continue;
      seen.delete(name);
      handle(name);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) console.error(name, error);
    }
  }
}

function recover(): void {
  for (const { name } of Deno.readDirSync(at("own/known"))) {
    const row: Known = JSON.parse(Deno.readTextFileSync(knownPath(name)));
    for (const id of row.ids) known.set(id, row);
    const last: Json = exists(at("own/last", name))
      ? JSON.parse(Deno.readTextFileSync(at("own/last", name)))
      : { ...base(row), state: "running" };
    if (last["state"] !== "running") continue;
    if (fault === "runs-twice") void run(row);
    else publishResult(row, { ...base(row), state: "uncertain", ...coded("uncertain") });
  }
}

for (const path of ["own/claims", "own/staging", "own/known", "own/last", "state"]) {
  Deno.mkdirSync(at(path), { recursive: true });
}
for (const path of [queue, results, refused]) Deno.mkdirSync(path, { recursive: true });
for (const { name } of Deno.readDirSync(refused)) notes = Math.max(notes, parseInt(name));
recover();
console.log("ready");
Deno.addSignalListener("SIGTERM", () => Deno.exit(0));
setInterval(pass, 15);
