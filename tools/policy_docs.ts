/**
 * Writes `docs/policy.md`: the words are here, every table comes from the code that does the work.
 * Run it after a change to the policy table, the argument types or the denials; a test holds the
 * file against it.
 *
 *     deno run -A tools/policy_docs.ts
 *
 * @module
 */
import { PATH_TYPE, STRING_TYPES } from "../src/policy/arg_types.ts";
import { BUILTIN_VERBS, RULES } from "../src/policy/denials.ts";
import { FORMATS } from "../src/policy/formats.ts";
import {
  AGENT,
  ARGUMENT,
  type Field,
  LIMITS,
  LOOKUP,
  POLICY,
  RATES,
  RETENTION,
  type Section,
  SPEND,
  VERB,
} from "../src/policy/policy_table.ts";

/** The smallest policy that does something. */
export const FIRST_POLICY = `{
  "agents": {
    "main": { "verbs": ["date"] }
  },
  "verbs": {
    "date": {
      "class": "observe",
      "argv": ["/usr/bin/date", "--utc"],
      "timeout_s": 10
    }
  }
}
`;

/** A policy for a small stack, with something of everything. */
export const FULL_POLICY = `{
  "$schema": "./bridge.schema.json",
  "agents": {
    // The coding agent. It can look and change, but what loses data is beyond its scope.
    "main": { "verbs": ["ps", "logs", "restart", "deploy", "note"], "scope": "mutating" },
    // Another sandbox that may clean up, after a human has said yes each time.
    "janitor": { "verbs": ["ps", "drop-volume"], "scope": "destructive" }
  },
  "verbs": {
    "ps": {
      "description": "List the services of the stack and their state.",
      "class": "observe",
      "argv": [
        "/usr/bin/docker-compose", "-p", "app", "-f", "base/compose.yaml",
        "--project-directory", "base/", "--env-file", "base/empty.env", "ps", "{all}"
      ],
      "args": {
        "all": { "type": "boolean", "element": "--all", "description": "Stopped ones, too." }
      },
      "timeout_s": 30,
      "requires": ["base/compose.yaml", "base/empty.env"],
      "on_crash": "rerun",
      "shim": ["docker compose ps"]
    },
    "logs": {
      "description": "The last lines that a service wrote.",
      "class": "observe",
      "argv": [
        "/usr/bin/docker-compose", "-p", "app", "-f", "base/compose.yaml",
        "--project-directory", "base/", "--env-file", "base/empty.env",
        "logs", "--no-color", "--tail={lines}", "{service}"
      ],
      "args": {
        "lines": { "type": "integer", "min": 1, "max": 5000, "default": 200 },
        "service": { "type": "enum", "values": ["web", "db"] }
      },
      "timeout_s": 30,
      "requires": ["base/compose.yaml", "base/empty.env"]
    },
    "restart": {
      "description": "Restart one service of the stack.",
      "class": "mutating",
      "argv": [
        "/usr/bin/docker-compose", "-p", "app", "-f", "base/compose.yaml",
        "--project-directory", "base/", "--env-file", "base/empty.env", "restart", "{service}"
      ],
      "args": { "service": { "type": "enum", "values": ["web", "db"] } },
      "timeout_s": 120,
      "lock": "stack",
      "requires": ["base/compose.yaml", "base/empty.env"]
    },
    "deploy": {
      "description": "Deploy a released version. Say in the plan what changes.",
      "class": "mutating",
      // A fixed script of your own. It begins with #! and does one thing.
      "argv": ["base/deploy", "--version={version}", "--key={idempotency_key}"],
      "args": { "version": { "type": "semver" } },
      "timeout_s": 1800,
      "lock": "stack",
      "requires": ["base/deploy", "base/was-deployed"],
      "approval": "when-planned",
      // If the machine goes down in the middle, this finds out how it ended.
      "on_crash": "lookup",
      "lookup": {
        "argv": ["base/was-deployed", "{idempotency_key}"],
        "done": [0],
        "not_done": [1]
      },
      "needs": ["network"]
    },
    "note": {
      "description": "Leave a line in the system log.",
      "class": "mutating",
      "argv": ["/usr/bin/logger", "--tag=chb", "--", "{text}"],
      "args": { "text": { "type": "text", "max_length": 200 } },
      "timeout_s": 5
    },
    "drop-volume": {
      "description": "Delete a scratch volume with everything in it.",
      "class": "destructive",
      "argv": ["/usr/bin/docker", "volume", "rm", "{volume}"],
      "args": { "volume": { "type": "enum", "values": ["app_scratch", "app_cache"] } },
      "timeout_s": 60,
      "lock": "stack"
    }
  },
  "limits": {
    "concurrency": 2,
    "rate": { "mutating": { "max": 30, "per_s": 60 } }
  },
  "retention": { "results_days": 7, "ledger_days": 90 },
  "env": {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/me",
    "COMPOSE_DISABLE_ENV_FILE": "1"
  },
  "notify": ["/usr/bin/notify-send", "chb", "{event}", "{id}"]
}
`;

function cell(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map(cell).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

function code(value: unknown): string {
  return `\`${typeof value === "string" ? value : JSON.stringify(value)}\``;
}

/** A number as a person writes it, where the plain digits are hard to read. */
function amount(value: number): string {
  for (const [unit, bytes] of [["GiB", 2 ** 30], ["MiB", 2 ** 20]] as const) {
    if (value >= bytes && value % bytes === 0) return `${value} (${value / bytes} ${unit})`;
  }
  return String(value);
}

function typeOf(field: Field): string {
  switch (field.kind) {
    case "text":
      return "text";
    case "choice":
      return field.values.map((value) => code(JSON.stringify(value))).join(", ");
    case "integer":
      return "whole number";
    case "number":
      return "number";
    case "boolean":
      return "`true`, `false`";
    case "scalar":
      return "as the argument's type";
    case "list":
      return `list of ${field.of.kind === "text" ? "texts" : "numbers"}`;
    case "map":
      return `object by ${field.key_name.toLowerCase()}`;
    case "object":
    case "variant":
      return "object";
  }
}

function boundsOf(field: Field): string {
  switch (field.kind) {
    case "text":
      return `${FORMATS[field.format].right}; at most ${field.max} bytes`;
    case "integer":
    case "number":
      if (field.min === Number.MIN_SAFE_INTEGER) return "any exact whole number";
      return `${amount(field.min)} to ${amount(field.max)}`;
    case "list": {
      const unique = field.unique ? ", none twice" : "";
      const each = field.of.kind === "text" && field.of.format !== "text"
        ? `; each ${FORMATS[field.of.format].right}`
        : field.of.kind === "integer"
        ? `; each ${field.of.min} to ${field.of.max}`
        : "";
      return `${field.min} to ${field.max} elements${unique}${each}`;
    }
    case "map":
      return `${field.min} to ${field.max} entries; a name has ${FORMATS[field.key].right}`;
    default:
      return "";
  }
}

function defaultOf(field: Field): string {
  if (field.required) return "**required**";
  if (field.default_note !== undefined) return field.default_note;
  if (!("default" in field) || field.default === undefined) return "none";
  if (typeof field.default === "number") return amount(field.default);
  return code(typeof field.default === "string" ? JSON.stringify(field.default) : field.default);
}

function keys(section: Section): string {
  return table(
    ["Key", "Type", "Default", "Bounds", "Meaning"],
    Object.entries(section).map(([key, field]) => [
      code(key),
      typeOf(field),
      defaultOf(field),
      boundsOf(field),
      field.description,
    ]),
  );
}

function argumentTypes(): string {
  const rows: string[][] = [
    ["`enum`", "one of `values`. The narrowest type: prefer it", ""],
    ["`integer`", "a whole number from `min` to `max`, exact, without exponent or fraction", ""],
    ["`boolean`", "`true` adds the fixed `element`, `false` leaves it out", ""],
    ...Object.entries({ ...STRING_TYPES, path: PATH_TYPE }).map(([name, type]) => [
      code(name),
      type.right,
      `${type.max_length} bytes`,
    ]),
  ];
  return table(["Type", "A value is", "Longest, unless `max_length` says otherwise"], rows);
}

/** Keys of the argument types; types for which a key is the same share a row. */
function argumentKeys(): string {
  const rows = new Map<string, { readonly types: string[]; readonly cells: readonly string[] }>();
  for (const [type, section] of Object.entries(ARGUMENT)) {
    for (const [key, field] of Object.entries<Field>(section)) {
      if (key === "description") continue;
      const cells = [
        code(key),
        typeOf(field),
        defaultOf(field),
        boundsOf(field),
        field.description,
      ];
      const same = JSON.stringify(cells);
      const row = rows.get(same);
      if (row === undefined) rows.set(same, { types: [code(type)], cells });
      else row.types.push(code(type));
    }
  }
  return table(
    ["Key", "For", "Type", "Default", "Bounds", "Meaning"],
    [...rows.values()]
      .sort((a, b) => (a.cells[0] ?? "").localeCompare(b.cells[0] ?? "", "en"))
      .map(({ types, cells: [key = "", ...rest] }) => [key, types.join(", "), ...rest]),
  );
}

function fenced(language: string, text: string): string {
  return `\`\`\`${language}\n${text.trimEnd()}\n\`\`\``;
}

/** The whole page. */
export function policyDocs(): string {
  const sections: readonly string[] = [
    "<!-- Written by tools/policy_docs.ts. Edit that file, then: deno run -A tools/policy_docs.ts -->",
    "# The policy",
    `The policy says what a sandbox may ask of this host. It is one file, \`bridge.jsonc\`, in the
root of the bridge: JSON, with comments and trailing commas. Only a human edits it, and nothing in
it takes effect until a human says so:`,
    fenced(
      "sh",
      `./bin/chb check    # is it valid? Every error at once, each with line, path and what to write
./bin/chb trust    # put it in force`,
    ),
    `From source, a program that no policy named before has to be granted first: \`chb check\` prints
the command. And a running daemon may run it only after its next start: end \`./bin/chb serve\` and
start it again. Other changes are in force within a second.

Everything that is not in the policy is refused. A key that you misspell is an error, never a
setting that silently does not count. Leaving something out always means the narrower thing.`,

    "## A first policy",
    `One agent, one verb. The agent \`main\` may now send \`{"verb": "date"}\`, and nothing else:`,
    fenced("jsonc", FIRST_POLICY),
    `Two things have no default, because a wrong guess would hurt: the \`class\` of a verb, and its
\`timeout_s\`.`,

    "## A full example",
    fenced("jsonc", FULL_POLICY),

    "## How a command is made",
    `\`argv\` is the command, one element an argument, and the first is the program. No shell is
involved: \`$HOME\`, \`*\`, \`;\` and quotes are just characters. Four kinds of elements exist:`,
    table(["Element", "Becomes"], [
      ["`restart`", "itself"],
      [
        "`base/compose.yaml`, `--file=base/compose.yaml`",
        "the absolute path of that file in the bridge's `base/` directory; `base/` alone is the " +
        "directory",
      ],
      [
        "`{service}`, `--tail={lines}`",
        "the value of an argument: a whole element, or the whole tail of an option",
      ],
      [
        "`{{.Names}}`",
        "itself: doubled braces belong to the program, as in `docker ps --format {{.Names}}`",
      ],
    ]),
    `Any other brace is an error. Beside its own arguments a verb has the placeholders \`{id}\` and
\`{idempotency_key}\`, which a program can use to recognise a repetition, and \`{max_spend}\`, the
amount that was granted. A \`lookup\` has all but the last.`,
    `The environment of a command is what \`env\` says and nothing more. Its working directory is
\`cwd\`, its standard input is empty.`,

    "## Argument types",
    argumentTypes(),
    `No value of any type may contain control characters, line breaks or characters that change the
direction of text. No text may start with \`-\`, which programs take for an option, or with \`@\`,
which many take for a file to read; \`allow_leading_dash\` lifts this where it can do no harm: after
a fixed \`--\` or behind \`--flag=\`. A \`text\` may stand nowhere else, either.`,
    "### Keys of an argument",
    `Every argument has a \`type\` and may have a \`description\`. One without \`default\` has to be in
the request.`,
    argumentKeys(),
    "### Paths",
    `A \`path\` argument stays below its \`root\`. Two kinds of roots exist. Below \`base/\` only the
host writes, so every part of the path is checked to be a real directory. Any other directory has to
be marked with \`"agent_writable": true\`, and the mark says what it costs: an agent that can write
there can plant a symlink, and so make the command read or write any file of the user that the bridge
runs as. The bridge does not try to win that race. Use it only for commands to which you would give
these rights anyway.`,

    "## All keys",
    keys(POLICY),
    "### `agents.AGENT`",
    keys(AGENT),
    "### `verbs.VERB`",
    keys(VERB),
    "### `verbs.VERB.lookup`",
    keys(LOOKUP),
    "### `limits`",
    keys(LIMITS),
    "### `limits.rate`",
    keys(RATES),
    "Each of them:",
    keys(RATES.observe.section),
    "### `limits.spend`",
    keys(SPEND),
    "### `retention`",
    keys(RETENTION),

    "## What the classes mean",
    table(["Class", "For", "By default"], [
      ["`observe`", "looking: nothing changes", "any agent may"],
      ["`mutating`", "changes that can be undone by another change", "needs the agent's `scope`"],
      [
        "`destructive`",
        "what loses something for good",
        "needs the agent's `scope`, and a human's approval each time",
      ],
    ]),
    `An agent's \`scope\` is the widest class that it may use, and it is \`observe\` unless you say
otherwise. A request may narrow its own scope, never widen it.`,

    "## What runs at the same time",
    `\`limits.concurrency\` is the number of slots, and every command takes one. While another agent
runs nothing, a slot is kept for it: an agent's first command takes any free slot, and a further one
starts only when a slot stays free for each such agent. So with at least as many slots as agents that
have verbs, a flood of long commands from one agent makes no other agent wait for its first slot, and
an agent that is alone at work has all slots but one for each of the others. \`agents.A.concurrency\`
lowers that for one agent; it never takes a slot that is kept.`,
    `With fewer slots than agents the agents take turns: whoever started something last is behind the
others, however many requests it has waiting. With one slot, which is the default, everybody waits
for the command that runs, for at most its \`timeout_s\`. \`chb check\` warns of it. A \`lock\` is
another matter: agents whose verbs name the same one wait for each other, in turns.`,

    "## What no policy can allow",
    `Some mistakes would turn the bridge into a shell on the host. They are refused whatever the
policy says, and \`chb check\` names the rule:`,
    table(
      ["Rule", "Why"],
      Object.entries(RULES).map(([rule, why]) => [code(rule), why]),
    ),
    `Programs are judged by name, without version suffixes (\`python3.11\` is \`python\`), and so is
what a link leads to. The way out is nearly always the same: write a small script that does the one
thing, begin it with \`#!\`, put it into \`base/\`, list it in \`requires\`, and name \`base/script\` as
the program.`,
    `\`workspace-code\` is the one rule with a switch. \`make\`, \`npm\`, \`git\` and their like execute
what they find in their working tree. When an agent can write there, \`"runs_workspace_code": true\`
gives it your user account. Run such work in a container instead.`,
    `A list of names cannot be complete. It catches mistakes; the person who reads the policy before
\`chb trust\` is the real check.`,

    "## Containers",
    `An engine's command line can hand over the whole host, so for docker, podman, compose, kubectl
and their relatives more is looked at: options that give rights (\`--privileged\`, \`--cap-add\`,
\`--device\`…), namespaces of the host (\`--pid=host\`, \`--network=host\`…), and what is mounted. A
directory of a project may be mounted; the root directory, system directories, a whole home, secrets
in it, and sockets may not. \`base/\` may be mounted read-only.`,
    `After \`exec\`, \`run\` and \`cp\` there is no placeholder at all, not even an \`enum\`: write one
verb for each command. An argument that looks like a denied option is refused even when it is meant
for the program inside the container.`,
    `Compose reads more files than you name: an override, an \`.env\`, the project directory. Say all
of it, as the full example does: \`-f\` with a file in \`base/\`, \`--project-directory base/\`,
\`--env-file base/empty.env\`, an empty file (docker-compose 1 takes no \`/dev/null\` for it), and
\`COMPOSE_DISABLE_ENV_FILE\`.`,

    "## Built-in verbs",
    `Every agent has them, and no policy defines one: ${BUILTIN_VERBS.map(code).join(", ")}. Some of
them may not be served by your version; \`inbox/catalogue.json\` lists what is.`,
  ];
  return sections.join("\n\n") + "\n";
}

if (import.meta.main) {
  Deno.writeTextFileSync(new URL("../docs/policy.md", import.meta.url), policyDocs());
}
