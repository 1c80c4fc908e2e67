/**
 * `chb pending`: the requests that wait for a human's word, each with what would run.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { planOf } from "../daemon/approval.ts";
import { trustOf } from "../daemon/trust_of.ts";
import { isoTime } from "../result.ts";
import { insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";
import { planData, planText } from "./plan_text.ts";
import { readLedger } from "./reading.ts";

/** Requests that are shown in full. */
const SHOWN = 50;

/** The first of each agent before the second of any, so that none hides another's; in their order. */
function inTurns<T extends { readonly row: { readonly agent: string } }>(
  all: readonly T[],
  max: number,
): T[] {
  const counts = new Map<string, number>();
  const ranked = all.map((one) => {
    const rank = counts.get(one.row.agent) ?? 0;
    counts.set(one.row.agent, rank + 1);
    return { one, rank };
  });
  const chosen = new Set(ranked.toSorted((a, b) => a.rank - b.rank).slice(0, max));
  return ranked.filter((one) => chosen.has(one)).map(({ one }) => one);
}

export const pending: Command = {
  name: "pending",
  summary: "List the requests that wait for your word",
  usage: "",
  details: [
    "Shows for each what would run, and the command that approves exactly that. What an agent",
    "wrote stands behind | and is nobody's advice but the agent's.",
  ],
  example: "./bin/chb pending",
  flags: [],
  options: [],
  json: true,
  run(args, io) {
    insistOnRoot();
    const ledger = readLedger();
    try {
      const trust = trustOf({ ledger, live: null });
      const { policy } = trust;
      const waiting = ledger.unfinished().flatMap((row) => {
        const approval = row.state === "pending" ? ledger.approval(row.rid) : null;
        return approval?.state === "waiting" ? [{ row, approval }] : [];
      });
      const plan = (row: Parameters<typeof planOf>[0]) =>
        policy === null ? null : planOf(row, policy, trust, Deno.cwd());
      if (args.json) {
        const list = waiting.map(({ row, approval }) => ({
          agent: row.agent,
          id: row.id,
          verb: row.verb,
          class: row.class,
          args: JSON.parse(row.args),
          plan: row.plan,
          note: row.note,
          received_at: isoTime(row.received_ms),
          until: isoTime(approval.until_ms),
          run: planData(plan(row)),
        }));
        io.out(JSON.stringify({ pending: list }) + "\n");
        return EXIT.ok;
      }
      if (waiting.length === 0) io.out("Nothing waits for your word\n");
      const shown = inTurns(waiting, SHOWN);
      io.out(shown.map(({ row, approval }) => planText(row, approval, plan(row))).join("\n"));
      const more = waiting.length - shown.length;
      if (more > 0) io.out(`\n${more} more: ./bin/chb pending --json\n`);
      return EXIT.ok;
    } finally {
      ledger.close();
    }
  },
};
