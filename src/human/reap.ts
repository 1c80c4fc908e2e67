/**
 * `chb reap`: removes now what is too old or too much, which the daemon does by itself too.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { ExitError } from "../errors.ts";
import type { ControlAnswer } from "../daemon/control_command.ts";
import type { ReapCounts } from "../daemon/reap_context.ts";
import { look } from "../spool/look.ts";
import { control } from "./control_client.ts";
import { type Command, table } from "./command.ts";

/** Milliseconds after which a round that is still under way is left to the daemon. */
const PATIENCE_MS = 600_000;

const WORDS: Readonly<Record<keyof ReapCounts, string>> = {
  results: "results of requests, with their output",
  answers: "answers that started nothing",
  rows: "requests forgotten, with their keys",
  notes: "notes in inbox/refused/",
  copies: "copies of refused files",
  runs: "run directories with raw output",
  policies: "policies that nothing refers to",
};

/** What the control command tells. */
interface Told {
  readonly running: boolean;
  readonly counts: ReapCounts;
  readonly fault: string | null;
}

async function ask(by: string, begin: boolean): Promise<Told> {
  const answer: ControlAnswer = await control({ chb: 1, command: "reap", by, begin });
  return answer.data as unknown as Told;
}

export const reap: Command = {
  name: "reap",
  summary: "Remove now what is too old or too much",
  usage: "[--by NAME]",
  details: [
    "The daemon does this by itself; the policy's `retention` and `limits.results_*` say what",
    "goes. Works in small batches, beside a running daemon or without one.",
    "--by NAME   who did it, for the audit log",
  ],
  example: "./bin/chb reap --json",
  flags: [],
  options: ["by"],
  json: true,
  async run(args, io) {
    if (look("state")?.kind !== "directory") {
      throw new ExitError(
        EXIT.config,
        "no bridge here: run it in the root that the init script made",
      );
    }
    const by = args.options["by"] ?? "";
    const end = performance.now() + PATIENCE_MS;
    const first = await ask(by, true);
    let told = first;
    while (told.running && performance.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      told = await ask(by, false);
    }
    // Without a daemon everything is done by the time of the first answer.
    const before = first.running ? first.counts : null;
    const counts: Record<string, number> = {};
    for (const kind of Object.keys(WORDS) as (keyof ReapCounts)[]) {
      counts[kind] = told.counts[kind] - (before?.[kind] ?? 0);
    }
    if (args.json) {
      io.out(JSON.stringify({ removed: counts, running: told.running, fault: told.fault }) + "\n");
    } else {
      const rows = Object.entries(WORDS).filter(([kind]) => (counts[kind] ?? 0) > 0)
        .map(([kind, words]) => [String(counts[kind]), words]);
      io.out(rows.length === 0 ? "nothing to remove\n" : `removed\n${table(rows)}\n`);
      if (told.running) io.out("the daemon goes on with it\n");
    }
    if (told.fault !== null) throw new ExitError(EXIT.tryAgain, `it ended early: ${told.fault}`);
    return EXIT.ok;
  },
};
