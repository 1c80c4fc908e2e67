/**
 * `chb permissions`: four sets side by side, so that a person sees at once what the executable could
 * do, what the two processes keep of it, and what the policy asks for.
 *
 * @module
 */
import { BUILD } from "#build";
import { EXIT } from "../codes.ts";
import { selfAudit } from "../daemon/self_audit.ts";
import { notGranted } from "../daemon/host_findings.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import { policyPrograms } from "../policy/programs.ts";
import { printFindings, printPolicyErrors, readPolicyText } from "./check.ts";
import { type Command, table } from "./command.ts";
import { type PermissionRow, permissionSets } from "./permission_sets.ts";

/** One set, by kind. */
function setOf(rows: readonly PermissionRow[], has: (row: PermissionRow) => boolean) {
  const paths = (kind: PermissionRow["kind"]) =>
    rows.filter((row) => row.kind === kind && has(row)).map(({ path }) => path);
  return { read: paths("read"), write: paths("write"), run: paths("run") };
}

export const permissions: Command = {
  name: "permissions",
  summary: "Show what the program may do, and what the policy needs of it",
  usage: "[-] [--why]",
  details: [
    "Four columns: compiled in; what the daemon keeps; what a shim keeps; what ./bridge.jsonc, or a",
    "policy on standard input for -, needs. Network, environment, system information and native",
    "code are in none of them.",
    "--why   what each permission is for, instead of the columns",
    "Exits 1 when the policy needs what is not compiled in, or the process has no bounds.",
  ],
  example: "./bin/chb permissions",
  flags: ["why"],
  options: [],
  json: true,
  words: 1,
  run(args, io, granted) {
    const parsed = parsePolicy(readPolicyText(args.positional[0], io));
    if (!parsed.ok) {
      printPolicyErrors(parsed, io);
      return EXIT.config;
    }
    const { policy } = parsed;
    const programs = policyPrograms(policy);
    const rows = permissionSets({ granted, programs, agents: [...policy.agents.keys()] });
    const missing = rows.filter((row) => row.needed && !row.compiled);
    // A program that may not be run may not be looked at either: one finding says both.
    const absent = new Set(missing.map(({ path }) => path.replace(/^\.\/base\//, "base/")));
    const findings = [...selfAudit(), ...[...absent].map(notGranted)];
    const ok = missing.length === 0 && findings.length === 0;
    if (args.json) {
      io.out(
        JSON.stringify({
          ok,
          source: BUILD.source,
          compiled: setOf(rows, (row) => row.compiled),
          daemon: setOf(rows, (row) => row.daemon),
          shim: setOf(rows, (row) => row.shim),
          policy: setOf(rows, (row) => row.needed),
          findings,
        }) + "\n",
      );
      return ok ? EXIT.ok : EXIT.finding;
    }
    const mark = (has: boolean) => has ? "yes" : "-";
    io.out(
      table(
        args.flags["why"] === true ? rows.map((row) => [row.kind, row.path, row.why]) : [
          ["", "", "compiled", "daemon", "shim", "policy"],
          ...rows.map((row) => [
            row.kind,
            row.path,
            mark(row.compiled),
            mark(row.daemon),
            mark(row.shim),
            mark(row.needed),
          ]),
        ],
      ) + "\n",
    );
    printFindings(findings, io);
    return ok ? EXIT.ok : EXIT.finding;
  },
};
