/**
 * One argument vector of a policy: program and elements, with every rule that is about them alone.
 * Verbs and lookups are read by the same code, so that a lookup is no way around a denial.
 *
 * Rules that this file keeps:
 * 1. The denials of `denials.ts` and `container_denials.ts` are applied to the program and to every
 *    text that an element can become; no key lifts one of them (X1, X2, X7).
 * 2. A value of the type `text`, and one that may start with `-`, stands where no program looks for
 *    options: after a fixed `--`, or behind a fixed `--flag=` (X1).
 * 3. A program that executes what lies in its working tree needs the word of the human for it.
 *
 * @module
 */
import { deniedContainerArguments } from "./container_denials.ts";
import { deniedCodeFlag, deniedProgram, namesSpool, runsWorkspaceCode } from "./denials.ts";
import { parseElement, slotOf } from "./argv_template.ts";
import { below } from "./json_path.ts";
import type { ArgSpec, ArgvElement } from "./policy.ts";
import type { Findings } from "./read_section.ts";

/** What an argument vector may use. */
export interface ArgvRules {
  /** The arguments that are right. */
  readonly args: ReadonlyMap<string, ArgSpec>;
  /** Every placeholder that may stand there; of an argument that is wrong, too. */
  readonly names: readonly string[];
  readonly runs_workspace_code: boolean;
}

/** What became of it; right only when no error was told. */
export interface ParsedArgv {
  readonly program: string;
  readonly elements: readonly ArgvElement[];
}

/** Program and elements, with every rule that is about one argument vector. */
export function parseArgv(
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

/** Rule 2, and what else depends on where a placeholder stands. */
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

/** Tells that a text names something in the spool. */
export function spoolPath(path: string, findings: Findings): void {
  findings.error(
    path,
    "A path in the spool: an agent can write there",
    "Keep the file in base/ and write base/…",
    "spool-path",
  );
}
