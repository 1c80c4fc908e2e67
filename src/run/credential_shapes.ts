/**
 * Masks what looks like a credential although nobody named it: tokens of well-known makes, private
 * keys in PEM, JSON web tokens, authorization headers, passwords in URLs, and values whose name
 * says that they are secret. The name, the scheme and the first line of a key stay readable.
 *
 * 1. It is a function of the bytes alone, however they are cut into chunks. A place is judged when
 *    its line has ended or `WINDOW` bytes behind it are known; nothing looks further (X13).
 * 2. Time is linear: every pattern has bounded repeats, and no stretch is looked at twice by the
 *    same one. Memory is bounded: a value without end is dropped as it comes (X13).
 * 3. What is masked once is masked to its end, whatever its length. The end of a value is judged
 *    generously: a neighbour too much is better than a byte of a password.
 * 4. A shape is no proof. What is encoded in another way, or has no shape, passes: for that there
 *    are the secrets that the host knows.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { MASK } from "./known_secrets.ts";
import { secretName } from "./secret_name.ts";

/** How far a judgement looks ahead, bytes. */
const WINDOW = 1024;
/** How far it looks back. */
const BEHIND = 160;
/** Longest part of a name that is looked at. */
const NAME_MAX = 64;

/** A stretch that is being masked, by what ends it. */
type Masking =
  /** Up to a byte that matches. */
  | { readonly kind: "run"; readonly end: RegExp }
  /** Up to this quote, or the end of the line. */
  | { readonly kind: "quoted"; readonly quote: string; escaped: boolean }
  /** The lines of a key. */
  | { readonly kind: "pem"; readonly prefix: string; told: boolean; inLine: boolean; cr: boolean };

/** What a place turned out to be: masked from `from` on, and known to be so up to `to`. */
interface Hit {
  readonly from: number;
  readonly to: number;
  readonly masking: Masking;
  /** Nothing of what is masked has been seen yet. */
  readonly silent?: boolean;
}

/** A kind of shape: where one may begin, and whether it is one. */
interface Shape {
  readonly opening: RegExp;
  /** @returns the hit, or where to look on */
  judge(text: string, match: RegExpExecArray): Hit | number;
}

const not = (set: string) => new RegExp(`[^${set}]`, "g");
const WORD_END = not("A-Za-z0-9");
const TOKEN_END = not("A-Za-z0-9_-");
const DOTTED_END = not("A-Za-z0-9_.-");
const PATH_END = not("A-Za-z0-9_/-");
const BEARER_END = not("A-Za-z0-9._~+/=-");
const VALUE_END = /[\s"'`,;&|<>(){}[\]\\]/g;
const LINE_END = /[\r\n]/g;
const HEADER_END = /[\r\n"'`]/g;
const AT_END = /[\s/"'<>@]/g;

/** Tokens that tell of themselves, and what ends them. */
const MAKES: readonly (readonly [name: string, opening: string, end: RegExp])[] = [
  ["aws", "(?<![A-Za-z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])", WORD_END],
  ["github", "(?:gh[pousr]_[A-Za-z0-9]{20,200}|github_pat_[A-Za-z0-9_]{20,200})", TOKEN_END],
  ["gitlab", "(?<![A-Za-z0-9])gl[a-z]{2,8}-[A-Za-z0-9_-]{20,200}", DOTTED_END],
  ["slack", "(?<![A-Za-z0-9])(?:xox[a-z]|xapp|xoxe\\.xox[bp])-[A-Za-z0-9-]{10,200}", TOKEN_END],
  ["slack hook", "hooks\\.slack\\.com/(?:services|workflows)/[A-Za-z0-9_/-]{10,200}", PATH_END],
  ["npm", "(?<![A-Za-z0-9])npm_[A-Za-z0-9]{30,200}", WORD_END],
  ["pypi", "(?<![A-Za-z0-9])pypi-[A-Za-z0-9_-]{40,200}", TOKEN_END],
  ["docker", "(?<![A-Za-z0-9])dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,200}", TOKEN_END],
  ["google", "(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}", TOKEN_END],
  ["stripe", "(?<![A-Za-z0-9])(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,200}", WORD_END],
  ["sk", "(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{20,200}", TOKEN_END],
  ["sendgrid", "(?<![A-Za-z0-9])SG\\.[A-Za-z0-9_-]{16,64}\\.[A-Za-z0-9_-]{16,64}", TOKEN_END],
  ["vault", "(?<![A-Za-z0-9])hv[sbr]\\.[A-Za-z0-9_-]{20,200}", TOKEN_END],
  ["hugging face", "(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,200}", WORD_END],
];

const makes: Shape = {
  opening: new RegExp(MAKES.map(([, opening]) => `(${opening})`).join("|"), "g"),
  judge(_text, match) {
    const which = match.findIndex((part, i) => i > 0 && part !== undefined) - 1;
    const end = MAKES[which]?.[2] ?? VALUE_END;
    const from = match.index;
    return { from, to: from + match[0].length, masking: { kind: "run", end } };
  },
};

const webToken: Shape = {
  opening: /eyJ[A-Za-z0-9_-]{8,900}/g,
  judge(text, match) {
    const to = match.index + match[0].length;
    if (text[to] !== ".") return to;
    const header = Buffer.from(match[0], "base64url").toString("latin1");
    if (!/"(?:alg|typ|enc)"/.test(header)) return to;
    return { from: match.index, to, masking: { kind: "run", end: DOTTED_END } };
  },
};

const privateKey: Shape = {
  opening: /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----/g,
  judge(text, match) {
    const to = match.index + match[0].length;
    const before = text.slice(Math.max(0, match.index - BEHIND), match.index);
    const prefix = /[^\r\n]{0,80}$/.exec(before)?.[0] ?? "";
    return {
      from: to,
      to,
      masking: { kind: "pem", prefix, told: false, inLine: true, cr: false },
      silent: true,
    };
  },
};

const urlPassword: Shape = {
  opening: /:\/\/[^\s/@:?#"'<>\\]{0,128}:([^\s/"'<>]{1,512})@/g,
  judge(_text, match) {
    const to = match.index + match[0].length - 1;
    return { from: to - (match[1] ?? "").length, to, masking: { kind: "run", end: AT_END } };
  },
};

const bearer: Shape = {
  opening: /(?<![A-Za-z0-9])(?:[Bb]earer|BEARER)[ \t]{1,4}([A-Za-z0-9._~+/=-]{16,512})/g,
  judge(_text, match) {
    const value = match[1] ?? "";
    const to = match.index + match[0].length;
    if (!/[0-9]/.test(value)) return to;
    return { from: to - value.length, to, masking: { kind: "run", end: BEARER_END } };
  },
};

const basic: Shape = {
  opening: /(?<![A-Za-z0-9])(?:[Bb]asic|BASIC)[ \t]{1,4}([A-Za-z0-9+/]{6,512}={0,2})/g,
  judge(_text, match) {
    const value = match[1] ?? "";
    const to = match.index + match[0].length;
    if (!/^[\x20-\x7e]*:[\x20-\x7e]*$/.test(Buffer.from(value, "base64").toString("latin1"))) {
      return to;
    }
    return { from: to - value.length, to, masking: { kind: "run", end: BEARER_END } };
  },
};

/** An environment variable on a command line is masked whatever its name (FIELD-REPORTS 67). */
const environment: Shape = {
  opening: /(?<![^\s"'[,(])(?:-e|--env)(?:[ =]|", ?")(["']?)[A-Za-z_][A-Za-z0-9_]{0,127}=/g,
  judge(text, match) {
    const at = match.index + match[0].length;
    return value(text, at, { quote: match[1] ?? "", toLineEnd: false, plain: false }) ?? at;
  },
};

const named: Shape = {
  opening:
    /secret|token|pass|pwd|credential|auth|cookie|(?:api|access|private|encryption|signing|master|account|storage|shared)[_.-]?key/gi,
  judge(text, match) {
    let end = match.index;
    while (end - match.index < NAME_MAX && isNameChar(text.charCodeAt(end))) end++;
    // Most words are followed by something else than a value.
    if (!/[=:\]"'`\\ \t]/.test(text.charAt(end))) return Math.max(end, match.index + 1);
    const start = nameStart(text, match.index);
    const whole = text.slice(start, end);
    const says = secretName(whole);
    if (says === null) return Math.max(end, match.index + 1);
    const found = separator(text, start, end, whole, says.words);
    if (found === null) return Math.max(end, match.index + 1);
    const hit = value(text, found.at, {
      quote: "",
      toLineEnd: found.assignment || says.header,
      plain: says.words.some((word) => word === "token" || word === "pass" || word === "key"),
      header: says.header,
      kind: says.words.length === 1 && says.words[0] === "auth",
    });
    return hit ?? Math.max(end, match.index + 1);
  },
};

const SHAPES: readonly Shape[] = [
  makes,
  webToken,
  privateKey,
  urlPassword,
  bearer,
  basic,
  environment,
  named,
];

/** Letters, digits, `_`, `.` and `-`. */
function isNameChar(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x41 && code <= 0x5a) ||
    (code >= 0x30 && code <= 0x39) || code === 0x5f || code === 0x2d || code === 0x2e;
}

function nameStart(text: string, at: number): number {
  let start = at;
  while (start > 0 && at - start < NAME_MAX && isNameChar(text.charCodeAt(start - 1))) start--;
  return start;
}

const SEPARATOR = /(\\?["'`])?\]?[ \t]{0,16}(:=|=>|==|=~|=|::|:)?([ \t]{0,16})/y;

/**
 * Where the value of a name begins; null when none follows.
 *
 * `assignment` is true where the name stands alone at the start of its line, as in the output of
 * `env` and in YAML: then the value goes to the end of the line.
 */
function separator(
  text: string,
  start: number,
  end: number,
  name: string,
  words: readonly string[],
): { at: number; assignment: boolean } | null {
  SEPARATOR.lastIndex = end;
  const match = SEPARATOR.exec(text);
  if (match === null) return null;
  const [whole, quote, sign, gap = ""] = match;
  const at = end + whole.length;
  const before = text.slice(Math.max(0, start - 48), start);
  const first = /[\r\n][ \t]{0,32}(?:- |export |[>|<+] )?["']?$/.test(before);
  switch (sign) {
    case "==":
    case "=~":
    case "::":
      return null;
    case undefined:
      // `--password hunter2`
      return name.startsWith("--") && quote === undefined && /^[ \t]+$/.test(whole) &&
          text[at] !== "-"
        ? { at, assignment: false }
        : null;
    case "=>":
      return quote === undefined ? null : { at, assignment: false };
    case ":":
      // "Unexpected token: x" is no token, and "PASS: test" no password.
      if (
        gap !== "" && quote === undefined &&
        (name === "PASS" || (!first && words.length === 1 && /^(?:token|pass)$/i.test(name)))
      ) return null;
      return { at, assignment: first && quote === undefined };
    default:
      return { at, assignment: first && quote === undefined };
  }
}

/** Values that are no secret whatever their name. */
const HARMLESS =
  /^(?:true|false|null|none|nil|undefined|yes|no|on|off|string|\*+|x+|<[^<>]*>|\$[A-Za-z_][A-Za-z0-9_]*|\$\{[^}]*\}|\[masked\]|\{\}|\[\])?$/i;
const SCHEME = /(?:bearer|basic|token|digest|negotiate|apikey)[ \t]{1,4}/iy;

/** The hit on a value that begins at `at`; null when there is none or it is harmless. */
function value(
  text: string,
  at: number,
  how: { quote: string; toLineEnd: boolean; plain: boolean; header?: boolean; kind?: boolean },
): Hit | null {
  let from = at;
  let quote = how.quote;
  let escaped = false;
  if (quote === "") {
    if (text[from] === "\\" && /["']/.test(text[from + 1] ?? "")) {
      escaped = true;
      from += 2;
    } else if (/["'`]/.test(text[from] ?? "")) {
      quote = text[from] ?? "";
      from++;
    }
  }
  if (how.header === true) {
    SCHEME.lastIndex = from;
    from += SCHEME.exec(text)?.[0].length ?? 0;
  }
  const masking: Masking = quote !== "" ? { kind: "quoted", quote, escaped: false } : {
    kind: "run",
    end: escaped
      ? /[\r\n"'\\]/g
      : how.header === true
      ? HEADER_END
      : how.toLineEnd
      ? LINE_END
      : VALUE_END,
  };
  const seen = text.slice(from, from + 80);
  const stop = masking.kind === "run" ? masking.end : HEADER_END;
  stop.lastIndex = 0;
  const shown = seen.slice(0, stop.exec(seen)?.index ?? seen.length).trimEnd();
  if (HARMLESS.test(shown) || (how.plain && /^[0-9]{1,9}(?:\.[0-9]+)?$/.test(shown))) return null;
  if (how.kind === true && /^[A-Za-z_-]{1,12}$/.test(shown)) return null;
  // `PWD` is a directory.
  if (
    /^[/~]/.test(shown) &&
    /pwd["']?\]?[ \t]{0,16}[:=][ \t]{0,16}["']?$/i.test(text.slice(Math.max(0, from - 48), from))
  ) {
    return null;
  }
  return { from, to: from, masking };
}

/** A line that can be one of a key in PEM. */
function keyLine(line: string, prefix: string): boolean {
  const own = (prefix !== "" && line.startsWith(prefix) ? line.slice(prefix.length) : line).trim();
  if (/^[A-Za-z0-9+/=\\,"'[\]]*$/.test(own) || /^[A-Za-z][A-Za-z-]{0,40}: /.test(own)) return true;
  // Behind a prefix that is another one on each line, such as a time.
  return /[A-Za-z0-9+/=]{40,}$/.test(own);
}

/** Masks the credentials of one stream. */
export class ShapesFilter {
  /** Latin-1 text: what was let go and may be looked back at, then what was not. */
  #text = "\n";
  /** Where the latter begins. */
  #at = 1;
  /** By shape: nothing before this place is looked at again. */
  #from: number[] = SHAPES.map(() => 0);
  #masking: Masking | null = null;
  #out = "";
  #leftOut = 0;

  /** Bytes of a torn end that were left out. */
  get leftOut(): number {
    return this.#leftOut;
  }

  /** The bytes so far whose fate no later byte can change. The chunk may be used again. */
  push(chunk: Uint8Array): Uint8Array {
    if (chunk.length === 0) return chunk;
    const fresh = this.#at === this.#text.length && this.#masking === null;
    this.#text += Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString("latin1");
    const waiting = this.#text.length - this.#at;
    if (this.#masking !== null || waiting >= 2 * WINDOW || hasLineEnd(chunk)) this.#run(false);
    const out = this.#take();
    return fresh && out.length === chunk.length && !out.includes(MASK)
      ? chunk
      : Buffer.from(out, "latin1");
  }

  /**
   * The rest.
   *
   * @param torn the stream goes on unseen: its last word is left out, since it may be the beginning
   *   of something
   */
  end(torn = false): Uint8Array {
    if (torn && this.#masking === null) {
      const held = this.#text.slice(this.#at);
      const word = /[^\s]{0,512}$/.exec(held.slice(-512))?.[0].length ?? 0;
      // A few letters give nothing away, and a word that never ends is no credential.
      this.#leftOut = word < 8 || word === 512 ? 0 : word;
      this.#text = this.#text.slice(0, this.#text.length - this.#leftOut);
    }
    this.#run(true);
    return Buffer.from(this.#take(), "latin1");
  }

  #take(): string {
    const out = this.#out;
    this.#out = "";
    return out;
  }

  #run(final: boolean): void {
    const text = this.#text;
    const lines = Math.max(text.lastIndexOf("\n"), text.lastIndexOf("\r")) + 1;
    const limit = final ? text.length : Math.max(lines, text.length - WINDOW);
    const next: (RegExpExecArray | null | undefined)[] = SHAPES.map(() => undefined);
    for (;;) {
      if (this.#masking !== null) {
        if (!this.#mask(this.#masking, final)) break;
        continue;
      }
      if (this.#at >= limit) break;
      const which = this.#nearest(next, limit);
      const match = which === null ? null : next[which];
      if (which === null || match === null || match === undefined) {
        this.#out += text.slice(this.#at, limit);
        this.#at = limit;
        break;
      }
      const hit = SHAPES[which]?.judge(text, match) ?? limit;
      next[which] = undefined;
      if (typeof hit === "number") {
        this.#from[which] = hit;
        continue;
      }
      // What lies before was let go already when another shape ended inside of this one.
      const from = Math.max(hit.from, this.#at);
      this.#out += text.slice(this.#at, from) + (hit.silent === true ? "" : MASK);
      this.#at = Math.max(hit.to, from);
      this.#masking = hit.masking;
    }
    const drop = Math.max(0, this.#at - BEHIND);
    this.#text = text.slice(drop);
    this.#at -= drop;
    this.#from = this.#from.map((from) => Math.max(0, from - drop));
  }

  /** The shape that may begin first, before `limit`. */
  #nearest(next: (RegExpExecArray | null | undefined)[], limit: number): number | null {
    let best: number | null = null;
    let at = limit;
    for (const [i, shape] of SHAPES.entries()) {
      const known = next[i];
      if (known === undefined || (known !== null && known.index < this.#at)) {
        shape.opening.lastIndex = Math.max(this.#at, this.#from[i] ?? 0);
        next[i] = shape.opening.exec(this.#text);
      }
      const match = next[i];
      if (match !== null && match !== undefined && match.index < at) {
        at = match.index;
        best = i;
      }
    }
    return best;
  }

  /** Drops what belongs to a masked stretch. True when it has ended. */
  #mask(masking: Masking, final: boolean): boolean {
    const text = this.#text;
    if (masking.kind === "pem") return this.#maskKey(masking, final);
    if (masking.kind === "run") {
      masking.end.lastIndex = this.#at;
      const end = masking.end.exec(text);
      this.#at = end?.index ?? text.length;
      if (end === null) return false;
      this.#masking = null;
      return true;
    }
    for (; this.#at < text.length; this.#at++) {
      const char = text[this.#at];
      if (masking.escaped) masking.escaped = false;
      else if (char === "\\") masking.escaped = true;
      else if (char === masking.quote || char === "\n" || char === "\r") {
        this.#masking = null;
        return true;
      }
    }
    return false;
  }

  #maskKey(masking: Extract<Masking, { kind: "pem" }>, final: boolean): boolean {
    const text = this.#text;
    const window = text.slice(this.#at, this.#at + WINDOW);
    const found = /[\r\n]/.exec(window)?.index ?? null;
    const whole = found !== null || (final && window.length < WINDOW);
    if (!whole && window.length < WINDOW) return false;
    const line = window.slice(0, found ?? window.length);
    const end = line.indexOf("-----END");
    if (end >= 0) {
      if (line.slice(0, end).trim() !== "") this.#tellKey(masking);
      else if (!masking.told) this.#out += line.slice(0, end);
      this.#at += end;
      this.#masking = null;
      return true;
    }
    // The rest of the first line, and of a line that is longer than the window, has no prefix.
    if (!keyLine(line, masking.inLine ? "" : masking.prefix)) {
      this.#masking = null;
      return true;
    }
    const empty = line.trim() === "";
    const first = !masking.told;
    if (!empty) this.#tellKey(masking);
    if (found === null) {
      // Of a line without end so much stays that its last word can be found.
      const rest = whole ? 0 : "-----END".length;
      this.#at += window.length - rest;
      masking.inLine = true;
      if (whole) this.#masking = null;
      return true;
    }
    // The line end behind the first line, and one behind the mark, stay.
    const sign = window[found];
    if (first) this.#out += window.slice(empty ? 0 : found, found + 1);
    else if (masking.cr && found === 0 && sign === "\n") this.#out += sign;
    masking.cr = first && masking.told && sign === "\r";
    this.#at += found + 1;
    masking.inLine = false;
    return true;
  }

  #tellKey(masking: Extract<Masking, { kind: "pem" }>): void {
    if (masking.told) return;
    masking.told = true;
    this.#out += MASK;
  }
}

function hasLineEnd(chunk: Uint8Array): boolean {
  return chunk.includes(0x0a) || chunk.includes(0x0d);
}
