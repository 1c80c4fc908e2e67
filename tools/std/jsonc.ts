/**
 * Stands in for `@std/jsonc`: JSON with comments and trailing commas to a value. It reads the same
 * language and fails at the same places. An error about a token ends in `at position N`, counted
 * in UTF-16 units from 0; a text that ends too early says `unexpected end`.
 *
 * As in the original, the last of equal keys wins, `__proto__` becomes an own property, and a text
 * nested deeper than the stack is a `RangeError`: whoever needs more strictness looks at the text.
 *
 * @module
 */

/** Any value that a JSON text can hold. */
export type JsonValue =
  | { [key: string]: JsonValue | undefined }
  | JsonValue[]
  | string
  | number
  | boolean
  | null;

/** A piece of the text: one of the six marks, a string with its quotes, or a bare word. */
interface Token {
  readonly text: string;
  readonly at: number;
}

const BLANK = new Set([" ", "\t", "\r", "\n"]);
const MARK = new Set(["{", "}", "[", "]", ":", ","]);
/** Characters of a token that an error quotes. */
const QUOTED = 30;

function unexpected(token: Token): SyntaxError {
  const short = token.text.length > QUOTED ? `${token.text.slice(0, QUOTED)}...` : token.text;
  return new SyntaxError(
    `Cannot parse JSONC: unexpected token "${short}" in JSONC at position ${token.at}`,
  );
}

function tooShort(): SyntaxError {
  return new SyntaxError("Cannot parse JSONC: unexpected end of JSONC input");
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The one value of the text. */
  document(): JsonValue {
    const value = this.#value(this.#token());
    this.#skip();
    if (this.#at < this.#text.length) throw unexpected(this.#token());
    return value;
  }

  /** Moves past blanks and comments. */
  #skip(): void {
    for (;;) {
      while (BLANK.has(this.#text.charAt(this.#at))) this.#at++;
      if (this.#text.startsWith("//", this.#at)) {
        while (this.#at < this.#text.length && !/[\r\n]/.test(this.#text.charAt(this.#at))) {
          this.#at++;
        }
      } else if (this.#text.startsWith("/*", this.#at)) {
        const end = this.#text.indexOf("*/", this.#at + 2);
        if (end < 0) throw tooShort();
        this.#at = end + 2;
      } else {
        return;
      }
    }
  }

  #token(): Token {
    this.#skip();
    const at = this.#at;
    if (at >= this.#text.length) throw tooShort();
    const first = this.#text.charAt(at);
    if (MARK.has(first)) this.#at++;
    else if (first === '"') this.#passString();
    else this.#passWord();
    return { text: this.#text.slice(at, this.#at), at };
  }

  /** Moves past a string; one without its closing quote reaches to the end of the text. */
  #passString(): void {
    for (this.#at++; this.#at < this.#text.length; this.#at++) {
      const c = this.#text.charAt(this.#at);
      if (c === "\\") this.#at++;
      else if (c === '"') break;
    }
    this.#at = Math.min(this.#at + 1, this.#text.length);
  }

  /** Moves past a bare word. A lone slash is a word of no length, which nothing accepts. */
  #passWord(): void {
    while (this.#at < this.#text.length) {
      const c = this.#text.charAt(this.#at);
      if (c === "/" || MARK.has(c) || BLANK.has(c)) return;
      this.#at++;
    }
  }

  #value(token: Token): JsonValue {
    if (token.text === "{") return this.#object();
    if (token.text === "[") return this.#array();
    return scalar(token);
  }

  #object(): JsonValue {
    const object: { [key: string]: JsonValue } = {};
    for (let token = this.#token(); token.text !== "}"; token = this.#token()) {
      if (!token.text.startsWith('"')) throw unexpected(token);
      const key = String(scalar(token));
      const colon = this.#token();
      if (colon.text !== ":") throw unexpected(colon);
      const value = this.#value(this.#token());
      // Assignment would give "__proto__" to a setter where there is one.
      Object.defineProperty(object, key, {
        value,
        writable: true,
        enumerable: true,
        configurable: true,
      });
      const after = this.#token();
      if (after.text === "}") break;
      if (after.text !== ",") throw unexpected(after);
    }
    return object;
  }

  #array(): JsonValue {
    const array: JsonValue[] = [];
    for (let token = this.#token(); token.text !== "]"; token = this.#token()) {
      array.push(this.#value(token));
      const after = this.#token();
      if (after.text === "]") break;
      if (after.text !== ",") throw unexpected(after);
    }
    return array;
  }
}

/** A string, number, boolean or null; escapes and number grammar are JSON's own. */
function scalar(token: Token): JsonValue {
  try {
    return JSON.parse(token.text);
  } catch {
    throw unexpected(token);
  }
}

/**
 * The value of a JSONC text.
 *
 * @throws {SyntaxError} when the text is not JSONC; the message says where.
 */
export function parse(text: string): JsonValue {
  return new Reader(text).document();
}
