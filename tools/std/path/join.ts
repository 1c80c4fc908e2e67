/**
 * Stands in for `@std/path/join`.
 *
 * @module
 */
export { join } from "node:path";
