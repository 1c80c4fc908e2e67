/**
 * Stands in for `@std/path/dirname`.
 *
 * @module
 */
export { dirname } from "node:path";
