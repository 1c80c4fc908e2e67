/**
 * What tests of the compiled program need: an executable, or something to make one with. `.ci/run`
 * sees to both.
 *
 * @module
 */
import { assert } from "@std/assert";
import { inRepository } from "../../tools/launcher.ts";

/** An executable that is there already, as `CHB_BINARY` names it. */
export const BINARY: string | undefined = Deno.env.get("CHB_BINARY");

/** Why nothing can be compiled here, or null. */
export function cannotCompile(): string | null {
  return Deno.env.get("DENO_COMPILE") || Deno.env.get("DENORT_BIN")
    ? null
    : "neither DENO_COMPILE nor DENORT_BIN names something to compile with";
}

/** Why there is no executable to test, or null. */
export function noBinary(): string | null {
  return BINARY ? null : cannotCompile();
}

/** Compiles as `deno task compile` does; what it printed. */
export async function compile(...args: string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-config", inRepository("tools", "compile.ts"), ...args],
    stdin: "null",
  }).output();
  assert(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}
