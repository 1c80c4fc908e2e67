/**
 * `chb doctor`: looks at everything that has to hold, and says of each thing that does not which
 * command mends it. It changes nothing.
 *
 * Three levels: an error is what the bridge refuses or what opens it, a warning what a person should
 * do something about, a note what is worth knowing. What could not be looked at is told as not
 * checked, and the last line never says `ok` then.
 *
 * @module
 */
import { BUILD } from "#build";
import { EXIT } from "../codes.ts";
import { errorCode, UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { baseNames } from "../policy/base_names.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import type { Policy } from "../policy/policy.ts";
import { policyPrograms } from "../policy/programs.ts";
import { agentsOnDisk } from "../daemon/agents_on_disk.ts";
import { hostFindings, notGranted, sourceTask } from "../daemon/host_findings.ts";
import { selfAudit } from "../daemon/self_audit.ts";
import { TrustStore } from "../daemon/trust_store.ts";
import { checkLayout, stateHeld } from "../spool/layout.ts";
import { shellWord } from "../spool/shell_word.ts";
import type { Finding } from "../spool/types.ts";
import { insistOnRoot } from "./agent_option.ts";
import { type Command, type Io, MAX_POLICY_BYTES } from "./command.ts";
import { Exam, found } from "./exam.ts";
import { openReader } from "./exam_ledger.ts";
import { examMounts } from "./exam_mounts.ts";
import { examAgent, examClock, examDaemon, examRuns, examSwitches } from "./exam_service.ts";
import { examSpace } from "./exam_space.ts";
import { examTrust } from "./exam_trust.ts";
import { examUnit } from "./exam_unit.ts";
import { permissionSets } from "./permission_sets.ts";
import { unitFacts } from "./unit_facts.ts";

/** Largest description of containers that is read, bytes. */
const MAX_INPUT = 16 * 1024 * 1024;

/** The policy that people edit: parsed, or what is wrong with it. */
function editedPolicy(): { policy: Policy | null; findings: Finding[] } {
  let bytes: Uint8Array;
  try {
    bytes = Deno.readFileSync("bridge.jsonc");
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
    const message = "is missing: the init script makes one";
    return { policy: null, findings: [found("error", "policy", "bridge.jsonc", message)] };
  }
  const parsed = bytes.length > MAX_POLICY_BYTES ? null : parsePolicy(bytes);
  if (parsed?.ok === true) return { policy: parsed.policy, findings: [] };
  const message = parsed === null
    ? `It is larger than ${MAX_POLICY_BYTES} bytes`
    : `It is not valid: ${parsed.errors.length} errors; what was trusted stays in force`;
  const finding = found("error", "policy", "bridge.jsonc", message, "./bin/chb check");
  return { policy: null, findings: [finding] };
}

/** What the process may do, against what the policy needs. */
function examPermissions(policy: Policy, granted: readonly string[]): Finding[] {
  const programs = policyPrograms(policy);
  const rows = permissionSets({ granted, programs, agents: [...policy.agents.keys()] });
  const findings = rows.filter((row) =>
    row.needed && !row.compiled && row.path.startsWith("./state/KILL.")
  ).map((row) => notGranted(row.path));
  const surplus = rows.filter((row) => row.kind === "run" && row.compiled && !row.needed);
  if (surplus.length > 0) {
    const root = shellWord(Deno.cwd());
    const message = `It could run ${surplus.map(({ path }) => printable(path)).join(", ")}, ` +
      "which no verb needs; the daemon gives that up at its start";
    const mend = BUILD.source
      ? ""
      : `npx -y deno@2.9.6 task compile --policy ${root}/bridge.jsonc --out ${root}/bin/chb`;
    findings.push(found("note", "surplus-grant", "bin/chb", message, mend));
  }
  return findings;
}

/** Everything that can be seen from within the root. */
function examRoot(exam: Exam, granted: readonly string[], after: (policy: Policy | null) => void) {
  exam.look("permissions", selfAudit);
  if (BUILD.source) {
    const message =
      "It runs from source: whoever can write that can change what it enforces. For more than " +
      "a trial: end the daemon, compile, then ./bin/chb trust and start it again";
    const root = shellWord(Deno.cwd());
    const mend = `${sourceTask()} compile --policy ${root}/bridge.jsonc --out ${root}/bin/chb`;
    exam.findings.push(found("error", "source", "bin/chb", message, mend));
  }
  let edited: Policy | null = null;
  exam.look("policy", () => {
    const result = editedPolicy();
    edited = result.policy;
    return result.findings;
  });
  const ledger = openReader(exam);
  try {
    const trust = new TrustStore(
      new Set(granted.map((path) => path.startsWith("./base/") ? path.slice(2) : path)),
    );
    if (ledger !== null) exam.look("trusted policy", () => void trust.reload(ledger));
    const policy = trust.policy ?? edited;
    let agents: string[] = [];
    exam.look("agents", () => void (agents = agentsOnDisk(policy)));
    exam.look(
      "layout",
      () =>
        checkLayout(agents, {
          queueMode: (agent) => policy?.agents.get(agent) ?? null,
          baseNames: namedInBase([trust.policy, edited]),
        }),
    );
    const broken = exam.findings.some(({ level, path }) => path === "state" && level === "error");
    if (policy !== null) exam.look("programs", () => hostFindings(policy));
    if (ledger === null) {
      exam.findings.push(
        found("warning", "untrusted", "bridge.jsonc", "No policy is in force", "./bin/chb trust"),
      );
    } else {
      exam.look("trust", () => examTrust(ledger, trust, digestOf(edited)));
      exam.look("clock", () => examClock(ledger, Date.now()));
    }
    exam.look("kill switch", examSwitches);
    examService(exam, [...policy?.agents.keys() ?? []].sort(), ledger);
    for (const directory of ["state", "work"]) {
      if (broken) exam.fail(`space in ${directory}`, "mend what is said of state/ first");
      else exam.look(`space in ${directory}`, () => examSpace(directory));
    }
    // What `chb unit` would print now is made from the policy that people edit.
    after(edited ?? policy);
    // The last one, since it ends the reading of `state/`.
    if (policy !== null) exam.look("permissions", () => examPermissions(policy, granted));
  } finally {
    ledger?.close();
  }
}

/** What of `base/` either of two policies names; null when that is not known, or all of it. */
function namedInBase(policies: readonly (Policy | null)[]): ReadonlySet<string> | null {
  const valid = policies.filter((policy) => policy !== null);
  const names = valid.map(baseNames);
  if (valid.length === 0 || names.includes(null)) return null;
  return new Set(names.flatMap((set) => [...set ?? []]));
}

function digestOf(policy: Policy | null): string | null {
  return policy?.digest ?? null;
}

/** The daemon, and how each agent is served. */
function examService(exam: Exam, agents: readonly string[], ledger: Ledger | null): void {
  let serving: boolean | null = null;
  exam.look("lock", () => {
    serving = stateHeld();
  });
  if (serving === null) return;
  exam.look("daemon", () => examDaemon(serving === true, agents));
  if (!serving && ledger !== null) exam.look("runs", () => examRuns(ledger));
  for (const agent of agents) {
    if (serving) exam.look(`agent ${agent}`, () => examAgent(agent, ledger, Date.now()));
    else exam.leave(`agent ${agent}`, "no daemon serves");
  }
}

function print(exam: Exam, io: Io): void {
  for (const f of exam.findings) {
    io.out(`${f.level}: ${f.path}: ${printable(f.message, 600)} [${f.check}]\n`);
    if (f.mend !== "") io.out(`    ${f.mend}\n`);
  }
  for (const { check, why } of exam.unchecked) io.out(`not checked: ${check}: ${why}\n`);
  const count = (level: Finding["level"]) => {
    const n = exam.findings.filter((finding) => finding.level === level).length;
    return `${n} ${level}${n === 1 ? "" : "s"}`;
  };
  io.out(
    `${count("error")}, ${count("warning")}, ${count("note")}, ` +
      `${exam.unchecked.length} not checked\n`,
  );
}

export const doctor: Command = {
  name: "doctor",
  summary: "Look at everything that has to hold, and say what mends it",
  usage: "[--unit -] [--mounts -]",
  details: [
    "Changes nothing. Exits 1 when there is an error or a warning, or a check failed by itself.",
    "--unit -     hold the unit on standard input against root, executable and policy",
    "--mounts -   hold a container against what a sandbox may be given; standard input is what",
    "             docker inspect NAME or podman inspect NAME prints",
  ],
  example: "./bin/chb doctor --unit - < /etc/systemd/system/chb-app.service",
  flags: [],
  options: ["unit", "mounts"],
  json: true,
  run(args, io, granted) {
    insistOnRoot();
    const { unit, mounts } = args.options;
    for (const given of [unit, mounts]) {
      if (given !== undefined && given !== "-") {
        throw new UsageError("--unit and --mounts take - only: hand the text in with < FILE");
      }
    }
    if (unit !== undefined && mounts !== undefined) {
      throw new UsageError("--unit and --mounts both read standard input: one at a time");
    }
    const input = unit ?? mounts;
    const text = input === undefined ? "" : new TextDecoder().decode(io.stdin(MAX_INPUT));
    const exam = new Exam();
    examRoot(exam, granted, (policy) => {
      if (unit === undefined) exam.leave("unit", "./bin/chb doctor --unit - < FILE");
      else if (policy === null) {
        exam.fail("unit", "there is no valid policy to compare with: ./bin/chb check");
      } else exam.look("unit", () => examUnit(text, unitFacts(policy)));
      if (mounts === undefined) {
        exam.leave("mounts", "docker inspect NAME | ./bin/chb doctor --mounts -");
      } else {
        exam.look("mounts", () => examContainers(text, policy));
      }
      exam.leave("root and what is above it", "the launcher looks at them");
    });
    if (args.json) {
      const { findings, unchecked } = exam;
      io.out(JSON.stringify({ ok: exam.well, findings, not_checked: unchecked }) + "\n");
    } else print(exam, io);
    return exam.well ? EXIT.ok : EXIT.finding;
  },
};

function examContainers(text: string, policy: Policy | null): Finding[] {
  const agents = new Set([...agentsOnDisk(policy), ...policy?.agents.keys() ?? []]);
  const single = [...policy?.agents.values() ?? []].filter(({ mount }) => mount === "single");
  return examMounts(text, {
    root: Deno.cwd(),
    agents: [...agents].sort(),
    single: single.map(({ name }) => name),
  });
}
