/**
 * Walks over a JSON text without building anything: is it one JSON text, is it shallow enough, has
 * every object few enough keys and each of them once? It runs before the text is parsed, needs a
 * stack of at most the allowed depth, and knows where the text went wrong, so that a text that ends
 * too early is told apart from one that is wrong.
 *
 * Rules:
 * 1. The scan is one loop with a bounded stack. No recursion follows the text, so depth costs
 *    nothing but a refusal (J8).
 * 2. A key counts as what it means, not as it is spelled: escapes are resolved before two keys are
 *    compared, and a set, not an object, remembers them, so `__proto__` is a key like any other
 *    (J1, J2).
 * 3. A problem is told by a fixed sentence and a position. No piece of the text is quoted (J16).
 *
 * @module
 */
import type { JsonLimits } from "./request.ts";

/** What is wrong with a text, and where: an offset in UTF-16 units. */
export interface ScanProblem {
  readonly kind: "depth" | "keys" | "duplicate" | "syntax" | "early-end" | "trailing";
  readonly offset: number;
}

/** What may come next. */
type Expect = "value" | "first-value" | "first-key" | "key" | "colon" | "next" | "end";

/** An array or object that is not closed yet; an object has its keys. */
interface Frame {
  readonly keys: Set<string> | null;
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
/** A number that lacks at least one more digit. */
const CUT_NUMBER = /^-?(?:(?:0|[1-9][0-9]*)(?:\.|(?:\.[0-9]+)?[eE][+-]?))?$/;
const LITERALS = ["true", "false", "null"];

/** The first problem of `text`, or null when it is one JSON text within the limits. */
export function scanJson(text: string, limits: JsonLimits): ScanProblem | null {
  const stack: Frame[] = [];
  let expect: Expect = "value";
  let at = 0;
  for (;;) {
    at = skipSpace(text, at);
    if (at === text.length) return expect === "end" ? null : { kind: "early-end", offset: at };
    if (expect === "end") return { kind: "trailing", offset: at };
    const char = text[at];
    const top = stack.at(-1);
    switch (expect) {
      case "colon":
        if (char !== ":") return { kind: "syntax", offset: at };
        at++;
        expect = "value";
        continue;
      case "next": {
        const close = top?.keys === null ? "]" : "}";
        if (char === ",") expect = top?.keys === null ? "value" : "key";
        else if (char === close) {
          stack.pop();
          expect = stack.length === 0 ? "end" : "next";
        } else return { kind: "syntax", offset: at };
        at++;
        continue;
      }
      case "first-key":
      case "key": {
        if (char === "}" && expect === "first-key") {
          stack.pop();
          at++;
          expect = stack.length === 0 ? "end" : "next";
          continue;
        }
        if (char !== '"') return { kind: "syntax", offset: at };
        const stop = stringEnd(text, at);
        if (typeof stop !== "number") return stop;
        const name: string = JSON.parse(text.slice(at, stop));
        const keys = top?.keys ?? new Set();
        if (keys.has(name)) return { kind: "duplicate", offset: at };
        if (keys.size >= limits.keys) return { kind: "keys", offset: at };
        keys.add(name);
        at = stop;
        expect = "colon";
        continue;
      }
    }
    if (char === "]" && expect === "first-value") {
      stack.pop();
      at++;
    } else if (char === "{" || char === "[") {
      if (stack.length >= limits.depth) return { kind: "depth", offset: at };
      stack.push({ keys: char === "{" ? new Set() : null });
      at++;
      expect = char === "{" ? "first-key" : "first-value";
      continue;
    } else {
      const stop = char === '"' ? stringEnd(text, at) : wordEnd(text, at);
      if (typeof stop !== "number") return stop;
      at = stop;
    }
    expect = stack.length === 0 ? "end" : "next";
  }
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length) {
    const unit = text.charCodeAt(at);
    if (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09) break;
    at++;
  }
  return at;
}

/** Offset after the string that begins at `from`. */
function stringEnd(text: string, from: number): number | ScanProblem {
  for (let at = from + 1; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === 0x22) return at + 1;
    if (unit < 0x20) return { kind: "syntax", offset: at };
    if (unit !== 0x5c) continue;
    at++;
    if (at === text.length) break;
    const escape = text.charAt(at);
    if (escape === "u") {
      for (let digit = 1; digit <= 4; digit++) {
        if (at + digit >= text.length) return { kind: "early-end", offset: text.length };
        if (!/[0-9a-fA-F]/.test(text.charAt(at + digit))) {
          return { kind: "syntax", offset: at + digit };
        }
      }
      at += 4;
    } else if (!'"\\/bfnrt'.includes(escape)) return { kind: "syntax", offset: at };
  }
  return { kind: "early-end", offset: text.length };
}

/** Offset after the number or literal that begins at `from`. */
function wordEnd(text: string, from: number): number | ScanProblem {
  for (const literal of LITERALS) {
    if (text.startsWith(literal, from)) return from + literal.length;
  }
  // A word that the text's end cut off: what is there could have become a value.
  const rest = text.slice(from, from + 64);
  if (
    from + rest.length === text.length &&
    (CUT_NUMBER.test(rest) || LITERALS.some((literal) => literal.startsWith(rest)))
  ) return { kind: "early-end", offset: text.length };
  NUMBER.lastIndex = from;
  const number = NUMBER.exec(text);
  return number === null ? { kind: "syntax", offset: from } : from + number[0].length;
}
