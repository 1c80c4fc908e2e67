/**
 * Whether everything that a bridge leaves tells the same story: ledger, published results, audit
 * text, run directories, and the side effects of what ran.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { AuditText } from "../../src/audit/audit_text.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { Row } from "../../src/ledger/types.ts";
import type { Result } from "../../src/result.ts";
import { sleep, type TestBridge } from "./bridge.ts";

/** What was asked and what came of it. */
export interface Story {
  /** Ids of requests that were sent. */
  readonly ids: readonly string[];
  /** Keys in the order of their starts, one for each start, as the commands themselves noted it. */
  readonly starts: readonly string[];
  /** Keys that may be uncertain: what ran them was killed. */
  readonly mayBeUncertain: (key: string) => boolean;
}

const FINAL = new Set(["finished", "uncertain", "refused", "answered"]);

/** A published result without what tells of its publication. */
function bare(result: Result): Record<string, unknown> {
  const { replays: _1, replayed_at: _2, hint: _3, ...rest } = result;
  return rest;
}

/** True for a file without content; false also when it is gone by now. */
export function isEmptyFile(path: string): boolean {
  try {
    return Deno.lstatSync(path).size === 0;
  } catch {
    return false;
  }
}

/** What does not agree, as sentences. */
function disagreements(bridge: TestBridge, story: Story): string[] {
  const wrong: string[] = [];
  const started = new Map<string, number>();
  for (const key of story.starts) started.set(key, (started.get(key) ?? 0) + 1);
  for (const [key, n] of started) if (n > 1) wrong.push(`key ${key} was started ${n} times`);
  for (const dir of ["queue", "claims", "staging"]) {
    const path = bridge.path(dir === "queue" ? "spool/main/queue" : `work/main/${dir}`);
    const left = [...Deno.readDirSync(path)].map(({ name }) => name);
    // One without content is kept for the next result.
    const isAhead = dir === "staging" && left.length === 1 && isEmptyFile(`${path}/${left[0]}`);
    if (!isAhead) { for (const name of left) wrong.push(`${dir}/${name} was left`); }
  }
  using ledger = Ledger.open(bridge.path("state/ledger.db"), { now: Date.now, mode: "reader" });
  for (const row of ledger.unfinished()) wrong.push(`row ${row.id} is ${row.state}`);
  for (const row of ledger.unpublished(10)) wrong.push(`row ${row.id} counts as unpublished`);
  for (const answer of ledger.answers()) wrong.push(`the answer ${answer.target} was kept`);
  const verdict = new AuditText(bridge.path("state/audit/audit.jsonl")).verify(ledger);
  if (!verdict.ok) wrong.push(`the audit text is wrong at ${verdict.seq}: ${verdict.problem}`);
  const records = bridge.audit();
  const rows = new Set<number>();
  for (const id of story.ids) {
    const result = bridge.result(id);
    if (result === null || (result.state !== "done" && result.state !== "uncertain")) {
      wrong.push(`${id} has no final result: ${result?.state}`);
      continue;
    }
    const row = ledger.rowById("main", id);
    if (row === null) {
      if (result.outcome !== "rejected") wrong.push(`${id} is ${result.reason} and has no row`);
      continue;
    }
    if (!rows.has(row.rid)) wrong.push(...rowDisagreements(row, story, started, records));
    rows.add(row.rid);
    const told = JSON.stringify(bare(row.id === id ? result : { ...result, id: row.id }));
    const { replay_of: _, ...stored } = JSON.parse(told);
    if (JSON.stringify(stored) !== JSON.stringify(bare(row.result))) {
      wrong.push(`${id} tells ${told}, the ledger ${JSON.stringify(row.result)}`);
    }
  }
  return wrong;
}

function rowDisagreements(
  row: Row,
  story: Story,
  started: ReadonlyMap<string, number>,
  records: readonly Record<string, unknown>[],
): string[] {
  const wrong: string[] = [];
  const n = started.get(row.key ?? "") ?? 0;
  const is = `${row.id} (key ${row.key}) is ${row.state} ${row.reason}`;
  if (row.state === "done" && n !== 1) wrong.push(`${is}, and ran ${n} times`);
  if (row.state === "uncertain" && !story.mayBeUncertain(row.key ?? "")) wrong.push(is);
  const final = records.filter((r) => r["id"] === row.id && FINAL.has(String(r["event"])));
  if (final.length !== 1) wrong.push(`${is}, and ${final.length} records say how it ended`);
  else if (final[0]?.["hash"] !== row.result.audit?.hash) wrong.push(`${is}: another record`);
  return wrong;
}

/**
 * Fails unless all of it agrees. What is on its way (a mark that a row was published, a claim that
 * is to be removed) gets its time.
 */
export async function assertAgreement(bridge: TestBridge, story: Story, what = ""): Promise<void> {
  const end = performance.now() + 20_000;
  let wrong = disagreements(bridge, story);
  while (wrong.length > 0 && performance.now() < end) {
    await sleep(100);
    wrong = disagreements(bridge, story);
  }
  assertEquals(wrong, [], what);
  assert(story.ids.length > 0);
}
