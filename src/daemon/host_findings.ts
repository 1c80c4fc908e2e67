/**
 * What can be said of a valid policy only on the host that it is for: where its programs are and
 * lead to, whether they may be run and are fit to, and whether it names anything inside the root
 * that no command may touch. `chb check`, `chb trust` and every start of the daemon ask the same.
 *
 * @module
 */
import { BUILD } from "#build";
import { join } from "@std/path/join";
import { errorCode } from "../errors.ts";
import { printable } from "../names.ts";
import { deniedProgram } from "../policy/denials.ts";
import type { Policy } from "../policy/policy.ts";
import { policyPrograms } from "../policy/programs.ts";
import { deniedUnderRoot } from "../policy/root_denials.ts";
import { checkProgram } from "../spool/layout.ts";
import { shellWord } from "../spool/shell_word.ts";
import type { Finding } from "../spool/types.ts";
import { readKeys } from "./key_store.ts";

/** How a program is named to the runtime's permissions. */
export function grantName(program: string): string {
  return program.startsWith("base/") ? `./${program}` : program;
}

function finding(check: string, path: string, message: string, mend: string): Finding {
  return { level: "error", check, path: printable(path), message, mend };
}

/** How a task of the source tree that this program runs from is started, from any directory. */
export function sourceTask(): string {
  const config = join(import.meta.dirname ?? "", "../../deno.json");
  return `npx -y deno@2.9.6 task --config ${shellWord(config)}`;
}

/**
 * What is said of a program, or of the kill switch of an agent, that this process was not granted,
 * with the command that mends it.
 */
export function notGranted(program: string): Finding {
  const verb = program.startsWith("./state/") ? "see" : "run";
  const inRoot = (name: string) => shellWord(join(Deno.cwd(), name));
  const [message, mend] = BUILD.source
    ? [
      `bin/chb was written without permission to ${verb} it; this writes it anew`,
      `${sourceTask()} chb --root ${shellWord(Deno.cwd())} check`,
    ]
    : [
      `This executable was not built to ${verb} it; where the source is, run`,
      `npx -y deno@2.9.6 task compile --policy ${inRoot("bridge.jsonc")} --out ${
        inRoot("bin/chb")
      }`,
    ];
  return finding("program-not-granted", program, message, /\p{Cc}/u.test(mend) ? "" : mend);
}

/** Agents that must sign and have no key to do it with: warnings, since a key may still be made. */
function keyFindings(policy: Policy): Finding[] {
  const signing = [...policy.agents.values()].filter(({ auth }) => auth === "signed");
  if (signing.length === 0) return [];
  const { entries, fault } = readKeys();
  const findings: Finding[] = [];
  const warn = (path: string, message: string, mend: string) =>
    findings.push({ level: "warning", check: "keys", path: printable(path), message, mend });
  if (fault !== null) warn("keys", `No key counts, so no signature holds: ${fault}`, "");
  for (const { file, why } of entries.values()) {
    if (why !== "") warn(`keys/${file}`, `No key: ${why}`, "");
  }
  for (const { name } of signing) {
    if ([...entries.values()].some(({ key }) => key?.agent === name)) continue;
    const mend = `./bin/chb key new ${name}-1 --agent ${name} | sh`;
    warn(`agents.${name}`, "It must sign what it asks, and has no key", mend);
  }
  return findings;
}

/** Every finding about this policy in the working directory; empty is what is wanted. */
export function hostFindings(policy: Policy): Finding[] {
  const findings: Finding[] = [];
  for (const e of deniedUnderRoot(policy, Deno.cwd())) {
    findings.push(finding(e.rule ?? "denied", e.path, `${e.message}. ${e.hint}`, ""));
  }
  findings.push(...keyFindings(policy));
  for (const program of policyPrograms(policy)) {
    const command = grantName(program);
    if (Deno.permissions.querySync({ name: "run", command }).state !== "granted") {
      findings.push(notGranted(program));
      continue;
    }
    const unfit = checkProgram(program);
    findings.push(...unfit);
    if (unfit.length > 0) continue;
    try {
      const denied = deniedProgram(program, Deno.realPathSync(program), Deno.cwd());
      if (denied !== null) {
        findings.push(finding(denied.rule, program, `${denied.message}. ${denied.hint}`, ""));
      }
    } catch (error) {
      const why = errorCode(error) ?? "unknown";
      findings.push(
        finding(
          "program-unreadable",
          program,
          `It changed while it was looked at (${why}): look again`,
          "",
        ),
      );
    }
  }
  return findings;
}
