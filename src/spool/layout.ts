/**
 * The directories of the bridge in one place: makes an agent's, and hands on where they are, who the
 * daemon is, the lock of the root, and the checks of a start.
 *
 * @module
 */
import { agentPaths } from "./agent_paths.ts";
import { STATE_ROOMS } from "./check_layout.ts";
import { daemonUid } from "./daemon_uid.ts";
import { makeDirectory } from "./make_directory.ts";
import { queueMode, type QueueOwner } from "./queue_mode.ts";

export { type AgentPaths, agentPaths } from "./agent_paths.ts";
export { checkLayout, type LayoutOptions } from "./check_layout.ts";
export { checkProgram, fileIdentity } from "./check_program.ts";
export { daemonUid } from "./daemon_uid.ts";
export { lockState, lockStateSoon, stateHeld, type StateLock } from "./state_lock.ts";

/**
 * Makes those directories of `state/` that are missing. Write permission on `./state`.
 *
 * @throws a system error
 */
export function ensureState(): void {
  for (const room of STATE_ROOMS) makeDirectory(`state/${room}`, 0o700);
}

/**
 * Makes those of an agent's directories that are missing, with their modes; what exists is not
 * touched. Write permission on `./spool`, `./work` and `./state`.
 *
 * @param owner the agent's policy, or null when there is none
 * @throws a system error; EPERM when `agent_gid` is no group of this user
 */
export function ensureAgent(agent: string, owner: QueueOwner | null): void {
  const paths = agentPaths(agent);
  for (const path of ["spool", `spool/${agent}`]) makeDirectory(path, 0o755);
  for (const path of ["work", `work/${agent}`]) makeDirectory(path, 0o700);
  makeDirectory(paths.queue, queueMode(owner, daemonUid()), owner?.agent_gid ?? null);
  for (const path of [paths.results, paths.inbox, paths.refused, paths.kit, paths.messages]) {
    makeDirectory(path, 0o755);
  }
  for (const path of [paths.claims, paths.staging, paths.quarantine]) makeDirectory(path, 0o700);
}
