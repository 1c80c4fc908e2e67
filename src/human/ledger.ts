/**
 * `chb ledger accept-loss`: a human says that a ledger may be used that has lost something.
 *
 * @module
 */
import { acceptLoss } from "../daemon/accept_loss.ts";
import { stderrLog } from "../daemon/log.ts";
import { EXIT } from "../codes.ts";
import { ExitError, UsageError } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import { printable } from "../names.ts";
import { lockStateSoon } from "../spool/layout.ts";
import { byOption, insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";

/** Longest reason, characters. */
const MAX_REASON = 500;
/** Requests that are named on a terminal. */
const MAX_NAMED = 20;

export const ledger: Command = {
  name: "ledger",
  summary: "Accept that the ledger has lost something",
  usage: "accept-loss --reason TEXT [--by NAME]",
  details: [
    "A ledger that is empty, cut, older or replaced beside a longer audit log is not used: it",
    "would run again what it has forgotten. First look for the right one, state/ledger.db with",
    "its -wal, in a backup. Without one this takes the lost records back from the audit log, and",
    "makes every request that they tell of `uncertain`: chb resolve settles each. A file that is",
    "of no use is set aside, and what was trusted is gone with it: run chb trust afterwards.",
    "--reason TEXT   what happened, for the audit log",
    "--by NAME       who says so, for the audit log",
  ],
  example: './bin/chb ledger accept-loss --reason "disk restored from Monday"',
  flags: [],
  options: ["reason", "by"],
  json: true,
  words: 1,
  async run(args, io) {
    insistOnRoot();
    const [word] = args.positional;
    if (word !== "accept-loss") throw new UsageError("say what: chb ledger accept-loss");
    const reason = args.options["reason"];
    if (reason === undefined) throw new UsageError("--reason is missing: say what happened");
    const lock = await lockStateSoon();
    if (lock === null) {
      throw new ExitError(
        EXIT.refused,
        "a daemon or another command uses this root: a ledger in use has lost nothing",
      );
    }
    try {
      const facts = { why: printable(reason, MAX_REASON), by: byOption(args) };
      const loss = acceptLoss(facts, Date.now, stderrLog("WARN"));
      if (loss === null) {
        throw new ExitError(EXIT.refused, "nothing is lost: the ledger has all that its log has");
      }
      if (args.json) {
        io.out(JSON.stringify({ ok: true, ...loss }) + "\n");
        return EXIT.ok;
      }
      const { from, upto, uncertain, set_aside } = loss;
      if (from !== null) io.out(`Records ${from} to ${upto} are back from the audit log\n`);
      io.out(`${uncertain.length} request${uncertain.length === 1 ? " is" : "s are"} uncertain\n`);
      for (const { agent, id } of uncertain.slice(0, MAX_NAMED)) io.out(`  ${agent}/${id}\n`);
      if (uncertain.length > MAX_NAMED) io.out(`  and ${uncertain.length - MAX_NAMED} more\n`);
      if (uncertain.length > 0) {
        io.out("Look at each, then: ./bin/chb resolve AGENT/ID --as done|failed\n");
      }
      if (set_aside !== null) {
        io.out(`The old file is ${set_aside}; trust the policy again: ./bin/chb trust\n`);
      }
      return EXIT.ok;
    } catch (error) {
      if (!(error instanceof LedgerError)) throw error;
      throw new ExitError(EXIT.config, error.message);
    } finally {
      lock.release();
    }
  },
};
