/**
 * What a human command asks of the ledger's one writer. A command that finds no daemon holds the
 * lock itself and applies its request with this same module; beside a running daemon it leaves a
 * file in `state/control/` and waits for the answer.
 *
 * 1. The file's name is stored in the transaction of its effect, so a file found again after a
 *    crash is answered and not applied twice.
 * 2. `state/` is closed to every sandbox; still, a control file is bounded and checked like any
 *    other input.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { FileIdentity, Policy } from "../policy/policy.ts";
import { loadPolicy } from "./trust_store.ts";

/** Directory of control files. */
export const CONTROL_DIR = "state/control";

const MAX_CONTROL_BYTES = 1024 * 1024;
const NAME = /^[0-9]{1,16}-[0-9a-f]{16}\.json$/;

/** A request of a human command. */
export interface ControlRequest {
  readonly chb: 1;
  readonly command: "trust";
  readonly by: string;
  /** SHA-256 of the policy stored in `state/policies/`. */
  readonly policy: string;
  readonly programs: readonly FileIdentity[];
  readonly requires: readonly (readonly [string, string])[];
  readonly bin_sha256: string;
}

/** What became of it. */
export interface ControlAnswer {
  readonly ok: boolean;
  readonly message: string;
  /** Programs of the trusted policy that a running daemon may run only after its next start. */
  readonly waiting?: readonly string[];
}

/** True for the name of a control request. */
export function isControlName(name: string): boolean {
  return NAME.test(name);
}

function parseControl(text: string): ControlRequest | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const v = value as Record<string, unknown>;
  if (
    v["chb"] !== 1 || v["command"] !== "trust" || typeof v["by"] !== "string" ||
    typeof v["policy"] !== "string" || typeof v["bin_sha256"] !== "string" ||
    !Array.isArray(v["programs"]) || !Array.isArray(v["requires"])
  ) return null;
  if (!/^[0-9a-f]{64}$/.test(v["policy"])) return null;
  return value as ControlRequest;
}

/**
 * Applies one request in one transaction.
 *
 * @param name the control file's name, unique for ever
 */
export function applyControl(
  ledger: Ledger,
  name: string,
  request: ControlRequest,
  now: () => number,
): ControlAnswer {
  const done = ledger.meta("control.last");
  if (done === name) return { ok: true, message: "applied" };
  // Throws when the stored policy is not what its name says: nothing is trusted then.
  const policy = loadPolicy(request.policy);
  ledger.transaction((tx) => {
    tx.setTrust({
      policy: request.policy,
      at_ms: now(),
      by: request.by,
      programs: request.programs,
      requires: request.requires,
      bin_sha256: request.bin_sha256,
    });
    tx.append({
      event: "trusted",
      by: request.by,
      policy: request.policy,
      agents: policy.agents.size,
      verbs: policy.verbs.size,
      requires: request.requires,
      bin_sha256: request.bin_sha256,
      control: name,
    });
    tx.setMeta("control.last", name);
  });
  return { ok: true, message: "applied" };
}

/**
 * Takes what lies in `state/control/` and answers it.
 *
 * @param waiting which programs of a policy this process may not run
 * @returns how many requests were applied
 */
export function serveControl(
  ledger: Ledger,
  now: () => number,
  log: (event: string, fields: Record<string, unknown>) => void,
  waiting: (policy: Policy) => readonly string[],
): number {
  const names: string[] = [];
  try {
    for (const entry of Deno.readDirSync(CONTROL_DIR)) {
      if (entry.isFile && isControlName(entry.name)) names.push(entry.name);
      if (names.length >= 64) break;
    }
  } catch (error) {
    if (errorCode(error) === "ENOENT") return 0;
    throw error;
  }
  let applied = 0;
  for (const name of names.sort()) {
    const path = `${CONTROL_DIR}/${name}`;
    let answer: ControlAnswer;
    try {
      if (Deno.lstatSync(path).size > MAX_CONTROL_BYTES) {
        answer = { ok: false, message: "the request is too large" };
      } else {
        const request = parseControl(Deno.readTextFileSync(path));
        if (request === null) answer = { ok: false, message: "the request cannot be understood" };
        else {
          answer = {
            ...applyControl(ledger, name, request, now),
            waiting: waiting(loadPolicy(request.policy)),
          };
          applied++;
        }
      }
    } catch (error) {
      answer = { ok: false, message: error instanceof Error ? error.message : "unknown" };
    }
    log("control", { name, ok: answer.ok });
    try {
      const temporary = `${path}.tmp`;
      Deno.writeTextFileSync(temporary, JSON.stringify(answer) + "\n", { mode: 0o600 });
      Deno.renameSync(temporary, `${path}.answer`);
      Deno.removeSync(path);
    } catch (error) {
      log("control-answer", { name, error: errorCode(error) });
    }
  }
  return applied;
}
