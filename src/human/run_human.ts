/**
 * The human surface: finds the command, answers `--help`, turns what a command throws into a line
 * and an exit code. No request can reach anything in this room.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { EXIT } from "../codes.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { asciiJson, printable } from "../names.ts";
import type { Command, Io, Parsed } from "./command.ts";
import { table } from "./command.ts";
import type { Completed } from "./completions.ts";

/** Commands of the other two programs, listed so that help is whole. */
const PROGRAMS: readonly Pick<Command, "name" | "summary" | "usage" | "details" | "example">[] = [
  {
    name: "serve",
    summary: "Serve requests until stopped",
    usage: "[--poll-ms N] [--no-events]",
    details: [
      "Runs in the foreground; TERM or INT ends it, running commands go on.",
      "--poll-ms N   milliseconds between two looks where change events arrive (default 5000)",
      "--no-events   never wait for change events: look four times a second",
    ],
    example: "./bin/chb serve",
  },
  {
    name: "once",
    summary: "Handle what is in the queues, then leave",
    usage: "",
    details: ["Exits 0 when the queues are settled and nothing it started still runs."],
    example: "./bin/chb once",
  },
];

/**
 * Every command, by the name that it has on the command line, and where it is: only what is asked for
 * is loaded, since most of the time of a short command is the loading of its modules.
 */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  init: async () => (await import("./init.ts")).init,
  check: async () => (await import("./check.ts")).check,
  trust: async () => (await import("./trust.ts")).trust,
  status: async () => (await import("./status.ts")).status,
  cancel: async () => (await import("./cancel.ts")).cancel,
  resolve: async () => (await import("./resolve.ts")).resolve,
  ledger: async () => (await import("./ledger.ts")).ledger,
  history: async () => (await import("./history.ts")).history,
  report: async () => (await import("./report.ts")).report,
  pending: async () => (await import("./pending.ts")).pending,
  show: async () => (await import("./show.ts")).show,
  approve: async () => (await import("./approve.ts")).approve,
  deny: async () => (await import("./approve.ts")).deny,
  doctor: async () => (await import("./doctor.ts")).doctor,
  kill: async () => (await import("./kill.ts")).kill,
  resume: async () => (await import("./resume.ts")).resume,
  reap: async () => (await import("./reap.ts")).reap,
  audit: async () => (await import("./audit.ts")).audit,
  schema: async () => (await import("./schema.ts")).schema,
  mounts: async () => (await import("./mounts.ts")).mounts,
  unit: async () => (await import("./unit.ts")).unit,
  permissions: async () => (await import("./permissions.ts")).permissions,
  key: async () => (await import("./key.ts")).key,
  tell: async () => (await import("./tell.ts")).tell,
  replies: async () => (await import("./replies.ts")).replies,
  "agent-note": async () => (await import("./agent_note.ts")).agentNote,
  completions: async () => (await import("./completions.ts")).completionsOf(everyCommand),
  version: async () => (await import("./version.ts")).version,
};

/** The order of the list of commands. */
const GROUPS: readonly (readonly [string, readonly string[]])[] = [
  ["Set up and serve", ["init", "check", "trust", "serve", "once", "status", "doctor"]],
  ["Requests", ["pending", "show", "approve", "deny", "cancel", "resolve"]],
  ["Stop everything", ["kill", "resume"]],
  ["Agents", ["mounts", "agent-note", "key", "tell", "replies"]],
  ["Records", ["history", "report", "audit", "ledger", "reap"]],
  ["The program", ["unit", "permissions", "schema", "completions", "version"]],
];

/** Every command and program. */
async function everyCommand(): Promise<Completed[]> {
  const commands = await Promise.all(Object.values(COMMANDS).map((load) => load()));
  return [...commands, ...PROGRAMS.map((p) => ({ ...p, flags: [], options: [], json: false }))];
}

/** The list of commands, for `chb --help`: what belongs together stands together. */
async function overview(): Promise<string> {
  const every = await everyCommand();
  const groups = GROUPS.map(([, names]) => names);
  const rest = every.map((c) => c.name).filter((name) => !groups.flat().includes(name));
  const rows = [...groups.flat(), ...rest].flatMap((name) =>
    every.filter((c) => c.name === name).map((c) => [`  ${c.name}`, c.summary])
  );
  const lines = table(rows).split("\n");
  return [
    "chb: a container-host bridge. Run it in the bridge's root directory.",
    "",
    "Usage: chb <command> [options]",
    ...GROUPS.flatMap(([title, names]) => ["", `${title}:`, ...lines.splice(0, names.length)]),
    ...lines,
    "",
    "chb <command> --help tells more and shows an example.",
    "Exit codes: 0 fine, 1 a finding or a failed request, 64 usage, 69 no daemon, 70 internal,",
    "75 try again, 77 refused, 78 policy or layout wrong.",
  ].join("\n") + "\n";
}

function help(
  c: Pick<Command, "name" | "summary" | "usage" | "details" | "example"> & { json?: boolean },
): string {
  const lines = [
    `${c.summary}.`,
    "",
    `Usage: chb ${c.name}${c.usage === "" ? "" : " " + c.usage}${c.json ? " [--json]" : ""}`,
  ];
  if (c.details.length > 0) lines.push("", ...c.details);
  lines.push("", "Example:", `  ${c.example}`);
  return lines.join("\n") + "\n";
}

/** Help text of a program that is not a human command, for `serve --help` and `once --help`. */
export async function programHelp(name: string): Promise<string> {
  const program = PROGRAMS.find((p) => p.name === name);
  return program === undefined ? await overview() : help(program);
}

/** Parses the words after a command's name. */
export function parseCommandLine(
  command: Pick<Command, "name" | "flags" | "options">,
  words: readonly string[],
): Parsed {
  const unknown: string[] = [];
  // The parser takes a lone dash, which stands for standard input here, for no value.
  const joined = words.flatMap((word, i) =>
    takesDash(word, words[i + 1])
      ? [`${word}=-`]
      : i > 0 && takesDash(words[i - 1], word)
      ? []
      : [word]
  );
  function takesDash(word: string | undefined, next: string | undefined): boolean {
    return next === "-" && command.options.some((option) => word === `--${option}`);
  }
  const parsed = parseArgs(joined, {
    boolean: [...command.flags, "json", "help"],
    string: [...command.options, "_"],
    unknown: (arg: string, key?: string) => {
      if (key !== undefined) {
        unknown.push(arg);
        return false;
      }
      return true;
    },
  });
  if (unknown.length > 0) {
    throw new UsageError(`Unknown option ${unknown[0]}: see chb ${command.name} --help`);
  }
  const flags: Record<string, boolean> = {};
  for (const flag of command.flags) flags[flag] = parsed[flag] === true;
  const options: Record<string, string> = {};
  for (const option of command.options) {
    const value = parsed[option];
    if (typeof value !== "string") continue;
    if (value === "") {
      throw new UsageError(`Option --${option} needs a value: see chb ${command.name} --help`);
    }
    options[option] = value;
  }
  return { positional: parsed._.map(String), flags, options, json: parsed.json === true };
}

/**
 * What prints data: in ASCII, so that no text of an agent in it moves a cursor or hides something
 * where a person looks at it.
 */
function dataIo(io: Io): Io {
  return {
    out: (text) => io.out(asciiJson(text)),
    err: (text) => io.err(text),
    stdin: (max) => io.stdin(max),
    ask: (question) => io.ask(question),
    isTerminal: () => io.isTerminal?.() === true,
  };
}

/**
 * Runs one human command.
 *
 * @param argv words after the program's name
 * @param granted programs that this process was granted to run besides itself and the kill helper
 * @returns the exit code of the process
 */
export async function runHuman(
  argv: readonly string[],
  io: Io,
  granted: readonly string[] = [],
): Promise<number> {
  const [name, ...rest] = argv;
  if (name === undefined || name === "--help" || name === "-h" || name === "help") {
    io.out(await overview());
    return name === undefined ? EXIT.usage : EXIT.ok;
  }
  const load = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (name === "--version") return await runHuman(["version", ...rest], io, granted);
  if (load === undefined) {
    io.err(`chb: unknown command "${name}": see chb --help\n`);
    return EXIT.usage;
  }
  const command = await load();
  if (rest.includes("--help") || rest.includes("-h")) {
    io.out(help(command));
    return EXIT.ok;
  }
  try {
    const parsed = parseCommandLine(command, rest);
    const surplus = parsed.positional[command.words ?? 0];
    if (surplus !== undefined) {
      throw new UsageError(
        `Unexpected argument ${printable(surplus, 100)}: see chb ${name} --help`,
      );
    }
    return await command.run(parsed, command.json && parsed.json ? dataIo(io) : io, granted);
  } catch (error) {
    if (error instanceof UsageError) {
      io.err(`chb ${name}: ${error.message}\n`);
      return EXIT.usage;
    }
    if (error instanceof ExitError) {
      io.err(`chb ${name}: ${error.message}\n`);
      return error.exitCode;
    }
    const message = error instanceof Error ? error.message : "unknown";
    io.err(`chb ${name}: ${errorCode(error) ?? "internal"}: ${message}\n`);
    return EXIT.internal;
  }
}
