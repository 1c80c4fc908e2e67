/**
 * A policy that uses every key, and means to change it in one place, for the tests of the policy
 * room.
 *
 * @module
 */
import { parsePolicy } from "../src/policy/parse_policy.ts";
import type { ParsedPolicy, Policy, PolicyError, VerbPolicy } from "../src/policy/policy.ts";

type Path = readonly (string | number)[];

/** A fresh copy of the sample. Two agents, one verb for each way to write one. */
export function sample(): Record<string, unknown> {
  return {
    $schema: "./bridge.schema.json",
    agents: {
      main: {
        verbs: ["ps", "restart", "deploy", "note"],
        auth: "signed",
        signature_window_s: 600,
        scope: "destructive",
        concurrency: 2,
        mount: "role",
        agent_gid: 1000,
        uids: [1000, 1001],
      },
      other: { verbs: ["ps"], mount: "single", agent_uid: 2000 },
    },
    verbs: {
      ps: {
        class: "observe",
        argv: ["/usr/bin/docker-compose", "-f", "base/compose.yaml", "ps", "{all}"],
        args: { all: { type: "boolean", element: "--all" } },
        timeout_s: 10,
        requires: ["base/compose.yaml"],
        on_crash: "rerun",
        shim: ["docker ps"],
      },
      restart: {
        description: "Restart one service.",
        class: "mutating",
        argv: ["/usr/bin/docker-compose", "-f", "base/compose.yaml", "restart", "{service}"],
        args: {
          service: { type: "enum", values: ["web", "db"], default: "web", description: "Which." },
        },
        timeout_s: 120,
        lock: "stack",
        requires: ["base/compose.yaml"],
        approval: "never",
        on_crash: "lookup",
        lookup: {
          argv: ["base/was-restarted", "{idempotency_key}", "{service}"],
          done: [0],
          not_done: [1],
          timeout_s: 5,
        },
        cost: 0.5,
        cwd: "/srv/app",
        env: { COMPOSE_DISABLE_ENV_FILE: "1" },
        needs: ["network", "write:/srv/app/data"],
      },
      deploy: {
        class: "destructive",
        argv: [
          "base/deploy",
          "--version={version}",
          "--ref={ref}",
          "--commit={commit}",
          "--budget={max_spend}",
          "--price={price}",
          "--file={file}",
          "--work={work}",
          "--count={count}",
          "{id}",
        ],
        args: {
          version: { type: "semver" },
          ref: { type: "git-ref" },
          commit: { type: "sha" },
          price: { type: "decimal" },
          file: { type: "path", root: "base/conf" },
          work: { type: "path", root: "/srv/work", agent_writable: true },
          count: { type: "integer", min: 1, max: 9, default: 1 },
        },
        timeout_s: 3600,
        requires: ["base/deploy"],
        runs_workspace_code: true,
        idempotent: true,
      },
      note: {
        class: "mutating",
        argv: ["/usr/bin/logger", "--tag={tag}", "--", "{text}"],
        args: { tag: { type: "name", max_length: 20 }, text: { type: "text" } },
        timeout_s: 5,
      },
    },
    limits: {
      concurrency: 2,
      waiting: 50,
      backlog: "queue",
      answers: 100,
      rate: { mutating: { max: 30, per_s: 60 } },
      spend: { per_request: 5, per_day: 20 },
      grace_s: 0.5,
    },
    retention: { results_days: 3, ledger_days: 30 },
    env: { PATH: "/usr/bin:/bin", HOME: "/home/me" },
    notify: ["/usr/bin/notify-send", "chb", "{event}", "{id}"],
    redact: ["hunter2hunter2"],
    on_stop: "wait",
  };
}

/** Puts `value` at a path below `target`; undefined removes what is there. */
export function put(target: unknown, path: Path, value: unknown): void {
  const [head, ...rest] = path;
  if (head === undefined || typeof target !== "object" || target === null) {
    throw new TypeError(`Cannot put a value at ${path}`);
  }
  const holder = target as Record<string | number, unknown>;
  if (rest.length > 0) return put(holder[head], rest, value);
  if (value === undefined) delete holder[head];
  else holder[head] = value;
}

/** The sample, with values put in place. */
export function changed(...changes: readonly (readonly [Path, unknown])[]): unknown {
  const policy = sample();
  for (const [path, value] of changes) put(policy, path, value);
  return policy;
}

export function parseText(text: string): ParsedPolicy {
  return parsePolicy(new TextEncoder().encode(text));
}

export function parseObject(policy: unknown): ParsedPolicy {
  return parseText(JSON.stringify(policy, null, 2));
}

/** The errors of a policy; none when it is valid. */
export function errorsOf(policy: unknown): readonly PolicyError[] {
  const parsed = parseObject(policy);
  return parsed.ok ? [] : parsed.errors;
}

/** The policy of an object that has to be valid. */
export function valid(policy: unknown): Policy {
  const parsed = parseObject(policy);
  if (!parsed.ok) throw new Error(`Not valid: ${JSON.stringify(parsed.errors, null, 2)}`);
  return parsed.policy;
}

/** One verb in a policy of its own. What the verb needs of the policy is there. */
export function verbPolicy(verb: unknown): unknown {
  return {
    agents: { main: { verbs: ["v"], scope: "destructive" } },
    verbs: { v: verb },
    limits: { spend: { per_request: 5, per_day: 20 } },
  };
}

/** A valid verb with this argument vector, and these arguments. */
export function verbOf(argv: readonly string[], args: unknown = {}, more: object = {}): VerbPolicy {
  const policy = valid(
    verbPolicy({ class: "observe", timeout_s: 5, argv, args, ...more }),
  );
  const verb = policy.verbs.get("v");
  if (verb === undefined) throw new Error("No verb");
  return verb;
}

/** The errors of a verb with this argument vector. */
export function argvErrors(
  argv: readonly string[],
  args: unknown = {},
  more: object = {},
): readonly PolicyError[] {
  return errorsOf(verbPolicy({ class: "observe", timeout_s: 5, argv, args, ...more }));
}
