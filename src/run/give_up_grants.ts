/**
 * What a shim gives up before it takes its first order. It starts programs, so it must not be able
 * to read what agents wrote, nor the keys, nor the ledger.
 *
 * 1. Grants are given up exactly as they were granted. Revoking a path below a grant would take
 *    the whole grant, and revoking one that was never granted does nothing.
 * 2. What must stay, `state/runs`, `state/policies` and the kill switches, is granted by name and
 *    so survives the end of `./state`.
 * 3. The result is looked at, never assumed: a shim that still holds one of these refuses to work.
 *
 * @module
 */
import { READ_PATHS, SELF, WRITE_PATHS } from "../permissions.ts";

/** Read grants that a shim keeps. */
const KEPT_READ = ["./bin", "./base", "./state/runs", "./state/policies", "./state/KILL"];
/** Write grants that a shim keeps. */
const KEPT_WRITE = ["./state/runs"];

/** Paths that stand for what a shim must not reach, whatever the grants are called. */
const PROBES = ["./state/ledger.db", "./state/audit/audit.jsonl", "./state/control"];

const NEEDED: readonly Deno.PermissionDescriptor[] = [
  { name: "read", path: "./state/runs" },
  { name: "read", path: "./state/policies" },
  { name: "read", path: "./state/KILL" },
  { name: "write", path: "./state/runs" },
];

/** What a shim gives up, as it was granted; `chb permissions` shows the same. */
export function shimGivesUp(): Deno.PermissionDescriptor[] {
  return [
    ...READ_PATHS.filter((path) => !KEPT_READ.includes(path))
      .map((path) => ({ name: "read", path } as const)),
    ...WRITE_PATHS.filter((path) => !KEPT_WRITE.includes(path))
      .map((path) => ({ name: "write", path } as const)),
    { name: "run", command: SELF },
  ];
}

function word(descriptor: Deno.PermissionDescriptor): string {
  if (descriptor.name === "read" || descriptor.name === "write") {
    return `${descriptor.name}:${descriptor.path ?? "*"}`;
  }
  if (descriptor.name === "run") return `run:${descriptor.command ?? "*"}`;
  return descriptor.name;
}

function isGranted(descriptor: Deno.PermissionDescriptor): boolean {
  return Deno.permissions.querySync(descriptor).state === "granted";
}

/**
 * Gives up the shim's surplus grants, for good.
 *
 * @returns what is wrong afterwards: grants still held as `still:…`, and grants that a shim cannot
 * work without as `missing:…`; empty when all is as it must be
 */
export function giveUpGrants(): string[] {
  const surplus = shimGivesUp();
  for (const descriptor of surplus) Deno.permissions.revokeSync(descriptor);
  const forbidden: Deno.PermissionDescriptor[] = [
    ...surplus,
    ...PROBES.flatMap((path) => [
      { name: "read", path } as const,
      { name: "write", path } as const,
    ]),
    { name: "read" },
    { name: "write" },
    { name: "run" },
    { name: "net" },
    { name: "ffi" },
    { name: "env" },
    { name: "sys" },
  ];
  return [
    ...forbidden.filter(isGranted).map((descriptor) => `still:${word(descriptor)}`),
    ...NEEDED.filter((descriptor) => !isGranted(descriptor))
      .map((descriptor) => `missing:${word(descriptor)}`),
  ];
}
