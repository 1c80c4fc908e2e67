/** Rotation of the audit text, records that leave the ledger, segments that are removed. */
import { assert, assertEquals } from "@std/assert";
import { dirname } from "@std/path/dirname";
import { AuditText } from "../src/audit/audit_text.ts";
import { verifyAudit } from "../src/audit/verify.ts";
import { AuditKeeper } from "../src/daemon/audit_keeper.ts";
import { recordRepair } from "../src/daemon/open_ledger.ts";
import type { Ledger } from "../src/ledger/ledger.ts";
import { TempState } from "./ledger_fixture.ts";

const DAY_MS = 86_400_000;

/** A ledger with its text and a keeper whose clocks the test moves. */
class Kept implements Disposable {
  readonly state = new TempState();
  ledger: Ledger;
  text: AuditText;
  monotonic = 0;
  bounds = { audit_days: 100, audit_segment_days: 10, audit_segment_bytes: 65_536 };
  readonly log: string[] = [];
  keeper: AuditKeeper;

  constructor() {
    this.ledger = this.state.writer();
    this.text = this.#text();
    this.keeper = this.#keeper();
  }

  #text(): AuditText {
    const text = new AuditText(this.state.text);
    const repair = text.repair(this.ledger);
    this.ledger.afterCommit = (records) => void text.append(records);
    recordRepair(this.ledger, repair);
    return text;
  }

  #keeper(): AuditKeeper {
    return new AuditKeeper({
      ledger: this.ledger,
      text: this.text,
      log: (_level, event) => void this.log.push(event),
      policy: () => null,
      retention: () => this.bounds,
      now: this.state.clock.now,
      monotonic: () => this.monotonic,
    });
  }

  /** As a start of the daemon does. */
  restart(): void {
    this.ledger.close();
    this.ledger = this.state.writer();
    this.text = this.#text();
    this.keeper = this.#keeper();
  }

  record(count: number): void {
    this.ledger.transaction((tx) => {
      for (let n = 0; n < count; n++) tx.append({ event: "answered", agent: "main", id: `r${n}` });
    });
  }

  /** Turns a second apart, as the daemon makes them. */
  turns(count: number): void {
    for (let n = 0; n < count; n++) {
      this.monotonic += 1000;
      this.keeper.turn();
    }
  }

  segments(): string[] {
    return [...Deno.readDirSync(dirname(this.state.text))].map((e) => e.name)
      .filter((name) => name !== "audit.jsonl").sort((a, b) =>
        a.length - b.length || (a < b ? -1 : 1)
      );
  }

  /** Text and ledger agree, and it is said how much of the chain is where. */
  sound(): { first: number | null; text_only: number; segments: number } {
    const report = verifyAudit(this.state.text, { ledger: this.ledger });
    assert(report.ok, JSON.stringify(report));
    assertEquals(report.head, this.ledger.head());
    const { first, text_only, segments } = report;
    return { first, text_only, segments };
  }

  [Symbol.dispose](): void {
    this.ledger.close();
    this.state[Symbol.dispose]();
  }
}

Deno.test("a text above its size becomes a segment, and the chain goes on", () => {
  using kept = new Kept();
  kept.record(200);
  kept.turns(2);
  assertEquals(kept.segments(), [], "below its size it stays");
  kept.record(200);
  kept.turns(1);
  assertEquals(kept.segments(), ["audit.1-400.jsonl"]);
  assertEquals(kept.sound(), { first: 1, text_only: 0, segments: 1 });
  const [rotated] = kept.ledger.records(401, 1);
  assert(rotated?.line.includes('"event":"rotated","first":1,"last":400,'), rotated?.line);
  kept.record(3);
  assertEquals(Deno.readTextFileSync(kept.state.text).split("\n").length, 5);
  kept.sound();
});

Deno.test("a text whose first record is old is rotated, whatever its size", () => {
  using kept = new Kept();
  kept.record(3);
  kept.state.clock.ms += 9 * DAY_MS;
  kept.record(1);
  kept.turns(120);
  assertEquals(kept.segments(), []);
  kept.state.clock.ms += 1 * DAY_MS;
  kept.turns(60);
  assertEquals(kept.segments(), ["audit.1-4.jsonl"]);
  kept.turns(300);
  assertEquals(kept.segments(), ["audit.1-4.jsonl"], "what is new is not rotated again");
});

Deno.test("records of a segment leave the ledger when a younger segment is there", () => {
  using kept = new Kept();
  for (let n = 0; n < 3; n++) {
    kept.record(400);
    kept.turns(1);
  }
  assertEquals(kept.segments().length, 3);
  kept.turns(10);
  const { text_only, segments } = kept.sound();
  assertEquals(segments, 3);
  assertEquals(kept.ledger.floor()?.seq, text_only);
  assertEquals(kept.ledger.records(1, 1)[0]?.seq, text_only + 1);
  // Two segments have left; the newest one is in both.
  assertEquals(kept.segments()[1], `audit.401-${text_only}.jsonl`);
  kept.restart();
  kept.record(5);
  kept.turns(3);
  assertEquals(kept.sound().text_only, text_only);
});

Deno.test("a turn lets go of a bounded number of records", () => {
  using kept = new Kept();
  kept.record(4000);
  kept.turns(1);
  kept.record(400);
  kept.turns(1);
  const first = kept.ledger.floor()?.seq ?? 0;
  assert(first <= 1000, `${first} records left at once`);
  kept.turns(20);
  assertEquals(kept.ledger.floor()?.seq, 4000);
  kept.sound();
});

Deno.test("records leave the ledger faster than a flood brings new ones", () => {
  using kept = new Kept();
  kept.record(400);
  kept.turns(1);
  let most = 0;
  for (let second = 0; second < 40; second++) {
    kept.record(2000);
    kept.turns(1);
    const [oldest] = kept.ledger.records(1, 1);
    most = Math.max(most, (kept.ledger.head()?.seq ?? 0) - (oldest?.seq ?? 0));
  }
  // Every second makes a segment: the newest one's records stay, and those of the second before go.
  assert(most <= 8000, `${most} records in the ledger`);
  kept.sound();
});

Deno.test("a crash right behind the rename goes on with the chain", () => {
  using kept = new Kept();
  kept.record(10);
  assert(kept.text.rotate(() => true) !== null);
  kept.restart();
  assertEquals(kept.sound(), { first: 1, text_only: 0, segments: 1 });
  kept.record(2);
  assertEquals(kept.sound(), { first: 1, text_only: 0, segments: 1 });
  assertEquals(kept.ledger.head()?.seq, 12, "nothing was repaired");
});

Deno.test("a text that was lost beside its segments is made again from where they end", () => {
  using kept = new Kept();
  for (let n = 0; n < 3; n++) {
    kept.record(400);
    kept.turns(8);
  }
  kept.record(7);
  Deno.removeSync(kept.state.text);
  kept.restart();
  kept.sound();
  // Lost with all segments: what is left in the ledger is written, and the loss is told.
  const floor = kept.ledger.floor()?.seq ?? 0;
  for (const name of kept.segments()) Deno.removeSync(`${dirname(kept.state.text)}/${name}`);
  Deno.removeSync(kept.state.text);
  kept.restart();
  assertEquals(kept.text.textHead(), kept.ledger.head());
  assertEquals(kept.sound().first, floor + 1);
  const last = JSON.parse(kept.ledger.records(kept.ledger.head()?.seq ?? 0, 1)[0]?.line ?? "{}");
  assertEquals([last.event, last.what, last.lost_upto], ["repaired", "audit-text", floor]);
});

Deno.test("segments are removed by age, recorded before, one by one", () => {
  using kept = new Kept();
  for (let n = 0; n < 4; n++) {
    kept.record(400);
    kept.turns(10);
  }
  kept.turns(120);
  assertEquals(kept.segments().length, 4);
  const [oldest] = kept.segments();
  const last = Number(/-([0-9]+)\./.exec(oldest ?? "")?.[1]);
  kept.state.clock.ms += 100 * DAY_MS;
  kept.turns(70);
  // The clock moved the text itself into a segment too.
  const after = kept.segments();
  assert(!after.includes(oldest ?? ""), "the oldest is gone");
  assertEquals(kept.ledger.removed()?.seq, last);
  assertEquals(kept.sound().first, last + 1);
  const records = kept.ledger.records(1, 10_000).map((one) => JSON.parse(one.line));
  const [record] = records.filter((one) => one.event === "removed");
  assertEquals([record.first, record.last, record.what], [1, last, "audit-segment"]);
  kept.turns(60);
  assertEquals(kept.segments().length, after.length, "no second one within minutes");
  kept.turns(1300);
  assert(kept.segments().length < after.length);
  kept.sound();
  // What stands in a file that was removed without a record is missed.
  const [next] = kept.segments();
  Deno.removeSync(`${dirname(kept.state.text)}/${next}`);
  const report = verifyAudit(kept.state.text, { ledger: kept.ledger });
  assertEquals([report.ok, report.ok ? "" : report.problem], [false, "missing"]);
});

Deno.test("a removal that a crash cut off is done by the next turn", () => {
  using kept = new Kept();
  for (let n = 0; n < 3; n++) {
    kept.record(400);
    kept.turns(10);
  }
  const [oldest] = kept.segments();
  const floor = kept.ledger.records(400, 1);
  assertEquals(floor[0]?.seq === 400, false, "its records have left");
  const content = Deno.readFileSync(`${dirname(kept.state.text)}/${oldest}`);
  kept.state.clock.ms += 100 * DAY_MS;
  kept.turns(70);
  assert(!kept.segments().includes(oldest ?? ""));
  Deno.writeFileSync(`${dirname(kept.state.text)}/${oldest}`, content);
  kept.restart();
  kept.turns(1);
  assert(!kept.segments().includes(oldest ?? ""));
  kept.sound();
});

Deno.test("a rotation that fails is told and tried again", () => {
  using kept = new Kept();
  kept.record(400);
  const target = `${dirname(kept.state.text)}/audit.1-400.jsonl`;
  Deno.mkdirSync(`${target}/in-the-way`, { recursive: true });
  kept.turns(1);
  assert(kept.keeper.fault !== null);
  assert(kept.log.includes("audit-not-kept"));
  kept.record(1);
  Deno.removeSync(target, { recursive: true });
  kept.turns(1);
  assertEquals(kept.keeper.fault, null);
  assertEquals(kept.segments(), ["audit.1-401.jsonl"]);
  kept.sound();
});
