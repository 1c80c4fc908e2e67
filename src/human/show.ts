/**
 * `chb show`: one request, with everything that the ledger knows of it, whether it waits, ended, or
 * was refused.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { ExitError } from "../errors.ts";
import { planOf } from "../daemon/approval.ts";
import { findRow, type RequestName } from "../daemon/find_row.ts";
import { trustOf } from "../daemon/trust_of.ts";
import { amountText } from "../policy/amount.ts";
import { insistOnRoot } from "./agent_option.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { Row } from "../ledger/types.ts";
import type { Command, Io, Parsed } from "./command.ts";
import { planData, planText } from "./plan_text.ts";
import { quoted } from "./quoted.ts";
import { readLedger } from "./reading.ts";
import { requestWord } from "./request_word.ts";
import { endText, recordsText } from "./show_text.ts";

/** Records of one request that are told, at most. */
const RECORDS = 1000;

/**
 * The row of a request; one that was turned down after it had waited is still there under its
 * number, though its id belongs to nobody any more.
 */
function rowOf(
  ledger: Ledger,
  name: RequestName,
): { readonly row: Row } | { readonly row: null; readonly why: string } {
  const found = findRow(ledger, name);
  if (found.row !== null || name.agent === null) return found;
  const released = ledger.history.released(name.agent, name.id);
  const row = released === null ? null : ledger.row(released);
  return row === null ? found : { row };
}

/** A request that was refused before anything of it was kept: its records are all there is. */
function showRefused(ledger: Ledger, name: RequestName, why: string, args: Parsed, io: Io): number {
  const records = name.agent === null ? [] : ledger.recordsOf(name.agent, name.id, RECORDS);
  if (records.length === 0) {
    const hint = name.agent === null ? "; one that was refused is named AGENT/ID" : "";
    throw new ExitError(EXIT.finding, why + hint);
  }
  if (args.json) {
    const lines = records.map(({ line }) => JSON.parse(line));
    io.out(JSON.stringify({ agent: name.agent, id: name.id, row: null, records: lines }) + "\n");
    return EXIT.ok;
  }
  io.out(`${name.agent}/${name.id}: nothing of it was accepted, or it is forgotten by age\n`);
  io.out(recordsText(records, RECORDS));
  return EXIT.ok;
}

export const show: Command = {
  name: "show",
  summary: "Show one request: what it runs, and what became of it",
  usage: "AGENT/ID",
  details: [
    "An id alone will do where only one agent has it. Times, outcome, the end of its output,",
    "approval, spend, and its records in the audit log; of one that was refused at once only",
    "those. With --json: everything that the ledger knows of it.",
  ],
  example: "./bin/chb show main/deploy-1",
  flags: [],
  options: [],
  json: true,
  words: 1,
  run(args, io) {
    insistOnRoot();
    const name = requestWord(args);
    const ledger = readLedger();
    try {
      const found = rowOf(ledger, name);
      if (found.row === null) return showRefused(ledger, name, found.why, args, io);
      const { row } = found;
      const trust = trustOf({ ledger, live: null });
      const plan = trust.policy === null ? null : planOf(row, trust.policy, trust, Deno.cwd());
      const approval = ledger.approval(row.rid);
      const spend = ledger.spend(row.rid);
      if (args.json) {
        const { request, ...rest } = row;
        io.out(
          JSON.stringify({
            ...rest,
            args: JSON.parse(row.args),
            // The bytes as they came; what was no UTF-8 was never accepted.
            request: new TextDecoder().decode(request),
            ids: ledger.idsOf(row.rid),
            approval: approval === null
              ? null
              : { ...approval, parts: JSON.parse(approval.parts ?? "null") },
            spend: spend === null ? null : {
              ...spend,
              granted: amountText(spend.granted),
              charged: amountText(spend.charged),
            },
            run_now: planData(plan),
            records: ledger.recordsOf(row.agent, row.id, RECORDS).map(({ line }) =>
              JSON.parse(line)
            ),
          }) + "\n",
        );
        return EXIT.ok;
      }
      io.out(planText(row, approval, plan));
      const said = approval === null ? "" : `, approval ${approval.state}` +
        `${approval.by === null || approval.by === "" ? "" : ` by ${approval.by}`}`;
      io.out(`state ${row.state}${row.outcome === null ? "" : `, ${row.outcome}`}${said}\n`);
      if (spend !== null) {
        io.out(
          `spend ${spend.state}: granted ${amountText(spend.granted)}, ` +
            `charged ${amountText(spend.charged)}\n`,
        );
      }
      io.out(endText(row));
      io.out(`the request:\n${quoted(new TextDecoder().decode(row.request))}`);
      io.out(recordsText(ledger.recordsOf(row.agent, row.id, RECORDS), RECORDS));
      return EXIT.ok;
    } finally {
      ledger.close();
    }
  },
};
