/**
 * `chb report`: one page that tells what happened, to be written into a file and looked at in a
 * browser. It is read from the ledger beside a daemon, changes nothing, and holds nothing open while
 * it is written out.
 *
 * @module
 */
import { BUILD } from "#build";
import { EXIT } from "../codes.ts";
import { UsageError } from "../errors.ts";
import { stateHeld } from "../spool/layout.ts";
import { insistOnRoot } from "./agent_option.ts";
import { verified } from "./audit.ts";
import type { Command } from "./command.ts";
import { readLedger } from "./reading.ts";
import { gather, type ReportFacts } from "./report/facts.ts";
import { page } from "./report/page.ts";
import { limitOption, sinceOption } from "./since_option.ts";
import { isEdited } from "./status.ts";

/** Entries of a page when nobody says how many, and at most: each takes memory here and there. */
const ENTRIES = 200_000;
const ENTRIES_MAX = 500_000;

export const report: Command = {
  name: "report",
  summary: "Print a page for a browser: what happened, and whether anything is wrong",
  usage: "[--since T] [--limit N] [--no-verify] > FILE.html",
  details: [
    "One HTML file that loads nothing: timeline, outcomes, durations, refusals, approvals, spend,",
    "the state of the audit chain, and a table of all requests that can be searched.",
    "--since T     received since: an age such as 24h, 7d, or a time such as 2026-01-31T08:00",
    `--limit N     the newest N entries (${ENTRIES}), up to ${ENTRIES_MAX}; the page says what it left out`,
    "--no-verify   do not verify the audit chain, which takes longest in a big ledger",
  ],
  example: "./bin/chb report --since 7d > report.html",
  flags: ["no-verify"],
  options: ["since", "limit"],
  json: false,
  async run(args, io) {
    insistOnRoot();
    const made_ms = Date.now();
    const since_ms = sinceOption(args, made_ms);
    const limit = limitOption(args, ENTRIES, ENTRIES_MAX);
    if (io.isTerminal?.() === true) {
      throw new UsageError("the page is for a browser: ./bin/chb report > report.html");
    }
    const chain = args.flags["no-verify"] === true ? null : await verified();
    const serving = stateHeld();
    let facts: ReportFacts;
    // A chain that does not hold is what the page says first, not why there is none.
    const ledger = readLedger("whatever");
    try {
      const trusted = ledger.currentTrust()?.policy ?? null;
      facts = gather(ledger, {
        root: Deno.cwd(),
        version: BUILD.version,
        made_ms,
        since_ms,
        limit,
        serving,
        edited: isEdited(trusted),
        chain,
      });
    } finally {
      ledger.close();
    }
    for (const part of page(facts)) io.out(part);
    return EXIT.ok;
  },
};
