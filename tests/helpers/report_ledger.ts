/**
 * A ledger with a past, written straight through the program's own module: requests of several
 * agents with every outcome, refusals at several stages, approvals, spend and what people did; a few
 * of them carry texts that would do harm in a page that let them.
 *
 * @module
 */
import { AuditText } from "../../src/audit/audit_text.ts";
import { codeOf, type Reason } from "../../src/codes.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { NewRow } from "../../src/ledger/types.ts";
import { isoTime } from "../../src/result.ts";
import { newRow } from "../ledger_fixture.ts";

/** Rows of one transaction. */
const BATCH = 5000;

/** Texts of an agent that try to leave the place where they are shown. */
export const HOSTILE: readonly string[] = Object.freeze([
  '</script><script>document.title="owned"</script>',
  "<img src=x onError='document.title=\"owned\"'>",
  "\u2028\u2029\u202emalice\u200b <!-- --> ]]> ${x} `y` &lt; \" '",
  "<!--<script>",
]);

const VERBS = [
  ["ps", "observe", 40],
  ["logs", "observe", 180],
  ["restart", "mutating", 2_400],
  ["build", "mutating", 48_000],
  ["deploy", "destructive", 9_000],
] as const;

const ENDS: readonly (readonly [Reason, number])[] = [
  ["ok", 880],
  ["command-failed", 60],
  ["timed-out", 12],
  ["cancelled", 14],
  ["approval-denied", 6],
  ["approval-lapsed", 8],
  ["expired", 5],
  ["rate-limited", 15],
];
const REFUSED: readonly (readonly [string, Reason])[] = [
  ["allow", "unknown-verb"],
  ["args", "bad-args"],
  ["parse", "malformed"],
  ["schema", "schema"],
  ["denial", "denied-verb"],
  ["object", "not-regular"],
  ["rate", "rate-limited"],
];

/** A row of numbers that looks like chance and is the same every time. */
function sequence(seed: number): () => number {
  let x = seed;
  return () => {
    x = Math.imul(x ^ (x >>> 15), 0x2c1b3c6d) + 0x9e3779b9 | 0;
    return ((x ^ (x >>> 13)) >>> 0) / 2 ** 32;
  };
}

function endOf(roll: number): Reason {
  let at = roll * 1000;
  for (const [reason, share] of ENDS) {
    at -= share;
    if (at < 0) return reason;
  }
  return "ok";
}

/** How the ledger is filled. */
export interface Past {
  readonly rows: number;
  /** Refusals that bound nothing. */
  readonly refusals: number;
  /** When the newest arrived, wall-clock milliseconds, and how far back it all goes. */
  readonly end: number;
  readonly span_ms: number;
}

/**
 * Fills the ledger at `path`.
 *
 * @param text where the audit text is written, as a daemon's start would; null leaves it out
 */
export function fillPast(path: string, text: string | null, past: Past): void {
  const { rows, refusals, end, span_ms } = past;
  const chance = sequence(7);
  let now = end - span_ms;
  using ledger = Ledger.open(path, { now: () => now, mode: "writer" });
  const total = rows + refusals;
  let row = 0;
  for (let from = 0; from < total; from += BATCH) {
    ledger.transaction((tx) => {
      for (let n = from; n < Math.min(total, from + BATCH); n++) {
        now = Math.floor(end - span_ms + span_ms * (n + 1) / total);
        const agent = n % 7 === 3 ? "ci" : "main";
        const hostile = HOSTILE[Math.floor(n / 50) % HOSTILE.length] ?? "";
        if (Math.floor(n * refusals / total) !== Math.floor((n + 1) * refusals / total)) {
          const [stage, reason] = REFUSED[Math.floor(chance() ** 2 * REFUSED.length)] ??
            ["allow", "unknown-verb"];
          tx.append({
            event: "refused",
            agent,
            ...(stage === "object" ? { name: "../escape.json" } : { id: `no-${n}` }),
            claim: (2 ** 40 + n).toString(16).padStart(32, "0"),
            stage,
            reason,
            ...(stage === "parse" || stage === "object"
              ? {}
              : { verb: n % 50 === 0 ? hostile.slice(0, 80) : "restrat" }),
            uid: 1000,
          });
          continue;
        }
        const i = row++;
        const [verb, cls, usual] = VERBS[Math.floor(chance() ** 1.6 * VERBS.length)] ?? VERBS[0];
        const reason = endOf(chance());
        const { outcome } = codeOf(reason);
        const ran = ["ok", "command-failed", "timed-out", "cancelled"].includes(reason);
        const id = `job-${i}`;
        const claim = i.toString(16).padStart(32, "0");
        // One record each: enough for what is asked of them, and half the work.
        const audit = tx.append({ event: "accepted", agent, id, claim, verb, class: cls });
        const took = Math.round(usual * (0.4 + chance() ** 6 * 8));
        const open = rows - i;
        const state = open === 1 ? "running" : open === 2 || open === 3 ? "pending" : "done";
        const uncertain = i > 0 && i % 40_000 === 0;
        const done = state === "done" && !uncertain;
        const fields: Partial<NewRow> = {
          agent,
          verb,
          class: cls,
          claim,
          args: JSON.stringify(
            i % 50 === 7 ? { text: hostile } : { service: i % 3 ? "web" : "db" },
          ),
          note: i % 9 === 0 ? `ticket ${i}: Größe 日本` : null,
          state: uncertain ? "uncertain" : state,
          outcome: done ? outcome : null,
          reason: done ? reason : uncertain ? "uncertain" : null,
          received_ms: now,
          expires_ms: now + 3_600_000,
          started_ms: state !== "pending" && ran ? now + 2 : null,
          started_tick: state !== "pending" && ran ? i : null,
          finished_ms: done ? now + 2 + (ran ? took : 0) : null,
          attempt: 1,
          run: ran ? claim : null,
        };
        const rid = tx.insertRow(newRow(id, {
          ...fields,
          result: {
            chb: 1,
            id,
            agent,
            state: fields.state ?? "done",
            ...(done ? { ...codeOf(reason), outcome: outcome ?? "failed" } : {}),
            ...(done && reason === "command-failed" ? { exit_code: 1 + i % 3, signal: null } : {}),
            ...(done && !ran ? { stage: "slot" } : {}),
            next: "nothing",
            audit,
          },
        }));
        tx.updateRow(rid, { pub: 2 });
        if (cls === "destructive") {
          const said = reason === "approval-denied" || reason === "approval-lapsed";
          tx.putApproval(rid, {
            state: state === "pending"
              ? "waiting"
              : !said
              ? "used"
              : reason === "approval-denied"
              ? "denied"
              : "lapsed",
            since_ms: now,
            until_ms: now + 3_600_000,
            digest: null,
            parts: null,
            by: reason === "approval-lapsed" ? null : i % 2 ? "ada" : HOSTILE[1] ?? "",
            at_ms: now + 30_000,
          });
        }
        if (verb === "build") {
          tx.putSpend(rid, {
            agent,
            state: "charged",
            day: Math.floor(now / 86_400_000),
            granted: 0n,
            charged: 25_000_000n,
          });
        }
        if (i === Math.floor(rows / 2)) {
          tx.append({
            event: "killed",
            switch: "KILL",
            by: "ada",
            why: "the wrong stack was torn down",
          });
        }
        if (i === Math.floor(rows / 2) + 5) {
          tx.append({ event: "resumed", switch: "KILL", by: HOSTILE[0] });
        }
      }
      const day = Math.floor(now / 86_400_000);
      tx.putSpendDay("main", day, { spent: 1_250_000_000n, blocked: false });
    });
  }
  if (text !== null) new AuditText(text).repair(ledger);
}

/** A time that does not move, for what is looked at. */
export const PAST_END = Date.parse("2026-03-14T15:09:26Z");

/** The time of the newest entry in words. */
export function pastEnd(): string {
  return isoTime(PAST_END);
}
