/**
 * Stage `spend`: what a request would be granted, against the request's own envelope, the policy's
 * limit for one request, and what is left of the agent's day.
 *
 * 1. What waits holds its grant, so requests that wait together cannot overshoot together; in the
 *    turn of the start the day is looked at once more.
 * 2. The request's `max_spend` only narrows. Without it the grant is the policy's `per_request`, or
 *    the verb's fixed cost.
 * 3. A policy without `limits.spend` grants nothing.
 * 4. A run that took more than its grant ends the spending of its agent for that day.
 *
 * @module
 */
import { amountText, ceilAmount, floorAmount } from "../policy/amount.ts";
import type { Limits, VerbPolicy } from "../policy/policy.ts";
import { type Candidate, filled, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";

/** What a request would be granted, or why it gets nothing. */
export type Grant =
  | { readonly kind: "none" }
  | { readonly kind: "granted"; readonly amount: bigint }
  | { readonly kind: "refused"; readonly message: string; readonly hint: string };

/** True for a verb that spends. */
export function spends(verb: VerbPolicy): boolean {
  return verb.cost !== null || verb.takes_max_spend;
}

/** What one request of a verb is granted, whatever the day has seen. */
export function grantFor(verb: VerbPolicy, limits: Limits, max_spend: number | null): Grant {
  if (!spends(verb)) return { kind: "none" };
  if (limits.spend === null) {
    return {
      kind: "refused",
      message: `The verb "${verb.name}" spends, and the policy grants nothing to spend`,
      hint: "A human adds limits.spend to the policy",
    };
  }
  const most = floorAmount(limits.spend.per_request);
  const own = max_spend === null ? null : floorAmount(max_spend);
  if (verb.cost === null) {
    return { kind: "granted", amount: own === null || own > most ? most : own };
  }
  const cost = ceilAmount(verb.cost);
  if (cost > most) {
    return {
      kind: "refused",
      message: `The verb "${verb.name}" costs ${amountText(cost)}; one request may spend ` +
        amountText(most),
      hint: "A human raises limits.spend.per_request in the policy",
    };
  }
  if (own !== null && cost > own) {
    return {
      kind: "refused",
      message: `The verb "${verb.name}" costs ${amountText(cost)}; the request's own max_spend ` +
        `is ${amountText(own)}`,
      hint: `Ask whoever limited the request; "max_spend": ${amountText(cost)} would allow it`,
    };
  }
  return { kind: "granted", amount: cost };
}

/**
 * Why an agent's day has no room for an amount, or null.
 *
 * @param day what was spent and reserved on it, and what waiting requests hold
 */
export function dayRefuses(
  amount: bigint,
  limits: Limits,
  day: { readonly spent: bigint; readonly blocked: boolean; readonly held: bigint },
): { message: string; hint: string } | null {
  if (day.blocked) {
    return {
      message: "A command took more than it was granted; nothing that spends starts today",
      hint: "Tell the person who runs the host; the next day (UTC) begins anew",
    };
  }
  const most = floorAmount(limits.spend?.per_day ?? 0);
  const taken = day.spent + day.held;
  if (taken + amount <= most) return null;
  return {
    message: `It would spend ${amountText(amount)}; ${amountText(taken)} of ` +
      `${amountText(most)} for this day are spent, reserved or held`,
    hint: "Wait for the next day (UTC), or ask the person who runs the host",
  };
}

/** Stage `spend`. */
export function spend(c: Candidate, deps: GateDeps): Verdict {
  if (c.builtin !== undefined) return PASS;
  const verb = filled(c.verb, "verb");
  const request = filled(c.request, "request");
  const grant = grantFor(verb, deps.limits, request.max_spend ?? null);
  if (grant.kind === "none") return PASS;
  if (grant.kind === "refused") {
    return refuse("spend", "spend-exceeded", grant.message, grant.hint);
  }
  const full = dayRefuses(grant.amount, deps.limits, deps.spent(c.claim.agent));
  if (full !== null) return refuse("spend", "spend-exceeded", full.message, full.hint);
  c.grant = grant.amount;
  return PASS;
}
