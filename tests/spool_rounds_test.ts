/**
 * When a queue full of stuck entries is scanned again, and when that is left out.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { MANY, Rounds } from "../src/spool/rounds.ts";
import type { Look } from "../src/spool/types.ts";

const QUEUE: Look = {
  kind: "directory",
  dev: "1",
  ino: "2",
  nlink: 2,
  uid: 0,
  size: 4096,
  ctime_ms: 5000,
  mtime_ms: 5000,
  mode: 0o700,
};

/** Rounds with a clock, over a directory that the test changes. */
class Queue {
  ms = 0;
  look: Look | null = QUEUE;
  readonly rounds = new Rounds(() => this.ms);

  round(took = 10, whole = true): void {
    this.rounds.step(() => this.look);
    this.ms += took;
    this.rounds.end(whole);
  }

  known(stuck = MANY): boolean {
    return this.rounds.isKnown(stuck, () => this.look);
  }
}

Deno.test("isKnown() is true after two whole rounds over an unchanged directory (Q5, Q7)", () => {
  const queue = new Queue();
  assertEquals(queue.known(), false, "before any round");
  queue.round();
  assertEquals(queue.known(), false, "one round");
  queue.ms = 500;
  queue.round();
  assertEquals(queue.known(), false, "a second one too soon: times may be coarse");
  queue.ms = 1500;
  queue.round();
  assertEquals(queue.known(), true);
  assertEquals(queue.known(MANY - 1), false, "few entries are always scanned");
  queue.ms = 61_499;
  assertEquals(queue.known(), true);
  queue.ms = 61_500;
  assertEquals(queue.known(), false, "one round a minute is made all the same");
  queue.round();
  assertEquals(queue.known(), true);
});

Deno.test("isKnown() is false once the directory changed, is gone, or a round was not whole", () => {
  const queue = new Queue();
  const rest = () => {
    queue.look = QUEUE;
    for (let i = 0; i < 2; i++, queue.ms += 2000) queue.round();
    assertEquals(queue.known(), true);
  };
  rest();
  queue.look = { ...QUEUE, mtime_ms: 5001 };
  assertEquals(queue.known(), false);
  queue.round();
  assertEquals(queue.known(), false, "what is new has to be found twice too");
  rest();
  queue.look = { ...QUEUE, ino: "3" };
  assertEquals(queue.known(), false);
  rest();
  queue.look = null;
  assertEquals(queue.known(), false);
  rest();
  queue.round(10, false);
  assertEquals(queue.known(), false);
  rest();
  // It changed under way: the round began before.
  queue.rounds.step(() => queue.look);
  queue.look = { ...QUEUE, ctime_ms: 6000 };
  queue.rounds.end(true);
  assertEquals(queue.known(), false);
});

Deno.test("mayStep() leaves twice a round's time between rounds where many are stuck (Q5)", () => {
  const queue = new Queue();
  assertEquals(queue.rounds.mayStep(MANY), true);
  queue.round(1000);
  assertEquals([queue.rounds.mayStep(MANY), queue.rounds.mayStep(MANY - 1)], [false, true]);
  queue.ms += 1999;
  assertEquals(queue.rounds.mayStep(MANY), false);
  queue.ms += 1;
  assertEquals(queue.rounds.mayStep(MANY), true);
  queue.rounds.step(() => queue.look);
  queue.ms += 5000;
  assertEquals(queue.rounds.mayStep(MANY), true, "a round that was begun goes on");
});

Deno.test("a round is wanted at first, when it was asked for, and behind one that was under way (N1)", () => {
  const queue = new Queue();
  const { rounds } = queue;
  assertEquals(rounds.wanted, true, "nothing was looked at yet");
  queue.round();
  assertEquals(rounds.wanted, false);
  rounds.ask();
  assertEquals(rounds.wanted, true);
  // A regular one that comes due meanwhile is this one.
  rounds.step(() => queue.look);
  rounds.ask();
  rounds.end(true);
  assertEquals(rounds.wanted, false);
  // Asked anew before it begins, one will do; once it has begun, it may have passed the place.
  rounds.askAnew();
  queue.round();
  assertEquals(rounds.wanted, false);
  rounds.ask();
  rounds.step(() => queue.look);
  rounds.askAnew();
  rounds.end(true);
  assertEquals(rounds.wanted, true);
  queue.round();
  assertEquals(rounds.wanted, false, "and no third one");
  rounds.ask();
  rounds.giveUp();
  assertEquals(rounds.wanted, false);
});
