/**
 * A policy in words that a person can review, and what differs between two of them: agent by agent,
 * verb by verb, limit by limit.
 *
 * 1. Every field of a policy is told, also one that this file knows no words for: it is walked field
 *    by field, so nothing new can change in silence.
 * 2. Secrets are not shown: `redact` by number, environment values whose names say it not at all.
 *    That they changed is told.
 * 3. Lines hold texts as the policy has them: whoever prints one escapes it.
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { ArgvElement, Policy, VerbPolicy } from "../policy/policy.ts";
import { secretName } from "../run/secret_name.ts";

/** What one part of a policy says: field by field. */
export type Facts = ReadonlyMap<string, string>;

/** A short mark by which two secrets differ; nobody can tell a secret from it. */
function mark(text: string, salt: string): string {
  return createHash("sha256").update(salt).update("\0").update(text).digest("hex").slice(0, 8);
}

function words(elements: readonly ArgvElement[]): string[] {
  return elements.map((e) =>
    e.kind === "fixed"
      ? e.text
      : e.kind === "base"
      ? `${e.prefix}${e.path}`
      : `${e.prefix}{${e.name}}`
  );
}

/** True for the maps of a policy, which are frozen and no `Map` of the language. */
function isMap(value: unknown): value is ReadonlyMap<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) &&
    "entries" in value && typeof value.entries === "function";
}

/** A value that has no words of its own. */
function plain(value: unknown): string {
  if (value === null || value === undefined) return "none";
  if (isMap(value)) {
    const parts = [...value.entries()].map(([name, inner]) => `${name} ${plain(inner)}`);
    return parts.length === 0 ? "none" : parts.join("; ");
  }
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(plain).join(", ");
  if (typeof value === "object") {
    const parts = Object.entries(value).flatMap(([name, inner]) =>
      name === "description" && inner === "" ? [] : [`${name} ${plain(inner)}`]
    );
    return parts.length === 0 ? "none" : `(${parts.join(", ")})`;
  }
  return typeof value === "string" ? value : String(value);
}

function environment(env: Readonly<Record<string, string>>, salt: string): string {
  const parts = Object.entries(env).map(([name, value]) =>
    secretName(name) === null ? `${name}=${value}` : `${name}=(not shown, ${mark(value, salt)})`
  );
  return parts.length === 0 ? "none" : parts.join(" ");
}

/** Fields of a policy that hold parts with a place of their own, and its name. */
const PARTS = new Set(["digest", "agents", "verbs", "limits", "retention", "env", "redact"]);

function verbFacts(verb: VerbPolicy, salt: string): Facts {
  const facts = new Map<string, string>();
  const { name: _name, program, argv, env, lookup, ...rest } = verb;
  facts.set("runs", [program, ...words(argv)].join(" "));
  for (const [field, value] of Object.entries(rest)) {
    facts.set(field, value === "" ? "none" : plain(value));
  }
  facts.set("env", environment(env, salt));
  if (lookup !== null) {
    const { program: asked, argv: asking, ...how } = lookup;
    facts.set("lookup", `${[asked, ...words(asking)].join(" ")} ${plain(how)}`);
  } else facts.set("lookup", "none");
  return facts;
}

function sectionFacts(section: object): Facts {
  return new Map(Object.entries(section).map(([field, value]) => [field, plain(value)]));
}

/**
 * A policy part by part: `agent main`, `verb restart`, `limits`, `retention`, `policy`.
 *
 * @param salt makes marks of secrets comparable within one review and nowhere else
 */
export function policyFacts(policy: Policy, salt: string): ReadonlyMap<string, Facts> {
  const parts = new Map<string, Facts>();
  for (const { name, ...agent } of policy.agents.values()) {
    parts.set(`agent ${name}`, sectionFacts(agent));
  }
  for (const verb of policy.verbs.values()) parts.set(`verb ${verb.name}`, verbFacts(verb, salt));
  parts.set("limits", sectionFacts(policy.limits));
  parts.set("retention", sectionFacts(policy.retention));
  const whole = new Map<string, string>();
  for (const [field, value] of Object.entries(policy)) {
    if (!PARTS.has(field)) whole.set(field, plain(value));
  }
  whole.set("env", environment(policy.env, salt));
  const { redact } = policy;
  const marks = redact.map((text) => mark(text, salt)).sort().join(" ");
  whole.set("redact", redact.length === 0 ? "none" : `${redact.length} not shown (${marks})`);
  parts.set("policy", whole);
  return parts;
}

/** Fields of a new verb that go without saying at these values. */
const USUAL: ReadonlySet<string> = new Set(["none", "false"]);

/** The lines that tell a policy as a whole: what is none or off is left out. */
export function policyLines(policy: Policy, salt: string): string[] {
  const lines: string[] = [];
  for (const [part, facts] of policyFacts(policy, salt)) {
    lines.push(part);
    for (const [field, text] of facts) {
      if (!USUAL.has(text)) lines.push(`    ${field}: ${text}`);
    }
  }
  return lines;
}

/**
 * The lines that tell what differs, `+` in front of what is new, `-` of what is gone, `~` of what
 * changed, with both values; none when only comments or their like differ.
 */
export function policyDiff(before: Policy, after: Policy, salt: string): string[] {
  const old = policyFacts(before, salt);
  const now = policyFacts(after, salt);
  const lines: string[] = [];
  for (const part of old.keys()) if (!now.has(part)) lines.push(`- ${part}`);
  for (const [part, facts] of now) {
    const was = old.get(part);
    if (was === undefined) {
      lines.push(`+ ${part}`);
      for (const [field, text] of facts) {
        if (!USUAL.has(text)) lines.push(`    ${field}: ${text}`);
      }
      continue;
    }
    const changes: string[] = [];
    for (const field of new Set([...was.keys(), ...facts.keys()])) {
      const [a, b] = [was.get(field) ?? "none", facts.get(field) ?? "none"];
      if (a !== b) changes.push(`    ${field}`, `      was ${a}`, `      now ${b}`);
    }
    if (changes.length > 0) lines.push(`~ ${part}`, ...changes);
  }
  return lines;
}
