/**
 * Makes a stored policy the one in force, with the identities of programs and files as a human has
 * just seen them.
 *
 * @module
 */
import type { FileIdentity } from "../policy/policy.ts";
import { type ControlCommand, once } from "./control_command.ts";
import { HASHES, loadPolicy } from "./trust_store.ts";

/** What `chb trust` hands over. */
export interface TrustArgs {
  /** SHA-256 of the policy stored in `state/policies/`. */
  readonly policy: string;
  readonly programs: readonly FileIdentity[];
  readonly requires: readonly (readonly [string, string])[];
  readonly bin_sha256: string;
  /** Path and SHA-256 of every file that was shown, for the next review. */
  readonly hashes: readonly (readonly [string, string])[];
}

export const controlTrust: ControlCommand<TrustArgs> = {
  name: "trust",
  parse(v) {
    const { policy, programs, requires, bin_sha256, hashes } = v;
    if (typeof policy !== "string" || !/^[0-9a-f]{64}$/.test(policy)) return null;
    if (typeof bin_sha256 !== "string") return null;
    if (!Array.isArray(programs) || !Array.isArray(requires)) return null;
    if (!Array.isArray(hashes)) return null;
    return { policy, programs, requires, bin_sha256, hashes };
  },
  apply(context, args) {
    // Throws when the stored policy is not what its name says: nothing is trusted then.
    const policy = loadPolicy(args.policy);
    const waiting = context.live?.core.trust.waiting(policy) ?? [];
    const answer = once(context, (tx) => {
      tx.setTrust({ ...args, at_ms: context.now(), by: context.by });
      tx.setMeta(HASHES, JSON.stringify(args.hashes));
      tx.append({
        event: "trusted",
        by: context.by,
        policy: args.policy,
        agents: policy.agents.size,
        verbs: policy.verbs.size,
        requires: args.requires,
        bin_sha256: args.bin_sha256,
        hashes: args.hashes,
        control: context.name,
      });
      return { ok: true, message: "applied", data: { waiting } };
    });
    context.live?.policyChanged();
    return answer;
  },
};
