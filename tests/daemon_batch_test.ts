/**
 * What the entries of one batch share: the length of a turn, and the looks at the kill switches.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { BatchSize, FEWEST, FITTING_MS, MOST } from "../src/daemon/batch_size.ts";
import { SwitchLooks } from "../src/daemon/switch_looks.ts";

Deno.test("a batch is fitted to what its entries take, and grows again step by step", () => {
  const batch = new BatchSize();
  assertEquals(batch.size, MOST);
  batch.handled(MOST, FITTING_MS * 2, 0);
  assertEquals(batch.size, MOST / 2);
  batch.handled(MOST / 2, FITTING_MS * 100, 0);
  assertEquals(batch.size, FEWEST);
  for (let n = 0; n < MOST; n++) batch.handled(batch.size, 1, 0);
  assertEquals(batch.size, MOST);
});

Deno.test("a disk that is slow to commit makes no batch smaller", () => {
  const batch = new BatchSize();
  for (let n = 0; n < 10; n++) {
    batch.handled(MOST, 1000 + FITTING_MS, 1000);
    assertEquals(batch.size, MOST);
  }
  batch.handled(MOST, 1000 + 2 * FITTING_MS, 1000);
  assertEquals(batch.size, MOST / 2);
});

/** Switches that count how often they are looked at. */
class Switches {
  looks = 0;
  up: string | null = null;
  readonly of = new SwitchLooks(() => {
    this.looks++;
    return this.up;
  });

  /** One entry of a batch: what refuses it, if anything. */
  entry(passes: boolean): string | null {
    this.of.entry();
    const up = this.of.seen("main");
    return up ?? (passes ? this.of.own("main") : null);
  }
}

Deno.test("broken entries of a batch share one look at the switches, whoever passes has its own (Q5)", () => {
  const switches = new Switches();
  for (const batch of [1, 2]) {
    switches.of.batch();
    for (let n = 0; n < 48; n++) assertEquals(switches.entry(false), null);
    assertEquals(switches.looks, batch);
  }
  switches.of.batch();
  switches.looks = 0;
  // The first look is its own, the two behind it make theirs.
  for (let n = 0; n < 3; n++) assertEquals(switches.entry(true), null);
  assertEquals(switches.looks, 3);
});

Deno.test("a switch that is raised within a batch stops who would pass, and those behind", () => {
  const switches = new Switches();
  switches.of.batch();
  assertEquals(switches.entry(false), null);
  switches.up = "KILL";
  assertEquals(switches.entry(false), null, "refused anyway, by another reason");
  assertEquals(switches.entry(true), "KILL");
  assertEquals(switches.entry(false), "KILL");
  assertEquals(switches.of.seen("other"), "KILL", "a look for each agent");
  switches.up = null;
  switches.of.batch();
  assertEquals(switches.entry(true), null);
});
