/**
 * JSON with comments, from bytes to a value, with the place of every value in the text. The
 * language itself is read by `@std/jsonc`; beside it runs a scan of our own that knows what the
 * reader forgets: how deep the text nests, which keys are there twice, and where things stand.
 *
 * Rules that this file keeps:
 * 1. Bytes that are not UTF-8, or that begin with a byte order mark, are an error and never
 *    repaired in silence (J7).
 * 2. Depth is bounded before anything recursive sees the text (J8).
 * 3. A key that stands twice in one object is an error, compared after escapes are resolved, so
 *    that no two readers of one policy can see different ones (J1).
 * 4. The value is handed on as parsed; whoever reads it looks at own keys only (J2).
 *
 * @module
 */
import { parse } from "@std/jsonc";
import { printable } from "../names.ts";
import { below } from "./json_path.ts";
import type { PolicyError } from "./policy.ts";

/** Bytes of the largest policy: far above any real one. */
export const MAX_POLICY_BYTES = 1_048_576;

/** Nested objects and arrays that a text may have; a policy needs six. */
const MAX_DEPTH = 32;

/** A place in the text. Both count from 1; columns count UTF-16 units, as editors do. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

export type JsoncRead =
  | {
    readonly ok: true;
    readonly value: unknown;
    /** Where the value of a path stands; undefined for a path that the text does not have. */
    readonly locate: (path: string) => Position | undefined;
    /** One error for every key that stands twice. */
    readonly errors: readonly PolicyError[];
  }
  | { readonly ok: false; readonly errors: readonly PolicyError[] };

/** Reads a whole text. Pure. */
export function readJsonc(bytes: Uint8Array): JsoncRead {
  if (bytes.length > MAX_POLICY_BYTES) {
    return failed({
      path: "",
      message: `Too large: ${bytes.length} bytes`,
      hint: `At most ${MAX_POLICY_BYTES} bytes are read`,
    });
  }
  const text = decode(bytes);
  if (typeof text !== "string") return failed(text);

  const scan = scanJsonc(text);
  const positionOf = positions(text);
  if (scan.depth > MAX_DEPTH) {
    return failed({
      path: "",
      ...positionOf(scan.deepest),
      message: `Nested more than ${MAX_DEPTH} deep`,
      hint: "Remove brackets: no part of a policy nests like this",
    });
  }
  let value: unknown;
  try {
    value = parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return failed(syntaxError(text, error, scan, positionOf));
  }
  return {
    ok: true,
    value,
    locate: (path) => {
      const at = scan.values.get(path);
      return at === undefined ? undefined : positionOf(at);
    },
    errors: scan.duplicates.map(({ path, first, again }) => ({
      path,
      ...positionOf(again),
      message: `The same key stands twice, first on line ${positionOf(first).line}`,
      hint: "Keep one of the two",
    })),
  };
}

function failed(error: PolicyError): JsoncRead {
  return { ok: false, errors: [error] };
}

/** The text, or the error that it is not UTF-8. */
function decode(bytes: Uint8Array): string | PolicyError {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    return {
      path: "",
      line: 1,
      column: 1,
      message: "The text begins with a byte order mark",
      hint: "Save it as UTF-8 without one",
    };
  }
  try {
    return strict.decode(bytes);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
  // A line break is never part of a longer UTF-8 sequence, so the first line that does not decode
  // alone is the one that is wrong.
  let line = 1;
  for (let start = 0; start <= bytes.length; line++) {
    const newline = bytes.indexOf(0x0a, start);
    const end = newline < 0 ? bytes.length : newline;
    const part = bytes.subarray(start, end);
    try {
      strict.decode(part);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      const column = new TextDecoder().decode(part).indexOf("\ufffd") + 1;
      return {
        path: "",
        line,
        column: Math.max(1, column),
        message: "Bytes that are not UTF-8",
        hint: "Save the file as UTF-8",
      };
    }
    start = end + 1;
  }
  return { path: "", message: "Bytes that are not UTF-8", hint: "Save the file as UTF-8" };
}

/** Turns offsets in UTF-16 units into lines and columns, cheaply for any number of them. */
function positions(text: string): (offset: number) => Position {
  const starts = [0];
  for (const { index, 0: end } of text.matchAll(/\r\n|\r|\n/g)) starts.push(index + end.length);
  return (offset) => {
    let low = 0;
    let high = starts.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return { line: low + 1, column: offset - (starts[low] ?? 0) + 1 };
  };
}

/** The reader's complaint in our own words: what is there, and what most likely went wrong. */
function syntaxError(
  text: string,
  error: SyntaxError,
  scan: Scan,
  positionOf: (offset: number) => Position,
): PolicyError {
  const offset = /position (\d+)$/.exec(error.message)?.[1];
  const at = offset === undefined ? text.length : Number(offset);
  const place = positionOf(at);
  const found = text[at];
  if (offset === undefined || found === undefined) {
    const open = scan.open === null ? null : positionOf(scan.open.at);
    return {
      path: "",
      ...place,
      message: "The text ends too early",
      hint: scan.open === null || open === null
        ? 'A policy is one object: { "agents": …, "verbs": … }'
        : `Close the ${scan.open.what} that opens on line ${open.line}, column ${open.column}`,
    };
  }
  return {
    path: "",
    ...place,
    message: found === '"' ? "Unexpected text here" : `Unexpected "${printable(found)}" here`,
    hint: syntaxHint(found),
  };
}

function syntaxHint(found: string): string {
  switch (found) {
    case '"':
      return "Is a comma missing before it, or a closing quote or a wrong escape in this text?";
    case "'":
      return "Texts and names stand in double quotes";
    case "}":
    case "]":
    case ",":
    case ":":
      return "Is something missing before it?";
    case "{":
    case "[":
      return "Is a comma or a colon missing before it?";
    default:
      return "Texts and names stand in double quotes; members are separated by commas";
  }
}

interface Duplicate {
  readonly path: string;
  readonly first: number;
  readonly again: number;
}

interface Scan {
  /** Deepest nesting. */
  readonly depth: number;
  /** Offset of the first bracket at that depth. */
  readonly deepest: number;
  /** Path to offset of the value. */
  readonly values: ReadonlyMap<string, number>;
  readonly duplicates: readonly Duplicate[];
  /** What was still open at the end of the text. */
  readonly open: { readonly what: string; readonly at: number } | null;
}

interface Frame {
  readonly kind: "object" | "array";
  readonly path: string;
  readonly at: number;
  /** Keys seen, with the offset of each. */
  readonly keys: Map<string, number>;
  key: string | null;
  index: number;
  /** An object's next string is a key. */
  awaitsKey: boolean;
}

/**
 * One pass over the text that trusts nothing about its syntax: a wrong text gives useless places,
 * never an exception and never a loop, because the reader proper reports it.
 */
function scanJsonc(text: string): Scan {
  const values = new Map<string, number>();
  const duplicates: Duplicate[] = [];
  const stack: Frame[] = [];
  let depth = 0;
  let deepest = 0;
  let comment: number | null = null;

  const valueAt = (at: number): string => {
    const top = stack.at(-1);
    const path = top === undefined
      ? ""
      : below(top.path, top.kind === "array" ? top.index : top.key ?? "");
    values.set(path, at);
    return path;
  };

  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    const top = stack.at(-1);
    switch (c) {
      case " ":
      case "\t":
      case "\r":
      case "\n":
        break;
      case "/":
        if (text[i + 1] === "/") {
          while (i + 1 < text.length && text[i + 1] !== "\n" && text[i + 1] !== "\r") i++;
        } else if (text[i + 1] === "*") {
          const end = text.indexOf("*/", i + 2);
          if (end < 0) comment = i;
          i = end < 0 ? text.length : end + 1;
        }
        break;
      case "{":
      case "[": {
        const path = valueAt(i);
        stack.push({
          kind: c === "{" ? "object" : "array",
          path,
          at: i,
          keys: new Map(),
          key: null,
          index: 0,
          awaitsKey: c === "{",
        });
        if (stack.length > depth) {
          depth = stack.length;
          deepest = i;
          // Beyond the bound the text is refused as it stands: no need to remember more of it.
          if (depth > MAX_DEPTH) return { depth, deepest, values, duplicates, open: null };
        }
        break;
      }
      case "}":
      case "]":
        stack.pop();
        break;
      case ":":
        if (top !== undefined) top.awaitsKey = false;
        break;
      case ",":
        if (top?.kind === "object") top.awaitsKey = true;
        else if (top !== undefined) top.index++;
        break;
      case '"': {
        const start = i;
        for (i++; i < text.length && text[i] !== '"'; i++) {
          if (text[i] === "\\") i++;
        }
        if (top?.kind === "object" && top.awaitsKey) {
          const key = unquote(text.slice(start, i + 1));
          top.key = key;
          const first = top.keys.get(key);
          if (first === undefined) top.keys.set(key, start);
          else duplicates.push({ path: below(top.path, key), first, again: start });
        } else {
          valueAt(start);
        }
        break;
      }
      default: {
        valueAt(i);
        while (i + 1 < text.length && !/[\s[\]{}:,/"]/.test(text[i + 1] ?? "")) i++;
      }
    }
  }
  const top = stack.at(-1);
  return {
    depth,
    deepest,
    values,
    duplicates,
    open: comment !== null
      ? { what: "comment", at: comment }
      : top === undefined
      ? null
      : { what: top.kind === "object" ? "{" : "[", at: top.at },
  };
}

/** The text of a string token; the token itself when it is no valid string. */
function unquote(token: string): string {
  try {
    const value: unknown = JSON.parse(token);
    return typeof value === "string" ? value : token;
  } catch {
    return token;
  }
}
