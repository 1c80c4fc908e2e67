/**
 * How texts get into the page. Everything that an agent may have chosen goes through here.
 *
 * 1. A text in HTML is escaped so that it is text in elements and in double-quoted attributes (it
 *    never gets anywhere else: no attribute without quotes, no style, no script).
 * 2. Data for the page's own program is JSON in a block that is not executed. No `<` stands in it,
 *    so no text can end the block or open a comment, and no line separator.
 * 3. Characters that move what stands around them, or that nobody sees, are shown as their escapes:
 *    controls, marks of direction, what has no width.
 * 4. The page's policy allows the one style and the one script of this program by their hashes, and
 *    nothing else: no network, no frame, no form, no base. Rule 1 does not lean on it.
 *
 * @module
 */
import { createHash } from "node:crypto";

/** Rule 3: controls, separators, direction marks, no-width characters, half surrogates, tags. */
const UNSEEN =
  // deno-lint-ignore no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]|\p{Cs}|[\u{e0000}-\u{e0fff}]/gu;

/** A text as people see it, at most `max` characters of it; what is longer ends in `…`. */
export function shown(text: string, max = 200): string {
  const cut = text.length > max ? text.slice(0, max) : text;
  const safe = cut.replace(UNSEEN, (c) => {
    const hex = (c.codePointAt(0) ?? 0).toString(16);
    return `\\u${hex.length > 4 ? `{${hex}}` : hex.padStart(4, "0")}`;
  });
  return safe + (cut.length < text.length ? "…" : "");
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Rule 1. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (c) => ENTITIES[c] ?? "");
}

/** HTML that is safe as it stands. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Part = Html | string | number | readonly (Html | string)[];

function part(value: Part): string {
  if (value instanceof Html) return value.text;
  if (typeof value === "object") return value.map(part).join("");
  return escapeHtml(typeof value === "number" ? String(value) : shown(value, 2000));
}

/** A template whose values are escaped unless they are `Html` themselves. */
export function html(strings: TemplateStringsArray, ...values: readonly Part[]): Html {
  let text = strings[0] ?? "";
  values.forEach((value, i) => text += part(value) + (strings[i + 1] ?? ""));
  return new Html(text);
}

/** Rule 2: JSON for a block of the page. */
export function pageJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Rule 4: the value of the page's content security policy. */
export function contentPolicy(style: string, script: string): string {
  const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  return `default-src 'none'; style-src ${hash(style)}; script-src ${hash(script)}; ` +
    "base-uri 'none'; form-action 'none'";
}
