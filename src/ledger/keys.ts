/**
 * The digest that tells two requests apart: what a request would do, and nothing of how it was
 * sent. Two requests have the same digest exactly when they name the same verb with the same
 * checked arguments, the same scope and the same spending limit; id, note, plan, limits of time
 * and signature do not count, so that a repeated request is recognised whatever it is called (Q1,
 * Q2).
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { CheckedArgs, Class } from "../policy/policy.ts";

/** What the digest covers. A scope or limit that the request does not name is null or absent. */
export interface DigestInput {
  readonly verb: string;
  /** Checked arguments, defaults filled in. The order of the keys has no influence. */
  readonly args: CheckedArgs;
  readonly scope?: Class | null | undefined;
  readonly max_spend?: number | null | undefined;
}

/**
 * SHA-256, lower-case hex, of the canonical form: the JSON array of a version mark, the verb, the
 * arguments as `[name, value]` pairs sorted by UTF-16 code units, the scope and the limit. JSON
 * quotes every text and types every value, so no two inputs share a form.
 *
 * @throws {TypeError} when a value is not a finite number, a string or a boolean
 */
export function requestDigest(input: DigestInput): string {
  const pairs = Object.entries(input.args).map(([name, value]) => {
    const typed: unknown = value;
    if (
      typeof typed !== "string" && typeof typed !== "boolean" &&
      !(typeof typed === "number" && Number.isFinite(typed))
    ) {
      throw new TypeError(`Cannot digest request: argument "${name}" has no canonical form`);
    }
    return [name, typed] as const;
  }).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const spend = input.max_spend ?? null;
  if (spend !== null && !Number.isFinite(spend)) {
    throw new TypeError("Cannot digest request: max_spend has no canonical form");
  }
  const form = JSON.stringify(["chb-request-1", input.verb, pairs, input.scope ?? null, spend]);
  return createHash("sha256").update(form).digest("hex");
}
