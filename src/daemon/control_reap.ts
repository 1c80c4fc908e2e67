/**
 * Reaps now what is due, in one round. A running daemon does it in its own small steps and says how
 * far it is; a human command that holds the lock does it itself, step by step.
 *
 * @module
 */
import { defaultPolicy } from "../policy/default_policy.ts";
import { holdPins } from "../spool/pins.ts";
import { type ControlCommand, type ControlContext, once } from "./control_command.ts";
import { stderrLog } from "./log.ts";
import { Reaper } from "./reaper.ts";
import { pinnedAgents, storedPins } from "./stored_pins.ts";
import { loadPolicy } from "./trust_store.ts";

/** What `chb reap` asks for. */
export interface ReapArgs {
  /** True begins a round, false asks how far it is. */
  readonly begin: boolean;
}

export const controlReap: ControlCommand<ReapArgs> = {
  name: "reap",
  parse({ begin }) {
    return typeof begin === "boolean" ? { begin } : null;
  },
  apply(context, { begin }) {
    const reaper = context.live?.reaper ?? ownReaper(context);
    const told = () => ({
      ok: true,
      message: reaper.fault === null ? "" : `reaping failed: ${reaper.fault}`,
      data: { running: reaper.running, counts: { ...reaper.counts }, fault: reaper.fault },
    });
    if (!begin) return told();
    const before = { ...reaper.counts };
    once(context, (tx) => {
      tx.append({ event: "human", command: "reap", by: context.by, control: context.name });
      return { ok: true, message: "begun", data: { running: true, counts: before, fault: null } };
    });
    if (context.live === null) {
      reaper.all();
      reaper.close();
      return told();
    }
    reaper.begin();
    context.live.wake();
    return { ...told(), data: { running: true, counts: before, fault: null } };
  },
};

/** For a process that holds the lock and serves nobody. */
function ownReaper({ ledger, now }: ControlContext): Reaper {
  for (const agent of pinnedAgents(ledger)) {
    const pins = storedPins(ledger, agent);
    if (pins !== null) holdPins(agent, pins);
  }
  const trust = ledger.currentTrust();
  const policy = trust === null ? defaultPolicy() : loadPolicy(trust.policy);
  return new Reaper({
    ledger,
    log: stderrLog("WARN"),
    limits: () => policy.limits,
    retention: () => policy.retention,
    now,
    mono: () => performance.now(),
    // What a daemon that is gone left running is told by the ledger.
    isActive: () => false,
  });
}
