/**
 * Masks texts that are known: every place of a stream where one of them stands is replaced by one
 * mark. It is a function of the bytes alone: how they are cut into chunks changes nothing.
 *
 * 1. A secret is found wherever it begins and however it is cut, also when line ends were put into
 *    it: encoders wrap lines, and so do terminals. Of one that is broken before its third byte the
 *    rest is found, so that a line is not held back for a last letter that begins a secret.
 * 2. Time is linear in the stream and memory is bounded by the secrets, whatever the stream: one
 *    automaton finds all of them in one pass, and holds back only what may still become one (X13).
 * 3. Secrets that overlap or touch are one mark, so nothing between two of them is left over.
 * 4. Where a stream was cut, four bytes and more of the beginning of a secret are masked at its
 *    end; where its beginning is not known, so is the end of a secret.
 *
 * @module
 */

/** What stands in the place of a secret. */
export const MASK = "[masked]";

/** A line end inside a secret is looked past from this many bytes on. */
const SPLIT_FROM = 3;
/** From this length on, what is left of a secret without its first bytes counts as one. */
const REST_FROM = 12;
/** Part of a secret, at a cut, that is masked. */
const PART_FROM = 4;

const LF = 0x0a;
const CR = 0x0d;
const MARK = new TextEncoder().encode(MASK);

function withoutLineEnds(bytes: Uint8Array): Uint8Array {
  return bytes.filter((byte) => byte !== LF && byte !== CR);
}

function withRests(secret: Uint8Array): Uint8Array[] {
  const rests = [secret];
  for (let n = 1; n < SPLIT_FROM && secret.length >= REST_FROM; n++) rests.push(secret.subarray(n));
  return rests;
}

/** A set of secrets, made ready once and used for many streams. */
export class KnownSecrets {
  /** Without line ends. */
  readonly patterns: readonly Uint8Array[];
  /** Length of the longest one. */
  readonly longest: number;
  /** One of them has a line end of its own before `SPLIT_FROM`. */
  readonly splitsEarly: boolean;
  /** State after the first byte, by byte; 0 is the start. */
  readonly root = new Int32Array(256);
  /** By state: its children as a list, the byte that leads to it, the next one of the list. */
  readonly child: Int32Array;
  readonly sibling: Int32Array;
  readonly byte: Uint8Array;
  /** By state: the longest other state that ends the same. */
  readonly fail: Int32Array;
  readonly depth: Int32Array;
  /** By state: length of the longest secret that ends there, or 0. */
  readonly found: Int32Array;

  /** @param secrets bytes; empty ones are left out */
  constructor(secrets: Iterable<Uint8Array>) {
    const all = [...secrets].filter((secret) => secret.length > 0);
    this.splitsEarly = all.some((secret) =>
      secret.subarray(0, SPLIT_FROM).some((byte) => byte === LF || byte === CR)
    );
    const seen = new Map(all.map(withoutLineEnds).flatMap(withRests).map((s) => [s.join(), s]));
    this.patterns = [...seen.values()].filter((pattern) => pattern.length > 0);
    this.longest = this.patterns.reduce((most, { length }) => Math.max(most, length), 0);
    const most = this.patterns.reduce((sum, { length }) => sum + length, 1);
    this.child = new Int32Array(most);
    this.sibling = new Int32Array(most);
    this.byte = new Uint8Array(most);
    this.fail = new Int32Array(most);
    this.depth = new Int32Array(most);
    this.found = new Int32Array(most);
    this.#link(this.#grow());
  }

  /** The state that a byte leads to from here, or 0. */
  step(state: number, byte: number): number {
    if (state === 0) return this.root[byte] ?? 0;
    for (let next = this.child[state] ?? 0; next !== 0; next = this.sibling[next] ?? 0) {
      if (this.byte[next] === byte) return next;
    }
    return 0;
  }

  /** The tree of all beginnings; returns the number of states. */
  #grow(): number {
    let states = 1;
    for (const pattern of this.patterns) {
      let state = 0;
      for (const byte of pattern) {
        let next = this.step(state, byte);
        if (next === 0) {
          next = states++;
          this.byte[next] = byte;
          this.depth[next] = (this.depth[state] ?? 0) + 1;
          if (state === 0) this.root[byte] = next;
          else {
            this.sibling[next] = this.child[state] ?? 0;
            this.child[state] = next;
          }
        }
        state = next;
      }
      this.found[state] = pattern.length;
    }
    return states;
  }

  /** Where to go on when a beginning does not go on: breadth first. */
  #link(states: number): void {
    const order = new Int32Array(states);
    let length = 0;
    for (const state of this.root) if (state !== 0) order[length++] = state;
    for (let at = 0; at < length; at++) {
      const state = order[at] ?? 0;
      for (let next = this.child[state] ?? 0; next !== 0; next = this.sibling[next] ?? 0) {
        const byte = this.byte[next] ?? 0;
        let back = this.fail[state] ?? 0;
        while (back !== 0 && this.step(back, byte) === 0) back = this.fail[back] ?? 0;
        const to = this.step(back, byte);
        this.fail[next] = to;
        if (this.found[next] === 0) this.found[next] = this.found[to] ?? 0;
        order[length++] = next;
      }
    }
  }

  /** How many bytes at the start of `bytes` are the end of a secret, as far as can be told. */
  endAtStart(bytes: Uint8Array): number {
    const at: number[] = [];
    for (let i = 0; i < bytes.length && at.length < this.longest; i++) {
      if (bytes[i] !== LF && bytes[i] !== CR) at.push(i);
    }
    const head = at.map((i) => bytes[i] ?? 0);
    let most = 0;
    for (const pattern of this.patterns) {
      for (let n = Math.min(pattern.length - 1, head.length); n > most && n >= PART_FROM; n--) {
        const from = pattern.length - n;
        let same = 0;
        while (same < n && pattern[from + same] === head[same]) same++;
        if (same === n) most = n;
      }
    }
    return most === 0 ? 0 : (at[most - 1] ?? 0) + 1;
  }
}

/** Masks the secrets of one stream. Positions count the bytes of the stream from its start. */
export class KnownSecretsFilter {
  readonly #secrets: KnownSecrets;
  /** Positions of the last bytes that were no line ends, round and round. */
  readonly #places: Float64Array;
  #last = 0;
  #state = 0;
  /** Bytes taken in. */
  #taken = 0;
  /** What is held back, and where it begins. */
  #held: Uint8Array = new Uint8Array();
  #from = 0;
  /** Found and not masked yet: sorted, apart from each other. */
  #hits: { from: number; to: number }[] = [];
  /** Up to here the stream has been masked. */
  #masked = -1;

  constructor(secrets: KnownSecrets) {
    this.#secrets = secrets;
    let size = 1;
    while (size < secrets.longest) size *= 2;
    this.#places = new Float64Array(size);
  }

  /** The bytes so far whose fate no later byte can change. The chunk may be used again. */
  push(chunk: Uint8Array): Uint8Array {
    this.#scan(chunk);
    return this.#let(chunk, this.#state === 0 ? this.#taken : this.#began());
  }

  /**
   * The rest.
   *
   * @param cut the stream went on, unseen
   */
  end(cut = false): Uint8Array {
    const { depth } = this.#secrets;
    if (cut && (depth[this.#state] ?? 0) >= PART_FROM) this.#hit(this.#began(), this.#taken);
    this.#state = 0;
    return this.#let(new Uint8Array(), this.#taken);
  }

  #scan(chunk: Uint8Array): void {
    const { root, fail, depth, found, splitsEarly } = this.#secrets;
    const mask = this.#places.length - 1;
    let state = this.#state;
    for (let i = 0; i < chunk.length; i++) {
      const byte = chunk[i] ?? 0;
      if (state === 0) {
        state = root[byte] ?? 0;
        if (state === 0) continue;
      } else if (byte === LF || byte === CR) {
        if (!splitsEarly && (depth[state] ?? 0) < SPLIT_FROM) state = 0;
        continue;
      } else {
        let next = this.#secrets.step(state, byte);
        while (next === 0 && state !== 0) {
          state = fail[state] ?? 0;
          next = this.#secrets.step(state, byte);
        }
        state = next;
        if (state === 0) continue;
      }
      this.#places[++this.#last & mask] = this.#taken + i;
      const length = found[state] ?? 0;
      if (length > 0) {
        const start = this.#places[(this.#last - length + 1) & mask] ?? 0;
        this.#hit(start, this.#taken + i + 1);
      }
    }
    this.#state = state;
    this.#taken += chunk.length;
  }

  /** Where what may become a secret began. */
  #began(): number {
    const depth = this.#secrets.depth[this.#state] ?? 0;
    return this.#places[(this.#last - depth + 1) & (this.#places.length - 1)] ?? 0;
  }

  #hit(from: number, to: number): void {
    let start = from;
    for (let last = this.#hits.at(-1); last !== undefined && last.to >= start;) {
      start = Math.min(start, last.from);
      this.#hits.pop();
      last = this.#hits.at(-1);
    }
    this.#hits.push({ from: start, to });
  }

  /** Lets go of what was held back and of the chunk, up to `until`, and holds back the rest. */
  #let(chunk: Uint8Array, until: number): Uint8Array {
    if (this.#held.length === 0 && this.#hits.length === 0 && this.#masked <= this.#from) {
      const n = until - this.#from;
      this.#held = chunk.slice(n);
      this.#from = until;
      return chunk.subarray(0, n);
    }
    const bytes = new Uint8Array(this.#held.length + chunk.length);
    bytes.set(this.#held);
    bytes.set(chunk, this.#held.length);
    const base = this.#from;
    const parts: Uint8Array[] = [];
    let at = Math.min(Math.max(base, this.#masked), until);
    let done = 0;
    for (const { from, to } of this.#hits) {
      if (from >= until) break;
      done++;
      if (from > at) parts.push(bytes.subarray(at - base, from - base));
      if (from > this.#masked) parts.push(MARK);
      this.#masked = Math.max(this.#masked, to);
      at = Math.min(Math.max(at, to), until);
    }
    if (until > at) parts.push(bytes.subarray(at - base, until - base));
    this.#hits = this.#hits.slice(done);
    this.#held = bytes.slice(until - base);
    this.#from = until;
    return join(parts);
  }
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  const [first] = parts;
  if (first !== undefined && parts.length === 1) return first;
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
