/**
 * Stands in for `@std/path/resolve`.
 *
 * @module
 */
export { resolve } from "node:path";
