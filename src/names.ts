/**
 * The grammar of names that cross the boundary: request ids, agent names, idempotency keys, run
 * ids. Lower-case ASCII only, so that no file system can make two of them equal, and no dot, so
 * that no id can be the name of another id's output file.
 *
 * @module
 */

const ID = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const KEY = /^[a-z0-9][a-z0-9_-]{0,127}$/;
const RUN = /^[0-9a-f]{32}$/;

/** True for 1 to 64 of `a-z 0-9 - _`, starting with a letter or digit. */
export function isId(value: unknown): value is string {
  return typeof value === "string" && ID.test(value);
}

/** True for an idempotency key: the id grammar, up to 128 characters. */
export function isKey(value: unknown): value is string {
  return typeof value === "string" && KEY.test(value);
}

/** True for the name of a run directory: 128 random bits in hex. */
export function isRun(value: unknown): value is string {
  return typeof value === "string" && RUN.test(value);
}

/** `bytes` random bytes in lower-case hex. */
export function randomHex(bytes: number): string {
  const buffer = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(buffer, (b) => b.toString(16).padStart(2, "0")).join("");
}

/**
 * A text from a hostile source as printable ASCII: everything else becomes a JSON escape, so that
 * no name or value can move a cursor, forge a line, or hide text.
 *
 * @param text any string
 * @param max longest result in characters; what is longer ends in `...`
 */
export function printable(text: string, max = 200): string {
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    out += unit >= 0x20 && unit < 0x7f && unit !== 0x5c
      ? text[i]
      : unit === 0x5c
      ? "\\\\"
      : `\\u${unit.toString(16).padStart(4, "0")}`;
    if (out.length > max) return out.slice(0, Math.max(0, max - 3)) + "...";
  }
  return out;
}

/**
 * The same JSON in printable ASCII. What `JSON.stringify` leaves as it is (DEL, C1, separators,
 * direction marks and all else above them) stands in strings alone, and becomes `\uXXXX` there.
 */
export function asciiJson(json: string): string {
  return json.replace(
    /[\x7f-\uffff]/g,
    (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0"),
  );
}
