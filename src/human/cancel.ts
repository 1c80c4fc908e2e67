/**
 * `chb cancel`: ends a request of any agent, before it starts or while it runs, whether a daemon
 * serves or not.
 *
 * A running command is ended by a mark in its run directory, which its shim looks for and which
 * needs no space. So where the daemon that should leave it does not answer or cannot be told, or the
 * ledger cannot be written, this leaves it itself: reading the ledger needs no lock.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { MAX_CANCEL_REASON } from "../daemon/control_cancel.ts";
import { findRow, type RequestName } from "../daemon/find_row.ts";
import { LEDGER_PATH } from "../daemon/open_ledger.ts";
import { ExitError } from "../errors.ts";
import { Ledger } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import { printable } from "../names.ts";
import { markRunOf } from "../run/mark_runs.ts";
import { markCancel } from "../run/order_file.ts";
import { byOption, insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";
import { control } from "./control_client.ts";
import { requestWord } from "./request_word.ts";

/** Milliseconds after which a daemon that does not answer is not waited for: something runs on. */
const WAIT_MS = 5000;

/**
 * Leaves the mark of a running request; false when it does not run, or the mark cannot be left. A
 * full disk may keep the ledger from being opened at all; then the orders say whose run is whose.
 */
function mark(name: RequestName): boolean {
  try {
    const ledger = reader();
    if (ledger === null) return markRunOf(name.agent, name.id);
    try {
      const { row } = findRow(ledger, name);
      return row?.state === "running" && row.run !== null && row.lookup === null &&
        markCancel(row.run);
    } finally {
      ledger.close();
    }
  } catch {
    // The first error is the one to tell.
    return false;
  }
}

/** The ledger, or null when it cannot be opened. */
function reader(): Ledger | null {
  try {
    return Ledger.open(LEDGER_PATH, { now: Date.now, mode: "reader" });
  } catch {
    return null;
  }
}

export const cancel: Command = {
  name: "cancel",
  summary: "End a request, before it starts or while it runs",
  usage: "AGENT/ID [--reason TEXT] [--by NAME]",
  details: [
    "Works whether a daemon serves or not. A command that runs gets TERM, and KILL after the",
    "grace time; its result is told by the daemon, when one serves. The key stays used.",
    "An id alone will do where only one agent has it.",
    "--reason TEXT   why; the agent is told, and the audit log",
    "--by NAME       who says so, for the audit log",
  ],
  example: './bin/chb cancel main/deploy-1 --reason "wrong branch"',
  flags: [],
  options: ["reason", "by"],
  json: true,
  words: 1,
  async run(args, io) {
    insistOnRoot();
    const name = requestWord(args);
    const reason = args.options["reason"];
    let message: string;
    let data: Readonly<Record<string, unknown>>;
    try {
      const answer = await control({
        chb: 1,
        command: "cancel",
        by: byOption(args),
        ...name,
        reason: reason === undefined ? null : printable(reason, MAX_CANCEL_REASON),
      }, WAIT_MS);
      message = answer.message;
      data = answer.data ?? {};
    } catch (error) {
      const unanswered = error instanceof ExitError && error.exitCode === EXIT.tryAgain;
      const unwritten = error instanceof LedgerError;
      if (!(unanswered || unwritten) || !mark(name)) throw error;
      throw new ExitError(
        EXIT.tryAgain,
        unwritten
          ? `it could not be recorded (${error.code}); the command was asked to end all the same: ` +
            "see ./bin/chb doctor"
          : "the running daemon did not answer; the command was asked to end all the same: see ./bin/chb status",
      );
    }
    if (args.json) io.out(JSON.stringify({ ok: true, ...data }) + "\n");
    else io.out(`${message}\n`);
    return EXIT.ok;
  },
};
