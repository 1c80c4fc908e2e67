/**
 * The envelope of a signed request: the request as a text, and the signature over exactly this
 * text. Nothing here looks at what the text says.
 *
 * @module
 */
import { isId, printable } from "../names.ts";
import type { Json } from "./request.ts";

/** The algorithms that are served. */
export const ALGORITHMS = ["hmac-sha256", "ed25519"] as const;

export type Algorithm = (typeof ALGORITHMS)[number];

/** Hexadecimal digits of a signature. */
export const SIGNATURE_DIGITS: Readonly<Record<Algorithm, number>> = Object.freeze({
  "hmac-sha256": 64,
  ed25519: 128,
});

/** A signed request before its signature was judged. */
export interface Envelope {
  /** The signed text; its UTF-8 bytes are what was signed. */
  readonly payload: string;
  readonly alg: Algorithm;
  /** Name of the key, as the sender gives it. */
  readonly key: string;
  /** Lower-case hexadecimal digits, as many as a signature of some algorithm has. */
  readonly sig: string;
}

/** The outcome. `plain`: an object that does not try to be an envelope. */
export type ParsedEnvelope =
  | { readonly kind: "envelope"; readonly envelope: Envelope }
  | { readonly kind: "plain" }
  | { readonly kind: "wrong"; readonly message: string; readonly hint: string };

const SIG = /^(?:[0-9a-f]{64}|[0-9a-f]{128})$/;
const FORM = '{"payload": "<the request as text>", "auth": {"alg": "...", "key": "...", "sig": ' +
  '"<lower-case hex>"}}';

/** True for the name of an algorithm that is served. */
export function isAlgorithm(value: unknown): value is Algorithm {
  return ALGORITHMS.some((name) => name === value);
}

/** Checks the shape of an envelope: exactly its fields, each of its type and form. */
export function parseEnvelope(value: Json): ParsedEnvelope {
  if (!isObject(value)) return wrong("The request is not an object");
  const has = (name: string) => Object.hasOwn(value, name);
  if (!has("payload") && !has("auth")) return { kind: "plain" };
  const surplus = Object.keys(value).find((name) => name !== "payload" && name !== "auth");
  if (surplus !== undefined) {
    return wrong(`Unknown field "${printable(surplus, 64)}" beside payload and auth`);
  }
  const { payload, auth } = value;
  if (typeof payload !== "string" || payload === "") {
    return wrong('Field "payload" must be the request as a string');
  }
  if (auth === undefined || !isObject(auth)) return wrong('Field "auth" must be an object');
  const unknown = Object.keys(auth).find((name) => !["alg", "key", "sig"].includes(name));
  if (unknown !== undefined) return wrong(`Unknown field "auth.${printable(unknown, 64)}"`);
  const { alg, key, sig } = auth;
  if (!isAlgorithm(alg)) return wrong(`Field "auth.alg" must be one of ${ALGORITHMS.join(", ")}`);
  if (!isId(key)) return wrong('Field "auth.key" must be the name of a key');
  if (typeof sig !== "string" || !SIG.test(sig)) {
    return wrong('Field "auth.sig" must be 64 or 128 lower-case hexadecimal digits');
  }
  return { kind: "envelope", envelope: Object.freeze({ payload, alg, key, sig }) };
}

function isObject(value: Json): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function wrong(message: string): ParsedEnvelope {
  return { kind: "wrong", message, hint: `A signed request is ${FORM}` };
}
