/**
 * What a human approves: exactly what would run, as one digest.
 *
 * 1. The digest covers the agent, the key, what was asked for, the plan, the policy, the resolved
 *    command and the trusted base. It is computed here and nowhere else: for the person who looks,
 *    for the one who says yes, and in the turn of the start.
 * 2. A difference at the start makes the approval void. The request waits for another word, as long
 *    as for the first; what changed is named in the audit log. Only a human's change leads there, so
 *    no agent can make it wait for ever.
 * 3. An approval is for one start, and used in the commit of that start. Only an order that provably
 *    nobody took gives it back.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { grantFor } from "../gates/spend.ts";
import type { Approval } from "../ledger/approvals.ts";
import type { Ledger, Tx } from "../ledger/ledger.ts";
import type { LightRow, NewRow, Row } from "../ledger/types.ts";
import { amountNumber } from "../policy/amount.ts";
import type { FileIdentity, Policy, ResolvedCommand } from "../policy/policy.ts";
import { commandDigest, resolveCommand } from "../policy/resolve_command.ts";
import { isoTime, type Result } from "../result.ts";
import { resolveContext } from "../run/run_dir.ts";
import { type Fit, fits } from "./fits.ts";
import { pendingResult } from "./pending_result.ts";
import type { TrustStore } from "./trust_store.ts";

/** Characters of the digest that a human types. */
export const DIGEST_CHARS = 12;

/** Stands for the run directory, which a request that waits does not have yet. */
const NO_RUN = "0".repeat(32);

/** What would run, and the digest of it. */
export interface Plan extends Fit {
  readonly command: ResolvedCommand;
  readonly program: FileIdentity | null;
  /** The files that the verb requires, as they were trusted. */
  readonly base: readonly { readonly path: string; readonly sha256: string }[];
  /** What of the base is not as it was trusted, or null. */
  readonly changed: string | null;
  /** SHA-256, lower-case hex. */
  readonly digest: string;
  /** The digest's parts by name. */
  readonly parts: Readonly<Record<string, string>>;
}

function sha256(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex");
}

/**
 * What would run for a request, or null when the policy would not let it start.
 *
 * @param root absolute path of the root
 */
export function planOf(
  row: LightRow,
  policy: Policy,
  trust: TrustStore,
  root: string,
): Plan | null {
  const fit = fits(policy, row);
  if (fit === null) return null;
  const grant = grantFor(fit.verb, policy.limits, row.max_spend);
  if (grant.kind === "refused") return null;
  const context = resolveContext({
    run: NO_RUN,
    id: row.id,
    idempotency_key: row.key ?? row.id,
    max_spend: grant.kind === "granted" ? amountNumber(grant.amount) : row.max_spend,
  }, root);
  const command = resolveCommand(fit.verb, fit.args, context);
  const program = trust.program(fit.verb.program);
  const base = trust.required(fit.verb);
  const parts = {
    request: sha256([row.agent, row.key, row.digest]),
    plan: sha256(row.plan),
    policy: policy.digest,
    command: commandDigest(command),
    base: sha256([program, base]),
  };
  return {
    ...fit,
    command,
    program,
    base,
    changed: trust.baseChanged(fit.verb) ?? trust.pathArgs(fit.verb, fit.args)?.path ?? null,
    digest: sha256(["chb-approval-1", ...Object.entries(parts)]),
    parts,
  };
}

/** What a human types of a digest. */
export function shortDigest(digest: string): string {
  return digest.slice(0, DIGEST_CHARS);
}

/** The approval of a request that begins to wait. */
export function newApproval(now_ms: number, wait_s: number): Approval {
  return {
    state: "waiting",
    since_ms: now_ms,
    until_ms: now_ms + wait_s * 1000,
    digest: null,
    parts: null,
    by: null,
    at_ms: null,
  };
}

/** The result document of a request that waits for a human. */
export function awaitingResult(
  row: Omit<NewRow, "result">,
  approval: Approval,
  audit: { seq: number; hash: string },
): Result {
  return {
    ...pendingResult(row, "approval", audit),
    message: approval.digest === null
      ? `It waits for a human's word, until ${isoTime(approval.until_ms)}`
      : `What a human approved has changed since; it waits for another word, until ${
        isoTime(approval.until_ms)
      }`,
    hint: "A human is asked on the host. Go on with other work and look again later",
    poll_after_ms: 2000,
  };
}

/** True when a request that is about to start is what a human approved. */
export function isApproved(approval: Approval | null, plan: Plan): boolean {
  return approval !== null && approval.state === "given" && approval.digest === plan.digest;
}

/**
 * Makes the approval of a request void that is about to start as something else.
 *
 * @returns the approval that it waits for now
 */
export function voidApproval(
  tx: Tx,
  row: Row,
  approval: Approval,
  plan: Plan,
  now_ms: number,
  wait_s: number,
): Approval {
  const before: Record<string, string> = JSON.parse(approval.parts ?? "{}");
  const changed = Object.entries(plan.parts).filter(([name, part]) => before[name] !== part);
  tx.append({
    event: "voided",
    agent: row.agent,
    id: row.id,
    by: approval.by,
    digest: approval.digest,
    changed: changed.map(([name]) => name).join(" "),
  });
  const { digest, parts } = approval;
  const again: Approval = { ...newApproval(now_ms, wait_s), digest, parts };
  tx.putApproval(row.rid, again);
  return again;
}

/** Uses the approval of a request, in the transaction of its start. */
export function consumeApproval(ledger: Ledger, tx: Tx, rid: number): void {
  const approval = ledger.approval(rid);
  if (approval !== null) tx.putApproval(rid, { ...approval, state: "used" });
}

/**
 * The approval of a request whose run is to be repeated: given back when nobody took the order, and
 * waited for once more when the run may have started.
 *
 * @returns the approval that it waits for, or null when it waits for none
 */
export function renewApproval(
  ledger: Ledger,
  tx: Tx,
  rid: number,
  tookPlace: boolean,
  now_ms: number,
  wait_s: number,
): Approval | null {
  const approval = ledger.approval(rid);
  if (approval === null || approval.state !== "used") return null;
  if (!tookPlace) {
    tx.putApproval(rid, { ...approval, state: "given" });
    return null;
  }
  const again = newApproval(now_ms, wait_s);
  tx.putApproval(rid, again);
  return again;
}
