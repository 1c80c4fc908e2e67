/**
 * Settles an `uncertain` request as a human says who has looked: see `resolve.ts`.
 *
 * @module
 */
import { defaultPolicy } from "../policy/default_policy.ts";
import { isoTime } from "../result.ts";
import { transition } from "../transitions.ts";
import { awaitingResult, renewApproval } from "./approval.ts";
import { type ControlCommand, once } from "./control_command.ts";
import { findRow, type RequestName, requestName } from "./find_row.ts";
import { pendingResult } from "./pending_result.ts";
import { resolvedEvent, settleRow } from "./resolve.ts";
import { trustOf, wordsFor } from "./trust_of.ts";

/** Longest note, characters. */
export const MAX_NOTE = 1000;

/** What a human may say became of a request. */
export const RESOLUTIONS = Object.freeze(["done", "failed", "retry"] as const);

/** What `chb resolve` hands over. */
export interface ResolveArgs {
  readonly name: RequestName;
  readonly as: typeof RESOLUTIONS[number];
  /** Printable text. */
  readonly note: string | null;
}

export const controlResolve: ControlCommand<ResolveArgs> = {
  name: "resolve",
  parse(v) {
    const name = requestName(v);
    const as = RESOLUTIONS.find((word) => word === v["as"]);
    const { note } = v;
    if (name === null || as === undefined) return null;
    if (note !== null && typeof note !== "string") return null;
    return note !== null && note.length > MAX_NOTE ? null : { name, as, note };
  },
  apply(context, { name, as, note }) {
    const { ledger, live } = context;
    const found = findRow(ledger, name);
    if (found.row === null) return { ok: false, message: found.why };
    const { row } = found;
    const what = `${row.agent}/${row.id}`;
    if (row.state !== "uncertain") {
      return { ok: false, message: `${what} is not uncertain: it is ${row.outcome ?? row.state}` };
    }
    if (as === "retry" && row.request.length === 0) {
      return {
        ok: false,
        message: `${what} cannot start again: what it asked for was lost with the ledger; ` +
          "say --as done or --as failed",
      };
    }
    const now = context.now();
    const facts = { human: context.by, control: context.name };
    const resolved = {
      as,
      by: "human",
      ...(note === null ? {} : { note: wordsFor(context, note) }),
      at: isoTime(now),
    } as const;
    const group = row.pgid !== null && row.pgid > 0 ? row.pgid : null;
    const answer = once(context, (tx) => {
      if (as === "retry") {
        const audit = tx.append(resolvedEvent(row, resolved, facts));
        const again = { ...row, attempt: row.attempt + 1 };
        const wait_s = (trustOf(context).policy ?? defaultPolicy()).limits.approval_wait_s;
        // An approval was for the start that is uncertain: another one needs another word.
        const approval = renewApproval(ledger, tx, row.rid, true, now, wait_s);
        tx.updateRow(row.rid, {
          state: transition(row.state, "retry"),
          reason: null,
          attempt: again.attempt,
          run: null,
          pgid: null,
          cancel: null,
          started_ms: null,
          started_tick: null,
          finished_ms: null,
          expires_ms: now + Math.max(0, row.expires_ms - row.received_ms),
          result: {
            ...(approval === null
              ? pendingResult(again, "slot", audit)
              : awaitingResult(again, approval, audit)),
            resolved,
          },
        });
      } else settleRow(tx, row, { ...resolved, as }, "resolve", now, facts);
      return {
        ok: true,
        message: `${what}: ${as}`,
        data: { agent: row.agent, id: row.id, as, attempt: row.attempt, lock: row.lock, group },
      };
    });
    live?.work.resolved(row.rid);
    const after = ledger.row(row.rid);
    if (after !== null) context.publish(after);
    return answer;
  },
};
