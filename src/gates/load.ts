/**
 * The stages that weigh a request against what goes on: rate, base, approval.
 *
 * @module
 */
import { type Candidate, filled, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";

/**
 * Stage `rate`: starts of this class in its window, then the number of requests that wait.
 *
 * 1. The window is counted by the bridge's own clock, in the ledger: neither a restart nor a wall
 *    clock that is set opens it (N5, Q9). A start leaves it exactly `per_s` after it was made.
 * 2. What waits for a slot counts as started: otherwise whoever sends faster than slots become free
 *    has any number let in, and all of them start in one window.
 * 3. What waits for a human does not count: it blocks nobody, and each one that starts was let in
 *    by a human.
 */
export function rate(c: Candidate, deps: GateDeps): Verdict {
  if (c.builtin !== undefined) return PASS;
  const agent = c.claim.agent;
  const cls = filled(c.verb, "verb").class;
  const rule = deps.limits.rate[cls];
  if (rule !== undefined) {
    const window_ms = rule.per_s * 1000;
    const now = deps.tick();
    const since = now - window_ms;
    const count = deps.starts(agent, cls, since);
    if (count >= rule.max) {
      // The start that has to leave the window first. What waits has not even entered it.
      const last = deps.startTick(agent, cls, since, count - rule.max);
      const wait = last === null ? window_ms : Math.max(1, Math.ceil(last - since));
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
 * Stage `approval`: whether a human has to say yes before it starts. Here it is only decided that
 * the request waits for that; the word is asked for after it was bound, and held against what would
 * run in the turn of the start.
 */
export function approval(c: Candidate, _deps: GateDeps): Verdict {
  if (c.builtin !== undefined) return PASS;
  const verb = filled(c.verb, "verb");
  const request = filled(c.request, "request");
  // A plan without a visible character tells a person nothing: leaving it empty is leaving it out.
  if (verb.approval === "when-planned" && !/[^\s\p{C}]/u.test(request.plan ?? "")) {
    return refuse(
      "approval",
      "schema",
      `The verb "${verb.name}" needs a plan for the person who approves it`,
      'Send it with "plan": "what will be done and why"',
    );
  }
  c.needs_approval = verb.approval !== "never";
  return PASS;
}
