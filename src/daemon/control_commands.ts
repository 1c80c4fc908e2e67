/**
 * Every command that a human may give to the ledger's one writer.
 *
 * @module
 */
import type { ControlCommand } from "./control_command.ts";
import { controlApprove, controlDeny } from "./control_approve.ts";
import { controlCancel } from "./control_cancel.ts";
import { controlKill, controlResume } from "./control_kill.ts";
import { controlReap } from "./control_reap.ts";
import { controlResolve } from "./control_resolve.ts";
import { controlTell } from "./control_tell.ts";
import { controlTrust } from "./control_trust.ts";

const ALL: readonly ControlCommand<unknown>[] = [
  controlApprove as ControlCommand<unknown>,
  controlDeny as ControlCommand<unknown>,
  controlCancel as ControlCommand<unknown>,
  controlKill as ControlCommand<unknown>,
  controlResume as ControlCommand<unknown>,
  controlReap as ControlCommand<unknown>,
  controlResolve as ControlCommand<unknown>,
  controlTell as ControlCommand<unknown>,
  controlTrust as ControlCommand<unknown>,
];

/** By name. */
export const CONTROL_COMMANDS: ReadonlyMap<string, ControlCommand<unknown>> = new Map(
  ALL.map((command) => [command.name, command]),
);
