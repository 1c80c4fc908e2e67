/**
 * The stages that decide whether this agent may ask for this verb with these arguments: denial,
 * allow, args, scope.
 *
 * Every branch starts at no. A request permits itself nothing: its envelope can only narrow.
 *
 * @module
 */
import { builtinArgs, BUILTINS, isBuiltin } from "../surface.ts";
import { checkArgs } from "../policy/check_args.ts";
import { deniedVerb } from "../policy/denials.ts";
import { CLASSES } from "../policy/policy.ts";
import { suggest } from "../policy/suggest.ts";
import { printable } from "../names.ts";
import { type Candidate, filled, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";

/** Stage `denial`: names that no policy can give to an agent. */
export function denial(c: Candidate, _deps: GateDeps): Verdict {
  const verb = filled(c.request, "request").verb;
  if (isBuiltin(verb)) return PASS;
  const rule = deniedVerb(verb);
  if (rule === null) return PASS;
  return refuse(
    "denial",
    "denied-verb",
    `The verb "${printable(verb, 80)}" is refused here whatever the policy says (${rule})`,
    "Use a verb of inbox/catalogue.json",
  );
}

/** Stage `allow`: the verb must stand in the policy's table for this agent. */
export function allow(c: Candidate, deps: GateDeps): Verdict {
  const name = filled(c.request, "request").verb;
  if (isBuiltin(name)) {
    c.builtin = name;
    return PASS;
  }
  if (deps.policy === null) {
    return refuse(
      "base",
      "base-changed",
      "The host has not trusted its policy yet; a human runs: chb trust",
      "Ask the person who runs the host; the built-in verbs work meanwhile",
    );
  }
  const allowed = deps.agentPolicy(c.claim.agent)?.verbs ?? [];
  const verb = allowed.includes(name) ? deps.policy.verbs.get(name) : undefined;
  if (verb === undefined) {
    const near = suggest(name, [...allowed, ...BUILTINS]);
    return refuse(
      "allow",
      "unknown-verb",
      `No verb "${printable(name, 80)}" here`,
      `${near === null ? "" : `Did you mean "${near}"? `}All verbs: inbox/catalogue.json`,
    );
  }
  c.verb = verb;
  return PASS;
}

/** Stage `args`: every argument of its declared type, none missing, none unknown. */
export function args(c: Candidate, deps: GateDeps): Verdict {
  const request = filled(c.request, "request");
  if (c.builtin !== undefined) {
    const wrong = builtinArgs(c.builtin, request.args);
    return wrong === null ? PASS : refuse("args", "bad-args", wrong.message, wrong.hint);
  }
  const verb = filled(c.verb, "verb");
  const checked = checkArgs(verb, request.args);
  if (!checked.ok) return refuse("args", "bad-args", checked.message, checked.hint);
  const wrong = deps.pathArgs(verb, checked.args);
  if (wrong !== null) return refuse("args", "bad-args", wrong.message, wrong.hint);
  c.args = checked.args;
  c.digest = deps.requestDigest({
    verb: verb.name,
    args: checked.args,
    scope: request.scope ?? null,
    max_spend: request.max_spend ?? null,
  });
  return PASS;
}

/** Stage `scope`: the verb's class against the agent's scope and the request's own envelope. */
export function scope(c: Candidate, deps: GateDeps): Verdict {
  const need = c.builtin === undefined ? filled(c.verb, "verb").class : "observe";
  const request = filled(c.request, "request");
  const own = request.scope ?? "destructive";
  const agent = deps.agentPolicy(c.claim.agent)?.scope ?? "observe";
  if (CLASSES.indexOf(need) > CLASSES.indexOf(agent)) {
    return refuse(
      "scope",
      "scope-exceeded",
      `The verb is ${need}; this agent's scope is ${agent}`,
      "A human widens the agent's scope in the policy, or the agent uses another verb",
    );
  }
  if (CLASSES.indexOf(need) > CLASSES.indexOf(own)) {
    return refuse(
      "scope",
      "scope-exceeded",
      `The verb is ${need}; the request's own scope is ${own}`,
      `Ask whoever limited the request; "scope": "${need}" would allow it`,
    );
  }
  return PASS;
}
