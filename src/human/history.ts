/**
 * `chb history`: what agents asked for and what became of it, the newest first, refusals included.
 * It reads the ledger beside a daemon and changes nothing.
 *
 * @module
 */
import { codeOf, CODES, EXIT } from "../codes.ts";
import { UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { isoTime } from "../result.ts";
import { agentOption, insistOnRoot } from "./agent_option.ts";
import { type Command, table } from "./command.ts";
import { durationText } from "./report/duration_text.ts";
import { durationOf, endOf, entries, type Entry } from "./report/entries.ts";
import { readLedger } from "./reading.ts";
import { limitOption, sinceOption } from "./since_option.ts";

/** Entries that are shown when nobody says how many, and at most. */
const SHOWN = 50;
const SHOWN_MAX = 1_000_000;
/** Entries that are laid out together: widths of columns are those of one such block. */
const BLOCK = 500;

/** What `--outcome` may name: how a request ended, or the state of one that has not. */
export const OUTCOMES: readonly string[] = Object.freeze([
  ...new Set(CODES.flatMap((c) => c.outcome === null ? [] : [c.outcome])),
  "pending",
  "running",
  "uncertain",
]);

/** An entry as data: every field there, times in ISO 8601. */
function data(entry: Entry): unknown {
  const { received_ms, started_ms, finished_ms, args, ...rest } = entry;
  const time = (ms: number | null) => ms === null ? null : isoTime(ms);
  return {
    ...rest,
    code: entry.reason === null ? null : codeOf(entry.reason).code,
    args: args === null ? null : JSON.parse(args),
    received_at: time(received_ms),
    started_at: time(started_ms),
    finished_at: time(finished_ms),
    duration_ms: durationOf(entry),
  };
}

function line(entry: Entry): string[] {
  const took = durationOf(entry);
  const why = entry.outcome !== null && entry.reason !== null && !["ok", entry.outcome]
      .includes(entry.reason.replaceAll("-", "_"))
    ? entry.reason
    : "";
  return [
    isoTime(entry.received_ms).slice(0, 19) + "Z",
    endOf(entry),
    why,
    took === null ? "" : durationText(took),
    printable(entry.verb ?? "-", 24),
    // Last and whole: it is what show, cancel and resolve are given.
    entry.id === null
      ? `${entry.agent}: an entry called ${printable(entry.name ?? "", 80)}`
      : `${entry.agent}/${entry.id}`,
  ];
}

export const history: Command = {
  name: "history",
  summary: "List what was asked for and what became of it",
  usage: "[--agent A] [--verb V] [--outcome O] [--since T] [--limit N]",
  details: [
    `The newest ${SHOWN} requests and refusals, the newest first. With --json: one object a line.`,
    "--agent A     of this agent",
    "--verb V      of this verb",
    "--outcome O   " + OUTCOMES.slice(0, 6).join(", ") + ",",
    "              " + OUTCOMES.slice(6).join(", "),
    "--since T     received since: an age such as 90m, 24h, 7d, or a time such as 2026-01-31T08:00",
    `--limit N     at most N, up to ${SHOWN_MAX}`,
    "What bound nothing is known as long as its record is in the ledger. Replays and the calls of",
    "built-in verbs are in the audit log alone: ./bin/chb audit tail",
  ],
  example: "./bin/chb history --outcome rejected --since 24h",
  flags: [],
  options: ["agent", "verb", "outcome", "since", "limit"],
  json: true,
  run(args, io) {
    insistOnRoot();
    const outcome = args.options["outcome"] ?? null;
    if (outcome !== null && !OUTCOMES.includes(outcome)) {
      throw new UsageError(
        `--outcome takes one of ${OUTCOMES.join(", ")}: not ${printable(outcome, 60)}`,
      );
    }
    const limit = limitOption(args, SHOWN, SHOWN_MAX);
    const filter = {
      agent: agentOption(args),
      verb: args.options["verb"] ?? null,
      outcome,
      since_ms: sinceOption(args, Date.now()),
    };
    const ledger = readLedger();
    try {
      let n = 0;
      let more = false;
      let block: string[][] = [];
      const flush = () => {
        if (block.length > 0) io.out(table(block) + "\n");
        block = [];
      };
      for (const entry of entries(ledger, filter, Math.min(limit + 1, 1000))) {
        if (n === limit) {
          more = true;
          break;
        }
        n++;
        if (args.json) io.out(JSON.stringify(data(entry)) + "\n");
        else if (block.push(line(entry)) === BLOCK) flush();
      }
      flush();
      if (!args.json && n === 0) io.out("Nothing of that kind is in the ledger\n");
      // Beside the lines, not among them: a program that reads them learns it too.
      if (more) {
        const how = n < SHOWN_MAX
          ? `--limit ${Math.min(n * 10, SHOWN_MAX)} shows more`
          : "--agent, --verb and --outcome choose among all";
        io.err(`There are more: these are the newest ${n}, ${how}\n`);
      }
      return EXIT.ok;
    } finally {
      ledger.close();
    }
  },
};
