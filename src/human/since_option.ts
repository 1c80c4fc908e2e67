/**
 * The options that bound how far a list looks back, and how long it gets.
 *
 * @module
 */
import { UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import type { Parsed } from "./command.ts";

/** Milliseconds of each unit of an age. */
const UNITS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 7 * 86_400_000,
};

/**
 * The time of `--since`: an age such as `90m`, `24h` or `7d`, or a date or time in ISO 8601, UTC
 * where it names no other zone.
 *
 * @param now wall clock, milliseconds
 * @returns wall-clock milliseconds, or null without the option
 * @throws {UsageError} for anything else
 */
export function sinceOption(args: Parsed, now: number): number | null {
  const word = args.options["since"];
  if (word === undefined) return null;
  const age = /^([0-9]{1,6})([smhdw])$/.exec(word);
  if (age !== null) return Math.max(0, now - Number(age[1]) * (UNITS[age[2] ?? ""] ?? 0));
  if (
    /^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?(?:Z|[+-]\d{2}:\d{2})?)?$/.test(
      word,
    )
  ) {
    const zoned = /(?:Z|[+-]\d{2}:\d{2})$/.test(word) && word.length > 10;
    const time = Date.parse(word.length === 10 || zoned ? word : `${word}Z`);
    if (Number.isFinite(time)) return time;
  }
  throw new UsageError(
    `--since takes an age such as 90m, 24h or 7d, or a time such as 2026-01-31T08:00: not ${
      printable(word, 60)
    }`,
  );
}

/**
 * The number of `--limit`.
 *
 * @throws {UsageError} when it is no whole number from 1 to `most`
 */
export function limitOption(args: Parsed, usual: number, most: number): number {
  const word = args.options["limit"];
  if (word === undefined) return usual;
  const limit = /^[0-9]{1,9}$/.test(word) ? Number(word) : 0;
  if (limit >= 1 && limit <= most) return limit;
  throw new UsageError(
    `--limit takes a whole number from 1 to ${most}: not ${printable(word, 60)}`,
  );
}
