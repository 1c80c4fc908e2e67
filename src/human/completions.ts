/**
 * `chb completions`: what makes a shell complete command names, options and, in a root, the names of
 * agents, verbs and requests. The scripts are made from the commands' own tables, so they know what
 * the program knows; what only the ledger knows they ask the program for.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { ExitError, UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { schemas } from "../policy/schema.ts";
import { look } from "../spool/look.ts";
import type { Command } from "./command.ts";
import { OUTCOMES } from "./history.ts";
import { readLedger } from "./reading.ts";

/** Names of one kind that are offered at most; the newest requests. */
const OFFERED = 100;

/** What a command's words are completed with. */
type Kind = "agents" | "verbs" | "requests" | "pending" | "open";

/** Commands whose first word is a request, and which requests make sense there. */
const REQUESTS: Readonly<Record<string, Kind>> = {
  show: "requests",
  approve: "pending",
  deny: "pending",
  cancel: "open",
  resolve: "requests",
};

/** Commands whose first word is one of a few. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  audit: ["verify", "head", "tail"],
  completions: ["bash", "zsh", "fish"],
  ledger: ["accept-loss"],
  schema: Object.keys(schemas()),
};

/** Values of options, where they are known: fixed ones, or a kind of names. */
const VALUES: Readonly<Record<string, readonly string[] | Kind>> = {
  agent: "agents",
  verb: "verbs",
  outcome: OUTCOMES,
  as: ["done", "failed", "retry"],
  engine: ["podman", "docker", "compose", "devcontainer", "bwrap"],
  profile: ["strict", "containers"],
};

/** What the scripts need of a command. */
export type Completed = Pick<Command, "name" | "summary" | "flags" | "options" | "json">;

function optionsOf(c: Completed): string[] {
  return [...c.flags, ...c.options, ...(c.json ? ["json"] : []), "help"].map((o) => `--${o}`);
}

/** Words for the shell's own quotes: nothing of ours holds a quote, and a test says so. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The cases of a shell's `case` for the first word and for options' values. */
function cases(commands: readonly Completed[]): { options: string; words: string; values: string } {
  const names = (what: readonly string[] | Kind) =>
    typeof what === "string" ? `names ${what}` : `words ${quote(what.join(" "))}`;
  const valued = new Set(commands.flatMap((c) => c.options));
  return {
    options: commands.map((c) => `    ${c.name}) _chb_words ${quote(optionsOf(c).join(" "))} ;;`)
      .join("\n"),
    words: [
      ...Object.entries(REQUESTS).map(([name, kind]) => `    ${name}) _chb_names ${kind} ;;`),
      ...Object.entries(WORDS).map(([name, list]) => `    ${name}) _chb_${names(list)} ;;`),
    ].join("\n"),
    values: [...valued].map((name) => {
      const known = VALUES[name];
      // The value of any other option is the person's own: nothing is offered for it.
      return `    --${name}) ${known === undefined ? "" : `_chb_${names(known)} `};;`
        .replace(") ;;", ") : ;;");
    }).join("\n"),
  };
}

/** The script for bash: `source <(./bin/chb completions bash)`. */
export function bashScript(commands: readonly Completed[]): string {
  const { options, words, values } = cases(commands);
  return `# chb completions for bash. It completes a word after chb, or after any path that ends in /chb.
_chb_words() { COMPREPLY=($(compgen -W "$1" -- "$_chb_word")); }
_chb_names() { _chb_words "$("$_chb_program" completions --names "$1" 2>/dev/null)"; }
_chb() {
  local _chb_word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}"
  local _chb_program="\${COMP_WORDS[0]}"
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    _chb_words ${quote(commands.map((c) => c.name).join(" "))}
    return
  fi
  case "$before" in
${values}
    *) _chb_rest ;;
  esac
}
_chb_rest() {
  if [[ $_chb_word != -* && $COMP_CWORD = 2 ]]; then
    case "\${COMP_WORDS[1]}" in
${words}
    esac
    return
  fi
  case "\${COMP_WORDS[1]}" in
${options}
  esac
}
complete -F _chb chb
`;
}

/** The script for zsh: `source <(./bin/chb completions zsh)`, or a file `_chb` in `$fpath`. */
export function zshScript(commands: readonly Completed[]): string {
  const { options, words, values } = cases(commands);
  const described = commands.map((c) => quote(`${c.name}:${c.summary.replaceAll(":", "\\:")}`));
  return `#compdef chb
# chb completions for zsh.
_chb_words() { compadd -- \${=1} }
_chb_names() { compadd -- \${(f)"$(\${(Q)words[1]} completions --names $1 2>/dev/null)"} }
_chb() {
  local -a commands
  commands=(
    ${described.join("\n    ")}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case "$words[CURRENT-1]" in
${values}
    *) _chb_rest ;;
  esac
}
_chb_rest() {
  if [[ $words[CURRENT] != -* && $CURRENT == 3 ]]; then
    case "$words[2]" in
${words}
    esac
    return
  fi
  case "$words[2]" in
${options}
  esac
}
if [ "$funcstack[1]" = _chb ]; then _chb "$@"; else compdef _chb chb; fi
`;
}

/** The script for fish: `./bin/chb completions fish | source`. */
export function fishScript(commands: readonly Completed[]): string {
  const ask = (kind: Kind) => `(__chb_names ${kind})`;
  const offered = (what: readonly string[] | Kind) =>
    typeof what === "string" ? ask(what) : what.join(" ");
  const q = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines = [
    "# chb completions for fish.",
    "function __chb_names",
    "    set -l tokens (commandline -opc)",
    "    $tokens[1] completions --names $argv[1] 2>/dev/null",
    "end",
    "function __chb_first",
    "    set -l tokens (commandline -opc)",
    "    test (count $tokens) -eq 2; and test $tokens[2] = $argv[1]",
    "end",
    "complete -c chb -f",
  ];
  for (const c of commands) {
    lines.push(`complete -c chb -n __fish_use_subcommand -a ${c.name} -d ${q(c.summary)}`);
    const within = `-n '__fish_seen_subcommand_from ${c.name}'`;
    const first = REQUESTS[c.name] ?? WORDS[c.name];
    if (first !== undefined) {
      lines.push(`complete -c chb -n '__chb_first ${c.name}' -a ${q(offered(first))}`);
    }
    for (const flag of [...c.flags, ...(c.json ? ["json"] : []), "help"]) {
      lines.push(`complete -c chb ${within} -l ${flag}`);
    }
    for (const option of c.options) {
      const fixed = VALUES[option];
      const values = fixed === undefined ? "" : ` -a ${q(offered(fixed))}`;
      lines.push(`complete -c chb ${within} -l ${option} -x${values}`);
    }
  }
  return lines.join("\n") + "\n";
}

/**
 * Names of a kind; none outside of a root. A shell may expand what it is offered, so nothing but the
 * characters of ids, and what verbs may have besides, gets through.
 */
function names(kind: Kind): string[] {
  return known(kind).filter((name) => /^[A-Za-z0-9_./-]+$/.test(name));
}

function known(kind: Kind): string[] {
  if (look("state")?.kind !== "directory") return [];
  const ledger = readLedger();
  try {
    switch (kind) {
      case "agents":
        return ledger.metaNames("pins.").map((name) => name.slice("pins.".length));
      case "verbs":
        return ledger.history.verbs(OFFERED);
      case "requests":
        return ledger.history.rows(null, {}, OFFERED).map((r) => `${r.agent}/${r.id}`);
      case "pending":
        return ledger.history.open("pending", OFFERED).map((r) => `${r.agent}/${r.id}`);
      case "open":
        return (["running", "pending"] as const).flatMap((state) =>
          ledger.history.open(state, OFFERED)
        ).map((r) => `${r.agent}/${r.id}`);
    }
  } finally {
    ledger.close();
  }
}

const KINDS: readonly string[] = ["agents", "verbs", "requests", "pending", "open"];

/**
 * The command.
 *
 * @param commands every command that is completed; asked when a script is made
 */
export function completionsOf(commands: () => Promise<readonly Completed[]>): Command {
  return {
    name: "completions",
    summary: "Print what makes a shell complete chb",
    usage: "bash|zsh|fish | --names agents|verbs|requests|pending|open",
    details: [
      "bash   in ~/.bashrc:   source <(/path/to/bin/chb completions bash)",
      "zsh    in ~/.zshrc, after compinit:   source <(/path/to/bin/chb completions zsh)",
      "fish   in config.fish:   /path/to/bin/chb completions fish | source",
      "--names KIND   the names that the scripts offer, from the ledger of this root",
    ],
    example: "source <(./bin/chb completions bash)",
    flags: [],
    options: ["names"],
    json: false,
    words: 1,
    async run(args, io) {
      const kind = args.options["names"];
      if (kind !== undefined) {
        if (!KINDS.includes(kind)) {
          throw new UsageError(`--names takes ${KINDS.join(", ")}: not ${printable(kind, 60)}`);
        }
        io.out(names(kind as Kind).map((name) => name + "\n").join(""));
        return EXIT.ok;
      }
      const [shell] = args.positional;
      const all = [...await commands()].sort((a, b) => a.name < b.name ? -1 : 1);
      switch (shell) {
        case "bash":
          io.out(bashScript(all));
          return EXIT.ok;
        case "zsh":
          io.out(zshScript(all));
          return EXIT.ok;
        case "fish":
          io.out(fishScript(all));
          return EXIT.ok;
        case undefined:
          throw new UsageError("say for which shell: chb completions bash, zsh or fish");
        default:
          throw new ExitError(
            EXIT.usage,
            `there is nothing for ${printable(shell, 60)}: say bash, zsh or fish`,
          );
      }
    },
  };
}
