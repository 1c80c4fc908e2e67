/**
 * How an `uncertain` request gets an outcome after all: a human has looked, or the verb's `lookup`
 * was asked.
 *
 * 1. Only a request whose outcome is unknown can be resolved, and it is never resolved by a guess.
 * 2. `done` and `failed` are final. `retry` lets it start once more, under the same key, as another
 *    attempt; its age limit begins anew, since it was not the request's fault that nobody knew.
 * 3. The agent sees in the result who settled it and what was noted.
 *
 * @module
 */
import type { Tx } from "../ledger/ledger.ts";
import type { RecordRef, Row } from "../ledger/types.ts";
import { coded, isoTime, type Resolved, type Result } from "../result.ts";
import { transition, type TransitionEvent } from "../transitions.ts";
import { base } from "./row_fields.ts";
import { closeSpend } from "./spends.ts";

const WORDS = {
  done: {
    human: "A human looked and says that it was done",
    lookup: "What became of it was looked up: it was done",
    hint: "What the command printed is not known",
  },
  failed: {
    human: "A human looked and says that it failed",
    lookup: "What became of it was looked up: it was not done",
    hint: "If it is still wanted, send it again under a new id and key",
  },
} as const;

/** A final result that was found out afterwards. */
function resolvedResult(
  row: Row,
  resolved: Resolved & { readonly as: "done" | "failed" },
  now_ms: number,
  audit: RecordRef,
): Result {
  const words = WORDS[resolved.as];
  return {
    ...base(row),
    state: "done",
    ...coded(resolved.as === "done" ? "ok" : "command-failed"),
    message: words[resolved.by],
    hint: words.hint,
    exit_code: null,
    signal: null,
    ...(row.started_ms === null ? {} : { started_at: isoTime(row.started_ms) }),
    finished_at: isoTime(now_ms),
    resolved,
    audit,
  };
}

/**
 * Records that a request is settled as done or failed, within a transaction.
 *
 * @param event what leads there: `resolve` by a human, `look-up` by the verb's lookup
 */
export function settleRow(
  tx: Tx,
  row: Row,
  resolved: Resolved & { readonly as: "done" | "failed" },
  event: Extract<TransitionEvent, "resolve" | "look-up">,
  now_ms: number,
  facts: Readonly<Record<string, unknown>> = {},
): void {
  const audit = tx.append(resolvedEvent(row, resolved, facts));
  const { outcome, reason } = coded(resolved.as === "done" ? "ok" : "command-failed");
  closeSpend(tx, row.rid);
  tx.updateRow(row.rid, {
    state: transition(row.state, event),
    outcome: outcome ?? null,
    reason,
    finished_ms: now_ms,
    pgid: null,
    lookup: null,
    result: resolvedResult(row, resolved, now_ms, audit),
  });
}

/** What the audit log says of a resolution. */
export function resolvedEvent(
  row: Row,
  resolved: Resolved,
  facts: Readonly<Record<string, unknown>>,
): Parameters<Tx["append"]>[0] {
  return {
    event: "resolved",
    agent: row.agent,
    id: row.id,
    as: resolved.as,
    by: resolved.by,
    attempt: row.attempt,
    ...(row.run === null ? {} : { run: row.run }),
    ...(resolved.note === undefined ? {} : { note: resolved.note }),
    ...facts,
  };
}
