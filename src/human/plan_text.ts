/**
 * What would run for a request, in lines that a person judges it by.
 *
 * @module
 */
import { type Plan, shortDigest } from "../daemon/approval.ts";
import type { Approval } from "../ledger/approvals.ts";
import type { LightRow } from "../ledger/types.ts";
import { printable } from "../names.ts";
import { isoTime } from "../result.ts";
import { quoted } from "./quoted.ts";

/** The request, what its agent says of it, and what would run. */
export function planText(row: LightRow, approval: Approval | null, plan: Plan | null): string {
  const what = `${row.agent}/${row.id}`;
  const lines = [
    `${what}: ${row.verb} (${row.class}), received ${isoTime(row.received_ms)}`,
  ];
  if (approval?.state === "waiting") {
    lines.push(`waits for a word until ${isoTime(approval.until_ms)}`);
  }
  let text = lines.join("\n") + "\n";
  if (row.plan !== null) text += `the agent's plan:\n${quoted(row.plan)}`;
  if (row.note !== null) text += `the agent's note:\n${quoted(row.note)}`;
  if (plan === null) {
    return text + "the trusted policy does not let it start any more\n" +
      (approval?.state === "waiting" ? `./bin/chb deny ${what} --reason TEXT\n` : "");
  }
  return text + commandText(plan) +
    (approval?.state === "waiting"
      ? `./bin/chb approve ${what} ${shortDigest(plan.digest)}\n`
      : `digest ${shortDigest(plan.digest)}\n`);
}

/** Longest part of an argument in a line, characters: with what stands before it, 80 columns. */
const WORD_WIDTH = 66;

/**
 * An argument in lines that a terminal does not break. An agent may have chosen it, so one that
 * could look like lines of its own, or end in spaces that nobody sees, stands in quotes, and all
 * of it behind bars.
 */
function wordLines(word: string, n: number): string[] {
  const safe = printable(word, 1_000_000);
  const lead = `  arg ${n}  `;
  if (/^[^ "]+$/.test(safe) && safe.length <= WORD_WIDTH) return [lead + safe];
  const text = `"${safe.replaceAll('"', '\\"')}"`;
  if (text.length <= WORD_WIDTH) return [lead + text];
  const lines = [lead.trimEnd()];
  for (let at = 0; at < text.length; at += WORD_WIDTH) {
    lines.push(`         | ${text.slice(at, at + WORD_WIDTH)}`);
  }
  return lines;
}

/** Program, every argument, working directory, environment names, base. */
function commandText(plan: Plan): string {
  const { command } = plan;
  const lines = [
    `program  ${printable(command.program, 4096)}`,
    ...command.argv.flatMap((word, i) => wordLines(word, i + 1)),
    `cwd      ${printable(command.cwd, 4096)}`,
    `env      ${Object.keys(command.env).sort().join(" ") || "(empty)"}`,
    ...plan.base.map(({ path, sha256 }) => `base     ${printable(path, 4096)} sha256 ${sha256}`),
  ];
  for (const [name, spec] of plan.verb.args) {
    if (spec.type === "path" && spec.agent_writable) {
      lines.push(
        `warning  the agent can write where {${name}} points, and so make the command read and`,
        "         write any file of this user",
      );
    }
  }
  if (plan.verb.runs_workspace_code) {
    lines.push("warning  it executes what lies in its working tree, as this user");
  }
  if (plan.changed !== null) {
    lines.push(`changed since a human trusted it: ${printable(plan.changed, 4096)}`);
  }
  return lines.join("\n") + "\n";
}

/** The same as data. */
export function planData(plan: Plan | null): unknown {
  if (plan === null) return null;
  const { command } = plan;
  return {
    digest: shortDigest(plan.digest),
    program: command.program,
    argv: command.argv,
    cwd: command.cwd,
    env: Object.keys(command.env).sort(),
    base: plan.base,
    changed: plan.changed,
  };
}
