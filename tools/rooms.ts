/**
 * Holds the source against the walls between its rooms: `deno run -R tools/rooms.ts`.
 *
 * Rules
 * 1. No import cycles.
 * 2. Nothing that a request or an order reaches imports the human commands: no request can do what
 *    a human command does.
 * 3. `request/` and `gates/` decide and do nothing: neither they nor what they import touch Deno,
 *    the disk or the network, and they themselves take clock and chance from their caller.
 * 4. Programs are started in `run/` and nowhere else.
 * 5. The program imports its own files, `@std` modules that have a stand-in, and Node built-ins;
 *    nothing of the tools and tests.
 * 6. Every `@std` package that is declared is used.
 *
 * @module
 */
import { join, normalize } from "node:path/posix";
import { type Import, readSource, type Source } from "./imports.ts";
import { inRepository, REPOSITORY } from "./launcher.ts";

/** Modules by path below the repository, with forward slashes. */
export type Modules = ReadonlyMap<string, Source>;

/** What is declared elsewhere, and held against what is imported. */
export interface Declared {
  /** Packages of `deno.json`. */
  readonly packages: readonly string[];
  /** Names of the fallback's import map. */
  readonly standIns: readonly string[];
}

/** Rooms and files that a request or an order reaches. `surface.ts` and its like lie in `src/`. */
const REACHED = /^src\/(?:(?:policy|spool|request|gates|ledger|audit|run|daemon)\/|[a-z_]+\.ts$)/;
const PURE = /^src\/(?:request|gates)\//;
const PROGRAM = /^(?:src\/|main\.ts$)/;

/** Node built-ins that a pure room may use: they compute. */
const PURE_BUILTINS = ["node:buffer", "node:crypto", "node:path", "node:path/posix", "node:util"];
/** Ambient clock and chance, and ways to come back later. */
const AMBIENT =
  /\b(?:Date\.now|performance\.now|Math\.random|crypto\.(?:randomUUID|getRandomValues)|setTimeout|setInterval|fetch)\b|\bnew Date(?!\s*\(\s*[^\s)])/;

/** The path that an import of `from` leads to, when it is one of our own files. */
function target(from: string, { specifier }: Import): string | undefined {
  if (!specifier.startsWith(".")) return undefined;
  return normalize(join(from, "..", specifier));
}

/** Imports of a module that are run, as paths of our own files. */
function targets(modules: Modules, path: string): string[] {
  const source = modules.get(path);
  if (source === undefined) return [];
  return source.imports.filter((one) => !one.typeOnly).flatMap((one) => target(path, one) ?? []);
}

/** Every chain of imports from `start`, shortest first, by the module that it ends in. */
function reach(modules: Modules, start: string): Map<string, readonly string[]> {
  const chains = new Map<string, readonly string[]>([[start, [start]]]);
  for (const [path, chain] of chains) {
    for (const next of targets(modules, path)) {
      if (!chains.has(next)) chains.set(next, [...chain, next]);
    }
  }
  return chains;
}

function show(chain: readonly string[]): string {
  return chain.join(" > ");
}

/** Rule 1. */
export function importCycles(modules: Modules): string[] {
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (path: string, chain: readonly string[]) => {
    const start = chain.indexOf(path);
    if (start >= 0) {
      found.push(`import cycle: ${show([...chain.slice(start), path])}`);
      return;
    }
    if (done.has(path)) return;
    for (const next of targets(modules, path)) visit(next, [...chain, path]);
    done.add(path);
  };
  for (const path of modules.keys()) visit(path, []);
  return found;
}

/** Rule 2. */
export function humanReached(modules: Modules): string[] {
  return [...modules.keys()].filter((path) => REACHED.test(path)).flatMap((path) => {
    const chains = [...reach(modules, path)].filter(([end]) => end.startsWith("src/human/"));
    return chains.slice(0, 1).map(([, chain]) => `a human command is reached: ${show(chain)}`);
  });
}

/** Why a module is not pure, or undefined. */
function impurity(source: Source): string | undefined {
  const global = /\bDeno\s*(?:\.|\[|\?)/.exec(source.code);
  if (global !== null) return "it uses Deno";
  const bad = source.imports.find(({ specifier, typeOnly }) =>
    !typeOnly && !specifier.startsWith(".") && !PURE_BUILTINS.includes(specifier)
  );
  return bad === undefined ? undefined : `it imports ${bad.specifier}`;
}

/** Rule 3. */
export function impureRooms(modules: Modules): string[] {
  const found: string[] = [];
  for (const [path, source] of modules) {
    if (!PURE.test(path)) continue;
    const ambient = AMBIENT.exec(source.code)?.[0];
    if (ambient !== undefined) found.push(`${path} uses ${ambient}: let the caller hand it in`);
    for (const [end, chain] of reach(modules, path)) {
      const reached = modules.get(end);
      const why = reached === undefined ? undefined : impurity(reached);
      if (why !== undefined) found.push(`not pure: ${show(chain)}: ${why}`);
    }
  }
  return found;
}

/** Rule 4. */
export function startsElsewhere(modules: Modules): string[] {
  return [...modules].flatMap(([path, { code, imports }]) => {
    if (!PROGRAM.test(path) || path.startsWith("src/run/")) return [];
    const word = /\bDeno\s*\.\s*Command\b/.test(code) ||
      /\{[^}]*\bCommand\b[^}]*\}\s*=\s*Deno\b/.test(code);
    const builtin = imports.some(({ specifier, typeOnly }) =>
      !typeOnly && /^(?:node:)?(?:child_process|cluster|worker_threads)$/.test(specifier)
    );
    return word || builtin ? [`${path} starts programs: only src/run/ does`] : [];
  });
}

/** Rule 5. */
export function foreignImports(modules: Modules, declared: Declared): string[] {
  return [...modules].flatMap(([path, { imports }]) => {
    if (!PROGRAM.test(path)) return [];
    return imports.flatMap((one) => {
      const { specifier } = one;
      const own = target(path, one);
      const known = own === undefined
        ? specifier.startsWith("node:") || declared.standIns.includes(specifier)
        : !/^(?:tools|tests|spec-conformance|\.\.)(?:\/|$)/.test(own);
      return known ? [] : [`${path} imports ${specifier}`];
    });
  });
}

/** Rule 6. */
export function unusedPackages(modules: Modules, declared: Declared): string[] {
  const used = [...modules].filter(([path]) => !path.startsWith("tools/"))
    .flatMap(([, { imports }]) => imports.map(({ specifier }) => specifier));
  return declared.packages
    .filter((name) => !used.some((one) => one === name || one.startsWith(`${name}/`)))
    .map((name) => `${name} is declared in deno.json and used nowhere`);
}

/** Everything that breaks a rule; empty is what is wanted. */
export function findings(modules: Modules, declared: Declared): string[] {
  return [
    ...importCycles(modules),
    ...humanReached(modules),
    ...impureRooms(modules),
    ...startsElsewhere(modules),
    ...foreignImports(modules, declared),
    ...unusedPackages(modules, declared),
  ];
}

function readInto(modules: Map<string, Source>, path: string): void {
  const info = Deno.statSync(inRepository(path));
  if (info.isFile) {
    modules.set(path, readSource(Deno.readTextFileSync(inRepository(path))));
    return;
  }
  for (const entry of Deno.readDirSync(inRepository(path))) {
    if (entry.isDirectory || entry.name.endsWith(".ts")) readInto(modules, join(path, entry.name));
  }
}

/** The modules of this repository. */
export function readModules(): Modules {
  const modules = new Map<string, Source>();
  const tops = [...Deno.readDirSync(REPOSITORY)].map((entry) => entry.name);
  for (const top of ["main.ts", "src", "agent", "tests", "spec-conformance", "tools"]) {
    if (tops.includes(top)) readInto(modules, top);
  }
  return modules;
}

function importsOf(...names: string[]): string[] {
  const file: { imports: Record<string, string> } = JSON.parse(
    Deno.readTextFileSync(inRepository(...names)),
  );
  return Object.keys(file.imports);
}

/** What this repository declares. */
export function readDeclared(): Declared {
  return {
    packages: importsOf("deno.json").filter((name) => name.startsWith("@")),
    standIns: importsOf("tools", "std", "import_map.json"),
  };
}

if (import.meta.main) {
  const found = findings(readModules(), readDeclared());
  for (const line of found) console.log(line);
  console.log(found.length === 0 ? "rooms: ok" : `rooms: ${found.length} broken`);
  Deno.exit(found.length === 0 ? 0 : 1);
}
