/**
 * `inbox/catalogue.json`: everything that an agent may ask for, so that one read replaces a row
 * of trials. Derived from the trusted policy alone.
 *
 * @module
 */
import { BUILTIN_ARGS, BUILTIN_ONE_OF, BUILTINS } from "../surface.ts";
import type { Policy, VerbPolicy } from "../policy/policy.ts";
import { exampleArgs, verbArgsSchema } from "../policy/schema.ts";
import { PROTOCOL } from "../request/request.ts";

const BUILTIN_WORDS: Readonly<Record<string, string>> = Object.freeze({
  "bridge.ping": "Answers at once: the bridge is up.",
  "bridge.verbs": "Answers with this list of verbs.",
  "bridge.reply": "Answers a message of inbox/messages/.",
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

/** JSON Schema of a built-in verb's arguments. */
function builtinSchema(name: string): unknown {
  const args = Object.entries(BUILTIN_ARGS[name] ?? {});
  const one = BUILTIN_ONE_OF.has(name);
  return {
    type: "object",
    additionalProperties: false,
    properties: Object.fromEntries(
      args.map(([arg, { type, description, min, max, max_length }]) => [
        arg,
        type === "integer"
          ? { type, description, minimum: min, maximum: max }
          : { type: "string", description, minLength: 1, maxLength: max_length },
      ]),
    ),
    ...(one ? { minProperties: 1, maxProperties: 1 } : {}),
    ...(one || args.length === 0 ? {} : { required: args.map(([arg]) => arg) }),
  };
}

function builtinExample(name: string): unknown {
  const all = Object.entries(BUILTIN_ARGS[name] ?? {});
  const args = BUILTIN_ONE_OF.has(name) ? all.slice(0, 1) : all;
  if (args.length === 0) return { verb: name };
  const value = { integer: 1, name: "some-id", text: "yes" };
  return {
    verb: name,
    args: Object.fromEntries(args.map(([arg, { type }]) => [arg, value[type]])),
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
    verbs.push({
      verb: name,
      description: BUILTIN_WORDS[name] ?? "",
      class: "observe",
      builtin: true,
      args: BUILTIN_ARGS[name] ?? {},
      args_schema: builtinSchema(name),
      approval: "never",
      timeout_s: null,
      lock: null,
      shim: [],
      example: builtinExample(name),
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
      concurrency: Math.min(limits.concurrency, own?.concurrency ?? Infinity),
      answers_per_minute: limits.answers,
      max_age_s: limits.max_age_s,
      ...(own?.auth === "signed" ? { signature_window_s: own.signature_window_s } : {}),
      approval_wait_s: limits.approval_wait_s,
      spend: limits.spend,
      rate: limits.rate,
    },
  };
}
