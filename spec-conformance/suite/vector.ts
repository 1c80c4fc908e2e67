/**
 * What a vector is, and how vectors are read. The same is said by `vector.schema.json`, and a test
 * holds every vector against that.
 *
 * @module
 */
import { join } from "node:path";

/** The levels, each with everything of those before it. */
export const LEVELS = ["core", "hardened", "durable"] as const;
export type Level = (typeof LEVELS)[number];

/** What an entry of the queue holds; exactly one of the fields. */
export interface Content {
  readonly json?: unknown;
  readonly text?: string;
  readonly base64?: string;
  /** `before`, then `repeat` so many `times`, then `after`. */
  readonly generate?: {
    readonly before: string;
    readonly repeat: string;
    readonly times: number;
    readonly after: string;
  };
  readonly signed?: Signed;
  /** The very bytes that this vector has put under that name before. */
  readonly same?: string;
}

/** A signed request. */
export interface Signed {
  /** Name of a key in `suite/keys.json`. */
  readonly key: string;
  /** The payload without `created_at`, which is added unless `created_s` is null. */
  readonly payload: Readonly<Record<string, unknown>>;
  /** Seconds from now; default 0. */
  readonly created_s?: number | null;
  /** The payload's text as it stands, in place of `payload`. */
  readonly text?: string;
  /** Fields of `auth` in place of the right ones. */
  readonly auth?: Readonly<Record<string, unknown>>;
  /** Fields of the envelope in place of the right ones, or added. */
  readonly envelope?: Readonly<Record<string, unknown>>;
  /** Text put in place of the payload after it was signed: [from, to]. */
  readonly replace?: readonly [string, string];
  /** Text that stands behind the payload when it is signed and not when it is sent. */
  readonly trailing?: string;
}

/** Fields of a result that a vector may expect, each to be equal. */
export interface Expected {
  readonly state?: string;
  readonly outcome?: string;
  readonly code?: number;
  readonly reason?: string;
  readonly stage?: string;
  readonly verb?: string;
  readonly exit_code?: number | null;
  readonly signal?: string;
  readonly next?: string;
  readonly waiting_for?: string;
  readonly replay_of?: string;
  readonly idempotency_key?: string;
  /** `stdout.head` and `stderr.head`. */
  readonly stdout?: string;
  readonly stderr?: string;
  /** `replays` is at least this. */
  readonly replays?: number;
  /** The state is one of these. */
  readonly states?: readonly string[];
  /** Texts that must not occur in the file. */
  readonly without?: readonly string[];
  /** Texts that must occur in the file. */
  readonly within?: readonly string[];
  /** `stdout.bytes` is at least this, and the file itself is smaller than 256 KiB. */
  readonly stdout_bytes?: number;
}

export type Step =
  & { readonly agent?: string }
  & (
    | Content & { readonly put: string; readonly how?: "rename" | "direct" | "parts" | "leave" }
    | {
      readonly make: string;
      readonly kind: Kind;
      readonly target?: string;
      /** Made there by the suite, which can do more than an agent; `queue/` by default. */
      readonly place?: "results";
    }
    | Expected & { readonly result: string }
    | { readonly note: Expected & { readonly name?: string } }
    | { readonly kill: "up" | "down"; readonly of?: string }
    | { readonly crash: true }
    | { readonly start: true }
    | { readonly stop: true }
    | { readonly sleep: number }
    | { readonly remove: string }
    | { readonly tamper: string }
    | { readonly host: readonly string[] }
    | { readonly absent: string }
    | { readonly stays: string; readonly for_ms: number }
    | { readonly ran: string; readonly times: number }
  );

/** Entries that are no regular file of their own. */
export type Kind =
  | "symlink"
  | "hardlink"
  | "directory"
  | "full-directory"
  | "fifo"
  | "socket"
  | "device"
  | "unreadable";

export interface Vector {
  /** `<chapter>/<case>`, as the file lies below `vectors/`. */
  readonly id: string;
  readonly requirements: readonly string[];
  readonly level: Level;
  readonly description: string;
  /** The class of fault that it finds. */
  readonly bug: string;
  /** Name of a file in `policies/`. */
  readonly policy: string;
  /** True when it needs an implementation of its own; it is started by a step then. */
  readonly fresh?: boolean;
  readonly steps: readonly Step[];
  /** How often the witness must have been told each tag when all is over. */
  readonly runs?: Readonly<Record<string, number>>;
  /** Deliberately broken implementations that must fail here. */
  readonly catches?: readonly string[];
}

/** Where the suite lies. */
export const SUITE: string = join(import.meta.dirname ?? ".", "..");

/** A JSON file of the suite. */
export function readJson<T>(...path: string[]): T {
  return JSON.parse(Deno.readTextFileSync(join(SUITE, ...path)));
}

/** Every vector, by id. */
export function readVectors(): Vector[] {
  const found: Vector[] = [];
  for (const chapter of Deno.readDirSync(join(SUITE, "vectors"))) {
    for (const { name } of Deno.readDirSync(join(SUITE, "vectors", chapter.name))) {
      found.push(readJson<Vector>("vectors", chapter.name, name));
    }
  }
  return found.sort((a, b) => (a.id < b.id ? -1 : 1));
}

/** The levels up to and with `level`. */
export function upTo(level: Level): readonly Level[] {
  return LEVELS.slice(0, LEVELS.indexOf(level) + 1);
}

/** A pattern of `*` and text, for ids. */
export function matches(pattern: string, id: string): boolean {
  const parts = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`).test(id);
}
