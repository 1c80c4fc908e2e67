/**
 * Keeps the audit log within its bounds while the daemon serves: rotates the text by size and age,
 * lets records leave the ledger that stand in an older segment, removes segments whose time is over,
 * and lets the policy's group read what is there.
 *
 * 1. A record leaves the ledger only when the segment that holds it is on the disk, and a younger
 *    segment exists: the newest segment and the text can always be held against the ledger (S8).
 * 2. Removing a segment is recorded, with the last record that goes, before it is done; the chain
 *    itself tells where it begins (law: nothing of the log goes in silence).
 * 3. A turn does a bounded amount: at most one segment, some hundred records or twice as many as came
 *    since the turn before. So no flood of records outruns their leaving.
 * 4. A wall clock that jumps ahead makes a segment old at once. So segments are removed one by one,
 *    minutes apart, which leaves a human time to see what happens.
 *
 * @module
 */
import { closeSync, constants, fstatSync, fsyncSync, openSync, unlinkSync } from "node:fs";
import { dirname } from "@std/path/dirname";
import type { AuditText } from "../audit/audit_text.ts";
import { readLine } from "../audit/chain.ts";
import { listSegments, readText, type Segment } from "../audit/segments.ts";
import { shareAudit } from "../audit/share.ts";
import { findEnd } from "../audit/text_file.ts";
import { errorCode } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { RecordRef } from "../ledger/types.ts";
import type { Policy, Retention } from "../policy/policy.ts";
import type { Log } from "./log.ts";

const DAY_MS = 86_400_000;
/** Records that leave the ledger in one turn when few came, and at most. */
const TRIM = 500;
const MAX_TRIM = 10_000;
/** Milliseconds between two looks at the text's age, and at segments that may be removed. */
const LOOK_MS = 60_000;
/** Milliseconds between two removals. */
const REMOVE_MS = 600_000;

/** The parts of a policy that the keeper follows. */
type Bounds = Pick<Retention, "audit_days" | "audit_segment_days" | "audit_segment_bytes">;

/** The last record of a segment, with its time. */
interface End extends RecordRef {
  readonly at_ms: number;
}

/** What a keeper works with. */
export interface KeeperParts {
  readonly ledger: Ledger;
  readonly text: AuditText;
  readonly log: Log;
  readonly policy: () => Policy | null;
  /** The bounds in force: those of the trusted policy, or the defaults. */
  readonly retention: () => Bounds;
  /** Wall clock, milliseconds. */
  readonly now: () => number;
  /** Monotonic clock, milliseconds. */
  readonly monotonic: () => number;
}

export class AuditKeeper {
  readonly #parts: KeeperParts;
  /** Records up to this one may leave the ledger; their segments are on the disk. */
  #leave: number | null = null;
  /** The last record at the turn before. */
  #seen: number;
  #lookAt = -Infinity;
  #removeAt = -Infinity;
  #fault: string | null = null;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
    this.#seen = parts.ledger.head()?.seq ?? 0;
  }

  /** Why the log could not be kept in bounds at the last turn, or null. */
  get fault(): string | null {
    return this.#fault;
  }

  /**
   * Once a second.
   *
   * @throws {LedgerError} a fatal one
   */
  turn(): void {
    try {
      this.#turn();
      this.#fault = null;
    } catch (error) {
      if (error instanceof LedgerError && error.fatal) throw error;
      const why = errorCode(error) ?? (error instanceof Error ? error.message : "unknown");
      if (why !== this.#fault) this.#parts.log("WARN", "audit-not-kept", { error: why });
      this.#fault = why;
    }
  }

  /** Lets the policy's group read the log. A failure is told and ends nothing. */
  share(): void {
    const group = this.#parts.policy()?.audit_gid ?? null;
    if (group === null) return;
    try {
      shareAudit(this.#parts.text.path, group);
    } catch (error) {
      this.#parts.log("WARN", "audit-not-shared", { gid: group, error: errorCode(error) });
    }
  }

  get #bounds(): Bounds {
    return this.#parts.retention();
  }

  #turn(): void {
    const { text, monotonic } = this.#parts;
    const looking = monotonic() >= this.#lookAt;
    if (looking) this.#lookAt = monotonic() + LOOK_MS;
    if (looking || text.bytes >= this.#bounds.audit_segment_bytes) this.#rotate();
    this.#trim();
    if (looking) this.#remove();
  }

  #rotate(): void {
    const { ledger, text, log, now } = this.#parts;
    const { audit_segment_bytes, audit_segment_days } = this.#bounds;
    const rotation = text.rotate((since_ms) =>
      text.bytes >= audit_segment_bytes || now() - since_ms >= audit_segment_days * DAY_MS
    );
    if (rotation === null) return;
    const { path, ...facts } = rotation;
    log("INFO", "audit-rotated", { path, ...facts });
    this.#leave = null;
    this.#lookAt = -Infinity;
    const { first, last, hash, bytes } = facts;
    ledger.transaction((tx) =>
      tx.append({ event: "rotated", first, last, last_hash: hash, bytes })
    );
    this.share();
  }

  /** Rule 1. */
  #trim(): void {
    const { ledger, text } = this.#parts;
    if (this.#leave === null) {
      const older = listSegments(text.path).slice(0, -1);
      const last = older.at(-1)?.last ?? 0;
      if (last > (ledger.floor()?.seq ?? 0)) {
        for (const segment of older) sync(segment.path);
        sync(dirname(text.path));
      }
      this.#leave = last;
    }
    const leave = this.#leave;
    const head = ledger.head()?.seq ?? 0;
    const came = head - this.#seen;
    this.#seen = head;
    if (leave <= (ledger.floor()?.seq ?? 0)) return;
    const records = Math.min(MAX_TRIM, Math.max(TRIM, 2 * came));
    ledger.transaction((tx) => tx.trimRecords(leave, records));
  }

  /** Rules 2, 3 and 4. */
  #remove(): void {
    const { ledger, text, log, now, monotonic } = this.#parts;
    const [oldest, ...younger] = listSegments(text.path);
    if (oldest === undefined) return;
    const removed = ledger.removed();
    if (removed !== null && oldest.last <= removed.seq) {
      // Recorded before a crash, and still there.
      unlinkSync(oldest.path);
      return;
    }
    if (younger.length === 0 || monotonic() < this.#removeAt) return;
    if (oldest.last > (ledger.floor()?.seq ?? 0)) return;
    const end = endOf(oldest);
    if (end === null || end.seq !== oldest.last) return;
    if (now() - end.at_ms < this.#bounds.audit_days * DAY_MS) return;
    ledger.transaction((tx) => {
      tx.setRemoved(end);
      const { first, last } = oldest;
      tx.append({ event: "removed", what: "audit-segment", first, last, last_hash: end.hash });
    });
    unlinkSync(oldest.path);
    this.#removeAt = monotonic() + REMOVE_MS;
    log("INFO", "audit-removed", { path: oldest.path });
  }
}

function endOf(segment: Segment): End | null {
  const end = readText(segment.path, (fd) => findEnd(fd, fstatSync(fd).size));
  const parts = end === undefined ? null : readLine(end.line);
  if (end === undefined || parts === null) return null;
  const at_ms = Date.parse(/"at":"([^"]*)"/.exec(end.line)?.[1] ?? "");
  return { seq: parts.seq, hash: parts.hash, at_ms };
}

function sync(path: string): void {
  const fd = openSync(path, constants.O_RDONLY);
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}
