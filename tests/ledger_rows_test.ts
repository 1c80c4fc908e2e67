/** Rows, keys, ids, answers, marks: what the ledger remembers of requests. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import type { Approval } from "../src/ledger/approvals.ts";
import { LedgerError } from "../src/ledger/ledger_error.ts";
import { MAX_IDS } from "../src/ledger/schema.ts";
import type { Spend } from "../src/ledger/spends.ts";
import type { Tx } from "../src/ledger/tx.ts";
import type { Row, Trust } from "../src/ledger/types.ts";
import { newRow, TempState } from "./ledger_fixture.ts";

Deno.test("insertRow() stores every field and gives it back after a restart", () => {
  using state = new TempState();
  const ledger = state.writer();
  const row = newRow("r1", {
    key: "deploy-1",
    lock: "stack",
    note: 'line\n"quoted" \u2028 \u{1f600}',
    plan: "plan",
    max_spend: 2.5,
    started_ms: 1_500.25,
    outcome: null,
    request: new Uint8Array([0, 255, 1, 0]),
  });
  const rid = ledger.transaction((tx) => tx.insertRow(row));
  const stored: Row = { ...row, rid, cancel: null, lookup: null, replays: 0, pub: 0 };
  assertEquals(ledger.row(rid), stored);
  ledger.close();
  const again = state.writer();
  assertEquals(again.row(rid), stored);
  assertEquals(again.rowById("main", "r1"), stored);
  assertEquals(again.rowByKey("main", "deploy-1"), stored);
  assertEquals(again.rowById("main", "deploy-1"), null);
  assertEquals(again.rowByKey("other", "deploy-1"), null);
  assertEquals(again.row(rid + 1), null);
});

Deno.test("row() gives a row as it was stored last, whatever was changed with it or since", () => {
  using state = new TempState();
  const ledger = state.writer();
  /** What `row` gives against what somebody reads who has seen nothing of it. */
  const assertRead = (rid: number, what: string) => {
    using reader = state.reader();
    assertEquals(ledger.row(rid), reader.row(rid), what);
  };
  const running = { state: "running", started_ms: 9, run: "f".repeat(32) } as const;
  const result = { chb: 1, id: "r1", agent: "main", state: "running", next: "wait" } as const;
  const rid = ledger.transaction((tx) =>
    tx.insertRow(newRow("r1", { ...running, note: "a note", max_spend: 0.5 }))
  );
  assertRead(rid, "stored");
  const changes = [
    ["updated", (tx: Tx, of: number) => tx.updateRow(of, { attempt: 2, result })],
    ["marked", (tx: Tx, of: number) => tx.markPublished([{ rid: of, files: 1, bytes: 9 }])],
    ["released", (tx: Tx, of: number) => tx.release(of)],
    ["forgotten", (tx: Tx, of: number) => void tx.reaping.forget(of)],
  ] as const;
  for (const [what, change] of changes) {
    const as = what === "forgotten" ? { ...running, state: "done" } as const : running;
    const before = ledger.transaction((tx) => tx.insertRow(newRow(`${what}-later`, as)));
    assert(ledger.row(before) !== null);
    ledger.transaction((tx) => change(tx, before));
    assertRead(before, `${what} by a later transaction`);
    const one = ledger.transaction((tx) => {
      const stored = tx.insertRow(newRow(`${what}-at-once`, as));
      if (what !== "marked") change(tx, stored);
      return stored;
    });
    assertRead(one, `${what} by the same transaction`);
  }
  const kept = ledger.transaction((tx) => tx.insertRow(newRow("kept", running)));
  assertThrows(() =>
    ledger.transaction((tx) => {
      tx.updateRow(kept, { attempt: 3 });
      assertEquals(ledger.row(kept)?.attempt, 3, "seen by its own transaction");
      throw new TypeError("undone");
    }), TypeError);
  assertRead(kept, "a transaction that was undone");
});

Deno.test("Q1 insertRow() refuses an id, a key and a claim that belong to a row, and changes nothing", () => {
  using state = new TempState();
  const ledger = state.writer();
  ledger.transaction((tx) => tx.insertRow(newRow("r1", { key: "k1" })));
  for (
    const row of [
      newRow("r1", { key: "k2", claim: "c2" }),
      newRow("r2", { key: "k1", claim: "c2" }),
      newRow("r2", { key: "k2", claim: "claim-of-main-r1" }),
    ]
  ) {
    const error = assertThrows(
      () => ledger.transaction((tx) => tx.insertRow(row)),
      LedgerError,
    );
    assertEquals(error.kind, "constraint");
    assertEquals(ledger.rowById("main", "r2"), null);
    assertEquals(ledger.recent("main", 10).length, 1);
  }
  // Another agent's names are its own.
  ledger.transaction((tx) => tx.insertRow(newRow("r1", { agent: "other", key: "k1" })));
  assertEquals(ledger.rowByKey("other", "k1")?.agent, "other");
});

Deno.test("bindId() lets 31 more ids join, keeps their order, and says no to the next", () => {
  using state = new TempState();
  const ledger = state.writer();
  const rid = ledger.transaction((tx) => tx.insertRow(newRow("z-first")));
  const other = ledger.transaction((tx) => tx.insertRow(newRow("other")));
  ledger.transaction((tx) => {
    for (let n = 1; n < MAX_IDS; n++) assert(tx.bindId("main", `j${99 - n}`, rid));
    assertEquals(tx.bindId("main", "one-more", rid), false);
    assertEquals(tx.bindId("main", "j98", rid), true, "an id that has joined stays");
  });
  assertEquals(ledger.idsOf(rid).length, 32);
  assertEquals(ledger.idsOf(rid).slice(0, 3), ["z-first", "j98", "j97"]);
  assertEquals(ledger.rowById("main", "j80")?.rid, rid);
  assertEquals(ledger.rowById("main", "one-more"), null);
  const taken = assertThrows(
    () => ledger.transaction((tx) => tx.bindId("main", "j98", other)),
    LedgerError,
  );
  assertEquals(taken.kind, "constraint");
  assertThrows(() => ledger.transaction((tx) => tx.bindId("main", "x", 999)), LedgerError);
});

Deno.test("updateRow() changes what it names; a new result makes the row unpublished", () => {
  using state = new TempState();
  const ledger = state.writer();
  const rid = ledger.transaction((tx) => tx.insertRow(newRow("r1")));
  ledger.transaction((tx) => tx.markPublished([{ rid: rid, files: 1, bytes: 100 }]));
  assertEquals(ledger.row(rid)?.pub, 1);
  ledger.transaction((tx) => tx.updateRow(rid, { attempt: 1, run: "f".repeat(32) }));
  assertEquals(ledger.row(rid)?.pub, 1);
  assertEquals(ledger.row(rid)?.attempt, 1);
  const result = { chb: 1, id: "r1", agent: "main", state: "running", next: "wait" } as const;
  ledger.transaction((tx) => tx.updateRow(rid, { state: "running", started_ms: 9, result }));
  assertEquals(ledger.row(rid)?.pub, 0);
  assertEquals(ledger.row(rid)?.result, result);
  ledger.transaction((tx) => tx.updateRow(rid, { pub: 2 }));
  ledger.transaction((tx) => tx.updateRow(rid, { result }));
  assertEquals(ledger.row(rid)?.pub, 2, "a reaped row stays reaped");
  ledger.transaction((tx) => tx.updateRow(rid, { result, pub: 0 }));
  assertEquals(ledger.row(rid)?.pub, 0);
  assertThrows(() => ledger.transaction((tx) => tx.updateRow(77, { attempt: 2 })), RangeError);
  assertThrows(() => ledger.transaction((tx) => tx.updateRow(rid, {})), TypeError);
  assertThrows(
    // @ts-expect-error the type forbids it as well
    () => ledger.transaction((tx) => tx.updateRow(rid, { verb: "down" })),
    TypeError,
  );
});

Deno.test("markPublished() never marks a document that was decided in the same transaction", () => {
  using state = new TempState();
  const ledger = state.writer();
  const rid = ledger.transaction((tx) => tx.insertRow(newRow("r1")));
  const result = newRow("r1").result;
  ledger.transaction((tx) => {
    tx.markPublished([{ rid: rid, files: 1, bytes: 100 }]);
    tx.updateRow(rid, { result });
  });
  assertEquals(ledger.row(rid)?.pub, 0);
  ledger.transaction((tx) => {
    tx.updateRow(rid, { result });
    tx.markPublished([{ rid: rid, files: 1, bytes: 100 }]);
  });
  assertEquals(ledger.row(rid)?.pub, 0);
  assertEquals(ledger.unpublished(10).map((row) => row.rid), [rid]);
  ledger.transaction((tx) =>
    tx.markPublished([rid, 4711].map((n) => ({ rid: n, files: 1, bytes: 100 })))
  );
  assertEquals(ledger.unpublished(10), []);
});

Deno.test("unpublished() gives the oldest first, up to its limit", () => {
  using state = new TempState();
  const ledger = state.writer();
  const rids = ledger.transaction((tx) => ["a", "b", "c"].map((id) => tx.insertRow(newRow(id))));
  assertEquals(ledger.unpublished(2).map((row) => row.rid), rids.slice(0, 2));
});

Deno.test("release() frees key and ids, keeps the row, and lets the names be bound again", () => {
  using state = new TempState();
  const ledger = state.writer();
  const rid = ledger.transaction((tx) => tx.insertRow(newRow("r1", { key: "k1" })));
  ledger.transaction((tx) => {
    tx.bindId("main", "r2", rid);
    tx.updateRow(rid, { state: "done", outcome: "rejected", reason: "killed" });
    tx.release(rid);
  });
  assertEquals(ledger.rowById("main", "r1"), null);
  assertEquals(ledger.rowByKey("main", "k1"), null);
  assertEquals(ledger.idsOf(rid), []);
  assertEquals(ledger.row(rid)?.key, null);
  assertEquals(ledger.row(rid)?.pub, 0);
  const next = ledger.transaction((tx) =>
    tx.insertRow(newRow("r1", { key: "k1", claim: "second" }))
  );
  assert(next > rid);
  assertEquals(ledger.rowById("main", "r1")?.rid, next);
  assertEquals(ledger.row(rid)?.pub, 2, "the old document can no longer overwrite the new one");
  assertEquals(ledger.recent("main", 9).map((row) => row.rid), [next, rid]);
  assertThrows(() => ledger.transaction((tx) => tx.release(99)), RangeError);
});

Deno.test("unfinished() gives pending and running rows in order of arrival", () => {
  using state = new TempState();
  const ledger = state.writer();
  const rids = ledger.transaction((tx) =>
    ["a", "b", "c", "d", "e"].map((id) => tx.insertRow(newRow(id)))
  );
  const [a, b, c, d, e] = rids;
  assert(a && b && c && d && e);
  ledger.transaction((tx) => {
    tx.updateRow(a, { state: "running" });
    tx.updateRow(c, { state: "done" });
    tx.updateRow(d, { state: "uncertain" });
  });
  assertEquals(ledger.unfinished().map((row) => [row.rid, row.state]), [
    [a, "running"],
    [b, "pending"],
    [e, "pending"],
  ]);
});

Deno.test("countWaiting() counts pending rows of one agent, in a transaction and after a restart", () => {
  using state = new TempState();
  const ledger = state.writer();
  const rid = ledger.transaction((tx) => {
    const first = tx.insertRow(newRow("a"));
    assertEquals(ledger.countWaiting("main"), 1);
    tx.insertRow(newRow("b"));
    tx.insertRow(newRow("c", { state: "running" }));
    tx.insertRow(newRow("d", { agent: "other" }));
    return first;
  });
  assertThrows(
    () =>
      ledger.transaction((tx) => {
        tx.insertRow(newRow("e"));
        throw new Error("undo");
      }),
    Error,
    "undo",
  );
  assertEquals(ledger.countWaiting("main"), 2);
  ledger.transaction((tx) => tx.updateRow(rid, { state: "running" }));
  ledger.transaction((tx) => tx.updateRow(rid, { state: "running", attempt: 2 }));
  assertEquals(ledger.countWaiting("main"), 1);
  assertEquals(ledger.countWaiting("nobody"), 0);
  const reader = state.reader();
  assertEquals(reader.countWaiting("main"), 1);
  assertEquals(reader.countWaiting("other"), 1);
  reader.close();
  ledger.close();
  const again = state.writer();
  assertEquals(again.countWaiting("main"), 1);
  assertEquals(again.countWaiting("other"), 1);
});

Deno.test("Q9 countStarted() and startTick() remember starts and what waits over a restart", () => {
  using state = new TempState();
  const ledger = state.writer();
  ledger.transaction((tx) => {
    for (const [n, ms] of [100, 200, 300].entries()) {
      tx.insertRow(
        newRow(`a${n}`, { state: "done", class: "mutating", started_ms: 1, started_tick: ms }),
      );
    }
    tx.insertRow(
      newRow("b", { state: "done", class: "observe", started_ms: 1, started_tick: 200 }),
    );
    tx.insertRow(
      newRow("c", { agent: "other", class: "mutating", started_ms: 1, started_tick: 200 }),
    );
    tx.insertRow(newRow("d", { class: "mutating" }));
  });
  ledger.close();
  const again = state.writer();
  assertEquals(again.countStarted("main", "mutating", 0), 4, "the one that waits counts too");
  assertEquals(again.countStarted("main", "mutating", 199), 3);
  // A start leaves the window at the very end of it.
  assertEquals(again.countStarted("main", "mutating", 200), 2);
  assertEquals(again.startTick("main", "mutating", 100, 0), 200);
  assertEquals(again.startTick("main", "mutating", 100, 1), 300);
  assertEquals(again.countStarted("main", "mutating", 301), 1);
  assertEquals(again.startTick("main", "mutating", 100, 2), null);
  assertEquals(again.countStarted("main", "destructive", 0), 0);
});

Deno.test("countStarted() leaves out what waits for a human, until it is approved", () => {
  using state = new TempState();
  const ledger = state.writer();
  const approval: Approval = {
    state: "waiting",
    since_ms: 1,
    until_ms: 2.5,
    digest: null,
    parts: null,
    by: null,
    at_ms: null,
  };
  const rid = ledger.transaction((tx) => {
    const made = tx.insertRow(newRow("a", { class: "mutating" }));
    tx.putApproval(made, approval);
    return made;
  });
  assertEquals(ledger.countStarted("main", "mutating", 0), 0);
  assertEquals(ledger.approval(rid), approval);
  const given: Approval = {
    ...approval,
    state: "given",
    digest: "d",
    parts: "{}",
    by: "ann",
    at_ms: 3,
  };
  ledger.transaction((tx) => tx.putApproval(rid, given));
  assertEquals(ledger.countStarted("main", "mutating", 0), 1);
  ledger.close();
  const again = state.writer();
  assertEquals(again.approval(rid), given);
  assertEquals(again.approval(rid + 1), null);
});

Deno.test("what is held, reserved and spent is exact, and there after a restart", () => {
  using state = new TempState();
  const ledger = state.writer();
  const huge = 999_999_999_999_999_999n;
  const [a, b] = ledger.transaction((tx) => {
    const rids = [tx.insertRow(newRow("a")), tx.insertRow(newRow("b"))];
    const held: Spend = { agent: "main", state: "held", day: null, granted: huge, charged: 0n };
    for (const rid of rids) tx.putSpend(rid, held);
    tx.putSpendDay("main", 20_000, { spent: huge * 100n, blocked: true });
    return rids;
  });
  assert(a !== undefined && b !== undefined);
  assertEquals(ledger.heldSpend("main"), huge * 2n);
  assertEquals(ledger.heldSpend("other"), 0n);
  const charged: Spend = { agent: "main", state: "charged", day: 3, granted: huge, charged: 1n };
  ledger.transaction((tx) => tx.putSpend(a, charged));
  ledger.close();
  const again = state.writer();
  assertEquals(again.heldSpend("main"), huge);
  assertEquals(again.openSpends(), [b]);
  assertEquals(again.spend(a), charged);
  assertEquals(again.spendDay("main", 20_000), { spent: huge * 100n, blocked: true });
  assertEquals(again.spendDay("main", 20_001), { spent: 0n, blocked: false });
});

Deno.test("recent() gives an agent's newest rows first, without their requests", () => {
  using state = new TempState();
  const ledger = state.writer();
  ledger.transaction((tx) => {
    for (let n = 0; n < 5; n++) tx.insertRow(newRow(`r${n}`));
    tx.insertRow(newRow("x", { agent: "other" }));
  });
  assertEquals(ledger.recent("main", 3).map((row) => row.id), ["r4", "r3", "r2"]);
  assert(ledger.recent("main", 3).every((row) => !("request" in row)));
});

Deno.test("claimSeen() finds a claim in a row, an answer, a join, or only in a record", () => {
  using state = new TempState();
  const ledger = state.writer();
  const answer = { claim: "c-bad", agent: "main", target: "bad.json", document: "{}" };
  const rid = ledger.transaction((tx) => {
    const made = tx.insertRow(newRow("r1", { claim: "c-row" }));
    tx.append({ event: "accepted", agent: "main", id: "r1", claim: "c-row" });
    tx.saveAnswer(answer);
    tx.append({ event: "refused", agent: "main", id: "bad", claim: "c-bad" });
    tx.bindId("main", "r2", made);
    tx.append({ event: "joined", agent: "main", id: "r2", claim: "c-join" });
    tx.append({ event: "refused", agent: "main", id: "r2", claim: "c-conflict" });
    return made;
  });
  assertEquals(ledger.claimSeen("c-row"), { kind: "row", rid });
  assertEquals(ledger.claimSeen("c-bad"), { kind: "answer", answer });
  assertEquals(ledger.answers(), [answer]);
  assertEquals(ledger.claimSeen("c-join"), { kind: "row", rid });
  assertEquals(ledger.claimSeen("c-conflict"), { kind: "answer", answer: null });
  assertEquals(ledger.claimSeen("c-never"), null);
  ledger.transaction((tx) => tx.dropAnswer("c-bad"));
  assertEquals(ledger.claimSeen("c-bad"), { kind: "answer", answer: null });
  assertEquals(ledger.answers(), []);
  ledger.transaction((tx) => tx.release(rid));
  assertEquals(ledger.claimSeen("c-join"), { kind: "answer", answer: null });
  assertEquals(ledger.claimSeen("c-row"), { kind: "row", rid });
});

Deno.test("saveAnswer() refuses a second answer to one claim and keeps the order of the others", () => {
  using state = new TempState();
  const ledger = state.writer();
  const answer = (claim: string) => ({ claim, agent: "main", target: null, document: "{}" });
  ledger.transaction((tx) => ["z", "a", "m"].forEach((claim) => tx.saveAnswer(answer(claim))));
  assertThrows(() => ledger.transaction((tx) => tx.saveAnswer(answer("a"))), LedgerError);
  assertEquals(ledger.answers().map((saved) => saved.claim), ["z", "a", "m"]);
});

Deno.test("setMeta() stores and replaces; the ledger's own names are out of reach", () => {
  using state = new TempState();
  const ledger = state.writer();
  assertEquals(ledger.meta("pins.main"), null);
  ledger.transaction((tx) => tx.setMeta("pins.main", "1"));
  ledger.transaction((tx) => tx.setMeta("pins.main", "2"));
  assertEquals(ledger.meta("pins.main"), "2");
  assertThrows(
    () => ledger.transaction((tx) => tx.setMeta("ledger.clean", "1")),
    TypeError,
  );
  assertEquals(ledger.meta("ledger.clean"), "0");
});

Deno.test("setTrust() makes the newest trust the current one", () => {
  using state = new TempState();
  const ledger = state.writer();
  assertEquals(ledger.currentTrust(), null);
  const trust: Trust = {
    policy: "1".repeat(64),
    at_ms: 5,
    by: "alice",
    programs: [{
      path: "/usr/bin/true",
      dev: "1",
      ino: "18446744073709551615",
      size: 3,
      mtime_ms: 9,
    }],
    requires: [["base/compose.yaml", "2".repeat(64)]],
    bin_sha256: null,
  };
  ledger.transaction((tx) => tx.setTrust({ ...trust, policy: "0".repeat(64) }));
  ledger.transaction((tx) => tx.setTrust(trust));
  assertEquals(ledger.currentTrust(), trust);
  assertEquals(state.reader().currentTrust(), trust);
});
