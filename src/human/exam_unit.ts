/**
 * Holds a service unit against the one that this root, executable and policy ask for.
 *
 * @module
 */
import type { Finding } from "../spool/types.ts";
import { found } from "./exam.ts";
import { printable } from "../names.ts";
import type { Profile, UnitFacts } from "./unit_facts.ts";
import { unitFiles, type UnitOptions } from "./unit_text.ts";

/** Directives by section and key, in their order. */
type Directives = ReadonlyMap<string, readonly string[]>;

/** What a unit says, without its comments. */
export function parseUnit(text: string): Directives {
  const directives = new Map<string, string[]>();
  let section = "";
  // A line that ends in a backslash goes on in the next one.
  for (const line of text.replace(/\\\r?\n/g, " ").split(/\r?\n/)) {
    const trimmed = line.trim();
    if (trimmed === "" || trimmed.startsWith("#") || trimmed.startsWith(";")) continue;
    const name = /^\[([^\]]+)\]$/.exec(trimmed)?.[1];
    if (name !== undefined) {
      section = name;
      continue;
    }
    const [, key, value] = /^([A-Za-z0-9]+)\s*=\s*(.*)$/.exec(trimmed) ?? [];
    if (key === undefined || value === undefined) continue;
    const full = `${section}.${key}`;
    directives.set(full, [...(directives.get(full) ?? []), value]);
  }
  return directives;
}

/** Conditions that hold as long as an entry lies there, and so start a service without end. */
const FORBIDDEN = ["DirectoryNotEmpty", "PathExists", "PathExistsGlob"];

/** What the service is not the same without. */
const VITAL = new Set([
  "Service.ExecStart",
  "Service.ExecStartPre",
  "Service.KillMode",
  "Service.User",
  "Service.WorkingDirectory",
  "Service.ReadWritePaths",
]);
/** For people. */
const FREE = new Set(["Unit.Description"]);

/** The choices that a unit was made with, as far as it shows them. */
function optionsOf(text: string, given: Directives): Omit<UnitOptions, "profile"> {
  const once = (given.get("Service.Type") ?? []).includes("oneshot") ||
    given.has("Path.PathChanged");
  const user = /^# chb \S+: \w+ profile, user/m.test(text) ||
    (given.get("Install.WantedBy") ?? []).includes("default.target");
  return { once, user };
}

interface Difference {
  readonly key: string;
  readonly level: "error" | "warning" | "note";
  readonly message: string;
}

function compare(given: Directives, wanted: Directives): Difference[] {
  const differences: Difference[] = [];
  const sections = new Set([...given.keys()].map((key) => key.split(".")[0]));
  for (const [key, values] of wanted) {
    if (FREE.has(key) || !sections.has(key.split(".")[0])) continue;
    const level = VITAL.has(key) ? "error" : "warning";
    const has = given.get(key);
    const name = key.slice(key.indexOf(".") + 1);
    const shown = values.map((value) => `${name}=${printable(value, 120)}`).join(" and ");
    if (has === undefined) differences.push({ key, level, message: `It lacks ${shown}` });
    else if (JSON.stringify(has) !== JSON.stringify(values)) {
      differences.push({ key, level, message: `It has not ${shown}` });
    }
  }
  for (const key of given.keys()) {
    const name = key.slice(key.indexOf(".") + 1);
    if (FORBIDDEN.includes(name)) {
      const message = `${name}= starts the service over and over for an entry that stays`;
      differences.push({ key, level: "error", message });
    } else if (!wanted.has(key) && !FREE.has(key)) {
      differences.push({ key, level: "note", message: `${name}= is an addition of its own` });
    }
  }
  return differences;
}

/** Everything that differs from the unit that `chb unit` prints now. */
export function examUnit(text: string, facts: UnitFacts): Finding[] {
  const given = parseUnit(text);
  const parts = ["service", "path", "timer"].filter((name) =>
    [...given.keys()].some((key) => key.toLowerCase().startsWith(`${name}.`))
  );
  const [part] = parts;
  if (part === undefined) {
    return [found("error", "unit", "--unit", "It is no unit: it has no service, path or timer")];
  }
  const rest = optionsOf(text, given);
  const once = rest.once || part !== "service";
  const judged = (["strict", "containers"] as const).map((profile) => {
    // Of the files that belong together, those that were handed in.
    const files = unitFiles(facts, { ...rest, once, profile })
      .filter(({ name }) => parts.includes(name.slice(name.lastIndexOf(".") + 1)));
    const wanted = parseUnit(files.map((file) => file.text).join("\n"));
    return { profile, differences: compare(given, wanted) };
  });
  const stated = /^# chb \S+: (\w+) profile/m.exec(text)?.[1];
  const best = judged.find(({ profile }) => profile === stated) ??
    judged.sort((a, b) => a.differences.length - b.differences.length)[0];
  if (best === undefined) return [];
  const mend = unitCommand(facts.name, best.profile, rest.user, once ? part : null);
  return best.differences.map(({ key, level, message }) =>
    found(level, "unit", key, message, level === "note" ? "" : mend)
  );
}

/** The command that prints the unit that is wanted, into a file here. */
function unitCommand(name: string, profile: Profile, user: boolean, part: string | null): string {
  return [
    "./bin/chb unit",
    ...(user ? ["--user"] : []),
    ...(part === null ? [] : [`--once --part ${part}`]),
    `--profile ${profile}`,
    `> ${name}.${part ?? "service"}`,
  ].join(" ");
}
