/**
 * One verb of a policy: its shape has been read, this file checks what one key means for another,
 * and builds the value that the rest of the program trusts.
 *
 * Rules that this file keeps:
 * 1. A verb is built only when nothing about it is wrong; every error is told all the same.
 * 2. Each declared argument is used, each placeholder is declared: what a reviewer reads in `args`
 *    is what a request can change.
 * 3. Nothing runs a second time by itself unless the verb only looks, or says that it may.
 * 4. The environment of a command is what the policy says, and holds no name that makes programs
 *    run something (X7).
 *
 * @module
 */
import { deniedEnvironment, namesSpool } from "./denials.ts";
import { RESERVED_NAMES } from "./argv_template.ts";
import { below } from "./json_path.ts";
import { parseArgs } from "./parse_args.ts";
import { type ArgvRules, parseArgv, spoolPath } from "./parse_argv.ts";
import type { Lookup, VerbPolicy } from "./policy.ts";
import type { LOOKUP, SectionOf, VERB } from "./policy_table.ts";
import { checkShim } from "./parse_shim.ts";
import type { Findings } from "./read_section.ts";
import { warnEngine, warnUntracked } from "./verb_warnings.ts";

/** What a verb needs to know of the rest of the policy. */
export interface VerbSurroundings {
  /** The policy's environment; undefined when it was wrong. */
  readonly env: ReadonlyMap<string, string | undefined> | undefined;
  /** `limits.spend` is there. */
  readonly spend: boolean;
}

/**
 * Checks and builds one verb.
 *
 * @returns the verb, or undefined when something is wrong, which `findings` then says
 */
export function parseVerb(
  name: string,
  raw: SectionOf<typeof VERB>,
  path: string,
  surroundings: VerbSurroundings,
  findings: Findings,
): VerbPolicy | undefined {
  const before = findings.errors.length;
  const args = parseArgs(raw.args, below(path, "args"), findings);
  const rules = {
    args,
    names: [...raw.args?.keys() ?? []],
    runs_workspace_code: raw.runs_workspace_code === true,
  };
  const argv = raw.argv === undefined ? undefined : parseArgv(
    raw.argv,
    { ...rules, names: [...rules.names, ...RESERVED_NAMES] },
    below(path, "argv"),
    findings,
  );
  if (raw.argv !== undefined) unusedArgs(raw.argv, rules.names, below(path, "args"), findings);
  const lookup = parseLookup(raw.lookup, rules, below(path, "lookup"), findings);

  if (raw.on_crash === "lookup" && raw.lookup === undefined) {
    findings.error(
      below(path, "on_crash"),
      '"lookup" without a lookup',
      'Add "lookup": { "argv": […], "done": [0], "not_done": [1] }',
    );
  }
  if (raw.lookup !== undefined && raw.on_crash !== undefined && raw.on_crash !== "lookup") {
    findings.error(
      below(path, "lookup"),
      "A lookup that nothing asks for",
      'Write "on_crash": "lookup", or remove it',
    );
  }
  if (
    raw.on_crash === "rerun" && raw.class !== undefined && raw.class !== "observe" &&
    raw.idempotent !== true
  ) {
    findings.error(
      below(path, "on_crash"),
      `"rerun" may do the work of this ${raw.class} verb twice`,
      'Add "idempotent": true if that does no harm, else write "uncertain" or "lookup"',
    );
  }
  const takesMaxSpend =
    argv?.elements.some((element) =>
      element.kind === "placeholder" && element.name === "max_spend"
    ) === true;
  if (takesMaxSpend && raw.cost !== undefined) {
    findings.error(
      below(path, "cost"),
      "A fixed cost together with {max_spend}",
      "Keep one of the two",
    );
  }
  if (takesMaxSpend && !surroundings.spend) {
    findings.error(
      below(path, "argv"),
      "{max_spend} without limits.spend: nothing says what is granted",
      'Add "limits": { "spend": { "per_request": 5, "per_day": 20 } }',
    );
  }
  const env = mergeEnvironment(surroundings.env, raw.env, below(path, "env"), findings);
  if (raw.requires !== undefined && argv !== undefined) {
    const vectors = lookup === null || lookup === undefined
      ? [argv]
      : [argv, { program: lookup.program, elements: lookup.argv }];
    warnUntracked(vectors, args, raw.requires, path, findings);
  }
  if (raw.class === "destructive" && raw.approval === "never") {
    findings.warning(
      below(path, "approval"),
      "unapproved-destruction",
      "Nobody is asked before this destructive verb runs",
    );
  }
  if (raw.runs_workspace_code === true) {
    findings.warning(
      below(path, "runs_workspace_code"),
      "workspace-code",
      "It executes what lies in its working tree: an agent that can write there runs its own code " +
        "as this user, outside every sandbox",
    );
  }
  if (argv !== undefined) warnEngine(argv, args, env, path, findings);

  checkShim(raw.shim ?? [], args, path, findings);

  const { class: klass, timeout_s } = raw;
  if (
    findings.errors.length > before || klass === undefined || timeout_s === undefined ||
    argv === undefined || lookup === undefined || env === undefined
  ) return undefined;
  return {
    name,
    description: raw.description ?? "",
    class: klass,
    program: argv.program,
    argv: argv.elements,
    args: new Map(args),
    timeout_s,
    lock: raw.lock ?? null,
    requires: raw.requires ?? [],
    approval: raw.approval ?? (klass === "destructive" ? "always" : "never"),
    on_crash: raw.on_crash ?? "uncertain",
    idempotent: raw.idempotent ?? false,
    lookup,
    needs: raw.needs ?? [],
    cost: raw.cost ?? null,
    cwd: raw.cwd ?? "/",
    env,
    runs_workspace_code: raw.runs_workspace_code ?? false,
    takes_max_spend: takesMaxSpend,
    messages: raw.messages ?? false,
    shim: raw.shim ?? [],
  };
}

/** Rule 2. */
function unusedArgs(
  argv: readonly string[],
  names: readonly string[],
  path: string,
  findings: Findings,
): void {
  for (const name of names) {
    // A placeholder that is wrong otherwise has been told, and says what was meant.
    if (argv.some((text, index) => index > 0 && text.includes(`{${name}}`))) continue;
    findings.error(
      below(path, name),
      "The argument is not used in argv",
      `Put {${name}} where it belongs, or remove the argument`,
    );
  }
}

/** The lookup; null without one, undefined when it is wrong. */
function parseLookup(
  raw: SectionOf<typeof LOOKUP> | undefined,
  rules: ArgvRules,
  path: string,
  findings: Findings,
): Lookup | null | undefined {
  if (raw === undefined) return null;
  const before = findings.errors.length;
  const names = [...rules.names, ...RESERVED_NAMES.filter((name) => name !== "max_spend")];
  const argv = raw.argv === undefined
    ? undefined
    : parseArgv(raw.argv, { ...rules, names }, below(path, "argv"), findings);
  if (
    argv !== undefined && findings.errors.length === before &&
    !argv.elements.some((element) => element.kind === "placeholder")
  ) {
    findings.error(
      below(path, "argv"),
      "The lookup asks the same question for every run",
      "Add {idempotency_key}, {id} or an argument",
    );
  }
  const both = raw.done?.find((code) => raw.not_done?.includes(code));
  if (both !== undefined) {
    findings.error(
      below(path, "not_done"),
      `The exit code ${both} means both`,
      "Keep it in one of the lists",
    );
  }
  const { done, not_done, timeout_s } = raw;
  if (
    findings.errors.length > before || argv === undefined || done === undefined ||
    not_done === undefined || timeout_s === undefined
  ) return undefined;
  return { program: argv.program, argv: argv.elements, done, not_done, timeout_s };
}

/** Checks the variables of one level. */
export function checkEnvironment(
  env: ReadonlyMap<string, string | undefined> | undefined,
  path: string,
  findings: Findings,
): void {
  for (const [name, value = ""] of env ?? []) {
    const at = below(path, name);
    const denial = deniedEnvironment(name, value);
    if (denial !== null) findings.denial(at, denial);
    if (namesSpool(value)) spoolPath(at, findings);
  }
}

/** The policy's environment with the verb's on top; undefined when a part is wrong. */
function mergeEnvironment(
  common: ReadonlyMap<string, string | undefined> | undefined,
  own: ReadonlyMap<string, string | undefined> | undefined,
  path: string,
  findings: Findings,
): Readonly<Record<string, string>> | undefined {
  checkEnvironment(own, path, findings);
  if (common === undefined || own === undefined) return undefined;
  const env: Record<string, string> = Object.create(null);
  for (const [name, value] of [...common, ...own]) {
    if (value === undefined) return undefined;
    env[name] = value;
  }
  return env;
}
