/**
 * `chb check`: says whether a policy is valid, and everything that is wrong with it at once.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { hostFindings, notGranted } from "../daemon/host_findings.ts";
import { printable } from "../names.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import type { ParsedPolicy } from "../policy/policy.ts";
import type { Finding } from "../spool/types.ts";
import { type Command, type Io, MAX_POLICY_BYTES, table } from "./command.ts";
import { holdsAlone } from "./permission_sets.ts";

/** Reads the policy that a human edits, or standard input for `-`. */
export function readPolicyText(name: string | undefined, io: Io): Uint8Array {
  if (name === "-") return io.stdin(MAX_POLICY_BYTES);
  if (name !== undefined && name !== "bridge.jsonc") {
    throw new UsageError(
      "Only ./bridge.jsonc can be read; hand another file in: chb check - < FILE",
    );
  }
  try {
    const bytes = Deno.readFileSync("bridge.jsonc");
    if (bytes.length > MAX_POLICY_BYTES) {
      throw new ExitError(EXIT.config, `bridge.jsonc is larger than ${MAX_POLICY_BYTES} bytes`);
    }
    return bytes;
  } catch (error) {
    if (errorCode(error) === "ENOENT") {
      throw new ExitError(
        EXIT.config,
        "no bridge.jsonc here: run it in the root that the init script made",
      );
    }
    throw error;
  }
}

/** Writes every error of a policy in lines that a person and an editor can follow. */
export function printPolicyErrors(
  parsed: Extract<ParsedPolicy, { ok: false }>,
  io: Io,
): void {
  for (const e of parsed.errors) {
    const where = e.line === undefined ? "" : `${e.line}:${e.column ?? 1}: `;
    const path = e.path === "" ? "" : `${printable(e.path)}: `;
    io.err(
      `bridge.jsonc:${where || " "}${path}${e.message}${
        e.rule === undefined ? "" : ` [${e.rule}]`
      }\n    ${e.hint}\n`,
    );
  }
  const n = parsed.errors.length;
  io.err(`${n} error${n === 1 ? "" : "s"}; the policy is not valid\n`);
}

/** Writes findings about programs and places, each with what mends it. */
export function printFindings(findings: readonly Finding[], io: Io): void {
  for (const [i, f] of findings.entries()) {
    io.err(`${f.level}: ${printable(f.path)}: ${f.message} [${f.check}]\n`);
    // One command that mends several in a row is said once, after them.
    if (f.mend !== "" && f.mend !== findings[i + 1]?.mend) io.err(`    ${f.mend}\n`);
  }
}

/**
 * Kill switches of agents that the shims could not see: warnings, since the daemon sees them. This
 * process cannot read `./state` afterwards.
 */
function unseenSwitches(agents: Iterable<string>): Finding[] {
  return [...agents].map((agent) => `./state/KILL.${agent}`)
    .filter((path) => !holdsAlone({ kind: "read", path }))
    .map((path) => ({ ...notGranted(path), level: "warning" }));
}

export const check: Command = {
  name: "check",
  summary: "Check a policy and say everything that is wrong with it",
  usage: "[-]",
  details: [
    "Reads ./bridge.jsonc, or standard input for -. Changes nothing.",
    "Exits 0 when the policy is valid and its programs can be run, else 78.",
  ],
  example: "./bin/chb check",
  flags: [],
  options: [],
  json: true,
  words: 1,
  run(args, io) {
    const parsed = parsePolicy(readPolicyText(args.positional[0], io));
    if (!parsed.ok) {
      if (args.json) io.out(JSON.stringify({ ok: false, errors: parsed.errors }) + "\n");
      else printPolicyErrors(parsed, io);
      return EXIT.config;
    }
    const { policy } = parsed;
    const warnings = parsed.warnings;
    const findings = [...hostFindings(policy), ...unseenSwitches(policy.agents.keys())];
    const ok = findings.every((f) => f.level !== "error");
    if (args.json) {
      io.out(
        JSON.stringify({ ok, sha256: policy.digest, warnings, findings }) + "\n",
      );
      return ok ? EXIT.ok : EXIT.config;
    }
    const rows = [...policy.verbs.values()].map((v) => [
      `  ${v.name}`,
      v.class,
      `${v.timeout_s} s`,
      v.approval === "never" ? "" : `approval ${v.approval}`,
      v.lock === null ? "" : `lock ${v.lock}`,
    ]);
    io.out(
      `Policy ${policy.digest.slice(0, 12)}: ${policy.agents.size} agent(s), ` +
        `${policy.verbs.size} verb(s)\n`,
    );
    if (rows.length > 0) io.out(table(rows) + "\n");
    for (const w of warnings) io.out(`warning: ${printable(w.path)}: ${w.message}\n`);
    printFindings(findings, io);
    io.out(ok ? "ok\n" : "");
    return ok ? EXIT.ok : EXIT.config;
  },
};
