/**
 * Our own program against the whole suite: from source, and compiled where there is something to
 * compile with (`CHB_BINARY` says that there is; the executable is made anew, for the programs of the
 * suite).
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { sourceCommand } from "./run.ts";
import { playAll } from "./suite/play.ts";
import { readVectors, SUITE } from "./suite/vector.ts";
import { policyText } from "./suite/work.ts";

/** How long an answer may take on a machine that does other things too, milliseconds. */
const PATIENCE = 60_000;

Deno.test("our program, from source, passes every vector of every level", async () => {
  const played = await playAll(
    readVectors(),
    { command: await sourceCommand(), patience_ms: PATIENCE },
    2,
  );
  assertEquals(played.filter(({ status }) => status === "fail" || status === "error"), []);
  const skipped = played.filter(({ status }) => status === "skip").map(({ id }) => id);
  // What this user cannot make: root reads every file, everybody else makes no device.
  const allowed = Deno.uid() === 0 ? ["09/unreadable", "09/device"] : ["09/device"];
  assertEquals(skipped.filter((id) => !allowed.includes(id)), []);
});

const WHY = Deno.env.get("CHB_BINARY") || Deno.env.get("DENORT_BIN")
  ? null
  : "neither CHB_BINARY nor DENORT_BIN is set: there is nothing to compile with";

Deno.test({
  name: `our program, compiled, passes every vector of core${WHY === null ? "" : ` # SKIP ${WHY}`}`,
  ignore: WHY !== null,
  fn: async () => {
    const directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "conformance-binary-" }));
    Deno.chmodSync(directory, 0o755);
    try {
      // The programs' paths are compiled in, so the work directory is chosen first.
      const work = join(directory, "work");
      const policy = join(directory, "bridge.jsonc");
      Deno.writeTextFileSync(policy, policyText(work, "core"));
      const executable = join(directory, "chb");
      const made = await new Deno.Command(Deno.execPath(), {
        args: [
          "run",
          "-A",
          "--no-config",
          inRepository("tools", "compile.ts"),
          "--policy",
          policy,
          "--out",
          executable,
        ],
        stdin: "null",
      }).output();
      assert(made.success, new TextDecoder().decode(made.stderr));
      const command = `env CHB_DENO='${Deno.execPath()}' CHB_BINARY='${executable}' '${
        join(SUITE, "adapters", "chb-binary")
      }'`;
      const vectors = readVectors().filter(({ policy }) => policy === "core");
      const played = await playAll(vectors, { command, patience_ms: PATIENCE, work }, 1);
      assertEquals(played.filter(({ status }) => status === "fail" || status === "error"), []);
    } finally {
      Deno.removeSync(directory, { recursive: true });
    }
  },
});
