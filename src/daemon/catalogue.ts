/**
 * `inbox/catalogue.json`: everything that an agent may ask for, so that one read replaces a row
 * of trials. Derived from the trusted policy alone.
 *
 * @module
 */
import { BUILTIN_ARGS, BUILTINS } from "../surface.ts";
import type { Policy, VerbPolicy } from "../policy/policy.ts";
import { exampleArgs, verbArgsSchema } from "../policy/schema.ts";
import { PROTOCOL } from "../request/request.ts";

const BUILTIN_WORDS: Readonly<Record<string, string>> = Object.freeze({
  "bridge.ping": "Answers at once: the bridge is up.",
  "bridge.verbs": "Answers with this list of verbs.",
  "bridge.status": "Answers with what inbox/status.json holds, as of now.",
  "bridge.cancel": "Cancels one of your requests: it is not started, or what runs is ended.",
});

/** One verb of the catalogue. */
export interface CatalogueVerb {
  readonly verb: string;
  readonly description: string;
  readonly class: string;
  readonly builtin: boolean;
  readonly args: Readonly<Record<string, unknown>>;
  readonly args_schema: unknown;
  readonly approval: string;
  readonly timeout_s: number | null;
  readonly lock: string | null;
  /** Calls of the stand-in programs that mean this verb. */
  readonly shim: readonly string[];
  readonly example: unknown;
}

export interface Catalogue {
  readonly chb: 1;
  readonly agent: string;
  readonly trusted: boolean;
  readonly policy: string | null;
  readonly scope: string;
  /** How requests are authenticated: `placement`, or `signed` as docs/signatures.md says. */
  readonly auth: string;
  readonly verbs: readonly CatalogueVerb[];
  readonly limits: Readonly<Record<string, unknown>>;
}

function policyVerb(verb: VerbPolicy): CatalogueVerb {
  const args: Record<string, unknown> = {};
  for (const [name, spec] of verb.args) args[name] = spec;
  return {
    verb: verb.name,
    description: verb.description,
    class: verb.class,
    builtin: false,
    args,
    args_schema: verbArgsSchema(verb),
    approval: verb.approval,
    timeout_s: verb.timeout_s,
    lock: verb.lock,
    shim: verb.shim,
    example: {
      verb: verb.name,
      ...(verb.args.size === 0 ? {} : { args: exampleArgs(verb) }),
    },
  };
}

/** The catalogue of one agent; without a trusted policy it holds the built-in verbs. */
export function catalogue(policy: Policy | null, agent: string): Catalogue {
  const own = policy?.agents.get(agent);
  const verbs: CatalogueVerb[] = [];
  for (const name of own?.verbs ?? []) {
    const verb = policy?.verbs.get(name);
    if (verb !== undefined) verbs.push(policyVerb(verb));
  }
  for (const name of BUILTINS) {
    const args = BUILTIN_ARGS[name] ?? {};
    const [first] = Object.keys(args);
    verbs.push({
      verb: name,
      description: BUILTIN_WORDS[name] ?? "",
      class: "observe",
      builtin: true,
      args: Object.fromEntries(
        Object.entries(args).map(([arg, description]) => [arg, { type: "string", description }]),
      ),
      args_schema: {
        type: "object",
        additionalProperties: false,
        ...(first === undefined ? {} : { minProperties: 1, maxProperties: 1 }),
        properties: Object.fromEntries(
          Object.entries(args).map(([arg, description]) => [arg, { type: "string", description }]),
        ),
      },
      approval: "never",
      timeout_s: null,
      lock: null,
      shim: [],
      example: {
        verb: name,
        ...(first === undefined ? {} : { args: { [first]: `some-${first}`.replace(/_/g, "-") } }),
      },
    });
  }
  const limits = policy?.limits;
  return {
    chb: PROTOCOL,
    agent,
    trusted: policy !== null,
    policy: policy?.digest ?? null,
    scope: own?.scope ?? "observe",
    auth: own?.auth ?? "placement",
    verbs,
    limits: limits === undefined ? {} : {
      request_bytes: limits.request_bytes,
      depth: limits.depth,
      keys: limits.keys,
      string_bytes: limits.string_bytes,
      output_bytes: limits.output_bytes,
      waiting: limits.waiting,
      concurrency: limits.concurrency,
      answers_per_minute: limits.answers,
      max_age_s: limits.max_age_s,
      ...(own?.auth === "signed" ? { signature_window_s: own.signature_window_s } : {}),
      approval_wait_s: limits.approval_wait_s,
      spend: limits.spend,
      rate: limits.rate,
    },
  };
}
