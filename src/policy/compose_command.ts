/**
 * Which command shows what a verb's compose files come to: the verb's own program and options up to
 * its subcommand, then `config`.
 *
 * @module
 */
import { programIsOneOf } from "./denials.ts";
import type { ResolvedCommand, VerbPolicy } from "./policy.ts";

const COMPOSE = new Set(["docker-compose", "podman-compose"]);
const ENGINE = new Set(["docker", "podman", "nerdctl"]);
/** Options of compose that take no value. */
const ALONE =
  /^(?:--(?:verbose|no-ansi|compatibility|dry-run|all-resources|skip-hostname-check|tls|tlsverify)|-D|--debug)$/;

/** The command, or why there is none although the verb uses compose. */
export type ComposeConfig =
  | { readonly command: ResolvedCommand; readonly files: readonly string[] }
  | { readonly why: string };

/**
 * @param root absolute path of the bridge's root
 * @returns null when the verb does not use compose
 */
export function composeConfig(verb: VerbPolicy, root: string): ComposeConfig | null {
  const { argv } = verb;
  let at = 0;
  if (programIsOneOf(verb.program, COMPOSE) === null) {
    if (programIsOneOf(verb.program, ENGINE) === null) return null;
    at = argv.findIndex((e) => e.kind === "fixed" && e.text === "compose") + 1;
    if (at === 0) return null;
  }
  const files: string[] = [];
  const words: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const element = argv[i];
    if (element === undefined) break;
    if (element.kind === "placeholder") {
      return { why: "an argument of the request comes before the subcommand" };
    }
    if (element.kind === "base") files.push(element.path);
    const word = element.kind === "fixed"
      ? element.text
      : `${element.prefix}${root}/${element.path}`;
    const previous = i > at ? argv[i - 1] : undefined;
    const isValue = previous?.kind === "fixed" && previous.text.startsWith("-") &&
      !previous.text.includes("=") && !ALONE.test(previous.text);
    if (i >= at && !isValue && !word.startsWith("-")) break;
    words.push(word);
  }
  if (files.length === 0) return { why: "no file in base/ is named" };
  return {
    files,
    command: {
      program: verb.program.startsWith("base/") ? `${root}/${verb.program}` : verb.program,
      argv: [...words, "config", "--format", "json"],
      cwd: verb.cwd,
      env: verb.env,
    },
  };
}
