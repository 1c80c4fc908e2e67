/**
 * `chb approve` and `chb deny`: a human's word on a request that waits for it.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { DIGEST_CHARS } from "../daemon/approval.ts";
import { MAX_DENY_REASON } from "../daemon/control_approve.ts";
import { byOption, insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";
import { control } from "./control_client.ts";
import { requestWord } from "./request_word.ts";

export const approve: Command = {
  name: "approve",
  summary: "Let a request start that waits for your word",
  usage: "AGENT/ID DIGEST [--by NAME]",
  details: [
    "DIGEST is what chb pending and chb show print under what would run: it stands for exactly",
    "that. When anything of it changes before the start, the approval is void.",
    "--by NAME   who says so, for the audit log; the policy may ask for it",
  ],
  example: "./bin/chb approve main/deploy-1 0123456789ab",
  flags: [],
  options: ["by"],
  json: true,
  words: 2,
  async run(args, io) {
    insistOnRoot();
    const name = requestWord(args);
    const digest = args.positional[1];
    if (digest === undefined || !new RegExp(`^[0-9a-f]{${DIGEST_CHARS}}$`).test(digest)) {
      throw new UsageError(
        `which digest? ./bin/chb pending prints the whole line, with its ${DIGEST_CHARS} characters`,
      );
    }
    const { message, data } = await control({
      chb: 1,
      command: "approve",
      by: byOption(args),
      ...name,
      digest,
    });
    io.out(args.json ? JSON.stringify({ ok: true, ...data }) + "\n" : `${message}\n`);
    return EXIT.ok;
  },
};

export const deny: Command = {
  name: "deny",
  summary: "Say no to a request that waits for your word",
  usage: "AGENT/ID --reason TEXT [--by NAME]",
  details: [
    "Its key stays used: the agent cannot send the same again under it.",
    "--reason TEXT   why; the agent is told, and the audit log",
    "--by NAME       who says so, for the audit log; the policy may ask for it",
  ],
  example: './bin/chb deny main/deploy-1 --reason "not on a Friday"',
  flags: [],
  options: ["reason", "by"],
  json: true,
  words: 1,
  async run(args, io) {
    insistOnRoot();
    const name = requestWord(args);
    const reason = args.options["reason"];
    if (reason === undefined) throw new UsageError("--reason is missing: the agent is told why");
    const { message, data } = await control({
      chb: 1,
      command: "deny",
      by: byOption(args),
      ...name,
      reason: printable(reason, MAX_DENY_REASON),
    });
    io.out(args.json ? JSON.stringify({ ok: true, ...data }) + "\n" : `${message}\n`);
    return EXIT.ok;
  },
};
