/**
 * What this program is: its version, the commit it was built from, where its `@std` modules came
 * from, and whether it runs as source or as a compiled executable. The rest of the program
 * imports it as `#build`, so that a start with the fallback modules can say so.
 *
 * @module
 */
import { COMMIT } from "#commit";

/** Facts about the running program, shown by `chb version`, the ready line and the audit log. */
export interface Build {
  /** The JSR registry's modules, or the ones of `tools/std` over Node built-ins. */
  readonly std: "jsr" | "fallback";
  /** Semantic version of the program; equals `version` in `deno.json`. */
  readonly version: string;
  /** Commit hash, `unknown` when not known. */
  readonly commit: string;
  /** True when run from source through the wrapper, false in a compiled executable. */
  readonly source: boolean;
}

/** This program. A fallback start maps `#build` to a module that only changes `std`. */
export const BUILD: Build = Object.freeze({
  std: "jsr",
  version: "0.1.0",
  commit: COMMIT,
  source: !Deno.build.standalone,
});
