/**
 * The four sets of permissions that a person wants to compare: what is compiled in, what the daemon
 * keeps of it, what a shim keeps, and what the policy needs. Each permission has the one line that
 * says what it is for.
 *
 * A process cannot list what it was granted, only ask about one thing at a time. So everything that
 * the program could have been granted is asked for by name: its own paths, the programs that it was
 * told of, those of the policy, the kill helpers, and the agents' kill switches. What a process could
 * hold beyond that is found by the probes for unbounded permissions.
 *
 * @module
 */
import { grants, KILL_PATHS, killPath, READ_PATHS, SELF, WRITE_PATHS } from "../permissions.ts";
import { shimGivesUp } from "../run/give_up_grants.ts";

/** One permission. */
export interface Permission {
  readonly kind: "read" | "write" | "run";
  /** As it was granted: absolute, or `./…` below the root. */
  readonly path: string;
}

/** A permission and who has it. */
export interface PermissionRow extends Permission {
  readonly compiled: boolean;
  readonly daemon: boolean;
  readonly shim: boolean;
  readonly needed: boolean;
  /** What it is for, in a few words. */
  readonly why: string;
}

/** What is asked for. */
export interface PermissionQuery {
  /** Programs that this process was told that it may run: absolute, or `./base/…`. */
  readonly granted: readonly string[];
  /** Programs of the policy: absolute, or `base/…`. */
  readonly programs: readonly string[];
  readonly agents: readonly string[];
}

/** True when this process holds a permission. */
export type Holds = (permission: Permission) => boolean;

/** Asks the runtime; paths are those of the working directory. */
export function holds({ kind, path }: Permission): boolean {
  const descriptor = kind === "run" ? { name: kind, command: path } : { name: kind, path };
  return Deno.permissions.querySync(descriptor as Deno.PermissionDescriptor).state === "granted";
}

/**
 * The same for what lies below `./state` and must stay when that is given up, as a shim does: a
 * query cannot tell a grant of its own from one that is covered. So `./state` is given up first, for
 * the rest of this process. A process without bounds has nothing that it could give up.
 */
export function holdsAlone(permission: Permission): boolean {
  if (Deno.permissions.querySync({ name: "read" }).state !== "granted") {
    Deno.permissions.revokeSync({ name: "read", path: "./state" });
  }
  return holds(permission);
}

const WHY: Readonly<Record<string, string>> = Object.freeze({
  "read ./bin": "the executable, whose digest is part of the trust",
  "read ./keys": "keys of agents, to check signatures",
  "read ./base": "host-only files that verbs use",
  "read ./bridge.jsonc": "the policy as a human edits it: check, trust, doctor",
  "read ./spool": "requests, and what was published",
  "read ./work": "claimed requests",
  "read ./state": "ledger, audit log, control files",
  "read ./state/runs": "orders and output of runs",
  "read ./state/policies": "trusted policies, byte for byte",
  "read ./state/KILL": "the kill switch",
  "write ./spool": "claims by rename, results, inbox",
  "write ./work": "claims, staging, quarantine",
  "write ./state": "ledger, audit log, kill switch",
  "write ./state/runs": "orders, raw output, exit records",
  [`run ${SELF}`]: "the daemon starts its shims",
});

const SWITCH_OF_AGENT = "./state/KILL.";

/** What a permission is for. */
export function permissionWhy({ kind, path }: Permission): string {
  const known = WHY[`${kind} ${path}`];
  if (known !== undefined) return known;
  if (path.startsWith(SWITCH_OF_AGENT)) return "the kill switch of one agent";
  if (KILL_PATHS.includes(path)) {
    return kind === "run" ? "signals process groups, nothing else" : "to see that it is fit to run";
  }
  return kind === "run" ? "a program of a verb" : "to see that it is fit to run, and unchanged";
}

function key({ kind, path }: Permission): string {
  return `${kind} ${path}`;
}

function permissions(set: ReturnType<typeof grants>): Permission[] {
  return (["read", "write", "run"] as const).flatMap((kind) =>
    set[kind].map((path) => ({ kind, path }))
  );
}

/**
 * Every permission that is compiled in or needed, with who has it.
 *
 * This process cannot read `./state` any more afterwards: see `holdsAlone`.
 *
 * @param holding asks this process; tests hand in their own
 * @param alone the same for the kill switches of agents
 * @throws {RangeError} when the policy needs a path that can not be granted
 */
export function permissionSets(
  query: PermissionQuery,
  holding: Holds = holds,
  alone: Holds = holdsAlone,
): PermissionRow[] {
  const kill = killPath((path) => holding({ kind: "run", path }));
  const needed = permissions(grants(query.programs, kill, query.agents));
  const asked: Permission[] = [
    ...READ_PATHS.map((path) => ({ kind: "read", path } as const)),
    ...WRITE_PATHS.map((path) => ({ kind: "write", path } as const)),
    ...[SELF, ...query.granted, ...KILL_PATHS].map((path) => ({ kind: "run", path } as const)),
    ...[...query.granted, ...KILL_PATHS].map((path) => ({ kind: "read", path } as const)),
    ...needed,
  ];
  const shimDrops = new Set(
    shimGivesUp().flatMap((d) =>
      d.name === "run"
        ? [`run ${d.command ?? ""}`]
        : d.name === "read" || d.name === "write"
        ? [`${d.name} ${d.path ?? ""}`]
        : []
    ),
  );
  const programs = new Set(query.granted.filter((path) => !KILL_PATHS.includes(path)));
  const wanted = new Set(needed.map(key));
  const rows = new Map<string, PermissionRow>();
  const isSwitch = ({ path }: Permission) => path.startsWith(SWITCH_OF_AGENT);
  // The switches come last: asking about them ends the reading of `./state`.
  const inOrder = [...asked.filter((one) => !isSwitch(one)), ...asked.filter(isSwitch)];
  for (const one of inOrder) {
    const name = key(one);
    if (rows.has(name)) continue;
    const compiled = isSwitch(one) ? alone(one) : holding(one);
    if (!compiled && !wanted.has(name)) continue;
    const { kind, path } = one;
    rows.set(name, {
      kind,
      path,
      compiled,
      daemon: compiled && !(kind === "run" && programs.has(path)),
      shim: compiled && !shimDrops.has(name),
      needed: wanted.has(name),
      why: permissionWhy(one),
    });
  }
  const order = ["read", "write", "run"];
  const rank = ({ kind, path }: Permission) =>
    `${order.indexOf(kind)}${path.startsWith("./") ? 0 : 1}${path}`;
  return [...rows.values()].sort((a, b) => rank(a) < rank(b) ? -1 : 1);
}
