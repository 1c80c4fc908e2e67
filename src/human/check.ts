/**
 * `chb check`: says whether a policy is valid, and everything that is wrong with it at once.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import type { ParsedPolicy, Policy } from "../policy/policy.ts";
import { policyPrograms } from "../policy/programs.ts";
import { checkProgram } from "../spool/layout.ts";
import type { Finding } from "../spool/types.ts";
import { type Command, type Io, MAX_POLICY_BYTES, table } from "./command.ts";

/** Reads the policy that a human edits, or standard input for `-`. */
export function readPolicyText(name: string | undefined, io: Io): Uint8Array {
  if (name === "-") return io.stdin(MAX_POLICY_BYTES);
  if (name !== undefined && name !== "bridge.jsonc") {
    throw new UsageError("Only ./bridge.jsonc can be read; hand another file in: chb check - < FILE");
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
        "no bridge.jsonc here: run it in the bridge's root, or make one with chb init",
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
    io.err(`bridge.jsonc:${where || " "}${path}${e.message}\n    ${e.hint}\n`);
  }
  const n = parsed.errors.length;
  io.err(`${n} error${n === 1 ? "" : "s"}; the policy is not valid\n`);
}

/** Programs of the policy that are not fit to be run, and those that this binary cannot run. */
export function programFindings(policy: Policy): Finding[] {
  const findings: Finding[] = [];
  for (const program of policyPrograms(policy)) {
    const command = program.startsWith("base/") ? `./${program}` : program;
    if (Deno.permissions.querySync({ name: "run", command }).state !== "granted") {
      findings.push({
        level: "error",
        check: "program-not-granted",
        path: program,
        message: "This executable was not built to run it",
        mend: "npx -y deno@2.9.6 task compile --policy bridge.jsonc",
      });
      continue;
    }
    findings.push(...checkProgram(program));
  }
  return findings;
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
  run(args, io) {
    const parsed = parsePolicy(readPolicyText(args.positional[0], io));
    if (!parsed.ok) {
      if (args.json) io.out(JSON.stringify({ ok: false, errors: parsed.errors }) + "\n");
      else printPolicyErrors(parsed, io);
      return EXIT.config;
    }
    const { policy, warnings } = parsed;
    const programs = programFindings(policy);
    const ok = programs.every((f) => f.level !== "error");
    if (args.json) {
      io.out(
        JSON.stringify({ ok, sha256: policy.digest, warnings, findings: programs }) + "\n",
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
    io.out(`Policy ${policy.digest.slice(0, 12)}: ${policy.agents.size} agent(s), ` +
      `${policy.verbs.size} verb(s)\n`);
    if (rows.length > 0) io.out(table(rows) + "\n");
    for (const w of warnings) io.out(`warning: ${printable(w.path)}: ${w.message}\n`);
    for (const f of programs) {
      io.err(`${f.level}: ${printable(f.path)}: ${f.message}\n`);
      if (f.mend !== "") io.err(`    ${f.mend}\n`);
    }
    io.out(ok ? "ok\n" : "");
    return ok ? EXIT.ok : EXIT.config;
  },
};
