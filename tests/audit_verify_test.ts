/**
 * Damage to a chain of 1,000 records, in text, segments and ledger: every kind is seen, and the
 * first record that does not hold is named. A sample of places by default, every line and many more
 * bytes with `SLOW=1`.
 */
import { assert, assertEquals } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { dirname } from "@std/path/dirname";
import { AuditText } from "../src/audit/audit_text.ts";
import { GENESIS, recordLine } from "../src/audit/chain.ts";
import { type AuditFault, type AuditReport, verifyAudit } from "../src/audit/verify.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import { newRow, TempState } from "./ledger_fixture.ts";

const SLOW = Deno.env.get("SLOW") === "1";
const COUNT = 1000;

/** 1,000 records in a closed ledger, a text and two segments. */
function chain(state: TempState): void {
  const ledger = state.writer();
  const text = new AuditText(state.text);
  text.repair(ledger);
  ledger.afterCommit = (records) => void text.append(records);
  for (let n = 1; n < COUNT;) {
    ledger.transaction((tx) => {
      for (let i = 0; i < 90 && n < COUNT; i++, n++) {
        tx.append({ event: "answered", agent: "main", id: `r${n}`, note: `this is record ${n}` });
      }
    });
    if (n === 361 || n === 721) assert(text.rotate(() => true) !== null);
  }
  ledger.transaction((tx) => {
    const audit = tx.append({ event: "accepted", agent: "main", id: "row" });
    tx.insertRow(newRow("row", { result: { ...newRow("row").result, audit } }));
  });
  assertEquals(ledger.head()?.seq, COUNT);
  ledger.close();
}

function verify(state: TempState, anchor?: string): AuditReport {
  const ledger = Ledger.open(state.path, { now: Date.now, mode: "reader", checkRecords: false });
  try {
    return verifyAudit(state.text, { ledger, ...(anchor === undefined ? {} : { anchor }) });
  } finally {
    ledger.close();
  }
}

function paths(state: TempState): string[] {
  const dir = dirname(state.text);
  const first = (name: string) => Number(/\.([0-9]+)-/.exec(name)?.[1] ?? Infinity);
  return [...Deno.readDirSync(dir)].map((e) => e.name).sort((a, b) => first(a) - first(b))
    .map((name) => `${dir}/${name}`);
}

/** Numbers from 1 to `COUNT`, or a sample of them with both ends and the borders of segments. */
function places(sample: number): number[] {
  if (SLOW) return Array.from({ length: COUNT }, (_, i) => i + 1);
  const some = Array.from({ length: sample }, () => 1 + Math.floor(Math.random() * COUNT));
  return [...new Set([1, 2, 360, 361, 720, 721, COUNT - 1, COUNT, ...some])];
}

/** The files' lines, each with the file that it is in. */
function readLines(state: TempState): { path: string; lines: string[]; from: number }[] {
  let from = 1;
  return paths(state).map((path) => {
    const lines = Deno.readTextFileSync(path).split("\n").slice(0, -1);
    const part = { path, lines, from };
    from += lines.length;
    return part;
  });
}

/** Runs `check` with one file changed, and puts it back. */
function changed(path: string, content: string | Uint8Array, check: () => void): void {
  const before = Deno.readFileSync(path);
  Deno.writeFileSync(
    path,
    typeof content === "string" ? new TextEncoder().encode(content) : content,
  );
  try {
    check();
  } finally {
    Deno.writeFileSync(path, before);
  }
}

const text = (lines: readonly string[]) => lines.map((line) => line + "\n").join("");

Deno.test("a sound chain of 1,000 records in three files verifies, with all that is counted", () => {
  using state = new TempState();
  chain(state);
  assertEquals(paths(state).map((p) => p.slice(dirname(p).length + 1)), [
    "audit.1-360.jsonl",
    "audit.361-720.jsonl",
    "audit.jsonl",
  ]);
  const report = verify(state);
  assert(report.ok, JSON.stringify(report));
  const { head, ...counted } = report;
  assertEquals(head?.seq, COUNT);
  assertEquals(counted, {
    ok: true,
    first: 1,
    records: COUNT,
    segments: 2,
    text_only: 0,
    rows: 1,
    anchor: null,
  });
});

Deno.test("every line that is altered, dropped, doubled or exchanged is named", () => {
  using state = new TempState();
  chain(state);
  const parts = readLines(state);
  const at = (seq: number) => {
    const part = parts.find((p) => seq >= p.from && seq < p.from + p.lines.length);
    assert(part !== undefined);
    return { ...part, i: seq - part.from };
  };
  const expect = (seq: number, what: string, problems: readonly string[]) => {
    const report = verify(state);
    assert(!report.ok, `${what} ${seq} was not seen`);
    assertEquals(report.seq, seq, `${what}: ${JSON.stringify(report)}`);
    assert(problems.includes(report.problem), `${what} ${seq}: ${report.problem}`);
  };
  for (const seq of places(8)) {
    const { path, lines, i } = at(seq);
    const line = lines[i] ?? "";
    changed(path, text(lines.with(i, line.replace("main", "mian"))), () => {
      expect(seq, "altered", ["altered"]);
    });
    changed(path, text(lines.toSpliced(i, 1)), () => expect(seq, "dropped", ["missing"]));
    changed(path, text(lines.toSpliced(i, 0, line)), () => {
      if (seq < COUNT) return expect(seq + 1, "doubled", ["reordered"]);
      expect(seq + 1, "doubled", ["reordered", "ledger"]);
    });
    if (i + 1 < lines.length) {
      const swapped = lines.with(i, lines[i + 1] ?? "").with(i + 1, line);
      changed(path, text(swapped), () => expect(seq, "exchanged", ["reordered"]));
    }
  }
  for (const { path, from } of parts) {
    const content = Deno.readFileSync(path);
    Deno.removeSync(path);
    expect(from, "a whole file removed", ["missing"]);
    Deno.writeFileSync(path, content);
  }
  assert(verify(state).ok, "what was put back is sound again");
});

Deno.test("every single byte of the text counts", () => {
  using state = new TempState();
  chain(state);
  const parts = readLines(state);
  const tries = SLOW ? 20_000 : 40;
  for (let n = 0; n < tries; n++) {
    const part = parts[n % parts.length];
    assert(part !== undefined);
    const bytes = Deno.readFileSync(part.path);
    // The last byte is a newline whose loss is told as a torn end.
    const where = n < 3 ? bytes.length - 1 : Math.floor(Math.random() * bytes.length);
    const seq = part.from + bytes.subarray(0, where).filter((b) => b === 0x0a).length;
    const copy = bytes.slice();
    copy[where] = (bytes[where] ?? 0) ^ (1 << Math.floor(Math.random() * 8));
    changed(part.path, copy, () => {
      const report = verify(state);
      assert(!report.ok, `byte ${where} of ${part.path} was changed and not seen`);
      assertEquals(report.seq, seq, `byte ${where} of ${part.path}: ${JSON.stringify(report)}`);
    });
  }
});

Deno.test("records of the ledger that were changed, dropped, doubled or exchanged are named", () => {
  using state = new TempState();
  chain(state);
  const edit = (seq: number, sql: readonly string[], first = seq) => {
    const before = Deno.readFileSync(state.path);
    const db = new DatabaseSync(state.path);
    for (const one of sql) db.exec(one);
    db.close();
    const report = verify(state);
    for (const suffix of ["", "-wal", "-shm"]) {
      try {
        Deno.removeSync(state.path + suffix);
      } catch { /* it was not there */ }
    }
    Deno.writeFileSync(state.path, before);
    assert(!report.ok, `${sql[0]} was not seen`);
    assertEquals(report.seq, first, `${sql[0]}: ${JSON.stringify(report)}`);
    return report;
  };
  for (const seq of places(2)) {
    edit(seq, [`UPDATE records SET line = replace(line, 'main', 'mian') WHERE seq = ${seq}`]);
    const last = seq === COUNT ? ["row"] : [];
    const dropped = edit(seq, [`DELETE FROM records WHERE seq = ${seq}`]);
    assert(["ledger", "missing", ...last].includes(dropped.problem), dropped.problem);
    if (seq < COUNT) {
      edit(seq, [
        `CREATE TEMP TABLE two AS SELECT seq, line FROM records WHERE seq IN (${seq}, ${seq + 1})`,
        `UPDATE records SET line = (SELECT line FROM two WHERE seq = ${
          seq + 1
        }) WHERE seq = ${seq}`,
        `UPDATE records SET line = (SELECT line FROM two WHERE seq = ${seq}) WHERE seq = ${
          seq + 1
        }`,
      ]);
      edit(seq + 1, [
        `UPDATE records SET line = (SELECT line FROM records WHERE seq = ${seq}) WHERE seq = ${
          seq + 1
        }`,
      ]);
    }
  }
  // A record a second time, with all that follow moved along.
  for (const seq of places(1).filter((n) => n < COUNT)) {
    edit(seq + 1, [
      `UPDATE records SET seq = -(seq + 1) WHERE seq > ${seq}`,
      "UPDATE records SET seq = -seq WHERE seq < 0",
      `INSERT INTO records SELECT ${seq + 1}, NULL, line FROM records WHERE seq = ${seq}`,
    ]);
  }
  // A record that only the ledger has.
  const ledger = state.reader();
  const head = ledger.head();
  ledger.close();
  const extra = recordLine({ event: "human" }, COUNT + 1, 0, head?.hash ?? GENESIS).line;
  edit(COUNT + 1, [`INSERT INTO records VALUES (${COUNT + 1}, NULL, '${extra}')`]);
  // What a row says of its record.
  const row = edit(COUNT, [
    'UPDATE rows SET result = replace(result, \'"hash":"\', \'"hash":"0\')',
  ]);
  assertEquals((row as AuditFault).problem, "row");
  assertEquals((row as AuditFault).where, "main/row");
  assert(verify(state).ok, "what was put back is sound again");
});

Deno.test("every single byte of the ledger's records counts", () => {
  using state = new TempState();
  chain(state);
  const db = new DatabaseSync(state.path);
  const read = db.prepare("SELECT CAST(line AS BLOB) AS bytes FROM records WHERE seq = ?");
  const write = db.prepare("UPDATE records SET line = CAST(? AS TEXT) WHERE seq = ?");
  const tries = SLOW ? 5000 : 25;
  for (let n = 0; n < tries; n++) {
    const seq = n === 0 ? COUNT : 1 + Math.floor(Math.random() * COUNT);
    const { bytes } = read.get(seq) as { bytes: Uint8Array };
    const where = n < 3
      ? [0, bytes.length - 1, 9][n] ?? 0
      : Math.floor(Math.random() * bytes.length);
    const copy = bytes.slice();
    // One bit, or a NUL, which ends a text that is read back.
    copy[where] = n % 5 === 4 ? 0 : (bytes[where] ?? 0) ^ (1 << (n % 8));
    write.run(copy, seq);
    const report = verify(state);
    write.run(bytes, seq);
    assert(!report.ok, `byte ${where} of record ${seq} was changed and not seen`);
    assertEquals(report.seq, seq, `byte ${where} of record ${seq}: ${JSON.stringify(report)}`);
  }
  db.close();
  assert(verify(state).ok, "what was put back is sound again");
});

Deno.test("a chain that was written anew is sound in itself, and an anchor shows it", () => {
  using state = new TempState();
  chain(state);
  const ledger = state.reader();
  const noted = ledger.records(500, 1)[0]?.hash ?? "";
  const old = ledger.records(1, COUNT);
  ledger.close();
  const sound = verify(state, noted);
  assert(sound.ok && sound.anchor === 500);
  const other = verify(state, "0".repeat(64));
  assertEquals(other, { ok: false, seq: 0, problem: "anchor" });
  // Record 400 tells something else, and everything behind it was hashed anew, everywhere.
  let prev = GENESIS;
  const lines = old.map(({ seq, line }) => {
    const { at, prev: _prev, hash: _hash, ...event } = JSON.parse(line);
    delete event.seq;
    if (seq === 400) event.id = "other";
    const made = recordLine(event, seq, Date.parse(at), prev);
    prev = made.hash;
    return made.line;
  });
  const db = new DatabaseSync(state.path);
  const update = db.prepare("UPDATE records SET line = ? WHERE seq = ?");
  lines.forEach((line, i) => update.run(line, i + 1));
  db.prepare("UPDATE rows SET result = json_set(result, '$.audit.hash', ?)").run(prev);
  db.close();
  for (const { path, lines: own, from } of readLines(state)) {
    Deno.writeTextFileSync(path, text(lines.slice(from - 1, from - 1 + own.length)));
  }
  assert(verify(state).ok, "nothing in it shows what happened");
  assertEquals(verify(state, noted), { ok: false, seq: 0, problem: "anchor" });
  const before = verify(state, old[300]?.hash ?? "");
  assert(before.ok && before.anchor === 301, "an anchor from before still holds");
});

Deno.test("an empty log without a ledger is sound, and a ledger without its text is not", () => {
  using state = new TempState();
  const report = verifyAudit(state.text);
  assert(report.ok && report.head === null);
  chain(state);
  for (const path of paths(state)) Deno.removeSync(path);
  assertEquals(verify(state).ok, false);
});
