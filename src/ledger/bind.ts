/**
 * The only door through which values reach SQL. The driver turns some values into NULL without a
 * word (an object, an array, NaN) and cuts a text at its first NUL when it is read again, so each
 * value is checked here, on its way in and on its way out.
 *
 * @module
 */

/** What may be bound or read. */
export type SqlValue = string | number | bigint | Uint8Array | null;

/** A row as the driver hands it out. */
export type SqlRow = Record<string, SqlValue>;

const INT64 = 2n ** 63n;

/**
 * The value itself, when SQLite stores it as it is.
 *
 * @throws {TypeError} when it is no text, number, bigint, byte array or null
 * @throws {RangeError} when a text has a NUL or half a surrogate pair, a number is not finite or is
 *   whole and not safe, or a bigint needs more than 64 bits
 */
export function sqlValue(value: unknown): SqlValue {
  if (value === null) return value;
  switch (typeof value) {
    case "string":
      if (value.includes("\0")) throw new RangeError("Cannot store text: it holds a NUL");
      if (!value.isWellFormed()) {
        throw new RangeError("Cannot store text: it holds half a surrogate pair");
      }
      return value;
    case "number":
      if (!Number.isFinite(value)) throw new RangeError("Cannot store number: it is not finite");
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
        throw new RangeError("Cannot store number: it is whole and not safe");
      }
      return value;
    case "bigint":
      if (value < -INT64 || value >= INT64) {
        throw new RangeError("Cannot store bigint: it needs more than 64 bits");
      }
      return value;
    default:
      if (value instanceof Uint8Array) return value;
      throw new TypeError(`Cannot store value: a ${typeof value} has no place in the ledger`);
  }
}

/** A column that must hold text. */
export function textOf(row: SqlRow, column: string): string {
  const value = row[column];
  if (typeof value === "string") return value;
  throw new TypeError(`Cannot read column "${column}": it holds no text`);
}

/** A column that must hold text or nothing. */
export function textOrNull(row: SqlRow, column: string): string | null {
  return row[column] === null ? null : textOf(row, column);
}

/** A column that must hold a number. */
export function numberOf(row: SqlRow, column: string): number {
  const value = row[column];
  if (typeof value === "number") return value;
  throw new TypeError(`Cannot read column "${column}": it holds no number`);
}

/** A column that must hold a number or nothing. */
export function numberOrNull(row: SqlRow, column: string): number | null {
  return row[column] === null ? null : numberOf(row, column);
}

/** A column that must hold bytes. */
export function bytesOf(row: SqlRow, column: string): Uint8Array {
  const value = row[column];
  if (value instanceof Uint8Array) return value;
  throw new TypeError(`Cannot read column "${column}": it holds no bytes`);
}
