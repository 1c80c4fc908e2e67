/** N5: the clock that rates and budgets are counted by, against a wall clock that does anything. */
import { assert, assertEquals } from "@std/assert";
import { BridgeClock, type ClockReading } from "../src/daemon/bridge_clock.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const START = Date.UTC(2026, 0, 1);

/** A host whose clocks are set by hand. */
class Host {
  wall = START;
  mono = 5;

  clock(known: readonly ClockReading[] = []): BridgeClock {
    return new BridgeClock(() => this.wall, () => this.mono, known);
  }

  /** Time passes and the daemon sees it. */
  pass(ms: number): void {
    this.wall += ms;
    this.mono += ms;
  }
}

Deno.test("N5 BridgeClock begins as the wall clock and goes along with it", () => {
  const host = new Host();
  const clock = host.clock();
  assertEquals(clock.now(), START);
  for (let i = 0; i < 100; i++) {
    host.pass(777);
    clock.now();
  }
  assertEquals(clock.now(), START + 77_700);
  assert(!clock.takeStepped());
});

Deno.test("N5 BridgeClock: a wall clock that is set back neither opens a window nor stops one", () => {
  const host = new Host();
  const clock = host.clock();
  const before = clock.now();
  host.wall -= HOUR;
  assertEquals(clock.now(), before);
  assert(clock.takeStepped() && !clock.takeStepped());
  host.pass(60_000);
  assertEquals(clock.now(), before + 60_000);
  // Set right again: the hour is not counted a second time.
  host.wall += HOUR;
  assertEquals(clock.now(), before + 60_000);
  host.pass(1);
  assertEquals(clock.now(), before + 60_001);
});

Deno.test("N5 BridgeClock: a wall clock that is set forward is taken for a suspended machine, once", () => {
  const host = new Host();
  const clock = host.clock();
  host.wall += HOUR;
  assertEquals(clock.now(), START + HOUR);
  host.wall -= HOUR;
  for (let i = 0; i < 10; i++) {
    host.wall += HOUR;
    clock.now();
    host.wall -= HOUR;
    clock.now();
  }
  assertEquals(clock.now(), START + HOUR);
  host.pass(10);
  assertEquals(clock.now(), START + HOUR + 10);
});

Deno.test("N5 BridgeClock: one wrong date far in the future locks nobody out, over restarts either", () => {
  const host = new Host();
  const clock = host.clock();
  host.wall += 73 * 365 * DAY;
  const wrong = clock.now();
  host.wall = START;
  assertEquals(clock.now(), wrong);
  host.pass(60_000);
  assertEquals(clock.now(), wrong + 60_000);
  const stored = clock.reading();
  // Down for an hour: it counts, although the date of the stored reading is right again.
  host.wall += HOUR;
  host.mono = 0;
  assertEquals(host.clock([stored]).now(), wrong + 60_000 + HOUR);
});

Deno.test("Q9 BridgeClock goes on after a restart: time that passed counts, a clock set back does not", () => {
  const host = new Host();
  const clock = host.clock();
  host.pass(5000);
  const stored = clock.reading();
  host.mono = 1;
  host.wall += 30_000;
  assertEquals(host.clock([stored]).now(), stored.tick + 30_000);
  host.wall = stored.wall_ms - HOUR;
  assertEquals(host.clock([stored]).now(), stored.tick);
  // The furthest reading that the ledger knows, in whatever order.
  const later = { tick: stored.tick + 700, wall_ms: stored.wall_ms + 700 };
  for (const known of [[stored, later], [later, stored]]) {
    assertEquals(host.clock(known).now(), later.tick);
  }
});

Deno.test("N5 BridgeClock never goes back, and never falls behind the monotonic clock", () => {
  const host = new Host();
  const clock = host.clock();
  let tick = clock.now();
  let state = 12345;
  for (let i = 0; i < 20_000; i++) {
    state = (state * 1103515245 + 12345) % 2147483648;
    const step = state % 3 === 0 ? (state % (4 * DAY)) - 2 * DAY : 0;
    const mono = state % 5000;
    host.wall += step;
    host.pass(mono);
    const next = clock.now();
    assert(next >= tick + mono, `step ${i}`);
    tick = next;
  }
});
