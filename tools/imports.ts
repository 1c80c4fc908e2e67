/**
 * Reads the imports of a TypeScript module, and its code without comments, strings and regular
 * expressions, so that a search for a name finds code and not prose. It knows as much of the
 * language as that takes and no more.
 *
 * @module
 */

/** One import or re-export. */
export interface Import {
  readonly specifier: string;
  /** True when it brings in types only, so that nothing of the module is run or needed. */
  readonly typeOnly: boolean;
}

/** A module as far as the checks look at it. */
export interface Source {
  readonly imports: readonly Import[];
  /** The code with comments, strings and regular expressions blanked out, line for line. */
  readonly code: string;
}

/** After one of these a slash starts a regular expression and does not divide. */
const BEFORE_REGEXP =
  /(?:^|[=(,:;!&|?{}[+\-*%<>~^]|\b(?:return|typeof|case|in|of|void|yield|await))$/;

/** Walks through a text once, keeping code and strings apart. */
class Scanner {
  readonly #text: string;
  #at = 0;
  /** Code so far, with every string replaced by its number between quotes. */
  #code = "";
  readonly strings: string[] = [];

  constructor(text: string) {
    this.#text = text;
  }

  scan(): string {
    this.#scanCode(false);
    return this.#code;
  }

  /** Scans up to the end, or, inside a template, up to the brace that closes `${`. */
  #scanCode(nested: boolean): void {
    for (let depth = 0; this.#at < this.#text.length;) {
      const c = this.#text.charAt(this.#at);
      const two = this.#text.slice(this.#at, this.#at + 2);
      if (two === "//") this.#blankTo(this.#text.indexOf("\n", this.#at));
      else if (two === "/*") this.#blankTo(this.#text.indexOf("*/", this.#at) + 2);
      else if (c === '"' || c === "'") this.#scanString(c);
      else if (c === "`") this.#scanTemplate();
      else if (c === "/" && BEFORE_REGEXP.test(this.#code.trimEnd())) this.#scanRegExp();
      else {
        if (c === "{") depth++;
        if (c === "}" && depth-- === 0 && nested) return;
        this.#code += c;
        this.#at++;
      }
    }
  }

  /** Passes over the text up to `end`, keeping its line breaks; a negative end is the very end. */
  #blankTo(end: number): void {
    const to = end < this.#at ? this.#text.length : end;
    this.#code += this.#text.slice(this.#at, to).replace(/[^\n]/g, " ");
    this.#at = to;
  }

  #scanString(quote: string): void {
    const from = ++this.#at;
    while (this.#at < this.#text.length && this.#text.charAt(this.#at) !== quote) {
      this.#at += this.#text.charAt(this.#at) === "\\" ? 2 : 1;
    }
    this.#code += `"${this.strings.push(this.#text.slice(from, this.#at)) - 1}"`;
    this.#at++;
  }

  #scanTemplate(): void {
    this.#code += '""';
    for (this.#at++; this.#at < this.#text.length; this.#at++) {
      const c = this.#text.charAt(this.#at);
      if (c === "`") break;
      if (c === "\n") this.#code += c;
      if (c === "\\") this.#at++;
      if (this.#text.startsWith("${", this.#at)) {
        this.#at += 2;
        this.#code += "+(";
        this.#scanCode(true);
        this.#code += ")";
      }
    }
    this.#at++;
  }

  #scanRegExp(): void {
    for (let inClass = false; ++this.#at < this.#text.length;) {
      const c = this.#text.charAt(this.#at);
      if (c === "\\") this.#at++;
      else if (c === "[") inClass = true;
      else if (c === "]") inClass = false;
      else if (c === "/" && !inClass) break;
    }
    this.#at++;
    this.#code += '""';
  }
}

/** `import ... from "0"`, `export ... from "0"`, `import "0"` and `import("0")`. */
const STATIC = /\b(?:import|export)\b([^;"()]*?)\bfrom\s*"(\d+)"/g;
const BARE = /\bimport\s*\(?\s*"(\d+)"/g;

/** True for the clause of an import that names nothing but types. */
function isTypeClause(clause: string): boolean {
  if (/^\s*type\s*[\w$*{]/.test(clause)) return true;
  const names = /^\s*\{([^}]*)\}\s*$/.exec(clause)?.[1]?.split(",").map((name) => name.trim())
    .filter((name) => name !== "");
  return names !== undefined && names.length > 0 && names.every((name) => /^type\s/.test(name));
}

/** Reads a module. */
export function readSource(text: string): Source {
  const scanner = new Scanner(text);
  const code = scanner.scan();
  const imports: Import[] = [];
  for (const [, clause = "", index] of code.matchAll(STATIC)) {
    const specifier = scanner.strings[Number(index)] ?? "";
    imports.push({ specifier, typeOnly: isTypeClause(clause) });
  }
  for (const [, index] of code.matchAll(BARE)) {
    imports.push({ specifier: scanner.strings[Number(index)] ?? "", typeOnly: false });
  }
  return { imports, code };
}
