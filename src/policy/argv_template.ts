/**
 * One element of an argument vector, from the text in the policy to what it means: fixed, a path in
 * `base/`, or a placeholder.
 *
 * Rules that this file keeps:
 * 1. A placeholder is a whole element, or the whole tail of `--flag={name}`: a value is never glued
 *    to other text that could change what it means (X1, X2).
 * 2. Braces that are no placeholder are an error, so that a misspelt one is not passed on as text.
 *    The one exception is `{{…}}`, which the engines' `--format` takes and which never is one.
 * 3. Of the root only `base/` can be named, and no spelling leads out of it.
 *
 * @module
 */
import { printable } from "../names.ts";
import type { ArgSpec, ArgvElement } from "./policy.ts";
import { didYouMean } from "./suggest.ts";
import type { Slot } from "./container_denials.ts";

/** Placeholders that every verb has beside its arguments. */
export const RESERVED_NAMES: readonly string[] = Object.freeze([
  "id",
  "idempotency_key",
  "max_spend",
]);

export type ElementOutcome =
  | { readonly ok: true; readonly element: ArgvElement }
  | { readonly ok: false; readonly message: string; readonly hint: string };

const PLACEHOLDER = /^(--[A-Za-z0-9][A-Za-z0-9._-]*=)?\{([^{}]*)\}$/;
const TEMPLATE = /\{\{([^{}]*)\}\}/g;
const BASE_HEAD = /^base(?:\/(?!\.{1,2}(?:\/|$))[^/]+)+$/;

/**
 * Reads one element.
 *
 * @param names every placeholder that may stand here
 */
export function parseElement(text: string, names: readonly string[]): ElementOutcome {
  if (!/[{}]/.test(text)) return parseFixed(text);
  const [, prefix = "", name = ""] = PLACEHOLDER.exec(text) ?? [];
  if (PLACEHOLDER.test(text)) {
    if (names.includes(name)) return { ok: true, element: { kind: "placeholder", prefix, name } };
    return {
      ok: false,
      message: `There is no argument "${printable(name, 60)}" for this placeholder`,
      hint: `${didYouMean(name, names)}Placeholders: ${names.join(", ")}`,
    };
  }
  const inner = [...text.matchAll(TEMPLATE)].map((match) => (match[1] ?? "").trim());
  if (/[{}]/.test(text.replaceAll(TEMPLATE, ""))) {
    return {
      ok: false,
      message: "Braces that are no placeholder",
      hint: "A placeholder is a whole element {name}, or the tail of --flag={name}",
    };
  }
  const meant = inner.find((word) => names.includes(word));
  if (meant !== undefined) {
    return {
      ok: false,
      message: "A placeholder with doubled braces",
      hint: `Write {${meant}} for the placeholder`,
    };
  }
  return parseFixed(text);
}

/** Reads an element without placeholder: fixed, or a path in `base/`. */
export function parseFixed(text: string): ElementOutcome {
  const start = text.startsWith("base/") ? 0 : text.indexOf("=base/") + 1;
  if (start === 0 && !text.startsWith("base/")) {
    return { ok: true, element: { kind: "fixed", text } };
  }
  const path = text.slice(start);
  const head = baseHead(path);
  if (head !== "base/" && !BASE_HEAD.test(head)) {
    return {
      ok: false,
      message: 'A path in base/ with "." or ".." or an empty part',
      hint: "Write the plain path, such as base/compose.yaml; base/ alone is the directory",
    };
  }
  return { ok: true, element: { kind: "base", prefix: text.slice(0, start), path } };
}

/** The file that a `base/…` text names, without what a mount option appends to it. */
export function baseHead(path: string): string {
  return path.split(/[:,]/, 1)[0] ?? "";
}

/** The text of an element as the policy has it, for an element without placeholder. */
export function fixedText(element: Exclude<ArgvElement, { kind: "placeholder" }>): string {
  return element.kind === "fixed" ? element.text : element.prefix + element.path;
}

/** What an element can become, for the rules about container programs. */
export function slotOf(element: ArgvElement, args: ReadonlyMap<string, ArgSpec>): Slot {
  const slot = {
    texts: [],
    prefix: "",
    placeholder: false,
    free: false,
    optional: false,
    agent_writable: false,
  };
  if (element.kind !== "placeholder") return { ...slot, texts: [fixedText(element)] };
  const spec = args.get(element.name);
  const placeholder = { ...slot, prefix: element.prefix, placeholder: true };
  if (spec?.type === "enum") {
    return { ...placeholder, texts: spec.values.map((value) => element.prefix + value) };
  }
  if (spec?.type === "boolean") return { ...placeholder, texts: [spec.element], optional: true };
  return {
    ...placeholder,
    free: true,
    agent_writable: spec?.type === "path" && spec.agent_writable,
  };
}
