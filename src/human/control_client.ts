/**
 * How a human command reaches the ledger's one writer: it takes the lock and does the work, or
 * asks the daemon that holds it. Who held it may have been no daemon, or one that has ended: as soon
 * as nobody does any more, the command does the work after all, under the name that it asked under,
 * so that what was done already is not done again.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError } from "../errors.ts";
import { randomHex } from "../names.ts";
import { applyControl, CONTROL_DIR, type ControlRequest } from "../daemon/control.ts";
import type { ControlAnswer } from "../daemon/control_command.ts";
import { stderrLog } from "../daemon/log.ts";
import { openLedger } from "../daemon/open_ledger.ts";
import { Publisher } from "../daemon/publisher.ts";
import { storedPins } from "../daemon/stored_pins.ts";
import { lockState, stateHeld } from "../spool/layout.ts";
import { holdPins } from "../spool/pins.ts";

/** Milliseconds that a command waits for a running daemon. */
const WAIT_MS = 15_000;
/** Milliseconds between two looks for the answer, and between two looks whether anybody serves. */
const LOOK_MS = 25;
const HELD_MS = 100;

/**
 * Applies a request, here or in the daemon.
 *
 * @param waitMs milliseconds that a running daemon has to answer
 * @throws {ExitError} when it was refused or nobody answered
 */
export async function control(request: ControlRequest, waitMs = WAIT_MS): Promise<ControlAnswer> {
  const name = `${Date.now()}-${randomHex(8)}.json`;
  const lock = lockState();
  if (lock !== null) {
    try {
      return ok(alone(name, request));
    } finally {
      lock.release();
    }
  }
  const path = `${CONTROL_DIR}/${name}`;
  try {
    Deno.writeTextFileSync(`${path}.new`, JSON.stringify(request) + "\n", {
      createNew: true,
      mode: 0o600,
    });
    Deno.renameSync(`${path}.new`, path);
  } catch (error) {
    removeQuietly(`${path}.new`);
    const code = errorCode(error);
    if (code === undefined) throw error;
    throw new ExitError(
      EXIT.tryAgain,
      `the running daemon cannot be told, nothing was changed: ${CONTROL_DIR} cannot be written (${code})`,
    );
  }
  const end = performance.now() + waitMs;
  let heldAt = performance.now();
  for (;;) {
    const answer = takeAnswer(path);
    if (answer !== null) return ok(answer);
    const now = performance.now();
    if (now > end) {
      withdraw(path);
      throw new ExitError(
        EXIT.tryAgain,
        "the running daemon did not answer, nothing was changed: try again, and look at ./bin/chb status",
      );
    }
    if (now - heldAt >= HELD_MS) {
      heldAt = now;
      const lock = stateHeld() ? null : lockState();
      if (lock !== null) {
        try {
          return ok(takeAnswer(path) ?? instead(name, path, request));
        } finally {
          lock.release();
        }
      }
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

/** The answer of a daemon, or null while there is none. */
function takeAnswer(path: string): ControlAnswer | null {
  try {
    const answer: ControlAnswer = JSON.parse(Deno.readTextFileSync(`${path}.answer`));
    Deno.removeSync(`${path}.answer`);
    return answer;
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
    return null;
  }
}

/** Does what nobody did who was asked; the lock on `state/` is held. */
function instead(name: string, path: string, request: ControlRequest): ControlAnswer {
  withdraw(path);
  return alone(name, request);
}

/** Takes back what no daemon is to find any more. */
function withdraw(path: string): void {
  try {
    Deno.removeSync(path);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
}

function removeQuietly(path: string): void {
  try {
    Deno.removeSync(path);
  } catch {
    // It was never made; or it cannot be removed, and nobody reads it.
  }
}

/** Does the work itself; the lock on `state/` is held. */
function alone(name: string, request: ControlRequest): ControlAnswer {
  const log = stderrLog("WARN");
  const { ledger } = openLedger(Date.now, log);
  try {
    const publisher = new Publisher(ledger, log, Date.now);
    return applyControl(request, {
      ledger,
      name,
      now: Date.now,
      live: null,
      publish(row, released) {
        const pins = storedPins(ledger, row.agent);
        // An agent that was never served has no directories that are known to be its own.
        if (pins === null) return;
        holdPins(row.agent, pins);
        publisher.row(row, released);
      },
    });
  } finally {
    ledger.close();
  }
}

function ok(answer: ControlAnswer): ControlAnswer {
  if (!answer.ok) throw new ExitError(EXIT.refused, answer.message);
  return answer;
}
