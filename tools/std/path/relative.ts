/**
 * Stands in for `@std/path/relative`.
 *
 * @module
 */
export { relative } from "node:path";
