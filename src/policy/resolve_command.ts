/**
 * From a verb and checked arguments to the one command that would be executed. Pure and
 * deterministic: the daemon computes the digest of the command before it commits, the shim resolves
 * the command again from the trusted policy, and the two have to be equal.
 *
 * Rules that this file keeps:
 * 1. Every element of the policy's vector becomes exactly one argument, or none for a boolean that
 *    is false; no value can add, split or join arguments (X1, X2).
 * 2. Only checked values are placed, and only of declared arguments; a value of another JavaScript
 *    type than its declaration ends the resolution (X2, J3).
 * 3. Program, working directory and environment come from the policy alone (X7).
 * 4. The digest covers all of it, in an encoding in which no two commands look the same.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { isId, isKey } from "../names.ts";
import { parseFixed } from "./argv_template.ts";
import type { ArgvElement, CheckedArgs, ResolvedCommand, VerbPolicy } from "./policy.ts";

/** What a command depends on beside policy and arguments. */
export interface CommandContext {
  readonly id: string;
  readonly idempotency_key: string;
  /** Absolute path of the root. */
  readonly root: string;
  /** What is granted; null for a verb that does not take it. */
  readonly max_spend: number | null;
  /** The run's directory: absolute, or below the root. */
  readonly run_dir: string;
}

/** File below the run's directory in which a command may report what it spent. */
export const SPEND_FILE = "spend";

/**
 * The command of a verb.
 *
 * @param args as `checkArgs` returned them
 * @returns frozen
 * @throws {TypeError} when the arguments are not the checked ones of this verb
 * @throws {RangeError} when the context is not one: ids, root or grant
 */
export function resolveCommand(
  verb: VerbPolicy,
  args: CheckedArgs,
  context: CommandContext,
): ResolvedCommand {
  const env: Record<string, string> = { ...verb.env };
  if (verb.takes_max_spend) {
    env["CHB_SPEND_FILE"] = `${absolute(context.run_dir, context.root)}/${SPEND_FILE}`;
  }
  if (verb.messages) {
    const run = context.run_dir.slice(context.run_dir.lastIndexOf("/") + 1);
    env["CHB_MESSAGES"] = absolute(`state/messages/${run}`, context.root);
  }
  return resolve(verb.program, verb.argv, env, verb, args, context);
}

/**
 * The command that asks what became of an earlier run, or null when the verb has none.
 *
 * @throws as `resolveCommand`
 */
export function resolveLookup(
  verb: VerbPolicy,
  args: CheckedArgs,
  context: CommandContext,
): ResolvedCommand | null {
  if (verb.lookup === null) return null;
  return resolve(verb.lookup.program, verb.lookup.argv, verb.env, verb, args, context);
}

function resolve(
  program: string,
  argv: readonly ArgvElement[],
  env: Readonly<Record<string, string>>,
  verb: VerbPolicy,
  args: CheckedArgs,
  context: CommandContext,
): ResolvedCommand {
  if (!context.root.startsWith("/")) {
    throw new RangeError(`Cannot resolve a command: root "${context.root}" is not absolute`);
  }
  if (!isId(context.id) || !isKey(context.idempotency_key)) {
    throw new RangeError("Cannot resolve a command: id or key is not one");
  }
  return Object.freeze({
    program: absolute(program, context.root),
    argv: Object.freeze(argv.flatMap((element) => resolveElement(element, verb, args, context))),
    cwd: verb.cwd,
    env: Object.freeze({ ...env }),
  });
}

/** A path as it is, or below the root. */
function absolute(path: string, root: string): string {
  return path.startsWith("/") ? path : `${root === "/" ? "" : root.replace(/\/+$/, "")}/${path}`;
}

function resolveElement(
  element: ArgvElement,
  verb: VerbPolicy,
  args: CheckedArgs,
  context: CommandContext,
): string[] {
  switch (element.kind) {
    case "fixed":
      return [element.text];
    case "base":
      return [element.prefix + absolute(element.path, context.root)];
    case "placeholder":
      return resolvePlaceholder(element, verb, args, context);
  }
}

function resolvePlaceholder(
  { name, prefix }: Extract<ArgvElement, { kind: "placeholder" }>,
  verb: VerbPolicy,
  args: CheckedArgs,
  context: CommandContext,
): string[] {
  const spec = verb.args.get(name);
  if (spec === undefined) {
    switch (name) {
      case "id":
        return [prefix + context.id];
      case "idempotency_key":
        return [prefix + context.idempotency_key];
      case "max_spend":
        if (context.max_spend === null) {
          throw new RangeError(`Cannot resolve "${verb.name}": nothing was granted for max_spend`);
        }
        return [prefix + plainDecimal(context.max_spend)];
      default:
        throw new TypeError(`Cannot resolve "${verb.name}": no argument "${name}"`);
    }
  }
  const value = Object.hasOwn(args, name) ? args[name] : undefined;
  const unchecked = () =>
    new TypeError(`Cannot resolve "${verb.name}": argument "${name}" is not a checked value`);
  switch (spec.type) {
    case "boolean": {
      if (typeof value !== "boolean") throw unchecked();
      if (!value) return [];
      const outcome = parseFixed(spec.element);
      if (!outcome.ok) throw unchecked();
      return resolveElement(outcome.element, verb, args, context);
    }
    case "integer":
      if (typeof value !== "number" || !Number.isSafeInteger(value)) throw unchecked();
      return [prefix + value.toFixed(0)];
    case "path":
      if (typeof value !== "string") throw unchecked();
      return [`${prefix}${absolute(spec.root, context.root)}/${value}`];
    default:
      if (typeof value !== "string") throw unchecked();
      return [prefix + value];
  }
}

/** Decimal places that a grant is written with at most. */
const DECIMALS = 20;

/** A number of at least zero without exponent: what every program can read. */
function plainDecimal(value: number): string {
  if (!Number.isFinite(value) || value < 0 || value >= 1e21) {
    throw new RangeError("Cannot write a grant: it is no number of at least zero");
  }
  const short = String(value + 0);
  if (!short.includes("e")) return short;
  return value.toFixed(DECIMALS).replace(/\.?0+$/, "");
}

/**
 * SHA-256, lower-case hex, over program, arguments, working directory and environment. The encoding
 * is a JSON array, with the environment as a list of pairs sorted by name.
 */
export function commandDigest(command: ResolvedCommand): string {
  const env = Object.entries(command.env).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return createHash("sha256")
    .update(JSON.stringify([command.program, command.argv, command.cwd, env]))
    .digest("hex");
}
