/**
 * What a run found: kept apart by what it says of the implementation (pass, fail), of the suite
 * (error), of this machine (skip), and what no vector can show (manual).
 *
 * @module
 */
import type { Played } from "./play.ts";
import { readJson } from "./vector.ts";

/** A requirement, as `requirements.json` has it. */
export interface Requirement {
  readonly id: string;
  readonly level: "MUST" | "SHOULD" | "MAY";
  readonly conformance: "core" | "hardened" | "durable";
  readonly text: string;
  readonly source: string;
  /** Reserved for the upstream identifier. */
  readonly chb: null;
  readonly vectors?: readonly string[];
  readonly test?: { readonly file: string; readonly name: string };
  readonly manual?: string;
}

/** The file with all requirements. */
export interface Requirements {
  readonly name: string;
  readonly version: string;
  readonly chapters: Readonly<Record<string, string>>;
  readonly requirements: readonly Requirement[];
}

/** The requirements of the suite. */
export function readRequirements(): Requirements {
  return readJson<Requirements>("requirements.json");
}

interface Row {
  readonly chapter: string;
  readonly title: string;
  readonly pass: number;
  readonly fail: number;
  readonly error: number;
  readonly skip: number;
  /** Requirements of the chapter that are looked at by a person. */
  readonly manual: number;
}

export interface Report {
  readonly name: string;
  readonly version: string;
  readonly level: string;
  readonly chapters: readonly Row[];
  readonly vectors: readonly Played[];
}

/** Counts by chapter. */
export function reportOf(played: readonly Played[], level: string): Report {
  const { name, version, chapters, requirements } = readRequirements();
  const rows = Object.entries(chapters).sort().map(([chapter, title]) => {
    const of = (status: Played["status"]) =>
      played.filter((one) => one.id.startsWith(`${chapter}/`) && one.status === status).length;
    const manual = requirements.filter((one) =>
      one.id.startsWith(`R${chapter}-`) && one.manual !== undefined
    ).length;
    return {
      chapter,
      title,
      pass: of("pass"),
      fail: of("fail"),
      error: of("error"),
      skip: of("skip"),
      manual,
    };
  });
  return { name, version, level, chapters: rows, vectors: played };
}

/** True when the implementation or the suite did wrong. */
export function failed({ vectors }: Report): boolean {
  return vectors.some(({ status }) => status === "fail" || status === "error");
}

/** The table, with what went wrong below it. */
export function table(report: Report): string {
  const lines = [
    `${report.name} v${report.version}, level ${report.level}`,
    "",
    "chapter                              pass  fail error  skip manual",
  ];
  const row = (title: string, of: Omit<Row, "chapter" | "title">) =>
    `${title.slice(0, 35).padEnd(35)} ${
      [of.pass, of.fail, of.error, of.skip, of.manual].map((n) => String(n).padStart(5)).join(" ")
    }`;
  const sum = { pass: 0, fail: 0, error: 0, skip: 0, manual: 0 };
  for (const one of report.chapters) {
    lines.push(row(`${one.chapter} ${one.title}`, one));
    for (const key of ["pass", "fail", "error", "skip", "manual"] as const) sum[key] += one[key];
  }
  lines.push(row("all", sum), "");
  for (const { id, status, why } of report.vectors) {
    if (status !== "pass") lines.push(`${status}: ${id}: ${why.join(" ")}`);
  }
  return lines.join("\n");
}
