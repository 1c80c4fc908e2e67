/**
 * The agent's side of the spool, for the MCP server: reads catalogue, status and results, writes
 * requests. It needs read access to `queue`, `results` and `inbox` and write access to `queue`.
 *
 * Rules
 * 1. A request appears under its name whole: temporary name, flush, rename, flush of the directory.
 * 2. What is asked for with an intent has an id made of it, so that asking again never runs it again.
 * 3. Polling only reads. Time is this side's own; clocks of the two sides are never compared.
 *
 * @module
 */

/** One verb of the catalogue, as far as it matters here. */
export interface Verb {
  readonly verb: string;
  readonly description: string;
  readonly class: string;
  readonly args_schema: {
    readonly properties?: Readonly<Record<string, unknown>>;
    readonly required?: readonly string[];
    readonly [keyword: string]: unknown;
  };
  readonly approval: string;
  readonly timeout_s: number | null;
}

/** One stream of a result. */
interface Stream {
  readonly head: string;
  readonly tail: string;
  readonly dropped_bytes: number;
  readonly file: string | null;
}

/** A result document, as far as it matters here. */
export interface Result {
  readonly id: string;
  readonly state: "pending" | "running" | "done" | "uncertain";
  readonly outcome?: string;
  readonly code?: number;
  readonly reason?: string;
  readonly message?: string;
  readonly hint?: string;
  readonly next: string;
  readonly waiting_for?: string;
  readonly exit_code?: number | null;
  readonly replay_of?: string;
  readonly stdout?: Stream;
  readonly stderr?: Stream;
  readonly answer?: unknown;
}

interface Status {
  readonly seq: number;
  readonly state: string;
  readonly why: string;
  /** `once`: started when something is asked, or every minute, without a heartbeat in between. */
  readonly watch: string;
  readonly recent: readonly Readonly<Record<string, unknown>>[];
}

/** Milliseconds for which a bridge may write no status before it counts as down. */
export const DOWN_MS = 15_000;
/** The same for one that is started every minute. */
export const ONCE_DOWN_MS = 90_000;

/** The file of an id; undefined for a text that is none, so that no other text becomes a path. */
export function isId(id: unknown): id is string {
  return typeof id === "string" && /^[a-z0-9][a-z0-9_-]{0,63}$/.test(id);
}

function json(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(json).join(",")}]`;
  const members = Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1);
  return `{${members.map(([k, v]) => `${JSON.stringify(k)}:${json(v)}`).join(",")}}`;
}

/** The id of a call: the same for the same verb, arguments and intent, fresh without an intent. */
export async function callId(
  verb: string,
  args: unknown,
  intent: string | null,
): Promise<string> {
  const stem = verb.replace(".", "-").slice(0, 32);
  if (intent === null) return `${stem}-${crypto.randomUUID().slice(0, 13)}`;
  const text = new TextEncoder().encode(json([verb, args, intent]));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
  return `${stem}-${
    Array.from(digest.subarray(0, 12), (b) => b.toString(16).padStart(2, "0"))
      .join("")
  }`;
}

export class Spool {
  readonly #base: string;

  constructor(base: string) {
    this.#base = base;
  }

  path(...parts: string[]): string {
    return [this.#base, ...parts].join("/");
  }

  #read<T>(...parts: string[]): T | null {
    try {
      return JSON.parse(Deno.readTextFileSync(this.path(...parts)));
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return null;
      throw error;
    }
  }

  catalogue(): {
    readonly policy: string | null;
    readonly verbs: readonly Verb[];
  } | null {
    return this.#read("inbox", "catalogue.json");
  }

  status(): Status | null {
    return this.#read("inbox", "status.json");
  }

  result(name: string): Result | null {
    return this.#read("results", `${name}.json`);
  }

  queued(id: string): boolean {
    try {
      return Deno.lstatSync(this.path("queue", `${id}.json`)).isFile;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    }
  }

  /** Takes a request back that nobody has claimed; false when it is gone. */
  withdraw(id: string): boolean {
    try {
      Deno.removeSync(this.path("queue", `${id}.json`));
      return true;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    }
  }

  /** Rule 1. */
  submit(id: string, request: Readonly<Record<string, unknown>>): void {
    const temporary = this.path("queue", `.${id}.${crypto.randomUUID()}.tmp`);
    const file = Deno.openSync(temporary, {
      write: true,
      createNew: true,
      mode: 0o644,
    });
    try {
      const bytes = new TextEncoder().encode(
        JSON.stringify({ ...request, id }) + "\n",
      );
      for (let at = 0; at < bytes.length;) {
        at += file.writeSync(bytes.subarray(at));
      }
      file.syncSync();
    } finally {
      file.close();
    }
    Deno.renameSync(temporary, this.path("queue", `${id}.json`));
    try {
      using directory = Deno.openSync(this.path("queue"), { read: true });
      directory.syncSync();
    } catch {
      // A queue that may be written and not read cannot be flushed by us.
    }
  }

  /** Bytes of a growing output file from a place on, at most 4 KiB, or null. */
  output(name: string, from: number): { text: string; size: number } | null {
    let file: Deno.FsFile;
    try {
      file = Deno.openSync(this.path("results", name), { read: true });
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return null;
      throw error;
    }
    try {
      const { size } = file.statSync();
      if (size <= from) return null;
      file.seekSync(Math.max(from, size - 4096), Deno.SeekMode.Start);
      const buffer = new Uint8Array(4096);
      const n = file.readSync(buffer) ?? 0;
      return { text: new TextDecoder().decode(buffer.subarray(0, n)), size };
    } finally {
      file.close();
    }
  }
}
