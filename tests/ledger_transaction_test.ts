/** Transactions: all or nothing, in order, and what a failing disk leaves. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { GENESIS, verifyLine } from "../src/audit/chain.ts";
import type { Ledger } from "../src/ledger/ledger.ts";
import { LedgerError } from "../src/ledger/ledger_error.ts";
import { sqlValue } from "../src/ledger/bind.ts";
import type { StoredRecord } from "../src/ledger/types.ts";
import { Driver, newRow, sqliteError, TempState, withRun } from "./ledger_fixture.ts";

/** Every record must follow the one before it; gives their number. */
function checkChain(ledger: Ledger): number {
  let prev = GENESIS;
  const records = ledger.records(1, 10_000);
  for (const [index, record] of records.entries()) {
    const ref = verifyLine(record.line, prev);
    assertEquals(ref, { seq: index + 1, hash: record.hash });
    prev = record.hash;
  }
  assertEquals(ledger.head()?.hash ?? GENESIS, prev);
  return records.length;
}

function kindOf(fn: () => unknown): string {
  return assertThrows(fn, LedgerError).kind;
}

Deno.test("append() numbers the records, chains them and dates them with the ledger's clock", () => {
  using state = new TempState();
  const ledger = state.writer();
  assertEquals(ledger.head(), null);
  const first = ledger.transaction((tx) => tx.append({ event: "started-daemon", pid: 7 }));
  state.clock.ms += 1000;
  const [second, third] = ledger.transaction((tx) => [
    tx.append({ event: "accepted", agent: "main", id: "r1", claim: "c1" }),
    tx.append({ event: "started", agent: "main", id: "r1" }),
  ]);
  assertEquals([first.seq, second?.seq, third?.seq], [1, 2, 3]);
  assertEquals(ledger.head(), third);
  assertEquals(checkChain(ledger), 3);
  const lines = ledger.records(1, 10).map((record) => JSON.parse(record.line));
  assertEquals(Object.keys(lines[1]), [
    "seq",
    "at",
    "event",
    "agent",
    "id",
    "claim",
    "prev",
    "hash",
  ]);
  assertEquals(lines[0].at, "2026-01-02T03:04:05.678Z");
  assertEquals(lines[1].at, "2026-01-02T03:04:06.678Z");
  assertEquals(ledger.records(2, 1).map((record) => record.seq), [2]);
  assertEquals(ledger.records(4, 1), []);
});

Deno.test("transaction() commits everything or nothing, the record's number included", () => {
  using state = new TempState();
  const ledger = state.writer();
  ledger.transaction((tx) => tx.append({ event: "started-daemon" }));
  const before = ledger.head();
  const error = assertThrows(() =>
    ledger.transaction((tx) => {
      tx.insertRow(newRow("r1"));
      tx.append({ event: "accepted", id: "r1" });
      assertEquals(ledger.head()?.seq, 2);
      throw new Error("no");
    }), Error);
  assertEquals(error.message, "no");
  assertEquals(ledger.head(), before);
  assertEquals(ledger.rowById("main", "r1"), null);
  ledger.transaction((tx) => {
    tx.insertRow(newRow("r1"));
    tx.append({ event: "accepted", id: "r1" });
  });
  ledger.close();
  const again = state.writer();
  assertEquals(checkChain(again), 2);
  assertEquals(again.rowById("main", "r1")?.id, "r1");
});

Deno.test("transaction() refuses to nest, to wait for a promise, and to be used afterwards", () => {
  using state = new TempState();
  const ledger = state.writer();
  assertThrows(() => ledger.transaction(() => ledger.transaction(() => 0)), Error, "open");
  assertThrows(
    () =>
      ledger.transaction((tx) => {
        tx.setMeta("a", "1");
        return Promise.resolve();
      }),
    TypeError,
  );
  assertEquals(ledger.meta("a"), null);
  const kept = ledger.transaction((tx) => tx);
  assertEquals(kindOf(() => kept.setMeta("a", "1")), "closed");
  assertEquals(kindOf(() => kept.append({ event: "human" })), "closed");
});

Deno.test("afterCommit gets the records of each commit in order, and nothing of a rollback", () => {
  using state = new TempState();
  const ledger = state.writer();
  const seen: number[] = [];
  ledger.afterCommit = (records: readonly StoredRecord[]) => {
    assert(records.length > 0);
    for (const record of records) {
      assertEquals(ledger.records(record.seq, 1), [record], "the commit comes first");
      seen.push(record.seq);
    }
  };
  ledger.transaction((tx) => tx.append({ event: "accepted" }));
  ledger.transaction((tx) => tx.setMeta("a", "b"));
  assertThrows(() =>
    ledger.transaction((tx) => {
      tx.append({ event: "refused" });
      throw new Error("no");
    })
  );
  ledger.transaction((tx) => [tx.append({ event: "started" }), tx.append({ event: "finished" })]);
  assertEquals(seen, [1, 2, 3]);
});

Deno.test("an error in afterCommit does not undo the commit, and is not hidden", async () => {
  using state = new TempState();
  const ledger = state.writer();
  ledger.afterCommit = () => {
    throw new Error("hook");
  };
  const seen = Promise.withResolvers<string>();
  const listener = (event: ErrorEvent) => {
    event.preventDefault();
    seen.resolve(event.message);
  };
  globalThis.addEventListener("error", listener);
  try {
    assertEquals(ledger.transaction((tx) => tx.append({ event: "human" })).seq, 1);
    assert((await seen.promise).includes("hook"));
  } finally {
    globalThis.removeEventListener("error", listener);
  }
  assertEquals(ledger.head()?.seq, 1);
});

Deno.test("S1 D41 a full ledger undoes the transaction, keeps what it has, and goes on when there is space", () => {
  using state = new TempState();
  using driver = new Driver();
  const ledger = state.writer();
  const db = [...driver.connections].at(-1);
  assert(db !== undefined);
  ledger.transaction((tx) => {
    tx.insertRow(newRow("r1"));
    tx.append({ event: "accepted", id: "r1" });
  });
  const pages = Number(db.prepare("PRAGMA page_count").get()?.["page_count"]);
  db.prepare(`PRAGMA max_page_count = ${pages + 2}`).get();
  const big = newRow("r2", { request: new Uint8Array(60_000) });
  assertEquals(kindOf(() => ledger.transaction((tx) => tx.insertRow(big))), "full");
  // Whoever catches the error inside must not commit what is left.
  const caught = kindOf(() =>
    ledger.transaction((tx) => {
      tx.append({ event: "accepted", id: "r2" });
      assertThrows(() => tx.insertRow(big), LedgerError);
      try {
        tx.setMeta("leak", "1");
      } catch {
        // Swallowed on purpose.
      }
    })
  );
  assertEquals(caught, "full");
  assertEquals(ledger.meta("leak"), null);
  assertEquals(ledger.rowById("main", "r1")?.id, "r1");
  assertEquals(ledger.rowById("main", "r2"), null);
  assertEquals(ledger.countWaiting("main"), 1);
  assertEquals(checkChain(ledger), 1);
  db.prepare("PRAGMA max_page_count = 100000").get();
  ledger.transaction((tx) => {
    tx.insertRow(big);
    tx.append({ event: "accepted", id: "r2" });
  });
  assertEquals(checkChain(ledger), 2);
});

Deno.test("a caught error dooms its transaction, and only that one", () => {
  using state = new TempState();
  const ledger = state.writer();
  ledger.transaction((tx) => tx.insertRow(newRow("r1")));
  const kind = kindOf(() =>
    ledger.transaction((tx) => {
      tx.setMeta("a", "1");
      try {
        tx.insertRow(newRow("r1", { claim: "other" }));
      } catch {
        // Swallowed on purpose.
      }
    })
  );
  assertEquals(kind, "constraint");
  assertEquals(ledger.meta("a"), null);
  ledger.transaction((tx) => tx.setMeta("a", "2"));
  assertEquals(ledger.meta("a"), "2");
});

for (const persisted of [false, true]) {
  const what = persisted ? "was stored all the same" : "was lost";
  Deno.test(`S5 after a commit that failed in the device nothing more is done; it ${what}`, () => {
    using state = new TempState();
    {
      using driver = new Driver();
      let fault = false;
      driver.replace = (sql, real) =>
        sql !== "COMMIT" ? undefined : withRun(real, () => {
          if (!fault || persisted) real.run();
          if (fault) throw sqliteError(1034); // SQLITE_IOERR_FSYNC
        });
      const ledger = state.writer();
      ledger.transaction((tx) => tx.append({ event: "started-daemon" }));
      fault = true;
      const error = assertThrows(() =>
        ledger.transaction((tx) => {
          tx.insertRow(newRow("r1"));
          tx.append({ event: "accepted", id: "r1" });
        }), LedgerError);
      assertEquals([error.kind, error.fatal], ["io", true]);
      fault = false;
      assertEquals(kindOf(() => ledger.transaction((tx) => tx.setMeta("a", "b"))), "closed");
      assertEquals(kindOf(() => ledger.rowById("main", "r1")), "closed");
      assertEquals(ledger.close(), false);
    }
    const again = state.writer();
    assertEquals(again.wasClean, false);
    assertEquals(checkChain(again), persisted ? 2 : 1);
    assertEquals(again.rowById("main", "r1")?.id, persisted ? "r1" : undefined);
  });
}

Deno.test("S9 S10 a lock held by another writer makes a transaction wait, then fail as busy", () => {
  using state = new TempState();
  using driver = new Driver();
  const ledger = state.writer();
  const db = [...driver.connections].at(-1);
  assert(db !== undefined);
  db.prepare("PRAGMA busy_timeout = 20").get();
  const other = new DatabaseSync(state.path);
  try {
    other.exec("BEGIN IMMEDIATE");
    let called = false;
    assertEquals(kindOf(() => ledger.transaction(() => called = true)), "busy");
    assertEquals(called, false);
    assertEquals(ledger.meta("nothing"), null, "reads go on");
    other.exec("ROLLBACK");
  } finally {
    other.close();
  }
  assertEquals(ledger.transaction((tx) => tx.append({ event: "human" })).seq, 1);
});

Deno.test("S7 a killed writer leaves every returned commit and no half one", async () => {
  using state = new TempState();
  const script = `${state.dir}/writer.ts`;
  const source = (name: string) => new URL(`../${name}`, import.meta.url).href;
  Deno.writeTextFileSync(
    script,
    `import { Ledger } from "${source("src/ledger/ledger.ts")}";
     import { newRow } from "${source("tests/ledger_fixture.ts")}";
     const ledger = Ledger.open("ledger.db", { now: Date.now, mode: "writer" });
     for (let n = 1;; n++) {
       ledger.transaction((tx) => {
         tx.insertRow(newRow("r" + n));
         tx.append({ event: "accepted", id: "r" + n });
         if (n === 25) {
           console.log(String(n - 1));
           Deno.kill(Deno.pid, "SIGKILL");
         }
       });
     }`,
  );
  const map = new URL("../tools/std/import_map.json", import.meta.url).pathname;
  const { stdout, signal } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-config", `--import-map=${map}`, script],
    cwd: state.dir,
    stdout: "piped",
    stderr: "null",
  }).output();
  assertEquals(signal, "SIGKILL");
  const returned = Number(new TextDecoder().decode(stdout));
  const ledger = state.writer();
  assertEquals(ledger.wasClean, false);
  assertEquals(checkChain(ledger), returned);
  assertEquals(ledger.countWaiting("main"), returned);
  assertEquals(ledger.rowById("main", `r${returned + 1}`), null);
});

Deno.test("S8 commits lost with the log are seen by the chain's last number", () => {
  using state = new TempState();
  {
    using driver = new Driver();
    const ledger = state.writer();
    for (let n = 0; n < 5; n++) ledger.transaction((tx) => tx.append({ event: "human" }));
    for (const db of driver.connections) {
      if (!db.isOpen) continue;
      db.prepare("PRAGMA wal_checkpoint(TRUNCATE)").get();
    }
    for (let n = 0; n < 5; n++) ledger.transaction((tx) => tx.append({ event: "human" }));
    // What a power cut or a clumsy hand does: the log goes, the file stays.
    Deno.copyFileSync(state.path, `${state.dir}/copy.db`);
  }
  Deno.renameSync(`${state.dir}/copy.db`, state.path);
  Deno.removeSync(`${state.path}-wal`);
  Deno.removeSync(`${state.path}-shm`);
  const again = state.writer();
  assertEquals(checkChain(again), 5, "SQLite itself notices nothing");
});

Deno.test("sqlValue() passes what SQLite keeps as it is and throws on all else", () => {
  const bytes = new Uint8Array([0]);
  for (const value of ["", "\u00e9\u{1f600}", 0, -0.5, 2 ** 53 - 1, 2n ** 63n - 1n, bytes, null]) {
    assertEquals(sqlValue(value), value);
  }
  for (
    const value of [
      undefined,
      true,
      {},
      [],
      () => 0,
      Symbol("x"),
      new Date(0),
      new ArrayBuffer(1),
    ]
  ) {
    assertThrows(() => sqlValue(value), TypeError);
  }
  for (const value of [NaN, Infinity, 2 ** 53, 2n ** 63n, "a\0b", "\ud800"]) {
    assertThrows(() => sqlValue(value), RangeError);
  }
});

Deno.test("D43 J6 a value that SQLite would change never reaches it", () => {
  using state = new TempState();
  const ledger = state.writer();
  for (const patch of [{ note: "a\0b" }, { max_spend: NaN }, { timeout_ms: Infinity }]) {
    assertThrows(() => ledger.transaction((tx) => tx.insertRow(newRow("r1", patch))), RangeError);
  }
  const untyped = { note: {} } as unknown as { note: string };
  assertThrows(() => ledger.transaction((tx) => tx.insertRow(newRow("r1", untyped))), TypeError);
  assertEquals(ledger.rowById("main", "r1"), null);
  ledger.transaction((tx) => tx.insertRow(newRow("r1")));
});

Deno.test("noteSigned() remembers bytes for their agent, over a restart and the end of their row", () => {
  using temp = new TempState();
  const bytes = "a".repeat(64);
  const ledger = temp.writer();
  assertEquals(ledger.wasCarriedOut("main", bytes), false);
  ledger.transaction((tx) => {
    const rid = tx.insertRow(newRow("r1"));
    tx.noteSigned({ agent: "main", sha256: bytes, rid, until_ms: temp.clock.ms + 1000 });
    // It counts within its own transaction: the next of a batch may be the same bytes.
    assertEquals(ledger.wasCarriedOut("main", bytes), true);
  });
  assertEquals(ledger.wasCarriedOut("other", bytes), false);
  assertEquals(ledger.wasCarriedOut("main", "b".repeat(64)), false);
  ledger.close();
  assertEquals(temp.writer().wasCarriedOut("main", bytes), true);
});

Deno.test("release() forgets the signed bytes of its row, and only those", () => {
  using temp = new TempState();
  const ledger = temp.writer();
  const note = (sha256: string, rid: number | null) =>
    ledger.transaction((tx) =>
      tx.noteSigned({ agent: "main", sha256, rid, until_ms: temp.clock.ms + 1000 })
    );
  const rid = ledger.transaction((tx) => tx.insertRow(newRow("r1")));
  const other = ledger.transaction((tx) => tx.insertRow(newRow("r2")));
  note("first", rid);
  note("joined", rid);
  note("other", other);
  note("without", null);
  ledger.transaction((tx) => tx.release(rid));
  assertEquals(
    ["first", "joined", "other", "without"].filter((one) => ledger.wasCarriedOut("main", one)),
    ["other", "without"],
  );
});

Deno.test("noteSigned() forgets what is over, faster than it is told", () => {
  using temp = new TempState();
  const ledger = temp.writer();
  const note = (name: string, until_ms: number) =>
    ledger.transaction((tx) => tx.noteSigned({ agent: "main", sha256: name, rid: null, until_ms }));
  const until = temp.clock.ms + 1000;
  for (let i = 0; i < 20; i++) note(`old-${i}`, until);
  note("young", until + 5000);
  const left = () => {
    let n = 0;
    for (let i = 0; i < 20; i++) if (ledger.wasCarriedOut("main", `old-${i}`)) n++;
    return n;
  };
  temp.clock.ms = until;
  note("at-the-end", until + 5000);
  assertEquals(left(), 20);
  temp.clock.ms = until + 1;
  for (const [i, expected] of [12, 4, 0].entries()) {
    note(`new-${i}`, until + 5000);
    assertEquals(left(), expected);
  }
  assertEquals(ledger.wasCarriedOut("main", "young"), true);
  // What is told again counts to the later end.
  note("young", until + 10);
  note("grown", until + 10);
  note("grown", until + 5000);
  temp.clock.ms = until + 100;
  note("last", until + 5000);
  assertEquals(ledger.wasCarriedOut("main", "young"), true);
  assertEquals(ledger.wasCarriedOut("main", "grown"), true);
});
