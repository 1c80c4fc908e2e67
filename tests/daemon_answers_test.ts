import { assert, assertEquals } from "@std/assert";
import { Answers } from "../src/daemon/answers.ts";
import { logLine } from "../src/daemon/log.ts";

Deno.test("Answers: up to the cap a minute, each agent by itself", () => {
  let now = 0;
  const answers = new Answers(3, () => now);
  assertEquals([1, 2, 3, 4].map(() => answers.take("a")), [true, true, true, false]);
  assertEquals(answers.take("b"), true);
  now = 60_000;
  // The minute before still weighs whole at this moment, and less and less from here on.
  assertEquals(answers.take("a"), false);
  now = 100_000;
  assertEquals(answers.take("a"), true);
  now = 300_000;
  assertEquals([1, 2, 3, 4].map(() => answers.take("a")), [true, true, true, false]);
});

Deno.test("Answers: no minute, however cut, gives more than the cap", () => {
  let now = 0;
  const answers = new Answers(60, () => now);
  const taken: number[] = [];
  for (now = 0; now < 600_000; now += 250) if (answers.take("a")) taken.push(now);
  for (const from of taken) {
    const inMinute = taken.filter((t) => t >= from && t < from + 60_000).length;
    // The weight of the minute before is an estimate: it assumes that it was evenly spread.
    assert(inMinute <= 120, `${inMinute} in the minute from ${from}`);
  }
  assert(taken.length >= 500 && taken.length <= 720, `${taken.length} in ten minutes`);
});

Deno.test("Answers: what was shed is told once a minute with count, first and last", () => {
  let now = 5000;
  const answers = new Answers(1, () => now);
  for (const name of ["x1", "x2", "x3"]) answers.shed("a", name);
  answers.shed("b", "y");
  assertEquals(answers.pending("a"), 3);
  assertEquals(answers.due(false, 1_000_000), []);
  now += 60_000;
  assertEquals(answers.due(false, 1_000_000), [
    { agent: "a", count: 3, first: "x1", last: "x3", since_ms: 940_000 },
    { agent: "b", count: 1, first: "y", last: "y", since_ms: 940_000 },
  ]);
  assertEquals([answers.pending("a"), answers.due(true, 0)], [0, []]);
});

Deno.test("Q11 P18 logLine() is one printable line whatever the values are", () => {
  const hostile = 'a\nERROR forged key=1\r\x1b[31m\u2028\u202e\u0085\x9b"\\';
  const line = logLine("INFO", "event", { name: hostile, plain: "spool/main", none: undefined });
  assert(/^[\x20-\x7e]*$/.test(line), line);
  assert(line.startsWith('INFO event name="a\\u000aERROR forged'), line);
  assert(line.endsWith(" plain=spool/main"), line);
});
