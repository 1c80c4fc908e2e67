/**
 * The stages that weigh a request against what goes on: rate, base, approval.
 *
 * @module
 */
import { type Candidate, filled, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";

/**
 * Stage `rate`: starts of this class in its window, then the number of requests that wait. What
 * waits for a slot counts as started: otherwise whoever sends faster than slots become free has any
 * number let in, and all of them start in one window.
 */
export function rate(c: Candidate, deps: GateDeps): Verdict {
  if (c.builtin !== undefined) return PASS;
  const agent = c.claim.agent;
  const cls = filled(c.verb, "verb").class;
  const rule = deps.limits.rate[cls];
  if (rule !== undefined) {
    const window_ms = rule.per_s * 1000;
    const { count, oldest_ms } = deps.starts(agent, cls, c.now_ms - window_ms);
    if (count >= rule.max) {
      const wait = Math.max(1, (oldest_ms ?? c.now_ms) + window_ms - c.now_ms);
      return refuse(
        "rate",
        "rate-limited",
        `${count} ${cls} requests wait or were started in the last ${rule.per_s} s; ` +
          `the limit is ${rule.max}`,
        "Wait retry_after_ms, then send the same request again",
        wait,
      );
    }
  }
  const waiting = deps.waiting(agent);
  if (waiting >= deps.limits.waiting) {
    return refuse(
      "rate",
      "busy",
      `${waiting} requests of this agent are waiting; the limit is ${deps.limits.waiting}`,
      "Wait for some of them to finish, then send the same request again",
      1000,
    );
  }
  return PASS;
}

/** Stage `base`: programs and required files must be those that a human trusted. */
export function base(c: Candidate, deps: GateDeps): Verdict {
  if (c.builtin !== undefined) return PASS;
  const verb = filled(c.verb, "verb");
  if (!deps.granted(verb.program)) {
    return refuse(
      "base",
      "base-changed",
      `The daemon runs since before ${verb.program} was trusted, and may not run it`,
      "A human ends ./bin/chb serve on the host and starts it again",
    );
  }
  const changed = deps.baseChanged(verb);
  if (changed === null) return PASS;
  return refuse(
    "base",
    "base-changed",
    `Changed since a human trusted it: ${changed}`,
    "A human looks at the change on the host and runs: chb trust",
  );
}

/**
 * Stage `approval`. A verb that needs a human's word gets none from this version, which has no
 * way to ask for it: the answer is no, before anything is bound.
 */
export function approval(c: Candidate, _deps: GateDeps): Verdict {
  if (c.builtin !== undefined) return PASS;
  const verb = filled(c.verb, "verb");
  const request = filled(c.request, "request");
  if (verb.approval === "when-planned" && request.plan === undefined) {
    return refuse(
      "approval",
      "schema",
      `The verb "${verb.name}" needs a plan for the person who approves it`,
      'Send it with "plan": "what will be done and why"',
    );
  }
  if (verb.approval === "never") return PASS;
  return refuse(
    "approval",
    "unavailable",
    `The verb "${verb.name}" needs a human's approval, which this version cannot ask for`,
    "Ask the person who runs the host to run it",
  );
}
