/**
 * Whether a signature holds. Pure: keys are handed in.
 *
 * Rules
 * 1. The algorithm is the key's own. What a request says of it is compared with that and never
 *    used, so no public key is ever taken for a secret.
 * 2. Two codes are compared in constant time; a signature of the wrong length never gets that far.
 * 3. Only the bytes that were handed in are judged; nothing is normalised, trimmed or decoded.
 * 4. Public keys of small order are no keys: with them everything has a valid signature.
 * 5. A key is an opaque handle from the moment it was read: it turns into no text and no JSON.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import {
  createHmac,
  createPublicKey,
  createSecretKey,
  type KeyObject,
  timingSafeEqual,
  verify,
} from "node:crypto";
import { type Algorithm, SIGNATURE_DIGITS } from "./envelope.ts";

/** A key, by which algorithm it is used. */
export interface VerifyingKey {
  readonly alg: Algorithm;
  readonly key: KeyObject;
}

/** What stands before the 32 bytes of an Ed25519 public key in its DER form (RFC 8410). */
const SPKI_ED25519 = Buffer.from("302a300506032b6570032100", "hex");

/** Points of small order, and their other encodings, without the sign bit. */
const SMALL_ORDER: ReadonlySet<string> = new Set([
  "0000000000000000000000000000000000000000000000000000000000000000",
  "0100000000000000000000000000000000000000000000000000000000000000",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
  "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]);

/** A secret for HMAC-SHA-256: the key is the text's bytes as they stand. */
export function hmacKey(secret: string): VerifyingKey {
  return { alg: "hmac-sha256", key: createSecretKey(Buffer.from(secret, "utf-8")) };
}

/**
 * An Ed25519 public key.
 *
 * @param hex its 32 bytes in lower-case hex
 * @returns null when it is none, or none that proves anything
 */
export function ed25519Key(hex: string): VerifyingKey | null {
  if (!/^[0-9a-f]{64}$/.test(hex)) return null;
  const bytes = Buffer.from(hex, "hex");
  const unsigned = Buffer.from(bytes);
  unsigned[31] = (unsigned[31] ?? 0) & 0x7f;
  if (SMALL_ORDER.has(unsigned.toString("hex"))) return null;
  try {
    const der = Buffer.concat([SPKI_ED25519, bytes]);
    return { alg: "ed25519", key: createPublicKey({ key: der, format: "der", type: "spki" }) };
  } catch {
    return null;
  }
}

/**
 * True when `sig` is this key's signature over exactly these bytes.
 *
 * @param sig lower-case hex
 */
export function signatureHolds(key: VerifyingKey, bytes: Uint8Array, sig: string): boolean {
  if (sig.length !== SIGNATURE_DIGITS[key.alg] || !/^[0-9a-f]+$/.test(sig)) return false;
  const given = Buffer.from(sig, "hex");
  if (key.alg === "hmac-sha256") {
    const own = createHmac("sha256", key.key).update(bytes).digest();
    return own.length === given.length && timingSafeEqual(own, given);
  }
  try {
    return verify(null, bytes, key.key, given);
  } catch {
    // A key or signature that the library cannot even try proves nothing.
    return false;
  }
}
