/**
 * Everything that a report tells, read from the ledger and from what lies beside it, before a line
 * of the page is written: whoever reads the page slowly holds nothing of the ledger open.
 *
 * @module
 */
import type { AuditReport } from "../../audit/verify.ts";
import { raisedSwitches, switchText } from "../../daemon/kill_switch.ts";
import type { Approval } from "../../ledger/approvals.ts";
import type { ApprovalOf, DaySpend, OpenCounts, VerbSpend } from "../../ledger/history_reads.ts";
import type { Ledger } from "../../ledger/ledger.ts";
import type { Trust } from "../../ledger/types.ts";
import { Digest } from "./digest.ts";
import { entries } from "./entries.ts";

/** Newest of each that the page lists; it says how many there are. */
export const LISTED = 10;
/** Days and verbs whose spend the page lists. */
export const SPEND_LISTED = 60;
const DAY_MS = 86_400_000;
/** Records of what people did that are looked at, so that the page can say how many there are. */
const DEEDS = [
  "trusted",
  "killed",
  "resumed",
  "approved",
  "denied",
  "resolved",
  "cancelled",
  "told",
  "human",
  "accepted-loss",
  "started-daemon",
  "stopped-daemon",
  "repaired",
  "keys",
  "stuck",
] as const;

/** One thing that a person or the daemon did. */
export interface Deed {
  readonly at: string;
  readonly event: string;
  readonly seq: number;
  readonly who: string;
  readonly facts: readonly string[];
}

/** What a report tells. */
export interface ReportFacts {
  readonly root: string;
  readonly version: string;
  /** When it was made, and from when on it tells; wall-clock milliseconds. */
  readonly made_ms: number;
  readonly since_ms: number | null;
  readonly limit: number;
  readonly serving: boolean;
  readonly edited: boolean;
  readonly trust: Trust | null;
  readonly switches: readonly { readonly name: string; readonly why: string }[];
  readonly open: OpenCounts;
  readonly digest: Digest;
  /** Requests and refusals that the ledger has in this time; more than the digest has when cut. */
  readonly in_time: { readonly requests: number; readonly refusals: number };
  /** The same without regard to time. */
  readonly in_ledger: { readonly requests: number; readonly refusals: number };
  readonly approvals: readonly ApprovalOf[];
  readonly approval_counts: ReadonlyMap<Approval["state"], number>;
  readonly spend_days: readonly DaySpend[];
  readonly spend_verbs: readonly VerbSpend[];
  readonly deeds: readonly Deed[];
  readonly deed_count: number;
  readonly events: ReadonlyMap<string, number>;
  /** The record after which the ledger's own records begin; 0 when it has all. */
  readonly floor: number;
  readonly chain: AuditReport | null;
}

/** Reads all but what the caller knows already. */
export function gather(
  ledger: Ledger,
  known: Pick<
    ReportFacts,
    "root" | "version" | "made_ms" | "since_ms" | "limit" | "serving" | "edited" | "chain"
  >,
): ReportFacts {
  const { since_ms, limit } = known;
  const { history } = ledger;
  const digest = new Digest();
  for (const entry of entries(ledger, { since_ms })) {
    if (digest.entries === limit) break;
    digest.add(entry);
  }
  digest.end();
  const rows = history.countRows({ since_ms });
  const events = history.eventCounts(since_ms);
  const deeds = history.records(DEEDS, null, since_ms, LISTED).map(({ seq, line }) =>
    deed(seq, line)
  );
  return {
    ...known,
    trust: ledger.currentTrust(),
    switches: raisedSwitches().map((name) => ({ name, why: switchText(name) })),
    open: history.counts(),
    digest,
    in_time: { requests: rows.passed, refusals: history.countRefusals(since_ms) },
    in_ledger: { requests: rows.all, refusals: history.countRefusals(null) },
    approvals: history.approvals(since_ms, LISTED),
    approval_counts: history.approvalCounts(since_ms),
    // Whole days, that of the first moment included; today always, since it can be what needs a human.
    spend_days: history.spendDays(
      since_ms === null ? null : Math.floor(Math.min(since_ms, known.made_ms) / DAY_MS),
      SPEND_LISTED,
    ),
    spend_verbs: history.spendByVerb(since_ms, SPEND_LISTED),
    deeds,
    deed_count: DEEDS.reduce((n, event) => n + (events.get(event) ?? 0), 0),
    events,
    floor: ledger.floor()?.seq ?? 0,
  };
}

const WITHOUT = /sha256|digest|claim|control|^policy$|^by$|^run$|^uid$/;

function deed(seq: number, line: string): Deed {
  const { at, event, agent, id, seq: _seq, prev: _prev, hash: _hash, ...rest } = JSON.parse(line);
  const by = typeof rest["by"] === "string" ? rest["by"] : "";
  const of = typeof agent === "string" ? `${agent}${typeof id === "string" ? `/${id}` : ""}` : "";
  const facts = Object.entries(rest).filter(([name, value]) =>
    !WITHOUT.test(name) && value !== "" && ["string", "number", "boolean"].includes(typeof value)
  ).map(([name, value]) => `${name} ${String(value)}`);
  return {
    at: String(at),
    event: String(event),
    seq,
    who: by,
    facts: of === "" ? facts : [of, ...facts],
  };
}
