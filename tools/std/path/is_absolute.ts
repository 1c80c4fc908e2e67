/**
 * Stands in for `@std/path/is-absolute`.
 *
 * @module
 */
export { isAbsolute } from "node:path";
