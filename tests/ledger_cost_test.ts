/** What a question costs must not depend on how much is stored. */
import { assert, assertEquals } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import type { Ledger } from "../src/ledger/ledger.ts";
import { Driver, newRow, TempState } from "./ledger_fixture.ts";

/** Everything that a request may cause, once. */
function exercise(ledger: Ledger, reader: Ledger): void {
  const rid = ledger.transaction((tx) => {
    const made = tx.insertRow(newRow("r1"));
    tx.append({ event: "accepted", agent: "main", id: "r1", claim: "c1" });
    tx.bindId("main", "r2", made);
    tx.markPublished([{ rid: made, files: 1, bytes: 100 }]);
    return made;
  });
  ledger.transaction((tx) => {
    tx.markPublished([{ rid: rid, files: 1, bytes: 100 }]);
    tx.updateRow(rid, { state: "running", started_ms: 1, started_tick: 1 });
    tx.updateRow(rid, { result: newRow("r1").result });
    tx.saveAnswer({ claim: "c2", agent: "main", target: null, document: "{}" });
    tx.dropAnswer("c2");
    tx.setMeta("k", "v");
    tx.release(rid);
    tx.putApproval(rid, {
      state: "waiting",
      since_ms: 1,
      until_ms: 2,
      digest: null,
      parts: null,
      by: null,
      at_ms: null,
    });
    tx.putSpend(rid, { agent: "main", state: "held", day: null, granted: 1n, charged: 0n });
    tx.putSpendDay("main", 1, { spent: 1n, blocked: false });
    tx.setTrust({
      policy: "p",
      at_ms: 1,
      by: "me",
      programs: [],
      requires: [],
      bin_sha256: null,
    });
  });
  ledger.transaction((tx) => {
    const old = tx.insertRow(newRow("r3", { state: "done" }));
    tx.saveAnswer({ claim: "c4", agent: "main", target: "results/r4.json", document: "{}" });
    tx.dropAnswer("c4");
    tx.reaping.reapAnswer(2);
    tx.reaping.forget(old);
    tx.reaping.markHour(1, 1);
    tx.reaping.dropHours(1);
  });
  ledger.transaction((tx) => {
    const old = tx.insertRow(newRow("r5", { state: "done" }));
    tx.updateRow(old, { pub: 1 });
    tx.reaping.reap(old, newRow("r5").result);
  });
  for (const one of [ledger, reader]) {
    one.rowById("main", "r1");
    one.rowByKey("main", "r1");
    one.row(rid);
    one.idsOf(rid);
    one.unfinished();
    one.unpublished(10);
    one.recent("main", 10);
    for (const claim of ["claim-of-main-r1", "c1", "c2", "c3"]) one.claimSeen(claim);
    one.answers();
    one.countStarted("main", "observe", 0);
    one.startTick("main", "observe", 0, 0);
    one.approval(rid);
    one.spend(rid);
    one.openSpends();
    one.heldSpend("main");
    one.spendDay("main", 1);
    one.countWaiting("main");
    one.head();
    one.records(1, 10);
    one.metaNames("pins.");
    const { reaping } = one;
    reaping.horizon(1);
    reaping.lastHour();
    reaping.oldestRows("main", 10);
    reaping.oldestAnswers("main", 10);
    reaping.row(rid);
    reaping.lastRow();
    reaping.rows(0, 10, 10);
    reaping.rowsOf("main", 0, 10);
    reaping.countRows("main", 0, 10);
    reaping.nextAgent("");
    reaping.isTaken("main", "r9", 1, {});
    reaping.isPolicyKnown("p");
    one.meta("k");
    one.currentTrust();
  }
}

Deno.test("no statement of the ledger scans a table, only indexes of what is open or shown", () => {
  using state = new TempState();
  const statements = new Set<string>();
  {
    using driver = new Driver();
    exercise(state.writer(), state.reader());
    for (const sql of driver.sql) {
      if (/^(SELECT|UPDATE|DELETE|INSERT)/.test(sql)) statements.add(sql);
    }
  }
  assert(statements.size > 25, `only ${statements.size} statements were seen`);
  const db = new DatabaseSync(state.path, { readOnly: true });
  try {
    const scans = new Map<string, string>();
    for (const sql of statements) {
      for (const step of db.prepare(`EXPLAIN QUERY PLAN ${sql}`).all()) {
        const detail = String(step["detail"]);
        if (detail.startsWith("SCAN")) scans.set(sql, detail);
      }
    }
    // Both when a ledger is made or opened: a handful of entries of SQLite's own, and of ours.
    const found = [...scans].filter(([sql]) =>
      !sql.includes("FROM sqlite_schema") && !sql.includes("'ledger.generation', '0'")
    );
    // What people decided is a handful; a piece of a count is as long as it was asked to be.
    const indexes = found.filter(([, detail]) => !/trusts|subquery/.test(detail)).map((
      [, detail],
    ) => detail).sort();
    assertEquals([...new Set(indexes)], [
      "SCAN answers USING COVERING INDEX answers_shown",
      "SCAN answers USING INDEX answers_open",
      "SCAN rows USING COVERING INDEX rows_shown",
    ]);
  } finally {
    db.close();
  }
});

// Time is a poor witness, so the margin is wide; a scan would be a hundred times slower.
Deno.test("a question takes the same time among 200 rows and among 10,000, within a wide margin", () => {
  const median = (rows: number): number => {
    using state = new TempState();
    const ledger = state.writer();
    ledger.transaction((tx) => {
      for (let n = 0; n < rows; n++) {
        const rid = tx.insertRow(
          newRow(`r${n}`, { state: "done", started_ms: n, started_tick: n, received_ms: n }),
        );
        tx.updateRow(rid, { pub: 1 });
      }
    });
    const times: number[] = [];
    for (let n = 0; n < 60; n++) {
      const begin = performance.now();
      ledger.rowById("main", `r${n}`);
      ledger.rowByKey("main", `r${n}x`);
      ledger.claimSeen(`claim-${n}`);
      ledger.unpublished(10);
      ledger.unfinished();
      ledger.countStarted("main", "observe", rows - 5);
      ledger.recent("main", 5);
      times.push(performance.now() - begin);
    }
    return times.sort((a, b) => a - b)[30] ?? 0;
  };
  const small = median(200);
  const large = median(10_000);
  assert(large < 8 * small + 1, `${small} ms among 200 rows, ${large} ms among 10,000`);
});
