/**
 * What a human command is, and what it may use to talk to the person.
 *
 * @module
 */

/** Where a command reads and writes; tests hand in their own. */
export interface Io {
  out(text: string): void;
  err(text: string): void;
  /** All of standard input, at most `max` bytes. */
  stdin(max: number): Uint8Array;
  /** One line answered by a person at a terminal, or null when there is none. */
  ask(question: string): string | null;
  /** True when what is written is read by a person at a terminal; absent means no. */
  isTerminal?(): boolean;
}

/** One human command. */
export interface Command {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** What stands after `chb <name>`. */
  readonly usage: string;
  /** Lines of further help. */
  readonly details: readonly string[];
  /** One complete example. */
  readonly example: string;
  /** Names of flags without and with a value. `help` and `json` are always known. */
  readonly flags: readonly string[];
  readonly options: readonly string[];
  /** True when `--json` changes the output. */
  readonly json: boolean;
  /** How many words it takes besides options; none when absent. */
  readonly words?: number;
  /**
   * @param granted programs that this process was granted to run, as `--programs=` named them
   * @returns the exit code
   */
  run(args: Parsed, io: Io, granted: readonly string[]): number | Promise<number>;
}

/** A command line after parsing. */
export interface Parsed {
  readonly positional: readonly string[];
  readonly flags: Readonly<Record<string, boolean>>;
  readonly options: Readonly<Record<string, string>>;
  readonly json: boolean;
}

/** Largest policy text that a command reads, bytes. */
export const MAX_POLICY_BYTES = 1024 * 1024;

/** Lays rows out in columns; the last column is not padded. */
export function table(rows: readonly (readonly string[])[], gap = 2): string {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, i) => widths[i] = Math.max(widths[i] ?? 0, cell.length));
  }
  return rows.map((row) =>
    row.map((cell, i) => i === row.length - 1 ? cell : cell.padEnd((widths[i] ?? 0) + gap)).join("")
      .trimEnd()
  ).join("\n");
}
