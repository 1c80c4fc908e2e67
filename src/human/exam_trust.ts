/**
 * Whether what a human trusted is what lies there now: the policy that people edit, the executable,
 * the verbs' programs and the files in `base/`.
 *
 * @module
 */
import type { Ledger } from "../ledger/ledger.ts";
import { policyPrograms } from "../policy/programs.ts";
import type { Finding } from "../spool/types.ts";
import { sha256, TrustStore } from "../daemon/trust_store.ts";
import { found } from "./exam.ts";

const TRUST = "./bin/chb trust";

/**
 * @param trust loaded from the ledger
 * @param edited digest of `bridge.jsonc`, or null when it cannot be read
 */
export function examTrust(ledger: Ledger, trust: TrustStore, edited: string | null): Finding[] {
  const current = ledger.currentTrust();
  const { policy } = trust;
  if (current === null || policy === null) {
    const message = "No policy was ever trusted: every verb is refused";
    return [found("warning", "untrusted", "bridge.jsonc", message, TRUST)];
  }
  const findings: Finding[] = [];
  if (edited !== null && edited !== current.policy) {
    const message = "It is not what is in force: it was edited since it was trusted";
    findings.push(found("warning", "edited", "bridge.jsonc", message, TRUST));
  }
  if (current.bin_sha256 !== sha256(Deno.readFileSync("bin/chb"))) {
    const message = "It is not the executable that a human trusted";
    findings.push(found("error", "bin-changed", "bin/chb", message, TRUST));
  }
  const known = new Set(policyPrograms(policy).filter((program) => trust.granted(program)));
  const told = new Set<string>();
  for (const verb of policy.verbs.values()) {
    // A program without permission has its own finding.
    if (!known.has(verb.program)) continue;
    const changed = trust.baseChanged(verb);
    if (changed === null || told.has(changed)) continue;
    told.add(changed);
    const message = "It is not what a human trusted; its verbs are refused";
    findings.push(found("error", "base-changed", changed, message, TRUST));
  }
  return findings;
}
