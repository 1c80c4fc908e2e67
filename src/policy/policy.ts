/**
 * What a policy is once it has been parsed: a frozen value that no later code can widen. Parsing
 * lives in `parse_policy.ts`; this file holds the types that gates, shims and human commands read.
 *
 * @module
 */

/** What a verb may do to the host, narrowest first. Also the order of scopes. */
export type Class = "observe" | "mutating" | "destructive";

/** The classes in widening order: index in this list compares scopes. */
export const CLASSES: readonly Class[] = Object.freeze(["observe", "mutating", "destructive"]);

/** An argument after checking: a plain value of the declared type. */
export type ArgValue = string | number | boolean;

/** Checked arguments, defaults filled in; keys sorted, no prototype, frozen. */
export type CheckedArgs = Readonly<Record<string, ArgValue>>;

/** Types whose value is a string of a fixed grammar. */
export type StringArgKind = "name" | "git-ref" | "semver" | "sha" | "decimal" | "text";

/** The declared type of one argument. Lengths count UTF-8 bytes. */
export type ArgSpec =
  & {
    readonly description: string;
    /** Absent means required. */
    readonly default?: ArgValue;
  }
  & (
    | { readonly type: "enum"; readonly values: readonly string[] }
    | { readonly type: "integer"; readonly min: number; readonly max: number }
    | { readonly type: "boolean"; readonly element: string }
    | {
      readonly type: StringArgKind;
      readonly max_length: number;
      readonly allow_leading_dash: boolean;
    }
    | {
      readonly type: "path";
      readonly max_length: number;
      /** Absolute directory, or `base/…` below the root, that the value stays in. */
      readonly root: string;
      readonly agent_writable: boolean;
    }
  );

/** One element of an argument vector after the program. */
export type ArgvElement =
  | { readonly kind: "fixed"; readonly text: string }
  /** `base/…`: becomes `prefix` plus the absolute path below the root. */
  | { readonly kind: "base"; readonly prefix: string; readonly path: string }
  /** `{name}` as a whole element (prefix "") or the tail of `--flag={name}`. */
  | { readonly kind: "placeholder"; readonly prefix: string; readonly name: string };

/** How a downstream is asked what became of a run that may have started. */
export interface Lookup {
  readonly program: string;
  readonly argv: readonly ArgvElement[];
  readonly done: readonly number[];
  readonly not_done: readonly number[];
  readonly timeout_s: number;
}

export interface VerbPolicy {
  readonly name: string;
  readonly description: string;
  readonly class: Class;
  /** Absolute path as written in the policy, or `base/…` made absolute at resolution. */
  readonly program: string;
  readonly argv: readonly ArgvElement[];
  readonly args: ReadonlyMap<string, ArgSpec>;
  /** Seconds, 1 to 604800. */
  readonly timeout_s: number;
  readonly lock: string | null;
  /** `base/…` files whose content is part of the trusted base. */
  readonly requires: readonly string[];
  readonly approval: "never" | "always" | "when-planned";
  readonly on_crash: "uncertain" | "rerun" | "lookup";
  readonly idempotent: boolean;
  readonly lookup: Lookup | null;
  /** "network", "jit", "write:/path". */
  readonly needs: readonly string[];
  readonly cost: number | null;
  /** Absolute directory; default "/". */
  readonly cwd: string;
  /** The policy's `env` with the verb's own on top. */
  readonly env: Readonly<Record<string, string>>;
  readonly runs_workspace_code: boolean;
  /** True when the argument vector has `{max_spend}`. */
  readonly takes_max_spend: boolean;
  /** The command can write to the agent while it runs. */
  readonly messages: boolean;
  /** Calls of sandbox shims that map onto this verb. */
  readonly shim: readonly string[];
}

export interface AgentPolicy {
  readonly name: string;
  readonly verbs: readonly string[];
  readonly auth: "placement" | "signed";
  /** Seconds that `created_at` of a signed request may differ from its arrival. */
  readonly signature_window_s: number;
  readonly scope: Class;
  /** Commands of this agent running at once, or null without a bound of its own. */
  readonly concurrency: number | null;
  readonly mount: "role" | "single" | "synced";
  readonly agent_uid: number | null;
  readonly agent_gid: number | null;
  /** Owners accepted besides the owner of `queue/`. */
  readonly uids: readonly number[];
}

export interface Limits {
  /** Commands running at once, all agents; a slot is kept for each that runs nothing. */
  readonly concurrency: number;
  /** Claimed and waiting requests an agent may have. */
  readonly waiting: number;
  /** What happens above `waiting`: answer `busy`, or leave the rest unclaimed. */
  readonly backlog: "refuse" | "queue";
  /** Answers a minute an agent, replays and built-ins included. */
  readonly answers: number;
  readonly rate: Readonly<Partial<Record<Class, { readonly max: number; readonly per_s: number }>>>;
  readonly spend: { readonly per_request: number; readonly per_day: number } | null;
  /** Bytes of a request file. */
  readonly request_bytes: number;
  readonly depth: number;
  /** Keys an object. */
  readonly keys: number;
  /** UTF-8 bytes a string. */
  readonly string_bytes: number;
  /** Bytes kept of each output stream. */
  readonly output_bytes: number;
  /** Seconds a request may wait from its arrival to its start. */
  readonly max_age_s: number;
  readonly approval_wait_s: number;
  /** Seconds between TERM and KILL. */
  readonly grace_s: number;
  readonly results_files: number;
  readonly results_bytes: number;
}

export interface Retention {
  readonly results_days: number;
  readonly ledger_days: number;
  /** Rows of each agent. */
  readonly ledger_rows: number;
  readonly audit_days: number;
  readonly audit_segment_days: number;
  readonly audit_segment_bytes: number;
}

export interface Policy {
  /** SHA-256 of the exact policy bytes, lower-case hex. */
  readonly digest: string;
  readonly agents: ReadonlyMap<string, AgentPolicy>;
  readonly verbs: ReadonlyMap<string, VerbPolicy>;
  readonly limits: Limits;
  readonly retention: Retention;
  readonly on_stop: "leave" | "wait" | "cancel";
  /** What every command's environment begins with. */
  readonly env: Readonly<Record<string, string>>;
  /** Program and fixed arguments, `{event}` and `{id}` as whole elements; or null. */
  readonly notify: readonly string[] | null;
  readonly redact: readonly string[];
  /** Group that may read the audit log, or null. */
  readonly audit_gid: number | null;
  /** Who approves or denies has to say who they are. */
  readonly require_by: boolean;
}

/** One error of a policy text: where, what, and what would be right. */
export interface PolicyError {
  /** JSON path such as `verbs.restart.timeout_s`, or "" for the whole text. */
  readonly path: string;
  /** Line and column (1-based) where known: always for syntax errors. */
  readonly line?: number;
  readonly column?: number;
  readonly message: string;
  readonly hint: string;
  /** Name of the denial that no policy can lift, or of the rule that needs a key; see `RULES`. */
  readonly rule?: string;
}

/** A finding that does not make a policy invalid; shown by `chb check`. */
export interface PolicyWarning {
  readonly path: string;
  readonly line?: number;
  readonly column?: number;
  /** Stable short name, such as `agent-writable`. */
  readonly rule?: string;
  readonly message: string;
}

/** The outcome of parsing: a frozen policy with warnings, or every error at once. */
export type ParsedPolicy =
  | { readonly ok: true; readonly policy: Policy; readonly warnings: readonly PolicyWarning[] }
  | { readonly ok: false; readonly errors: readonly PolicyError[] };

/** A command resolved for one request: exactly what would be executed. */
export interface ResolvedCommand {
  /** Absolute path. */
  readonly program: string;
  /** Arguments after the program. */
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

/** What identifies a program or base file on disk; compared before every start. */
export interface FileIdentity {
  readonly path: string;
  readonly dev: string;
  readonly ino: string;
  readonly size: number;
  /** Milliseconds since the epoch; a program replaced in place changes it. */
  readonly mtime_ms: number;
}
