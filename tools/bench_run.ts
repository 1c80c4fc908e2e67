/**
 * The benchmark's program: which sections are measured and how much, the table, the raw JSON, and with
 * `--docs` the page and the figure that are drawn from it.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { join } from "@std/path/join";
import { Gathered, isMet, type Report } from "./bench_kit.ts";
import { benchLatency } from "./bench_latency.ts";
import {
  benchAgents,
  benchIdle,
  benchLong,
  benchOutput,
  benchPoison,
  benchThroughput,
  benchWaiting,
} from "./bench_load.ts";
import { benchDay } from "./bench_day.ts";
import { drawFigure, PERFORMANCE, tableText, withTable } from "./bench_page.ts";
import { benchRows } from "./bench_rows.ts";
import { inRepository } from "./launcher.ts";

const HELP = `usage: deno task bench [--only A,B] [--whole | --quick] [--minutes N]
                       [--out FILE] [--docs] [--check]

  --only A,B   sections: latency, throughput, waiting, poison, idle, agents, output, day,
               rows, long
               (default: latency, poison)
  --long N     requests of the section long, which takes some twenty minutes (default 100000)
  --whole      all sections but long, with the sizes of the published figures: some seventeen
               minutes
  --quick      sizes that only show that it works
  --rows N,M   finished requests in the ledgers of the section rows (default 100000)
  --requests N requests in one run of the latency series (default 500)
  --runs N     runs of each latency series (default 5)
  --minutes N  begin no section, and no ledger of the section rows, that would not end in this time
               (with --whole 18)
  --out FILE   the figures as JSON (default bench.json)
  --docs       write docs/performance.json and draw page and figure from it
  --draw       draw page and figure from docs/performance.json again, and measure nothing
  --check      exit 1 when a target is missed

Nothing else should run on the machine meanwhile.`;

const options = parseArgs(Deno.args, {
  string: ["only", "rows", "requests", "runs", "minutes", "out", "long"],
  boolean: ["whole", "quick", "docs", "draw", "check", "help"],
});
if (options.help) {
  console.log(HELP);
  Deno.exit(0);
}

const { quick } = options;
const requests = Number(options.requests ?? (quick ? 10 : 500));
const runs = Number(options.runs ?? (quick ? 2 : 5));
const rows = (options.rows ?? (quick ? "200" : options.whole ? "100000,1000000" : "100000"))
  .split(",").map(Number);

const long = Number(options.long ?? (quick ? 20 : 100_000));

const minutes = Number(options.minutes ?? (options.whole ? 18 : Infinity));
/** What a part is thought to take at its full size, at most, seconds. */
const PART_S = 75;
const MILLION_S = 240;

/** True while what takes so long can still be begun. */
function fits(seconds: number): boolean {
  return performance.now() / 1000 + seconds <= minutes * 60;
}

const SECTIONS: Readonly<Record<string, (out: Gathered) => Promise<void>>> = {
  latency: (out) => benchLatency(out, requests, runs),
  throughput: (out) => benchThroughput(out, quick ? 200 : 10_000),
  waiting: (out) => benchWaiting(out, quick ? [0, 1000] : [0, 1000, 10_000, 100_000]),
  poison: (out) => benchPoison(out, quick ? 100 : 10_000, quick ? 200 : 100_000),
  idle: (out) => quick ? benchIdle(out, 2, 1) : benchIdle(out, 60, 40),
  agents: (out) => benchAgents(out, quick ? [1, 3] : [1, 10, 100]),
  output: (out) => benchOutput(out, quick ? 20 : 400),
  day: (out) => benchDay(out, quick ? 300 : 86_400, quick ? 5 : 200, quick ? 1 : 3),
  rows: async (out) => {
    for (const count of rows) {
      if (fits(count > 100_000 ? MILLION_S : PART_S)) {
        await benchRows(out, count, quick ? 5 : 200, quick ? 2 : 3);
      } else out.say(`left out for want of time: ${count} rows`);
    }
  },
  long: (out) => benchLong(out, long),
};
/** What only those measure who ask for it. */
const LONG = "long";

/** First match in a file of `/proc`, or a question mark where there is none. */
function fact(path: string, pattern: RegExp): string {
  try {
    return pattern.exec(Deno.readTextFileSync(path))?.[1]?.trim() ?? "?";
  } catch {
    return "?";
  }
}

async function filesystem(): Promise<string> {
  const directory = Deno.env.get("TMPDIR") ?? "/tmp";
  const { stdout } = await new Deno.Command("stat", { args: ["-f", "-c", "%T", directory] })
    .output();
  return new TextDecoder().decode(stdout).trim();
}

function draw(report: Report): void {
  Deno.mkdirSync(inRepository("docs", "figures"), { recursive: true });
  Deno.writeTextFileSync(PERFORMANCE.figure, drawFigure(report));
  Deno.writeTextFileSync(
    PERFORMANCE.page,
    withTable(Deno.readTextFileSync(PERFORMANCE.page), report),
  );
}

if (options.draw) {
  draw(JSON.parse(Deno.readTextFileSync(PERFORMANCE.data)));
  Deno.exit(0);
}
const wanted = options.only?.split(",") ??
  (quick
    ? Object.keys(SECTIONS)
    : options.whole
    ? Object.keys(SECTIONS).filter((name) => name !== LONG || options.long !== undefined)
    : ["latency", "poison"]);
const unknown = wanted.filter((name) => !Object.hasOwn(SECTIONS, name));
if (unknown.length > 0) {
  console.error(`No section ${unknown.join(", ")}\n\n${HELP}`);
  Deno.exit(64);
}

const out = new Gathered();
const sections: { name: string; seconds: number }[] = [];
let failed = 0;
const load = Number(fact("/proc/loadavg", /^(\S+)/));
for (const name of wanted) {
  out.section = name;
  if (!fits(name === "rows" ? 0 : PART_S)) {
    out.say("left out for want of time");
    continue;
  }
  out.say("begins");
  const begun = performance.now();
  try {
    await SECTIONS[name]?.(out);
  } catch (error) {
    // The others are worth having all the same.
    failed++;
    out.say(`failed: ${error instanceof Error ? error.message : String(error)}`);
  }
  sections.push({ name, seconds: Math.round((performance.now() - begun) / 1000) });
}
const report: Report = {
  made: new Date().toISOString().slice(0, 16) + "Z",
  machine: {
    deno: Deno.version.deno,
    processors: navigator.hardwareConcurrency,
    model: fact("/proc/cpuinfo", /^model name\s*:\s*(.+)$/m),
    kernel: fact("/proc/sys/kernel/osrelease", /^(\S+)/),
    filesystem: await filesystem(),
    load,
  },
  sections,
  figures: out.figures,
  curves: out.curves,
};
console.log(tableText(report));
const path = options.docs ? PERFORMANCE.data : options.out ?? join(Deno.cwd(), "bench.json");
Deno.writeTextFileSync(path, JSON.stringify(report, null, 1) + "\n");
if (options.docs) draw(report);
console.log(`\nFigures as JSON: ${path}`);
Deno.exit(failed > 0 || (options.check && !out.figures.every(isMet)) ? 1 : 0);
