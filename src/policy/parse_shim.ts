/**
 * The calls of a sandbox's stand-in programs that mean a verb: `docker compose restart {service}`.
 * The stand-ins compare a call with them word by word, so here they are checked once, on the host.
 *
 * Rules that this file keeps:
 * 1. A call is words with one space between; a placeholder is a whole word or the tail of
 *    `--flag={name}`, so that a word of the caller becomes one argument or none.
 * 2. What can stand in a word needs no quoting in any shell: the stand-ins are shell scripts.
 * 3. Each call brings every argument that the verb wants; the bridge checks their values as always.
 *
 * @module
 */
import { printable } from "../names.ts";
import { below } from "./json_path.ts";
import type { ArgSpec } from "./policy.ts";
import { didYouMean } from "./suggest.ts";
import type { Findings } from "./read_section.ts";

const PROGRAM = /^[a-z0-9][a-z0-9._-]*$/;
const FIXED = /^[A-Za-z0-9_.\/:@%+=,-]+$/;
const PLACEHOLDER = /^(?:--[A-Za-z0-9][A-Za-z0-9._-]*=)?\{([a-z0-9][a-z0-9_-]*)\}$/;

/** Checks the calls of one verb; `path` is the verb's. What is wrong goes to `findings`. */
export function checkShim(
  calls: readonly string[],
  args: ReadonlyMap<string, ArgSpec>,
  path: string,
  findings: Findings,
): void {
  calls.forEach((call, i) => {
    const wrong = callError(call, args);
    if (wrong !== null) findings.error(`${below(path, "shim")}[${i}]`, wrong.message, wrong.hint);
  });
}

function callError(
  call: string,
  args: ReadonlyMap<string, ArgSpec>,
): { message: string; hint: string } | null {
  const [program = "", ...words] = call.split(" ");
  if (!PROGRAM.test(program)) {
    return {
      message: `The call "${printable(call, 80)}" does not begin with the name of a program`,
      hint: "Write it as it would be typed, such as docker compose restart {service}",
    };
  }
  const given = new Set<string>();
  for (const word of words) {
    const name = PLACEHOLDER.exec(word)?.[1];
    if (name === undefined) {
      if (FIXED.test(word)) continue;
      return {
        message: `The call has a word that a stand-in cannot compare: "${printable(word, 60)}"`,
        hint: "Letters, digits and _ . / : @ % + = , - with one space between words; a " +
          "placeholder is a whole word {name} or the tail of --flag={name}",
      };
    }
    if (!args.has(name)) {
      return {
        message: `There is no argument "${name}" for the placeholder in the call`,
        hint: `${didYouMean(name, [...args.keys()])}Arguments: ${
          [...args.keys()].join(", ") || "none"
        }`,
      };
    }
    if (given.has(name)) {
      return { message: `The call gives "${name}" twice`, hint: "Name each argument once" };
    }
    given.add(name);
  }
  for (const [name, spec] of args) {
    if (spec.default !== undefined || given.has(name)) continue;
    return {
      message: `The call does not say "${name}", which the verb wants`,
      hint: `Add {${name}} where the word stands, or give the argument a default`,
    };
  }
  return null;
}
