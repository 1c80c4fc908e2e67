/**
 * Stands in for `@std/cli/parse-args`: a command line to options and operands. It keeps the
 * original's behaviour, quirks included, for everything but dotted names, which this program does
 * not use and which stay flat here: `--key value`, `--key=value`, `--no-key` where `negatable`,
 * clusters of letters, numbers where an option is not declared a string, aliases, defaults,
 * collected options, `--`, `stopEarly`, and the callback for what was not declared.
 *
 * @module
 */

/** One name or several. */
type Names<T extends string> = T | ReadonlyArray<T>;

/** Which options there are. `B`, `S` and `C` are the names of the declared ones. */
export interface ParseOptions<
  B extends string = string,
  S extends string = string,
  C extends string = string,
> {
  /** Collect what follows `--` under that name instead of among the operands. */
  "--"?: boolean;
  /** Other names of an option. */
  alias?: Readonly<Record<string, Names<string>>>;
  /** Options without a value; `true` makes every `--name` one. False when not given. */
  boolean?: boolean | Names<B>;
  /** Values of options that were not given. */
  default?: Readonly<Record<string, unknown>>;
  /** Leave everything after the first operand alone. */
  stopEarly?: boolean;
  /** Options whose value stays a string; `_` keeps operands strings. */
  string?: Names<S>;
  /** Options that may be given several times; all values are kept in an array. */
  collect?: Names<C>;
  /** Options that `--no-name` sets to false. */
  negatable?: Names<string>;
  /** Called with what was not declared; `false` leaves it out of the result. */
  unknown?: (arg: string, key?: string, value?: unknown) => unknown;
}

/** The declared options with their types, when the names are known to the compiler. */
type Declared<B extends string, S extends string, C extends string> =
  & { [K in Exclude<B, C>]: boolean }
  & { [K in B & C]: boolean[] }
  & { [K in Exclude<S, C | "_">]?: string }
  & { [K in S & C]: string[] };

/** Options by name, operands under `_`. */
export type Args<B extends string, S extends string, C extends string> =
  & Record<string, unknown>
  & (string extends B | S | C ? unknown : Declared<B, S, C>)
  & { _: Array<string | number>; "--"?: string[] };

function list(names: Names<string> | undefined): readonly string[] {
  return (typeof names === "string" ? [names] : names ?? []).filter((name) => name !== "");
}

function isNumber(text: string): boolean {
  return /\S/.test(text) && Number.isFinite(Number(text));
}

/** The declared names and how they relate. */
class Declarations {
  readonly booleans = new Set<string>();
  readonly strings = new Set<string>();
  readonly collected = new Set<string>();
  readonly negatable = new Set<string>();
  readonly #others = new Map<string, readonly string[]>();

  constructor(options: ParseOptions) {
    for (const [name, aliases] of Object.entries(options.alias ?? {})) {
      const group = [name, ...list(aliases)];
      for (const one of group) this.#others.set(one, group.filter((other) => other !== one));
    }
    const flags = typeof options.boolean === "boolean" ? undefined : options.boolean;
    this.#declare(this.booleans, flags);
    this.#declare(this.strings, options.string);
    this.#declare(this.collected, options.collect);
    this.#declare(this.negatable, options.negatable);
  }

  #declare(set: Set<string>, names: Names<string> | undefined): void {
    for (const name of list(names)) {
      set.add(name);
      for (const other of this.others(name)) set.add(other);
    }
  }

  /** The other names of an option. */
  others(name: string): readonly string[] {
    return this.#others.get(name) ?? [];
  }

  has(name: string): boolean {
    return this.booleans.has(name) || this.strings.has(name) || this.#others.has(name);
  }

  /** True when the option never takes the next argument for its value. */
  isFlag(name: string): boolean {
    return this.booleans.has(name) || this.others(name).some((other) => this.booleans.has(other));
  }
}

class Parser {
  readonly result: Record<string, unknown> & { _: Array<string | number>; "--"?: string[] };
  readonly #declared: Declarations;
  readonly #options: ParseOptions;
  readonly #args: readonly string[];
  readonly #rest: readonly string[];
  #at = 0;

  constructor(args: readonly string[], options: ParseOptions) {
    this.#declared = new Declarations(options);
    this.#options = options;
    const cut = args.indexOf("--");
    this.#args = cut < 0 ? args : args.slice(0, cut);
    this.#rest = cut < 0 ? [] : args.slice(cut + 1);
    this.result = { _: [] };
  }

  run(): void {
    while (this.#at < this.#args.length) {
      const arg = this.#args[this.#at++] ?? "";
      if (arg.startsWith("--") && arg.length > 2) this.#long(arg);
      else if (arg.startsWith("-") && arg.length > 1) this.#short(arg);
      else {
        this.#operand(arg);
        if (this.#options.stopEarly) {
          this.result._.push(...this.#args.slice(this.#at));
          break;
        }
      }
    }
    this.#fill();
    if (this.#options["--"]) this.result["--"] = [...this.#rest];
    else this.result._.push(...this.#rest);
  }

  #operand(arg: string): void {
    if (this.#options.unknown?.(arg) === false) return;
    const plain = this.#declared.strings.has("_") || !isNumber(arg);
    this.result._.push(plain ? arg : Number(arg));
  }

  /** `--key=value`, `--no-key`, `--key value` or `--key`. */
  #long(arg: string): void {
    // An equals sign at the very end belongs to the name, and so does one at its start.
    const negated = arg.startsWith("--no-") && arg.length > "--no-".length;
    const body = arg.slice(negated ? "--no-".length : 2);
    const equals = body.indexOf("=", 1);
    const hasValue = equals > 0 && equals < body.length - 1;
    let key = hasValue ? body.slice(0, equals) : body;
    if (hasValue) {
      const value = body.slice(equals + 1);
      this.#set(key, this.#declared.booleans.has(key) ? value !== "false" : value, arg);
      return;
    }
    if (negated) {
      if (this.#declared.negatable.has(key)) return this.#set(key, false, arg, false);
      key = `no-${key}`;
    }
    const takes = this.#options.boolean !== true && !this.#declared.isFlag(key);
    this.#valueOrFlag(key, arg, takes, (next) => next.startsWith("-"));
  }

  /** A cluster of letters, the last of which may take a value. */
  #short(arg: string): void {
    for (let i = 1; i < arg.length - 1; i++) {
      const letter = arg.charAt(i);
      const rest = arg.slice(i + 1);
      if (rest === "-") {
        this.#set(letter, rest, arg);
        continue;
      }
      if (/[A-Za-z]/.test(letter)) {
        const value = /=(.+)/.exec(rest)?.[1];
        if (value !== undefined) return this.#set(letter, value, arg);
        if (/-?\d+(\.\d*)?(e-?\d+)?$/.test(rest)) return this.#set(letter, rest, arg);
      }
      if (i + 1 < arg.length - 1 && /\W/.test(arg.charAt(i + 1))) {
        return this.#set(letter, rest, arg);
      }
      this.#set(letter, this.#bare(letter), arg);
    }
    const last = arg.slice(-1);
    if (last === "-") return;
    const takes = !this.#declared.isFlag(last);
    this.#valueOrFlag(last, arg, takes, (next) => /^--?[^-]/.test(next));
  }

  /** Sets `key` to the next argument when it takes one, else to what a bare option means. */
  #valueOrFlag(key: string, arg: string, takes: boolean, isOption: (next: string) => boolean) {
    const next = this.#args[this.#at];
    if (next !== undefined && next !== "") {
      if (takes && !isOption(next)) {
        this.#at++;
        return this.#set(key, next, arg);
      }
      if (next === "true" || next === "false") {
        this.#at++;
        return this.#set(key, next === "true", arg);
      }
    }
    this.#set(key, this.#bare(key), arg);
  }

  #bare(key: string): string | boolean {
    return this.#declared.strings.has(key) ? "" : true;
  }

  #set(key: string, value: string | boolean, arg: string, collect = true): void {
    const everyFlag = this.#options.boolean === true && /^--[^=]+$/.test(arg);
    if (
      !this.#declared.has(key) && !everyFlag && this.#options.unknown?.(arg, key, value) === false
    ) return;
    const keep = typeof value !== "string" || this.#declared.strings.has(key) || !isNumber(value);
    const typed = keep ? value : Number(value);
    const collected = collect && this.#declared.collected.has(key);
    for (const name of [key, ...this.#declared.others(key)]) {
      const before = this.result[name];
      if (!collected) this.result[name] = typed;
      else if (Array.isArray(before)) before.push(typed);
      else this.result[name] = before ? [before, typed] : [typed];
    }
  }

  /** Defaults of what was not given. */
  #fill(): void {
    for (const [key, value] of Object.entries(this.#options.default ?? {})) {
      if (Object.hasOwn(this.result, key)) continue;
      for (const name of [key, ...this.#declared.others(key)]) this.result[name] = value;
    }
    for (const key of this.#declared.booleans) {
      if (Object.hasOwn(this.result, key)) continue;
      this.result[key] = this.#declared.collected.has(key) ? [] : false;
    }
    for (const key of this.#declared.strings) {
      if (!Object.hasOwn(this.result, key) && this.#declared.collected.has(key)) {
        this.result[key] = [];
      }
    }
  }
}

/**
 * Options and operands of a command line.
 *
 * @param args the arguments after the program's name
 * @param options what is declared; see `ParseOptions`
 */
export function parseArgs<
  const B extends string = never,
  const S extends string = never,
  const C extends string = never,
>(args: string[], options: ParseOptions<B, S, C> = {}): Args<B, S, C> {
  const parser = new Parser(args, options);
  parser.run();
  return parser.result as Args<B, S, C>;
}
