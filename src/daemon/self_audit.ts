/**
 * What the process may do, asked of the runtime itself at start. A program that could do anything
 * would make every other promise worthless, so unbounded permissions are a refusal to start.
 *
 * Two facts shape the probes. Permissions that were not given are reported as `prompt` and not as
 * `denied`, even when no prompt can ever come. And a grant for `/` does not show in the query
 * without a path, so both are asked.
 *
 * @module
 */
import { KILL_PATHS } from "../permissions.ts";
import type { Finding } from "../spool/types.ts";

const PROBES: readonly { descriptor: Deno.PermissionDescriptor; what: string }[] = Object.freeze([
  { descriptor: { name: "run" }, what: "run any program" },
  { descriptor: { name: "read" }, what: "read any file" },
  { descriptor: { name: "read", path: "/" }, what: "read any file" },
  { descriptor: { name: "write" }, what: "write any file" },
  { descriptor: { name: "write", path: "/" }, what: "write any file" },
  { descriptor: { name: "net" }, what: "use the network" },
  { descriptor: { name: "ffi" }, what: "load native code" },
  { descriptor: { name: "env" }, what: "read the environment" },
  { descriptor: { name: "sys" }, what: "read system information" },
]);

/** Every unbounded permission that this process holds, as findings; empty is what is wanted. */
export function selfAudit(): Finding[] {
  const seen = new Set<string>();
  const findings: Finding[] = [];
  for (const { descriptor, what } of PROBES) {
    const status = Deno.permissions.querySync(descriptor);
    const held = status.state === "granted" || (status as { partial?: boolean }).partial === true;
    if (!held || seen.has(what)) continue;
    seen.add(what);
    findings.push({
      level: "error",
      check: "unbounded-permission",
      path: "bin/chb",
      message: `This process may ${what}`,
      mend: "Start it as ./bin/chb, the installed executable, without flags of your own",
    });
  }
  return findings;
}

/**
 * Gives up running the verbs' programs: what parses a hostile request must not be able to start
 * what a request is about. A grant is dropped only by naming exactly what was granted. The kill
 * helper stays, even where a verb uses it: the daemon ends what a dead shim left behind.
 *
 * @param programs what was granted to run besides `./bin/chb`
 * @returns those that are still granted afterwards; anything but none is a refusal to start
 */
export function giveUpPrograms(programs: readonly string[]): string[] {
  const surplus = programs.filter((command) => !KILL_PATHS.includes(command));
  for (const command of surplus) Deno.permissions.revokeSync({ name: "run", command });
  return surplus.filter((command) =>
    Deno.permissions.querySync({ name: "run", command }).state === "granted"
  );
}
