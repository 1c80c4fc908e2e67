/**
 * Stands in for `@std/path/normalize`.
 *
 * @module
 */
export { normalize } from "node:path";
