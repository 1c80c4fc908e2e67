/**
 * One batch of entries from the queue to their answers: claim, decide, commit, publish.
 *
 * 1. Entries are claimed by rename before anything is decided; a claim is removed only after the
 *    commit that records its answer. Whoever dies in between leaves a claim that the next start
 *    finds, recorded or not.
 * 2. All decisions of a batch are one transaction, each seeing the earlier ones; a batch is bounded,
 *    so the agent that fills its queue cannot hold a turn for long (Q5).
 * 3. A fault in one candidate is that candidate's answer (`internal`) and nobody else's (J10).
 * 4. Nothing is published, started or removed before the commit; a failed commit leaves the claims
 *    where they are, to be tried again.
 * 5. Nobody is served by a look at the kill switches that was made for another entry, be it a look at
 *    the directory that shows that nothing changed; what is refused anyway shares the looks of its
 *    batch.
 * 6. What a refusal says is ours; no byte of the entry is quoted but its escaped name (J16, P18).
 *
 * @module
 */
import { setImmediate } from "node:timers";
import { errorCode, type Refusal } from "../errors.ts";
import type { Candidate, GateDeps } from "../gates/candidate.ts";
import { killedRefusal } from "../gates/entry.ts";
import { decide, type Decision } from "../gates/order.ts";
import { expiresAt } from "../gates/known.ts";
import { requestDigest } from "../ledger/keys.ts";
import type { Tx } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { NewRow, Row, StoredAnswer } from "../ledger/types.ts";
import { printable, randomHex } from "../names.ts";
import { amountNumber } from "../policy/amount.ts";
import { coded, isoTime, refusalResult, type Result } from "../result.ts";
import { claimEntry } from "../spool/claim.ts";
import { disposePoison, dropClaim, keepCopy } from "../spool/drain_claim.ts";
import { objectRefusal } from "../spool/object_check.ts";
import { readClaim } from "../spool/read_claim.ts";
import { removeRefused } from "../spool/publish.ts";
import type { Claim, Look } from "../spool/types.ts";
import { readsOnly } from "../surface.ts";
import { transition } from "../transitions.ts";
import { awaitingResult, newApproval } from "./approval.ts";
import { builtinReply } from "./builtins.ts";
import type { Core } from "./core.ts";
import { noteSigned } from "./note_signed.ts";
import { pendingResult, POLL_AFTER_MS } from "./pending_result.ts";
import { MANY_MARKS } from "./publisher.ts";
import { MAX_REFUSED } from "./reap_files.ts";
import { base } from "./row_fields.ts";
import type { Prepared } from "./runs.ts";
import { SwitchLooks } from "./switch_looks.ts";
import { sha256 } from "./trust_store.ts";

/** Errors of a process, or a machine, that has nothing left to open or to keep things in. */
const EXHAUSTED: ReadonlySet<string> = new Set(["EMFILE", "ENFILE", "ENOMEM"]);

/** An entry to be handled and when it was first seen. */
export interface Arrival {
  readonly name: string;
  readonly arrival_ms: number;
  /** A look at it just taken. */
  readonly before: Look;
}

export class Intake {
  readonly #core: Core;
  readonly #deps: GateDeps;
  readonly #stuck: (agent: string, name: string, error: string) => void;
  /** Claims that are answered `internal` because they cannot be recorded otherwise. */
  readonly #forced = new Set<string>();
  /** Claims whose batch could not be committed. */
  #held: Claim[] = [];
  /** Claims of files that are answered and could not be removed, and why. */
  readonly #kept = new Map<string, Claim>();
  #keptFault: string | null = null;
  /** Number of the next note in `inbox/refused/`, per agent. */
  readonly #refusedNext = new Map<string, number>();
  /** Why the last batch could not be committed, or null. */
  #fault: string | null = null;
  #systemFault = false;
  #diskMs = 0;
  readonly #switches: SwitchLooks;
  /** The same as `#deps`, but for looks at the switches that a batch shares. */
  readonly #batchDeps: GateDeps;
  /** What is still to be done for a batch whose runs were started. */
  #rest: (() => void) | null = null;

  constructor(core: Core, stuck: (agent: string, name: string, error: string) => void) {
    this.#core = core;
    this.#stuck = stuck;
    this.#deps = {
      get policy() {
        return core.policy();
      },
      get limits() {
        return core.limits();
      },
      agentPolicy: (agent) => core.agentPolicy(agent),
      owners: (agent) => core.owners(agent),
      kill: (agent) => core.kill(agent),
      objectRefusal: (look, size_max, owners) =>
        objectRefusal(look, { size_max, owners })?.detail ?? null,
      read: readClaim,
      sha256,
      requestDigest,
      signingKey: (agent, name) => core.keys.find(agent, name),
      carriedOut: (agent, digest) => core.ledger.wasCarriedOut(agent, digest),
      rowById: (agent, id) => core.ledger.rowById(agent, id),
      rowByKey: (agent, key) => core.ledger.rowByKey(agent, key),
      countIds: (rid) => core.ledger.idsOf(rid).length,
      tick: () => core.clock.now(),
      starts: (agent, cls, since) => core.ledger.countStarted(agent, cls, since),
      startTick: (agent, cls, since, n) => core.ledger.startTick(agent, cls, since, n),
      spent: (agent) => core.spends.day(agent),
      waiting: (agent) => core.slots.waiting(agent),
      granted: (program) => core.trust.granted(program),
      baseChanged: (verb) => core.trust.baseChanged(verb),
      pathArgs: (verb, args) => core.trust.pathArgs(verb, args),
    };
    const switches = new SwitchLooks((agent) => core.kill(agent));
    this.#switches = switches;
    this.#batchDeps = Object.create(this.#deps, {
      kill: { value: (agent: string) => switches.seen(agent) },
    });
  }

  /** What the gates ask, shared with the stages that come at the start of a run. */
  get deps(): GateDeps {
    return this.#deps;
  }

  /** Why the last batch could not be committed, or null. */
  get fault(): string | null {
    return this.#fault;
  }

  /** Why answered claims could not be removed at the last try, or null. */
  get keptFault(): string | null {
    return this.#keptFault;
  }

  /** Claims that wait for a commit to succeed. */
  get held(): number {
    return this.#held.length;
  }

  /** How long the last batch waited for its commit, milliseconds. */
  get diskMs(): number {
    return this.#diskMs;
  }

  /** True when something of the last batch is still to be done. */
  get unfinished(): boolean {
    return this.#rest !== null;
  }

  /**
   * Claims and handles entries of one agent.
   *
   * @param entries at most a few dozen: one transaction
   */
  handle(agent: string, entries: readonly Arrival[]): void {
    const claims: Claim[] = [];
    try {
      for (const { name, arrival_ms, before } of entries) {
        const outcome = claimEntry(agent, name, { arrival_ms, random: randomHex(16), before });
        if (outcome.kind === "claimed") claims.push(outcome.claim);
        else if (outcome.kind === "stuck") this.#stuck(agent, name, outcome.error);
      }
    } finally {
      // A fault of the host ends the claiming; what was claimed by then is handled.
      this.process(claims, true);
    }
  }

  /**
   * Tries claims again whose commit failed. A claim that fails alone, for no reason that the ledger
   * or the system gives, is answered `internal`: one entry must not keep all others waiting. Then
   * removes what is answered and could not be removed.
   */
  retry(): void {
    this.#retryHeld();
    for (const claim of [...this.#kept.values()].slice(0, 64)) this.#drop(claim);
  }

  #retryHeld(): void {
    const claims = this.#held.splice(0, 64);
    for (const claim of claims) {
      if (this.#held.length > 0 && this.#systemFault) this.#held.push(claim);
      else {
        this.process([claim]);
        if (this.#fault !== null && !this.#systemFault) this.#forced.add(claim.random);
      }
    }
  }

  /** Records what was published, when no other transaction came along to do so. */
  flush(): void {
    const { rids, answered } = this.#core.publisher.takeMarks();
    try {
      this.#core.ledger.transaction((tx) => {
        tx.markPublished(rids);
        for (const claim of answered) tx.dropAnswer(claim);
      });
    } catch (error) {
      this.#core.publisher.restoreMarks(rids, answered);
      throw error;
    }
  }

  /**
   * Handles claims, fresh ones and those left over by an earlier daemon.
   *
   * @param fresh they were made in this turn, so nothing can be recorded of them
   */
  process(claims: readonly Claim[], fresh = false): void {
    this.finish();
    if (claims.length === 0) return;
    const core = this.#core;
    const after: (() => void)[] = [];
    const first: (() => void)[] = [];
    const prepared: Prepared[] = [];
    const started: number[] = [];
    const queued: { agent: string; rid: number }[] = [];
    const undo: (() => void)[] = [];
    const { rids, answered } = core.publisher.takeMarks(MANY_MARKS);
    this.#switches.batch();
    try {
      const decided = core.ledger.transaction((tx) => {
        tx.markPublished(rids);
        for (const claim of answered) tx.dropAnswer(claim);
        for (const claim of claims) {
          this.#one(tx, claim, { first, after, prepared, started, queued, undo }, fresh);
        }
        return performance.now();
      });
      this.#diskMs = performance.now() - decided;
      this.#fault = null;
      for (const claim of claims) this.#forced.delete(claim.random);
    } catch (error) {
      // Nothing of the batch counts: the claims stay and are tried again.
      for (const step of undo) step();
      for (const rid of started) core.slots.free(rid);
      for (const { agent, rid } of queued) core.slots.forget(agent, rid);
      core.runs.undo(prepared, error);
      core.publisher.restoreMarks(rids, answered);
      this.#held.push(...claims);
      this.#refusedNext.clear();
      const why = errorCode(error) ?? (error instanceof Error ? error.message : "unknown");
      if (this.#fault !== why) core.log("ERROR", "commit-failed", { error: why });
      this.#fault = why;
      this.#systemFault = error instanceof LedgerError || errorCode(error) !== undefined;
      if (error instanceof LedgerError && error.fatal) throw error;
      return;
    }
    for (const effect of first) effect();
    this.#rest = () => this.#carryOut(after);
    // A shim hears of its run when this thread comes to rest: what can wait is done while it works.
    if (first.length === 0) this.finish();
    else setImmediate(() => this.finish());
  }

  /** Does what is left of the last batch: its records go to the text, its answers to the agents. */
  finish(): void {
    const rest = this.#rest;
    this.#rest = null;
    rest?.();
  }

  #carryOut(after: readonly (() => void)[]): void {
    const core = this.#core;
    core.appendText();
    for (const effect of after) {
      try {
        effect();
      } catch (error) {
        core.log("ERROR", "after-commit", {
          error: errorCode(error) ?? (error instanceof Error ? error.message : "unknown"),
        });
      }
    }
  }

  #one(tx: Tx, claim: Claim, batch: Batch, fresh: boolean): void {
    const core = this.#core;
    const seen = fresh ? null : core.ledger.claimSeen(claim.random);
    if (seen !== null) {
      // Recorded before a crash: only the entry is left to remove and the answer to publish.
      batch.after.push(() => {
        if (seen.kind === "answer" && seen.answer !== null) core.publisher.answer(seen.answer);
        this.#drop(claim);
      });
      return;
    }
    const candidate: Candidate = { claim, now_ms: core.now() };
    let decision: Decision;
    try {
      if (this.#forced.has(claim.random)) throw new Error("The claim cannot be recorded");
      this.#switches.entry();
      decision = decide(candidate, this.#batchDeps);
      const up = decision.kind === "refused" ? null : this.#switches.own(claim.agent);
      if (up !== null) decision = { kind: "refused", refusal: killedRefusal("kill", up) };
    } catch (error) {
      // What the ledger says is about all requests, and dooms the transaction.
      if (error instanceof LedgerError) throw error;
      // So does what the process has run out of: it says nothing of this request, which waits.
      if (EXHAUSTED.has(errorCode(error) ?? "")) throw error;
      core.log("ERROR", "internal", {
        agent: claim.agent,
        error: error instanceof Error ? `${error.name}: ${error.message}` : "unknown",
      });
      decision = {
        kind: "refused",
        refusal: {
          stage: "start",
          reason: "internal",
          message: "The bridge met a fault of its own while it checked this request",
          hint: "Tell the person who runs the host; nothing was run",
        },
      };
    }
    if (decision.kind === "accepted") return this.#accept(tx, candidate, batch);
    if (!core.answers.take(claim.agent)) {
      batch.after.push(() => {
        core.answers.shed(claim.agent, claim.name);
        this.#drop(claim);
      });
      return;
    }
    switch (decision.kind) {
      case "refused":
        return this.#refuse(tx, candidate, decision.refusal, batch);
      case "replay":
        return this.#replay(tx, candidate, decision.row, decision.join, batch);
      case "builtin":
        return this.#builtin(tx, candidate, decision.name, batch);
    }
  }

  #refuse(tx: Tx, c: Candidate, refusal: Refusal, batch: Batch): void {
    const { claim } = c;
    const { agent, id } = claim;
    const ref = tx.append({
      event: "refused",
      agent,
      ...(id === null ? { name: printable(claim.name) } : { id }),
      claim: claim.random,
      stage: refusal.stage,
      reason: refusal.reason,
      ...(c.request === undefined ? {} : { verb: printable(c.request.verb, 80) }),
      ...(c.request_sha256 === undefined ? {} : { request_sha256: c.request_sha256 }),
      ...signedBy(c),
      uid: claim.look.uid,
    });
    const known = {
      ...(c.request === undefined ? {} : { verb: printable(c.request.verb, 80) }),
      ...(c.request_sha256 === undefined ? {} : { request_sha256: c.request_sha256 }),
      received_at: isoTime(claim.arrival_ms),
      audit: ref,
    };
    let target: string;
    let document: unknown;
    if (id === null) {
      const n = this.#nextRefused(tx, agent);
      target = `refused/${n}.json`;
      const { id: _, ...rest } = refusalResult(agent, "", refusal, known);
      document = { ...rest, n, name: printable(claim.name) };
      if (n > MAX_REFUSED) batch.after.push(() => removeRefused(agent, n - MAX_REFUSED));
    } else {
      const bound = this.#core.ledger.rowById(agent, id) !== null;
      target = `results/${id}${bound ? ".refused" : ""}.json`;
      document = refusalResult(agent, id, refusal, known);
    }
    const answer: StoredAnswer = {
      claim: claim.random,
      agent,
      target,
      document: JSON.stringify(document) + "\n",
    };
    tx.saveAnswer(answer);
    batch.after.push(() => {
      if (claim.look.kind === "file") {
        try {
          keepCopy(claim, c.bytes ?? null);
        } catch {
          // The copy is for a person who looks into it later; without space there is none.
        }
      }
      this.#core.publisher.answer(answer);
      this.#drop(claim);
    });
  }

  #nextRefused(tx: Tx, agent: string): number {
    const key = `refused.${agent}`;
    const n = (this.#refusedNext.get(agent) ?? Number(this.#core.ledger.meta(key) ?? "0")) + 1;
    this.#refusedNext.set(agent, n);
    tx.setMeta(key, String(n));
    return n;
  }

  #replay(tx: Tx, c: Candidate, row: Row, join: boolean, batch: Batch): void {
    const { claim } = c;
    const id = claim.id ?? row.id;
    tx.append({
      event: join ? "joined" : "replayed",
      agent: claim.agent,
      id,
      claim: claim.random,
      ...(join ? { replay_of: row.id } : {}),
      ...signedBy(c),
      state: row.state,
    });
    noteSigned(tx, c, row.rid, this.#deps);
    if (join) tx.bindId(claim.agent, id, row.rid);
    tx.updateRow(row.rid, {
      replays: row.replays + 1,
      // One that was reaped is published again, and counts as new from here.
      ...(row.pub === 2 && row.state === "done" ? { pub: 0 } : {}),
    });
    batch.after.push(() => {
      const now = this.#core.ledger.row(row.rid);
      if (now !== null) this.#core.publisher.replay(now, id);
      this.#drop(claim);
    });
  }

  #builtin(tx: Tx, c: Candidate, name: string, batch: Batch): void {
    const { claim } = c;
    const id = claim.id ?? "";
    const reply = builtinReply({
      name,
      agent: claim.agent,
      args: c.request?.args ?? {},
      core: this.#core,
      tx,
      after: (effect) => batch.after.push(effect),
      undo: (step) => batch.undo.push(step),
    });
    if (reply.kind === "refused") return this.#refuse(tx, c, reply.refusal, batch);
    const ref = tx.append({
      event: "answered",
      agent: claim.agent,
      id,
      claim: claim.random,
      verb: name,
      ...signedBy(c),
    });
    if (!readsOnly(name)) noteSigned(tx, c, null, this.#deps);
    const result: Result = {
      chb: 1,
      id,
      agent: claim.agent,
      state: "done",
      ...coded("ok"),
      verb: name,
      ...(c.key === undefined ? {} : { idempotency_key: c.key }),
      ...(c.request_sha256 === undefined ? {} : { request_sha256: c.request_sha256 }),
      received_at: isoTime(claim.arrival_ms),
      finished_at: isoTime(this.#core.now()),
      answer: reply.answer,
      audit: ref,
    };
    const answer: StoredAnswer = {
      claim: claim.random,
      agent: claim.agent,
      target: `results/${id}.json`,
      document: JSON.stringify(result) + "\n",
    };
    tx.saveAnswer(answer);
    batch.after.push(() => {
      this.#core.publisher.answer(answer);
      this.#drop(claim);
    });
  }

  #accept(tx: Tx, c: Candidate, batch: Batch): void {
    const core = this.#core;
    const { claim, request, verb, args, digest, key, bytes, request_sha256 } = c;
    const policy = core.policy();
    if (
      claim.id === null || request === undefined || verb === undefined || args === undefined ||
      digest === undefined || key === undefined || bytes === undefined ||
      request_sha256 === undefined || policy === null
    ) {
      throw new Error("Cannot accept request: it passed the gates without being whole");
    }
    core.answers.take(claim.agent);
    // Whole milliseconds, never more than the verb's limit and never none: an order holds no other.
    const limit_s = Math.min(request.timeout_s ?? Infinity, verb.timeout_s);
    const timeout_ms = Math.max(1, Math.floor(limit_s * 1000));
    const facts = {
      agent: claim.agent,
      id: claim.id,
      key,
      verb,
      args,
      max_spend: c.grant === undefined ? request.max_spend ?? null : amountNumber(c.grant),
      timeout_ms,
      attempt: 1,
    };
    const approval = c.needs_approval === true
      ? newApproval(c.now_ms, policy.limits.approval_wait_s)
      : null;
    const blocked = approval !== null
      ? "approval"
      : core.stopping()
      ? "slot"
      : core.slots.blocked(claim.agent, verb.lock);
    let prepared: Prepared | null = null;
    if (blocked === null) {
      try {
        prepared = core.runs.prepare(facts, policy);
      } catch (error) {
        // The order cannot be stored now: the request waits, nothing starts without its intent.
        core.runs.orderFailed(error);
      }
    }
    if (prepared !== null) batch.prepared.push(prepared);
    const accepted = tx.append({
      event: "accepted",
      agent: claim.agent,
      id: claim.id,
      claim: claim.random,
      key,
      verb: verb.name,
      class: verb.class,
      request_sha256,
      digest,
      policy: policy.digest,
      ...signedBy(c),
      uid: claim.look.uid,
      ...(request.note === undefined ? {} : { note: printable(request.note, 1000) }),
    });
    const now = c.now_ms;
    const fields: Omit<NewRow, "result"> = {
      agent: claim.agent,
      id: claim.id,
      key,
      digest,
      verb: verb.name,
      class: verb.class,
      lock: verb.lock,
      state: transition(null, prepared === null ? "accept-waiting" : "accept-starting"),
      outcome: null,
      reason: null,
      request: bytes,
      request_sha256,
      args: JSON.stringify(args),
      policy: policy.digest,
      note: request.note ?? null,
      plan: request.plan ?? null,
      max_spend: request.max_spend ?? null,
      timeout_ms,
      received_ms: claim.arrival_ms,
      expires_ms: expiresAt(c, this.#deps),
      started_ms: prepared === null ? null : now,
      started_tick: prepared === null ? null : core.clock.now(),
      finished_ms: null,
      attempt: 1,
      run: prepared?.run ?? null,
      pgid: prepared?.order.pgid ?? null,
      claim: claim.random,
    };
    if (prepared === null) {
      const result = approval === null
        ? pendingResult(fields, blocked === "lock" ? "lock" : "slot", accepted)
        : awaitingResult(fields, approval, accepted);
      const rid = tx.insertRow({ ...fields, result });
      noteSigned(tx, c, rid, this.#deps);
      if (approval !== null) tx.putApproval(rid, approval);
      if (c.grant !== undefined) core.spends.hold(tx, rid, claim.agent, c.grant);
      core.slots.wait({
        rid,
        agent: claim.agent,
        lock: verb.lock,
        expires_ms: fields.expires_ms,
        held_until_ms: approval?.until_ms ?? null,
      });
      batch.queued.push({ agent: claim.agent, rid });
      batch.after.push(() => {
        this.#publish(rid);
        this.#drop(claim);
        if (approval !== null) core.notify("approval", `${fields.agent}/${fields.id}`);
      });
      return;
    }
    const ready = prepared;
    const started = tx.append({
      event: "started",
      agent: claim.agent,
      id: claim.id,
      claim: claim.random,
      verb: verb.name,
      run: ready.run,
      attempt: 1,
      command_sha256: ready.order.command_sha256,
      policy: policy.digest,
    });
    const result = runningResult(fields, now, timeout_ms, started);
    const rid = tx.insertRow({ ...fields, result });
    noteSigned(tx, c, rid, this.#deps);
    if (c.grant !== undefined) core.spends.reserve(tx, rid, claim.agent, c.grant);
    core.slots.start(rid, claim.agent, verb.lock);
    batch.started.push(rid);
    batch.first.push(() => core.runs.launch(rid, verb.lock, ready));
    batch.after.push(() => {
      core.publisher.soon(rid);
      this.#drop(claim);
    });
  }

  #publish(rid: number): void {
    const row = this.#core.ledger.row(rid);
    if (row !== null) this.#core.publisher.row(row);
  }

  #drop(claim: Claim): void {
    if (claim.look.kind !== "file") {
      const left = disposePoison(claim);
      if (left !== null) this.#core.stuck.note(claim.agent, claim.name, left, claim.path);
      return;
    }
    try {
      dropClaim(claim);
      if (this.#kept.delete(claim.random) && this.#kept.size === 0) this.#keptFault = null;
    } catch (error) {
      // A file in `claims/` is nobody's but ours: what keeps it there is a fault of the host.
      this.#kept.set(claim.random, claim);
      const code = errorCode(error) ?? "unknown";
      if (code !== this.#keptFault) this.#core.log("WARN", "claim-not-removed", { error: code });
      this.#keptFault = code;
    }
  }
}

/** Whose key signed a request, for its records; nothing for one that is not signed. */
function signedBy(c: Candidate): { signed_by?: string } {
  return c.signed === undefined ? {} : { signed_by: c.signed.key };
}

/** What one batch gathers. */
interface Batch {
  /** Effects that must not wait: shims are told to go. */
  readonly first: (() => void)[];
  readonly after: (() => void)[];
  readonly prepared: Prepared[];
  readonly started: number[];
  readonly queued: { agent: string; rid: number }[];
  /** What takes back a change of memory when the commit fails. */
  readonly undo: (() => void)[];
}

/** The result document of a request that runs. */
export function runningResult(
  row: Omit<NewRow, "result">,
  started_ms: number,
  timeout_ms: number,
  audit: { seq: number; hash: string },
): Result {
  return {
    ...base(row),
    state: "running",
    next: "wait",
    started_at: isoTime(started_ms),
    deadline_at: isoTime(started_ms + timeout_ms),
    poll_after_ms: POLL_AFTER_MS,
    audit,
  };
}
