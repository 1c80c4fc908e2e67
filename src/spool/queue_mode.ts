/**
 * Who may write an agent's `queue/`, as its mode.
 *
 * @module
 */
import type { AgentPolicy } from "../policy/policy.ts";

/** What of an agent's policy decides its directories. */
export type QueueOwner = Pick<AgentPolicy, "agent_gid" | "agent_uid">;

/** For the owner alone. */
export const QUEUE_OWN = 0o700;
/** For the owner and a group. */
export const QUEUE_GROUP = 0o2770;
/**
 * For a writer who is neither: a drop box in which nobody else can list entries, and nobody can take
 * away or replace what another put there.
 */
export const QUEUE_DROP = 0o1733;

/**
 * The mode of an agent's `queue/`.
 *
 * @param uid the daemon's user
 */
export function queueMode(owner: QueueOwner | null, uid: number): number {
  if (owner === null) return QUEUE_OWN;
  if (owner.agent_gid !== null) return QUEUE_GROUP;
  return owner.agent_uid !== null && owner.agent_uid !== uid ? QUEUE_DROP : QUEUE_OWN;
}
