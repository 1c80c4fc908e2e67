/**
 * What a start does before it looks at the queue: brings memory, run directories, results and
 * claims back into agreement with the ledger.
 *
 * Order matters. Running rows come first, and uncertain ones that hold something, because their
 * slots and locks must be taken before anything may start; what waits comes next; then what
 * was decided and not published; then claims of entries whose answer may or may not have been
 * recorded. The code that handles each of them is the one that handles it in normal service.
 *
 * @module
 */
import { leftoverClaims } from "../spool/claim.ts";
import { sweepBlanks } from "../run/blank_runs.ts";
import { assertPinned } from "../spool/pins.ts";
import { sweepStaging } from "../spool/publish.ts";
import type { Core } from "./core.ts";
import type { Intake } from "./intake.ts";
import { pinnedAgents } from "./stored_pins.ts";
import { waitingEntry } from "./waiting_entry.ts";
import type { Work } from "./work.ts";

/** Results that are published before the service begins. */
const CATCH_UP = 500;

/** Runs recovery for these agents; the state lock is held. */
export function recover(core: Core, intake: Intake, work: Work, agents: readonly string[]): void {
  const policy = core.policy();
  const grace_ms = Math.round((policy?.limits.grace_s ?? 10) * 1000);
  for (const row of core.ledger.unfinished()) {
    if (row.state === "running" && row.run !== null) {
      core.slots.start(row.rid, row.agent, row.lock);
      const lookup = row.lookup !== null;
      const asked = lookup ? policy?.verbs.get(row.verb)?.lookup : undefined;
      const timeout_ms = asked === undefined || asked === null
        ? row.timeout_ms
        : asked.timeout_s * 1000;
      const run = row.lookup ?? row.run;
      // Nobody noted when a look-up began: it is given its whole time again.
      const before_ms = lookup || row.started_tick === null
        ? 0
        : Math.max(0, core.clock.now() - row.started_tick);
      core.runs.adopt(row, run, { timeout_ms, grace_ms, lookup, before_ms });
      work.ended(run);
    } else {
      core.slots.wait(waitingEntry(core.ledger, row));
    }
  }
  for (const row of core.ledger.uncertain()) work.hold(row);
  while (work.turn()) { /* until nothing more can start or end now */ }
  // The first of them now, and the rest, if the results could not be published for long, in turns.
  core.publisher.beginCatchUp();
  core.publisher.catchUp(CATCH_UP);
  for (const answer of core.ledger.answers()) core.publisher.answer(answer);
  sweepBlanks();
  sweepLeft(core, agents);
  for (const agent of agents) {
    sweepStaging(agent);
    const claims = leftoverClaims(agent);
    for (let i = 0; i < claims.length; i += 64) intake.process(claims.slice(i, i + 64));
  }
}

/** What the last daemon staged for agents that have left the policy since. */
function sweepLeft(core: Core, served: readonly string[]): void {
  for (const agent of pinnedAgents(core.ledger)) {
    if (served.includes(agent)) continue;
    try {
      assertPinned(agent, "staging");
      sweepStaging(agent);
    } catch {
      // Its directories were moved or removed, as is usual for one that has left.
    }
  }
}
