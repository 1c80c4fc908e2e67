/**
 * Arguments of a request against the types that the policy declares for the verb: the only way for
 * anything that an agent wrote to become part of a command. Pure.
 *
 * Rules that this file keeps:
 * 1. The JavaScript type is looked at before anything else: an array, object, null or missing value
 *    never reaches a comparison or a text (J3, X2).
 * 2. Numbers are safe integers within declared bounds; no exponent, no fraction, no infinity (J4).
 * 3. Only declared names count, looked up in a map, never through a prototype (J2).
 * 4. Texts match the whole grammar of their type, see `arg_types.ts` (X1, J6).
 * 5. What is handed on is built anew, sorted and frozen; nothing of the request's object survives.
 * 6. No message quotes a value as it stands: everything is escaped and cut short.
 *
 * @module
 */
import { printable } from "../names.ts";
import { MAX_COMPONENT, PATH_TYPE, regexOf, STRING_TYPES } from "./arg_types.ts";
import { hasHidden } from "./formats.ts";
import { below } from "./json_path.ts";
import type { ArgSpec, ArgValue, CheckedArgs, VerbPolicy } from "./policy.ts";
import { didYouMean } from "./suggest.ts";

/** The outcome of a check: the arguments as the command gets them, or the first thing wrong. */
export type ArgsOutcome =
  | { readonly ok: true; readonly args: CheckedArgs }
  | {
    readonly ok: false;
    /** JSON path in the request, such as `args.service`. */
    readonly path: string;
    readonly message: string;
    readonly hint: string;
  };

type ValueOutcome =
  | { readonly ok: true; readonly value: ArgValue }
  | { readonly ok: false; readonly message: string; readonly hint: string };

/** Values of an enum that a hint lists before it refers to the catalogue. */
const LISTED = 24;
/** Characters of a hostile value that a message shows. */
const SHOWN = 60;

/** What a value is, in words, without its content. */
function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  switch (typeof value) {
    case "string":
      return "a text";
    case "number":
      return "a number";
    case "boolean":
      return "a boolean";
    case "object":
      return "an object";
    default:
      return "nothing";
  }
}

function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}

function wrong(message: string, hint: string): ValueOutcome {
  return { ok: false, message, hint };
}

/** One value against its declared type. Pure. */
export function checkValue(spec: ArgSpec, value: unknown): ValueOutcome {
  switch (spec.type) {
    case "boolean":
      if (typeof value === "boolean") return { ok: true, value };
      return wrong(`Wrong type: found ${kindOf(value)}, wanted true or false`, rightValue(spec));
    case "integer":
      if (typeof value !== "number") {
        return wrong(`Wrong type: found ${kindOf(value)}, wanted a number`, rightValue(spec));
      }
      if (!Number.isSafeInteger(value)) {
        return wrong("Wrong number: it is not an exact whole number", rightValue(spec));
      }
      if (value < spec.min || value > spec.max) {
        return wrong(`Out of bounds: found ${value}`, rightValue(spec));
      }
      // Adding zero turns -0 into 0, which would otherwise be a second spelling of one value.
      return { ok: true, value: value + 0 };
    case "enum":
      if (typeof value !== "string") {
        return wrong(`Wrong type: found ${kindOf(value)}, wanted a text`, rightValue(spec));
      }
      if (spec.values.includes(value)) return { ok: true, value };
      return wrong(
        `No value "${printable(value, SHOWN)}" here`,
        didYouMean(value, spec.values) + rightValue(spec),
      );
    case "name":
    case "git-ref":
    case "semver":
    case "sha":
    case "decimal":
    case "text":
    case "path":
      return checkString(spec, value);
  }
}

function checkString(
  spec: Extract<ArgSpec, { max_length: number }>,
  value: unknown,
): ValueOutcome {
  if (typeof value !== "string") {
    return wrong(`Wrong type: found ${kindOf(value)}, wanted a text`, rightValue(spec));
  }
  if (value === "") return wrong("Empty text", rightValue(spec));
  // UTF-8 is never shorter than UTF-16, so a hostile length costs nothing to refuse.
  const bytes = value.length > spec.max_length ? value.length : utf8Length(value);
  if (bytes > spec.max_length) {
    return wrong(`Too long: more than ${spec.max_length} bytes`, rightValue(spec));
  }
  if (hasHidden(value)) {
    return wrong(
      "A control character, direction mark or lone surrogate in the text",
      rightValue(spec),
    );
  }
  const first = value.charAt(0);
  if (
    (first === "-" || first === "@") && (spec.type === "path" || !spec.allow_leading_dash)
  ) {
    return wrong(
      `The value starts with "${first}", so a program could take it for an option or a file`,
      rightValue(spec),
    );
  }
  if (!regexOf(spec).test(value)) {
    return wrong(
      `"${printable(value, SHOWN)}" does not fit the type ${spec.type}`,
      rightValue(spec),
    );
  }
  if (spec.type === "path" && value.split("/").some((part) => utf8Length(part) > MAX_COMPONENT)) {
    return wrong(`A part of the path is longer than ${MAX_COMPONENT} bytes`, rightValue(spec));
  }
  return { ok: true, value };
}

/** What would be right for an argument, as a sentence. */
export function rightValue(spec: ArgSpec): string {
  switch (spec.type) {
    case "boolean":
      return "Give true or false";
    case "integer":
      return `Give a whole number from ${spec.min} to ${spec.max}`;
    case "enum": {
      const listed = spec.values.slice(0, LISTED).map((v) => printable(v, SHOWN)).join(", ");
      return spec.values.length > LISTED
        ? `Values: ${listed}, … (all in inbox/catalogue.json)`
        : `Values: ${listed}`;
    }
    case "path":
      return `Give ${PATH_TYPE.right}, at most ${spec.max_length} bytes`;
    default:
      return `Give ${STRING_TYPES[spec.type].right}, at most ${spec.max_length} bytes`;
  }
}

/**
 * The arguments of a request, checked, with defaults filled in. The first thing wrong is told:
 * names that the verb does not have, then the declared ones in the order of the policy.
 *
 * @param args own enumerable members count; anything else of the object is ignored
 */
export function checkArgs(
  verb: VerbPolicy,
  args: Readonly<Record<string, unknown>>,
): ArgsOutcome {
  for (const name of Object.keys(args)) {
    if (verb.args.has(name)) continue;
    const names = [...verb.args.keys()];
    return {
      ok: false,
      path: below("args", name),
      message: `The verb "${verb.name}" has no argument "${printable(name, SHOWN)}"`,
      hint: didYouMean(name, names) +
        (names.length === 0 ? "It takes no arguments" : `Arguments: ${names.join(", ")}`),
    };
  }
  const checked: [string, ArgValue][] = [];
  for (const [name, spec] of verb.args) {
    if (!Object.hasOwn(args, name)) {
      if (spec.default === undefined) {
        return {
          ok: false,
          path: below("args", name),
          message: `The argument "${name}" is missing`,
          hint: rightValue(spec),
        };
      }
      checked.push([name, spec.default]);
      continue;
    }
    const outcome = checkValue(spec, args[name]);
    if (!outcome.ok) {
      return {
        ok: false,
        path: below("args", name),
        message: `Argument "${name}": ${outcome.message}`,
        hint: outcome.hint,
      };
    }
    checked.push([name, outcome.value]);
  }
  checked.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const result: Record<string, ArgValue> = Object.create(null);
  for (const [name, value] of checked) result[name] = value;
  return { ok: true, args: Object.freeze(result) };
}

/** The looks at the file system that path arguments need; handed in so that this file stays pure. */
export interface PathLook {
  /**
   * What stands at a path below the working directory, without following a link: null when nothing
   * does. A symlink is "other".
   */
  readonly lstat: (path: string) => "directory" | "file" | "other" | null;
}

/**
 * Path arguments whose root lies under `base/`: every component has to be a real directory, and the
 * last one a real directory or plain file. Roots that an agent can write are not looked at, since
 * what is there now says nothing about what will be there when the command looks.
 *
 * The look is a check of a host-only tree, not a lock: whoever can write `base/` can change it
 * afterwards, which is why `base/` is part of what a human trusts.
 *
 * @param args as `checkArgs` returned them
 * @param fs paths are relative to the working directory, such as `base/conf/web.yaml`
 */
export function checkPathArgs(
  verb: VerbPolicy,
  args: CheckedArgs,
  fs: PathLook,
): { readonly ok: true } | Extract<ArgsOutcome, { ok: false }> {
  for (const [name, spec] of verb.args) {
    if (spec.type !== "path" || spec.agent_writable) continue;
    const value = args[name];
    if (typeof value !== "string") {
      throw new TypeError(`Cannot check paths: argument "${name}" was not checked before`);
    }
    const parts = `${spec.root}/${value}`.split("/");
    for (let i = 1; i <= parts.length; i++) {
      const found = fs.lstat(parts.slice(0, i).join("/"));
      if (found === "directory" || (found === "file" && i === parts.length)) continue;
      return {
        ok: false,
        path: below("args", name),
        message: `Argument "${name}": ${
          found === null
            ? "there is no such file or directory on the host"
            : "a part of the path is no real directory or file"
        }`,
        hint: `Give the path of something that exists below ${printable(spec.root, SHOWN)}`,
      };
    }
  }
  return { ok: true };
}
