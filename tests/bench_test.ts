/** The benchmark itself, with sizes that show nothing but that it measures. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import type { Report } from "../tools/bench_kit.ts";
import { fill } from "../tools/bench_fill.ts";
import { inRepository } from "../tools/launcher.ts";
import { TestBridge, verb } from "./helpers/bridge.ts";
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

Deno.test("what the benchmark fills in is a ledger that holds, and whose keys are replayed", async () => {
  await using bridge = await TestBridge.make({ verbs: { observe: verb(["/usr/bin/true"]) } });
  fill(bridge, 12_000);
  const { code, out } = await bridge.chb("audit", "verify", "--json");
  assertEquals(code, 0, out);
  const { records, rows } = JSON.parse(out);
  assertEquals([records > 36_000, rows], [true, 12_000]);
  await bridge.serve();
  for (const id of ["old-0", "old-11999"]) {
    const { state, outcome, replays, finished_at } = await bridge.ask(id, { verb: "observe" });
    assertEquals([state, outcome, replays], ["done", "succeeded", 1]);
    assert(Date.parse(finished_at ?? "") < Date.now() - 59 * 86_400_000, finished_at);
  }
  assertEquals((await bridge.ask("new", { verb: "observe" })).replays, undefined);
});

Deno.test("deno task bench measures a day of the audit log", async () => {
  const file = Deno.makeTempFileSync({ prefix: "chb-bench-test-" });
  try {
    const done = await bench("--quick", "--only", "day", "--out", file);
    assertEquals(done.code, 0, done.err);
    const report: Report = JSON.parse(Deno.readTextFileSync(file));
    const of = (what: string) =>
      report.figures.find((figure) => figure.what === what)?.value ?? NaN;
    assert(of("audit log, 300 requests") > 0.3, done.out);
    for (const what of ["audit verify, 300 requests", "a request around a rotation, slowest"]) {
      assert(of(what) > 0, done.out);
    }
  } finally {
    Deno.removeSync(file);
  }
});

Deno.test("deno task bench names the sections that there are to who asks for another", async () => {
  const { code, err } = await bench("--only", "speed");
  assertEquals(code, 64);
  assertStringIncludes(err, "No section speed");
  assertStringIncludes(err, "latency, throughput");
});
