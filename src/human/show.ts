/**
 * `chb show`: one request, with everything that the ledger knows of it.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { ExitError } from "../errors.ts";
import { planOf } from "../daemon/approval.ts";
import { findRow } from "../daemon/find_row.ts";
import { trustOf } from "../daemon/trust_of.ts";
import { amountText } from "../policy/amount.ts";
import { insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";
import { planData, planText } from "./plan_text.ts";
import { quoted } from "./quoted.ts";
import { readLedger } from "./reading.ts";
import { requestWord } from "./request_word.ts";

/** Records of one request that are told, at most. */
const RECORDS = 1000;

export const show: Command = {
  name: "show",
  summary: "Show one request and what it runs",
  usage: "AGENT/ID",
  details: [
    "An id alone will do where only one agent has it. With --json: everything that the ledger",
    "knows of the request, its records in the audit log included.",
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
      const found = findRow(ledger, name);
      if (found.row === null) throw new ExitError(EXIT.finding, found.why);
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
      io.out(`the request:\n${quoted(new TextDecoder().decode(row.request))}`);
      return EXIT.ok;
    } finally {
      ledger.close();
    }
  },
};
