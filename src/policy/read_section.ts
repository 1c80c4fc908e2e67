/**
 * A parsed JSON value against a section of the policy table: types, bounds, formats, unknown keys,
 * missing keys, defaults. Every error is collected, none ends the reading, and what is wrong is
 * handed on as absent, so that one run tells everything.
 *
 * Rules that this file keeps:
 * 1. Only own members of an object are read, and names that the human chooses are kept in a `Map`:
 *    `__proto__` and `constructor` are names like any other, and wrong ones (J2).
 * 2. The JavaScript type is looked at first; nothing is converted (J3).
 * 3. Numbers are finite and, where whole numbers belong, exact (J4).
 * 4. A key that the table does not have is an error: a misspelt limit must not be a missing one.
 *
 * @module
 */
import { printable } from "../names.ts";
import { FORMATS, hasFormat, hasHidden } from "./formats.ts";
import { below } from "./json_path.ts";
import type { Denial } from "./denials.ts";
import type { PolicyError, PolicyWarning } from "./policy.ts";
import type { Field, Section, SectionOf } from "./policy_table.ts";
import type { Position } from "./read_jsonc.ts";
import { didYouMean } from "./suggest.ts";

/** Errors and warnings of one text, in the order in which they were found. */
export class Findings {
  readonly errors: PolicyError[] = [];
  readonly warnings: PolicyWarning[] = [];
  readonly #locate: (path: string) => Position | undefined;

  constructor(locate: (path: string) => Position | undefined) {
    this.#locate = locate;
  }

  error(path: string, message: string, hint: string, rule?: string): void {
    this.errors.push({
      path,
      ...this.#locate(path),
      message,
      hint,
      ...(rule === undefined ? {} : { rule }),
    });
  }

  denial(path: string, denial: Denial): void {
    this.error(path, denial.message, denial.hint, denial.rule);
  }

  warning(path: string, rule: string, message: string): void {
    this.warnings.push({ path, ...this.#locate(path), rule, message });
  }
}

/** A value in words, short and escaped. */
export function shown(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  switch (typeof value) {
    case "string":
      return `the text "${printable(value, 60)}"`;
    case "number":
    case "boolean":
      return String(value);
    default:
      return "an object";
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What would be right for a field, as a sentence. */
export function rightFor(field: Field): string {
  switch (field.kind) {
    case "text":
      return `Write ${FORMATS[field.format].right}`;
    case "choice":
      return `Values: ${field.values.join(", ")}`;
    case "integer":
      return `Write a whole number from ${field.min} to ${field.max}`;
    case "number":
      return `Write a number from ${field.min} to ${field.max}`;
    case "boolean":
      return "Write true or false";
    case "scalar":
      return "Write a text, a number, true or false";
    case "list":
      return "Write a list: [ … ]";
    case "map":
    case "object":
    case "variant":
      return "Write an object: { … }";
  }
}

const WANTED: Readonly<Record<Field["kind"], string>> = {
  text: "a text",
  choice: "a text",
  integer: "a number",
  number: "a number",
  boolean: "true or false",
  scalar: "a text, a number, true or false",
  list: "a list",
  map: "an object",
  object: "an object",
  variant: "an object",
};

/**
 * Reads an object with the keys of `section`.
 *
 * @returns what is there and right, defaults filled in; undefined when the value is no object
 */
export function readSection<S extends Section>(
  section: S,
  value: unknown,
  path: string,
  findings: Findings,
): SectionOf<S> | undefined {
  if (!isObject(value)) {
    findings.error(
      path,
      `Wrong type: found ${shown(value)}, wanted an object`,
      "Write an object: { … }",
    );
    return undefined;
  }
  const result: Record<string, unknown> = Object.create(null);
  const names = Object.keys(section);
  for (const key of Object.keys(value)) {
    if (Object.hasOwn(section, key)) continue;
    findings.error(
      below(path, key),
      `There is no key "${printable(key, 60)}" here`,
      `${didYouMean(key, names)}Keys: ${names.join(", ")}`,
    );
  }
  for (const [key, field] of Object.entries(section)) {
    const at = below(path, key);
    if (Object.hasOwn(value, key)) {
      result[key] = readField(field, value[key], at, findings);
    } else if (field.required) {
      findings.error(path, `The key "${key}" is missing`, rightFor(field));
    } else if ("default" in field && field.default !== undefined) {
      // A default goes through the reader too: an absent object has defaults of its own.
      result[key] = readField(field, field.default, at, findings);
    }
  }
  // The loop above has read every key of the section by its own field, which is what the type says.
  return result as SectionOf<S>;
}

/** Reads one value; undefined when it is wrong, which has then been told. */
function readField(field: Field, value: unknown, path: string, findings: Findings): unknown {
  const wrongType = () => {
    findings.error(
      path,
      `Wrong type: found ${shown(value)}, wanted ${WANTED[field.kind]}`,
      rightFor(field),
    );
    return undefined;
  };
  switch (field.kind) {
    case "text":
      if (typeof value !== "string") return wrongType();
      if (!hasFormat(field.format, value)) {
        findings.error(
          path,
          hasHidden(value)
            ? "A control character, direction mark or lone surrogate in the text"
            : `Wrong format: found ${shown(value)}`,
          rightFor(field),
        );
        return undefined;
      }
      if (new TextEncoder().encode(value).length > field.max) {
        findings.error(path, "The text is too long", `Write at most ${field.max} bytes`);
        return undefined;
      }
      return value;
    case "choice": {
      if (typeof value !== "string") return wrongType();
      if (field.values.includes(value)) return value;
      findings.error(
        path,
        `No value "${printable(value, 60)}" here`,
        `${didYouMean(value, field.values)}${rightFor(field)}`,
      );
      return undefined;
    }
    case "integer":
    case "number":
      if (typeof value !== "number") return wrongType();
      if (
        (field.kind === "integer" && !Number.isSafeInteger(value)) ||
        !(value >= field.min && value <= field.max)
      ) {
        findings.error(path, `Out of bounds: found ${value}`, rightFor(field));
        return undefined;
      }
      return value + 0;
    case "boolean":
      return typeof value === "boolean" ? value : wrongType();
    case "scalar":
      return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
        ? value
        : wrongType();
    case "list": {
      if (!Array.isArray(value)) return wrongType();
      if (value.length < field.min || value.length > field.max) {
        findings.error(
          path,
          `Wrong number of elements: found ${value.length}`,
          `Write ${field.min} to ${field.max} elements`,
        );
        return undefined;
      }
      const seen = new Map<unknown, number>();
      const items: unknown[] = [];
      value.forEach((item: unknown, index) => {
        const at = below(path, index);
        const first = field.unique ? seen.get(item) : undefined;
        if (first !== undefined) {
          findings.error(at, `The same element stands twice, first at [${first}]`, "Keep one");
          return;
        }
        seen.set(item, index);
        items.push(readField(field.of, item, at, findings));
      });
      // A list with a wrong element is no list: nothing may look right because one part is missing.
      return items.length < value.length || items.includes(undefined) ? undefined : items;
    }
    case "map": {
      if (!isObject(value)) return wrongType();
      const entries = Object.entries(value);
      if (entries.length < field.min || entries.length > field.max) {
        findings.error(
          path,
          `Wrong number of entries: found ${entries.length}`,
          `Write ${field.min} to ${field.max} entries`,
        );
      }
      const map = new Map<string, unknown>();
      for (const [key, item] of entries) {
        const at = below(path, key);
        if (!hasFormat(field.key, key)) {
          findings.error(
            at,
            `"${printable(key, 60)}" is no name for this`,
            `A name has ${FORMATS[field.key].right}`,
          );
        }
        // The entry is read even then: what is wrong inside it is worth telling in the same run.
        map.set(key, readField(field.of, item, at, findings));
      }
      return map;
    }
    case "object":
      return isObject(value) ? readSection(field.section, value, path, findings) : wrongType();
    case "variant": {
      if (!isObject(value)) return wrongType();
      const types = Object.keys(field.variants);
      const type = Object.hasOwn(value, "type") ? value["type"] : undefined;
      if (type === undefined) {
        findings.error(path, 'The key "type" is missing', `Types: ${types.join(", ")}`);
        return undefined;
      }
      const at = below(path, "type");
      if (typeof type !== "string") {
        findings.error(
          at,
          `Wrong type: found ${shown(type)}, wanted a text`,
          `Types: ${types.join(", ")}`,
        );
        return undefined;
      }
      const section = Object.hasOwn(field.variants, type) ? field.variants[type] : undefined;
      if (section === undefined) {
        findings.error(
          at,
          `There is no type "${printable(type, 60)}"`,
          `${didYouMean(type, types)}Types: ${types.join(", ")}`,
        );
        return undefined;
      }
      const { type: _, ...rest } = value;
      const read = readSection(section, rest, path, findings);
      return read === undefined ? undefined : { ...read, type };
    }
  }
}
