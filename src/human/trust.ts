/**
 * `chb trust`: a human reads what the policy says now and makes it the one in force.
 *
 * The exact bytes that were shown are stored and named by their digest; daemon and shims load only
 * from there. Programs and required files are recorded as they are at this moment, and a later
 * difference stops the verbs that use them.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError } from "../errors.ts";
import { printable } from "../names.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import { policyPrograms } from "../policy/programs.ts";
import type { Policy } from "../policy/policy.ts";
import { fileIdentity } from "../spool/layout.ts";
import { look } from "../spool/look.ts";
import { hostFindings } from "../daemon/host_findings.ts";
import { policyPath, sha256 } from "../daemon/trust_store.ts";
import { printFindings, printPolicyErrors, readPolicyText } from "./check.ts";
import type { Command, Io } from "./command.ts";
import { control } from "./control_client.ts";
import {
  type Before,
  checkCompose,
  type ComposeCheck,
  composeLines,
  fileLines,
  hashBase,
  type Hashes,
  notPlain,
  readBefore,
  reviewLines,
} from "./trust_review.ts";

/** Digests of every file that the verbs require. */
function requiredFiles(policy: Policy): [string, string][] {
  const out = new Map<string, string>();
  for (const verb of policy.verbs.values()) {
    for (const path of verb.requires) {
      if (out.has(path)) continue;
      const seen = look(path);
      if (seen?.kind !== "file") {
        throw new ExitError(
          EXIT.config,
          `verb "${verb.name}" requires ${path}: no plain file there; put it there, or take it out of requires`,
        );
      }
      out.set(path, sha256(Deno.readFileSync(path)));
    }
  }
  return [...out].sort(([a], [b]) => a < b ? -1 : 1);
}

/** Stores the policy's bytes under their digest, whole or not at all. */
function storePolicy(digest: string, bytes: Uint8Array): void {
  const path = policyPath(digest);
  if (look(path)?.kind === "file" && sha256(Deno.readFileSync(path)) === digest) return;
  const temporary = `${path}.${crypto.randomUUID()}.tmp`;
  const file = Deno.openSync(temporary, { write: true, createNew: true, mode: 0o600 });
  try {
    let written = 0;
    while (written < bytes.length) written += file.writeSync(bytes.subarray(written));
    file.syncSync();
  } finally {
    file.close();
  }
  Deno.renameSync(temporary, path);
  const directory = Deno.openSync("state/policies", { read: true });
  try {
    directory.syncSync();
  } finally {
    directory.close();
  }
}

/** Everything that a person is to look at. */
function show(
  policy: Policy,
  before: Before,
  hashes: Hashes,
  compose: readonly ComposeCheck[],
  io: Io,
): void {
  io.out(`Policy ${policy.digest}\n`);
  if (before.policy !== null) {
    io.out(`in force ${before.policy.digest}; + new, - gone, ~ changed\n`);
  }
  const lines = [
    ...reviewLines(before, policy),
    ...fileLines(before.hashes, hashes, before.policy === null),
    ...composeLines(compose),
  ];
  for (const line of lines) io.out(`${printable(line, 4000)}\n`);
}

export const trust: Command = {
  name: "trust",
  summary: "Show the policy and make it the one in force",
  usage: "[--yes] [--by NAME]",
  details: [
    "Shows what differs from the policy in force, verb by verb and limit by limit, which files of",
    "base/, programs and bin/chb are others than at the last time, and what the engines make of",
    "compose files in base/; then asks; --yes answers. A running daemon takes it over",
    "within a second; only programs that are new to it wait for its next start. Until the",
    "first time, every verb is refused.",
    "--by NAME   who says so, for the audit log",
  ],
  example: "./bin/chb trust",
  flags: ["yes"],
  options: ["by"],
  json: true,
  async run(args, io) {
    const bytes = readPolicyText(undefined, io);
    const parsed = parsePolicy(bytes);
    if (!parsed.ok) {
      printPolicyErrors(parsed, io);
      return EXIT.config;
    }
    const { policy } = parsed;
    const warnings = parsed.warnings;
    const found = hostFindings(policy);
    const findings = found.filter((f) => f.level === "error");
    if (findings.length > 0) {
      printFindings(findings, io);
      return EXIT.config;
    }
    const programs = policyPrograms(policy).map((path) => fileIdentity(path));
    const requires = requiredFiles(policy);
    const before = readBefore();
    const hashes = hashBase(programs.map((program) => program.path));
    const odd = notPlain(hashes);
    if (odd.length > 0) {
      throw new ExitError(
        EXIT.config,
        `${odd.map((path) => printable(path)).join(", ")}: no plain file, and base/ holds only ` +
          "files and directories: put a copy of what it leads to there, or remove it",
      );
    }
    const compose = await checkCompose(policy, Deno.cwd());
    const denied = compose.some((one) => one.denied.length > 0);
    if (!args.json) {
      show(policy, before, hashes, compose, io);
      for (const w of warnings) io.out(`warning: ${printable(w.path)}: ${w.message}\n`);
      printFindings(found, io);
    }
    if (denied) {
      if (args.json) io.out(JSON.stringify({ ok: false, policy: policy.digest, compose }) + "\n");
      throw new ExitError(
        EXIT.config,
        "a compose file hands over the host; nothing was changed: mend the file, then trust again",
      );
    }
    if (args.flags["yes"] !== true) {
      const answer = io.ask("Trust this policy? Type yes: ");
      if (answer === null) {
        throw new ExitError(EXIT.usage, "no terminal to ask at: read it, then use --yes");
      }
      if (answer.trim() !== "yes") {
        throw new ExitError(EXIT.refused, "not trusted; nothing was changed");
      }
    }
    storePolicy(policy.digest, bytes);
    let bin = "unknown";
    try {
      bin = sha256(Deno.readFileSync("bin/chb"));
    } catch (error) {
      if (errorCode(error) !== "ENOENT") throw error;
    }
    const { data } = await control({
      chb: 1,
      command: "trust",
      by: printable(args.options["by"] ?? "", 100),
      policy: policy.digest,
      programs,
      requires,
      bin_sha256: bin,
      hashes: [...hashes],
    });
    const waiting = (data?.["waiting"] ?? []) as readonly string[];
    if (args.json) {
      io.out(
        JSON.stringify({ ok: true, policy: policy.digest, warnings, waiting, compose }) + "\n",
      );
      return EXIT.ok;
    }
    io.out(`Trusted ${policy.digest.slice(0, 12)}\n`);
    if (waiting.length > 0) {
      io.out(
        `The running daemon may not run ${waiting.map((p) => printable(p)).join(", ")} yet: ` +
          "end ./bin/chb serve and start it again\n",
      );
    }
    return EXIT.ok;
  },
};
