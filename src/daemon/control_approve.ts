/**
 * A human's word on a request that waits for it: yes to exactly what would run, or no.
 *
 * 1. A yes names the digest of what the person saw. It is computed again here; when it differs, the
 *    person is told to look again and nothing is approved.
 * 2. What would be refused at the start cannot be approved: a changed base, a policy that does not
 *    let it start any more, a wait that is over.
 *
 * @module
 */
import type { Approval } from "../ledger/approvals.ts";
import type { Row } from "../ledger/types.ts";
import { coded, isoTime, type Result } from "../result.ts";
import { transition } from "../transitions.ts";
import { DIGEST_CHARS, planOf, shortDigest } from "./approval.ts";
import {
  type ControlAnswer,
  type ControlCommand,
  type ControlContext,
  once,
} from "./control_command.ts";
import { findRow, type RequestName, requestName } from "./find_row.ts";
import { pendingResult } from "./pending_result.ts";
import { base } from "./row_fields.ts";
import { dropHold } from "./spends.ts";
import { trustOf, wordsFor } from "./trust_of.ts";
import { waitingEntry } from "./waiting_entry.ts";

/** Longest reason, characters. */
export const MAX_DENY_REASON = 500;

/** What `chb approve` hands over. */
export interface ApproveArgs {
  readonly name: RequestName;
  readonly digest: string;
}

/** What `chb deny` hands over. */
export interface DenyArgs {
  readonly name: RequestName;
  /** Printable text. */
  readonly reason: string;
}

function no(message: string): ControlAnswer {
  return { ok: false, message };
}

/** The request and its approval, when it waits for a word; else why it does not. */
function awaiting(
  context: ControlContext,
  name: RequestName,
  states: readonly Approval["state"][],
): { row: Row; approval: Approval } | string {
  const found = findRow(context.ledger, name);
  if (found.row === null) return found.why;
  const { row } = found;
  const approval = context.ledger.approval(row.rid);
  const what = `${row.agent}/${row.id}`;
  if (approval === null) return `${what} needs nobody's word`;
  if (row.state !== "pending") {
    return `${what} does not wait any more: it is ${row.outcome ?? row.state}`;
  }
  if (!states.includes(approval.state)) {
    return `${what} was approved${approval.by === null ? "" : ` by ${approval.by}`} before`;
  }
  if (approval.state === "waiting" && approval.until_ms < context.now()) {
    return `${what} waited for a word until ${
      isoTime(approval.until_ms)
    }; the agent has to ask again`;
  }
  return { row, approval };
}

/** Tells memory and agent of a row that was decided on. */
function tell(context: ControlContext, row: Row): void {
  const { ledger, live } = context;
  live?.core.slots.forget(row.agent, row.rid);
  const now = ledger.row(row.rid);
  if (now === null) return;
  if (now.state === "pending") live?.core.slots.wait(waitingEntry(ledger, now));
  context.publish(now);
  live?.wake();
}

export const controlApprove: ControlCommand<ApproveArgs> = {
  name: "approve",
  parse(v) {
    const name = requestName(v);
    const { digest } = v;
    if (name === null || typeof digest !== "string") return null;
    return new RegExp(`^[0-9a-f]{${DIGEST_CHARS}}$`).test(digest) ? { name, digest } : null;
  },
  apply(context, { name, digest }) {
    const found = awaiting(context, name, ["waiting"]);
    if (typeof found === "string") return no(found);
    const { row, approval } = found;
    const what = `${row.agent}/${row.id}`;
    const trust = trustOf(context);
    const { policy } = trust;
    if (policy === null) return no("no policy is trusted: ./bin/chb trust");
    if (policy.require_by && context.by === "") {
      return no("the policy wants to know who says so: add --by NAME");
    }
    const plan = planOf(row, policy, trust, Deno.cwd());
    if (plan === null) {
      return no(
        `the policy does not let ${what} start any more: ./bin/chb deny ${what} --reason TEXT`,
      );
    }
    if (plan.changed !== null) {
      return no(
        `changed since a human trusted it: ${plan.changed}; look at it, then: ./bin/chb trust`,
      );
    }
    if (shortDigest(plan.digest) !== digest) {
      return no(`that is not what would run now: look at it again, ./bin/chb show ${what}`);
    }
    const answer = once(context, (tx) => {
      const audit = tx.append({
        event: "approved",
        agent: row.agent,
        id: row.id,
        by: context.by,
        digest: plan.digest,
        command_sha256: plan.parts["command"],
        policy: policy.digest,
        control: context.name,
      });
      tx.putApproval(row.rid, {
        ...approval,
        state: "given",
        digest: plan.digest,
        parts: JSON.stringify(plan.parts),
        by: context.by,
        at_ms: context.now(),
      });
      tx.updateRow(row.rid, {
        state: transition(row.state, "approve"),
        result: pendingResult(row, "slot", audit),
      });
      return {
        ok: true,
        message: `${what} is approved, and starts when its turn comes`,
        data: { agent: row.agent, id: row.id, digest: plan.digest },
      };
    });
    if (answer.ok) tell(context, row);
    return answer;
  },
};

export const controlDeny: ControlCommand<DenyArgs> = {
  name: "deny",
  parse(v) {
    const name = requestName(v);
    const { reason } = v;
    if (name === null || typeof reason !== "string" || reason === "") return null;
    return reason.length > MAX_DENY_REASON ? null : { name, reason };
  },
  apply(context, { name, reason }) {
    const found = awaiting(context, name, ["waiting", "given"]);
    if (typeof found === "string") return no(found);
    const { row, approval } = found;
    if (trustOf(context).policy?.require_by === true && context.by === "") {
      return no("the policy wants to know who says so: add --by NAME");
    }
    const now = context.now();
    const why = wordsFor(context, reason);
    const answer = once(context, (tx) => {
      const audit = tx.append({
        event: "denied",
        agent: row.agent,
        id: row.id,
        by: context.by,
        why,
        control: context.name,
      });
      tx.putApproval(row.rid, { ...approval, state: "denied", by: context.by, at_ms: now });
      dropHold(tx, row.rid);
      const result: Result = {
        ...base(row),
        state: "done",
        ...coded("approval-denied"),
        stage: "approval",
        message: `A human said no: ${why}`,
        hint: "Do not send it again as it is; ask the person, or find another way",
        finished_at: isoTime(now),
        audit,
      };
      tx.updateRow(row.rid, {
        state: transition(row.state, "deny"),
        outcome: result.outcome ?? null,
        reason: "approval-denied",
        finished_ms: now,
        result,
      });
      return {
        ok: true,
        message: `${row.agent}/${row.id} is denied`,
        data: { agent: row.agent, id: row.id },
      };
    });
    if (answer.ok) tell(context, row);
    return answer;
  },
};
