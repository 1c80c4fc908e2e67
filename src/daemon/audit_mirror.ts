/**
 * What an agent may read of the audit log: `inbox/audit.jsonl`, its own records and no others, with
 * the fields that concern it. The newest ones, within a bound; it is a courtesy, the log is the
 * record.
 *
 * 1. Only records that name the agent go into its mirror, and of these only the fields listed here:
 *    a new field of a record is not shown before somebody decides that it may be.
 * 2. Free text is masked like output.
 * 3. Nothing here is on the way of a request: records are taken in after their commit and written
 *    out twice a second.
 * 4. The file never grows past its bound: it is written anew from the ledger, shorter, first.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { StoredRecord } from "../ledger/types.ts";
import type { Masking } from "../run/masking.ts";
import { openOutput, type OutputFile } from "../spool/publish.ts";
import type { Log } from "./log.ts";

/** Bytes of a mirror. */
export const MIRROR_BYTES = 8 * 1024 * 1024;
/** Bytes that it begins anew with, at most. */
const SEED_BYTES = 2 * 1024 * 1024;
/** Records of the ledger that are looked through for it, at most. */
const SEED_RECORDS = 5000;
/** Records that wait to be written out, at most: beyond, the mirror begins anew. */
const WAITING_MAX = 20_000;
/** Milliseconds before a mirror that could not be written is tried again. */
const AGAIN_MS = 5000;

/** Fields that are shown as they are. */
const SHOWN: ReadonlySet<string> = new Set([
  "seq",
  "at",
  "event",
  "id",
  "key",
  "verb",
  "class",
  "stage",
  "reason",
  "state",
  "outcome",
  "attempt",
  "started",
  "exit_code",
  "signal",
  "duration_ms",
  "stdout_bytes",
  "stderr_bytes",
  "request_sha256",
  "digest",
  "count",
  "since",
  "replays",
  "replay_of",
  "what",
  "released",
  "role",
  "replaced",
  "switch",
  "error",
  "retry_after_ms",
  "hash",
]);
/** Fields whose text is masked. */
const TEXT: ReadonlySet<string> = new Set([
  "note",
  "plan",
  "why",
  "name",
  "first",
  "last",
  "detail",
]);

/** A record as its agent may see it, or null when it is about nobody. */
export function mirrorLine(
  line: string,
  masking: Masking,
): { readonly agent: string; readonly line: string } | null {
  const record: Record<string, unknown> = JSON.parse(line);
  const { agent } = record;
  if (typeof agent !== "string") return null;
  const shown: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(record)) {
    if (SHOWN.has(field)) shown[field] = value;
    else if (TEXT.has(field) && typeof value === "string") shown[field] = masking.text(value);
  }
  return { agent, line: JSON.stringify(shown) + "\n" };
}

/** One agent's mirror as it stands. */
interface Mirror {
  file: OutputFile;
  /** Records up to this one are in it. */
  seq: number;
}

export class AuditMirror {
  readonly #ledger: Ledger;
  readonly #masking: () => Masking;
  readonly #log: Log;
  readonly #mirrors = new Map<string, Mirror>();
  readonly #faults = new Map<string, { error: string; until: number }>();
  #waiting: StoredRecord[] = [];

  constructor(ledger: Ledger, masking: () => Masking, log: Log) {
    this.#ledger = ledger;
    this.#masking = masking;
    this.#log = log;
  }

  /** Takes in what was committed. */
  note(records: readonly StoredRecord[]): void {
    this.#waiting.push(...records);
    if (this.#waiting.length <= WAITING_MAX) return;
    this.#waiting = [];
    this.close();
  }

  /** Writes out what was taken in; agents are those that are served, by name. */
  flush(agents: ReadonlyMap<string, unknown>): void {
    const records = this.#waiting;
    if (records.length === 0 && this.#isBegun(agents)) return;
    this.#waiting = [];
    const masking = this.#masking();
    const lines = new Map<string, { seq: number; line: string }[]>();
    for (const { seq, line } of records) {
      const own = mirrorLine(line, masking);
      if (own === null) continue;
      const list = lines.get(own.agent);
      if (list === undefined) lines.set(own.agent, [{ seq, line: own.line }]);
      else list.push({ seq, line: own.line });
    }
    for (const agent of agents.keys()) this.#write(agent, lines.get(agent) ?? [], masking);
  }

  /** True when every agent's mirror stands. */
  #isBegun(agents: ReadonlyMap<string, unknown>): boolean {
    for (const agent of agents.keys()) if (!this.#mirrors.has(agent)) return false;
    return true;
  }

  /** Closes every file; the next flush begins anew. */
  close(): void {
    for (const { file } of this.#mirrors.values()) file.close();
    this.#mirrors.clear();
  }

  #write(agent: string, lines: { seq: number; line: string }[], masking: Masking): void {
    const fault = this.#faults.get(agent);
    if (fault !== undefined && performance.now() < fault.until) return;
    try {
      let mirror = this.#mirrors.get(agent);
      // What is in the ledger by now is in what it begins with.
      if (mirror === undefined) mirror = this.#begin(agent, masking);
      const { seq } = mirror;
      const fresh = lines.filter((one) => one.seq > seq);
      const last = fresh.at(-1);
      if (last === undefined) return;
      const bytes = new TextEncoder().encode(fresh.map((one) => one.line).join(""));
      if (mirror.file.size + bytes.length > MIRROR_BYTES) {
        mirror.file.close();
        this.#begin(agent, masking);
      } else {
        mirror.file.append(bytes);
        mirror.file.pause();
        mirror.seq = last.seq;
      }
      this.#faults.delete(agent);
    } catch (error) {
      this.#mirrors.get(agent)?.file.close();
      this.#mirrors.delete(agent);
      const why = errorCode(error) ?? (error instanceof Error ? error.name : "unknown");
      if (fault?.error !== why) this.#log("WARN", "audit-mirror", { agent, error: why });
      this.#faults.set(agent, { error: why, until: performance.now() + AGAIN_MS });
    }
  }

  /** A new file in place of the old one, with the newest records of the ledger. */
  #begin(agent: string, masking: Masking): Mirror {
    const head = this.#ledger.head()?.seq ?? 0;
    const lines: string[] = [];
    let bytes = 0;
    const batch = 500;
    for (let to = head; to > 0 && to > head - SEED_RECORDS && bytes < SEED_BYTES; to -= batch) {
      const from = Math.max(1, to - batch + 1);
      for (const { line } of this.#ledger.records(from, to - from + 1).reverse()) {
        const own = mirrorLine(line, masking);
        if (own?.agent !== agent || bytes + own.line.length > SEED_BYTES) continue;
        lines.push(own.line);
        bytes += own.line.length;
      }
    }
    const file = openOutput(agent, "audit.jsonl", "inbox");
    file.append(new TextEncoder().encode(lines.reverse().join("")));
    file.pause();
    const mirror = { file, seq: head };
    this.#mirrors.set(agent, mirror);
    return mirror;
  }
}
