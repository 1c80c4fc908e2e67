/** The published figures: page and drawing are what the tool makes of the measured ones. */
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { isMet, type Report } from "../tools/bench_kit.ts";
import { drawFigure, pageTable, PERFORMANCE, withTable } from "../tools/bench_page.ts";

const report: Report = JSON.parse(Deno.readTextFileSync(PERFORMANCE.data));
const page = Deno.readTextFileSync(PERFORMANCE.page);

Deno.test("the table of docs/performance.md holds the measured figures and nothing else", () => {
  assertEquals(withTable(page, report), page);
  assertStringIncludes(page, pageTable(report));
  assertThrows(() => withTable("a page", report), RangeError);
  const [first, ...others] = report.figures;
  assert(first !== undefined);
  const changed = { ...report, figures: [{ ...first, value: first.value + 1 }, ...others] };
  assert(withTable(page, changed) !== page);
});

Deno.test("docs/figures/performance.svg is what the tool draws from the measured figures", () => {
  assertEquals(Deno.readTextFileSync(PERFORMANCE.figure), drawFigure(report));
  const [first, ...others] = report.curves;
  assert(first !== undefined);
  const percentiles = first.percentiles.map((ms) => ms * 2);
  const changed = { ...report, curves: [{ ...first, percentiles }, ...others] };
  assert(drawFigure(changed) !== drawFigure(report));
});

Deno.test("a figure is met by its target only", () => {
  const figure = { section: "s", what: "w", value: 2, unit: "times" } as const;
  assert(isMet(figure));
  assert(
    isMet({ ...figure, target: { atMost: 2 } }) && isMet({ ...figure, target: { atLeast: 2 } }),
  );
  assert(!isMet({ ...figure, target: { atMost: 1.9 } }));
  assert(!isMet({ ...figure, target: { atLeast: 2.1 } }));
});
