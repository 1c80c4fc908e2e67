/**
 * The keys of `keys/` as they are now: read when a signed request asks for one, at most every
 * `LOOK_MS`, so that a changed directory takes effect at once and no crowd of requests becomes a
 * crowd of looks. Where no agent signs, the directory is never touched.
 *
 * Rules
 * 1. A key that cannot be read, or whose file others could have read or written, is no key; every
 *    doubt is answered with null.
 * 2. A file is read only when its look has changed; its bytes go to the parser and nowhere else.
 * 3. What is told of a file (log, audit, people) is its name and what is wrong with it, in our words.
 * 4. Bounded: `MAX_KEYS` files of `KEY_FILE_BYTES`. With more than that the directory counts as
 *    empty, rather than that it depends on chance which keys are valid.
 *
 * @module
 */
import { readdirSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { KEY_FILE_BYTES, keyName, parseKeyFile, type SigningKey } from "../request/key_file.ts";
import { readBounded } from "../run/bounded_file.ts";
import { look } from "../spool/look.ts";
import type { Look } from "../spool/types.ts";

/** Where keys lie. */
export const KEYS_DIR = "keys";

/** Files that the directory may hold. */
export const MAX_KEYS = 256;

/** Milliseconds between two looks at the directory. */
const LOOK_MS = 100;

/** One file of the directory: the key in it, or why there is none. */
export interface KeyEntry {
  readonly file: string;
  readonly key: SigningKey | null;
  /** Why it is no key; "" for a key. */
  readonly why: string;
  /** What of its look shows that it changed. */
  readonly print: string;
}

/** What a look at the directory found. */
export interface KeyFiles {
  /** By file name, sorted. */
  readonly entries: ReadonlyMap<string, KeyEntry>;
  /** Why the directory as a whole gives no key, or null. */
  readonly fault: string | null;
}

const NONE: ReadonlyMap<string, KeyEntry> = new Map();

/**
 * Looks at the directory. A file that looks as it did before is not read again. Read permission on
 * `./keys`.
 */
export function readKeys(before: ReadonlyMap<string, KeyEntry> = NONE): KeyFiles {
  let directory: Look | null;
  let files: string[];
  try {
    directory = look(KEYS_DIR);
    if (directory === null) return { entries: NONE, fault: null };
    if (directory.kind !== "directory") return { entries: NONE, fault: "it is no directory" };
    if ((directory.mode & 0o077) !== 0) {
      return { entries: NONE, fault: "others may enter it: chmod 0700 keys" };
    }
    files = readdirSync(KEYS_DIR).sort();
  } catch (error) {
    return { entries: NONE, fault: `it cannot be read (${errorCode(error) ?? "unknown"})` };
  }
  if (files.length > MAX_KEYS) {
    return { entries: NONE, fault: `it holds more than ${MAX_KEYS} entries` };
  }
  const entries = new Map<string, KeyEntry>();
  for (const file of files) {
    const entry = readEntry(file, directory.uid, before.get(file));
    if (entry !== null) entries.set(file, entry);
  }
  return { entries, fault: null };
}

/** @param uid owner of the directory, who must own the file */
function readEntry(file: string, uid: number, before: KeyEntry | undefined): KeyEntry | null {
  const path = `${KEYS_DIR}/${file}`;
  const none = (why: string, print = ""): KeyEntry => ({ file, key: null, why, print });
  const name = keyName(file);
  if (name === null) return none("its name is not <key>.json");
  try {
    const seen = look(path);
    if (seen === null) return null;
    const print = [seen.dev, seen.ino, seen.size, seen.mtime_ms, seen.ctime_ms, seen.mode, seen.uid]
      .join(" ");
    if (before?.print === print) return before;
    if (seen.kind !== "file") return none("it is no plain file", print);
    if (seen.uid !== uid) return none("it belongs to another user than keys/", print);
    if ((seen.mode & 0o177) !== 0) return none("it has another mode than 0600 or 0400", print);
    const bytes = readBounded(path, KEY_FILE_BYTES);
    if (bytes === null) return none(`it is larger than ${KEY_FILE_BYTES} bytes`, print);
    const parsed = parseKeyFile(name, bytes);
    bytes.fill(0);
    return parsed.ok ? { file, key: parsed.key, why: "", print } : none(parsed.why, print);
  } catch (error) {
    // Without a look to go by it is tried again the next time.
    return none(`it cannot be read (${errorCode(error) ?? "unknown"})`);
  }
}

/** What changed in the directory: names of keys, never more. */
export interface KeyChanges {
  readonly keys: readonly string[];
  readonly faults: readonly { readonly file: string; readonly why: string }[];
}

/** The keys as a serving daemon holds them. */
export class KeyStore {
  readonly #now: () => number;
  #found: KeyFiles = { entries: NONE, fault: null };
  #looked = -Infinity;
  #told = "";
  #changes: KeyChanges | null = null;

  /** @param now monotonic clock, milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** The key of a name when it is this agent's, whether valid now or not; null for any other. */
  find(agent: string, name: string): SigningKey | null {
    this.refresh();
    const key = this.#found.entries.get(`${name}.json`)?.key ?? null;
    return key !== null && key.name === name && key.agent === agent ? key : null;
  }

  /** Looks at the directory, unless that was done a moment ago. */
  refresh(): void {
    const now = this.#now();
    if (now - this.#looked < LOOK_MS) return;
    this.#looked = now;
    this.#found = readKeys(this.#found.entries);
    const changes = changesOf(this.#found);
    // Two versions of a key have one name, so that what is told apart is the file.
    const told = JSON.stringify([
      changes,
      [...this.#found.entries.values()].map(({ print }) => print),
    ]);
    if (told === this.#told) return;
    this.#told = told;
    this.#changes = changes;
  }

  /** What is to be told since it was asked last, or null. */
  takeChanges(): KeyChanges | null {
    const changes = this.#changes;
    this.#changes = null;
    return changes;
  }
}

function changesOf({ entries, fault }: KeyFiles): KeyChanges {
  const faults = [...entries.values()].filter(({ key }) => key === null)
    .map(({ file, why }) => ({ file: `${KEYS_DIR}/${file}`, why }));
  return {
    keys: [...entries.values()].flatMap(({ key }) => key === null ? [] : [key.name]),
    faults: fault === null ? faults : [{ file: KEYS_DIR, why: fault }, ...faults],
  };
}
