/**
 * `chb resolve`: a human has looked and says what became of an `uncertain` request.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { MAX_NOTE, RESOLUTIONS } from "../daemon/control_resolve.ts";
import { UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { byOption, insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";
import { control } from "./control_client.ts";
import { requestWord } from "./request_word.ts";

export const resolve: Command = {
  name: "resolve",
  summary: "Say what became of an uncertain request",
  usage: "AGENT/ID --as done|failed|retry [--note TEXT] [--by NAME]",
  details: [
    "The agent sees the outcome and the note. What the request held is free then, its lock and",
    "its slot, also when something that it started still runs: that is yours to end first.",
    "--as done     it happened: the request succeeded",
    "--as failed   it did not happen, or not as it should: the request failed",
    "--as retry    let it start once more, under the same key, with its age limit anew",
    "--note TEXT   for the agent and the audit log",
    "--by NAME     who says so, for the audit log",
  ],
  example: './bin/chb resolve main/deploy-1 --as done --note "the stack is up"',
  flags: [],
  options: ["as", "note", "by"],
  json: true,
  words: 1,
  async run(args, io) {
    insistOnRoot();
    const name = requestWord(args);
    const as = args.options["as"];
    if (!RESOLUTIONS.some((word) => word === as)) {
      throw new UsageError(`--as takes ${RESOLUTIONS.join(", ")}: say what became of it`);
    }
    const note = args.options["note"];
    const { data } = await control({
      chb: 1,
      command: "resolve",
      by: byOption(args),
      ...name,
      as,
      note: note === undefined ? null : printable(note, MAX_NOTE),
    });
    if (args.json) {
      io.out(JSON.stringify({ ok: true, ...data }) + "\n");
      return EXIT.ok;
    }
    const { agent, id, lock, group } = data ?? {};
    io.out(`${agent}/${id}: ${as}${as === "retry" ? ", it waits for a start" : ""}\n`);
    if (typeof group === "number") {
      const held = typeof lock === "string" ? `the lock "${lock}"` : "its slot";
      io.out(
        `Process group ${group} was not seen to end, and ${held} is free: what still runs there ` +
          `goes on beside the next one. To end it: kill -KILL -- -${group}\n`,
      );
    }
    return EXIT.ok;
  },
};
