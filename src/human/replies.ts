/**
 * `chb replies`: what agents answered, and what still waits for an answer. An agent's text is shown
 * escaped, each line behind `| `, so that it cannot pass for anything else on the screen.
 *
 * @module
 */
import { LEDGER_PATH } from "../daemon/open_ledger.ts";
import { EXIT } from "../codes.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { Ledger } from "../ledger/ledger.ts";
import type { Message } from "../ledger/messages.ts";
import { printable } from "../names.ts";
import { isoTime } from "../result.ts";
import { agentOption, insistOnRoot } from "./agent_option.ts";
import type { Command } from "./command.ts";

/** Messages that are shown, newest last. */
const SHOWN = 20;
/** Milliseconds between two looks of `--wait`. */
const LOOK_MS = 200;

function read(agent: string): Message[] {
  let ledger: Ledger;
  try {
    ledger = Ledger.open(LEDGER_PATH, { now: Date.now, mode: "reader" });
  } catch (error) {
    if (errorCode(error) === "ENOENT") return [];
    throw new ExitError(
      EXIT.internal,
      "the ledger cannot be read: be the user who owns state/, and look at ./bin/chb doctor",
    );
  }
  try {
    return ledger.messages(agent, 1000).reverse();
  } finally {
    ledger.close();
  }
}

function quoted(text: string): string {
  return text.split("\n").map((line) => `  | ${printable(line, 4096)}\n`).join("");
}

function state(m: Message): string {
  if (m.reply !== null) return `answered ${isoTime(m.replied_ms ?? 0)}`;
  if (!m.ask) return "no answer wanted";
  if (m.reply_by_ms === null) return "waits for an answer";
  return Date.now() > m.reply_by_ms
    ? "nobody answered in time"
    : `waits until ${isoTime(m.reply_by_ms)}`;
}

export const replies: Command = {
  name: "replies",
  summary: "Show what agents answered to messages",
  usage: "[N] [--agent A] [--wait S]",
  details: [
    `The newest ${SHOWN} messages with their answers, or message N alone.`,
    "--agent A   whose (default main)",
    "--wait S    with N: wait up to S seconds for the answer; exits 75 when there is none",
  ],
  example: "./bin/chb replies 3 --wait 60",
  flags: [],
  options: ["agent", "wait"],
  json: true,
  words: 1,
  async run(args, io) {
    insistOnRoot();
    const agent = agentOption({ ...args, options: { agent: "main", ...args.options } }) ?? "main";
    const [word] = args.positional;
    const n = word === undefined ? null : Number(word);
    if (n !== null && !(Number.isSafeInteger(n) && n > 0)) {
      throw new UsageError("a message is named by its number");
    }
    const wait = Number(args.options["wait"] ?? "0");
    if (!(wait >= 0 && wait <= 86_400)) throw new UsageError("--wait takes seconds");
    if (wait > 0 && n === null) throw new UsageError("--wait needs the number of a message");
    const end = performance.now() + wait * 1000;
    for (;;) {
      const all = read(agent);
      const shown = n === null ? all.slice(-SHOWN) : all.filter((m) => m.n === n);
      if (n !== null && shown.length === 0) {
        throw new ExitError(
          EXIT.finding,
          `there is no message ${n} to ${agent}: ./bin/chb replies --agent ${agent} lists them`,
        );
      }
      const open = n !== null && shown[0]?.reply === null;
      if (open && performance.now() < end) {
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
        continue;
      }
      if (args.json) {
        io.out(
          JSON.stringify({
            agent,
            messages: shown.map((m) => ({
              n: m.n,
              at: isoTime(m.at_ms),
              from: m.sender,
              text: m.text,
              ask: m.ask,
              reply_by: m.reply_by_ms === null ? null : isoTime(m.reply_by_ms),
              reply: m.reply,
              replied_at: m.replied_ms === null ? null : isoTime(m.replied_ms),
            })),
          }) + "\n",
        );
      } else {
        if (shown.length === 0) io.out(`no messages to ${agent}\n`);
        for (const m of shown) {
          io.out(`${m.n}  ${isoTime(m.at_ms)}  from ${printable(m.sender, 100)}: ${state(m)}\n`);
          io.out(quoted(m.text));
          if (m.reply !== null) io.out(`  ${agent} replied:\n${quoted(m.reply)}`);
        }
      }
      return open && wait > 0 ? EXIT.tryAgain : EXIT.ok;
    }
  },
};
