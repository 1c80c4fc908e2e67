/**
 * Runs the tests: `deno task test [file... | filter]`. Ends with one line, `N passed, N failed,
 * N skipped`, and before it names every skipped test with its reason. A whole run that skips more
 * than `tests/max_skips` allows has failed, and so has one with a skipped test that gives no
 * reason: a test that never runs shall not look like one that passes.
 *
 * `--part across` runs the files that `tests/across` lists: those whose outcome may depend on the
 * version of the runtime together with the user, for the combinations that a whole run left out.
 * `--without once` runs all but the files that `tests/once` lists. `--slice 1/3`, alone or behind one
 * of these, runs the first of three shares of the files, for runs side by side.
 *
 * `DENO_JOBS=N` runs test files side by side; some tests measure time, so the default is one after
 * the other.
 *
 * @module
 */
import { join, resolve } from "node:path";
import {
  cacheEnvironment,
  decideStd,
  inRepository,
  invocationDirectory,
  QUIET,
  RegistryError,
  removeTemporaryCache,
  REPOSITORY,
  type Std,
  stdFlags,
} from "./launcher.ts";
import { readCounts, readSkips, type Run, verdict } from "./test_report.ts";

/** Directories whose `*_test.ts` files are the suite. */
const SUITE = ["tests", "spec-conformance"];

/** True when `directory` is there and holds a test file at any depth. */
function hasTests(directory: string): boolean {
  try {
    for (const entry of Deno.readDirSync(directory)) {
      if (entry.isFile && /_test\.ts$/.test(entry.name)) return true;
      if (entry.isDirectory && hasTests(join(directory, entry.name))) return true;
    }
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  return false;
}

/** Every test file at or below a directory. */
function testFiles(directory: string): string[] {
  return [...Deno.readDirSync(directory)].flatMap((entry) => {
    const path = join(directory, entry.name);
    if (entry.isDirectory) return testFiles(path);
    return /_test\.ts$/.test(entry.name) ? [path] : [];
  }).sort();
}

/** The files of a part of the suite, one name a line in `tests/<part>`. */
function partFiles(part: string): string[] {
  const names = Deno.readTextFileSync(inRepository("tests", part)).split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  const files = names.map((name) => inRepository("tests", name));
  for (const file of files) Deno.statSync(file);
  if (files.length === 0) throw new Error(`Cannot run tests/${part}: it names no file`);
  return files;
}

/** Every file of the suite. */
function suiteFiles(): string[] {
  return SUITE.filter((directory) => hasTests(inRepository(directory)))
    .flatMap((directory) => testFiles(inRepository(directory)));
}

/**
 * Every `COUNT`th file from the `NUMBER`th on, so that the shares are alike.
 *
 * @param slice `NUMBER/COUNT`, each of one digit
 * @throws Error when `slice` is no such share
 */
export function share(files: readonly string[], slice: string): string[] {
  const [, number, count] = /^([1-9])\/([1-9])$/.exec(slice) ?? [];
  if (number === undefined || Number(number) > Number(count)) {
    throw new Error("usage: --slice NUMBER/COUNT, from 1/1 to 9/9");
  }
  return files.filter((_, index) => index % Number(count) === Number(number) - 1);
}

/** Arguments that name something that is there are files; another one is a filter. */
function selection(args: readonly string[]): { files: string[]; filters: string[] } {
  const files: string[] = [];
  const filters: string[] = [];
  if (args[0] === "--part" || args[0] === "--without") {
    const [how, part = "", ...rest] = args;
    if (!/^[a-z]+$/.test(part)) throw new Error(`usage: ${how} NAME, a list below tests/`);
    const listed = partFiles(part);
    files.push(
      ...(how === "--part" ? listed : suiteFiles().filter((file) => !listed.includes(file))),
    );
    args = rest;
  }
  if (args[0] === "--slice") {
    const [, slice = "", ...rest] = args;
    const shared = share(files.length > 0 ? files.splice(0) : suiteFiles(), slice);
    if (shared.length === 0) throw new Error(`Cannot run slice ${slice}: no file is in it`);
    files.push(...shared);
    args = rest;
  }
  for (const arg of args) {
    const path = resolve(invocationDirectory(), arg);
    try {
      Deno.statSync(path);
      files.push(path);
    } catch {
      filters.push(arg);
    }
  }
  return { files, filters };
}

/** How many skipped tests a whole run may have. */
function maxSkips(): number {
  const text = Deno.readTextFileSync(inRepository("tests", "max_skips")).trim();
  if (!/^\d+$/.test(text)) throw new Error(`Cannot read tests/max_skips: "${text}" is no number`);
  return Number(text);
}

/** Removes a directory that tests may have left in any state; tells what it could not remove. */
function removeTree(directory: string): void {
  try {
    Deno.removeSync(directory, { recursive: true });
  } catch (error) {
    console.error(`Not removed: ${directory}: ${error instanceof Error ? error.message : error}`);
  }
}

/** Copies a stream to standard output and returns all of it as text. */
async function tee(stream: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of stream) {
    for (let at = 0; at < chunk.length;) at += Deno.stdout.writeSync(chunk.subarray(at));
    text += decoder.decode(chunk, { stream: true });
  }
  return text;
}

/** Deno up to 2.8 always looks for what a test leaves open; a later one has to be asked. */
function sanitizerFlags(): string[] {
  const [major = 0, minor = 0] = Deno.version.deno.split(".").map(Number);
  return major > 2 || minor > 8 ? ["--sanitize-ops", "--sanitize-resources"] : [];
}

/** Environment of the tests: ours, with their temporary files in `scratch`. */
function testEnvironment(std: Std, scratch: string): Record<string, string> {
  const env: Record<string, string> = {
    ...Deno.env.toObject(),
    ...QUIET,
    ...cacheEnvironment(),
    TMPDIR: scratch,
    // Decided once; the tools that tests run need not ask again.
    CHB_STD: std,
  };
  // It belongs to the command that a human typed, not to the commands that tests run.
  delete env["INIT_CWD"];
  delete env["CHB_TYPES_CHECKED"];
  return Deno.stdout.isTerminal() ? env : { ...env, NO_COLOR: "1" };
}

/** Runs `deno test`, with the tests' temporary files in `scratch`. */
async function runTests(std: Std, args: readonly string[], scratch: string): Promise<Run> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "test",
      "-A",
      // Where types were checked beforehand it would only take time.
      ...(Deno.env.get("CHB_TYPES_CHECKED") ? ["--no-check"] : []),
      ...sanitizerFlags(),
      ...(Deno.env.get("DENO_JOBS") ? ["--parallel"] : []),
      ...args,
    ],
    cwd: REPOSITORY,
    clearEnv: true,
    env: testEnvironment(std, scratch),
    stdin: "null",
    stdout: "piped",
  }).spawn();
  const output = await tee(child.stdout);
  const { code } = await child.status;
  const left = [...Deno.readDirSync(scratch)].map((entry) => entry.name).sort();
  if (left.length > 0) console.log(`left behind in the temporary directory: ${left.join(" ")}`);
  return { counts: readCounts(output), skips: readSkips(output), code };
}

async function main(): Promise<number> {
  const { std, why } = await decideStd();
  console.log(`std: ${std} (${why})`);
  const { files, filters } = selection(Deno.args);
  // What tests forget is found here and removed. Tests that play another user pass through it.
  const scratch = Deno.makeTempDirSync({ prefix: "chb-tests-" });
  Deno.chmodSync(scratch, 0o755);
  try {
    const run = await runTests(std, [
      ...stdFlags(std),
      ...filters.map((filter) => `--filter=${filter}`),
      ...(files.length > 0 ? files : suiteFiles()),
    ], scratch);
    const whole = Deno.args.length === 0;
    const { passed, failed, skipped, complaints } = verdict(run, whole ? maxSkips() : undefined);
    for (const { name, reason } of run.skips) console.log(`skipped: ${name}: ${reason || "?"}`);
    for (const complaint of complaints) console.log(`not good: ${complaint}`);
    console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
    return failed > 0 ? 1 : 0;
  } finally {
    removeTree(scratch);
  }
}

if (import.meta.main) {
  let code = 1;
  try {
    code = await main();
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    console.error(error.message);
  } finally {
    removeTemporaryCache();
  }
  Deno.exit(code);
}
