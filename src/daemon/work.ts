/**
 * What happens to accepted requests: they start when a slot is free, end when their shim says so,
 * lapse when they waited too long, and are recovered when whoever ran them is gone.
 *
 * A `running` row is judged by its run directory, in this order:
 *
 * 1. An exit record with the run's id: the run has ended as it says.
 * 2. The lock is held: a shim works on it; wait.
 * 3. The order is still there: rename it away. Whoever wins that rename decides; when it is the
 *    daemon, nothing was started and nothing ever will be under this run id.
 * 4. The order was taken, or nobody can say: it may have started. While its process group lives,
 *    which the row knows even when the directory is gone, slot and lock stay taken. When the group
 *    is empty the verb's `on_crash` decides: `rerun` starts another attempt, `lookup` asks the
 *    downstream (`lookups.ts`), and otherwise it is `uncertain`. Nothing is ever run again on a
 *    guess (S7), and there is no third attempt.
 * 5. A group that lives on past the deadline, with nobody left who could end it, makes the run
 *    `uncertain`; what it holds then stands in `leftovers.ts` (X18).
 *
 * And whatever is recovered: what was cancelled is not started any more, and a key whose request
 * may have been started once is never given up.
 *
 * @module
 */
import { errorCode, type Refusal } from "../errors.ts";
import type { GateDeps } from "../gates/candidate.ts";
import { recheck } from "../gates/order.ts";
import { dayRefuses, grantFor } from "../gates/spend.ts";
import type { Tx } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { Approval } from "../ledger/approvals.ts";
import type { RecordRef, Row } from "../ledger/types.ts";
import { amountNumber, amountText } from "../policy/amount.ts";
import { coded, isoTime, type Result } from "../result.ts";
import { readExit } from "../run/exit_record.ts";
import { groupAlive, killGroup } from "../run/kill_group.ts";
import { type Exit, RUN_FILES } from "../run/order.ts";
import { isCancelMarked } from "../run/look_before_start.ts";
import { markCancel, readTaken, runLocked, voidOrder } from "../run/order_file.ts";
import type { Shim, ShimLine } from "../run/pool.ts";
import { runDir } from "../run/run_dir.ts";
import type { VerbPolicy } from "../policy/policy.ts";
import { look } from "../spool/look.ts";
import { transition } from "../transitions.ts";
import {
  awaitingResult,
  consumeApproval,
  isApproved,
  planOf,
  renewApproval,
  voidApproval,
} from "./approval.ts";
import type { Core } from "./core.ts";
import { runningResult } from "./intake.ts";
import { cancelledResult } from "./cancel.ts";
import { type Fit, fits } from "./fits.ts";
import { Leftovers } from "./leftovers.ts";
import { loseRow } from "./lose.ts";
import { readAnswer } from "./lookups.ts";
import { pendingResult } from "./pending_result.ts";
import { MANY_MARKS } from "./publisher.ts";
import { resolvedEvent, settleRow } from "./resolve.ts";
import { Retell } from "./retell.ts";
import { base } from "./row_fields.ts";
import {
  type ActiveRun,
  exitReason,
  finishedResult,
  type Prepared,
  type StartFacts,
} from "./runs.ts";
import type { Waiting } from "./slots.ts";
import { dropHold } from "./spends.ts";
import { turnDown } from "./turn_down.ts";
import { waitingEntry } from "./waiting_entry.ts";

/** Milliseconds past deadline and grace after which the daemon ends a run itself. */
const BACKSTOP_MS = 10_000;
/** Milliseconds after which a shim that has not taken its order is replaced. */
const TAKE_MS = 10_000;
/** Starts that a key ever gets without a human's word. */
const ATTEMPTS = 2;
/** Milliseconds that a shim has to tell of an outcome that it recorded. */
const TELL_MS = 3000;
/** Waiting requests that one step answers, at most. */
const LAPSES = 256;

type RecheckDeps = Pick<GateDeps, "kill" | "baseChanged" | "pathArgs">;

type End =
  | { readonly kind: "exit"; readonly active: ActiveRun; readonly row: Row; readonly exit: Exit }
  | {
    readonly kind: "again";
    readonly active: ActiveRun;
    readonly row: Row;
    readonly attempt: number;
  }
  /** The downstream is to be asked what became of the run. */
  | { readonly kind: "lookup"; readonly active: ActiveRun; readonly row: Row }
  | {
    readonly kind: "uncertain";
    readonly active: ActiveRun;
    readonly row: Row;
    readonly pgid: number | null;
    /** What stood against another attempt, or against an answer; absent for a plain crash. */
    readonly why?: string;
  };

export class Work {
  readonly #core: Core;
  readonly #deps: RecheckDeps;
  readonly #wake: () => void;
  /** Runs whose shim said that they ended, or is gone. */
  readonly #ended = new Set<string>();
  /** Runs whose process group is being asked for. */
  readonly #probing = new Set<string>();
  readonly #forced = new Set<string>();
  readonly #leftovers: Leftovers;
  readonly #retell: Retell;
  #fault: string | null = null;
  /** More waiting requests have to be answered than one step does. */
  #lapsing = false;

  constructor(core: Core, deps: RecheckDeps, wake: () => void) {
    this.#core = core;
    this.#deps = deps;
    this.#wake = wake;
    this.#leftovers = new Leftovers(core, wake);
    this.#retell = new Retell(core);
  }

  /** Why the last commit failed, or null. */
  get fault(): string | null {
    return this.#fault;
  }

  /** A run may have ended: judge it in the next turn. */
  ended(run: string): void {
    this.#ended.add(run);
    this.#wake();
  }

  /**
   * A shim of this daemon's own tells about its run. The next turn judges it; nobody is woken.
   *
   * @returns false when it put back an order whose commit had failed. What is tried again has its
   *   time for that: right away it would fail again, as often as a shim can put an order back
   */
  shimSaid(shim: Shim, line: ShimLine): boolean {
    if (this.#core.runs.settle(shim)) return false;
    const active = this.#core.runs.active.get(line.run);
    if (active === undefined) return true;
    active.told = true;
    // A shim that is free again, or that took nothing, has let go of the lock.
    if (line.reusable) {
      active.shim = null;
      active.letGo = true;
    }
    if (line.kind === "gone") active.gone = true;
    this.#ended.add(line.run);
    return true;
  }

  /** A shim of this daemon's own has died or left. */
  shimGone(shim: Shim): void {
    this.#core.runs.settle(shim);
    for (const active of this.#core.runs.active.values()) {
      if (active.shim !== shim) continue;
      active.shim = null;
      this.#ended.add(active.run);
    }
    this.#wake();
  }

  /**
   * Records what ended and starts what may start, in one transaction.
   *
   * @returns true when another turn would find more to do
   */
  turn(): boolean {
    if (this.#lapsing) this.lapse();
    const ends: End[] = [];
    for (const run of [...this.#ended]) {
      this.#ended.delete(run);
      const active = this.#core.runs.active.get(run);
      if (active === undefined) continue;
      if (active.finished) this.#freed(active);
      else {
        const end = this.#judge(active);
        if (end !== null) ends.push(end);
      }
    }
    const { slots, pool } = this.#core;
    if (ends.length === 0 && (pool.idle === 0 || slots.peek() === null)) {
      return this.#lapsing;
    }
    return this.#commit(ends);
  }

  /** Once a second: adopted runs, deadlines, waiting requests whose time or luck ran out. */
  second(): void {
    const now = performance.now();
    this.#core.runs.lookForMarks();
    for (const active of this.#core.runs.active.values()) {
      if (active.shim !== null && !active.finished) {
        if (this.#silent(active, active.shim, now)) continue;
        if (!this.#untaken(active, active.shim, now)) this.#backstop(active, now);
        continue;
      }
      if (active.shim === null && !runLocked(active.run)) this.#ended.add(active.run);
      else this.#backstop(active, now);
    }
    this.#core.runs.endStuck();
    this.#leftovers.ask();
    this.lapse();
    this.#retell.pass();
    this.#wake();
  }

  /** True when nothing runs, waits, or lives on from an earlier run. */
  get idle(): boolean {
    const { runs, slots } = this.#core;
    return runs.active.size === 0 && slots.running === 0 && slots.waiting() === 0 &&
      this.#leftovers.size === 0;
  }

  /** Takes up an `uncertain` row of an earlier daemon: what it holds is held. */
  hold(row: Pick<Row, "rid" | "agent" | "lock" | "pgid">): void {
    this.#leftovers.hold(row);
  }

  /** A human resolved an `uncertain` request: nothing is held for it any more. */
  resolved(rid: number): void {
    this.#leftovers.drop(rid);
    this.#core.slots.free(rid);
    const row = this.#core.ledger.row(rid);
    if (row !== null && row.state === "pending") this.#waits(row);
    this.#wake();
  }

  #waits(row: Row): void {
    this.#core.slots.wait(waitingEntry(this.#core.ledger, row));
  }

  /** Asks every running command to stop, for a shutdown that cancels. */
  cancelAll(): void {
    for (const active of this.#core.runs.active.values()) {
      if (!active.finished && !active.lookup) markCancel(active.run);
    }
  }

  /**
   * Ends what went on too long after its limit, or after it was asked to end. For a run of an earlier
   * daemon it goes on counting from the last beat of its shim: only that one knows for how long the
   * machine was awake before, and it ends a run in time; this is for shims that stand still.
   */
  #backstop(active: ActiveRun, now: number): void {
    const { awake_ms, grace_ms, markedAt, run, since, timeout_ms } = active;
    const late = awake_ms + now - since > timeout_ms + grace_ms + BACKSTOP_MS ||
      (markedAt !== null && now - markedAt > grace_ms + BACKSTOP_MS);
    if (!late || active.finished || this.#forced.has(run)) return;
    if (!runLocked(run)) return;
    const taken = readTaken(run);
    if (taken === null) {
      // Its shim has stopped before it took the order, and will find that there is none.
      if (voidOrder(run)) this.#neverRan(active);
      return;
    }
    this.#forced.add(run);
    this.#core.log("WARN", "backstop", { run, pgid: taken.pgid });
    killGroup(taken.pgid, "CONT").then(() => killGroup(taken.pgid, "KILL")).catch(() => {
      this.#forced.delete(run);
    });
  }

  /**
   * Takes an order back from a living shim that has not taken it: one that was stopped, for example.
   * Void, it was never started and never will be, so its request waits for another shim, and this
   * one is of no use. One that was stopped behind the taking counts as a run that goes on: nobody can
   * see that it has started nothing yet. A shim whose run directory is gone can tell nothing any more; its group is
   * ended when its time is over, and what the run did stays unknown.
   *
   * @returns true when the run is settled, or being ended
   */
  #untaken(active: ActiveRun, shim: Shim, now: number): boolean {
    const { grace_ms, run, since, timeout_ms } = active;
    if (now - since < TAKE_MS) return false;
    const dir = runDir(run);
    if (look(dir) === null) {
      if (now - since <= timeout_ms + grace_ms + BACKSTOP_MS) return false;
      this.#core.log("WARN", "run-directory-gone", { run, pgid: shim.pid });
      killGroup(shim.pid, "CONT").then(() => killGroup(shim.pid, "KILL")).catch(() => {});
      return true;
    }
    if (look(`${dir}/${RUN_FILES.order}`) === null || !voidOrder(run)) return false;
    this.#core.log("WARN", "order-not-taken", { run, shim: shim.pid });
    active.shim = null;
    this.#core.pool.abandon(shim);
    this.#ended.add(run);
    return true;
  }

  /**
   * Ends a living shim that recorded an outcome and does not tell of it: its line was lost, or it
   * stands still. The command has ended; with the shim its slot becomes free, and the record counts.
   *
   * @returns true when the shim is being ended
   */
  #silent(active: ActiveRun, shim: Shim, now: number): boolean {
    if (active.told || look(`${runDir(active.run)}/${RUN_FILES.exit}`) === null) return false;
    active.recordedAt ??= now;
    if (now - active.recordedAt < TELL_MS) return false;
    // Once every time that it has not helped.
    active.recordedAt = now;
    this.#core.log("WARN", "shim-silent", { run: active.run, pgid: shim.pid });
    killGroup(shim.pid, "CONT").then(() => killGroup(shim.pid, "KILL")).catch(() => {});
    return true;
  }

  #neverRan(active: ActiveRun): void {
    const row = this.#core.ledger.row(active.rid);
    if (row !== null) this.#commit([this.#again(active, row)]);
  }

  /** What became of a run, or null when it is not known yet. */
  #judge(active: ActiveRun): End | null {
    const row = this.#core.ledger.row(active.rid);
    if (!goesOn(row, active)) {
      this.#freed(active);
      return null;
    }
    const exit = readExit(runDir(active.run), active.run);
    if (exit !== null) {
      if (!this.#core.runs.behind(active, exit)) return { kind: "exit", active, row, exit };
      this.ended(active.run);
      return null;
    }
    if (active.shim !== null || runLocked(active.run)) return null;
    if (isVoid(active.run)) return this.#again(active, row);
    // The exit record may have been written between the two looks.
    const late = readExit(runDir(active.run), active.run);
    if (late !== null) return { kind: "exit", active, row, exit: late };
    if (active.gone) return this.#again(active, row);
    const pgid = readTaken(active.run)?.pgid ?? (active.lookup ? null : row.pgid);
    if (this.#forced.has(active.run) && pgid !== null) {
      return { kind: "exit", active, row, exit: forcedExit(active) };
    }
    if (this.#probing.has(active.run)) return null;
    if (pgid !== null) {
      this.#probe(active, row, pgid);
      return null;
    }
    // A shim of an earlier daemon may have taken the order and put it back between these looks.
    return isVoid(active.run) ? this.#again(active, row) : this.#crashed(active, row);
  }

  /** Asks whether anything of the group lives; the answer comes back as an ended run. */
  #probe(active: ActiveRun, row: Row, pgid: number): void {
    this.#probing.add(active.run);
    groupAlive(pgid).then((alive) => {
      this.#probing.delete(active.run);
      // Counted from the start of the run, whatever daemon started it: nobody is left to end it.
      const lasted = performance.now() - active.since + active.before_ms;
      const over = lasted > active.timeout_ms + active.grace_ms;
      if (alive && !over) return;
      const again = this.#core.ledger.row(row.rid);
      if (!goesOn(again, active) || runLocked(active.run)) return;
      const exit = readExit(runDir(active.run), active.run);
      const end: End = exit !== null
        ? { kind: "exit", active, row: again, exit }
        // Its shim, which has ended since, had it and put it back.
        : isVoid(active.run)
        ? this.#again(active, again)
        : alive
        ? { kind: "uncertain", active, row: again, pgid }
        : this.#crashed(active, again);
      this.#commit([end]);
      this.#wake();
    }).catch((error) => {
      this.#probing.delete(active.run);
      this.#core.log("WARN", "probe-failed", { run: active.run, error: errorCode(error) });
    });
  }

  /** A run that was never started, and never will be under this run's name. */
  #again(active: ActiveRun, row: Row): End {
    return active.lookup
      ? { kind: "lookup", active, row }
      : { kind: "again", active, row, attempt: row.attempt };
  }

  /** A run that may have started and of which nothing lives: the verb's `on_crash` decides. */
  #crashed(active: ActiveRun, row: Row): End {
    const uncertain: End = { kind: "uncertain", active, row, pgid: null };
    if (active.lookup) return uncertain;
    const policy = this.#core.policy();
    const verb = policy === null ? undefined : fits(policy, row)?.verb;
    switch (verb?.on_crash) {
      case "rerun":
        if (verb.class !== "observe" && !verb.idempotent) return uncertain;
        if (row.attempt >= ATTEMPTS) return uncertain;
        return { kind: "again", active, row, attempt: row.attempt + 1 };
      case "lookup":
        return { kind: "lookup", active, row };
      default:
        return uncertain;
    }
  }

  #freed(active: ActiveRun): void {
    this.#core.slots.free(active.rid);
    this.#core.runs.forget(active);
  }

  #commit(ends: readonly End[]): boolean {
    const core = this.#core;
    const after: (() => void)[] = [];
    const first: (() => void)[] = [];
    const prepared: Prepared[] = [];
    const undo: (() => void)[] = [];
    const { rids, answered } = core.publisher.takeMarks(MANY_MARKS);
    let more = false;
    const finals = ends.map((end) =>
      end.kind === "exit" && end.exit.started && !end.active.lookup
        ? { end, output: core.runs.output(end.active, end.exit) }
        : { end, output: null }
    );
    try {
      core.ledger.transaction((tx) => {
        tx.markPublished(rids);
        for (const claim of answered) tx.dropAnswer(claim);
        for (const { end, output } of finals) {
          if (end.kind === "again") this.#wait(tx, end, after);
          else if (end.kind === "uncertain") this.#uncertain(tx, end, after);
          else if (end.kind === "lookup") this.#ask(tx, end, { first, after, prepared });
          else if (end.active.lookup) this.#answered(tx, end, after);
          else this.#finish(tx, end, output, after);
        }
        more = this.#startNext(tx, { first, after, prepared, undo });
      });
      this.#fault = null;
    } catch (error) {
      for (const step of undo) step();
      core.runs.undo(prepared, error);
      core.publisher.restoreMarks(rids, answered);
      for (const { end } of finals) this.#ended.add(end.active.run);
      const why = errorCode(error) ?? (error instanceof Error ? error.message : "unknown");
      if (this.#fault !== why) core.log("ERROR", "commit-failed", { error: why });
      this.#fault = why;
      if (error instanceof LedgerError && error.fatal) throw error;
      return false;
    }
    for (const effect of first) effect();
    core.appendText();
    this.#carryOut(after);
    return more;
  }

  /** What follows a commit. One that fails must not keep the others from being done. */
  #carryOut(effects: readonly (() => void)[]): void {
    for (const effect of effects) {
      try {
        effect();
      } catch (error) {
        this.#core.log("ERROR", "after-commit", {
          error: errorCode(error) ?? (error instanceof Error ? error.message : "unknown"),
        });
      }
    }
  }

  #finish(
    tx: Tx,
    end: Extract<End, { kind: "exit" }>,
    output: ReturnType<Core["runs"]["output"]> | null,
    after: (() => void)[],
  ): void {
    const core = this.#core;
    const { active, row, exit } = end;
    const reason = exitReason(exit);
    const reports = core.policy()?.verbs.get(row.verb)?.takes_max_spend ?? true;
    const spend = core.spends.settle(tx, row.rid, active.run, exit.started, reports);
    if (!exit.started && row.attempt > 1 && reason !== "cancelled") {
      const why = reason;
      return this.#uncertain(tx, { kind: "uncertain", active, row, pgid: null, why }, after);
    }
    const audit = tx.append({
      event: "finished",
      agent: row.agent,
      id: row.id,
      run: active.run,
      attempt: row.attempt,
      reason,
      started: exit.started,
      exit_code: exit.exit_code,
      signal: exit.signal,
      duration_ms: exit.duration_ms === null ? null : Math.round(exit.duration_ms),
      stdout_bytes: exit.stdout.bytes,
      stderr_bytes: exit.stderr.bytes,
      ...(exit.detail === "" ? {} : { detail: exit.detail }),
      ...(spend === null ? {} : {
        granted: amountText(spend.granted),
        charged: amountText(spend.charged),
        spend: spend.how,
      }),
    });
    // A cancel is no refusal: the request is remembered as cancelled.
    const cancelled = !exit.started && reason === "cancelled";
    const released = exit.started || cancelled ? [] : core.ledger.idsOf(row.rid);
    if (!exit.started && !cancelled) tx.release(row.rid);
    const state = transition(
      row.state,
      cancelled ? "cancel" : exit.started ? "end" : "not-started",
    );
    const result = cancelled
      ? cancelledResult(row, row.cancel, exit.finished_ms, audit)
      : finishedResult(row, exit, output, audit);
    tx.updateRow(row.rid, {
      state,
      outcome: coded(reason).outcome ?? null,
      reason,
      ...(exit.started_ms === null ? {} : { started_ms: exit.started_ms }),
      finished_ms: exit.finished_ms,
      pgid: null,
      result,
    });
    after.push(() => {
      active.finished = true;
      // As it was committed just now: nobody has to read it again.
      const key = exit.started || cancelled ? row.key : null;
      core.publisher.row({ ...row, key, state, result }, released);
      // A shim that ends with its group holds slot and lock until it is gone.
      if (active.shim !== null || (!active.letGo && runLocked(active.run))) return;
      core.slots.free(active.rid);
      core.runs.forget(active);
    });
  }

  #publish(rid: number, released: readonly string[] = []): void {
    const now = this.#core.ledger.row(rid);
    if (now !== null) this.#core.publisher.row(now, released);
  }

  /** Lets a request wait for a start, unless it was cancelled meanwhile. */
  #wait(tx: Tx, end: Extract<End, { kind: "again" }>, after: (() => void)[]): void {
    const core = this.#core;
    const { active, row } = end;
    const tookPlace = end.attempt !== row.attempt;
    core.spends.again(tx, row.rid, tookPlace);
    if (row.cancel !== null || isCancelMarked(runDir(active.run))) {
      return this.#cancelled(tx, active, row, tookPlace && !active.lookup, after);
    }
    const audit = tx.append({
      event: "repaired",
      agent: row.agent,
      id: row.id,
      run: active.run,
      attempt: end.attempt,
      what: end.attempt === row.attempt ? "never-started" : "rerun",
    });
    const wait_s = core.limits().approval_wait_s;
    const approval = renewApproval(core.ledger, tx, row.rid, tookPlace, core.now(), wait_s);
    const next = { ...row, attempt: end.attempt };
    const result = approval === null
      ? pendingResult(next, "slot", audit)
      : awaitingResult(next, approval, audit);
    tx.updateRow(row.rid, {
      state: transition(row.state, end.attempt === row.attempt ? "void" : "rerun"),
      run: null,
      pgid: null,
      lookup: null,
      started_ms: null,
      started_tick: null,
      attempt: end.attempt,
      result,
    });
    after.push(() => {
      this.#freed(active);
      this.#waits(row);
      if (approval !== null) core.notify("approval", `${row.agent}/${row.id}`);
      this.#publish(row.rid);
      this.#wake();
    });
  }

  /**
   * Settles a request that was cancelled and is not to be started (again).
   *
   * @param started the run may have started, and nobody saw its end
   */
  #cancelled(
    tx: Tx,
    active: ActiveRun,
    row: Row,
    started: boolean,
    after: (() => void)[],
  ): void {
    dropHold(tx, row.rid);
    const audit = tx.append({
      event: "finished",
      agent: row.agent,
      id: row.id,
      run: active.run,
      attempt: row.attempt,
      reason: "cancelled",
      started,
    });
    tx.updateRow(row.rid, {
      state: transition(row.state, "cancel"),
      outcome: "cancelled",
      reason: "cancelled",
      finished_ms: this.#core.now(),
      pgid: null,
      lookup: null,
      result: cancelledResult(row, row.cancel, this.#core.now(), audit, started),
    });
    after.push(() => {
      this.#freed(active);
      this.#publish(row.rid);
    });
  }

  /**
   * Asks the downstream what became of a run. Slot and lock stay taken while it is asked. Without a
   * ready shim, or while the kill switch is up, nothing changes, and the next look at the run comes
   * back here; without anything that could be asked the run is uncertain.
   */
  #ask(
    tx: Tx,
    end: Extract<End, { kind: "lookup" }>,
    batch: { first: (() => void)[]; after: (() => void)[]; prepared: Prepared[] },
  ): void {
    const core = this.#core;
    const { active, row } = end;
    const policy = core.policy();
    const fit = policy === null ? null : fits(policy, row);
    if (policy === null || fit === null || fit.verb.lookup === null) {
      return this.#uncertain(tx, { kind: "uncertain", active, row, pgid: null }, batch.after);
    }
    if (core.stopping() || core.kill(row.agent) !== null) return;
    let ready: Prepared | null = null;
    try {
      ready = core.runs.prepareLookup(startFacts(row, fit, row.max_spend), policy);
    } catch (error) {
      core.log("WARN", "lookup-failed", { error: errorCode(error) ?? "not-trusted" });
      if (errorCode(error) !== undefined) return;
      return this.#uncertain(tx, { kind: "uncertain", active, row, pgid: null }, batch.after);
    }
    if (ready === null) return;
    const { order, run } = ready;
    batch.prepared.push(ready);
    tx.append({
      event: "started",
      agent: row.agent,
      id: row.id,
      verb: row.verb,
      run,
      attempt: row.attempt,
      lookup_of: row.run,
      command_sha256: order.command_sha256,
      policy: policy.digest,
    });
    tx.updateRow(row.rid, { lookup: run });
    const prepared = ready;
    batch.first.push(() => {
      core.runs.forget(active);
      core.runs.launch(row.rid, row.lock, prepared);
    });
  }

  /** Records what the downstream said. */
  #answered(tx: Tx, end: Extract<End, { kind: "exit" }>, after: (() => void)[]): void {
    const { active, row, exit } = end;
    const answer = readAnswer(this.#core.policy(), row, active.run, exit);
    const now = this.#core.now();
    const facts = { lookup: active.run, exit_code: exit.exit_code, kind: exit.kind };
    const resolved = { by: "lookup", at: isoTime(now) } as const;
    if (answer === "unknown") {
      const why = "no-answer";
      return this.#uncertain(tx, { kind: "uncertain", active, row, pgid: null, why }, after, facts);
    }
    if (answer === "not-done" && row.attempt < ATTEMPTS) {
      tx.append(resolvedEvent(row, { ...resolved, as: "retry" }, facts));
      return this.#wait(tx, { kind: "again", active, row, attempt: row.attempt + 1 }, after);
    }
    const as = answer === "done" ? "done" : "failed";
    settleRow(tx, row, { ...resolved, as }, "look-up", now, facts);
    after.push(() => {
      this.#publish(row.rid);
      this.#freed(active);
    });
  }

  #uncertain(
    tx: Tx,
    end: Extract<End, { kind: "uncertain" }>,
    after: (() => void)[],
    facts: Readonly<Record<string, unknown>> = {},
  ): void {
    const { active, row, pgid, why } = end;
    const event = why === undefined || active.lookup ? "lose" : "not-again";
    loseRow(tx, row, event, pgid, this.#core.now(), {
      run: active.run,
      ...(why === undefined ? {} : { why }),
      ...facts,
    });
    after.push(() => {
      active.finished = true;
      this.#publish(row.rid);
      this.#core.notify("uncertain", `${row.agent}/${row.id}`);
      if (pgid === null) return this.#freed(active);
      this.#leftovers.add(row.rid, pgid, row.lock);
      this.#core.runs.forget(active);
    });
  }

  /** Starts waiting requests while there are slots and ready shims. */
  #startNext(
    tx: Tx,
    batch: {
      first: (() => void)[];
      after: (() => void)[];
      prepared: Prepared[];
      undo: (() => void)[];
    },
  ): boolean {
    const core = this.#core;
    if (core.stopping()) return false;
    const policy = core.policy();
    for (let n = 0; n < 32; n++) {
      const next = core.slots.peek();
      if (next === null) return false;
      const row = core.ledger.row(next.rid);
      if (row === null || row.state !== "pending") {
        core.slots.forget(next.agent, next.rid);
        continue;
      }
      const { expires_ms } = next;
      if (expires_ms < core.now()) {
        // The look at all of them once a second may be yet to come: after a start, for one.
        const entry = waitingEntry(core.ledger, row);
        this.#expire(tx, { row, entry, lapsed: false }, core.now(), batch);
        continue;
      }
      const fit = policy === null ? null : fits(policy, row);
      const refusal = fit === null ? gone(row) : recheck(row.agent, fit, this.#deps) ??
        this.#daySays(row, fit.verb);
      if (refusal !== null || fit === null || policy === null) {
        this.#turnDown(tx, row, refusal ?? gone(row), batch);
        continue;
      }
      const approval = fit.verb.approval === "never" ? null : core.ledger.approval(row.rid);
      if (fit.verb.approval !== "never") {
        const plan = planOf(row, policy, core.trust, Deno.cwd());
        if (approval === null || plan === null) {
          this.#turnDown(tx, row, gone(row), batch);
          continue;
        }
        if (!isApproved(approval, plan)) {
          const wait_s = policy.limits.approval_wait_s;
          const again = voidApproval(tx, row, approval, plan, core.now(), wait_s);
          this.#hold(tx, row, next, again, batch);
          continue;
        }
      }
      const grant = grantFor(fit.verb, policy.limits, row.max_spend);
      const granted = grant.kind === "granted" ? grant.amount : null;
      let prepared: Prepared | null = null;
      try {
        const max_spend = granted === null ? row.max_spend : amountNumber(granted);
        prepared = core.runs.prepare(startFacts(row, fit, max_spend), policy);
      } catch (error) {
        core.runs.orderFailed(error);
      }
      if (prepared === null) return false;
      const ready = prepared;
      batch.prepared.push(ready);
      const now = core.now();
      const audit: RecordRef = tx.append({
        event: "started",
        agent: row.agent,
        id: row.id,
        verb: row.verb,
        run: ready.run,
        attempt: row.attempt,
        command_sha256: ready.order.command_sha256,
        policy: policy.digest,
      });
      if (approval !== null) consumeApproval(core.ledger, tx, row.rid);
      if (granted !== null) core.spends.reserve(tx, row.rid, row.agent, granted);
      tx.updateRow(row.rid, {
        state: transition(row.state, "start"),
        run: ready.run,
        pgid: ready.order.pgid,
        started_ms: now,
        started_tick: core.clock.now(),
        policy: policy.digest,
        result: runningResult(row, now, row.timeout_ms, audit),
      });
      core.slots.start(row.rid, row.agent, row.lock);
      batch.undo.push(() => {
        core.slots.free(row.rid);
        core.slots.wait(next);
      });
      batch.first.push(() => {
        core.runs.launch(row.rid, row.lock, ready);
      });
      batch.after.push(() => core.publisher.soon(row.rid));
    }
    return true;
  }

  /** Why the agent's day has no room any more for what a request would spend, or null. */
  #daySays(row: Row, verb: VerbPolicy): Refusal | null {
    const limits = this.#core.limits();
    const grant = grantFor(verb, limits, row.max_spend);
    if (grant.kind === "none") return null;
    const { spent, blocked } = this.#core.spends.day(row.agent);
    const full = grant.kind === "refused"
      ? grant
      : dayRefuses(grant.amount, limits, { spent, blocked, held: 0n });
    if (full === null) return null;
    return {
      stage: "recheck",
      reason: "spend-exceeded",
      message: full.message,
      hint: full.hint,
    };
  }

  /** Takes a request whose approval is void out of the queue until there is another word. */
  #hold(
    tx: Tx,
    row: Row,
    entry: Waiting,
    approval: Approval,
    batch: { after: (() => void)[]; undo: (() => void)[] },
  ): void {
    const { slots } = this.#core;
    const audit = tx.head ?? { seq: 0, hash: "" };
    tx.updateRow(row.rid, {
      state: transition(row.state, "void-approval"),
      result: awaitingResult(row, approval, audit),
    });
    slots.forget(row.agent, row.rid);
    slots.wait({ ...entry, held_until_ms: approval.until_ms });
    batch.undo.push(() => {
      slots.forget(row.agent, row.rid);
      slots.wait(entry);
    });
    batch.after.push(() => {
      this.#publish(row.rid);
      this.#core.notify("approval", `${row.agent}/${row.id}`);
    });
  }

  /** Answers a waiting request that must not start, and frees its id and key. */
  #turnDown(
    tx: Tx,
    row: Row,
    refusal: Refusal,
    batch: { after: (() => void)[]; undo: (() => void)[] },
  ): void {
    const core = this.#core;
    const entry = waitingEntry(core.ledger, row);
    const released = turnDown(core.ledger, tx, row, refusal, core.now());
    core.slots.forget(row.agent, row.rid);
    batch.undo.push(() => core.slots.wait(entry));
    batch.after.push(() => this.#publish(row.rid, released));
  }

  /** Settles a waiting request that is too old to start, or that no human answered in time. */
  #expire(
    tx: Tx,
    one: { readonly row: Row; readonly entry: Waiting; readonly lapsed: boolean },
    now: number,
    batch: { after: (() => void)[]; undo: (() => void)[] },
  ): void {
    const { row, entry, lapsed } = one;
    if (row.attempt > 1) {
      loseRow(tx, row, "not-again", null, now, {
        why: lapsed ? "approval-lapsed" : "expired",
      });
      this.#core.slots.forget(row.agent, row.rid);
      batch.undo.push(() => this.#core.slots.wait(entry));
      batch.after.push(() => this.#publish(row.rid));
      return;
    }
    const reason = lapsed ? "approval-lapsed" : "expired";
    const audit = tx.append({
      event: "finished",
      agent: row.agent,
      id: row.id,
      reason,
      started: false,
    });
    const result: Result = {
      ...base(row),
      state: "done",
      ...coded(reason),
      stage: lapsed ? "approval" : "slot",
      message: lapsed
        ? "No human answered in time; the request was not started"
        : "The request waited longer than its age limit and was not started",
      hint: "If it is still wanted, send it again under a new id and key",
      finished_at: isoTime(now),
      audit,
    };
    tx.updateRow(row.rid, {
      state: transition(row.state, lapsed ? "lapse" : "expire"),
      outcome: coded(reason).outcome ?? null,
      reason,
      finished_ms: now,
      result,
    });
    dropHold(tx, row.rid);
    const approval = this.#core.ledger.approval(row.rid);
    if (lapsed && approval !== null) {
      tx.putApproval(row.rid, { ...approval, state: "lapsed", at_ms: now });
    }
    this.#core.slots.forget(row.agent, row.rid);
    batch.undo.push(() => this.#core.slots.wait(entry));
    batch.after.push(() => this.#publish(row.rid));
  }

  /**
   * Answers waiting requests that are too old, or whose agent's kill switch went up. A bounded
   * number; `turn` comes back for the rest.
   */
  lapse(): void {
    const core = this.#core;
    const now = core.now();
    const killed = new Map<string, string | null>();
    const expired: { row: Row; entry: Waiting; lapsed: boolean }[] = [];
    const refused: { row: Row; refusal: Refusal }[] = [];
    for (const w of core.slots.all()) {
      if (!killed.has(w.agent)) killed.set(w.agent, core.kill(w.agent));
      const up = killed.get(w.agent) ?? null;
      const lapsed = (w.held_until_ms ?? Infinity) < now;
      if (up === null && w.expires_ms >= now && !lapsed) continue;
      const row = core.ledger.row(w.rid);
      if (row === null) continue;
      if (up === null) expired.push({ row, entry: w, lapsed: w.expires_ms >= now });
      else {
        const refusal = recheck(row.agent, undefined, { ...this.#deps, kill: () => up });
        if (refusal !== null) refused.push({ row, refusal });
      }
      if (expired.length + refused.length >= LAPSES) break;
    }
    this.#lapsing = expired.length + refused.length >= LAPSES;
    if (expired.length + refused.length === 0) return;
    const after: (() => void)[] = [];
    const undo: (() => void)[] = [];
    try {
      core.ledger.transaction((tx) => {
        for (const { row, refusal } of refused) this.#turnDown(tx, row, refusal, { after, undo });
        for (const one of expired) this.#expire(tx, one, now, { after, undo });
      });
    } catch (error) {
      for (const step of undo) step();
      this.#lapsing = false;
      core.log("ERROR", "commit-failed", { error: errorCode(error) });
      if (error instanceof LedgerError && error.fatal) throw error;
      return;
    }
    this.#carryOut(after);
  }
}

/** What a run of a row is started with; the spending is what was granted for it. */
function startFacts(row: Row, fit: Fit, max_spend: number | null): StartFacts {
  return {
    agent: row.agent,
    id: row.id,
    key: row.key ?? row.id,
    verb: fit.verb,
    args: fit.args,
    max_spend,
    timeout_ms: row.timeout_ms,
    attempt: row.attempt,
  };
}

/** True while the row is running and this is the run that it waits for. */
function goesOn(row: Row | null, active: ActiveRun): row is Row {
  return row !== null && row.state === "running" &&
    (active.lookup ? row.lookup : row.lookup ?? row.run) === active.run;
}

function gone(row: Row): Refusal {
  return {
    stage: "recheck",
    reason: "base-changed",
    message: `The policy changed while the request waited; "${row.verb}" does not fit it any more`,
    hint: "Read inbox/catalogue.json and send a request that fits",
  };
}

/** True when an order is void, or could be voided now: it was never started and never will be. */
function isVoid(run: string): boolean {
  return voidOrder(run) || look(`${runDir(run)}/${RUN_FILES.void}`) !== null;
}

/** The exit of a run that the daemon ended because its shim did not. */
function forcedExit(active: ActiveRun): Exit {
  const none = { bytes: 0, file_bytes: 0, tail: "", complete: false };
  return {
    chb: 1,
    run: active.run,
    kind: active.markedAt === null ? "timed_out" : "cancelled",
    started: true,
    exit_code: null,
    signal: "SIGKILL",
    detail: "backstop",
    started_ms: null,
    finished_ms: Date.now(),
    duration_ms: null,
    stdout: none,
    stderr: none,
  };
}
