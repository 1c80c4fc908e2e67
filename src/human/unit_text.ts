/**
 * The unit files as text: a service that stays, or a service that handles what is there and leaves,
 * with the path and the timer that start it; for the system's manager or a user's own.
 *
 * A path unit uses `PathChanged=` and nothing else: conditions that hold as long as something lies in
 * a directory would start the service over and over for an entry that nobody can remove. The timer
 * makes good what a missed change event leaves.
 *
 * @module
 */
import { permissionWhy } from "./permission_sets.ts";
import { grants, MALLOC_ENVIRONMENT } from "../permissions.ts";
import { confinement, type Directive, unitWord } from "./unit_directives.ts";
import type { Profile, UnitFacts } from "./unit_facts.ts";

/** What kind of unit. */
export interface UnitOptions {
  readonly profile: Profile;
  readonly user: boolean;
  readonly once: boolean;
}

/** One file. */
export interface UnitFile {
  readonly name: string;
  readonly text: string;
}

/** How the line begins that names the executable. */
export const BIN_LINE = "# bin/chb sha256 ";
/** How the line begins that names what the unit was made from. */
export const POLICY_LINE = "# policy ";

/** What the kernel sets beside a permission of the program. */
function counterpart(kind: string, path: string): string {
  if (kind === "write") return "ReadWritePaths";
  if (kind === "run") return "ExecPaths";
  return /^\.\/(?:bin|base|keys|bridge\.jsonc)/.test(path) ? "ReadOnlyPaths" : "ProtectSystem";
}

function head(facts: UnitFacts, { profile, user, once }: UnitOptions): string[] {
  const { read, write, run } = grants(facts.programs, facts.kill, facts.agents);
  const row = (kind: "read" | "write" | "run", path: string) =>
    `#   ${kind.padEnd(5)} ${path}: ${permissionWhy({ kind, path })} [${counterpart(kind, path)}]`;
  return [
    `# chb ${facts.version}: ${profile} profile, ${user ? "user" : "system"}${
      once ? ", once" : ""
    }`,
    `${POLICY_LINE}${facts.policy}`,
    `${BIN_LINE}${facts.bin_sha256}`,
    ...(facts.source ? ["# bin/chb runs from source: for a trial, not for service"] : []),
    "#",
    "# What the program itself may do, what for, and what holds the same in the kernel:",
    ...read.map((path) => row("read", path)),
    ...write.map((path) => row("write", path)),
    ...run.map((path) => row("run", path)),
    "#   network, environment, system information, native code: nothing [PrivateNetwork, UnsetEnvironment]",
    "",
  ];
}

function directive({ key, value, why }: Directive): string[] {
  return value === null ? [`# no ${key}=: ${why}`] : [`# ${why}`, `${key}=${value}`];
}

/** The directives that a kind of manager can carry out, and the names of the others. */
function split(all: readonly Directive[], user: boolean): { kept: Directive[]; left: string[] } {
  const kept = all.filter(({ scope }) => !user || scope === "both");
  const left = all.filter((one) => one.value !== null && !kept.includes(one)).map(({ key }) => key);
  return { kept, left: [...new Set(left)] };
}

/** The check of the executable before it is started. */
function binCheck(facts: UnitFacts, user: boolean): string {
  const script = `echo '${facts.bin_sha256}  ${facts.root}/bin/chb' | sha256sum --check --status`;
  // Outside of the confinement, which has no shell: it reads one file and compares.
  const quoted = script.replaceAll("%", "%%").replaceAll("$", "$$$$");
  return `ExecStartPre=${user ? "" : "+"}/bin/sh -c "${quoted}"`;
}

function service(facts: UnitFacts, options: UnitOptions): UnitFile {
  const { user, once } = options;
  const { kept, left } = split(confinement(facts, options.profile), user);
  const word = once ? "once" : "serve";
  const text = [
    ...head(facts, options),
    "[Unit]",
    unitWordLine("Description", `chb, the container-host bridge in ${facts.root}`),
    ...(once
      ? [
        "# agents decide how often it starts: no number of starts is a failure",
        "StartLimitIntervalSec=0",
      ]
      : [
        "# five starts in a minute, then a person looks",
        "StartLimitIntervalSec=60",
        "StartLimitBurst=5",
      ]),
    "",
    "[Service]",
    `Type=${once ? "oneshot" : "exec"}`,
    ...(user ? [] : [`User=${facts.uid}`]),
    "# where the authority of the program ends",
    unitWordLine("WorkingDirectory", facts.root),
    "# memory that is freed goes back to the system",
    `Environment=${MALLOC_ENVIRONMENT.join(" ")}`,
    "# the executable is the one that was trusted, or it is not started",
    binCheck(facts, user),
    `ExecStart=${unitWord(`${facts.root}/bin/chb`)} ${word}`,
    "# running commands go on without the daemon, and are taken up by the next one",
    "KillMode=process",
    "# longer than a stop waits for commands where the policy says so",
    "TimeoutStopSec=90",
    "# a command that takes too much memory ends alone",
    "OOMPolicy=continue",
    ...(once ? [] : [
      "Restart=on-failure",
      "RestartSec=1",
      "# wrong usage, refused, wrong policy or layout: a person looks",
      "RestartPreventExitStatus=64 77 78",
    ]),
    "",
    ...kept.flatMap(directive),
    ...(left.length > 0
      ? ["", `# Left out, since a user's service manager cannot carry it out:`, ...wrapNames(left)]
      : []),
    ...(once ? [] : ["", "[Install]", `WantedBy=${user ? "default.target" : "multi-user.target"}`]),
    ...(user ? ["", "# To serve while nobody is logged in:  loginctl enable-linger"] : []),
    "",
  ].join("\n");
  return { name: `${facts.name}.service`, text };
}

/** A directive whose value is the rest of the line. */
function unitWordLine(key: string, value: string): string {
  return `${key}=${value.replaceAll("%", "%%")}`;
}

/** Names in comment lines of at most 80 characters. */
function wrapNames(names: readonly string[]): string[] {
  const lines: string[] = [];
  for (const name of names) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + name.length < 79) {
      lines[lines.length - 1] = `${last} ${name}`;
    } else lines.push(`#   ${name}`);
  }
  return lines;
}

function path(facts: UnitFacts, user: boolean): UnitFile {
  const text = [
    `# Starts ${facts.name}.service when something changed in a queue.`,
    "[Unit]",
    unitWordLine("Description", `Requests for the bridge in ${facts.root}`),
    "",
    "[Path]",
    ...facts.agents.map((agent) =>
      unitWordLine("PathChanged", `${facts.root}/spool/${agent}/queue`)
    ),
    "",
    "[Install]",
    `WantedBy=${user ? "default.target" : "multi-user.target"}`,
    "",
  ];
  return { name: `${facts.name}.path`, text: text.join("\n") };
}

function timer(facts: UnitFacts, user: boolean): UnitFile {
  const text = [
    `# Starts ${facts.name}.service every minute: for what no change event told of, and for runs that`,
    "# outlived the service.",
    "[Unit]",
    unitWordLine("Description", `A look at the bridge in ${facts.root}`),
    "",
    "[Timer]",
    `${user ? "OnStartupSec" : "OnBootSec"}=30s`,
    "OnUnitInactiveSec=60s",
    "",
    "[Install]",
    `WantedBy=${user ? "default.target" : "timers.target"}`,
    "",
  ];
  return { name: `${facts.name}.timer`, text: text.join("\n") };
}

/** The unit files; one service, or a service with its path and timer. */
export function unitFiles(facts: UnitFacts, options: UnitOptions): UnitFile[] {
  const first = service(facts, options);
  return options.once ? [first, path(facts, options.user), timer(facts, options.user)] : [first];
}
