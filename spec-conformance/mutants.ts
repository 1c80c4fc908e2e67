/**
 * `deno task mutants [--only TEXT] [--report FILE]`: takes one check at a time out of a copy of our
 * program and plays vectors against it. A mutant is killed when a vector fails, and survives when
 * none does: then a vector is missing. The vectors that should notice are played first, all others only
 * when they did not. Ends with 1 when a mutant survived.
 *
 * @module
 */
import { join } from "node:path";
import { cacheEnvironment, decideStd, REPOSITORY } from "../tools/launcher.ts";
import { type Change, type Mutant, MUTANTS } from "./mutant_list.ts";
import { playAll } from "./suite/play.ts";
import { matches, readVectors, type Vector } from "./suite/vector.ts";

export { type Mutant, MUTANTS };

/**
 * The text of a file with a change made to it.
 *
 * @throws {Error} when its place is not there exactly once
 */
export function mutate({ file, find, replace }: Change, text: string): string {
  const parts = text.split(find);
  if (parts.length !== 2) {
    throw new Error(`${file} has ${JSON.stringify(find)} ${parts.length - 1} times, not once`);
  }
  return parts.join(replace);
}

/** Every change of a mutant, each of another file. */
export function changesOf(mutant: Mutant): readonly Change[] {
  return [mutant, ...mutant.also ?? []];
}

/** What became of a mutant. */
export interface Judged {
  readonly what: string;
  readonly killed: boolean;
  /** The vectors that noticed, or why it could not be judged. */
  readonly by: readonly string[];
  readonly ms: number;
}

/** A copy of the program that can be changed. */
class Copy {
  readonly directory = Deno.makeTempDirSync({ prefix: "chb-mutants-" });

  constructor() {
    Deno.chmodSync(this.directory, 0o755);
    const { success, stderr } = new Deno.Command("cp", {
      args: [
        "-R",
        "main.ts",
        "deno.json",
        "src",
        "tools",
        "agent",
        "spec-conformance",
        this.directory,
      ],
      cwd: REPOSITORY,
    }).outputSync();
    if (!success) throw new Error(new TextDecoder().decode(stderr));
  }

  async command(): Promise<string> {
    const { std } = await decideStd();
    const words = Object.entries({
      ...cacheEnvironment(),
      CHB_STD: std,
      CHB_DENO: Deno.execPath(),
    }).map(([name, value]) => `${name}='${value}'`);
    const adapter = join(this.directory, "spec-conformance/adapters/chb-source");
    return `env ${words.join(" ")} '${adapter}'`;
  }

  async judge(mutant: Mutant, patience_ms: number): Promise<Judged> {
    const begun = performance.now();
    const texts = new Map<string, string>();
    try {
      for (const change of changesOf(mutant)) {
        const path = join(this.directory, change.file);
        const text = Deno.readTextFileSync(path);
        texts.set(path, text);
        Deno.writeTextFileSync(path, mutate(change, text));
      }
      const vectors = readVectors();
      const first = vectors.filter(({ id }) => mutant.vectors.some((one) => matches(one, id)));
      let by = await this.#failing(first, patience_ms);
      if (by.length === 0) {
        by = await this.#failing(vectors.filter((one) => !first.includes(one)), patience_ms);
      }
      return {
        what: mutant.what,
        killed: by.length > 0,
        by,
        ms: Math.round(performance.now() - begun),
      };
    } finally {
      for (const [path, text] of texts) Deno.writeTextFileSync(path, text);
    }
  }

  /** The first that fails of each policy. What cannot even start has been noticed, too. */
  async #failing(vectors: readonly Vector[], patience_ms: number): Promise<string[]> {
    const command = await this.command();
    const played = await playAll(vectors, { command, patience_ms, final_ms: 3000, first: true }, 1);
    return played.filter(({ status }) => status === "fail" || status === "error")
      .map(({ id, status, why }) =>
        `${status === "error" ? "error: " : ""}${id}: ${why.join(" ")}`
      );
  }

  remove(): void {
    Deno.removeSync(this.directory, { recursive: true });
  }
}

/** Judges mutants, one after the other. */
export async function judgeAll(
  mutants: readonly Mutant[],
  patience_ms: number,
  tell: (judged: Judged) => void = () => {},
): Promise<Judged[]> {
  const copy = new Copy();
  const all: Judged[] = [];
  try {
    for (const mutant of mutants) {
      const judged = await copy.judge(mutant, patience_ms);
      all.push(judged);
      tell(judged);
    }
  } finally {
    copy.remove();
  }
  return all;
}

async function main(): Promise<number> {
  const words = [...Deno.args];
  const option = (name: string) => {
    const at = words.indexOf(name);
    return at < 0 ? undefined : words.splice(at, 2)[1];
  };
  const only = option("--only") ?? "";
  const report = option("--report");
  const patience_ms = Number(option("--patience") ?? 20_000);
  if (words.length > 0) {
    console.error("usage: deno task mutants [--only TEXT] [--patience MS] [--report FILE]");
    return 64;
  }
  const mutants = MUTANTS.filter(({ what, file }) => `${file} ${what}`.includes(only));
  const all = await judgeAll(mutants, patience_ms, ({ what, killed, by, ms }) => {
    console.log(`${killed ? "killed  " : "SURVIVED"} ${what} (${ms} ms)`);
    if (killed) console.log(`         ${by[0]?.slice(0, 200)}`);
  });
  if (report !== undefined) Deno.writeTextFileSync(report, JSON.stringify(all, null, 2) + "\n");
  const survived = all.filter(({ killed }) => !killed).length;
  console.log(`${all.length - survived} killed, ${survived} survived`);
  return survived > 0 ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main());
