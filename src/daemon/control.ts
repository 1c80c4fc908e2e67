/**
 * What a human command asks of the ledger's one writer. A command that finds no daemon holds the
 * lock itself and applies its request with this same module; beside a running daemon it leaves a
 * file in `state/control/` and waits for the answer.
 *
 * 1. The file's name is stored in the transaction of its effect, so a file found again after a
 *    crash is answered and not applied twice.
 * 2. `state/` is closed to every sandbox; still, a control file is bounded and checked like any
 *    other input.
 * 3. A turn takes a bounded number of files, so human commands never hold up the loop for long.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { answeredBefore, type ControlAnswer, type ControlContext } from "./control_command.ts";
import { CONTROL_COMMANDS } from "./control_commands.ts";

/** Directory of control files. */
export const CONTROL_DIR = "state/control";

const MAX_CONTROL_BYTES = 1024 * 1024;
/** Controls that one turn applies. */
const TURN = 16;
/** Longest name of a person, characters. */
const MAX_BY = 100;
const NAME = /^[0-9]{1,16}-[0-9a-f]{16}\.json$/;

/** A request of a human command; what else it holds is the command's own. */
export interface ControlRequest {
  readonly chb: 1;
  readonly command: string;
  readonly by: string;
  readonly [argument: string]: unknown;
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
  if (v["chb"] !== 1 || typeof v["command"] !== "string") return null;
  if (typeof v["by"] !== "string" || v["by"].length > MAX_BY) return null;
  return value as ControlRequest;
}

/** Applies one request; what it may not do is an answer that is not ok. */
export function applyControl(
  request: ControlRequest,
  context: Omit<ControlContext, "by">,
): ControlAnswer {
  const before = answeredBefore(context.ledger, context.name);
  if (before !== null) return before;
  const command = CONTROL_COMMANDS.get(request.command);
  const args = command?.parse(request) ?? null;
  if (command === undefined || args === null) {
    return {
      ok: false,
      message:
        "the daemon does not understand that: it may be of another version, see ./bin/chb doctor",
    };
  }
  return command.apply({ ...context, by: request.by }, args);
}

/**
 * Takes what lies in `state/control/`, oldest first, and answers it.
 *
 * @returns true when there may be more
 */
export function serveControl(
  ledger: Ledger,
  context: Omit<ControlContext, "by" | "name" | "ledger">,
  log: (event: string, fields: Record<string, unknown>) => void,
): boolean {
  const names: string[] = [];
  try {
    for (const entry of Deno.readDirSync(CONTROL_DIR)) {
      if (entry.isFile && isControlName(entry.name)) names.push(entry.name);
      if (names.length >= 256) break;
    }
  } catch (error) {
    if (errorCode(error) === "ENOENT") return false;
    throw error;
  }
  for (const name of names.sort().slice(0, TURN)) {
    const path = `${CONTROL_DIR}/${name}`;
    let answer: ControlAnswer;
    try {
      if (Deno.lstatSync(path).size > MAX_CONTROL_BYTES) {
        answer = { ok: false, message: "the request is too large" };
      } else {
        const request = parseControl(Deno.readTextFileSync(path));
        answer = request === null
          ? {
            ok: false,
            message:
              "the daemon does not understand that: it may be of another version, see ./bin/chb doctor",
          }
          : applyControl(request, { ...context, ledger, name });
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
  return names.length > TURN;
}
