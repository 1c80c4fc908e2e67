import { assertEquals } from "@std/assert";
import { Slots } from "../src/daemon/slots.ts";

function waiting(rid: number, agent = "main", lock: string | null = null) {
  return { rid, agent, lock, expires_ms: Infinity };
}

/** Starts what may start, in order, without ever freeing. */
function drain(slots: Slots): number[] {
  const started: number[] = [];
  for (let next = slots.peek(); next !== null; next = slots.peek()) {
    slots.start(next.rid, next.agent, next.lock);
    started.push(next.rid);
  }
  return started;
}

Deno.test("Slots: no more run at once than concurrency allows", () => {
  const slots = new Slots(2);
  for (const rid of [1, 2, 3]) slots.wait(waiting(rid));
  assertEquals(drain(slots), [1, 2]);
  assertEquals([slots.running, slots.waiting(), slots.waiting("main")], [2, 1, 1]);
  assertEquals(slots.blocked("main", null), "slot");
  slots.free(1);
  assertEquals(drain(slots), [3]);
  slots.free(99);
  assertEquals(slots.running, 2);
});

Deno.test("Slots: a lock is held by one, and first given to who waits longest", () => {
  const slots = new Slots(4);
  slots.wait(waiting(5, "b", "db"));
  slots.wait(waiting(3, "a", "db"));
  slots.wait(waiting(4, "a"));
  assertEquals(drain(slots), [3, 4]);
  assertEquals(slots.blocked("main", "db"), "lock");
  assertEquals(slots.waitsFor(waiting(5, "b", "db")), "lock");
  slots.free(3);
  assertEquals(slots.waitsFor(waiting(5, "b", "db")), "slot");
  assertEquals(drain(slots), [5]);
});

Deno.test("Slots: a thousand waiters of one agent delay another agent's by one, each time", () => {
  const slots = new Slots(2);
  for (let rid = 1; rid <= 1000; rid++) slots.wait(waiting(rid, "a", "db"));
  for (let rid = 1001; rid <= 1500; rid++) slots.wait(waiting(rid, "b"));
  slots.wait(waiting(2001, "b", "db"));
  slots.wait(waiting(2002, "b", "db"));
  const order: number[] = [];
  // Agent b starts something else between any two turns of the lock.
  for (let next = slots.peek(); order.length < 8 && next !== null; next = slots.peek()) {
    slots.start(next.rid, next.agent, next.lock);
    if (next.lock !== null) order.push(next.rid);
    slots.free(next.rid);
  }
  const at = order.indexOf(2001);
  assertEquals(order.slice(at - 1, at + 3).map((rid) => rid > 2000), [false, true, false, true]);
  assertEquals(order.filter((rid) => rid <= 1000), [1, 2, 3, 4, 5, 6].slice(0, 8 - 2));
});

Deno.test("Slots: what keeps only its lock holds up that lock and no slot", () => {
  const slots = new Slots(1);
  slots.start(1, "main", "x");
  slots.wait(waiting(2, "main", "x"));
  slots.wait(waiting(3));
  assertEquals(slots.peek(), null);
  slots.freeSlot(1);
  assertEquals(drain(slots), [3]);
  slots.free(3);
  assertEquals(slots.blocked("main", "x"), "lock");
  slots.free(1);
  assertEquals(drain(slots), [2]);
});

Deno.test("Slots: a question costs the same with a hundred thousand waiters", () => {
  const slots = new Slots(1);
  let looked = 0;
  for (let rid = 1; rid <= 100_000; rid++) {
    slots.wait({
      rid,
      agent: "main",
      expires_ms: Infinity,
      get lock() {
        looked++;
        return rid % 2 === 0 ? "x" : null;
      },
    });
  }
  looked = 0;
  for (let n = 0; n < 1000; n++) {
    const next = slots.peek();
    if (next === null) throw new Error("nothing to start");
    slots.start(next.rid, next.agent, next.lock);
    slots.free(next.rid);
    slots.blocked("main", "x");
  }
  assertEquals(looked, 1000);
  assertEquals(slots.waiting(), 99_000);
});

Deno.test("Slots: a new request does not overtake one that waits for the same lock", () => {
  const slots = new Slots(2);
  slots.start(1, "main", "x");
  slots.wait(waiting(2, "main", "x"));
  slots.free(1);
  assertEquals(slots.blocked("main", "x"), "lock");
  // Nor one that could start and has not yet.
  assertEquals(slots.blocked("main", null), "slot");
  assertEquals(drain(slots), [2]);
  assertEquals(slots.blocked("main", null), null);
});

Deno.test("Slots: a blocked lock does not hold up what needs none", () => {
  const slots = new Slots(3);
  slots.start(1, "main", "x");
  slots.wait(waiting(2, "main", "x"));
  assertEquals(slots.blocked("main", null), null);
  slots.wait(waiting(3));
  assertEquals(drain(slots), [3]);
});

Deno.test("Slots: agents take turns, so a long queue does not hold up another agent", () => {
  const slots = new Slots(1);
  for (const rid of [1, 2, 3, 4]) slots.wait(waiting(rid, "a"));
  slots.wait(waiting(5, "b"));
  const order: number[] = [];
  for (let next = slots.peek(); next !== null; next = slots.peek()) {
    slots.start(next.rid, next.agent, next.lock);
    order.push(next.rid);
    slots.free(next.rid);
  }
  assertEquals(order, [1, 5, 2, 3, 4]);
});

/** Slots that these agents share; a bound of its own where one is given. */
function shared(concurrency: number, agents: Record<string, number | null>): Slots {
  const slots = new Slots(1);
  slots.share(
    concurrency,
    Object.entries(agents).map(([agent, bound]) => ({ agent, concurrency: bound })),
  );
  return slots;
}

Deno.test("Slots: a slot is kept for every agent that runs nothing", () => {
  const slots = shared(4, { a: null, b: null, c: null });
  for (const rid of [1, 2, 3, 4, 5]) slots.wait(waiting(rid, "a"));
  // One slot for b and one for c stay free.
  assertEquals(drain(slots), [1, 2]);
  assertEquals(slots.blocked("a", null), "slot");
  assertEquals([slots.blocked("b", null), slots.blocked("c", null)], [null, null]);
  for (const rid of [6, 7]) slots.wait(waiting(rid, "b"));
  // Nor may a second agent take what is left for the third.
  assertEquals(drain(slots), [6]);
  slots.wait(waiting(8, "c"));
  assertEquals(drain(slots), [8]);
  // When everybody has one, who is next in turn may take more; b had its turn after a.
  slots.free(1);
  assertEquals(drain(slots), [3]);
  slots.free(8);
  assertEquals([drain(slots), slots.blocked("c", null)], [[], null]);
  // An agent that the policy does not name any more needs none.
  slots.share(4, ["a", "b"].map((agent) => ({ agent, concurrency: null })));
  assertEquals(drain(slots), [7]);
});

Deno.test("Slots: with fewer slots than agents nobody has a second one while others have none", () => {
  const slots = shared(2, { a: null, b: null, c: null });
  for (const rid of [1, 2, 3]) slots.wait(waiting(rid, "a"));
  assertEquals(drain(slots), [1]);
  slots.wait(waiting(4, "b"));
  slots.wait(waiting(5, "c"));
  assertEquals(drain(slots), [4]);
  // Both are taken: turns decide, so the flood of one delays another by one of its commands.
  slots.free(1);
  assertEquals(drain(slots), [2]);
  slots.free(2);
  assertEquals(drain(slots), [5]);
  const one = shared(1, { a: null, b: null });
  one.wait(waiting(1, "a"));
  assertEquals(drain(one), [1], "the only slot is kept for nobody");
});

Deno.test("Slots: an agent runs no more than its own bound, and holds up no lock by it", () => {
  const slots = shared(4, { a: 1, b: null });
  slots.wait(waiting(1, "a"));
  slots.wait(waiting(2, "a", "db"));
  slots.wait(waiting(3, "a"));
  assertEquals(drain(slots), [1]);
  // It came first for the lock and cannot start: the next agent does.
  slots.wait(waiting(4, "b", "db"));
  assertEquals(drain(slots), [4]);
  slots.free(4);
  slots.free(1);
  assertEquals(drain(slots), [2]);
});

Deno.test("Slots: what is started twice, or freed twice, counts once", () => {
  const slots = shared(2, { a: 1 });
  slots.start(1, "a", null);
  slots.start(1, "a", null);
  assertEquals([slots.running, slots.blocked("a", null)], [1, "slot"]);
  slots.freeSlot(1);
  slots.free(1);
  assertEquals([slots.running, slots.blocked("a", null)], [0, null]);
});

Deno.test("Slots: a request that is forgotten never starts, and frees those behind it", () => {
  const slots = new Slots(2);
  slots.wait(waiting(1, "main", "x"));
  slots.wait(waiting(2, "main", "x"));
  assertEquals(slots.forget("main", 1), true);
  assertEquals(slots.forget("main", 1), false);
  assertEquals(slots.forget("other", 2), false);
  assertEquals(drain(slots), [2]);
});

Deno.test("Slots: what waits again, by its old number, keeps its place", () => {
  const slots = new Slots(1);
  slots.wait(waiting(7));
  slots.wait(waiting(3));
  assertEquals(slots.peek()?.rid, 3);
});
