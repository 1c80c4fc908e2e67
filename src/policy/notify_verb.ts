/**
 * The notification of a policy in the form of a verb, so that daemon and shim resolve, check and
 * compare it as they do every other command. No agent can ask for it: it stands in no table.
 *
 * @module
 */
import { parseElement } from "./argv_template.ts";
import type { ArgSpec, Policy, VerbPolicy } from "./policy.ts";

/** What can be told of, as `{event}`. */
export const NOTIFY_EVENTS = Object.freeze(["approval", "uncertain", "kill", "stuck"] as const);

/** Seconds that a notification gets. */
const TIMEOUT_S = 10;

const ARGS: ReadonlyMap<string, ArgSpec> = new Map<string, ArgSpec>([
  ["event", { type: "enum", values: NOTIFY_EVENTS, description: "" }],
  [
    "id",
    { type: "text", max_length: 200, allow_leading_dash: false, description: "" },
  ],
]);

/** The notification, or null when the policy has none. */
export function notifyVerb(policy: Policy): VerbPolicy | null {
  const [program, ...words] = policy.notify ?? [];
  if (program === undefined) return null;
  const argv = words.flatMap((text) => {
    const outcome = parseElement(text, [...ARGS.keys()]);
    return outcome.ok ? [outcome.element] : [];
  });
  // A valid policy has no other; what is not whole is not run.
  if (argv.length !== words.length) return null;
  return {
    name: "notify",
    description: "",
    class: "mutating",
    program,
    argv,
    args: ARGS,
    timeout_s: TIMEOUT_S,
    lock: null,
    requires: [],
    approval: "never",
    on_crash: "uncertain",
    idempotent: false,
    lookup: null,
    needs: [],
    cost: null,
    cwd: "/",
    env: policy.env,
    runs_workspace_code: false,
    takes_max_spend: false,
    messages: false,
    shim: [],
  };
}
