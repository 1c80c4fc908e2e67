/**
 * What is allowed in a verb and still worth a second look: things that a policy may say, and that a
 * human who trusts it should have read.
 *
 * @module
 */
import { programIsOneOf } from "./denials.ts";
import { baseHead, fixedText, parseFixed, slotOf } from "./argv_template.ts";
import { below } from "./json_path.ts";
import type { ParsedArgv } from "./parse_argv.ts";
import type { ArgSpec, ArgvElement } from "./policy.ts";
import type { Findings } from "./read_section.ts";

/** The files in `base/` that an argument vector names. */
function baseFiles(
  program: string,
  elements: readonly ArgvElement[],
  args: ReadonlyMap<string, ArgSpec>,
): string[] {
  const texts = elements.flatMap((element) => {
    if (element.kind === "base") return [element.path];
    if (element.kind !== "placeholder") return [];
    const spec = args.get(element.name);
    if (spec?.type !== "boolean") return [];
    const fixed = parseFixed(spec.element);
    return fixed.ok && fixed.element.kind === "base" ? [fixed.element.path] : [];
  });
  const files = [...(program.startsWith("base/") ? [program] : []), ...texts.map(baseHead)];
  return files.filter((file) => file !== "base/");
}

/**
 * Warns of files in `base/` that take part in a command without being compared before it.
 *
 * @param vectors of the verb and of its lookup
 */
export function warnUntracked(
  vectors: readonly ParsedArgv[],
  args: ReadonlyMap<string, ArgSpec>,
  requires: readonly string[],
  path: string,
  findings: Findings,
): void {
  const used = vectors.flatMap(({ program, elements }) => baseFiles(program, elements, args));
  for (const file of new Set(used)) {
    if (requires.some((required) => required === file || required.startsWith(`${file}/`))) continue;
    findings.warning(
      below(path, "requires"),
      "untracked-base",
      `${file} is used but not required: a change to it after the trust goes unnoticed`,
    );
  }
}

/** Warns of container programs that will not work, or that read more than the policy names. */
export function warnEngine(
  { program, elements }: ParsedArgv,
  args: ReadonlyMap<string, ArgSpec>,
  env: Readonly<Record<string, string>> | undefined,
  path: string,
  findings: Findings,
): void {
  const texts = elements.map((element) =>
    element.kind === "placeholder" ? slotOf(element, args).texts : [fixedText(element)]
  );
  const any = (wanted: (text: string) => boolean) => texts.some((options) => options.some(wanted));
  const at = below(path, "argv");
  if (
    programIsOneOf(program, new Set(["podman"])) !== null &&
    !any((text) => /^--(?:remote|url|connection)(?:=|$)/.test(text))
  ) {
    findings.warning(
      at,
      "local-podman",
      "A local podman does not work under the daemon's confinement: use podman --remote --url " +
        "unix:///run/user/UID/podman/podman.sock",
    );
  }
  const composes =
    programIsOneOf(program, new Set(["docker-compose", "podman-compose"])) !== null ||
    (programIsOneOf(program, new Set(["docker", "podman", "nerdctl"])) !== null &&
      any((text) => text === "compose"));
  const named = texts.some((options, index) =>
    options.some((text) =>
      /^(?:--file=|-f=?)(?:base\/|\/)/.test(text) ||
      ((text === "-f" || text === "--file") &&
        texts[index + 1]?.some((next) => next.startsWith("base/") || next.startsWith("/")) === true)
    )
  );
  if (composes && !named && env !== undefined && !Object.hasOwn(env, "COMPOSE_FILE")) {
    findings.warning(
      at,
      "compose-lookup",
      "Without -f and a file in base/, compose takes the file, its override and .env from the " +
        "working directory",
    );
  }
}
