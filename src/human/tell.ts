/**
 * `chb tell`: writes to an agent, and may ask it something.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { UsageError } from "../errors.ts";
import { MESSAGE_BYTES } from "../daemon/messages.ts";
import { agentOption, byOption, insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";
import { control } from "./control_client.ts";

export const tell: Command = {
  name: "tell",
  summary: "Write to an agent, or ask it something",
  usage: "[--agent A] TEXT [--ask] [--within S] [--by NAME]",
  details: [
    "The text appears in the agent's inbox/messages/. It informs; it gives no right to anything.",
    "--agent A    whom (default main)",
    "--ask        an answer is expected: ./bin/chb replies shows it",
    "--within S   seconds within which an answer is taken",
    "--by NAME    who says so",
  ],
  example: './bin/chb tell --ask "May the database be away for a minute?"',
  flags: ["ask"],
  options: ["agent", "within", "by"],
  json: true,
  words: 1,
  async run(args, io) {
    insistOnRoot();
    const agent = agentOption({ ...args, options: { agent: "main", ...args.options } }) ?? "main";
    const [text = ""] = args.positional;
    if (text.trim() === "") throw new UsageError("say what: chb tell TEXT");
    if (new TextEncoder().encode(text).length > MESSAGE_BYTES) {
      throw new UsageError(`the text is longer than ${MESSAGE_BYTES} bytes`);
    }
    const within = args.options["within"];
    const within_s = within === undefined ? null : Number(within);
    if (within_s !== null && !(within_s > 0 && within_s <= 31_536_000)) {
      throw new UsageError("--within takes seconds, such as 600");
    }
    const ask = args.flags["ask"] === true;
    const { data = {} } = await control({
      chb: 1,
      command: "tell",
      by: byOption(args),
      agent,
      text,
      ask,
      within_s,
    });
    const published = data["published"] === true;
    if (args.json) {
      io.out(JSON.stringify({ ok: true, agent, n: data["n"], published }) + "\n");
      return EXIT.ok;
    }
    io.out(
      published
        ? `Message ${data["n"]} is in the inbox of ${agent}\n`
        : `Message ${data["n"]} is stored, and reaches ${agent} when the bridge serves\n`,
    );
    if (ask) io.out(`The answer, when there is one: ./bin/chb replies --agent ${agent}\n`);
    return EXIT.ok;
  },
};
