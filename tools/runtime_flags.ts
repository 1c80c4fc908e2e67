/**
 * How the runtime is told to keep its memory small. A bridge is a few processes that wait most of the
 * time, and what they compute is little: a young generation of 16 MB, or a second optimizing compiler,
 * saves no time that anybody would notice (docs/performance.md has the figures).
 *
 * Daemon, shims and human commands get the same: code that V8 kept for one set of flags is of no use
 * to another.
 *
 * @module
 */

/** Flags of V8, for a program that makes code while it runs and for one that does not. */
export function v8Flags(jitless: boolean): readonly string[] {
  return [
    ...(jitless
      ? ["--jitless", "--optimize-for-size"]
      : ["--no-turbofan", "--no-short-builtin-calls"]),
    "--max-semi-space-size=2",
  ];
}

/** The flag of `deno run` and `deno compile` that hands them on. */
export function v8Word(jitless: boolean): string {
  return `--v8-flags=${v8Flags(jitless).join(",")}`;
}
