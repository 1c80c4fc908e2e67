/**
 * The stages that look at the entry and not yet at what it says: kill switch, object, name, read.
 *
 * @module
 */
import type { Refusal } from "../errors.ts";
import { printable } from "../names.ts";
import { type Candidate, type GateDeps, PASS, refuse, type Verdict } from "./candidate.ts";

/** The answer while a kill switch is up. */
export function killedRefusal(stage: "kill" | "recheck", up: string): Refusal {
  return {
    stage,
    reason: "killed",
    message: `The kill switch ${printable(up)} is up; nothing starts`,
    hint: "A human lowers it on the host with chb resume; only then send the request again",
  };
}

/**
 * Stage `kill`. While a switch is up every entry that could still become a request is answered
 * here; what can never become one goes on to the stage that removes it.
 */
export function kill(c: Candidate, deps: GateDeps): Verdict {
  const up = deps.kill(c.claim.agent);
  if (up === null) return PASS;
  if (c.claim.id === null || object(c, deps).kind === "refuse") return PASS;
  return { kind: "refuse", refusal: killedRefusal("kill", up) };
}

/** Stage `object`: type, links, owner and size, without opening anything. */
export function object(c: Candidate, deps: GateDeps): Verdict {
  const { look } = c.claim;
  const detail = deps.objectRefusal(look, Number.MAX_SAFE_INTEGER, deps.owners(c.claim.agent));
  if (detail !== null) {
    return refuse(
      "object",
      "not-regular",
      `The entry is not a plain file of its own: ${detail}`,
      "Write a regular file with one link, owned by the sandbox's user",
    );
  }
  if (look.size > deps.limits.request_bytes) {
    return refuse(
      "object",
      "malformed",
      `The request has ${look.size} bytes; the limit is ${deps.limits.request_bytes}`,
      "Send a smaller request; large data does not travel through the queue",
    );
  }
  return PASS;
}

/** Stage `name`: `<id>.json` and nothing else. */
export function name(c: Candidate, _deps: GateDeps): Verdict {
  if (c.claim.id !== null) return PASS;
  return refuse(
    "name",
    "bad-name",
    `The name "${printable(c.claim.name, 120)}" is not <id>.json`,
    "An id is 1 to 64 of a-z 0-9 - _ and starts with a letter or digit",
  );
}

/** Stage `read`: the bytes, bounded, once; everything later acts on this buffer only. */
export function read(c: Candidate, deps: GateDeps): Verdict {
  const outcome = deps.read(c.claim, deps.limits.request_bytes);
  if (outcome.kind === "refused") {
    return refuse(
      "read",
      outcome.reason,
      `The entry cannot be read: ${outcome.detail}`,
      "Write a temporary name, close it, then rename it to <id>.json",
    );
  }
  c.bytes = outcome.bytes;
  c.request_sha256 = deps.sha256(outcome.bytes);
  return PASS;
}
