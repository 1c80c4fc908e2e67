/**
 * One verb of a policy: its shape has been read, this file checks what one key means for another,
 * applies the denials, and builds the value that the rest of the program trusts.
 *
 * Rules that this file keeps:
 * 1. A verb is built only when nothing about it is wrong; every error is told all the same.
 * 2. The denials of `denials.ts` and `container_denials.ts` are applied to the program, to every
 *    text that an element can become, to lookups alike; no key lifts one of them.
 * 3. Each declared argument is used, each placeholder is declared: what a reviewer reads in `args`
 *    is what a request can change.
 * 4. A value of the type `text`, and one that may start with `-`, stands where no program looks for
 *    options: after a fixed `--`, or behind a fixed `--flag=` (X1).
 * 5. A path argument lies below `base/`, or says that an agent can write there (X3).
 *
 * @module
 */
import { checkValue } from "./check_args.ts";
import { deniedContainerArguments, deniedSource } from "./container_denials.ts";
import {
  deniedCodeFlag,
  deniedEnvironment,
  deniedProgram,
  namesSpool,
  programIsOneOf,
  runsWorkspaceCode,
} from "./denials.ts";
import {
  baseHead,
  fixedText,
  parseElement,
  parseFixed,
  RESERVED_NAMES,
  slotOf,
} from "./argv_template.ts";
import { below } from "./json_path.ts";
import type { ArgSpec, ArgvElement, Lookup, VerbPolicy } from "./policy.ts";
import { type ARGUMENT, type LOOKUP, type SectionOf, type ValueOf, VERB } from "./policy_table.ts";
import type { Findings } from "./read_section.ts";

type RawArg = ValueOf<typeof VERB["args"]["of"]>;
type RawOf<T extends keyof typeof ARGUMENT> = SectionOf<typeof ARGUMENT[T]>;

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
    const used = [
      ...baseFiles([argv.program], argv.elements, args),
      ...(lookup === undefined || lookup === null
        ? []
        : baseFiles([lookup.program], lookup.argv, args)),
    ];
    warnUntracked(used, raw.requires, path, findings);
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
    shim: raw.shim ?? [],
  };
}

/** The declared arguments that are right. A wrong one has been told and is left out. */
function parseArgs(
  raw: SectionOf<typeof VERB>["args"],
  path: string,
  findings: Findings,
): ReadonlyMap<string, ArgSpec> {
  const args = new Map<string, ArgSpec>();
  for (const [name, arg] of raw ?? []) {
    const at = below(path, name);
    if (RESERVED_NAMES.includes(name)) {
      findings.error(
        at,
        `"${name}" is a placeholder of the bridge`,
        "Give the argument another name",
      );
    }
    const spec = arg === undefined ? undefined : parseArg(arg, at, findings);
    if (spec !== undefined) args.set(name, spec);
  }
  return args;
}

function parseArg(raw: RawArg, path: string, findings: Findings): ArgSpec | undefined {
  const spec = argWithoutDefault(raw, path, findings);
  if (spec === undefined || raw.default === undefined) return spec;
  const outcome = checkValue(spec, raw.default);
  if (!outcome.ok) {
    findings.error(
      below(path, "default"),
      `The default does not fit: ${outcome.message}`,
      outcome.hint,
    );
    return undefined;
  }
  return { ...spec, default: outcome.value };
}

function argWithoutDefault(raw: RawArg, path: string, findings: Findings): ArgSpec | undefined {
  const description = raw.description ?? "";
  switch (raw.type) {
    case "enum":
      return enumArg(raw, description, path, findings);
    case "integer": {
      const { min, max } = raw;
      if (min === undefined || max === undefined) return undefined;
      if (min > max) {
        findings.error(below(path, "min"), `min ${min} is above max ${max}`, "Swap the two");
        return undefined;
      }
      return { type: "integer", description, min, max };
    }
    case "boolean": {
      const { element } = raw;
      if (element === undefined || !plainElement(element, below(path, "element"), findings)) {
        return undefined;
      }
      return { type: "boolean", description, element };
    }
    case "path":
      return pathArg(raw, description, path, findings);
    default: {
      const { type, max_length, allow_leading_dash } = raw;
      if (max_length === undefined || allow_leading_dash === undefined) return undefined;
      return { type, description, max_length, allow_leading_dash };
    }
  }
}

function enumArg(
  { values }: RawOf<"enum">,
  description: string,
  path: string,
  findings: Findings,
): ArgSpec | undefined {
  if (values === undefined) return undefined;
  const right = values.map((value, index) => {
    if (!namesSpool(value)) return true;
    spoolPath(below(below(path, "values"), index), findings);
    return false;
  });
  return right.includes(false) ? undefined : { type: "enum", description, values };
}

function pathArg(
  { root, max_length, agent_writable }: RawOf<"path">,
  description: string,
  path: string,
  findings: Findings,
): ArgSpec | undefined {
  if (root === undefined || max_length === undefined || agent_writable === undefined) {
    return undefined;
  }
  const at = below(path, "root");
  if (root.startsWith("base/")) {
    if (agent_writable) {
      findings.error(
        below(path, "agent_writable"),
        "No agent can write below base/",
        "Remove it, or name the directory that the agent writes",
        "path-root",
      );
      return undefined;
    }
    return { type: "path", description, root, max_length, agent_writable };
  }
  if (!agent_writable) {
    findings.error(
      at,
      "The root lies outside base/",
      'Choose a directory in base/; or add "agent_writable": true, which says that an agent can ' +
        "make the command read and write any file of this user through symlinks",
      "path-root",
    );
    return undefined;
  }
  const denial = deniedSource(root, false);
  if (denial !== null) {
    findings.error(at, denial.message, "Name the directory that the work is about", "path-root");
    return undefined;
  }
  findings.warning(
    below(path, "agent_writable"),
    "agent-writable",
    `An agent that can write below ${root} can make this command read and write any file of this ` +
      "user, through symlinks",
  );
  return { type: "path", description, root, max_length, agent_writable };
}

/** Checks a fixed text that becomes an element; false when it is wrong. */
function plainElement(text: string, path: string, findings: Findings): boolean {
  if (/[{}]/.test(text)) {
    const outcome = parseElement(text, []);
    if (!outcome.ok) {
      findings.error(path, "A placeholder in a fixed element", "Write the text itself");
      return false;
    }
  }
  const outcome = parseFixed(text);
  if (!outcome.ok) {
    findings.error(path, outcome.message, outcome.hint);
    return false;
  }
  if (namesSpool(text)) {
    spoolPath(path, findings);
    return false;
  }
  return true;
}

function spoolPath(path: string, findings: Findings): void {
  findings.error(
    path,
    "A path in the spool: an agent can write there",
    "Keep the file in base/ and write base/…",
    "spool-path",
  );
}

interface ArgvRules {
  /** The arguments that are right. */
  readonly args: ReadonlyMap<string, ArgSpec>;
  /** Every placeholder that may stand there; of an argument that is wrong, too. */
  readonly names: readonly string[];
  readonly runs_workspace_code: boolean;
}

interface ParsedArgv {
  readonly program: string;
  readonly elements: readonly ArgvElement[];
}

/** Program and elements, with every rule that is about one argument vector. */
function parseArgv(
  texts: readonly string[],
  rules: ArgvRules,
  path: string,
  findings: Findings,
): ParsedArgv {
  const [program = "", ...rest] = texts;
  checkProgramText(program, below(path, 0), findings);
  if (
    !program.startsWith("base/") && runsWorkspaceCode(program) && !rules.runs_workspace_code
  ) {
    findings.error(
      below(path, 0),
      "The program executes what lies in its working tree",
      'Add "runs_workspace_code": true if no agent can write there, else run it in a container',
      "workspace-code",
    );
  }
  const elements: ArgvElement[] = [];
  let afterDashes = false;
  rest.forEach((text, index) => {
    const at = below(path, index + 1);
    const outcome = parseElement(text, rules.names);
    if (!outcome.ok) {
      findings.error(at, outcome.message, outcome.hint);
      // Keeps the numbering of what follows; nothing is built from it.
      elements.push({ kind: "fixed", text: "" });
      return;
    }
    elements.push(outcome.element);
    if (outcome.element.kind !== "placeholder") {
      if (text === "--") afterDashes = true;
      if (namesSpool(text)) spoolPath(at, findings);
      return;
    }
    const option = outcome.element.prefix || (texts[index] ?? "");
    checkPlaceholder(outcome.element, rules.args, { afterDashes, option }, at, findings);
  });
  const slots = elements.map((element) => slotOf(element, rules.args));
  for (const denial of deniedContainerArguments(program, slots)) {
    findings.denial(below(path, denial.index + 1), denial);
  }
  return { program, elements };
}

/** A program as the first element of an argument vector. */
export function checkProgramText(program: string, path: string, findings: Findings): void {
  if (/[{}]/.test(program)) {
    findings.error(
      path,
      "A placeholder as the program",
      "Write one verb for each program",
      "program-placeholder",
    );
    return;
  }
  const denial = deniedProgram(program);
  if (denial !== null) findings.denial(path, denial);
  else if (/^\/(?:var\/)?tmp\//.test(program)) {
    findings.warning(
      path,
      "program-in-tmp",
      "The program lies where anybody can make files",
    );
  }
}

/** Rule 4, and what else depends on where a placeholder stands. */
function checkPlaceholder(
  element: Extract<ArgvElement, { kind: "placeholder" }>,
  args: ReadonlyMap<string, ArgSpec>,
  { afterDashes, option }: {
    /** A fixed `--` stands before it. */
    readonly afterDashes: boolean;
    /** What it can be the value of: its own prefix, or the element before it. */
    readonly option: string;
  },
  path: string,
  findings: Findings,
): void {
  const spec = args.get(element.name);
  if (spec === undefined) return;
  if (spec.type === "boolean") {
    if (element.prefix !== "") {
      findings.error(
        path,
        "A boolean behind an option",
        `Write {${element.name}} as a whole element: its "element" is what is added`,
      );
    }
    return;
  }
  if (spec.type === "enum") return;
  const sheltered = afterDashes || element.prefix !== "";
  if (spec.type === "text" && !sheltered) {
    findings.error(
      path,
      "A text where the program looks for options",
      `Put a fixed "--" before it, or write --flag={${element.name}}`,
    );
  } else if (
    !sheltered &&
    (spec.type === "integer" ? spec.min < 0 : spec.type !== "path" && spec.allow_leading_dash)
  ) {
    findings.error(
      path,
      'A value that may start with "-" where the program looks for options',
      `Put a fixed "--" before it, or write --flag={${element.name}}`,
    );
  }
  if (spec.type !== "integer") {
    const denial = deniedCodeFlag(option);
    if (denial !== null) findings.denial(path, denial);
  }
}

/** Rule 3. */
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
  if (argv !== undefined && !raw.argv?.some((text, index) => index > 0 && /\{[^{}]/.test(text))) {
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

/** The files in `base/` that an argument vector names. */
function baseFiles(
  programs: readonly string[],
  elements: readonly ArgvElement[],
  args: ReadonlyMap<string, ArgSpec>,
): string[] {
  const texts = elements.flatMap((element) => {
    if (element.kind === "base") return [element.path];
    if (element.kind !== "placeholder") return [];
    const spec = args.get(element.name);
    if (spec?.type !== "boolean") return [];
    const fixed = parseFixed(spec.element);
    return fixed.ok && fixed.element.kind === "base" ? [fixed.element.path] : [];
  });
  return [...programs.filter((program) => program.startsWith("base/")), ...texts.map(baseHead)]
    .filter((file) => file !== "base/");
}

function warnUntracked(
  used: readonly string[],
  requires: readonly string[],
  path: string,
  findings: Findings,
): void {
  for (const file of new Set(used)) {
    if (requires.some((required) => required === file || required.startsWith(`${file}/`))) continue;
    findings.warning(
      below(path, "requires"),
      "untracked-base",
      `${file} is used but not required: a change to it after the trust goes unnoticed`,
    );
  }
}

/** Warnings about container programs. */
function warnEngine(
  { program, elements }: ParsedArgv,
  args: ReadonlyMap<string, ArgSpec>,
  env: Readonly<Record<string, string>> | undefined,
  path: string,
  findings: Findings,
): void {
  const texts = elements.map((element) =>
    element.kind === "placeholder" ? slotOf(element, args).texts : [fixedText(element)]
  );
  const any = (wanted: (text: string) => boolean) => texts.some((options) => options.some(wanted));
  const at = below(path, "argv");
  if (
    programIsOneOf(program, new Set(["podman"])) !== null &&
    !any((text) => /^--(?:remote|url|connection)(?:=|$)/.test(text))
  ) {
    findings.warning(
      at,
      "local-podman",
      "A local podman does not work under the daemon's confinement: use podman --remote --url " +
        "unix:///run/user/UID/podman/podman.sock",
    );
  }
  const composes =
    programIsOneOf(program, new Set(["docker-compose", "podman-compose"])) !== null ||
    (programIsOneOf(program, new Set(["docker", "podman", "nerdctl"])) !== null &&
      any((text) => text === "compose"));
  const named = texts.some((options, index) =>
    options.some((text) =>
      /^(?:--file=|-f=?)(?:base\/|\/)/.test(text) ||
      ((text === "-f" || text === "--file") &&
        texts[index + 1]?.some((next) => next.startsWith("base/") || next.startsWith("/")) === true)
    )
  );
  if (composes && !named && env !== undefined && !Object.hasOwn(env, "COMPOSE_FILE")) {
    findings.warning(
      at,
      "compose-lookup",
      "Without -f and a file in base/, compose takes the file, its override and .env from the " +
        "working directory",
    );
  }
}
