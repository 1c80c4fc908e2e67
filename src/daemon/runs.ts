/**
 * Runs from order to result: what the daemon does before the `running` commit, after it, and when
 * a shim says that a run has ended.
 *
 * 1. The run directory and its order exist before the commit, and the shim takes the order while the
 *    commit is made; it starts nothing before it hears that the commit is done. Whoever dies in
 *    between leaves an order that nobody took: the shim puts it back.
 * 2. The daemon never starts a program and never sees its pipes; it reads the raw files (X13).
 * 3. An exit record is believed only with the run's own id in it.
 * 4. A run without an exit record that may have started is uncertain, never run again by itself.
 * 5. What an agent sees of output is masked; raw output stays in the run directory.
 *
 * @module
 */
import type { Reason } from "../codes.ts";
import { checkArgs } from "../policy/check_args.ts";
import { notifyVerb } from "../policy/notify_verb.ts";
import { errorCode } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { Row } from "../ledger/types.ts";
import { randomHex } from "../names.ts";
import type {
  CheckedArgs,
  FileIdentity,
  Policy,
  ResolvedCommand,
  VerbPolicy,
} from "../policy/policy.ts";
import { commandDigest, resolveCommand, resolveLookup } from "../policy/resolve_command.ts";
import { coded, isoTime, type OutputView, type Result } from "../result.ts";
import { beatOf } from "../run/beat.ts";
import { type Exit, type Order, RUN_FILES, type StreamEnd } from "../run/order.ts";
import { BlankRuns } from "../run/blank_runs.ts";
import { markCancel, prepareRun, removeRun } from "../run/order_file.ts";
import { isCancelMarked } from "../run/look_before_start.ts";
import { type ResolveContext, resolveContext, runDir } from "../run/run_dir.ts";
import { type ByteFilter, OutputMirror } from "../run/output_view.ts";
import type { Shim, ShimPool } from "../run/pool.ts";
import { openOutput, type OutputFile } from "../spool/publish.ts";
import { cancelWords } from "./cancel.ts";
import type { Log } from "./log.ts";
import { Maskings } from "./maskings.ts";
import { base } from "./row_fields.ts";
import { makeMessages } from "./run_messages.ts";
import type { TrustStore } from "./trust_store.ts";

/** Milliseconds after which a running command's output is mirrored for the first time. */
const MIRROR_MS = 250;

/** Output of one stream that is taken in at once, bytes: masking costs time in proportion. */
const PUMP_BYTES = 1024 * 1024;

/** Milliseconds after which a shim that has not put back a withdrawn order is replaced. */
const PUT_BACK_MS = 10_000;

/** Run directories with output kept for an hour, at most so many. */
const MAX_KEPT_RUNS = 2000;
const KEEP_RUN_MS = 3_600_000;

/** What is needed to start one run. */
export interface StartFacts {
  readonly agent: string;
  readonly id: string;
  readonly key: string;
  readonly verb: VerbPolicy;
  readonly args: CheckedArgs;
  readonly max_spend: number | null;
  readonly timeout_ms: number;
  readonly attempt: number;
}

/** A run whose order is written, and whose shim waits for the word that its start is committed. */
export interface Prepared {
  readonly run: string;
  readonly order: Order;
  readonly shim: Shim;
}

/** A run that is going on, as far as this daemon knows. */
export interface ActiveRun {
  readonly rid: number;
  readonly agent: string;
  readonly id: string;
  readonly run: string;
  readonly lock: string | null;
  /** The shim that runs it, when it is this daemon's own child. */
  shim: Shim | null;
  readonly mirrors: { stdout: Mirror; stderr: Mirror };
  /** Since when this daemon knows of it: monotonic clock, milliseconds. */
  readonly since: number;
  /** How long it had gone on by then, milliseconds of the bridge's own clock. */
  readonly before_ms: number;
  /** How much of that its shim was awake, as far as it told: none for a run of this daemon. */
  readonly awake_ms: number;
  readonly timeout_ms: number;
  readonly grace_ms: number;
  /** It asks what became of an earlier run of the row. Its output is nobody's result. */
  readonly lookup: boolean;
  /** Its shim has told about it. */
  told: boolean;
  /** Monotonic time at which its exit record was seen while its shim had told nothing, or null. */
  recordedAt: number | null;
  /** Its shim said that it is free again, and has let go of the run's lock before that. */
  letGo: boolean;
  /** Its shim said that it took no order: nothing was started and nothing will be. */
  gone: boolean;
  /** Somebody asked for its end. The mark is left again until it is known to be there. */
  asked: boolean;
  /** Monotonic time at which its mark was first seen, milliseconds; null without one. */
  markedAt: number | null;
  /** The result is committed; only slot and lock are still held. */
  finished: boolean;
  /** Both streams as the result tells them, once the run has ended. */
  output: { stdout: OutputView; stderr: OutputView } | null;
}

/** One stream of a run on its way into `results/`. */
class Mirror {
  readonly #mirror: OutputMirror;
  #file: OutputFile | null = null;

  constructor(
    agent: string,
    id: string,
    run: string,
    stream: "stdout" | "stderr",
    filter: () => ByteFilter,
  ) {
    const name = `${id}.${stream}`;
    this.#mirror = new OutputMirror({
      path: `${runDir(run)}/${RUN_FILES[stream]}`,
      file: name,
      filter,
      append: (bytes) => {
        this.#file ??= openOutput(agent, name);
        this.#file.append(bytes);
      },
    });
  }

  pump(): void {
    this.#mirror.pump();
  }

  /** True when so much of the stream is left that it is better taken in over several turns. */
  behind(end: StreamEnd): boolean {
    return end.file_bytes - this.#mirror.read > PUMP_BYTES && this.#mirror.pump(PUMP_BYTES);
  }

  finish(end: StreamEnd): OutputView {
    try {
      return this.#mirror.finish(end);
    } finally {
      this.abandon();
    }
  }

  abandon(): void {
    this.#file?.close();
    this.#file = null;
  }
}

export class Runs {
  readonly #active = new Map<string, ActiveRun>();
  readonly #kept: { run: string; until: number }[] = [];
  readonly #pool: ShimPool;
  readonly #trust: TrustStore;
  readonly #log: Log;
  readonly #root = Deno.cwd();
  #fault: string | null = null;
  /** What is masked in everything that agents read. */
  readonly maskings: Maskings;
  /** Run directories made beforehand. */
  readonly blanks = new BlankRuns();
  /** Runs that were withdrawn, by the shim that is to put the order back; since: monotonic clock. */
  readonly #withdrawn = new Map<Shim, { readonly run: string; readonly since: number }>();

  constructor(pool: ShimPool, trust: TrustStore, log: Log) {
    this.maskings = new Maskings(trust, log);
    this.#pool = pool;
    this.#trust = trust;
    this.#log = log;
  }

  /** Why the last order could not be stored, or null. */
  get fault(): string | null {
    return this.#fault;
  }

  /** Notes that `prepare` threw: the request waits and is tried again. */
  orderFailed(error: unknown): void {
    const why = errorCode(error) ?? (error instanceof Error ? error.name : "unknown");
    if (why !== this.#fault) this.#log("WARN", "order-failed", { error: why });
    this.#fault = why;
  }

  get active(): ReadonlyMap<string, ActiveRun> {
    return this.#active;
  }

  /**
   * Takes a ready shim and writes the order for it.
   *
   * @returns null when no shim is ready
   * @throws a system error when the order cannot be stored; the shim is ready again then
   */
  prepare(facts: StartFacts, policy: Policy): Prepared | null {
    const program = this.#trust.program(facts.verb.program);
    if (program === null) return null;
    return this.#prepare(facts, policy, {
      lookup: false,
      reuse: facts.verb.class === "observe",
      program,
      resolve: (context) => resolveCommand(facts.verb, facts.args, context),
    });
  }

  #prepare(
    facts: StartFacts,
    policy: Policy,
    what: {
      readonly lookup: boolean;
      readonly notify?: true;
      readonly reuse: boolean;
      readonly program: FileIdentity;
      readonly resolve: (context: ResolveContext) => ResolvedCommand | null;
    },
  ): Prepared | null {
    const { program, reuse } = what;
    const shim = this.#pool.take(reuse);
    if (shim === null) return null;
    const blank = this.blanks.take();
    const run = blank?.run ?? randomHex(16);
    try {
      const context = resolveContext({
        run,
        id: facts.id,
        idempotency_key: facts.key,
        max_spend: facts.max_spend,
      }, this.#root);
      const command = what.resolve(context);
      if (command === null) throw new RangeError("Cannot prepare run: there is no command");
      const order: Order = {
        chb: 1,
        run,
        agent: facts.agent,
        id: facts.id,
        idempotency_key: facts.key,
        verb: facts.verb.name,
        args: facts.args,
        attempt: facts.attempt,
        policy: policy.digest,
        command_sha256: commandDigest(command),
        program,
        requires: this.#trust.required(facts.verb),
        max_spend: facts.max_spend,
        timeout_ms: facts.timeout_ms,
        grace_ms: Math.round(policy.limits.grace_s * 1000),
        output_cap: policy.limits.output_bytes,
        pgid: shim.pid,
        reuse,
        ...(what.lookup ? { lookup: true } : {}),
        ...(what.notify === true ? { notify: true } : {}),
      };
      if (facts.verb.messages) makeMessages(run);
      prepareRun(order, ".", blank);
      this.#fault = null;
      // What belongs to no request is in no commit, and its order is given when it is asked for.
      if (what.notify !== true) shim.offer(run);
      return { run, order, shim };
    } catch (error) {
      if (blank !== null) this.blanks.drop(blank);
      this.#pool.release(shim);
      throw error;
    }
  }

  /**
   * The same for the question what became of an earlier run of a request.
   *
   * @returns null when no shim is ready
   * @throws a system error when the order cannot be stored
   * @throws {RangeError} when the verb has no lookup, or its program is not a trusted one
   */
  prepareLookup(facts: StartFacts, policy: Policy): Prepared | null {
    const { lookup } = facts.verb;
    const program = lookup === null ? null : this.#trust.program(lookup.program);
    if (lookup === null || program === null || !this.#trust.granted(lookup.program)) {
      throw new RangeError("Cannot look up: nothing that is trusted can be asked");
    }
    return this.#prepare({ ...facts, timeout_ms: Math.floor(lookup.timeout_s * 1000) }, policy, {
      lookup: true,
      reuse: false,
      program,
      resolve: (context) => resolveLookup(facts.verb, facts.args, context),
    });
  }

  /**
   * The same for a notification, which belongs to no request.
   *
   * @returns null when no shim is ready
   * @throws a system error when the order cannot be stored
   * @throws {RangeError} when the policy has no notification, its program is not a trusted one, or
   *   the words are not such as it is told
   */
  prepareNotify(event: string, id: string, policy: Policy): Prepared | null {
    const verb = notifyVerb(policy);
    const program = verb === null ? null : this.#trust.program(verb.program);
    if (verb === null || program === null || !this.#trust.granted(verb.program)) {
      throw new RangeError("Cannot notify: nothing that is trusted can be started");
    }
    const checked = checkArgs(verb, { event, id });
    if (!checked.ok) throw new RangeError("Cannot notify: not such words");
    return this.#prepare(
      {
        agent: "notify",
        id: "notify",
        key: "notify",
        verb,
        args: checked.args,
        max_spend: null,
        timeout_ms: verb.timeout_s * 1000,
        attempt: 1,
      },
      policy,
      {
        lookup: false,
        notify: true,
        reuse: false,
        program,
        resolve: (context) => resolveCommand(verb, checked.args, context),
      },
    );
  }

  /**
   * Gives back what was prepared for a commit that failed. Where the device failed in the middle of
   * it, the commit may have happened all the same, and its orders stay: their shims put them back,
   * so the next start voids those that are known to the ledger, and their requests wait as before
   * instead of being called uncertain (S5).
   */
  undo(prepared: readonly Prepared[], error: unknown): void {
    const stay = error instanceof LedgerError && error.fatal;
    for (const one of prepared) {
      if (stay) one.shim.drop();
      else this.withdraw(one);
    }
  }

  /** Gives back what was prepared for a commit that did not happen. */
  withdraw(prepared: Prepared): void {
    // Its directory is removed when the shim has let go of it.
    this.#withdrawn.set(prepared.shim, { run: prepared.run, since: performance.now() });
    prepared.shim.drop();
  }

  /**
   * A shim has put an order back, or is gone: what it was given in vain is removed.
   *
   * @returns false when it was given nothing in vain
   */
  settle(shim: Shim): boolean {
    const run = this.#withdrawn.get(shim)?.run;
    this.#withdrawn.delete(shim);
    this.#remove(run);
    return run !== undefined;
  }

  /** Once a second: ends shims that stand still with a withdrawn order. They have started nothing. */
  endStuck(): void {
    const now = performance.now();
    for (const [shim, { run, since }] of this.#withdrawn) {
      if (now - since < PUT_BACK_MS) continue;
      this.#log("WARN", "order-not-put-back", { run, shim: shim.pid });
      this.#pool.abandon(shim);
    }
  }

  /** Tells the shim to go, after the commit. */
  launch(rid: number, lock: string | null, prepared: Prepared): ActiveRun {
    const { order, shim, run } = prepared;
    const { lookup = false, timeout_ms, grace_ms, policy } = order;
    const row = { rid, agent: order.agent, id: order.id, lock };
    const limits = { timeout_ms, grace_ms, lookup, policy, before_ms: 0, awake_ms: 0 };
    const active = this.#track(row, run, shim, limits);
    shim.go();
    return active;
  }

  /** Takes up a run of an earlier daemon, whose shim works on. */
  adopt(
    row: Row,
    run: string,
    limits: { timeout_ms: number; grace_ms: number; lookup: boolean; before_ms: number },
  ): ActiveRun {
    const awake_ms = beatOf(run) ?? 0;
    const active = this.#track(row, run, null, { ...limits, policy: row.policy, awake_ms });
    if (row.cancel !== null && !limits.lookup) this.#mark(active);
    return active;
  }

  #track(
    row: { rid: number; agent: string; id: string; lock: string | null },
    run: string,
    shim: Shim | null,
    limits: {
      timeout_ms: number;
      grace_ms: number;
      lookup: boolean;
      policy: string;
      before_ms: number;
      awake_ms: number;
    },
  ): ActiveRun {
    const { rid, agent, id, lock } = row;
    // Made with the first byte: most commands print little or nothing.
    const filter = () => this.maskings.of(limits.policy).filter();
    const active: ActiveRun = {
      rid,
      agent,
      id,
      run,
      lock,
      shim,
      mirrors: {
        stdout: new Mirror(agent, id, run, "stdout", filter),
        stderr: new Mirror(agent, id, run, "stderr", filter),
      },
      since: performance.now(),
      before_ms: limits.before_ms,
      awake_ms: limits.awake_ms,
      timeout_ms: limits.timeout_ms,
      grace_ms: limits.grace_ms,
      lookup: limits.lookup,
      told: false,
      letGo: false,
      recordedAt: null,
      gone: false,
      asked: false,
      markedAt: null,
      finished: false,
      output: null,
    };
    this.#active.set(run, active);
    return active;
  }

  /** Asks a row's command to end, when one runs. What asks for an outcome is left to its answer. */
  askToEnd(rid: number): void {
    for (const active of this.#active.values()) {
      if (active.rid === rid && !active.finished && !active.lookup) this.#mark(active);
    }
  }

  /** Once a second: marks that could not be left are tried again, those of others are noticed. */
  lookForMarks(): void {
    for (const active of this.#active.values()) {
      if (active.finished || active.lookup || active.markedAt !== null) continue;
      if (active.asked) this.#mark(active);
      else if (isCancelMarked(runDir(active.run))) active.markedAt = performance.now();
    }
  }

  #mark(active: ActiveRun): void {
    active.asked = true;
    try {
      if (markCancel(active.run)) active.markedAt ??= performance.now();
    } catch (error) {
      this.#log("WARN", "cancel-not-marked", { run: active.run, error: errorCode(error) });
    }
  }

  /** Copies what running commands wrote since the last call. */
  pump(): void {
    const now = performance.now();
    for (const active of this.#active.values()) {
      if (active.finished || active.lookup || now - active.since < MIRROR_MS) continue;
      active.mirrors.stdout.pump();
      active.mirrors.stderr.pump();
    }
  }

  /** Takes in some of what a run left; true while much more is to come. Free for little output. */
  behind(active: ActiveRun, exit: Exit): boolean {
    const { stdout, stderr } = active.mirrors;
    return stdout.behind(exit.stdout) || stderr.behind(exit.stderr);
  }

  /** The last of both streams, for a run that has ended. */
  output(active: ActiveRun, exit: Exit): { stdout: OutputView; stderr: OutputView } {
    active.output ??= {
      stdout: active.mirrors.stdout.finish(exit.stdout),
      stderr: active.mirrors.stderr.finish(exit.stderr),
    };
    return active.output;
  }

  /** Forgets a run whose slot and lock are free; raw output is kept for an hour. */
  forget(active: ActiveRun): void {
    const { output } = active;
    const keepRaw = output === null || output.stdout.bytes + output.stderr.bytes > 0;
    this.#active.delete(active.run);
    active.mirrors.stdout.abandon();
    active.mirrors.stderr.abandon();
    if (keepRaw) {
      this.#kept.push({ run: active.run, until: performance.now() + KEEP_RUN_MS });
      if (this.#kept.length > MAX_KEPT_RUNS) this.#remove(this.#kept.shift()?.run);
    } else {
      this.#remove(active.run);
    }
  }

  /** Removes raw output whose hour is over. */
  sweep(): void {
    const now = performance.now();
    while (this.#kept[0] !== undefined && this.#kept[0].until <= now) {
      this.#remove(this.#kept.shift()?.run);
    }
  }

  #remove(run: string | undefined): void {
    if (run === undefined) return;
    try {
      removeRun(run);
    } catch (error) {
      if (errorCode(error) !== "ENOENT") {
        this.#log("WARN", "run-not-removed", { run, error: errorCode(error) });
      }
    }
  }
}

/** The reason that an exit record stands for. */
export function exitReason(exit: Exit): Reason {
  switch (exit.kind) {
    case "exited":
      return exit.exit_code === 0 && exit.signal === null ? "ok" : "command-failed";
    case "timed_out":
      return "timed-out";
    case "cancelled":
      return "cancelled";
    case "killed":
      return "killed";
    case "base_changed":
      return "base-changed";
    case "spawn_failed":
      return "spawn-failed";
  }
}

const WORDS: Readonly<Record<string, { message: string; hint: string }>> = Object.freeze({
  "ok": { message: "The command finished", hint: "" },
  "timed-out": {
    message: "The command was ended at its time limit",
    hint: "What it did until then may stand; look before you send it again under a new id and key",
  },
  "cancelled": {
    message: "The request was cancelled",
    hint: "What it did until then may stand; look before you send it again under a new id and key",
  },
  "killed": {
    message: "The kill switch went up before the command started",
    hint: "A human lowers it on the host with chb resume; only then send the request again",
  },
  "base-changed": {
    message: "The program or the command is not the one that a human trusted; nothing ran",
    hint: "A human looks at the change on the host and runs: chb trust",
  },
  "spawn-failed": {
    message: "The program could not be started; nothing ran",
    hint: "Tell the person who runs the host: chb doctor looks at the programs",
  },
});

/** The final result of a run. `output` is absent when nothing was started. */
export function finishedResult(
  row: Row,
  exit: Exit,
  output: { stdout: OutputView; stderr: OutputView } | null,
  audit: { seq: number; hash: string },
): Result {
  const reason = exitReason(exit);
  const words = reason === "command-failed"
    ? {
      message: exit.signal === null
        ? `The command exited with ${exit.exit_code}`
        : `The command was ended by ${exit.signal}`,
      hint: "The bridge did its part; stdout and stderr say what went wrong",
    }
    : WORDS[reason] ?? { message: "", hint: "" };
  return {
    ...base(row),
    state: "done",
    ...coded(reason),
    ...(exit.started ? {} : { stage: reason === "spawn-failed" ? "start" : "recheck" }),
    message: reason === "cancelled" ? cancelWords(row.cancel) : words.message,
    ...(words.hint === "" ? {} : { hint: words.hint }),
    exit_code: exit.exit_code,
    signal: exit.signal,
    ...(exit.started_ms === null ? {} : { started_at: isoTime(exit.started_ms) }),
    finished_at: isoTime(exit.finished_ms),
    ...(exit.duration_ms === null ? {} : { duration_ms: Math.round(exit.duration_ms) }),
    ...(output === null ? {} : output),
    audit,
  };
}
