/**
 * The grammars of texts in a policy, each with a name, a pattern, and words for whoever got it
 * wrong. The same pattern serves the parser and the JSON Schema.
 *
 * Rule of every format, checked before its pattern: no control character, no lone surrogate, and
 * nothing that reorders or breaks a line, so that no text can hide from the human who reads a
 * policy, an approval or a log (J6, Q11).
 *
 * @module
 */

/**
 * What no text of ours may contain, as the inside of a character class. With the `u` flag the last
 * range means lone surrogates only.
 */
const HIDDEN_CLASS =
  "\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ud800-\\udfff";

/** Any number of visible characters. */
const VISIBLE = `^[^${HIDDEN_CLASS}]*$`;

const HIDDEN = new RegExp(`[${HIDDEN_CLASS}]`, "u");

/** True for text with a control character, a direction mark, a line separator or a lone half. */
export function hasHidden(text: string): boolean {
  return HIDDEN.test(text);
}

/** The inside of a character class of what texts never contain; for patterns built elsewhere. */
export const HIDDEN_CHARACTERS = HIDDEN_CLASS;

export interface Format {
  /** What would be right, as the end of "Write …". */
  readonly right: string;
  /** The whole grammar as an anchored pattern with the `u` flag. */
  readonly pattern: string;
}

const COMPONENT = "(?!\\.{1,2}(?:/|$))[^/]+";
const ID = "^[a-z0-9][a-z0-9_-]{0,63}$";

/** Every format by name. */
export const FORMATS = Object.freeze(
  {
    text: { right: "a text without control characters", pattern: VISIBLE },
    filled: {
      right: "a text of at least one character, without control characters",
      pattern: VISIBLE.replace("*$", "+$"),
    },
    secret: {
      right: "a text of at least 4 characters, without control characters",
      pattern: VISIBLE.replace("*$", "{4,}$"),
    },
    id: {
      right: "1 to 64 of a-z, 0-9, - and _, starting with a letter or digit",
      pattern: ID,
    },
    absolute: {
      right: 'an absolute path without "." or ".." parts, doubled or trailing slashes',
      pattern: `^/$|^(?:/${COMPONENT})+$`,
    },
    base: {
      right: 'a path such as base/compose.yaml, without "." or ".." parts',
      pattern: `^base(?:/${COMPONENT})+$`,
    },
    root: {
      right: "an absolute path, or one below base/",
      pattern: `^(?:base)?(?:/${COMPONENT})+$`,
    },
    environment: {
      right: "A-Z, a-z, 0-9 and _, not starting with a digit",
      pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
    },
    need: {
      right: '"network", "jit", or "write:" and an absolute path',
      pattern: `^(?:network|jit|write:(?:/${COMPONENT})+)$`,
    },
  } as const satisfies Record<string, Format>,
);

export type FormatName = keyof typeof FORMATS;

const COMPILED: ReadonlyMap<string, RegExp> = new Map(
  Object.entries(FORMATS).map(([name, format]) => [name, new RegExp(format.pattern, "u")]),
);

/** True when `text` has the format and nothing hidden in it. */
export function hasFormat(name: FormatName, text: string): boolean {
  return !hasHidden(text) && COMPILED.get(name)?.test(text) === true;
}
