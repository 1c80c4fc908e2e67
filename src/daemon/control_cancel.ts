/**
 * Cancels any agent's request, because a human says so: see `cancel.ts`.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { markCancel } from "../run/order_file.ts";
import { cancelRow } from "./cancel.ts";
import { type ControlCommand, once } from "./control_command.ts";
import { findRow, type RequestName, requestName } from "./find_row.ts";
import { wordsFor } from "./trust_of.ts";

/** Longest reason, characters. */
export const MAX_CANCEL_REASON = 500;

/** What `chb cancel` hands over. */
export interface CancelArgs {
  readonly name: RequestName;
  /** Printable text. */
  readonly reason: string | null;
}

export const controlCancel: ControlCommand<CancelArgs> = {
  name: "cancel",
  parse(v) {
    const name = requestName(v);
    const { reason } = v;
    if (name === null) return null;
    if (reason !== null && typeof reason !== "string") return null;
    return reason !== null && reason.length > MAX_CANCEL_REASON ? null : { name, reason };
  },
  apply(context, { name, reason }) {
    const { ledger, live } = context;
    const found = findRow(ledger, name);
    if (found.row === null) return { ok: false, message: found.why };
    const { row } = found;
    const what = `${row.agent}/${row.id}`;
    const why = reason === null ? null : wordsFor(context, reason);
    const answer = once(context, (tx) => {
      const ask = { by: "human", reason: why } as const;
      const facts = { human: context.by, control: context.name };
      const did = cancelRow(tx, row, ask, context.now(), facts);
      const data = { what: did, agent: row.agent, id: row.id };
      switch (did) {
        case "cancelled":
          return { ok: true, message: `${what} waited, and is not started any more`, data };
        case "asked":
          return { ok: true, message: `${what} runs, and was asked to end`, data };
        case "over":
          return { ok: false, message: `${what} is over: ${row.outcome ?? row.state}` };
        case "uncertain":
          return {
            ok: false,
            message:
              `nobody knows whether ${what} happened: look, then ./bin/chb resolve ${what} --as done, failed or retry`,
          };
      }
    });
    if (answer.data?.["what"] === "cancelled") {
      live?.core.slots.forget(row.agent, row.rid);
      const now = ledger.row(row.rid);
      if (now !== null) context.publish(now);
      live?.wake();
    } else if (answer.data?.["what"] === "asked") {
      if (live !== null) live.core.runs.askToEnd(row.rid);
      else if (row.run !== null && row.lookup === null) mark(row.run);
    }
    return answer;
  },
};

/** A mark that cannot be left now is left by the next daemon: the row says that it is wanted. */
function mark(run: string): void {
  try {
    markCancel(run);
  } catch (error) {
    if (errorCode(error) === undefined) throw error;
  }
}
