/**
 * JSON Schemas (2020-12) of every format that the bridge reads or writes. The policy's comes from
 * the policy table, the request's and the result's from the grammars and the code table, a verb's
 * arguments from its declared types, so none of them can say something that the program does not.
 *
 * A schema is closed (no unknown members) where the bridge refuses what it does not know, and for
 * the result, whose members are all listed here. Status, catalogue, message and audit record may
 * grow, and their readers are expected to skip what they do not know.
 *
 * Lengths in a schema count characters, the bridge counts UTF-8 bytes: a schema never refuses what
 * the bridge takes, and can take a long non-ASCII text that the bridge refuses.
 *
 * @module
 */
import { CODES } from "../codes.ts";
import type { OutputView, Result } from "../result.ts";
import { PATH_TYPE, patternOf, STRING_TYPES } from "./arg_types.ts";
import { checkValue } from "./check_args.ts";
import { FORMATS } from "./formats.ts";
import { type ArgSpec, type ArgValue, CLASSES, type VerbPolicy } from "./policy.ts";
import { type Field, POLICY, type Section } from "./policy_table.ts";

/** A JSON Schema, or a part of one. */
export type Schema = { readonly [keyword: string]: unknown };

/** Names of the formats, as `chb schema NAME` takes them. */
export type SchemaName =
  | "policy"
  | "request"
  | "envelope"
  | "result"
  | "status"
  | "catalogue"
  | "message"
  | "audit-record";

const DIALECT = "https://json-schema.org/draft/2020-12/schema";

const ID = FORMATS.id.pattern;
const KEY = "^[a-z0-9][a-z0-9_-]{0,127}$";
const SHA256 = "^[0-9a-f]{64}$";
const TIME = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z$";
const FILE_NAME = "^[a-z0-9][a-z0-9_-]{0,63}\\.(?:stdout|stderr)$";

/** Characters of a request's texts at most, which the parser counts in bytes. */
const TEXT_MAX = 8192;

function text(description: string): Schema {
  return { type: "string", description };
}

function matching(pattern: string, description: string): Schema {
  return { type: "string", pattern, description };
}

function count(description: string): Schema {
  return { type: "integer", minimum: 0, description };
}

function nullable(schema: Schema): Schema {
  const { description, ...rest } = schema;
  return { anyOf: [rest, { type: "null" }], description };
}

/** All schemas by name. Each is complete in itself. */
export function schemas(): Record<SchemaName, Schema> {
  return {
    policy: document("policy", "Policy: what a sandbox may ask of this host", {
      ...sectionSchema(POLICY),
    }),
    request: document("request", "Request: queue/<id>.json", requestSchema()),
    envelope: document("envelope", "Signed request: queue/<id>.json", envelopeSchema()),
    result: document("result", "Result: results/<id>.json", resultSchema()),
    status: document("status", "Status: inbox/status.json", statusSchema()),
    catalogue: document("catalogue", "Catalogue: inbox/catalogue.json", catalogueSchema()),
    message: document("message", "Message: inbox/messages/<n>.json", messageSchema()),
    "audit-record": document("audit-record", "One line of audit.jsonl", auditSchema()),
  };
}

function document(name: SchemaName, title: string, schema: Schema): Schema {
  return { $schema: DIALECT, $id: `urn:chb:${name}:1`, title, ...schema };
}

/** A section of the policy table: a closed object. */
function sectionSchema(section: Section, extra: Readonly<Record<string, Schema>> = {}): Schema {
  const fields = Object.entries(section);
  const required = [
    ...Object.keys(extra),
    ...fields.filter(([, field]) => field.required).map(([key]) => key),
  ];
  return {
    type: "object",
    properties: {
      ...extra,
      ...Object.fromEntries(fields.map(([key, field]) => [key, fieldSchema(field)])),
    },
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  };
}

function fieldSchema(field: Field): Schema {
  const common = {
    description: field.description,
    ..."default" in field && field.default !== undefined ? { default: field.default } : {},
  };
  switch (field.kind) {
    case "text":
      return {
        type: "string",
        pattern: FORMATS[field.format].pattern,
        maxLength: field.max,
        ...common,
      };
    case "choice":
      return { enum: field.values, ...common };
    case "integer":
    case "number":
      return { type: field.kind, minimum: field.min, maximum: field.max, ...common };
    case "boolean":
      return { type: "boolean", ...common };
    case "scalar":
      return { type: ["string", "number", "boolean"], ...common };
    case "list":
      return {
        type: "array",
        items: fieldSchema(field.of),
        minItems: field.min,
        maxItems: field.max,
        ...(field.unique ? { uniqueItems: true } : {}),
        ...common,
      };
    case "map":
      return {
        type: "object",
        propertyNames: { pattern: FORMATS[field.key].pattern },
        additionalProperties: fieldSchema(field.of),
        minProperties: field.min,
        maxProperties: field.max,
        ...common,
      };
    case "object":
      return { ...sectionSchema(field.section), ...common };
    case "variant":
      return {
        type: "object",
        required: ["type"],
        properties: { type: { enum: Object.keys(field.variants) } },
        oneOf: Object.entries(field.variants).map(([type, section]) =>
          sectionSchema(section, { type: { const: type } })
        ),
        ...common,
      };
  }
}

function requestSchema(): Schema {
  return {
    type: "object",
    required: ["verb"],
    additionalProperties: false,
    properties: {
      verb: { type: "string", minLength: 1, description: "Name of a verb in the catalogue." },
      args: {
        type: "object",
        maxProperties: 64,
        default: {},
        description: "Arguments, typed by the verb.",
      },
      id: matching(ID, "Equal to the file name; may be left out."),
      idempotency_key: matching(KEY, "One start a key. The id, when left out."),
      timeout_s: {
        type: "number",
        exclusiveMinimum: 0,
        description: "Seconds; may only shorten the verb's own limit.",
      },
      max_age_s: {
        type: "number",
        exclusiveMinimum: 0,
        description: "Seconds after arrival; may only shorten the policy's limit.",
      },
      scope: { enum: CLASSES, description: "May only narrow the agent's own." },
      max_spend: { type: "number", minimum: 0, description: "May only narrow the policy's." },
      plan: { type: "string", maxLength: TEXT_MAX, description: "For the person who approves." },
      note: { type: "string", maxLength: TEXT_MAX, description: "Why, for the audit log." },
      chb: { const: 1, description: "Protocol version." },
    },
  };
}

function envelopeSchema(): Schema {
  return {
    type: "object",
    required: ["payload", "auth"],
    additionalProperties: false,
    properties: {
      payload: text("The request as text, with id, agent and created_at: what is signed."),
      auth: {
        type: "object",
        required: ["alg", "key", "sig"],
        additionalProperties: false,
        properties: {
          alg: { enum: ["hmac-sha256", "ed25519"] },
          key: matching(ID, "Name of the key."),
          sig: matching("^(?:[0-9a-f]{64}|[0-9a-f]{128})$", "Signature in lower-case hex."),
        },
      },
    },
  };
}

function outputSchema(): Schema {
  const properties = {
    head: text("Everything, or the beginning."),
    tail: text("The end, when something was dropped between."),
    bytes: count("Bytes that the command wrote."),
    dropped_bytes: count("Bytes in neither head nor tail."),
    replaced_bytes: count("Bytes that were not UTF-8."),
    file: nullable(matching(FILE_NAME, "File in results/ with the output.")),
    complete: { type: "boolean", description: "The file holds every byte." },
  } as const satisfies Record<keyof OutputView, Schema>;
  return {
    type: "object",
    required: Object.keys(properties),
    additionalProperties: false,
    properties,
  };
}

function resultSchema(): Schema {
  const output = outputSchema();
  const outcomes = [...new Set(CODES.flatMap(({ outcome }) => outcome ?? []))];
  const properties = {
    chb: { const: 1, description: "Protocol version." },
    id: matching(ID, "The request's id."),
    agent: matching(ID, "The agent whose queue it came from."),
    state: { enum: ["pending", "running", "done", "uncertain"] },
    outcome: { enum: outcomes, description: "How it finished; state done only." },
    code: { enum: CODES.map(({ code }) => code), description: "The bridge's own code." },
    reason: { enum: CODES.map(({ reason }) => reason), description: "The code's name." },
    stage: text("The check that answered."),
    message: text("What happened or what was wrong."),
    hint: text("What to do about it."),
    next: {
      enum: ["wait", "resend-same", "resend-new-key", "fix-request", "ask-human", "nothing"],
      description: "What to do next, in one word.",
    },
    waiting_for: { enum: ["approval", "slot", "lock"], description: "State pending only." },
    retry_after_ms: count("Milliseconds after which the same request may be sent again."),
    verb: text("The verb that was asked for."),
    idempotency_key: matching(KEY, "The key that it ran under."),
    request_sha256: matching(SHA256, "Digest of the request file."),
    exit_code: nullable({ type: "integer", description: "The command's own exit code." }),
    signal: nullable(text("The signal that ended the command.")),
    attempt: count("Which start this was."),
    received_at: matching(TIME, "Arrival."),
    started_at: matching(TIME, "Start of the command."),
    finished_at: matching(TIME, "End."),
    duration_ms: { type: "number", minimum: 0, description: "Of the command." },
    deadline_at: matching(TIME, "When it will be ended."),
    poll_after_ms: count("How long to wait before looking again."),
    stdout: output,
    stderr: output,
    resolved: {
      type: "object",
      description: "How an uncertain request was settled.",
      required: ["as", "by", "at"],
      additionalProperties: false,
      properties: {
        as: { enum: ["done", "failed", "retry"] },
        by: { enum: ["human", "lookup"] },
        note: text("What the human noted."),
        at: matching(TIME, "When."),
      },
    },
    answer: { description: "The answer of a built-in verb." },
    replay_of: matching(ID, "The id whose run this tells."),
    replays: count("How often it was asked for again."),
    replayed_at: matching(TIME, "The last time of them."),
    audit: {
      type: "object",
      required: ["seq", "hash"],
      additionalProperties: false,
      properties: { seq: count("Number of the record."), hash: matching(SHA256, "Its hash.") },
    },
  } as const satisfies Record<keyof Result, Schema>;
  return {
    type: "object",
    required: ["chb", "agent", "state", "next"],
    additionalProperties: false,
    properties: {
      ...properties,
      // An entry without a usable name is answered in inbox/refused/ instead, by number.
      n: count("Number of the answer in inbox/refused/."),
      name: text("Name of the entry, escaped."),
    },
    oneOf: [
      { required: ["id"], not: { anyOf: [{ required: ["n"] }, { required: ["name"] }] } },
      { required: ["n", "name"], not: { required: ["id"] } },
    ],
    allOf: [
      { if: state("done"), then: { required: ["code", "reason", "outcome"] } },
      { if: state("uncertain"), then: { not: { required: ["outcome"] } } },
      { if: state("pending"), then: { not: { required: ["outcome"] } } },
      { if: state("running"), then: { not: { required: ["outcome"] } } },
      ...CODES.map(({ code, reason, outcome, next }) => ({
        if: { properties: { code: { const: code } }, required: ["code"] },
        then: {
          properties: {
            reason: { const: reason },
            next: { const: next },
            ...(outcome === null ? {} : { outcome: { const: outcome } }),
          },
        },
      })),
    ],
  };
}

function state(name: string): Schema {
  return { properties: { state: { const: name } }, required: ["state"] };
}

function statusSchema(): Schema {
  return {
    type: "object",
    required: ["chb", "agent", "seq", "every_s", "state", "why", "version", "recent"],
    properties: {
      chb: { const: 1 },
      agent: matching(ID, "Whose inbox this is."),
      seq: count("Grows with every writing."),
      every_s: { type: "number", exclusiveMinimum: 0, description: "Seconds between two." },
      at: matching(TIME, "When it was written, by the host's clock."),
      state: { enum: ["serving", "untrusted", "killed", "degraded", "stopped"] },
      why: text("One sentence; empty while it serves and nothing is wrong."),
      version: text("Version of the bridge."),
      source: { type: "boolean", description: "Run from source." },
      policy: nullable(matching(SHA256, "Digest of the trusted policy.")),
      watch: text(
        "How new requests are noticed: `watch`, `poll`, or `once`, when each start looks and leaves: " +
          "then `seq` stands still in between.",
      ),
      running: count("Commands that run."),
      waiting: count("Requests of this agent that wait."),
      messages: {
        type: "object",
        properties: {
          newest: count("Number of the newest message."),
          asking: count("Questions that wait for an answer."),
        },
      },
      recent: {
        type: "array",
        maxItems: 50,
        items: {
          type: "object",
          required: ["id", "verb", "state"],
          properties: {
            id: matching(ID, "The request's id."),
            idempotency_key: nullable(matching(KEY, "Its key, while it holds one.")),
            verb: text("Its verb."),
            note: nullable(text("Its note.")),
            state: { enum: ["pending", "running", "done", "uncertain"] },
            outcome: nullable(text("How it finished.")),
            code: nullable({ enum: CODES.map(({ code }) => code), description: "Its code." }),
            received_at: matching(TIME, "Its arrival."),
          },
        },
      },
    },
  };
}

function catalogueSchema(): Schema {
  return {
    type: "object",
    required: ["chb", "agent", "verbs", "limits"],
    properties: {
      chb: { const: 1 },
      agent: matching(ID, "Whose inbox this is."),
      trusted: { type: "boolean", description: "A human has trusted a policy." },
      policy: nullable(matching(SHA256, "Digest of the trusted policy.")),
      scope: { enum: CLASSES, description: "The widest class that this agent may use." },
      auth: { enum: ["placement", "signed"], description: "Whether requests must be signed." },
      verbs: {
        type: "array",
        items: {
          type: "object",
          required: ["verb", "class", "args_schema", "example"],
          properties: {
            verb: text("Its name."),
            description: text("What it does."),
            class: { enum: CLASSES },
            builtin: { type: "boolean", description: "Answered by the bridge itself." },
            args: { type: "object", additionalProperties: { type: "object", required: ["type"] } },
            args_schema: { type: "object", description: "JSON Schema of `args`." },
            approval: { enum: ["never", "always", "when-planned"] },
            timeout_s: nullable({ type: "number", description: "Seconds at most." }),
            lock: nullable(text("Verbs with the same lock run one after the other.")),
            shim: {
              type: "array",
              items: text("One call."),
              description: "Calls of the stand-in programs that mean this verb.",
            },
            example: { type: "object", required: ["verb"], description: "A valid request." },
          },
        },
      },
      limits: { type: "object" },
    },
  };
}

function messageSchema(): Schema {
  return {
    type: "object",
    required: ["chb", "n", "at", "from", "text"],
    properties: {
      chb: { const: 1 },
      n: { type: "integer", minimum: 1, description: "Number of the message." },
      at: matching(TIME, "When it was sent."),
      from: text("Who sent it, as claimed."),
      text: text("What it says."),
      ask: { type: "boolean", description: "An answer is expected: bridge.reply." },
      reply_by: nullable(matching(TIME, "Until when.")),
      replied: { type: "boolean", description: "It has been answered." },
    },
  };
}

function auditSchema(): Schema {
  return {
    type: "object",
    required: ["seq", "at", "event", "prev", "hash"],
    properties: {
      seq: { type: "integer", minimum: 1, description: "Place in the chain." },
      at: matching(TIME, "When it was recorded."),
      event: matching("^[a-z-]{1,64}$", "What happened."),
      prev: matching(SHA256, "Hash of the record before; zeros for the first."),
      hash: matching(SHA256, "Hash of this record without this member."),
      agent: matching(ID, "Whose request."),
      id: text("The request's id."),
      claim: matching("^[0-9a-f]{32}$", "Random part of the claim."),
    },
  };
}

/** The schema of one argument's value. */
export function argSchema(spec: ArgSpec): Schema {
  const common = {
    ...(spec.description === "" ? {} : { description: spec.description }),
    ...(spec.default === undefined ? {} : { default: spec.default }),
  };
  switch (spec.type) {
    case "enum":
      return { enum: spec.values, ...common };
    case "integer":
      return { type: "integer", minimum: spec.min, maximum: spec.max, ...common };
    case "boolean":
      return { type: "boolean", ...common };
    default:
      return {
        type: "string",
        pattern: patternOf(spec),
        minLength: 1,
        maxLength: spec.max_length,
        ...common,
      };
  }
}

/** The schema of a verb's `args`: closed, with what has no default required. */
export function verbArgsSchema(verb: VerbPolicy): Schema {
  const args = [...verb.args];
  const required = args.filter(([, spec]) => spec.default === undefined).map(([name]) => name);
  return {
    type: "object",
    properties: Object.fromEntries(args.map(([name, spec]) => [name, argSchema(spec)])),
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  };
}

/** A value for every argument of a verb that passes the check; defaults where there are any. */
export function exampleArgs(verb: VerbPolicy): Readonly<Record<string, ArgValue>> {
  const args: Record<string, ArgValue> = Object.create(null);
  for (const [name, spec] of verb.args) args[name] = exampleValue(name, spec);
  return Object.freeze(args);
}

function exampleValue(name: string, spec: ArgSpec): ArgValue {
  if (spec.default !== undefined) return spec.default;
  for (const value of candidates(spec)) {
    if (checkValue(spec, value).ok) return value;
  }
  throw new Error(`Cannot make an example: no value fits the argument "${name}"`);
}

function candidates(spec: ArgSpec): readonly ArgValue[] {
  switch (spec.type) {
    case "enum":
      return spec.values;
    case "integer":
      return [Math.max(spec.min, Math.min(1, spec.max))];
    case "boolean":
      return [true];
    case "path":
      return PATH_TYPE.examples;
    default:
      return STRING_TYPES[spec.type].examples;
  }
}
