/** The benchmark itself, with sizes that show nothing but that it measures. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import type { Report } from "../tools/bench_kit.ts";
import { inRepository } from "../tools/launcher.ts";
import { BUILD } from "#build";

async function bench(...words: string[]): Promise<{ code: number; out: string; err: string }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-config", inRepository("tools", "bench.ts"), ...words],
    env: { CHB_STD: BUILD.std },
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  return { code, out: text.decode(stdout), err: text.decode(stderr) };
}

Deno.test("deno task bench measures the sections that it is asked for, and keeps what it measured", async () => {
  const dir = Deno.makeTempDirSync({ prefix: "chb-bench-test-" });
  try {
    const file = join(dir, "figures.json");
    const done = await bench("--quick", "--only", "output", "--out", file);
    assertEquals(done.code, 0, done.err);
    const report: Report = JSON.parse(Deno.readTextFileSync(file));
    assertEquals(report.sections.map(({ name }) => name), ["output"]);
    const took = report.figures.find(({ what }) => what === "20 MB of output");
    assert(took !== undefined && took.value > 0 && took.unit === "s", JSON.stringify(report));
    for (const { what } of report.figures) assertStringIncludes(done.out, what);
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});

Deno.test("deno task bench names the sections that there are to who asks for another", async () => {
  const { code, err } = await bench("--only", "speed");
  assertEquals(code, 64);
  assertStringIncludes(err, "No section speed");
  assertStringIncludes(err, "latency, throughput");
});
