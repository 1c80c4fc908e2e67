import { assert, assertEquals, assertThrows } from "@std/assert";
import { codeOf, CODES, type Reason, type State } from "../src/codes.ts";
import { transition, TRANSITIONS } from "../src/transitions.ts";
import { codesPage, statesPage } from "../tools/reference_docs.ts";
import { inRepository } from "../tools/launcher.ts";

Deno.test("docs/codes.md and docs/states.md are what their generator writes", () => {
  assertEquals(Deno.readTextFileSync(inRepository("docs/codes.md")), codesPage());
  assertEquals(Deno.readTextFileSync(inRepository("docs/states.md")), statesPage());
});

Deno.test("codes and reasons are unique, ordered, and leave the child's range to failures", () => {
  const numbers = CODES.map((c) => c.code);
  assertEquals(numbers, [...new Set(numbers)].sort((a, b) => a - b));
  assertEquals(new Set(CODES.map((c) => c.reason)).size, CODES.length);
  for (const c of CODES) {
    assertEquals(codeOf(c.reason), c);
    assert(
      c.code <= 3 || (c.code >= 64 && c.code <= 92),
      `${c.code} is outside the table's ranges`,
    );
    assert(c.meaning !== "");
  }
  assertThrows(() => codeOf("nothing-of-ours" as Reason), RangeError);
});

Deno.test("transition() allows what the table holds and nothing else", () => {
  const states: (State | null)[] = [null, "pending", "running", "done", "uncertain"];
  const events = [...new Set(TRANSITIONS.map((t) => t.event))];
  for (const from of states) {
    for (const event of events) {
      const row = TRANSITIONS.find((t) => t.from === from && t.event === event);
      const ask = () => transition(from, event as Parameters<typeof transition>[1]);
      if (row === undefined) assertThrows(ask, RangeError);
      else assertEquals(ask(), row.to);
    }
  }
  // What is over stays over.
  assert(TRANSITIONS.every((t) => t.from !== "done"));
});
