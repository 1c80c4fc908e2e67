/**
 * The published figures: the table in `docs/performance.md` and the drawing beside it, both made from
 * `docs/performance.json` alone. A test holds all three against each other.
 *
 * @module
 */
import { type Curve, type Figure, isMet, type Report } from "./bench_kit.ts";
import { inRepository } from "./launcher.ts";

/** Where the published figures lie. */
export const PERFORMANCE = Object.freeze({
  data: inRepository("docs", "performance.json"),
  page: inRepository("docs", "performance.md"),
  figure: inRepository("docs", "figures", "performance.svg"),
});

const BEGIN = "<!-- table: written by deno task bench -->";
const END = "<!-- end of table -->";

function number(value: number): string {
  return Math.abs(value) >= 1000 ? value.toLocaleString("en-US") : String(value);
}

function valueText({ value, unit, spread }: Figure): string {
  const range = spread === undefined ? "" : ` (${number(spread[0])} to ${number(spread[1])})`;
  return `${number(value)}${unit === "%" ? " %" : unit === "times" ? "" : ` ${unit}`}${range}`;
}

function targetText({ target }: Figure): string {
  if (target === undefined) return "";
  return "atMost" in target
    ? `at most ${number(Number(target.atMost.toPrecision(3)))}`
    : `at least ${number(target.atLeast)}`;
}

function verdict(figure: Figure): string {
  return figure.target === undefined ? "" : isMet(figure) ? "met" : "missed";
}

/** The machine and the moment, as one paragraph. */
function machineText({ made, machine }: Report): string {
  return `Measured ${made} with Deno ${machine.deno} on ${machine.processors} processors ` +
    `(${machine.model}), Linux ${machine.kernel}, ${machine.filesystem}; ` +
    `load before the start ${machine.load}.`;
}

/** The figures as Markdown. */
export function pageTable(report: Report): string {
  const rows = report.figures.map((figure) =>
    `| ${figure.section} | ${figure.what} | ${valueText(figure)} | ${targetText(figure)} | ${
      verdict(figure)
    } |`
  );
  return [
    machineText(report),
    "",
    "| section | figure | value (least to greatest of the runs) | target | |",
    "| --- | --- | --- | --- | --- |",
    ...rows,
  ].join("\n");
}

/** The figures for a terminal. */
export function tableText(report: Report): string {
  const lines = [machineText(report)];
  let section = "";
  for (const figure of report.figures) {
    if (figure.section !== section) {
      section = figure.section;
      const seconds = report.sections.find((s) => s.name === section)?.seconds ?? 0;
      lines.push("", `${section} (${seconds} s)`);
    }
    const target = targetText(figure);
    const told = target === "" ? "" : `  ${verdict(figure)}: ${target}`;
    lines.push(`  ${figure.what.padEnd(58)} ${valueText(figure)}${told}`);
  }
  return lines.join("\n");
}

/**
 * A page with its table written anew.
 *
 * @throws {RangeError} when the page has no place for it
 */
export function withTable(page: string, report: Report): string {
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) throw new RangeError("Cannot write table: the page has no place");
  const table = `${BEGIN}\n\n${pageTable(report)}\n\n`;
  return page.slice(0, begin) + table + page.slice(end);
}

// ------------------------------------------------------------------------------------------ figure

const WIDTH = 820;
const LEFT = 60;
const PLOT = { top: 50, height: 260, width: 520 };
const BAR = { height: 16, gap: 8, left: 400, width: 300 };
/** Told apart without colour too: each has its own dashes. */
const STROKES = [
  ["#1f5fa8", ""],
  ["#b3541e", "6 3"],
  ["#2e7d32", "2 2"],
  ["#6a3d9a", "8 3 2 3"],
  ["#555555", "1 3"],
  ["#00798c", "12 4"],
] as const;

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}

function text(x: number, y: number, words: string, more = ""): string {
  return `<text x="${x}" y="${y}"${more === "" ? "" : ` ${more}`}>${escape(words)}</text>`;
}

/** Latency by percentile, on a logarithmic scale. */
function curves(all: readonly Curve[]): string[] {
  const shown = all.filter((curve) =>
    !curve.name.startsWith("floor") || curve.name === "floor (observe)"
  );
  const values = shown.flatMap((curve) => curve.percentiles).filter((v) => v > 0);
  if (values.length === 0) return [];
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const x = (p: number) => LEFT + p / 100 * PLOT.width;
  const y = (ms: number) =>
    PLOT.top + PLOT.height - (Math.log10(ms) - low) / (high - low) * PLOT.height;
  const lines = [
    text(LEFT, 24, "Request to parsed result, milliseconds by percentile", 'class="title"'),
  ];
  for (let power = low; power <= high; power++) {
    const at = y(10 ** power).toFixed(1);
    lines.push(`<path class="grid" d="M${LEFT} ${at}H${LEFT + PLOT.width}"/>`);
    lines.push(text(LEFT - 8, Number(at) + 4, String(10 ** power), 'text-anchor="end"'));
  }
  for (const p of [0, 25, 50, 75, 99]) {
    const at = x(p).toFixed(1);
    lines.push(text(Number(at), PLOT.top + PLOT.height + 18, String(p), 'text-anchor="middle"'));
  }
  for (const [i, { name, percentiles }] of shown.entries()) {
    const [colour, dashes] = STROKES[i % STROKES.length] ?? STROKES[0];
    const path = percentiles.map((ms, p) =>
      `${p === 0 ? "M" : "L"}${x(p).toFixed(1)} ${y(Math.max(ms, 10 ** low)).toFixed(1)}`
    ).join("");
    const stroke = `stroke="${colour}"${dashes === "" ? "" : ` stroke-dasharray="${dashes}"`}`;
    lines.push(`<path class="curve" ${stroke} d="${path}"/>`);
    const at = PLOT.top + 12 + i * 20;
    const right = LEFT + PLOT.width + 16;
    lines.push(`<path class="curve" ${stroke} d="M${right} ${at - 4}h28"/>`);
    lines.push(text(right + 36, at, name));
  }
  return lines;
}

/** Every figure that has a target, as a part of it. */
function bars(figures: readonly Figure[], top: number): { lines: string[]; bottom: number } {
  const held = figures.filter((figure) => figure.target !== undefined);
  if (held.length === 0) return { lines: [], bottom: top };
  const lines = [
    text(
      LEFT - 40,
      top,
      "Figures against their targets (the line); shorter is better",
      'class="title"',
    ),
  ];
  let y = top + 16;
  for (const figure of held) {
    const { target, value } = figure;
    if (target === undefined) continue;
    const part = "atMost" in target ? value / target.atMost : target.atLeast / value;
    const width = Math.min(part, 2) / 2 * BAR.width;
    const colour = isMet(figure) ? "#2e7d32" : "#b3541e";
    const at = y + BAR.height - 4;
    lines.push(text(BAR.left - 8, at, figure.what, 'text-anchor="end"'));
    lines.push(
      `<rect x="${BAR.left}" y="${y}" width="${
        width.toFixed(1)
      }" height="${BAR.height}" fill="${colour}"/>`,
    );
    const words = `${part.toFixed(2)} ${isMet(figure) ? "met" : "missed"}`;
    lines.push(text(BAR.left + BAR.width + 8, at, words));
    y += BAR.height + BAR.gap;
  }
  const line = BAR.left + BAR.width / 2;
  lines.push(`<path class="target" d="M${line} ${top + 10}V${y}"/>`);
  return { lines, bottom: y };
}

/** The drawing, from nothing but the report. */
export function drawFigure(report: Report): string {
  const plot = curves(report.curves);
  const below = plot.length === 0 ? 30 : PLOT.top + PLOT.height + 60;
  const { lines, bottom } = bars(report.figures, below);
  const height = bottom + 16;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" ` +
    `width="${WIDTH}" height="${height}" role="img">`,
    "<title>Latency by percentile, and measured figures against their targets</title>",
    "<style>text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:14px}" +
    ".grid{stroke:#ddd;fill:none}.curve{fill:none;stroke-width:2}" +
    ".target{stroke:#222;stroke-dasharray:4 3;fill:none}</style>",
    `<rect width="${WIDTH}" height="${height}" fill="#fff"/>`,
    ...plot,
    ...lines,
    "</svg>",
    "",
  ].join("\n");
}
