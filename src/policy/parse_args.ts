/**
 * The declared arguments of a verb: what a request may choose, and within which bounds.
 *
 * Rules that this file keeps:
 * 1. A default passes the same check as a value of a request (J3, J4).
 * 2. A path argument lies below `base/`, or says that an agent can write there (X3).
 * 3. What an argument can become, as far as the policy fixes it, names nothing in a spool.
 *
 * @module
 */
import { checkValue } from "./check_args.ts";
import { deniedSource } from "./mounts.ts";
import { namesSpool } from "./denials.ts";
import { parseElement, parseFixed, RESERVED_NAMES } from "./argv_template.ts";
import { below } from "./json_path.ts";
import { spoolPath } from "./parse_argv.ts";
import type { ArgSpec } from "./policy.ts";
import type { ARGUMENT, SectionOf, ValueOf, VERB } from "./policy_table.ts";
import type { Findings } from "./read_section.ts";

type RawArg = ValueOf<typeof VERB["args"]["of"]>;
type RawOf<T extends keyof typeof ARGUMENT> = SectionOf<typeof ARGUMENT[T]>;

/** The declared arguments that are right. A wrong one has been told and is left out. */
export function parseArgs(
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
