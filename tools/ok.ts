/**
 * What must hold before a commit: format, lint, rooms, types and tests, in this order. The first
 * that fails ends it.
 *
 * @module
 */
import {
  decideStd,
  inRepository,
  RegistryError,
  removeTemporaryCache,
  runDeno,
  stdFlags,
} from "./launcher.ts";

/** Directories and files whose types are checked; those that are not there are left out. */
const CHECKED = ["main.ts", "src", "tests", "spec-conformance", "tools"];

/** True when there is a TypeScript file at or below `path`. */
function hasTypeScript(path: string): boolean {
  try {
    if (Deno.statSync(path).isFile) return path.endsWith(".ts");
    return [...Deno.readDirSync(path)].some((entry) => hasTypeScript(`${path}/${entry.name}`));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

async function main(): Promise<number> {
  const { std } = await decideStd();
  const checked = CHECKED.filter((name) => hasTypeScript(inRepository(name)));
  const all: [string, string[]][] = [
    ["fmt", ["fmt", "--check"]],
    ["lint", ["lint"]],
    ["rooms", ["run", "--allow-read", "--no-lock", inRepository("tools", "rooms.ts")]],
    ["check", ["check", ...stdFlags(std), ...checked]],
    // A program of its own, with packages of its own: they come from the npm registry.
    ["mcp", [
      "check",
      `--config=${inRepository("agent", "mcp", "deno.json")}`,
      ...["mcp.ts", "drive.ts"].map((name) => inRepository("agent", "mcp", name)),
    ]],
    ["test", ["run", "-A", inRepository("tools", "test.ts")]],
  ];
  // With names, only those: `deno task ok fmt lint` takes a second.
  const wanted = Deno.args.length === 0 ? all : all.filter(([name]) => Deno.args.includes(name));
  const known = all.map(([name]) => name);
  const unknown = Deno.args.filter((name) => !known.includes(name));
  if (unknown.length > 0) {
    console.error(`usage: deno task ok [${known.join(" | ")}]...`);
    return 64;
  }
  for (const [name, args] of wanted) {
    const code = await runDeno(args, { CHB_STD: std });
    if (code !== 0) {
      console.log(`${name}: not ok`);
      return 1;
    }
    console.log(`${name}: ok`);
  }
  return 0;
}

if (import.meta.main) {
  let code = 1;
  try {
    code = await main();
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    console.error(error.message);
  } finally {
    removeTemporaryCache();
  }
  Deno.exit(code);
}
