/**
 * Paths that name a value inside a JSON text, as errors show them: `verbs.restart.argv[2]`. A key
 * that is not a plain, short name is quoted, escaped and cut, so that no key can forge a path.
 *
 * @module
 */
import { printable } from "../names.ts";

const PLAIN = /^[A-Za-z0-9_$][A-Za-z0-9_$-]{0,79}$/;

/** The path of a member or an element below `path`; `path` is "" for the whole text. */
export function below(path: string, key: string | number): string {
  if (typeof key === "number") return `${path}[${key}]`;
  if (PLAIN.test(key)) return path === "" ? key : `${path}.${key}`;
  return `${path}["${printable(key, 80).replaceAll('"', '\\"')}"]`;
}
