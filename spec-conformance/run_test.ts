/**
 * Our own program against the whole suite. Compiled, where there is something to compile with, it
 * plays what needs the policy of `core`; from source it plays all others, or everything where nothing
 * can be compiled. With CI_WHOLE set it plays everything both ways.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { cannotCompile, compile } from "../tests/helpers/compiled.ts";
import { sourceCommand } from "./run.ts";
import { playAll } from "./suite/play.ts";
import { readVectors, SUITE, type Vector } from "./suite/vector.ts";
import { policyText } from "./suite/work.ts";

/** How long an answer may take on a machine that does other things too, milliseconds. */
const PATIENCE = 60_000;
const WHY = cannotCompile();
const isCore = ({ policy }: Vector) => policy === "core";

async function assertPassing(vectors: readonly Vector[], command: string, work?: string) {
  const options = { command, patience_ms: PATIENCE };
  const played = await playAll(vectors, work === undefined ? options : { ...options, work }, 2);
  assertEquals(played.length, vectors.length);
  assertEquals(played.filter(({ status }) => status === "fail" || status === "error"), []);
  const skipped = played.filter(({ status }) => status === "skip").map(({ id }) => id);
  // What this user cannot make: root reads every file, everybody else makes no device.
  const allowed = Deno.uid() === 0 ? ["09/unreadable", "09/device"] : ["09/device"];
  assertEquals(skipped.filter((id) => !allowed.includes(id)), []);
}

Deno.test("our program, from source, passes every vector that the compiled one does not play", async () => {
  const all = WHY !== null || Boolean(Deno.env.get("CI_WHOLE"));
  await assertPassing(readVectors().filter((one) => all || !isCore(one)), await sourceCommand());
});

// Each needs an executable of its own. Those of the other policies take a task of their own.
const COMPILED = Deno.env.get("CI_WHOLE")
  ? [...new Set(readVectors().map(({ policy }) => policy))].sort()
  : ["core"];

for (const name of COMPILED) {
  Deno.test({
    name: `our program, compiled, passes every vector of the policy ${name}` +
      (WHY === null ? "" : ` # SKIP ${WHY}`),
    ignore: WHY !== null,
    fn: async () => {
      const directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "conformance-binary-" }));
      Deno.chmodSync(directory, 0o755);
      try {
        // The programs' paths are compiled in, so the work directory is chosen first.
        const work = join(directory, "work");
        const policy = join(directory, "bridge.jsonc");
        // What the adapter puts elsewhere than into a policy of chb.
        const own = JSON.parse(policyText(work, name));
        for (const key of ["keys", "base", "trusted"]) delete own[key];
        Deno.writeTextFileSync(policy, JSON.stringify(own));
        const executable = join(directory, "chb");
        await compile("--policy", policy, "--out", executable);
        const command = `env CHB_DENO='${Deno.execPath()}' CHB_BINARY='${executable}' '${
          join(SUITE, "adapters", "chb-binary")
        }'`;
        await assertPassing(readVectors().filter((one) => one.policy === name), command, work);
      } finally {
        Deno.removeSync(directory, { recursive: true });
      }
    },
  });
}
