/**
 * Reads what the implementation published, and judges it: by what a vector expects, and by the rules
 * that hold for every result whatever the vector.
 *
 * @module
 */
import { SECRET } from "./work.ts";
import { type Expected, readJson } from "./vector.ts";

/** A row of the code table. */
interface CodeRow {
  readonly code: number;
  readonly reason: string;
  readonly outcome: string | null;
  readonly next: string;
}

export const CODES: readonly CodeRow[] = readJson<CodeRow[]>("codes.json");
const STATES = ["pending", "running", "done", "uncertain"];
/** Names of the stages, in their order. */
export const STAGES: readonly string[] = readJson<string[]>("stages.json");

/** A published file. */
export interface Published {
  readonly text: string;
  /** Null when the text is no JSON object: then it was not published whole. */
  readonly value: Readonly<Record<string, unknown>> | null;
}

/** Reads a published file, or null when it is not there. */
export function readPublished(path: string): Published | null {
  let text: string;
  try {
    text = Deno.readTextFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return null;
    throw error;
  }
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return { text, value: isObject ? { ...value } : null };
  } catch {
    return { text, value: null };
  }
}

/** True when nothing more will come by itself. */
export function isFinal({ value }: Published): boolean {
  return value?.["state"] === "done" || value?.["state"] === "uncertain";
}

function headOf(value: unknown): unknown {
  return typeof value === "object" && value !== null && "head" in value ? value.head : undefined;
}

function bytesOf(value: unknown): number {
  return typeof value === "object" && value !== null && "bytes" in value &&
      typeof value.bytes === "number"
    ? value.bytes
    : -1;
}

/** How a file differs from what is expected; empty when it does not. */
export function differences(expected: Expected, { text, value }: Published): string[] {
  if (value === null) return ["it is no JSON object"];
  const { stdout, stderr, replays, states, without, within, stdout_bytes, ...equal } = expected;
  const found: string[] = [];
  const differs = (what: string, want: unknown, is: unknown) => {
    if (is !== want) {
      found.push(`${what}: ${JSON.stringify(is)} instead of ${JSON.stringify(want)}`);
    }
  };
  for (const [name, want] of Object.entries(equal)) differs(name, want, value[name]);
  if (stdout !== undefined) differs("stdout.head", stdout, headOf(value["stdout"]));
  if (stderr !== undefined) differs("stderr.head", stderr, headOf(value["stderr"]));
  if (replays !== undefined && !(Number(value["replays"]) >= replays)) {
    found.push(`replays: ${JSON.stringify(value["replays"])} instead of ${replays} or more`);
  }
  if (states !== undefined && !states.includes(String(value["state"]))) {
    found.push(`state: ${JSON.stringify(value["state"])} is none of ${states.join(", ")}`);
  }
  if (stdout_bytes !== undefined) {
    if (bytesOf(value["stdout"]) < stdout_bytes) found.push(`stdout.bytes below ${stdout_bytes}`);
    if (text.length > 256 * 1024) found.push(`the result has ${text.length} bytes`);
  }
  for (const part of without ?? []) {
    if (text.includes(part)) found.push(`it holds ${JSON.stringify(part)}`);
  }
  for (const part of within ?? []) {
    if (!text.includes(part)) found.push(`it does not hold ${JSON.stringify(part)}`);
  }
  return found;
}

/**
 * What is wrong with a published file by the rules that hold for all of them.
 *
 * @param id the id in the file's name, or null for a note in `inbox/refused/`
 */
export function faults(
  { text, value }: Published,
  agent: string,
  id: string | null,
): string[] {
  if (value === null) return ["it is no whole JSON object"];
  const found: string[] = [];
  const must = (holds: boolean, what: string) => {
    if (!holds) found.push(what);
  };
  must(value["chb"] === 1, '"chb" is not 1');
  must(value["agent"] === agent, '"agent" is not the agent');
  if (id !== null) must(value["id"] === id, '"id" is not that of the file name');
  const { state, code, reason, outcome, next } = value;
  must(typeof state === "string" && STATES.includes(state), '"state" is none of the table');
  if (state === "done" || state === "uncertain") {
    const row = CODES.find((one) => one.code === code);
    must(row !== undefined && row.reason === reason, '"code" and "reason" are no row of the table');
    if (state === "done") must(row?.outcome === outcome, '"outcome" is not the one of the code');
    must(row?.next === next, '"next" is not the one of the code');
    const refused = row !== undefined && row.code >= 64 && state === "done";
    if (refused) {
      must(isSentence(value["message"]), '"message" is no line of printable ASCII');
      must(isSentence(value["hint"]), '"hint" is no line of printable ASCII');
      must(STAGES.includes(String(value["stage"])), '"stage" is none of the table');
    }
  } else must(next === "wait", '"next" of what is not final is not "wait"');
  must(!text.includes(SECRET), "it holds what only the host may read");
  return found;
}

function isSentence(value: unknown): boolean {
  return typeof value === "string" && /^[\x20-\x7e]+$/.test(value);
}
