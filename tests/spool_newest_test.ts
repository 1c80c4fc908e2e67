/**
 * What has the greatest rank comes out first, and what was left takes no room for long.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { Newest, type Place } from "../src/spool/newest.ts";

/** Values that know where they stand. */
interface Value {
  place: Place<Value> | null;
}

function newest(): Newest<Value> {
  return new Newest<Value>((place) => place.value.place === place);
}

/** Each number below `count` once, in no order. */
function shuffled(count: number): number[] {
  return Array.from({ length: count }, (_, i) => (i * 7919 + 13) % count);
}

Deno.test("pop() gives the greatest rank first, whatever the order in which they came", () => {
  const heap = newest();
  const count = 1000;
  for (const rank of shuffled(count)) {
    const value: Value = { place: null };
    value.place = heap.add(value, rank, count);
  }
  for (let rank = count - 1; rank >= 0; rank--) {
    const value = heap.pop();
    assertEquals(value?.place?.rank, rank);
  }
  assertEquals([heap.pop(), heap.size], [null, 0]);
});

Deno.test("pop() passes over places that were left", () => {
  const heap = newest();
  const values = shuffled(100).map((rank) => {
    const value: Value = { place: null };
    value.place = heap.add(value, rank, 100);
    return value;
  });
  for (const value of values) if ((value.place?.rank ?? 0) % 2 === 0) value.place = null;
  const ranks: (number | undefined)[] = [];
  for (let value = heap.pop(); value !== null; value = heap.pop()) ranks.push(value.place?.rank);
  assertEquals(ranks, Array.from({ length: 50 }, (_, i) => 99 - 2 * i));
});

Deno.test("one value that gets a new place again and again takes no room for the old ones (Q5)", () => {
  const heap = newest();
  const rest: Value = { place: null };
  rest.place = heap.add(rest, 0.5, 2);
  const one: Value = { place: null };
  let most = 0;
  for (let rank = 0; rank < 10_000; rank++) {
    one.place = heap.add(one, rank, 2);
    most = Math.max(most, heap.size);
  }
  assert(most < 100, `${most} places`);
  assertEquals([heap.pop() === one, heap.pop() === rest, heap.pop()], [true, true, null]);
});
