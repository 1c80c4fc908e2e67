/**
 * Records that a human raised or lowered a kill switch, and answers what waits. The switch itself is
 * a file that the command raises before it gets here, and lowers after it: see `kill_switch.ts`.
 *
 * @module
 */
import { killedRefusal } from "../gates/entry.ts";
import type { Row } from "../ledger/types.ts";
import { isId } from "../names.ts";
import { type ControlCommand, once } from "./control_command.ts";
import { noteSwitch, ofAgent } from "./kill_record.ts";
import { MAX_REASON, switchName } from "./kill_switch.ts";
import { turnDown } from "./turn_down.ts";

/** Rows that one command answers itself, at most; the daemon's next start answers the rest. */
const MAX_ROWS = 10_000;

/** What `chb kill` hands over. */
export interface KillArgs {
  readonly agent: string | null;
  readonly reason: string;
  /** Running commands were asked to end. */
  readonly now: boolean;
  readonly marked: number;
}

/** What `chb resume` hands over. */
export interface ResumeArgs {
  readonly agent: string | null;
}

function agentOf(value: unknown): string | null | undefined {
  return value === null || isId(value) ? value : undefined;
}

export const controlKill: ControlCommand<KillArgs> = {
  name: "kill",
  parse(v) {
    const agent = agentOf(v["agent"]);
    const { reason, now, marked } = v;
    if (agent === undefined || typeof reason !== "string" || reason.length > MAX_REASON) {
      return null;
    }
    if (typeof now !== "boolean" || !Number.isSafeInteger(marked)) return null;
    return { agent, reason, now, marked: Number(marked) };
  },
  apply(context, args) {
    const { ledger, live } = context;
    const name = switchName(args.agent);
    const answered: { row: Row; released: readonly string[] }[] = [];
    const answer = once(context, (tx) => {
      tx.append({
        event: "killed",
        ...ofAgent(name),
        switch: name,
        by: context.by,
        why: args.reason,
        now: args.now,
        marked: args.marked,
        control: context.name,
      });
      noteSwitch(ledger, tx, name, true);
      // The daemon answers what waits in its own turn, since it holds it in memory as well.
      const rows = live === null ? ledger.unfinished() : [];
      for (const row of rows) {
        if (row.state !== "pending" || (args.agent !== null && row.agent !== args.agent)) continue;
        if (answered.length >= MAX_ROWS) break;
        const released = turnDown(ledger, tx, row, killedRefusal("recheck", name), context.now());
        answered.push({ row, released });
      }
      return { ok: true, message: "recorded", data: { answered: answered.length } };
    });
    for (const { row, released } of answered) {
      const now = ledger.row(row.rid);
      if (now !== null) context.publish(now, released);
    }
    live?.switchesChanged();
    return answer;
  },
};

export const controlResume: ControlCommand<ResumeArgs> = {
  name: "resume",
  parse(v) {
    const agent = agentOf(v["agent"]);
    return agent === undefined ? null : { agent };
  },
  apply(context, args) {
    const name = switchName(args.agent);
    return once(context, (tx) => {
      tx.append({
        event: "resumed",
        ...ofAgent(name),
        switch: name,
        by: context.by,
        control: context.name,
      });
      noteSwitch(context.ledger, tx, name, false);
      return { ok: true, message: "recorded" };
    });
  },
};
