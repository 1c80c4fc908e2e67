/**
 * A key file of `keys/` to the key that it holds. Pure. Words about a file that is wrong never
 * quote it: half of a secret in a log is a secret in a log.
 *
 * The format is closed: exactly the fields of its algorithm, so that a mistyped `not_after` is no
 * key that is valid for ever.
 *
 * @module
 */
import { isId } from "../names.ts";
import { type Algorithm, ALGORITHMS, isAlgorithm } from "./envelope.ts";
import { INSTANT_WORDS, parseInstant } from "./instant.ts";
import type { Json } from "./request.ts";
import { ed25519Key, hmacKey, type VerifyingKey } from "./signature.ts";
import { parseStrictJson } from "./strict_json.ts";

/** Largest key file, bytes. */
export const KEY_FILE_BYTES = 4096;

/** Longest note, characters. */
const NOTE_MAX = 200;

/** A key that speaks for one agent. */
export interface SigningKey extends VerifyingKey {
  readonly name: string;
  readonly agent: string;
  /** Wall clock, milliseconds; null without such a bound. */
  readonly not_before_ms: number | null;
  readonly not_after_ms: number | null;
  /** The public key in lower-case hex; null for a secret. */
  readonly public: string | null;
  readonly note: string | null;
}

/** The outcome: a key, or what is wrong with the file. */
export type ParsedKey =
  | { readonly ok: true; readonly key: SigningKey }
  | { readonly ok: false; readonly why: string };

const SECRET = /^[A-Za-z0-9+/=_-]{32,128}$/;
const LIMITS = { bytes: KEY_FILE_BYTES, depth: 2, keys: 16, string_bytes: 1024 };
const MATERIAL: Readonly<Record<Algorithm, "secret" | "public">> = {
  "hmac-sha256": "secret",
  ed25519: "public",
};

/** The name of the key that a file of this name holds, or null when it is no `<name>.json`. */
export function keyName(file: string): string | null {
  if (!file.endsWith(".json")) return null;
  const name = file.slice(0, -".json".length);
  return isId(name) ? name : null;
}

/**
 * Reads a key file.
 *
 * @param name the file's name without `.json`
 */
export function parseKeyFile(name: string, bytes: Uint8Array): ParsedKey {
  const parsed = parseStrictJson(bytes, LIMITS);
  if (!parsed.ok) return wrong("it is not one strict JSON text of at most 4096 bytes");
  const { value } = parsed;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return wrong("it holds no object");
  }
  const { alg, agent, note } = value;
  if (!isAlgorithm(alg)) return wrong(`alg must be one of ${ALGORITHMS.join(", ")}`);
  const material = MATERIAL[alg];
  const fields = ["alg", "agent", material, "not_before", "not_after", "note"];
  if (Object.keys(value).some((field) => !fields.includes(field))) {
    return wrong(`it has a field besides ${fields.join(", ")}`);
  }
  if (!isId(agent)) return wrong("agent must be the name of an agent");
  const from = bound(value["not_before"]);
  const to = bound(value["not_after"]);
  if (from === undefined || to === undefined) {
    return wrong(`not_before and not_after must be ${INSTANT_WORDS}`);
  }
  if (from !== null && to !== null && from > to) return wrong("not_before is after not_after");
  if (note !== undefined && (typeof note !== "string" || note.length > NOTE_MAX)) {
    return wrong(`note must be a text of at most ${NOTE_MAX} characters`);
  }
  const verifying = keyOf(alg, value[material]);
  if (typeof verifying === "string") return wrong(verifying);
  const open = value["public"];
  return {
    ok: true,
    key: Object.freeze({
      ...verifying,
      name,
      agent,
      not_before_ms: from,
      not_after_ms: to,
      public: alg === "ed25519" && typeof open === "string" ? open : null,
      note: note ?? null,
    }),
  };
}

/** The key, or what is wrong with it. */
function keyOf(alg: Algorithm, text: Json | undefined): VerifyingKey | string {
  switch (alg) {
    case "hmac-sha256":
      return typeof text === "string" && SECRET.test(text)
        ? hmacKey(text)
        : "secret must be 32 to 128 of A-Z a-z 0-9 + / = _ -";
    case "ed25519":
      return (typeof text === "string" ? ed25519Key(text) : null) ??
        "public must be the 32 bytes of an Ed25519 public key in lower-case hex";
  }
}

/** Milliseconds, null when there is no bound, undefined when it is none. */
function bound(value: Json | undefined): number | null | undefined {
  if (value === undefined) return null;
  return typeof value === "string" ? parseInstant(value) ?? undefined : undefined;
}

function wrong(why: string): ParsedKey {
  return { ok: false, why };
}
