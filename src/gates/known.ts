/**
 * The stages that ask what is already known of a request: its age, and whether it was seen before.
 *
 * A key or an id that is bound belongs to one request for as long as the ledger remembers it:
 *
 * 1. The same id, key and digest is the same request again: its row answers (Q1).
 * 2. The same key and digest under another id joins the row; it never runs again.
 * 3. A bound id or key with anything else is a conflict (Q2).
 *
 * The same bytes count as the same request even when policy has changed in the meantime.
 *
 * For a signed request, besides:
 *
 * 4. Its row answers however old the signature is; without one, bytes that were carried out before
 *    are refused, and so are bytes outside the window: neither can start, nor join a row.
 *
 * @module
 */
import type { Row } from "../ledger/types.ts";
import { checkArgs } from "../policy/check_args.ts";
import { type Candidate, filled, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";
import { carriedOut, replayed, stale } from "./signed.ts";

/** Ids that one row may be known under. */
export const MAX_IDS = 32;

/** The wall-clock time after which a request must not start, milliseconds. */
export function expiresAt(c: Candidate, deps: GateDeps): number {
  const own = filled(c.request, "request").max_age_s ?? Infinity;
  return c.claim.arrival_ms + Math.min(own, deps.limits.max_age_s) * 1000;
}

/** Stage `fresh`: the request must not be older than its limit, by the host's arrival time. */
export function fresh(c: Candidate, deps: GateDeps): Verdict {
  if (c.now_ms <= expiresAt(c, deps)) return PASS;
  const age = Math.round((c.now_ms - c.claim.arrival_ms) / 1000);
  return refuse(
    "fresh",
    "expired",
    `The request waited ${age} s, longer than its age limit`,
    "If it is still wanted, send it again under a new id and key",
  );
}

/** The digest of a candidate under the policy in force, or null when it does not check. */
function digestNow(c: Candidate, deps: GateDeps): string | null {
  const request = filled(c.request, "request");
  const verb = deps.policy?.verbs.get(request.verb);
  if (verb === undefined) return null;
  const checked = checkArgs(verb, request.args);
  if (!checked.ok) return null;
  return deps.requestDigest({
    verb: request.verb,
    args: checked.args,
    scope: request.scope ?? null,
    max_spend: request.max_spend ?? null,
  });
}

function conflict(what: "id" | "idempotency_key", value: string, row: Row): Verdict {
  return refuse(
    "replay",
    "key-conflict",
    `The ${what} "${value}" belongs to another request (verb "${row.verb}", state ${row.state})`,
    "Use a new id and a new idempotency_key for a new request",
  );
}

/** Stage `replay`: a known request is answered from the ledger and never runs again. */
export function replay(c: Candidate, deps: GateDeps): Verdict {
  const agent = c.claim.agent;
  const id = filled(c.claim.id ?? undefined, "id");
  const key = filled(c.key, "key");
  const byId = deps.rowById(agent, id);
  if (byId === null && carriedOut(c, deps)) return replayed();
  const row = byId ?? deps.rowByKey(agent, key);
  if (row === null) return stale(c, deps);
  const same = row.request_sha256 === c.request_sha256 || row.digest === digestNow(c, deps);
  if (byId !== null) {
    if (!same || byId.key !== key) return conflict("id", id, byId);
    return { kind: "replay", row: byId, join: false };
  }
  if (!same) return conflict("idempotency_key", key, row);
  const old = stale(c, deps);
  if (old.kind !== "pass") return old;
  if (deps.countIds(row.rid) >= MAX_IDS) {
    return refuse(
      "replay",
      "busy",
      `The request is already known under ${MAX_IDS} ids`,
      `Read results/${row.id}.json instead of sending it again`,
    );
  }
  return { kind: "replay", row, join: true };
}
