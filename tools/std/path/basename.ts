/**
 * Stands in for `@std/path/basename`.
 *
 * @module
 */
export { basename } from "node:path";
