/**
 * What an agent may ask of the bridge itself: the built-in verbs. They read, they need no policy,
 * no slot and no ledger row, and none of them does what a human command does.
 *
 * @module
 */

/** The built-in verbs, read-only for the host. */
export const BUILTINS = Object.freeze(["bridge.ping", "bridge.verbs", "bridge.status"] as const);

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

/**
 * Checks the arguments of a built-in verb; those served so far take none.
 *
 * @returns what is wrong, or null
 */
export function builtinArgs(
  name: string,
  args: Readonly<Record<string, unknown>>,
): { message: string; hint: string } | null {
  const given = Object.keys(args);
  if (given.length === 0) return null;
  return {
    message: `The verb "${name}" takes no arguments; ${given.length} given`,
    hint: 'Leave "args" out',
  };
}
