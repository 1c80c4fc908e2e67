/**
 * The one table of everything that a policy may say: each key with its type, default, bounds and
 * meaning. The parser, the JSON Schema and the reference page are all made from it, so they cannot
 * drift apart. What one key means for another (a lookup needs `on_crash: "lookup"`) is checked in
 * `parse_policy.ts` and `parse_verb.ts`.
 *
 * @module
 */
import { STRING_TYPES } from "./arg_types.ts";
import type { FormatName } from "./formats.ts";

interface Common {
  /** One or two sentences for the reference page and the schema. Markdown. */
  readonly description: string;
  readonly required?: true;
  /** In words, where the default is not a fixed value. */
  readonly default_note?: string;
}

/** A text of a named format. `max` counts UTF-8 bytes. */
export interface TextField extends Common {
  readonly kind: "text";
  readonly format: FormatName;
  readonly max: number;
  readonly default?: string;
}

export interface ChoiceField extends Common {
  readonly kind: "choice";
  readonly values: readonly string[];
  readonly default?: string;
}

export interface IntegerField extends Common {
  readonly kind: "integer";
  readonly min: number;
  readonly max: number;
  readonly default?: number;
}

/** Decimals allowed. */
export interface NumberField extends Common {
  readonly kind: "number";
  readonly min: number;
  readonly max: number;
  readonly default?: number;
}

export interface BooleanField extends Common {
  readonly kind: "boolean";
  readonly default?: boolean;
}

/** A text, number or boolean whose meaning depends on a sibling; checked by who reads it. */
export interface ScalarField extends Common {
  readonly kind: "scalar";
}

export interface ListField extends Common {
  readonly kind: "list";
  readonly of: Field;
  readonly min: number;
  readonly max: number;
  readonly unique: boolean;
  readonly default?: readonly never[];
}

/** An object whose keys the human chooses. */
export interface MapField extends Common {
  readonly kind: "map";
  readonly key: FormatName;
  /** What a key is called in messages and docs. */
  readonly key_name: string;
  readonly of: Field;
  readonly min: number;
  readonly max: number;
  readonly default?: Readonly<Record<string, never>>;
}

/** An object with the keys of a section. With `default`, an absent one is read as `{}`. */
export interface ObjectField extends Common {
  readonly kind: "object";
  readonly section: Section;
  readonly default?: Readonly<Record<string, never>>;
}

/** An object whose keys depend on its `type`. */
export interface VariantField extends Common {
  readonly kind: "variant";
  readonly variants: Readonly<Record<string, Section>>;
}

export type Field =
  | TextField
  | ChoiceField
  | IntegerField
  | NumberField
  | BooleanField
  | ScalarField
  | ListField
  | MapField
  | ObjectField
  | VariantField;

export type Section = Readonly<Record<string, Field>>;

/** What the reader makes of a field. */
export type ValueOf<F> = F extends { kind: "text" } ? string
  : F extends { kind: "choice"; values: readonly (infer V)[] } ? V
  : F extends { kind: "integer" | "number" } ? number
  : F extends { kind: "boolean" } ? boolean
  : F extends { kind: "scalar" } ? string | number | boolean
  : F extends { kind: "list"; of: infer I } ? readonly ValueOf<I>[]
  : F extends { kind: "map"; of: infer I } ? ReadonlyMap<string, ValueOf<I> | undefined>
  : F extends { kind: "object"; section: infer S } ? SectionOf<S>
  : F extends { kind: "variant"; variants: infer U }
    ? { [T in keyof U]: { readonly type: T } & SectionOf<U[T]> }[keyof U]
  : never;

/** What the reader makes of a section: every key may be absent, or wrong and already told. */
export type SectionOf<S> = { readonly [K in keyof S]: ValueOf<S[K]> | undefined };

const GIB = 1_073_741_824;
const MIB = 1_048_576;
const UID_MAX = 4_294_967_294;

/** UTF-8 bytes of one element of an argument vector. */
const ELEMENT_MAX = 4096;
const ARGV_MAX = 256;

const CLASS_VALUES = ["observe", "mutating", "destructive"] as const;

const ARG_COMMON = {
  description: {
    kind: "text",
    format: "text",
    max: 500,
    default: "",
    description: "One sentence for the agent, shown in the catalogue.",
  },
} as const satisfies Section;

/** The default of an argument: any scalar here, held against the argument's own type later. */
const ARG_DEFAULT = {
  kind: "scalar",
  default_note: "none: the argument is required",
  description: "The value of a request that leaves the argument out. It has to fit the type.",
} as const satisfies Field;

function lengthField<const D extends number, const M extends number>(standard: D, min: M) {
  return {
    kind: "integer",
    min,
    max: 8192,
    default: standard,
    description: "Longest value, in UTF-8 bytes.",
  } as const;
}

const LEADING_DASH = {
  kind: "boolean",
  default: false,
  description: "Lets a value start with `-` or `@`, which most programs take for an option or a " +
    "file to read. Allowed only where the placeholder stands after `--` or behind `--flag=`.",
} as const satisfies Field;

function stringArg<const K extends keyof typeof STRING_TYPES>(kind: K) {
  const type = STRING_TYPES[kind];
  return {
    ...ARG_COMMON,
    max_length: lengthField(type.max_length, type.min_length),
    allow_leading_dash: LEADING_DASH,
    default: ARG_DEFAULT,
  } as const;
}

/** `verbs.V.args.X`, by type. */
export const ARGUMENT = {
  enum: {
    ...ARG_COMMON,
    values: {
      kind: "list",
      of: {
        kind: "text",
        format: "filled",
        max: ELEMENT_MAX,
        description: "One value, exactly as it becomes part of the command.",
      },
      min: 1,
      max: 256,
      unique: true,
      required: true,
      description: "Every value that there is. The narrowest type: prefer it.",
    },
    default: ARG_DEFAULT,
  },
  integer: {
    ...ARG_COMMON,
    min: {
      kind: "integer",
      min: Number.MIN_SAFE_INTEGER,
      max: Number.MAX_SAFE_INTEGER,
      default: 0,
      description: "Smallest value. A negative one needs the placeholder after `--` or behind " +
        "`--flag=`.",
    },
    max: {
      kind: "integer",
      min: Number.MIN_SAFE_INTEGER,
      max: Number.MAX_SAFE_INTEGER,
      default: 2_147_483_647,
      description: "Largest value.",
    },
    default: ARG_DEFAULT,
  },
  boolean: {
    ...ARG_COMMON,
    element: {
      kind: "text",
      format: "filled",
      max: ELEMENT_MAX,
      required: true,
      description: "The fixed element that `true` adds to the command and `false` leaves out.",
    },
    default: {
      kind: "boolean",
      default: false,
      description: "The value of a request that leaves the argument out.",
    },
  },
  name: stringArg("name"),
  "git-ref": stringArg("git-ref"),
  semver: stringArg("semver"),
  sha: stringArg("sha"),
  decimal: stringArg("decimal"),
  text: stringArg("text"),
  path: {
    ...ARG_COMMON,
    root: {
      kind: "text",
      format: "root",
      max: ELEMENT_MAX,
      required: true,
      description: "The directory that values stay in: below `base/`, or an absolute path with " +
        "`agent_writable`.",
    },
    agent_writable: {
      kind: "boolean",
      default: false,
      description: "Says that a sandbox can write below `root`. Such an agent can plant symlinks " +
        "there, and so make the command read and write any file of this user.",
    },
    max_length: lengthField(1024, 1),
    default: ARG_DEFAULT,
  },
} as const satisfies Readonly<Record<string, Section>>;

const ARGV = {
  kind: "list",
  of: {
    kind: "text",
    format: "text",
    max: ELEMENT_MAX,
    description: "One element, passed on exactly as it stands: no shell ever sees it.",
  },
  min: 1,
  max: ARGV_MAX,
  unique: false,
} as const;

/** `verbs.V.lookup`. */
export const LOOKUP = {
  argv: {
    ...ARGV,
    required: true,
    description: "Program and arguments, as in the verb. At least one placeholder tells runs " +
      "apart: `{idempotency_key}`, `{id}` or an argument.",
  },
  done: {
    kind: "list",
    of: { kind: "integer", min: 0, max: 255, description: "An exit code." },
    min: 1,
    max: 256,
    unique: true,
    required: true,
    description: "Exit codes that mean: it happened.",
  },
  not_done: {
    kind: "list",
    of: { kind: "integer", min: 0, max: 255, description: "An exit code." },
    min: 0,
    max: 256,
    unique: true,
    default: [],
    description: "Exit codes that mean: nothing happened, so it starts once more (and has failed " +
      "when that is said of the second attempt too). Every other one is uncertain.",
  },
  timeout_s: {
    kind: "number",
    min: 0.1,
    max: 3600,
    default: 30,
    description: "Seconds that the question may take.",
  },
} as const satisfies Section;

const ENVIRONMENT = {
  kind: "map",
  key: "environment",
  key_name: "NAME",
  of: {
    kind: "text",
    format: "text",
    max: ELEMENT_MAX,
    description: "The value, passed on as it stands.",
  },
  min: 0,
  max: 64,
  default: {},
} as const;

/** `verbs.V`. */
export const VERB = {
  description: {
    kind: "text",
    format: "text",
    max: 1000,
    default: "",
    description: "What it does, for the agent. Shown in the catalogue and to who approves.",
  },
  class: {
    kind: "choice",
    values: CLASS_VALUES,
    required: true,
    description: "`observe` changes nothing, `mutating` changes what can be changed back, " +
      "`destructive` loses something.",
  },
  argv: {
    ...ARGV,
    required: true,
    description: "The program (an absolute path, or a fixed script `base/…`) and its arguments. " +
      "`{name}` as a whole element or as the tail of `--flag={name}` is replaced; `base/…` as a " +
      "whole element or after `=` becomes an absolute path.",
  },
  args: {
    kind: "map",
    key: "id",
    key_name: "ARGUMENT",
    of: {
      kind: "variant",
      variants: ARGUMENT,
      description: "One argument, by its `type`.",
    },
    min: 0,
    max: 64,
    default: {},
    description: "What a request may choose. Each has to be used in `argv`.",
  },
  timeout_s: {
    kind: "number",
    min: 1,
    max: 604_800,
    required: true,
    description: "Seconds until the command is ended. A request may only shorten it.",
  },
  lock: {
    kind: "text",
    format: "id",
    max: 64,
    default_note: "none",
    description: "Name of a lock: verbs with the same one never run at the same time.",
  },
  requires: {
    kind: "list",
    of: { kind: "text", format: "base", max: ELEMENT_MAX, description: "A file in `base/`." },
    min: 0,
    max: 256,
    unique: true,
    default: [],
    description: "Files that have to be byte for byte what a human trusted, or nothing runs.",
  },
  approval: {
    kind: "choice",
    values: ["never", "always", "when-planned"],
    default_note: '`"always"` for `destructive`, else `"never"`',
    description: "Whether a human is asked before it starts. `when-planned`: the request has to " +
      "bring a `plan`, and waits.",
  },
  on_crash: {
    kind: "choice",
    values: ["uncertain", "rerun", "lookup"],
    default: "uncertain",
    description: "What becomes of a run whose end nobody saw: a human decides, it runs once more " +
      "(`observe` or `idempotent` verbs only), or `lookup` is asked.",
  },
  idempotent: {
    kind: "boolean",
    default: false,
    description: "Running it twice does the same as running it once.",
  },
  lookup: {
    kind: "object",
    section: LOOKUP,
    default_note: "none",
    description: "A command that finds out whether an earlier run happened.",
  },
  needs: {
    kind: "list",
    of: { kind: "text", format: "need", max: ELEMENT_MAX, description: "One need." },
    min: 0,
    max: 32,
    unique: true,
    default: [],
    description: 'What the command needs beyond the confinement of the daemon: `"network"`, ' +
      '`"jit"`, `"write:/path"`.',
  },
  cost: {
    kind: "number",
    min: 0,
    max: 1_000_000_000,
    default_note: "none",
    description: "What one run costs, in the unit of `limits.spend`. Not together with " +
      "`{max_spend}`.",
  },
  cwd: {
    kind: "text",
    format: "absolute",
    max: ELEMENT_MAX,
    default: "/",
    description: "Working directory of the command.",
  },
  env: {
    ...ENVIRONMENT,
    description: "Environment of this verb, on top of the policy's.",
  },
  runs_workspace_code: {
    kind: "boolean",
    default: false,
    description: "Says that the command executes what lies in its working tree (`make`, `npm`, " +
      "`git`…). If an agent can write there, its code runs as this user, outside every sandbox.",
  },
  messages: {
    kind: "boolean",
    default: false,
    description:
      "Gives the command a directory, in `CHB_MESSAGES`, through which it can write to " +
      "the agent while it runs, and ask it something.",
  },
  shim: {
    kind: "list",
    of: {
      kind: "text",
      format: "filled",
      max: 200,
      description: "A call, such as `docker compose restart {service}`.",
    },
    min: 0,
    max: 32,
    unique: true,
    default: [],
    description: "Calls of the sandbox's stand-in programs (`inbox/kit/shims/`) that mean this " +
      "verb. `{name}` as a whole word or as the tail of `--flag={name}` is an argument.",
  },
} as const satisfies Section;

/** `agents.A`. */
export const AGENT = {
  verbs: {
    kind: "list",
    of: { kind: "text", format: "filled", max: 64, description: "Name of a verb." },
    min: 0,
    max: 1000,
    unique: true,
    required: true,
    description: "The verbs that this agent may ask for. The built-in ones need no mention.",
  },
  auth: {
    kind: "choice",
    values: ["placement", "signed"],
    default: "placement",
    description: "`placement`: the right to write into the agent's queue is the credential. " +
      "`signed`: every request carries a signature by one of the agent's keys in `keys/`.",
  },
  signature_window_s: {
    kind: "integer",
    min: 1,
    max: 86_400,
    default: 300,
    description: "Seconds that `created_at` of a signed request may lie before or after its " +
      "arrival.",
  },
  scope: {
    kind: "choice",
    values: CLASS_VALUES,
    default: "observe",
    description: "The widest class of verbs that this agent may use.",
  },
  concurrency: {
    kind: "integer",
    min: 1,
    max: 64,
    default_note: "what `limits.concurrency` leaves",
    description: "Most commands of this agent that run at the same time. Can only lower what " +
      "`limits.concurrency` and the slots kept for other agents leave.",
  },
  mount: {
    kind: "choice",
    values: ["role", "single", "synced"],
    default: "role",
    description: "How the sandbox sees the spool: `role`, each directory as a mount of its own; " +
      "`single`, one mount of them all, which needs `agent_uid`; or `synced`, a folder that a " +
      'sync program carries, which needs `"auth": "signed"`.',
  },
  agent_uid: {
    kind: "integer",
    min: 0,
    max: UID_MAX,
    default_note: "none",
    description: "User id that the agent has on the host; for `single` mounts.",
  },
  agent_gid: {
    kind: "integer",
    min: 0,
    max: UID_MAX,
    default_note: "none",
    description: "Group id that may write the queue.",
  },
  uids: {
    kind: "list",
    of: { kind: "integer", min: 0, max: UID_MAX, description: "A user id." },
    min: 0,
    max: 64,
    unique: true,
    default: [],
    description: "Owners of request files accepted besides the owner of the queue.",
  },
} as const satisfies Section;

const RATE = {
  max: {
    kind: "integer",
    min: 1,
    max: 1_000_000,
    required: true,
    description: "Starts within the window.",
  },
  per_s: {
    kind: "number",
    min: 1,
    max: 604_800,
    required: true,
    description: "Length of the window in seconds.",
  },
} as const satisfies Section;

function rateField<const W extends string>(which: W) {
  return {
    kind: "object",
    section: RATE,
    default_note: "no limit",
    description: `Starts of \`${which}\` verbs, for each agent.`,
  } as const;
}

/** `limits.rate`. */
export const RATES = {
  observe: rateField("observe"),
  mutating: rateField("mutating"),
  destructive: rateField("destructive"),
} as const satisfies Section;

/** `limits.spend`. */
export const SPEND = {
  per_request: {
    kind: "number",
    min: 0,
    max: 1_000_000_000,
    required: true,
    description: "Most that one request may spend, and what it is granted when it names nothing.",
  },
  per_day: {
    kind: "number",
    min: 0,
    max: 1_000_000_000,
    required: true,
    description: "Most that an agent may spend in a day.",
  },
} as const satisfies Section;

/** `limits`. */
export const LIMITS = {
  concurrency: {
    kind: "integer",
    min: 1,
    max: 64,
    default: 1,
    description: "Commands that run at the same time, all agents together. A slot is kept for " +
      "every agent that runs nothing, so give at least as many as there are agents.",
  },
  waiting: {
    kind: "integer",
    min: 1,
    max: 1_000_000,
    default: 1000,
    description: "Claimed and waiting requests that an agent may have.",
  },
  backlog: {
    kind: "choice",
    values: ["refuse", "queue"],
    default: "refuse",
    description: "Above `waiting`: answer `busy`, or leave the rest in the queue.",
  },
  answers: {
    kind: "integer",
    min: 1,
    max: 1_000_000,
    default: 600,
    description: "Answers a minute for each agent, refusals, replays and built-in verbs included.",
  },
  rate: {
    kind: "object",
    section: RATES,
    default: {},
    description: "How often commands of a class may start.",
  },
  spend: {
    kind: "object",
    section: SPEND,
    default_note: "none",
    description: "How much may be spent, in a unit of your own.",
  },
  request_bytes: {
    kind: "integer",
    min: 256,
    max: 65_536,
    default: 65_536,
    description: "Bytes of a request file. Can only be lowered.",
  },
  depth: {
    kind: "integer",
    min: 2,
    max: 16,
    default: 16,
    description: "Nested objects and lists in a request. Can only be lowered.",
  },
  keys: {
    kind: "integer",
    min: 16,
    max: 64,
    default: 64,
    description: "Keys of an object in a request. Can only be lowered.",
  },
  string_bytes: {
    kind: "integer",
    min: 128,
    max: 8192,
    default: 8192,
    description: "UTF-8 bytes of a text in a request. Can only be lowered.",
  },
  output_bytes: {
    kind: "integer",
    min: 32_768,
    max: GIB,
    default: 16 * MIB,
    description: "Bytes that are kept of each output stream.",
  },
  max_age_s: {
    kind: "number",
    min: 1,
    max: 2_592_000,
    default: 86_400,
    description:
      "Seconds from a request's arrival after which it does not start any more. Within " +
      "`retention.ledger_days`.",
  },
  approval_wait_s: {
    kind: "number",
    min: 1,
    max: 2_592_000,
    default: 3600,
    description: "Seconds that a request waits for a human.",
  },
  grace_s: {
    kind: "number",
    min: 0.1,
    max: 300,
    default: 10,
    description: "Seconds between asking a command to end and making it end.",
  },
  results_files: {
    kind: "integer",
    min: 100,
    max: 1_000_000,
    default: 20_000,
    description: "Files in an agent's `results/`. The oldest finished ones go first.",
  },
  results_bytes: {
    kind: "integer",
    min: MIB,
    max: 1024 * GIB,
    default: 2 * GIB,
    description: "Bytes in an agent's `results/`, output included.",
  },
} as const satisfies Section;

/** `retention`. */
export const RETENTION = {
  results_days: {
    kind: "number",
    min: 0.01,
    max: 3650,
    default: 7,
    description: "Days that finished results stay. At most `ledger_days`.",
  },
  ledger_days: {
    kind: "number",
    min: 1,
    max: 3650,
    default: 90,
    description: "Days that a key is remembered: within them nothing runs twice.",
  },
  ledger_rows: {
    kind: "integer",
    min: 1000,
    max: 100_000_000,
    default: 1_000_000,
    description: "Requests of each agent that are remembered. Above it the oldest finished ones " +
      "are forgotten before `ledger_days` are over.",
  },
  audit_days: {
    kind: "number",
    min: 1,
    max: 36_500,
    default: 400,
    description: "Days that rotated segments of the audit log stay.",
  },
  audit_segment_days: {
    kind: "number",
    min: 0.01,
    max: 3650,
    default: 30,
    description: "The audit log is rotated when its first record is older than so many days.",
  },
  audit_segment_bytes: {
    kind: "integer",
    min: 65_536,
    max: 1_073_741_824,
    default: 67_108_864,
    description: "The audit log is rotated when it is longer than so many bytes.",
  },
} as const satisfies Section;

/** The whole policy. */
export const POLICY = {
  $schema: {
    kind: "text",
    format: "text",
    max: 1000,
    default_note: "none",
    description: "For your editor; chb does not look at it.",
  },
  agents: {
    kind: "map",
    key: "id",
    key_name: "AGENT",
    of: { kind: "object", section: AGENT, description: "One agent." },
    min: 1,
    max: 128,
    required: true,
    description: "Who may ask, and for what. The name is the directory below `spool/`.",
  },
  verbs: {
    kind: "map",
    key: "id",
    key_name: "VERB",
    of: { kind: "object", section: VERB, description: "One verb." },
    min: 0,
    max: 1000,
    required: true,
    description: "Everything that can be asked for, each with one fixed command.",
  },
  limits: { kind: "object", section: LIMITS, default: {}, description: "Bounds for everybody." },
  retention: {
    kind: "object",
    section: RETENTION,
    default: {},
    description: "How long things are kept.",
  },
  env: {
    ...ENVIRONMENT,
    description: "The whole environment of every command: nothing is inherited.",
  },
  notify: {
    ...ARGV,
    default_note: "none",
    description:
      "A program with fixed arguments that tells a human: that a request waits for their " +
      "word (`approval`), that nobody knows what became of one (`uncertain`), that a kill switch " +
      "went up (`kill`), that an entry is stuck (`stuck`). `{event}` and `{id}` as whole elements " +
      "are replaced: the event, and `AGENT/ID`, the switch or the agent. It gets the policy's " +
      "`env` and ten seconds.",
  },
  redact: {
    kind: "list",
    of: { kind: "text", format: "secret", max: ELEMENT_MAX, description: "A secret." },
    min: 0,
    max: 256,
    unique: true,
    default: [],
    description: "Texts that are masked in everything that an agent can read.",
  },
  audit_gid: {
    kind: "integer",
    min: 0,
    max: 4_294_967_294,
    default_note: "none",
    description: "A group that may read the audit log, for what ships it elsewhere.",
  },
  require_by: {
    kind: "boolean",
    default: false,
    description: "Who approves or denies has to say who they are, with `--by NAME`.",
  },
  on_stop: {
    kind: "choice",
    values: ["leave", "wait", "cancel"],
    default: "leave",
    description: "What becomes of running commands when the daemon is stopped.",
  },
} as const satisfies Section;
