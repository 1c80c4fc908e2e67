/**
 * Stands in for `@std/path/extname`.
 *
 * @module
 */
export { extname } from "node:path";
