/**
 * The permissions of the program, in one place: what the wrapper grants, what `deno task compile`
 * compiles in, and what the unit file and `chb permissions` explain. All of it is computed from a
 * list of programs; nothing here looks at the disk.
 *
 * Rules
 * 1. Paths are relative to the working directory, which is the root: Deno resolves them there at
 *    run time, so authority ends where the process was started (X5).
 * 2. No network, foreign functions, environment or system information; nothing imported at run
 *    time beyond the program itself.
 * 3. A process can give up a grant only as it was granted. So what the shim must keep while it
 *    gives up `./state` is granted by name as well: `runs`, `policies` and the kill switches.
 * 4. No program may be run from below a write grant: whoever can rename its directory could
 *    replace it (X9). `./bin` and `./base` are readable only.
 *
 * @module
 */

/** Systems that an executable is made for. */
export type System = "linux" | "darwin";

/** The system that this process runs on; what is neither is taken for Linux. */
export const SYSTEM: System = Deno.build.os === "darwin" ? "darwin" : "linux";

/** Where container engines and their companions usually are. */
const PROGRAM_DIRECTORIES: Readonly<Record<System, readonly string[]>> = Object.freeze({
  linux: ["/usr/bin", "/usr/local/bin"],
  darwin: ["/usr/local/bin", "/opt/homebrew/bin"],
});
const ENGINES = ["docker", "docker-compose", "kubectl", "podman", "podman-compose"];

/** The command of the policy that a new bridge starts with: the time in UTC. */
const STARTER: Readonly<Record<System, readonly [string, ...string[]]>> = Object.freeze({
  linux: ["/usr/bin/date", "--utc", "--iso-8601=seconds"],
  darwin: ["/bin/date", "-u", "+%Y-%m-%dT%H:%M:%SZ"],
});
export const STARTER_ARGV: readonly [string, ...string[]] = STARTER[SYSTEM];

/**
 * Programs of the binary that is not built for one policy. The starter policy's is among them: a
 * new bridge has its executable before it has a policy.
 */
export function genericPrograms(system: System): readonly string[] {
  return [
    ...PROGRAM_DIRECTORIES[system].flatMap((directory) =>
      ENGINES.map((engine) => `${directory}/${engine}`)
    ),
    STARTER[system][0],
  ];
}

export const GENERIC_PROGRAMS: readonly string[] = Object.freeze(genericPrograms(SYSTEM));

/** Where the helper that signals a process group may be, in order of preference. */
export const KILL_PATHS: readonly string[] = Object.freeze(["/usr/bin/kill", "/bin/kill"]);

/** Paths below the root that every process may read, before it gives any up. */
export const READ_PATHS: readonly string[] = Object.freeze([
  "./bin",
  "./keys",
  "./base",
  "./bridge.jsonc",
  "./spool",
  "./work",
  "./state",
  "./state/runs",
  "./state/policies",
  "./state/KILL",
]);

/** Paths below the root that every process may write, before it gives any up. */
export const WRITE_PATHS: readonly string[] = Object.freeze([
  "./spool",
  "./work",
  "./state",
  "./state/runs",
]);

/** The executable, as the daemon starts its shims. */
export const SELF = "./bin/chb";

/**
 * Variables of the C library that the program is started with: what it frees goes back to the system,
 * which by default keeps an arena for each thread. Nothing is read from them by the program itself.
 */
export const MALLOC_ENVIRONMENT: readonly string[] = Object.freeze([
  "MALLOC_ARENA_MAX=1",
  "MALLOC_MMAP_THRESHOLD_=65536",
  "MALLOC_TRIM_THRESHOLD_=131072",
]);

/** What is granted, as Deno wants it said. */
export interface Grants {
  readonly read: readonly string[];
  readonly write: readonly string[];
  readonly run: readonly string[];
}

/** A program as a policy names it, as the path that is granted: absolute, or `./base/...`. */
function programPath(program: string): string {
  if (program.startsWith("base/")) return `./${program}`;
  if (program.startsWith("/")) return program;
  throw new RangeError(`Cannot grant program "${program}": it is neither absolute nor below base/`);
}

/** Sorted, each once. A comma separates paths in a flag, so no path may hold one. */
function paths(list: readonly string[]): readonly string[] {
  for (const path of list) {
    if (/[,\0\r\n]/.test(path)) {
      throw new RangeError(
        `Cannot grant path ${JSON.stringify(path)}: it holds a comma or control`,
      );
    }
  }
  return [...new Set(list)];
}

/**
 * What the program is granted.
 *
 * @param programs every program that may be run: absolute paths, or `base/...`
 * @param kill absolute path of the helper that signals process groups
 * @param agents agents whose own kill switch the shims must be able to see
 * @throws {RangeError} when a path can not be granted
 */
export function grants(
  programs: readonly string[],
  kill: string,
  agents: readonly string[] = ["main"],
): Grants {
  const run = [...new Set([...programs.map(programPath), programPath(kill)])].sort();
  const switches = [...new Set(agents)].sort().map((agent) => `./state/KILL.${agent}`);
  return {
    read: paths([...READ_PATHS, ...switches, ...run]),
    write: paths(WRITE_PATHS),
    run: paths([SELF, ...run]),
  };
}

/**
 * The flags of `grants`, for `deno run` and `deno compile`. Parameters and errors are those of
 * `grants`.
 */
export function permissionFlags(
  programs: readonly string[],
  kill: string,
  agents?: readonly string[],
): string[] {
  const { read, write, run } = grants(programs, kill, agents);
  return [
    "--no-prompt",
    `--allow-read=${read.join(",")}`,
    `--allow-write=${write.join(",")}`,
    `--allow-run=${run.join(",")}`,
  ];
}

/**
 * The helper that signals process groups on this machine: the first of `KILL_PATHS` that
 * `exists`, else the first.
 */
export function killPath(exists: (path: string) => boolean): string {
  return KILL_PATHS.find(exists) ?? KILL_PATHS[0] ?? "/usr/bin/kill";
}

/** How the word begins that tells the program which programs it was granted. */
export const PROGRAMS_WORD = "--programs=";

/**
 * The first word of the program's command line, put there by the wrapper or compiled in: a process
 * can give up a grant only by naming it, so it has to be told what it was granted.
 *
 * @param programs as for `grants`; the kill helper is not among them, since every process keeps it
 */
export function programsWord(programs: readonly string[]): string {
  return `${PROGRAMS_WORD}${[...new Set(programs.map(programPath))].sort().join(",")}`;
}
