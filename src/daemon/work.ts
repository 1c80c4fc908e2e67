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
 * 4. The order was taken: it may have started. While its process group lives, slot and lock stay
 *    taken. When the group is empty the verb's `on_crash` decides; the default is `uncertain`, and
 *    nothing is ever run again on a guess (S7).
 * 5. A group that lives on past the deadline, with nobody left who could end it, makes the run
 *    `uncertain` and keeps slot and lock until it is empty, over a restart too: what is said to be
 *    over must not go on beside the next holder of its lock (X18).
 *
 * @module
 */
import { errorCode, type Refusal } from "../errors.ts";
import type { GateDeps } from "../gates/candidate.ts";
import { recheck } from "../gates/order.ts";
import type { Tx } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { RecordRef, Row } from "../ledger/types.ts";
import { checkArgs } from "../policy/check_args.ts";
import { type CheckedArgs, CLASSES, type Policy, type VerbPolicy } from "../policy/policy.ts";
import { coded, isoTime, type Result } from "../result.ts";
import { readExit } from "../run/exit_record.ts";
import { groupAlive, killGroup } from "../run/kill_group.ts";
import { type Exit, RUN_FILES } from "../run/order.ts";
import { markCancel, readTaken, runLocked, voidOrder } from "../run/order_file.ts";
import type { Shim, ShimLine } from "../run/pool.ts";
import { runDir } from "../run/run_dir.ts";
import { look } from "../spool/look.ts";
import { transition } from "../transitions.ts";
import type { Core } from "./core.ts";
import { pendingResult, runningResult } from "./intake.ts";
import { type ActiveRun, base, exitReason, finishedResult, type Prepared } from "./runs.ts";
import { turnDown } from "./turn_down.ts";

/** Milliseconds past deadline and grace after which the daemon ends a run itself. */
const BACKSTOP_MS = 10_000;
/** Milliseconds between two looks whether a group that was left over lives. */
const LEFTOVER_MS = 3000;
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
  | {
    readonly kind: "uncertain";
    readonly active: ActiveRun;
    readonly row: Row;
    readonly pgid: number | null;
  };

/** A process group that nobody is left to end. */
interface Leftover {
  readonly pgid: number;
  /** Monotonic clock, milliseconds. */
  askAt: number;
  asked: boolean;
}

export class Work {
  readonly #core: Core;
  readonly #deps: RecheckDeps;
  readonly #wake: () => void;
  /** Runs whose shim said that they ended, or is gone. */
  readonly #ended = new Set<string>();
  /** Runs whose process group is being asked for. */
  readonly #probing = new Set<string>();
  readonly #forced = new Set<string>();
  /** Process groups that outlived their runs, by row: they hold slot and lock. */
  readonly #leftovers = new Map<number, Leftover>();
  #fault: string | null = null;
  /** More waiting requests have to be answered than one step does. */
  #lapsing = false;

  constructor(core: Core, deps: RecheckDeps, wake: () => void) {
    this.#core = core;
    this.#deps = deps;
    this.#wake = wake;
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

  /** A shim of this daemon's own tells about its run. */
  shimSaid(_shim: Shim, line: ShimLine): void {
    const active = this.#core.runs.active.get(line.run);
    if (active === undefined) return;
    // A shim that is free again, or that took nothing, has let go of the lock.
    if (line.reusable) active.shim = null;
    this.ended(line.run);
  }

  /** A shim of this daemon's own has died or left. */
  shimGone(shim: Shim): void {
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
    for (const active of this.#core.runs.active.values()) {
      if (active.shim !== null && !active.finished) {
        this.#backstop(active, now);
        continue;
      }
      if (active.shim === null && !runLocked(active.run)) this.#ended.add(active.run);
      else this.#backstop(active, now);
    }
    this.#askLeftovers();
    this.lapse();
    this.#wake();
  }

  /** Asks every running command to stop, for a shutdown that cancels. */
  cancelAll(): void {
    for (const active of this.#core.runs.active.values()) {
      if (!active.finished) markCancel(active.run);
    }
  }

  #backstop(active: ActiveRun, now: number): void {
    const late = now - active.since > active.timeout_ms + active.grace_ms + BACKSTOP_MS;
    if (!late || active.finished || this.#forced.has(active.run)) return;
    if (!runLocked(active.run)) return;
    const taken = readTaken(active.run);
    if (taken === null) return;
    this.#forced.add(active.run);
    this.#core.log("WARN", "backstop", { run: active.run, pgid: taken.pgid });
    killGroup(taken.pgid, "CONT").then(() => killGroup(taken.pgid, "KILL")).catch(() => {
      this.#forced.delete(active.run);
    });
  }

  /** What became of a run, or null when it is not known yet. */
  #judge(active: ActiveRun): End | null {
    const row = this.#core.ledger.row(active.rid);
    if (row === null || row.state !== "running" || row.run !== active.run) {
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
    if (voidOrder(active.run) || look(`${runDir(active.run)}/${RUN_FILES.void}`) !== null) {
      return { kind: "again", active, row, attempt: row.attempt };
    }
    // The exit record may have been written between the two looks.
    const late = readExit(runDir(active.run), active.run);
    if (late !== null) return { kind: "exit", active, row, exit: late };
    const taken = readTaken(active.run);
    if (this.#forced.has(active.run) && taken !== null) {
      return { kind: "exit", active, row, exit: forcedExit(active) };
    }
    if (this.#probing.has(active.run)) return null;
    if (taken === null) return this.#crashed(active, row, null);
    this.#probe(active, row, taken.pgid);
    return null;
  }

  /** Asks whether anything of the group lives; the answer comes back as an ended run. */
  #probe(active: ActiveRun, row: Row, pgid: number): void {
    this.#probing.add(active.run);
    groupAlive(pgid).then((alive) => {
      this.#probing.delete(active.run);
      const over = performance.now() - active.since > active.timeout_ms + active.grace_ms;
      if (alive && !over) return;
      const again = this.#core.ledger.row(row.rid);
      if (again === null || again.state !== "running" || again.run !== active.run) return;
      if (runLocked(active.run)) return;
      const exit = readExit(runDir(active.run), active.run);
      const end: End = exit !== null
        ? { kind: "exit", active, row: again, exit }
        : alive
        ? { kind: "uncertain", active, row: again, pgid }
        : this.#crashed(active, again, null);
      this.#commit([end]);
      this.#wake();
    }).catch((error) => {
      this.#probing.delete(active.run);
      this.#core.log("WARN", "probe-failed", { run: active.run, error: errorCode(error) });
    });
  }

  /** A run that may have started and of which nothing lives: the verb's `on_crash` decides. */
  #crashed(active: ActiveRun, row: Row, pgid: number | null): End {
    const verb = this.#core.policy()?.verbs.get(row.verb);
    if (verb?.on_crash === "rerun" && (verb.class === "observe" || verb.idempotent)) {
      if (row.attempt < 2) return { kind: "again", active, row, attempt: row.attempt + 1 };
    }
    return { kind: "uncertain", active, row, pgid };
  }

  /**
   * Takes up what an earlier daemon left behind: a run that is uncertain by now and whose process
   * group may live.
   *
   * @param run a run directory of which no unfinished row knows
   */
  leftOver(run: string): void {
    if (this.#core.runs.active.has(run) || runLocked(run)) return;
    const order = readTaken(run);
    if (order === null) return;
    const row = this.#core.ledger.rowById(order.agent, order.id);
    if (row === null || row.run !== run || row.state !== "uncertain") return;
    this.#core.slots.start(row.rid, row.agent, row.lock);
    this.#leftovers.set(row.rid, { pgid: order.pgid, askAt: 0, asked: false });
    this.#askLeftovers();
  }

  /** Frees what runs hold of which nothing lives any more. */
  #askLeftovers(): void {
    const now = performance.now();
    for (const [rid, leftover] of this.#leftovers) {
      if (leftover.asked || now < leftover.askAt) continue;
      leftover.asked = true;
      groupAlive(leftover.pgid).then((alive) => {
        leftover.askAt = performance.now() + LEFTOVER_MS;
        if (alive) return;
        this.#leftovers.delete(rid);
        this.#core.slots.free(rid);
        this.#wake();
      }).finally(() => leftover.asked = false);
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
    const { rids, answered } = core.publisher.takeMarks();
    let more = false;
    const finals = ends.map((end) =>
      end.kind === "exit" && end.exit.started
        ? { end, output: core.runs.output(end.active, end.exit) }
        : { end, output: null }
    );
    try {
      core.ledger.transaction((tx) => {
        tx.markPublished(rids);
        for (const claim of answered) tx.dropAnswer(claim);
        for (const { end, output } of finals) {
          if (end.kind === "exit") this.#finish(tx, end, output, after);
          else if (end.kind === "again") this.#again(tx, end, after);
          else this.#uncertain(tx, end, after);
        }
        more = this.#startNext(tx, { first, after, prepared, undo });
      });
      this.#fault = null;
    } catch (error) {
      for (const step of undo) step();
      for (const p of prepared) core.runs.withdraw(p);
      core.publisher.restoreMarks(rids, answered);
      for (const { end } of finals) this.#ended.add(end.active.run);
      const why = errorCode(error) ?? (error instanceof Error ? error.message : "unknown");
      if (this.#fault !== why) core.log("ERROR", "commit-failed", { error: why });
      this.#fault = why;
      if (error instanceof LedgerError && error.fatal) throw error;
      return false;
    }
    for (const effect of first) effect();
    for (const effect of after) effect();
    return more;
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
    });
    const released = exit.started ? [] : core.ledger.idsOf(row.rid);
    if (!exit.started) tx.release(row.rid);
    tx.updateRow(row.rid, {
      state: transition(row.state, exit.started ? "end" : "not-started"),
      outcome: coded(reason).outcome ?? null,
      reason,
      ...(exit.started_ms === null ? {} : { started_ms: exit.started_ms }),
      finished_ms: exit.finished_ms,
      result: finishedResult(row, exit, output, audit),
    });
    after.push(() => {
      active.finished = true;
      this.#publish(row.rid, released);
      // A shim that ends with its group holds slot and lock until it is gone.
      if (active.shim !== null || runLocked(active.run)) return;
      core.slots.free(active.rid);
      core.runs.forget(active);
    });
  }

  #publish(rid: number, released: readonly string[] = []): void {
    const now = this.#core.ledger.row(rid);
    if (now !== null) this.#core.publisher.row(now, released);
  }

  #again(tx: Tx, end: Extract<End, { kind: "again" }>, after: (() => void)[]): void {
    const core = this.#core;
    const { active, row } = end;
    const audit = tx.append({
      event: "repaired",
      agent: row.agent,
      id: row.id,
      run: active.run,
      attempt: end.attempt,
      what: end.attempt === row.attempt ? "never-started" : "rerun",
    });
    const result = pendingResult({ ...row, attempt: end.attempt }, "slot", audit);
    tx.updateRow(row.rid, {
      state: transition(row.state, end.attempt === row.attempt ? "void" : "rerun"),
      run: null,
      started_ms: null,
      attempt: end.attempt,
      result,
    });
    after.push(() => {
      core.slots.free(row.rid);
      core.runs.forget(active);
      core.slots.wait({
        rid: row.rid,
        agent: row.agent,
        lock: row.lock,
        expires_ms: row.expires_ms,
      });
      this.#publish(row.rid);
      this.#wake();
    });
  }

  #uncertain(tx: Tx, end: Extract<End, { kind: "uncertain" }>, after: (() => void)[]): void {
    const { active, row } = end;
    const audit = tx.append({
      event: "uncertain",
      agent: row.agent,
      id: row.id,
      run: active.run,
      attempt: row.attempt,
      ...(end.pgid === null ? {} : { pgid: end.pgid }),
    });
    const result: Result = {
      ...base(row),
      state: "uncertain",
      ...coded("uncertain"),
      message: "It may or may not have happened: what ran it died without leaving a record",
      hint: "It is not run again. A human looks at what it did and decides on the host",
      ...(row.started_ms === null ? {} : { started_at: isoTime(row.started_ms) }),
      finished_at: isoTime(this.#core.now()),
      audit,
    };
    tx.updateRow(row.rid, {
      state: transition(row.state, "lose"),
      outcome: null,
      reason: "uncertain",
      finished_ms: this.#core.now(),
      result,
    });
    after.push(() => {
      active.finished = true;
      this.#publish(row.rid);
      if (end.pgid === null) return this.#freed(active);
      this.#leftovers.set(row.rid, { pgid: end.pgid, askAt: 0, asked: false });
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
      const fit = policy === null ? null : fits(policy, row);
      const refusal = fit === null ? gone(row) : recheck(row.agent, fit, this.#deps);
      if (refusal !== null || fit === null || policy === null) {
        this.#turnDown(tx, row, refusal ?? gone(row), batch);
        continue;
      }
      let prepared: Prepared | null = null;
      try {
        prepared = core.runs.prepare({
          agent: row.agent,
          id: row.id,
          key: row.key ?? row.id,
          verb: fit.verb,
          args: fit.args,
          max_spend: row.max_spend,
          timeout_ms: row.timeout_ms,
          attempt: row.attempt,
        }, policy);
      } catch (error) {
        core.log("WARN", "order-failed", { error: errorCode(error) });
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
      tx.updateRow(row.rid, {
        state: transition(row.state, "start"),
        run: ready.run,
        started_ms: now,
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

  /** Answers a waiting request that must not start, and frees its id and key. */
  #turnDown(
    tx: Tx,
    row: Row,
    refusal: Refusal,
    batch: { after: (() => void)[]; undo: (() => void)[] },
  ): void {
    const core = this.#core;
    const released = turnDown(core.ledger, tx, row, refusal, core.now());
    core.slots.forget(row.agent, row.rid);
    batch.undo.push(() =>
      core.slots.wait({
        rid: row.rid,
        agent: row.agent,
        lock: row.lock,
        expires_ms: row.expires_ms,
      })
    );
    batch.after.push(() => this.#publish(row.rid, released));
  }

  /**
   * Answers waiting requests that are too old, or whose agent's kill switch went up. A bounded
   * number; `turn` comes back for the rest.
   */
  lapse(): void {
    const core = this.#core;
    const now = core.now();
    const killed = new Map<string, string | null>();
    const expired: Row[] = [];
    const refused: { row: Row; refusal: Refusal }[] = [];
    for (const w of core.slots.all()) {
      if (!killed.has(w.agent)) killed.set(w.agent, core.kill(w.agent));
      const up = killed.get(w.agent) ?? null;
      if (up === null && w.expires_ms >= now) continue;
      const row = core.ledger.row(w.rid);
      if (row === null) continue;
      if (up === null) expired.push(row);
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
        for (const row of expired) {
          const audit = tx.append({
            event: "finished",
            agent: row.agent,
            id: row.id,
            reason: "expired",
            started: false,
          });
          const result: Result = {
            ...base(row),
            state: "done",
            ...coded("expired"),
            stage: "slot",
            message: "The request waited longer than its age limit and was not started",
            hint: "If it is still wanted, send it again under a new key",
            finished_at: isoTime(now),
            audit,
          };
          tx.updateRow(row.rid, {
            state: transition(row.state, "expire"),
            outcome: "expired",
            reason: "expired",
            finished_ms: now,
            result,
          });
          core.slots.forget(row.agent, row.rid);
          undo.push(() =>
            core.slots.wait({
              rid: row.rid,
              agent: row.agent,
              lock: row.lock,
              expires_ms: row.expires_ms,
            })
          );
          after.push(() => this.#publish(row.rid));
        }
      });
    } catch (error) {
      for (const step of undo) step();
      this.#lapsing = false;
      core.log("ERROR", "commit-failed", { error: errorCode(error) });
      if (error instanceof LedgerError && error.fatal) throw error;
      return;
    }
    for (const effect of after) effect();
  }
}

/**
 * The verb and arguments of a waiting request under the policy now in force, or null when that
 * policy would not let it in: a human may have narrowed it since.
 */
function fits(policy: Policy, row: Row): { verb: VerbPolicy; args: CheckedArgs } | null {
  const verb = policy.verbs.get(row.verb);
  const agent = policy.agents.get(row.agent);
  if (verb === undefined || agent === undefined || !agent.verbs.includes(row.verb)) return null;
  // Scope and rate were weighed for the class that it had, and nobody was asked to approve it.
  if (verb.class !== row.class || verb.approval !== "never") return null;
  if (CLASSES.indexOf(verb.class) > CLASSES.indexOf(agent.scope)) return null;
  const checked = checkArgs(verb, JSON.parse(row.args));
  return checked.ok ? { verb, args: checked.args } : null;
}

function gone(row: Row): Refusal {
  return {
    stage: "recheck",
    reason: "base-changed",
    message: `The policy changed while the request waited; "${row.verb}" does not fit it any more`,
    hint: "Read inbox/catalogue.json and send a request that fits",
  };
}

/** The exit of a run that the daemon ended because its shim did not. */
function forcedExit(active: ActiveRun): Exit {
  const none = { bytes: 0, file_bytes: 0, tail: "", complete: false };
  return {
    chb: 1,
    run: active.run,
    kind: "timed_out",
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
