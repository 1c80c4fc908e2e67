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
  ["bridge.ping", "bridge.verbs", "bridge.status", "bridge.cancel"] as const,
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

/** What a built-in verb takes, for those that take anything; every value is a text. */
export const BUILTIN_ARGS: Readonly<Record<string, Readonly<Record<string, string>>>> = Object
  .freeze({
    "bridge.cancel": {
      id: "The id of one of your requests; this or idempotency_key.",
      idempotency_key: "The key of one of your requests; this or id.",
    },
  });

/**
 * Checks the arguments of a built-in verb.
 *
 * @returns what is wrong, or null
 */
export function builtinArgs(
  name: string,
  args: Readonly<Record<string, unknown>>,
): { message: string; hint: string } | null {
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
