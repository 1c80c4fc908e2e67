/** What was told to agents and is noted later, together with others. */
import { assert, assertEquals } from "@std/assert";
import { Publisher } from "../src/daemon/publisher.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import type { Row, StoredAnswer } from "../src/ledger/types.ts";
import { there } from "./helpers/bridge.ts";
import { newRow } from "./ledger_fixture.ts";
import { SpoolRoot } from "./spool_fixture.ts";

/** A root with a ledger and a publisher. */
class Desk {
  readonly #root = new SpoolRoot();
  readonly ledger = Ledger.open("state/ledger.db", { now: Date.now, mode: "writer" });
  readonly publisher = new Publisher(this.ledger, () => {}, Date.now);

  /** Stores a request that runs, and tells of it. */
  begin(id: string): number {
    const rid = this.ledger.transaction((tx) =>
      tx.insertRow(newRow(id, { state: "running", started_ms: 1, run: "f".repeat(32) }))
    );
    this.publisher.row(this.row(rid));
    return rid;
  }

  /** Stores an answer that belongs to no row. */
  refuse(id: string): StoredAnswer {
    const answer = {
      claim: `claim-of-the-refused-${id}`,
      agent: "main",
      target: `results/${id}.json`,
      document: '{"outcome":"rejected"}\n',
    };
    this.ledger.transaction((tx) => tx.saveAnswer(answer));
    return answer;
  }

  told(id: string): string | null {
    const path = `spool/main/results/${id}.json`;
    return there(path) ? JSON.parse(Deno.readTextFileSync(path)).state ?? "refused" : null;
  }

  row(rid: number): Row {
    const row = this.ledger.row(rid);
    if (row === null) throw new Error(`There is no row ${rid}`);
    return row;
  }

  /** Notes what is marked. */
  note(): void {
    const { rids } = this.publisher.takeMarks();
    this.ledger.transaction((tx) => tx.markPublished(rids));
  }

  unpublished(): number[] {
    return this.ledger.unpublished(10).map((row) => row.rid);
  }

  [Symbol.dispose](): void {
    this.ledger.close();
    this.#root[Symbol.dispose]();
  }
}

Deno.test("takeMarks() leaves marks that are fewer than asked for, and gives each once", () => {
  using desk = new Desk();
  const { publisher } = desk;
  const rids = ["a", "b", "c"].map((id) => desk.begin(id));
  assertEquals(publisher.takeMarks(4), { rids: [], answered: [] });
  assertEquals([publisher.marks, desk.unpublished()], [3, rids]);
  assertEquals(publisher.takeMarks(3).rids.map((mark) => mark.rid), rids);
  assertEquals([publisher.marks, publisher.takeMarks()], [0, { rids: [], answered: [] }]);
});

Deno.test("a mark that waits never speaks of a newer result, which a crash may have kept back (S6)", () => {
  using desk = new Desk();
  const rid = desk.begin("a");
  const other = desk.begin("b");
  const result = { ...newRow("a").result, state: "done" } as const;
  desk.ledger.transaction((tx) => tx.updateRow(rid, { state: "done", finished_ms: 2, result }));
  // What is noted now, by whomever, is not that the newer one was told.
  desk.note();
  assertEquals([desk.unpublished(), desk.row(other).pub], [[rid], 1]);
  desk.publisher.row(desk.row(rid));
  desk.note();
  assertEquals(desk.unpublished(), []);
  // A change that decides nothing leaves the mark where it is.
  const third = desk.begin("c");
  desk.ledger.transaction((tx) => tx.updateRow(third, { replays: 1 }));
  desk.note();
  assertEquals(desk.unpublished(), []);
});

Deno.test("takeMarks() never leaves an answer for later, and what is marked with it goes along", () => {
  using desk = new Desk();
  const { publisher } = desk;
  const rid = desk.begin("a");
  const answer = desk.refuse("b");
  publisher.answer(answer);
  const { rids, answered } = publisher.takeMarks(1000);
  assertEquals([rids.map((mark) => mark.rid), answered], [[rid], [answer.claim]]);
});

Deno.test("an answer that is still owed when a row has its name is never told", () => {
  using desk = new Desk();
  const { ledger, publisher } = desk;
  const answer = desk.refuse("a");
  const other = desk.refuse("b");
  Deno.renameSync("work/main/staging", "work/main/away");
  publisher.answer(answer);
  publisher.answer(other);
  Deno.renameSync("work/main/away", "work/main/staging");
  assertEquals([publisher.backlog, desk.told("a"), desk.told("b")], [2, null, null]);
  const rid = desk.begin("a");
  assertEquals([desk.told("a"), ledger.answers()], ["pending", [other]]);
  publisher.retry();
  assertEquals([desk.told("a"), desk.told("b"), publisher.backlog], ["pending", "refused", 0]);
  // Whoever finds its claim knows all the same that it was answered.
  ledger.transaction((tx) => {
    tx.append({ event: "refused", agent: "main", id: "a", claim: answer.claim });
  });
  assertEquals(ledger.claimSeen(answer.claim), { kind: "answer", answer: null });
  assert(ledger.row(rid) !== null);
});
