/**
 * What is different for an agent that signs: the envelope, the signature, the payload, and how old
 * its words are.
 *
 * Rules
 * 1. Nothing of the payload is parsed before its signature holds; until then it is bytes.
 * 2. What is acted upon later comes out of exactly the bytes that were signed.
 * 3. The key decides the algorithm and the agent; the request's own word on either is only compared.
 *    The name of a key of another agent is answered like a name that nobody has.
 * 4. When a key is valid is told only to who holds it: the signature is judged first.
 * 5. How old it is is judged last, after the ledger was asked: a repeated request is answered with
 *    its result however late it comes, and an old one that was never carried out never will be.
 *
 * @module
 */
import { parseEnvelope } from "../request/envelope.ts";
import { parseRequest } from "../request/parse_request.ts";
import type { SigningKey } from "../request/key_file.ts";
import { signatureHolds } from "../request/signature.ts";
import { parseStrictJson } from "../request/strict_json.ts";
import { isoTime } from "../result.ts";
import { type Candidate, filled, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";

/** True when this agent must sign what it asks. */
export function mustSign(c: Candidate, deps: GateDeps): boolean {
  return deps.agentPolicy(c.claim.agent)?.auth === "signed";
}

/** Stage `schema` for an agent that signs: the envelope's, and nothing of the payload's. */
export function envelopeSchema(c: Candidate, _deps: GateDeps): Verdict {
  const parsed = parseEnvelope(filled(c.value, "value"));
  switch (parsed.kind) {
    case "wrong":
      return refuse("schema", "schema", parsed.message, parsed.hint);
    case "envelope":
      c.envelope = parsed.envelope;
      return PASS;
    case "plain":
      // An unsigned request is no business of this stage: `auth` says what it lacks.
      return PASS;
  }
}

/** Stage `auth` for an agent that signs. */
export function signature(c: Candidate, deps: GateDeps): Verdict {
  const { envelope } = c;
  if (envelope === undefined) {
    return unauthenticated(
      "The request is not signed, and this agent must sign what it asks",
      "Send {payload, auth} with a signature by one of this agent's keys; the helper signs when " +
        "CHB_KEY_FILE names the key file",
    );
  }
  const key = deps.signingKey(c.claim.agent, envelope.key);
  if (key === null) {
    return unauthenticated(
      `This agent has no key "${envelope.key}"`,
      "Use a key that a human on the host made for this agent: chb key new",
    );
  }
  if (key.alg !== envelope.alg) {
    return unauthenticated(
      `The key "${key.name}" is not one for ${envelope.alg}`,
      "Name the algorithm that the key was made for",
    );
  }
  const bytes = new TextEncoder().encode(envelope.payload);
  if (!signatureHolds(key, bytes, envelope.sig)) {
    return unauthenticated(
      `The signature by "${key.name}" does not hold over the bytes of payload`,
      "Sign exactly the UTF-8 bytes of payload, without a newline at the end",
    );
  }
  const when = outOfTime(key, c.now_ms);
  if (when !== null) {
    return unauthenticated(when, "Use a key that is valid now, or ask a human for one");
  }
  c.signed = { key: key.name, bytes, sha256: deps.sha256(bytes) };
  return PASS;
}

/** Why a key is not valid at a moment, or null. Both bounds are included. */
function outOfTime(key: SigningKey, now_ms: number): string | null {
  if (key.not_before_ms !== null && now_ms < key.not_before_ms) {
    return `The key "${key.name}" is not valid before ${isoTime(key.not_before_ms)}`;
  }
  if (key.not_after_ms !== null && now_ms > key.not_after_ms) {
    return `The key "${key.name}" was valid until ${isoTime(key.not_after_ms)}`;
  }
  return null;
}

/** Stage `parse` for the payload of a signature that holds. */
export function payloadParse(c: Candidate, deps: GateDeps): Verdict {
  if (c.signed === undefined) return PASS;
  const { depth, keys, string_bytes, request_bytes } = deps.limits;
  const parsed = parseStrictJson(c.signed.bytes, {
    bytes: request_bytes,
    depth,
    keys,
    string_bytes,
  });
  if (!parsed.ok) {
    return refuse("parse", "malformed", `In payload: ${parsed.message}`, parsed.hint);
  }
  c.value = parsed.value;
  return PASS;
}

/** Stage `schema` for the payload of a signature that holds, and whose words they are. */
export function payloadSchema(c: Candidate, deps: GateDeps): Verdict {
  if (c.signed === undefined) return PASS;
  const { agent } = c.claim;
  const id = filled(c.claim.id ?? undefined, "id");
  const parsed = parseRequest(filled(c.value, "value"), { id, signed: true });
  if (!parsed.ok) {
    // These bytes were in order once, so it is the name that is not theirs.
    if (carriedOut(c, deps)) return replayed();
    return refuse("schema", "schema", `In payload: ${parsed.message}`, parsed.hint);
  }
  const { request } = parsed;
  if (request.agent !== agent) {
    return unauthenticated(
      `The payload is signed for another agent than "${agent}"`,
      "Sign a payload with this agent's own name",
    );
  }
  c.request = request;
  c.key = request.idempotency_key ?? id;
  return PASS;
}

/** True when these very bytes were carried out for this agent, under whatever name. */
export function carriedOut(c: Candidate, deps: GateDeps): boolean {
  return c.signed !== undefined && deps.carriedOut(c.claim.agent, c.signed.sha256);
}

/** The answer to bytes that were carried out and whose result is not known by this name. */
export function replayed(): Verdict {
  return refuse(
    "replay",
    "replayed-request",
    "These signed bytes were carried out before",
    "Sign a new request with a new id and a new created_at",
  );
}

/** Whether a signed request is too old, or too new, to be carried out. */
export function stale(c: Candidate, deps: GateDeps): Verdict {
  if (c.signed === undefined) return PASS;
  const created_ms = filled(filled(c.request, "request").created_ms, "created_at");
  const window_s = deps.agentPolicy(c.claim.agent)?.signature_window_s ?? 0;
  const off_ms = c.claim.arrival_ms - created_ms;
  if (Math.abs(off_ms) <= window_s * 1000) return PASS;
  const off_s = Math.ceil(Math.abs(off_ms) / 1000);
  return refuse(
    "replay",
    "stale-signature",
    `created_at is ${off_s} s ${off_ms > 0 ? "before" : "after"} the arrival at ` +
      `${isoTime(Math.round(c.claim.arrival_ms))}; the window is ${window_s} s`,
    "Sign it again with created_at of now; when that does not help, the clocks differ",
  );
}

function unauthenticated(message: string, hint: string): Verdict {
  return refuse("auth", "unauthenticated", message, hint);
}
