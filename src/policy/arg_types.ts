/**
 * The grammars of argument values: what a request may put into a command. One table serves the
 * check, the JSON Schema in the catalogue, and the reference page.
 *
 * Rules that this table keeps, for every string type:
 * 1. No control character, direction mark, line separator or lone surrogate (J6, X14).
 * 2. No value starts with `-`, so none can become an option; none starts with `@`, which many
 *    programs take for "read this file". `allow_leading_dash` lifts both, and only where an
 *    option cannot be meant (X1).
 * 3. No grammar but `text` has a character that means something to a shell (X2); nothing here
 *    relies on that, because no shell is involved.
 * 4. Every length has a bound, counted in UTF-8 bytes.
 *
 * @module
 */
import { HIDDEN_CHARACTERS } from "./formats.ts";
import type { ArgSpec, StringArgKind } from "./policy.ts";

/** The grammar of one string type. */
export interface StringType {
  /** What a value is, for the reference page and for hints. */
  readonly right: string;
  /** The grammar without the rule on the first character; anchored, for the `u` flag. */
  readonly pattern: string;
  /** Default bound in UTF-8 bytes. */
  readonly max_length: number;
  /** Bytes of the shortest value that there is. */
  readonly min_length: number;
  /** Values that fit, the nicest first; the last is the shortest possible. */
  readonly examples: readonly string[];
}

const SEMVER_ID = "(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)";

/** Every string type, in the order of the reference page. */
export const STRING_TYPES = Object.freeze(
  {
    name: {
      right: "letters, digits, `.`, `_` and `-`, starting with a letter, digit or `_`",
      pattern: "^[A-Za-z0-9_-][A-Za-z0-9._-]*$",
      max_length: 128,
      min_length: 1,
      examples: ["web-1", "a"],
    },
    "git-ref": {
      right: "a branch or tag name by git's own rules, not starting with `-` or `+`",
      // git check-ref-format, one level allowed: no part starts with a dot or ends in .lock, no
      // "..", "@{", "//", no space or one of ~ ^ : ? * [ \, no slash at either end, no dot at the
      // end, not "@" alone. A "+" at the start would force a push.
      pattern: `^(?![/+]|@$|@\\{)(?!.*(?:\\.\\.|@\\{|//|\\.lock(?:/|$)))(?!.*(?:^|/)\\.)` +
        `[^ ~^:?*[\\\\${HIDDEN_CHARACTERS}\\u00a0]+(?<![./])$`,
      max_length: 200,
      min_length: 1,
      examples: ["main", "a"],
    },
    semver: {
      right: "a version by SemVer 2.0.0, such as `1.4.0` or `2.0.0-rc.1`",
      pattern: "^(?:0|[1-9][0-9]*)\\.(?:0|[1-9][0-9]*)\\.(?:0|[1-9][0-9]*)" +
        `(?:-${SEMVER_ID}(?:\\.${SEMVER_ID})*)?(?:\\+[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*)?$`,
      max_length: 128,
      min_length: 5,
      examples: ["1.4.0"],
    },
    sha: {
      right: "7 to 64 hexadecimal digits",
      pattern: "^[0-9A-Fa-f]{7,64}$",
      max_length: 64,
      min_length: 7,
      examples: ["3f2a9c1"],
    },
    decimal: {
      right: 'a plain decimal number as a text, such as `"12.50"`, without exponent',
      pattern: "^-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?$",
      max_length: 32,
      min_length: 1,
      examples: ["12.5", "1"],
    },
    text: {
      right: "any text on one line, without control characters",
      pattern: `^[^${HIDDEN_CHARACTERS}]+$`,
      max_length: 1024,
      min_length: 1,
      examples: ["a short text", "a"],
    },
  } as const satisfies Record<StringArgKind, StringType>,
);

/** Bytes of the longest file name that common file systems take. */
export const MAX_COMPONENT = 255;

const COMPONENT = `(?!\\.{1,2}(?:/|$))[^/\\\\${HIDDEN_CHARACTERS}]+`;

/** The type `path`: relative, and no way to leave the root by spelling. */
export const PATH_TYPE = Object.freeze(
  {
    right: "a relative path without `.`, `..` or empty parts and without `\\`, not starting " +
      "with `/`, `-`, `~` or `@`",
    pattern: `^(?![-~@])${COMPONENT}(?:/${COMPONENT})*$`,
    max_length: 1024,
    min_length: 1,
    examples: ["src/main.ts", "a"],
  } as const satisfies StringType,
);

const COMPILED = new Map<string, RegExp>();

/**
 * The whole grammar of a string or path argument as one anchored pattern for the `u` flag, rule on
 * the first character included.
 */
export function patternOf(
  spec: Extract<ArgSpec, { type: StringArgKind | "path" }>,
): string {
  if (spec.type === "path") return PATH_TYPE.pattern;
  const { pattern } = STRING_TYPES[spec.type];
  return spec.allow_leading_dash ? pattern : `^(?![-@])${pattern.slice(1)}`;
}

/** `patternOf`, compiled once for each spelling. */
export function regexOf(spec: Extract<ArgSpec, { type: StringArgKind | "path" }>): RegExp {
  const pattern = patternOf(spec);
  let regex = COMPILED.get(pattern);
  if (regex === undefined) {
    regex = new RegExp(pattern, "u");
    COMPILED.set(pattern, regex);
  }
  return regex;
}
