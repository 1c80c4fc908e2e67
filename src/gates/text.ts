/**
 * The stages that turn bytes into a typed request: parse, schema, auth. For an agent that signs they
 * judge the envelope, and `signed.ts` what is in it.
 *
 * @module
 */
import { parseRequest } from "../request/parse_request.ts";
import { parseStrictJson } from "../request/strict_json.ts";
import { type Candidate, filled, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";
import { envelopeSchema, mustSign, signature } from "./signed.ts";

/** Stage `parse`: one JSON text within the limits. */
export function parse(c: Candidate, deps: GateDeps): Verdict {
  const parsed = parseStrictJson(filled(c.bytes, "content"), {
    bytes: deps.limits.request_bytes,
    depth: deps.limits.depth,
    keys: deps.limits.keys,
    // A signed request is one string of the envelope; its own strings are judged with the payload.
    string_bytes: mustSign(c, deps) ? deps.limits.request_bytes : deps.limits.string_bytes,
  });
  if (!parsed.ok) return refuse("parse", "malformed", parsed.message, parsed.hint);
  c.value = parsed.value;
  return PASS;
}

/** Stage `schema`: exact fields of exact types. */
export function schema(c: Candidate, deps: GateDeps): Verdict {
  if (mustSign(c, deps)) return envelopeSchema(c, deps);
  const id = filled(c.claim.id ?? undefined, "id");
  const parsed = parseRequest(filled(c.value, "value"), { id });
  if (!parsed.ok) return refuse("schema", "schema", parsed.message, parsed.hint);
  c.request = parsed.request;
  c.key = parsed.request.idempotency_key ?? id;
  return PASS;
}

/**
 * Stage `auth`. Under `placement` the right to write into the queue is the credential, and it was
 * used to get here; under `signed` a signature must hold. Anything else is refused: no agent without
 * a policy that says how it proves itself gets past this stage, but for the built-in verbs of a host
 * without a trusted policy.
 */
export function auth(c: Candidate, deps: GateDeps): Verdict {
  const agent = deps.agentPolicy(c.claim.agent);
  if (agent === null && deps.policy === null) return PASS;
  if (agent?.auth === "placement") return PASS;
  if (agent?.auth === "signed") return signature(c, deps);
  return refuse(
    "auth",
    "unauthenticated",
    "The policy does not say how this agent proves who it is",
    "A human adds the agent to the policy and trusts it",
  );
}
