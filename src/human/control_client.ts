/**
 * How a human command reaches the ledger's one writer: it takes the lock and does the work, or
 * asks the daemon that holds it.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError } from "../errors.ts";
import { randomHex } from "../names.ts";
import {
  applyControl,
  CONTROL_DIR,
  type ControlAnswer,
  type ControlRequest,
} from "../daemon/control.ts";
import { openLedger } from "../daemon/open_ledger.ts";
import { stderrLog } from "../daemon/log.ts";
import { lockState } from "../spool/layout.ts";

/** Milliseconds that a command waits for a running daemon. */
const WAIT_MS = 15_000;

/**
 * Applies a request, here or in the daemon.
 *
 * @throws {ExitError} when it was refused or nobody answered
 */
export async function control(request: ControlRequest): Promise<ControlAnswer> {
  const name = `${Date.now()}-${randomHex(8)}.json`;
  const lock = lockState();
  if (lock !== null) {
    try {
      const { ledger } = openLedger(Date.now, stderrLog("WARN"));
      try {
        return applyControl(ledger, name, request, Date.now);
      } finally {
        ledger.close();
      }
    } finally {
      lock.release();
    }
  }
  const path = `${CONTROL_DIR}/${name}`;
  Deno.writeTextFileSync(`${path}.new`, JSON.stringify(request) + "\n", {
    createNew: true,
    mode: 0o600,
  });
  Deno.renameSync(`${path}.new`, path);
  const end = performance.now() + WAIT_MS;
  for (;;) {
    try {
      const answer: ControlAnswer = JSON.parse(Deno.readTextFileSync(`${path}.answer`));
      Deno.removeSync(`${path}.answer`);
      if (!answer.ok) throw new ExitError(EXIT.refused, answer.message);
      return answer;
    } catch (error) {
      if (errorCode(error) !== "ENOENT") throw error;
    }
    if (performance.now() > end) {
      try {
        Deno.removeSync(path);
      } catch (error) {
        if (errorCode(error) !== "ENOENT") throw error;
      }
      throw new ExitError(EXIT.tryAgain, "the running daemon did not answer; nothing was changed");
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
