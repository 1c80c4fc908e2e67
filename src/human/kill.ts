/**
 * `chb kill`: nothing starts any more, at once, whether a daemon serves or not.
 *
 * 1. The switch goes up first. Whatever fails afterwards is told, and leaves it up.
 * 2. With `--now` every unfinished run is marked for its end after that, twice a second apart: an
 *    order that was on its way during the first look is there at the second.
 * 3. Only the record needs the ledger's writer.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { MAX_REASON, raiseSwitch, switchName } from "../daemon/kill_switch.ts";
import { type Marked, markUnfinishedRuns } from "../run/mark_runs.ts";
import { agentOption, byOption, insistOnRoot } from "./agent_option.ts";
import type { Command, Io } from "./command.ts";
import { control } from "./control_client.ts";

/** Milliseconds between the two markings. */
const AGAIN_MS = 1000;

/** Marks what runs; what could not be marked is told, and stops nothing. */
function mark(agent: string | null, io: Io): Marked {
  try {
    const marked = markUnfinishedRuns(agent);
    for (const { run, error } of marked.failed) {
      io.err(`chb kill: run ${run} could not be marked: ${error}\n`);
    }
    return marked;
  } catch (error) {
    const why = errorCode(error) ?? "unknown";
    io.err(`chb kill: the runs could not be listed: ${why}\n`);
    return { marked: 0, failed: [{ run: "", error: why }] };
  }
}

export const kill: Command = {
  name: "kill",
  summary: "Raise the kill switch: nothing starts any more",
  usage: "--reason TEXT [--agent A] [--now] [--by NAME]",
  details: [
    "Works whether a daemon serves or not. What waits is answered `killed`; what runs goes on,",
    "unless --now asks for its end as well. In a hurry, this does the same: touch state/KILL",
    "--reason TEXT   why, for the audit log",
    "--agent A       only this agent; without it, all",
    "--now           also end what runs, as a cancel does: TERM, then KILL after the grace time",
    "--by NAME       who says so, for the audit log",
  ],
  example: './bin/chb kill --now --reason "wrong stack was torn down"',
  flags: ["now"],
  options: ["agent", "reason", "by"],
  json: true,
  async run(args, io) {
    insistOnRoot();
    const reason = args.options["reason"];
    if (reason === undefined) {
      throw new UsageError("--reason is missing: say why, or in a hurry: touch state/KILL");
    }
    const agent = agentOption(args);
    const name = switchName(agent);
    const why = printable(reason, MAX_REASON);
    const raised = raiseSwitch(name, reason);
    if (!args.json) io.out(`${name} ${raised ? "is up" : "was up already"}\n`);
    const now = args.flags["now"] === true;
    const first = now ? mark(agent, io) : { marked: 0, failed: [] };
    let recorded = true;
    try {
      await control({
        chb: 1,
        command: "kill",
        by: byOption(args),
        agent,
        reason: why,
        now,
        marked: first.marked,
      });
    } catch (error) {
      recorded = false;
      const unanswered = error instanceof ExitError && error.exitCode === EXIT.tryAgain;
      const message = error instanceof Error ? error.message : "unknown";
      io.err(
        `chb kill: ${name} is up, and ` +
          (unanswered
            ? "the running daemon did not answer, so it is not recorded yet: see ./bin/chb doctor\n"
            : `could not be recorded: ${printable(message, 300)}\n`),
      );
    }
    let failed = first.failed.length;
    let { marked } = first;
    if (now) {
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      const second = mark(agent, io);
      failed = second.failed.length;
      marked = Math.max(marked, second.marked);
    }
    if (args.json) {
      io.out(
        JSON.stringify({ ok: recorded && failed === 0, switch: name, marked, recorded }) + "\n",
      );
    } else {
      if (now) io.out(`${marked} running command${marked === 1 ? " is" : "s are"} asked to end\n`);
      io.out(`Lower it: ./bin/chb resume${agent === null ? "" : ` --agent ${agent}`}\n`);
    }
    return recorded && failed === 0 ? EXIT.ok : EXIT.finding;
  },
};
