/**
 * The import map of a program that runs or is compiled without `deno.json`. For the wrapper it is
 * absolute, so that it holds in any directory, and a `data:` URL, so that no file beside the
 * program decides what its imports mean. In an executable it is relative to what is embedded.
 *
 * @module
 */
import { normalize } from "node:path/posix";
import { pathToFileURL } from "node:url";
import { inRepository, REPOSITORY, type Std } from "./launcher.ts";

interface ImportMap {
  readonly imports: Readonly<Record<string, string>>;
}

function readImports(file: string): Readonly<Record<string, string>> {
  const map: ImportMap = JSON.parse(Deno.readTextFileSync(inRepository(file)));
  return map.imports;
}

/** `deno.json` gives a package's modules with the package; a plain import map wants both named. */
function withModules(name: string, target: string): [string, string][] {
  if (!target.startsWith("jsr:")) return [[name, target]];
  return [[name, target], [`${name}/`, `${target.replace("jsr:", "jsr:/")}/`]];
}

/**
 * The import map for `std`.
 *
 * @param commit what the program shall say that it was built from
 * @param top URL of the source tree, ending in a slash, that local modules are named below: the
 *   tree itself, or `./` for a map that lies at its top
 */
export function importMap(
  std: Std,
  commit: string,
  top = `${pathToFileURL(REPOSITORY).href}/`,
): ImportMap {
  const [directory, file] = std === "jsr" ? ["", "deno.json"] : ["tools/std/", "import_map.json"];
  const imports = Object.fromEntries(
    Object.entries(readImports(`${directory}${file}`)).flatMap(([name, target]) =>
      withModules(name, target.startsWith(".") ? top + normalize(directory + target) : target)
    ),
  );
  imports["#commit"] = dataUrl(
    "text/javascript",
    `export const COMMIT = ${JSON.stringify(commit)};`,
  );
  return { imports };
}

/** A `data:` URL that people can still read: only what a URL can not hold is escaped. */
function dataUrl(type: string, text: string): string {
  return `data:${type},${text.replace(/[^\x21-\x7e]|[%#]/gu, encodeURIComponent)}`;
}

/** `importMap` as the value of `--import-map`. */
export function importMapUrl(std: Std, commit: string): string {
  return dataUrl("application/json", JSON.stringify(importMap(std, commit)));
}
