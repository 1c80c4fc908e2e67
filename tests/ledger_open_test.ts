/** Opening: what is made, what is believed, what is refused. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { Ledger } from "../src/ledger/ledger.ts";
import { LedgerError, type LedgerErrorKind } from "../src/ledger/ledger_error.ts";
import { checkPagesInBackground } from "../src/ledger/page_check.ts";
import { SMALL_PAGES } from "../src/ledger/database.ts";
import { APPLICATION_ID } from "../src/ledger/schema.ts";
import { Driver, newRow, TempState } from "./ledger_fixture.ts";

/** Opens as a writer and gives the kind of the refusal. */
function refusal(state: TempState, open: () => Ledger = () => state.writer()): LedgerErrorKind {
  return assertThrows(open, LedgerError).kind;
}

/** Leaves a closed ledger with `rows` rows and `rows` records. */
function filled(state: TempState, rows = 20): void {
  const ledger = state.writer();
  ledger.transaction((tx) => {
    for (let n = 0; n < rows; n++) {
      tx.insertRow(newRow(`r${n}`, { note: "x".repeat(500) }));
      tx.append({ event: "accepted", agent: "main", id: `r${n}` });
    }
  });
  assert(ledger.close());
}

/** Changes the closed ledger through a connection of the test's own. */
function tamper(state: TempState, ...sql: string[]): void {
  const db = new DatabaseSync(state.path);
  for (const statement of sql) db.exec(statement);
  db.close();
}

Deno.test("open() makes a ledger with mode 0600, WAL and full syncs, and leaves no draft", () => {
  using state = new TempState();
  using driver = new Driver();
  // What a crash while making a ledger leaves behind is swept away.
  Deno.writeTextFileSync(`${state.path}.new`, "half");
  Deno.writeTextFileSync(`${state.path}.new-journal`, "half");
  const ledger = state.writer();
  ledger.transaction((tx) => tx.setMeta("a", "b"));
  assertEquals(state.names(), ["ledger.db", "ledger.db-shm", "ledger.db-wal"]);
  for (const name of state.names()) {
    assertEquals((Deno.statSync(`${state.dir}/${name}`).mode ?? 0) & 0o777, 0o600, name);
  }
  const db = [...driver.connections].at(-1);
  assert(db !== undefined);
  const pragma = (name: string) => Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0];
  assertEquals(pragma("journal_mode"), "wal");
  assertEquals(pragma("synchronous"), 2);
  assertEquals(pragma("foreign_keys"), 1);
  assertEquals(pragma("trusted_schema"), 0);
  assertEquals(pragma("application_id"), APPLICATION_ID);
  assertEquals(pragma("user_version"), 1);
  assert(Number(pragma("busy_timeout")) >= 1000);
  ledger.close();
  assertEquals(state.names(), ["ledger.db"]);
});

Deno.test("open() counts the writers and knows how the last one ended", () => {
  using state = new TempState();
  const first = state.writer();
  assertEquals([first.generation, first.wasClean], [1, true]);
  assertEquals(state.reader().generation, 1);
  first.close();
  // A writer that never closes: its connection is dropped under it.
  using driver = new Driver();
  const second = state.writer();
  assertEquals([second.generation, second.wasClean], [2, true]);
  for (const db of driver.connections) if (db.isOpen) db.close();
  const third = state.writer();
  assertEquals([third.generation, third.wasClean], [3, false]);
});

Deno.test("open() as a reader makes nothing and changes nothing", () => {
  using state = new TempState();
  assertEquals(refusal(state, () => state.reader()), "missing");
  assertEquals(state.names(), []);
  filled(state);
  const reader = state.reader();
  assertEquals(reader.recent("main", 1)[0]?.id, "r19");
  assertEquals(reader.head()?.seq, 20);
  const error = assertThrows(() => reader.transaction(() => 0), LedgerError);
  assertEquals(error.kind, "readonly");
  reader.close();
  assertEquals(state.writer().wasClean, true, "a reader does not make a ledger unclean");
});

Deno.test("a reader sees what a living writer committed", () => {
  using state = new TempState();
  const writer = state.writer();
  const reader = state.reader();
  writer.transaction((tx) => {
    tx.insertRow(newRow("r1"));
    tx.append({ event: "accepted", id: "r1" });
    assertEquals(reader.rowById("main", "r1"), null);
  });
  assertEquals(reader.rowById("main", "r1")?.id, "r1");
  assertEquals(reader.head(), writer.head());
});

Deno.test("S8 an empty file is a lost ledger, not a new one", () => {
  using state = new TempState();
  filled(state);
  Deno.truncateSync(state.path);
  assertEquals(refusal(state), "empty");
  assertEquals(Deno.statSync(state.path).size, 0);
});

Deno.test("S8 a missing ledger beside its log is refused, and the log stays", () => {
  using state = new TempState();
  Deno.writeTextFileSync(`${state.path}-wal`, "commits");
  assertEquals(refusal(state), "missing");
  assertEquals(state.names(), ["ledger.db-wal"]);
});

Deno.test("S8 a truncated ledger is corrupt, at any size", () => {
  using state = new TempState();
  for (const keep of [512, 4096, 8192, 20_480]) {
    Deno.removeSync(state.dir, { recursive: true });
    Deno.mkdirSync(state.dir);
    filled(state, 60);
    Deno.truncateSync(state.path, keep);
    assert(["corrupt", "foreign"].includes(refusal(state)), `cut to ${keep}`);
  }
});

Deno.test("S8 a damaged page is found at the start, below the size bound", () => {
  using state = new TempState();
  filled(state, 60);
  const size = Deno.statSync(state.path).size;
  assert(size / 4096 < SMALL_PAGES);
  using file = Deno.openSync(state.path, { write: true });
  file.seekSync(size - 4096, Deno.SeekMode.Start);
  file.writeSync(new Uint8Array(4096).fill(0xa5));
  assertEquals(refusal(state), "corrupt");
});

Deno.test("a file of another program is refused and not touched", () => {
  using state = new TempState();
  const text = "hello, this is no database\n".repeat(100);
  Deno.writeTextFileSync(state.path, text);
  assertEquals(refusal(state), "foreign");
  assertEquals(Deno.readTextFileSync(state.path), text);
  Deno.removeSync(state.path);
  tamper(state, "CREATE TABLE t (a)", "PRAGMA application_id = 7");
  const before = Deno.readFileSync(state.path);
  assertEquals(refusal(state), "foreign");
  assertEquals(Deno.readFileSync(state.path), before);
});

Deno.test("a ledger of a newer program is refused by name", () => {
  using state = new TempState();
  filled(state);
  tamper(state, "PRAGMA user_version = 2");
  assertEquals(refusal(state), "version");
});

Deno.test("a ledger with a table, trigger or index that is not ours is foreign", () => {
  for (
    const sql of [
      "CREATE TABLE extra (a)",
      "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM records; END",
      "DROP INDEX rows_key",
    ]
  ) {
    using state = new TempState();
    filled(state);
    tamper(state, sql);
    assertEquals(refusal(state), "foreign", sql);
  }
});

Deno.test("a symlink, a directory or a second link in the ledger's place is refused", () => {
  using state = new TempState();
  filled(state);
  Deno.renameSync(state.path, `${state.dir}/real.db`);
  Deno.symlinkSync("real.db", state.path);
  assertEquals(refusal(state), "foreign");
  Deno.removeSync(state.path);
  Deno.linkSync(`${state.dir}/real.db`, state.path);
  assertEquals(refusal(state), "foreign");
  Deno.removeSync(state.path);
  Deno.mkdirSync(state.path);
  assertEquals(refusal(state), "foreign");
});

Deno.test("a ledger whose last records do not follow each other is corrupt", () => {
  for (
    const sql of [
      "UPDATE records SET line = replace(line, 'r19', 'r99') WHERE seq = 20",
      "DELETE FROM records WHERE seq = 18",
      "UPDATE records SET seq = 99 WHERE seq = 20",
      "UPDATE records SET line = (SELECT line FROM records WHERE seq = 18) WHERE seq = 19",
    ]
  ) {
    using state = new TempState();
    filled(state);
    tamper(state, sql);
    assertEquals(refusal(state), "corrupt", sql);
  }
});

Deno.test("a big ledger is not read whole at a start, and not called clean before it was", () => {
  using state = new TempState();
  filled(state);
  // Makes the file look big without filling it: SQLite believes what the driver reports.
  const open = (end: (ledger: Ledger) => boolean): readonly [number, boolean] => {
    using driver = new Driver();
    driver.replace = (sql, real) =>
      sql === "PRAGMA page_count"
        ? new Proxy(real, { get: () => () => ({ page_count: SMALL_PAGES }) })
        : undefined;
    const ledger = state.writer();
    const { unchecked } = ledger;
    if (end(ledger)) ledger.close();
    else for (const db of driver.connections) if (db.isOpen) db.close();
    return [[...driver.sql].filter((sql) => sql.includes("quick_check")).length, unchecked];
  };
  const close = () => true;
  const crash = () => false;
  assertEquals(open(close), [0, false]);
  assertEquals(open(crash), [0, false]);
  assertEquals(open(close), [0, true], "after a crash it is to be read beside the service");
  assertEquals(open(close), [0, true], "and still is, when nobody did");
  const sound = (ledger: Ledger) => {
    ledger.pagesAreSound();
    return true;
  };
  assertEquals(open(sound), [0, true]);
  assertEquals(open(crash), [0, false]);
  const damaged = (ledger: Ledger) => {
    assertEquals(ledger.pagesAreDamaged("page 7").fatal, true);
    assertThrows(() => ledger.transaction(() => 0), LedgerError);
    return true;
  };
  assertEquals(open(damaged), [0, true]);
  assertEquals(open(close), [1, false], "a start reads all of it before anything else");
  assertEquals(open(close), [0, false], "which cleared it, as the pages do hold");
});

Deno.test("checkPagesInBackground() tells sound pages from damaged ones beside a writer", async () => {
  using state = new TempState();
  filled(state, 60);
  const ledger = state.writer();
  ledger.transaction((tx) => tx.setMeta("a", "b"));
  assertEquals(await checkPagesInBackground(state.path).verdict, { kind: "sound" });
  ledger.transaction((tx) => tx.setMeta("a", "c"));
  assert(ledger.close());
  const size = Deno.statSync(state.path).size;
  using file = Deno.openSync(state.path, { write: true });
  file.seekSync(size - 4096, Deno.SeekMode.Start);
  file.writeSync(new Uint8Array(4096).fill(0xa5));
  assertEquals((await checkPagesInBackground(state.path).verdict).kind, "damaged");
  assertEquals((await checkPagesInBackground(`${state.dir}/none.db`).verdict).kind, "unknown");
  const check = checkPagesInBackground(state.path);
  check.stop();
  assertEquals((await check.verdict).kind, "unknown");
});

Deno.test("S8 intact() notices that the ledger or its log was unlinked or replaced", () => {
  using state = new TempState();
  const ledger = state.writer();
  assert(ledger.intact());
  assertEquals(ledger.identity().ino, String(Deno.statSync(state.path).ino));
  ledger.transaction((tx) => tx.setMeta("a", "b"));
  assert(ledger.intact());
  const log = `${state.path}-wal`;
  Deno.renameSync(log, `${log}.away`);
  assertEquals(ledger.intact(), false);
  Deno.copyFileSync(`${log}.away`, log);
  assertEquals(ledger.intact(), false);
  Deno.renameSync(`${log}.away`, log);
  assert(ledger.intact());
  Deno.renameSync(state.path, `${state.path}.away`);
  assertEquals(ledger.intact(), false);
  Deno.copyFileSync(`${state.path}.away`, state.path);
  assertEquals(ledger.intact(), false);
});

Deno.test("a ledger opens, works and closes under the permissions of its directory alone", async () => {
  using state = new TempState();
  const script = `${state.dir}/narrow.ts`;
  const ledger = new URL("../src/ledger/ledger.ts", import.meta.url).href;
  Deno.writeTextFileSync(
    script,
    `import { Ledger } from "${ledger}";
     const l = Ledger.open("state/ledger.db", { now: Date.now, mode: "writer" });
     l.transaction((tx) => tx.append({ event: "human" }));
     console.log(l.head()?.seq, l.intact(), l.close());
     const r = Ledger.open("state/ledger.db", { now: Date.now, mode: "reader" });
     console.log(r.head()?.seq);`,
  );
  Deno.mkdirSync(`${state.dir}/state`);
  const map = new URL("../tools/std/import_map.json", import.meta.url).pathname;
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", "--no-config", `--import-map=${map}`]
      .concat(["--allow-read=./state", "--allow-write=./state", script]),
    cwd: state.dir,
    stdout: "piped",
    stderr: "piped",
  }).output();
  assertEquals(new TextDecoder().decode(stderr), "");
  assertEquals(new TextDecoder().decode(stdout), "1 true true\n1\n");
  assert(success);
});
