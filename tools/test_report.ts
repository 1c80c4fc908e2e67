/**
 * What a run of `deno test` came to, read from its output: the counts from its closing line, which
 * knows of files that failed to load as well, and the names of skipped tests.
 *
 * @module
 */

/** A skipped test. The reason stands in its name, behind ` # SKIP `; "" when it gives none. */
export interface Skip {
  readonly name: string;
  readonly reason: string;
}

/** The counts of a run, by test; steps of a test count with it. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly ignored: number;
}

/** How a name and the reason for skipping the test are put together. */
const SKIP_MARK = " # SKIP ";

// deno-lint-ignore no-control-regex
const COLOURS = /\x1b\[[0-9;]*m/g;

/** The counts in the closing line of the output; undefined when it did not get that far. */
export function readCounts(output: string): Counts | undefined {
  const summary = /^(?:ok|FAILED) \| (\d+) passed(?: \([^)]*\))? \| (\d+) failed(.*)$/gm;
  const last = [...output.replace(COLOURS, "").matchAll(summary)].at(-1);
  if (last === undefined) return undefined;
  const ignored = /\| (\d+) ignored/.exec(last[3] ?? "")?.[1] ?? "0";
  return { passed: Number(last[1]), failed: Number(last[2]), ignored: Number(ignored) };
}

/**
 * The skipped tests that the output names, without skipped steps: those are indented, or, where
 * files run side by side, stand behind their file and their test.
 */
export function readSkips(output: string): Skip[] {
  const lines = output.replace(COLOURS, "").matchAll(
    /^(\S+\.ts => )?(\S.*) \.\.\. ignored \([^)]*\)$/gm,
  );
  return [...lines].filter(([, file, name = ""]) => file === undefined || !name.includes(" ... "))
    .map(([, , name = ""]) => {
      const cut = name.indexOf(SKIP_MARK);
      return cut < 0
        ? { name, reason: "" }
        : { name: name.slice(0, cut), reason: name.slice(cut + SKIP_MARK.length).trim() };
    });
}

/** What a run came to, as `verdict` judges it. */
export interface Run {
  /** Undefined when the run ended before its closing line, as when types do not check. */
  readonly counts: Counts | undefined;
  readonly skips: readonly Skip[];
  /** Exit code of `deno test`. */
  readonly code: number;
}

/** The judgement of a run, and why it is worse than its tests. */
export interface Verdict {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly complaints: readonly string[];
}

/**
 * Judges a run: it has failed when a test has, when it did not run to its end or ran nothing, and
 * when it skipped more, or with less reason, than is allowed.
 *
 * @param maxSkips how many tests may be skipped; undefined where any number may
 */
export function verdict(run: Run, maxSkips: number | undefined): Verdict {
  const { passed, failed, ignored } = run.counts ?? { passed: 0, failed: 0, ignored: 0 };
  const complaints: string[] = [];
  if (run.counts === undefined) complaints.push("The run ended before its tests were through");
  else if (passed + failed + ignored === 0) complaints.push("No test was run");
  else if (run.code !== 0 && failed === 0) complaints.push(`deno test ended with ${run.code}`);
  if (run.skips.length !== ignored) {
    complaints.push(`${ignored} tests were skipped, but ${run.skips.length} are named`);
  }
  for (const { name, reason } of run.skips) {
    if (reason === "") complaints.push(`Skipped without "${SKIP_MARK}reason" in its name: ${name}`);
  }
  if (maxSkips !== undefined && ignored > maxSkips) {
    complaints.push(`${ignored} tests were skipped; at most ${maxSkips} may be`);
  }
  // A complaint without a failed test counts as one, so that the closing line tells of it.
  return {
    passed,
    failed: Math.max(failed, complaints.length > 0 ? 1 : 0),
    skipped: ignored,
    complaints,
  };
}
