/**
 * A policy, from the bytes of `bridge.jsonc` to a frozen value. Pure: no clock, no file, no
 * environment; the same bytes always give the same answer, so the daemon and every shim agree.
 *
 * Rules that this file keeps:
 * 1. Either every part is right, or there is no policy: nothing is ever used of a text that has an
 *    error, and all errors are told at once.
 * 2. What is left out gets the narrowest meaning: an agent's scope is `observe`, a destructive verb
 *    waits for a human, one command runs at a time. `class` and `timeout_s` have no default.
 * 3. The result cannot be changed afterwards, by anybody.
 * 4. Names that the human chose are looked up in maps, never through a prototype (J2).
 *
 * @module
 */
import { createHash } from "node:crypto";
import { isId, printable } from "../names.ts";
import { BUILTIN_VERBS, deniedVerb, RULES } from "./denials.ts";
import { parseElement } from "./argv_template.ts";
import { deepFreeze, FrozenMap } from "./frozen.ts";
import { below } from "./json_path.ts";
import { checkProgramText } from "./parse_argv.ts";
import { checkEnvironment, parseVerb } from "./parse_verb.ts";
import {
  type AgentPolicy,
  CLASSES,
  type Limits,
  type ParsedPolicy,
  type Policy,
  type PolicyError,
  type PolicyWarning,
  type VerbPolicy,
} from "./policy.ts";
import { AGENT, LIMITS, POLICY, RATES, type SectionOf, type ValueOf } from "./policy_table.ts";
import { readJsonc } from "./read_jsonc.ts";
import { Findings, readSection } from "./read_section.ts";
import { didYouMean } from "./suggest.ts";

const SECONDS_PER_DAY = 86_400;

/**
 * Parses a whole policy.
 *
 * @param bytes the exact bytes of the file; their SHA-256 becomes the policy's digest
 */
export function parsePolicy(bytes: Uint8Array): ParsedPolicy {
  const read = readJsonc(bytes);
  if (!read.ok) return { ok: false, errors: deepFreeze(read.errors) };
  const findings = new Findings(read.locate);
  findings.errors.push(...read.errors);

  const raw = readSection(POLICY, read.value, "", findings);
  const policy = raw === undefined ? undefined : build(raw, bytes, findings);
  if (findings.errors.length > 0) {
    return { ok: false, errors: deepFreeze(inTextOrder(findings.errors)) };
  }
  if (policy === undefined) {
    throw new Error("Cannot build the policy: no error was told, and a part is missing");
  }
  return {
    ok: true,
    policy: deepFreeze(policy),
    warnings: deepFreeze(inTextOrder(findings.warnings)),
  };
}

/** Findings as they stand in the text, so that a human goes through it from top to bottom. */
function inTextOrder<F extends PolicyError | PolicyWarning>(findings: readonly F[]): F[] {
  return findings.toSorted((a, b) =>
    (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0)
  );
}

function build(
  raw: SectionOf<typeof POLICY>,
  bytes: Uint8Array,
  findings: Findings,
): Policy | undefined {
  checkEnvironment(raw.env, "env", findings);
  const limits = parseLimits(raw.limits, findings);
  const verbs = parseVerbs(raw, findings);
  const agents = parseAgents(raw, verbs, findings);
  const retention = raw.retention;
  if (
    retention?.results_days !== undefined && retention.ledger_days !== undefined &&
    retention.results_days > retention.ledger_days
  ) {
    findings.error(
      "retention.results_days",
      "Results would outlive the memory of their keys",
      `Write at most ledger_days, which is ${retention.ledger_days}`,
    );
  }
  if (
    retention?.ledger_days !== undefined && limits !== undefined &&
    limits.max_age_s > retention.ledger_days * SECONDS_PER_DAY
  ) {
    findings.error(
      "limits.max_age_s",
      "A request may wait longer than its key is remembered",
      `Write at most ${retention.ledger_days * SECONDS_PER_DAY}, or raise retention.ledger_days`,
    );
  }
  const sharing = agents.filter(([, { verbs }]) => verbs.length > 0).length;
  if (limits !== undefined && sharing > 1 && sharing > limits.concurrency) {
    findings.warning(
      "limits.concurrency",
      "few-slots",
      `${sharing} agents share ${limits.concurrency} slot(s): a long command of one may make ` +
        `another wait; with ${sharing} or more, one slot is kept for each`,
    );
  }
  checkNotify(raw.notify, findings);

  if (
    limits === undefined || retention?.results_days === undefined ||
    retention.ledger_days === undefined || retention.ledger_rows === undefined ||
    retention.audit_days === undefined ||
    retention.audit_segment_days === undefined || retention.audit_segment_bytes === undefined ||
    raw.on_stop === undefined || raw.redact === undefined || raw.require_by === undefined ||
    verbs.built.length < verbs.names.length || agents.length !== raw.agents?.size
  ) return undefined;
  const env: Record<string, string> = Object.create(null);
  for (const [name, value] of raw.env ?? []) {
    if (value === undefined) return undefined;
    env[name] = value;
  }
  return {
    digest: createHash("sha256").update(bytes).digest("hex"),
    agents: new FrozenMap(agents),
    verbs: new FrozenMap(verbs.built),
    limits,
    retention: {
      results_days: retention.results_days,
      ledger_days: retention.ledger_days,
      ledger_rows: retention.ledger_rows,
      audit_days: retention.audit_days,
      audit_segment_days: retention.audit_segment_days,
      audit_segment_bytes: retention.audit_segment_bytes,
    },
    on_stop: raw.on_stop,
    env,
    notify: raw.notify ?? null,
    redact: raw.redact,
    audit_gid: raw.audit_gid ?? null,
    require_by: raw.require_by,
  };
}

interface Verbs {
  readonly built: readonly (readonly [string, VerbPolicy])[];
  /** Every name that stands there, wrong verbs included. */
  readonly names: readonly string[];
}

function parseVerbs(raw: SectionOf<typeof POLICY>, findings: Findings): Verbs {
  const built: [string, VerbPolicy][] = [];
  for (const [name, verb] of raw.verbs ?? []) {
    const path = below("verbs", name);
    const rule = deniedVerb(name) ?? (BUILTIN_VERBS.includes(name) ? "verb-reserved" : null);
    if (rule !== null) {
      findings.error(
        path,
        `The verb name is denied: ${RULES[rule]}`,
        "Name the verb after what it does, such as restart-web",
        rule,
      );
    }
    if (verb === undefined) continue;
    const parsed = parseVerb(
      name,
      verb,
      path,
      { env: raw.env, spend: raw.limits?.spend !== undefined },
      findings,
    );
    if (parsed !== undefined) built.push([name, { ...parsed, args: new FrozenMap(parsed.args) }]);
  }
  return { built, names: [...raw.verbs?.keys() ?? []] };
}

function parseAgents(
  raw: SectionOf<typeof POLICY>,
  verbs: Verbs,
  findings: Findings,
): [string, AgentPolicy][] {
  const agents: [string, AgentPolicy][] = [];
  const byName = new Map(verbs.built);
  for (const [name, agent] of raw.agents ?? []) {
    if (agent === undefined) continue;
    const path = below("agents", name);
    const parsed = parseAgent(name, agent, path, verbs.names, findings);
    checkShims(agent.verbs ?? [], byName, path, findings);
    if (agent.scope !== undefined) {
      for (const verb of agent.verbs ?? []) {
        const klass = byName.get(verb)?.class;
        if (klass === undefined || CLASSES.indexOf(klass) <= CLASSES.indexOf(agent.scope)) continue;
        findings.warning(
          below(path, "scope"),
          "scope-too-narrow",
          `Every request for "${verb}" is refused: it is ${klass}, the scope is ${agent.scope}`,
        );
      }
    }
    if (parsed !== undefined) agents.push([name, parsed]);
  }
  const given = new Set([...raw.agents?.values() ?? []].flatMap((agent) => agent?.verbs ?? []));
  for (const name of verbs.names) {
    if (!given.has(name)) {
      findings.warning(below("verbs", name), "unused-verb", "No agent may ask for this verb");
    }
  }
  return agents;
}

function parseAgent(
  name: string,
  raw: SectionOf<typeof AGENT>,
  path: string,
  verbNames: readonly string[],
  findings: Findings,
): AgentPolicy | undefined {
  const before = findings.errors.length;
  const known = verbNames.filter(isId);
  raw.verbs?.forEach((verb, index) => {
    if (verbNames.includes(verb)) return;
    const at = below(below(path, "verbs"), index);
    if (BUILTIN_VERBS.includes(verb)) {
      findings.error(at, "Built-in verbs are given to every agent", "Remove it");
    } else {
      findings.error(
        at,
        `There is no verb "${printable(verb)}"`,
        didYouMean(verb, known) +
          (known.length === 0 ? "Define it in verbs" : `Verbs: ${known.join(", ")}`),
      );
    }
  });
  if (raw.verbs?.length === 0) {
    findings.warning(below(path, "verbs"), "no-verbs", "This agent may only use built-in verbs");
  }
  if (raw.mount === "single" && raw.agent_uid === undefined) {
    findings.error(
      below(path, "mount"),
      'A "single" mount is safe only when the agent has another user id, and it is not given',
      'Add "agent_uid", or use "mount": "role"',
    );
  }
  if (raw.mount === "synced" && raw.auth !== "signed") {
    findings.error(
      below(path, "mount"),
      "Others than the agent can write into a synced folder, and nothing says who asks",
      'Add "auth": "signed" and a key, or use "mount": "role"',
    );
  }
  const { verbs, auth, signature_window_s, scope, mount, uids } = raw;
  if (
    findings.errors.length > before || verbs === undefined || auth === undefined ||
    signature_window_s === undefined || scope === undefined || mount === undefined ||
    uids === undefined
  ) return undefined;
  return {
    name,
    verbs,
    auth,
    signature_window_s,
    scope,
    concurrency: raw.concurrency ?? null,
    mount,
    agent_uid: raw.agent_uid ?? null,
    agent_gid: raw.agent_gid ?? null,
    uids,
  };
}

/** A call of a stand-in program means one verb, for each agent. */
function checkShims(
  verbs: readonly string[],
  byName: ReadonlyMap<string, VerbPolicy>,
  path: string,
  findings: Findings,
): void {
  const owner = new Map<string, string>();
  for (const verb of verbs) {
    for (const call of byName.get(verb)?.shim ?? []) {
      const other = owner.get(call);
      if (other !== undefined) {
        findings.error(
          below(path, "verbs"),
          `The call "${call}" is claimed by the verbs "${other}" and "${verb}"`,
          "Keep it in one of them",
        );
      }
      owner.set(call, verb);
    }
  }
}

function parseLimits(
  raw: SectionOf<typeof LIMITS> | undefined,
  findings: Findings,
): Limits | undefined {
  if (raw === undefined) return undefined;
  const { per_request, per_day } = raw.spend ?? {};
  if (per_request !== undefined && per_day !== undefined && per_request > per_day) {
    findings.error(
      "limits.spend.per_request",
      "One request may spend more than the whole day",
      `Write at most per_day, which is ${per_day}`,
    );
  }
  const spend = per_request === undefined || per_day === undefined
    ? null
    : { per_request, per_day };
  const rate = parseRates(raw.rate);
  const { concurrency, waiting, backlog, answers, request_bytes, depth, keys, string_bytes } = raw;
  const { output_bytes, max_age_s, approval_wait_s, grace_s, results_files, results_bytes } = raw;
  if (
    concurrency === undefined || waiting === undefined || backlog === undefined ||
    answers === undefined || rate === undefined || request_bytes === undefined ||
    depth === undefined || keys === undefined || string_bytes === undefined ||
    output_bytes === undefined || max_age_s === undefined || approval_wait_s === undefined ||
    grace_s === undefined || results_files === undefined || results_bytes === undefined
  ) return undefined;
  return {
    concurrency,
    waiting,
    backlog,
    answers,
    rate,
    spend,
    request_bytes,
    depth,
    keys,
    string_bytes,
    output_bytes,
    max_age_s,
    approval_wait_s,
    grace_s,
    results_files,
    results_bytes,
  };
}

function parseRates(raw: SectionOf<typeof RATES> | undefined): Limits["rate"] | undefined {
  if (raw === undefined) return undefined;
  const rate: { -readonly [K in keyof Limits["rate"]]: Limits["rate"][K] } = {};
  for (const klass of CLASSES) {
    const one: ValueOf<typeof RATES["observe"]> | undefined = raw[klass];
    if (one?.max === undefined || one.per_s === undefined) continue;
    rate[klass] = { max: one.max, per_s: one.per_s };
  }
  return rate;
}

/** The notification command: fixed, apart from two words of the bridge's own. */
function checkNotify(notify: readonly string[] | undefined, findings: Findings): void {
  if (notify === undefined) return;
  const [program = "", ...rest] = notify;
  checkProgramText(program, below("notify", 0), findings);
  rest.forEach((text, index) => {
    const at = below("notify", index + 1);
    const outcome = parseElement(text, ["event", "id"]);
    if (!outcome.ok) findings.error(at, outcome.message, outcome.hint);
    else if (outcome.element.kind === "placeholder" && outcome.element.prefix !== "") {
      findings.error(
        at,
        "A placeholder behind an option",
        "Write {event} or {id} as a whole element",
      );
    }
  });
}
