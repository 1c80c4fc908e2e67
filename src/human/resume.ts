/**
 * `chb resume`: lowers the kill switch. It is recorded first, so that no switch goes down without a
 * record of it.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { isRaised, lowerSwitch, raisedSwitches, switchName } from "../daemon/kill_switch.ts";
import { errorCode, ExitError } from "../errors.ts";
import { isId } from "../names.ts";
import { agentOption, byOption, insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";
import { control } from "./control_client.ts";

export const resume: Command = {
  name: "resume",
  summary: "Lower the kill switch",
  usage: "[--agent A] [--by NAME]",
  details: [
    "Without --agent it lowers the switch of all; an agent's own stays up until it is named.",
    "Nothing that was answered `killed` is started by it: the agent sends it again.",
    "--agent A   the switch of this agent",
    "--by NAME   who says so, for the audit log",
  ],
  example: "./bin/chb resume",
  flags: [],
  options: ["agent", "by"],
  json: true,
  async run(args, io) {
    insistOnRoot();
    const named = args.options["agent"];
    // A switch may be up for an agent that was never served, and has to go down as it went up.
    const agent = isId(named) && isRaised(switchName(named)) ? named : agentOption(args);
    const name = switchName(agent);
    const up = isRaised(name);
    if (up) {
      await control({ chb: 1, command: "resume", by: byOption(args), agent });
      try {
        lowerSwitch(name);
      } catch (error) {
        if (errorCode(error) !== "ENOTEMPTY") throw error;
        throw new ExitError(EXIT.finding, `state/${name} is a directory: rm -r state/${name}`);
      }
    }
    const left = raisedSwitches();
    if (args.json) {
      io.out(JSON.stringify({ ok: true, switch: name, was_up: up, still_up: left }) + "\n");
      return EXIT.ok;
    }
    io.out(`${name} ${up ? "is down" : "was not up"}\n`);
    for (const other of left) io.out(`${other} is still up\n`);
    return EXIT.ok;
  },
};
