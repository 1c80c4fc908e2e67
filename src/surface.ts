/**
 * What an agent may ask of the bridge itself: the built-in verbs. They read, they need no policy,
 * no slot and no ledger row, and none of them does what a human command does. What one of them
 * changes is the agent's own: it can cancel its own requests.
 *
 * @module
 */
import { isId, isKey } from "./names.ts";

/** The built-in verbs, read-only for the host. */
export const BUILTINS = Object.freeze(
  ["bridge.ping", "bridge.verbs", "bridge.status", "bridge.cancel", "bridge.reply"] as const,
);

export type Builtin = (typeof BUILTINS)[number];

/** True for the name of a built-in verb that this version serves. */
export function isBuiltin(name: string): name is Builtin {
  return (BUILTINS as readonly string[]).includes(name);
}

/** Those that change nothing: the same signed bytes may ask for them again and again. */
const READS: ReadonlySet<string> = new Set<Builtin>([
  "bridge.ping",
  "bridge.verbs",
  "bridge.status",
]);

/** True for a built-in verb that changes nothing, however often it is asked. */
export function readsOnly(name: string): boolean {
  return READS.has(name);
}

/** Longest reply, UTF-8 bytes. */
const REPLY_BYTES = 4096;

/** One argument of a built-in verb, as the catalogue tells it. */
export interface BuiltinArg {
  readonly type: "integer" | "name" | "text";
  readonly description: string;
  readonly min?: number;
  readonly max?: number;
  readonly max_length?: number;
}

/** What a built-in verb takes, for those that take anything. */
export const BUILTIN_ARGS: Readonly<Record<string, Readonly<Record<string, BuiltinArg>>>> = Object
  .freeze({
    "bridge.cancel": {
      id: {
        type: "name",
        description: "The id of one of your requests; this or idempotency_key.",
        max_length: 64,
      },
      idempotency_key: {
        type: "name",
        description: "The key of one of your requests; this or id.",
        max_length: 128,
      },
    },
    "bridge.reply": {
      n: { type: "integer", description: "Number of the message.", min: 1, max: 2 ** 53 - 1 },
      text: { type: "text", description: "The reply.", max_length: REPLY_BYTES },
    },
  });

/** Built-in verbs of whose arguments a request has one, not all. */
export const BUILTIN_ONE_OF: ReadonlySet<string> = new Set<Builtin>(["bridge.cancel"]);

/**
 * Checks the arguments of a built-in verb.
 *
 * @returns what is wrong, or null
 */
export function builtinArgs(
  name: string,
  args: Readonly<Record<string, unknown>>,
): { message: string; hint: string } | null {
  if (name === "bridge.reply") return replyArgs(args);
  const given = Object.keys(args);
  if (name === "bridge.cancel") return cancelArgs(given, args);
  if (given.length === 0) return null;
  return {
    message: `The verb "${name}" takes no arguments; ${given.length} given`,
    hint: 'Leave "args" out',
  };
}

function cancelArgs(
  given: readonly string[],
  args: Readonly<Record<string, unknown>>,
): { message: string; hint: string } | null {
  const hint = 'Send "args": {"id": "…"} or {"idempotency_key": "…"} of one of your requests';
  const [name] = given;
  if (given.length !== 1 || (name !== "id" && name !== "idempotency_key")) {
    return { message: 'The verb "bridge.cancel" takes an id or an idempotency_key', hint };
  }
  if (name === "id" ? isId(args[name]) : isKey(args[name])) return null;
  return { message: `The argument "${name}" is none`, hint };
}

function replyArgs(
  args: Readonly<Record<string, unknown>>,
): { message: string; hint: string } | null {
  const { n, text, ...others } = args;
  const hint =
    `Write { "n": 1, "text": "…" }: the number of the message and at most ${REPLY_BYTES} bytes`;
  if (Object.keys(others).length > 0) {
    return { message: 'The verb "bridge.reply" takes "n" and "text" only', hint };
  }
  if (!Number.isSafeInteger(n) || Number(n) < 1) {
    return { message: 'The argument "n" is not the number of a message', hint };
  }
  if (
    typeof text !== "string" || text === "" ||
    new TextEncoder().encode(text).length > REPLY_BYTES
  ) {
    return { message: 'The argument "text" is not a reply', hint };
  }
  return null;
}
