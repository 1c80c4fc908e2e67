/**
 * Fills a ledger with finished requests as the program itself would have left them, faster than it
 * could run them: through its own module, with a row, an id, a key, a result and three audit records
 * for each, in big transactions. The audit text is written along, rotated where it is due, and what
 * stands in older segments leaves the ledger, as in years of service. `chb audit verify` accepts it.
 *
 * @module
 */
import { AuditText } from "../src/audit/audit_text.ts";
import { AuditKeeper } from "../src/daemon/audit_keeper.ts";
import { finishedResult } from "../src/daemon/runs.ts";
import { requestDigest } from "../src/ledger/keys.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import type { NewRow, Row } from "../src/ledger/types.ts";
import { RETENTION } from "../src/policy/policy_table.ts";
import { reapedResult } from "../src/result.ts";
import type { Exit } from "../src/run/order.ts";
import type { TestBridge } from "../tests/helpers/bridge.ts";

const DAY_MS = 86_400_000;
/** Requests of one transaction. */
const BATCH = 2000;
/** Newest rows that count as published; those before are reaped. */
const SHOWN = 10_000;

/** How the requests lie in time. */
export interface FillOptions {
  /** When the first one came, milliseconds since the epoch; by default sixty days ago. */
  readonly from_ms?: number;
  /** Milliseconds from one to the next; default 1. */
  readonly every_ms?: number;
  /** False leaves the whole text in one file, and all records in the ledger. */
  readonly rotate?: boolean;
}

/** Fills the ledger of a bridge that nobody serves; the ids are `old-0`, `old-1` and so on. */
export function fill(bridge: TestBridge, rows: number, options: FillOptions = {}): void {
  const { from_ms = Date.now() - 60 * DAY_MS, every_ms = 1, rotate = true } = options;
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  const verb = Object.keys(policy.verbs)[0] ?? "";
  let now = from_ms;
  using ledger = Ledger.open(bridge.path("state/ledger.db"), { now: () => now, mode: "writer" });
  const text = new AuditText(bridge.path("state/audit/audit.jsonl"));
  text.repair(ledger);
  ledger.afterCommit = (records) => {
    if (!text.append(records)) throw new Error(`The audit text is not level: ${text.fault}`);
  };
  const keeper = new AuditKeeper({
    ledger,
    text,
    log: () => {},
    policy: () => null,
    retention: () => ({
      audit_days: RETENTION.audit_days.default,
      audit_segment_days: RETENTION.audit_segment_days.default,
      audit_segment_bytes: RETENTION.audit_segment_bytes.default,
    }),
    now: () => now,
    monotonic: () => performance.now(),
  });
  const shape = shapeOf(verb, ledger.currentTrust()?.policy ?? "");
  for (let from = 0; from < rows; from += BATCH) {
    const upto = Math.min(rows, from + BATCH);
    const rids: number[] = [];
    ledger.transaction((tx) => {
      for (let n = from; n < upto; n++) {
        now = from_ms + n * every_ms;
        const id = `old-${n}`;
        const hex = n.toString(16).padStart(32, "0");
        const { accepted, started, finished, row, exit } = shape(id, hex, now);
        tx.append(accepted);
        tx.append(started);
        const audit = tx.append(finished);
        const whole = { ...row, rid: 0, replays: 0, pub: 0, cancel: null, lookup: null };
        const result = finishedResult(whole as unknown as Row, exit, OUTPUT, audit);
        const reaped = n < rows - SHOWN;
        rids.push(tx.insertRow({ ...row, result: reaped ? reapedResult(result) : result }));
        if (reaped) tx.updateRow(rids.at(-1) ?? 0, { pub: 2 });
      }
    });
    if (upto > rows - SHOWN) {
      ledger.transaction((tx) =>
        tx.markPublished(rids.map((rid) => ({ rid, files: 1, bytes: 900 })))
      );
    }
    if (rotate) keeper.turn();
  }
}

const NOTHING = { head: "", tail: "", bytes: 0, dropped_bytes: 0, replaced_bytes: 0, file: null };
/** What a command that prints nothing has printed. */
const OUTPUT = {
  stdout: { ...NOTHING, complete: true },
  stderr: { ...NOTHING, complete: true },
};

/** What one request leaves: its three records, its row and how its run ended. */
function shapeOf(verb: string, policy: string) {
  const digest = requestDigest({ verb, args: {} });
  const sha256 = "5".repeat(64);
  const request = new TextEncoder().encode(JSON.stringify({ verb }));
  const agent = "main";
  const end = { bytes: 0, file_bytes: 0, tail: "", complete: true };
  return (id: string, hex: string, at: number) => {
    const row: Omit<NewRow, "result"> = {
      agent,
      id,
      key: id,
      digest,
      verb,
      class: "observe",
      lock: null,
      state: "done",
      outcome: "succeeded",
      reason: "ok",
      request,
      request_sha256: sha256,
      args: "{}",
      policy,
      note: null,
      plan: null,
      max_spend: null,
      timeout_ms: 20_000,
      received_ms: at,
      expires_ms: at + DAY_MS,
      started_ms: at,
      started_tick: at,
      finished_ms: at + 3,
      attempt: 1,
      run: hex,
      pgid: null,
      claim: hex,
    };
    const exit: Exit = {
      chb: 1,
      run: hex,
      kind: "exited",
      started: true,
      exit_code: 0,
      signal: null,
      detail: "",
      started_ms: at,
      finished_ms: at + 3,
      duration_ms: 3,
      stdout: end,
      stderr: end,
    };
    return {
      row,
      exit,
      accepted: {
        event: "accepted",
        agent,
        id,
        claim: hex,
        key: id,
        verb,
        class: "observe",
        request_sha256: sha256,
        digest,
        policy,
        uid: 0,
      },
      started: {
        event: "started",
        agent,
        id,
        claim: hex,
        verb,
        run: hex,
        attempt: 1,
        command_sha256: sha256,
        policy,
      },
      finished: {
        event: "finished",
        agent,
        id,
        run: hex,
        attempt: 1,
        reason: "ok",
        started: true,
        exit_code: 0,
        signal: null,
        duration_ms: 3,
        stdout_bytes: 0,
        stderr_bytes: 0,
      },
    } as const;
  };
}
