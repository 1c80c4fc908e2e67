/** The audit text: level with the ledger, mended when it is torn, and a witness when it is not. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { dirname } from "@std/path/dirname";
import { AuditText, type AuditVerdict } from "../src/audit/audit_text.ts";
import { GENESIS, recordLine } from "../src/audit/chain.ts";
import type { Ledger } from "../src/ledger/ledger.ts";
import { LedgerError } from "../src/ledger/ledger_error.ts";
import { newRow, TempState } from "./ledger_fixture.ts";

/** Appends `count` records, each in its own commit. */
function record(ledger: Ledger, count: number): void {
  for (let n = 0; n < count; n++) {
    ledger.transaction((tx) => tx.append({ event: "accepted", agent: "main", id: `r${n}` }));
  }
}

/** A ledger with its text, level, with `count` records. */
function level(state: TempState, count: number): { ledger: Ledger; text: AuditText } {
  const ledger = state.writer();
  const text = new AuditText(state.text);
  text.repair(ledger);
  ledger.afterCommit = (records) => void text.append(records);
  record(ledger, count);
  return { ledger, text };
}

function lines(state: TempState): string[] {
  return Deno.readTextFileSync(state.text).split("\n").slice(0, -1);
}

function write(state: TempState, content: readonly string[]): void {
  Deno.writeTextFileSync(state.text, content.map((line) => line + "\n").join(""));
}

/** The text says exactly what the ledger says. */
function assertLevel(state: TempState, ledger: Ledger, text: AuditText): void {
  assertEquals(lines(state), ledger.records(1, 10_000).map((one) => one.line));
  assertEquals(text.textHead(), ledger.head());
  assertEquals(text.verify(ledger), { ok: true, head: ledger.head() });
  assertEquals(text.fault, null);
}

function kindOf(fn: () => unknown): string {
  return assertThrows(fn, LedgerError).kind;
}

Deno.test("append() writes each commit's lines in order, into a file of mode 0600", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 3);
  ledger.transaction((tx) => [tx.append({ event: "started" }), tx.append({ event: "finished" })]);
  assertLevel(state, ledger, text);
  assertEquals(lines(state).length, 5);
  assertEquals((Deno.statSync(state.text).mode ?? 0) & 0o777, 0o600);
  assertEquals((Deno.statSync(dirname(state.text)).mode ?? 0) & 0o777, 0o700);
});

Deno.test("append() keeps a wider mode that a human gave", () => {
  using state = new TempState();
  const { ledger } = level(state, 1);
  Deno.chmodSync(state.text, 0o640);
  record(ledger, 1);
  assertEquals((Deno.statSync(state.text).mode ?? 0) & 0o777, 0o640);
});

Deno.test("append() passes over what is in the text and never writes past a gap", () => {
  using state = new TempState();
  const ledger = state.writer();
  record(ledger, 5);
  const text = new AuditText(state.text);
  Deno.mkdirSync(dirname(state.text));
  assertEquals(text.append([]), true);
  assertEquals(text.append(ledger.records(1, 2)), true);
  assertEquals(text.append(ledger.records(1, 3)), true);
  assertEquals(lines(state).length, 3);
  assertEquals(text.append(ledger.records(5, 1)), false);
  assertEquals(text.fault, "gap");
  assertEquals(lines(state).length, 3);
  assertEquals(text.append(ledger.records(4, 2)), true);
  assertEquals(text.fault, null);
  assertLevel(state, ledger, text);
});

Deno.test("append() refuses records that do not follow", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 2);
  const alien = recordLine({ event: "human" }, 3, 0, GENESIS);
  assertEquals(text.append([{ seq: 3, ...alien }]), false);
  assertEquals(text.fault, "forked");
  record(ledger, 1);
  assertLevel(state, ledger, text);
});

Deno.test("repair() makes a missing text, and appends what a crash left out", () => {
  using state = new TempState();
  const ledger = state.writer();
  ledger.transaction((tx) => {
    for (let n = 0; n < 1_234; n++) tx.append({ event: "accepted", agent: "main", id: `r${n}` });
  });
  const text = new AuditText(state.text);
  assertEquals(text.textHead(), null);
  assertEquals(text.repair(ledger), { cut_bytes: 0, appended: 1_234, head: ledger.head() });
  assertLevel(state, ledger, text);
  assertEquals(text.repair(ledger), { cut_bytes: 0, appended: 0, head: ledger.head() });
  write(state, lines(state).slice(0, 1_000));
  assertEquals(text.repair(ledger).appended, 234);
  assertLevel(state, ledger, text);
});

Deno.test("S1 repair() cuts a last line that was torn at any byte", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 3);
  const whole = Deno.readFileSync(state.text);
  const second = lines(state).slice(0, 2).join("\n").length + 1;
  for (let size = second; size < whole.length; size += 7) {
    Deno.writeFileSync(state.text, whole.subarray(0, size));
    assertEquals(text.textHead()?.seq, 2);
    assertEquals(text.repair(ledger), {
      cut_bytes: size - second,
      appended: 1,
      head: ledger.head(),
    });
    assertLevel(state, ledger, text);
  }
  Deno.writeFileSync(state.text, whole.subarray(0, whole.length - 1));
  assertEquals(text.repair(ledger).appended, 1, "only the newline was missing");
  assertLevel(state, ledger, text);
});

for (
  const [name, rest] of [
    ["zeros", new Uint8Array(200_000)],
    ["zeros with newlines", new Uint8Array(100_000).map((_, n) => n % 5_000 === 0 ? 10 : 0)],
    ["a foreign line", new TextEncoder().encode('{"seq":4}\n')],
    ["bytes above ASCII", new Uint8Array(3_000_000).fill(0xe9)],
  ] as const
) {
  Deno.test(`S1 repair() cuts ${name} that a power cut left at the end`, () => {
    using state = new TempState();
    const { ledger, text } = level(state, 3);
    using file = Deno.openSync(state.text, { append: true });
    for (let done = 0; done < rest.length;) done += file.writeSync(rest.subarray(done));
    assertEquals(text.textHead(), ledger.head());
    assertEquals(text.repair(ledger).cut_bytes, rest.length);
    assertLevel(state, ledger, text);
  });
}

Deno.test("S8 repair() refuses a ledger that knows less than the text, and changes nothing", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 5);
  ledger.close();
  const before = Deno.readTextFileSync(state.text);
  Deno.removeSync(state.path);
  const empty = state.writer();
  assertEquals(kindOf(() => text.repair(empty)), "behind");
  record(empty, 3);
  assertEquals(kindOf(() => text.repair(empty)), "behind");
  assertEquals(Deno.readTextFileSync(state.text), before);
  // Torn in the middle of what the ledger lost: what is whole still bears witness.
  Deno.writeTextFileSync(state.text, before + '{"seq":6,"at"');
  assertEquals(kindOf(() => text.repair(empty)), "behind");
  // So does a last line that lacks nothing but its newline.
  Deno.writeTextFileSync(state.text, before.slice(0, -1));
  const four = recordsOf(before, 4);
  const source = {
    head: () => four.at(-1) ?? null,
    records: (from: number, limit: number) => four.slice(from - 1, from - 1 + limit),
  };
  assertEquals(kindOf(() => text.repair(source)), "behind");
});

/** The first `count` records of a text. */
function recordsOf(content: string, count: number) {
  return content.split("\n").slice(0, count).map((line, n) => ({
    seq: n + 1,
    hash: line.slice(-66, -2),
    line,
  }));
}

Deno.test("S8 repair() refuses a ledger that tells another history", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 3);
  ledger.close();
  Deno.removeSync(state.path);
  state.clock.ms += 1;
  const other = state.writer();
  record(other, 4);
  const before = Deno.readTextFileSync(state.text);
  assertEquals(kindOf(() => text.repair(other)), "forked");
  assertEquals(Deno.readTextFileSync(state.text), before);
});

Deno.test("S1 append() tells a full device, leaves no torn line, and catches up when there is space", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 2);
  Deno.renameSync(state.text, `${state.text}.kept`);
  Deno.symlinkSync("/dev/full", state.text);
  record(ledger, 2);
  assertEquals(text.fault, "ENOSPC");
  assertEquals(ledger.head()?.seq, 4);
  Deno.removeSync(state.text);
  Deno.renameSync(`${state.text}.kept`, state.text);
  record(ledger, 1);
  assertLevel(state, ledger, text);
});

Deno.test("S1 D48 append() cuts back what a write left that failed half way", async () => {
  using state = new TempState();
  const source = (name: string) => new URL(`../src/${name}`, import.meta.url).href;
  // A limit on the size of files is a device that runs full in the middle of a line.
  Deno.writeTextFileSync(
    `${state.dir}/child.ts`,
    `import { AuditText } from "${source("audit/audit_text.ts")}";
     import { GENESIS, recordLine } from "${source("audit/chain.ts")}";
     const text = new AuditText("audit.jsonl");
     let prev = GENESIS;
     for (let seq = 1; seq < 100; seq++) {
       const made = recordLine({ event: "human", pad: "x".repeat(10_000) }, seq, 0, prev);
       prev = made.hash;
       if (text.append([{ seq, ...made }])) continue;
       console.log(JSON.stringify([seq, text.fault, text.verify()]));
       break;
     }`,
  );
  const map = new URL("../tools/std/import_map.json", import.meta.url).pathname;
  const { stdout } = await new Deno.Command("/bin/sh", {
    args: ["-c", 'trap "" XFSZ; ulimit -f 128; exec "$@"', "sh", Deno.execPath(), "run", "-A"]
      .concat(["--no-config", `--import-map=${map}`, "child.ts"]),
    cwd: state.dir,
    // The limit holds for the runtime's cache as well: it gets one of its own.
    env: { DENO_DIR: `${state.dir}/cache` },
    stdout: "piped",
    stderr: "null",
  }).output();
  const [seq, fault, verdict] = JSON.parse(new TextDecoder().decode(stdout));
  assert(seq > 2 && /^(EFBIG|os error 27)$/.test(fault), `${seq} ${fault}`);
  assertEquals([verdict.ok, verdict.head.seq], [true, seq - 1]);
});

Deno.test("S14 append() notices that the text was truncated, removed or replaced", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 4);
  Deno.truncateSync(state.text, 100);
  record(ledger, 1);
  assertLevel(state, ledger, text);
  Deno.removeSync(state.text);
  record(ledger, 1);
  assertLevel(state, ledger, text);
  Deno.renameSync(state.text, `${state.text}.1`);
  record(ledger, 2);
  assertLevel(state, ledger, text);
  Deno.writeTextFileSync(state.text, "somebody's note\n", { append: true });
  record(ledger, 1);
  assertLevel(state, ledger, text);
});

Deno.test("S14 append() does not write into a text that tells another history", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 2);
  const alien = recordLine({ event: "human" }, 1, 0, GENESIS);
  write(state, [alien.line]);
  record(ledger, 1);
  assertEquals(text.fault, "forked");
  assertEquals(lines(state), [alien.line]);
  assertEquals(ledger.head()?.seq, 3, "the ledger went on");
  // A longer one must not pass for level either.
  let prev = GENESIS;
  const longer = Array.from({ length: 9 }, (_, n) => {
    const made = recordLine({ event: "human" }, n + 1, 0, prev);
    prev = made.hash;
    return made.line;
  });
  write(state, longer);
  record(ledger, 1);
  assertEquals(text.fault, "behind");
  assertEquals(lines(state), longer);
});

Deno.test("append() says what failed, throws nothing, and catches up later", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 2);
  Deno.renameSync(dirname(state.text), `${state.dir}/away`);
  record(ledger, 2);
  assertEquals(text.fault, "ENOENT");
  assertEquals(ledger.head()?.seq, 4);
  Deno.renameSync(`${state.dir}/away`, dirname(state.text));
  record(ledger, 1);
  assertLevel(state, ledger, text);
});

Deno.test("textHead() reads the end alone, whatever the length of the text", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 3);
  const end = Deno.readFileSync(state.text);
  // A hole of a gibibyte before the sound lines: reading all of it would take seconds.
  Deno.writeFileSync(state.text, new Uint8Array());
  Deno.truncateSync(state.text, 2 ** 30);
  Deno.writeFileSync(state.text, new Uint8Array([10, ...end]), { append: true });
  const begin = performance.now();
  assertEquals(text.textHead(), ledger.head());
  assert(performance.now() - begin < 500);
});

/** Damage to a text of six records, and what `verify` says of it. */
const DAMAGE: readonly (readonly [
  name: string,
  damage: (lines: string[]) => string[],
  verdict: { seq: number; problem: string },
])[] = [
  ["a changed fact", (l) => l.with(2, (l[2] ?? "").replace("r2", "r9")), {
    seq: 3,
    problem: "altered",
  }],
  ["a line of no record", (l) => l.toSpliced(3, 0, "hello"), { seq: 4, problem: "altered" }],
  ["an empty line", (l) => l.toSpliced(1, 0, ""), { seq: 2, problem: "altered" }],
  ["a missing line", (l) => l.toSpliced(2, 1), { seq: 3, problem: "missing" }],
  ["a missing first line", (l) => l.slice(1), { seq: 1, problem: "missing" }],
  ["two lines in each other's place", (l) => [...l.slice(0, 3), ...l.slice(3, 5).reverse()], {
    seq: 4,
    problem: "reordered",
  }],
  ["a line twice", (l) => l.toSpliced(3, 0, l[2] ?? ""), { seq: 4, problem: "reordered" }],
  ["a sound line of another chain", (l) => {
    const alien = recordLine({ event: "human" }, 4, 0, "a".repeat(64));
    return l.with(3, alien.line);
  }, { seq: 4, problem: "altered" }],
];

for (const [name, damage, expected] of DAMAGE) {
  Deno.test(`verify() names the first broken record: ${name}`, () => {
    using state = new TempState();
    const { ledger, text } = level(state, 6);
    write(state, damage(lines(state)));
    for (const verdict of [text.verify(), text.verify(ledger)]) {
      assertEquals(verdict, { ok: false, ...expected } as AuditVerdict);
    }
  });
}

Deno.test("verify() tells a torn end, and a text that is shorter or longer than the ledger", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 4);
  const whole = lines(state);
  Deno.writeTextFileSync(state.text, whole.join("\n"));
  assertEquals(text.verify(), { ok: false, seq: 4, problem: "torn" });
  Deno.writeTextFileSync(state.text, whole.join("\n").slice(0, -5));
  assertEquals(text.verify(), { ok: false, seq: 4, problem: "torn" });
  write(state, whole.slice(0, 3));
  assertEquals(text.verify(), { ok: true, head: ledger.records(3, 1).map(ref)[0] ?? null });
  assertEquals(text.verify(ledger), { ok: false, seq: 4, problem: "missing" });
  const last = ledger.head();
  const five = recordLine({ event: "human" }, 5, 0, last?.hash ?? "");
  write(state, [...whole, five.line]);
  assertEquals(text.verify().ok, true);
  assertEquals(text.verify(ledger), { ok: false, seq: 5, problem: "ledger" });
  Deno.removeSync(state.text);
  assertEquals(text.verify(), { ok: true, head: null });
  assertEquals(text.verify(ledger), { ok: false, seq: 1, problem: "missing" });
});

function ref(one: { seq: number; hash: string }) {
  return { seq: one.seq, hash: one.hash };
}

Deno.test("verify() sees a chain that was computed anew, when it has the ledger", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 3);
  let prev = GENESIS;
  const forged = [1, 2, 3].map((seq) => {
    const { line, hash } = recordLine({ event: "human", forged: true }, seq, 0, prev);
    prev = hash;
    return line;
  });
  write(state, forged);
  assertEquals(text.verify().ok, true, "a chain alone proves nothing against who can rewrite it");
  assertEquals(text.verify(ledger), { ok: false, seq: 1, problem: "ledger" });
});

Deno.test("a row and its record are in ledger and text together", () => {
  using state = new TempState();
  const { ledger, text } = level(state, 0);
  ledger.transaction((tx) => {
    tx.insertRow(newRow("r1"));
    tx.append({ event: "accepted", agent: "main", id: "r1", note: "\u001b[2J" });
  });
  assertLevel(state, ledger, text);
  assert(lines(state)[0]?.includes('"note":"\\u001b[2J"'));
});
