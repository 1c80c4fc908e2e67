/**
 * Amounts of what is spent, as whole billionths: sums and comparisons of them are exact, which those
 * of floating-point numbers are not. What is finer than a billionth is rounded against whoever
 * spends: limits and grants down, costs and reports up.
 *
 * @module
 */

/** Decimal places that are kept. */
const PLACES = 9;
const ONE = 10n ** BigInt(PLACES);
/** Longest report in characters, and the largest amount that counts as one. */
const REPORT_MAX = 64;
const AMOUNT_MAX = 1_000_000_000n * ONE;

/** A number of at least zero as digits, an optional point and digits, and an optional exponent. */
const NUMBER = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/;

function split(value: number): { units: bigint; rest: boolean } {
  const match = NUMBER.exec(String(value));
  if (match === null || value < 0) throw new RangeError("Cannot count an amount: it is no number");
  const [, whole = "", fraction = "", exponent = "0"] = match;
  return scale(whole + fraction, Number(exponent) - fraction.length);
}

/** `digits` times ten to the `power`, in billionths; `rest` when something finer was cut off. */
function scale(digits: string, power: number): { units: bigint; rest: boolean } {
  const shift = power + PLACES;
  if (shift >= 0) return { units: BigInt(digits) * 10n ** BigInt(shift), rest: false };
  const kept = digits.slice(0, shift);
  return { units: BigInt(kept === "" ? "0" : kept), rest: /[1-9]/.test(digits.slice(shift)) };
}

/**
 * A limit or a grant: rounded down.
 *
 * @throws {RangeError} when the number is negative or not finite
 */
export function floorAmount(value: number): bigint {
  return split(value).units;
}

/** A cost: rounded up. Errors as `floorAmount`. */
export function ceilAmount(value: number): bigint {
  const { units, rest } = split(value);
  return rest ? units + 1n : units;
}

/** The amount as a plain decimal without trailing zeros. */
export function amountText(units: bigint): string {
  const digits = units.toString().padStart(PLACES + 1, "0");
  const fraction = digits.slice(-PLACES).replace(/0+$/, "");
  return `${digits.slice(0, -PLACES)}${fraction === "" ? "" : `.${fraction}`}`;
}

/** The amount as a number, as programs take it. */
export function amountNumber(units: bigint): number {
  return Number(amountText(units));
}

/**
 * What a command reports to have spent: one plain decimal, such as `0.25`, with at most one newline
 * after it. Rounded up.
 *
 * @returns null when it is anything else, or more than a thousand million
 */
export function parseReport(text: string): bigint | null {
  if (text.length > REPORT_MAX) return null;
  const match = /^(\d+)(?:\.(\d+))?\r?\n?$/.exec(text);
  if (match === null) return null;
  const [, whole = "", fraction = ""] = match;
  const { units, rest } = scale(whole + fraction, -fraction.length);
  const amount = rest ? units + 1n : units;
  return amount > AMOUNT_MAX ? null : amount;
}
