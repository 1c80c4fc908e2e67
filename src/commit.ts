/**
 * The commit that the program was built from. The source tree does not know its own commit, so
 * this says `unknown`; `deno task compile` and `deno task chb` map `#commit` to a module that
 * names it.
 *
 * @module
 */

/** Full hash of the commit, with `+changes` when the tree differed from it, or `unknown`. */
export const COMMIT: string = "unknown";
