/**
 * The order of checks. This module alone owns it.
 *
 * Rules that the order keeps:
 *
 * 1. The first stage that refuses answers; later ones are not asked.
 * 2. No stage before `read` opens anything; no stage after it looks at the file again (P2, P5).
 * 3. Every stage up to `base` is bounded and none waits, so no entry delays another (Q5).
 * 4. A candidate that falls off the end without a verb or a built-in is refused: nothing is
 *    permitted by being forgotten.
 * 5. What a request asks is not read before it is known who asks: the text of a signed request is
 *    parsed after `auth`.
 * 6. Nothing is bound before every stage up to `base` has passed; a refusal here binds neither
 *    id nor key.
 *
 * `claim` comes before this module sees a candidate; `slot`, `recheck` and `start` come after it,
 * in the daemon, in the turn of the commit that starts the request.
 *
 * @module
 */
import type { Refusal } from "../errors.ts";
import type { Row } from "../ledger/types.ts";
import type { CheckedArgs, VerbPolicy } from "../policy/policy.ts";
import type { Candidate, GateDeps, Verdict } from "./candidate.ts";
import { kill, killedRefusal, name, object, read } from "./entry.ts";
import { fresh, replay } from "./known.ts";
import { approval, base, rate } from "./load.ts";
import { allow, args, denial, scope } from "./permit.ts";
import { payloadParse, payloadSchema } from "./signed.ts";
import { spend } from "./spend.ts";
import type { StageName } from "./stages.ts";
import { auth, parse, schema } from "./text.ts";

/** A stage: its name and the function that judges. */
export interface Stage {
  readonly name: StageName;
  readonly check: (candidate: Candidate, deps: GateDeps) => Verdict;
}

/** The stages from the claimed entry to the decision, in order. */
export const ORDER: readonly Stage[] = Object.freeze([
  { name: "kill", check: kill },
  { name: "object", check: object },
  { name: "name", check: name },
  { name: "read", check: read },
  { name: "parse", check: parse },
  { name: "schema", check: schema },
  { name: "auth", check: auth },
  // Of a signed request the first two have judged the envelope; its text is read only now.
  { name: "parse", check: payloadParse },
  { name: "schema", check: payloadSchema },
  { name: "fresh", check: fresh },
  { name: "replay", check: replay },
  { name: "denial", check: denial },
  { name: "allow", check: allow },
  { name: "args", check: args },
  { name: "scope", check: scope },
  { name: "spend", check: spend },
  { name: "rate", check: rate },
  { name: "base", check: base },
  { name: "approval", check: approval },
]);

/** What the gates decided about a candidate. */
export type Decision =
  | { readonly kind: "refused"; readonly refusal: Refusal }
  | { readonly kind: "replay"; readonly row: Row; readonly join: boolean }
  | { readonly kind: "builtin"; readonly name: string }
  | { readonly kind: "accepted" };

/**
 * Takes a candidate through every stage.
 *
 * @throws whatever a dependency throws; the caller answers `internal` for this candidate alone
 */
export function decide(candidate: Candidate, deps: GateDeps): Decision {
  for (const stage of ORDER) {
    const verdict = stage.check(candidate, deps);
    if (verdict.kind === "refuse") return { kind: "refused", refusal: verdict.refusal };
    if (verdict.kind === "replay") return verdict;
  }
  if (candidate.builtin !== undefined) return { kind: "builtin", name: candidate.builtin };
  if (
    candidate.verb !== undefined && candidate.args !== undefined && candidate.digest !== undefined
  ) {
    return { kind: "accepted" };
  }
  return {
    kind: "refused",
    refusal: {
      stage: "start",
      reason: "internal",
      message: "The request passed every check without being permitted by one",
      hint: "Tell the person who runs the host",
    },
  };
}

/**
 * The stage `recheck`, in the turn of the commit that starts a request: the kill switch and the
 * base once more, files that arguments name included (X8). A refusal here comes before any start
 * and releases the key.
 *
 * @param fit the verb and the arguments under the policy in force, or undefined when there are none
 */
export function recheck(
  agent: string,
  fit: { readonly verb: VerbPolicy; readonly args: CheckedArgs } | undefined,
  deps: Pick<GateDeps, "kill" | "baseChanged" | "pathArgs">,
): Refusal | null {
  const up = deps.kill(agent);
  if (up !== null) return killedRefusal("recheck", up);
  const changed = fit === undefined
    ? "the verb is gone from the policy"
    : deps.baseChanged(fit.verb) ?? deps.pathArgs(fit.verb, fit.args)?.path ?? null;
  if (changed === null) return null;
  return {
    stage: "recheck",
    reason: "base-changed",
    message: `Changed since a human trusted it: ${changed}`,
    hint: "A human looks at the change on the host and runs: chb trust",
  };
}
