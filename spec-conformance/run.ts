/**
 * `deno task conformance [--command CMD] [--level LEVEL] [--only GLOB] [--report FILE]`: plays the
 * vectors against an implementation and prints what became of them, by chapter. Without `--command`
 * it is this program, run from source. Ends with 1 when a vector failed or could not be played.
 *
 * @module
 */
import { join } from "node:path";
import { cacheEnvironment, decideStd, invocationDirectory } from "../tools/launcher.ts";
import { playAll } from "./suite/play.ts";
import { failed, reportOf, table } from "./suite/report.ts";
import { type Level, LEVELS, matches, readVectors, SUITE, upTo } from "./suite/vector.ts";

const USAGE = `usage: deno task conformance [--command CMD] [--level ${LEVELS.join(" | ")}]
         [--only GLOB] [--report FILE] [--patience MS] [--jobs N] [--work DIR] [--first]

CMD is given to a shell, which starts it as the README of spec-conformance/ says. Without it this
program is started from source. --level plays that level and those below it, all by default.
Example:  deno task conformance --command ./my-bridge --level core`;

/** The command that starts this program from source. */
export async function sourceCommand(): Promise<string> {
  const { std } = await decideStd();
  const words = Object.entries({ ...cacheEnvironment(), CHB_STD: std, CHB_DENO: Deno.execPath() })
    .map(([name, value]) => `${name}='${value}'`);
  return `env ${words.join(" ")} '${join(SUITE, "adapters", "chb-source")}'`;
}

function parse(args: readonly string[]): Map<string, string> | null {
  const given = new Map<string, string>();
  const known = ["command", "level", "only", "report", "patience", "jobs", "work"];
  for (let i = 0; i < args.length; i++) {
    const name = args[i]?.replace(/^--/, "") ?? "";
    if (args[i] === "--first") given.set("first", "");
    else if (args[i]?.startsWith("--") && known.includes(name) && args[i + 1] !== undefined) {
      given.set(name, args[++i] ?? "");
    } else return null;
  }
  return given;
}

async function main(): Promise<number> {
  const given = parse(Deno.args);
  const level = LEVELS.find((one) => one === (given?.get("level") ?? "durable"));
  if (given === null || level === undefined) {
    console.error(USAGE);
    return 64;
  }
  const levels: readonly Level[] = upTo(level);
  const only = given.get("only") ?? "*";
  const vectors = readVectors().filter((one) =>
    levels.includes(one.level) && matches(only, one.id)
  );
  if (vectors.length === 0) {
    console.error(`No vector is called ${only} at level ${level}`);
    return 64;
  }
  const work = given.get("work");
  const begun = performance.now();
  const played = await playAll(vectors, {
    command: given.get("command") ?? await sourceCommand(),
    patience_ms: Number(given.get("patience") ?? 30_000),
    ...(work === undefined ? {} : { work }),
    ...(given.has("first") ? { first: true } : {}),
  }, Number(given.get("jobs") ?? 2));
  const report = reportOf(played, level);
  console.log(table(report));
  console.log(`${((performance.now() - begun) / 1000).toFixed(1)} s`);
  const file = given.get("report");
  if (file !== undefined) Deno.writeTextFileSync(file, JSON.stringify(report, null, 2) + "\n");
  return failed(report) ? 1 : 0;
}

if (import.meta.main) {
  // A command and a file are meant as seen from where the human stands.
  Deno.chdir(invocationDirectory());
  Deno.exit(await main());
}
