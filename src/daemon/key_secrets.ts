/**
 * The secrets that lie in `keys/`, for masking: nothing that an agent can read may show them.
 *
 * Every text of a key file that is long enough to be a secret counts as one, but for those that are
 * known to be none: masking a text too much is harmless, and no field can be forgotten here.
 * Files are bounded in number and size; the directory is closed to everybody but the host.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { errorCode } from "../errors.ts";
import { readBounded } from "../run/bounded_file.ts";
import { look } from "../spool/look.ts";

const MAX_FILES = 256;
const MAX_BYTES = 64 * 1024;
/** Shorter texts are names and words. */
const SECRET_MIN = 12;
/** Fields of a key file that hold no secret. */
const OPEN: ReadonlySet<string> = new Set(["alg", "agent", "public", "note"]);
const DATE = /^[0-9]{4}-[0-9]{2}-[0-9]{2}[0-9TZ:.+ -]*$/;

/** Every text in a JSON value. */
function* texts(value: unknown): Generator<string> {
  if (typeof value === "string") yield value;
  else if (typeof value === "object" && value !== null) {
    for (const [name, inner] of Object.entries(value)) if (!OPEN.has(name)) yield* texts(inner);
  }
}

/** What an encoded secret stands for, where it is encoded. */
function decoded(text: string): Uint8Array[] {
  const out: Uint8Array[] = [];
  if (/^(?:[0-9a-fA-F]{2}){16,}$/.test(text)) out.push(Buffer.from(text, "hex"));
  if (/^[A-Za-z0-9+/_-]{22,}={0,2}$/.test(text)) out.push(Buffer.from(text, "base64"));
  return out;
}

/** The secrets in one key file: its JSON texts, or its lines. */
export function secretsIn(bytes: Uint8Array): Uint8Array[] {
  const text = new TextDecoder().decode(bytes);
  let found: string[];
  try {
    found = [...texts(JSON.parse(text))];
  } catch {
    found = text.split(/\r?\n/);
  }
  // The body of a key that spans lines counts line by line.
  return found.flatMap((one) => one.split(/[\r\n]+/)).map((one) => one.trim())
    .filter((one) => one.length >= SECRET_MIN && !DATE.test(one) && !one.startsWith("-----"))
    .flatMap((one) => [new TextEncoder().encode(one), ...decoded(one)]);
}

/** Reads `keys/` again when something in it has changed. */
export class KeySecrets {
  #mark = "";
  #secrets: Uint8Array[] = [];
  /** Changes with the secrets. */
  #version = 0;
  readonly #seen = new Set<string>();

  get version(): number {
    return this.#version;
  }

  /** Every secret that was in `keys/` since the start: a key that was removed may still be in use. */
  get secrets(): readonly Uint8Array[] {
    return this.#secrets;
  }

  /**
   * @throws a system error when a file cannot be read: then nobody knows what to mask
   */
  refresh(): void {
    const names: string[] = [];
    try {
      for (const entry of Deno.readDirSync("keys")) {
        if (entry.isFile && names.length < MAX_FILES) names.push(entry.name);
      }
    } catch (error) {
      if (errorCode(error) === "ENOENT") return;
      throw error;
    }
    const marks: string[] = [];
    const files: string[] = [];
    for (const name of names.sort()) {
      const seen = look(`keys/${name}`);
      if (seen?.kind !== "file") continue;
      files.push(name);
      marks.push(`${name} ${seen.ino} ${seen.size} ${seen.mtime_ms}`);
    }
    const mark = marks.join("\n");
    if (mark === this.#mark) return;
    for (const name of files) {
      const bytes = readBounded(`keys/${name}`, MAX_BYTES);
      if (bytes === null) continue;
      for (const secret of secretsIn(bytes)) {
        const hex = Buffer.from(secret).toString("hex");
        if (this.#seen.has(hex)) continue;
        this.#seen.add(hex);
        this.#secrets.push(secret);
      }
    }
    this.#mark = mark;
    this.#version++;
  }
}
