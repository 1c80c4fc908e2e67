import { assert, assertEquals } from "@std/assert";
import { Answers } from "../src/daemon/answers.ts";
import { logLine } from "../src/daemon/log.ts";

/** Takes `n` answers; how many were granted. */
function took(answers: Answers, agent: string, n: number): number {
  return Array.from({ length: n }, () => answers.take(agent)).filter((granted) => granted).length;
}

Deno.test("Answers: exactly the cap a minute, each agent by itself, and one more is shed", () => {
  let now = 0;
  for (const cap of [1, 3, 600]) {
    now = 0;
    const answers = new Answers(cap, () => now);
    assertEquals(took(answers, "a", cap - 1), cap - 1);
    assertEquals([answers.take("a"), answers.take("a")], [true, false], `${cap} and one more`);
    assertEquals(took(answers, "b", cap + 1), cap);
    // All of them were given at 0: none is a minute ago before 60 s, all of them are at 61 s.
    for (now of [1, 30_000, 59_999, 60_000]) assertEquals(answers.take("a"), false, `${now} ms`);
    now = 61_000;
    assertEquals(took(answers, "a", cap + 1), cap);
    now = 600_000;
    assertEquals(took(answers, "a", cap + 1), cap);
  }
});

Deno.test("Answers: the window slides, and room comes back as answers fall out of it", () => {
  let now = 0;
  const answers = new Answers(4, () => now);
  assertEquals(took(answers, "a", 1), 1);
  now = 20_000;
  assertEquals(took(answers, "a", 2), 2);
  now = 50_500;
  assertEquals(took(answers, "a", 2), 1);
  now = 61_000;
  assertEquals(took(answers, "a", 9), 1, "that of 0");
  now = 81_000;
  assertEquals(took(answers, "a", 9), 2, "those of 20 s");
  now = 110_999;
  assertEquals(took(answers, "a", 9), 0, "that of 50.5 s is not a minute ago in whole seconds");
  now = 111_000;
  assertEquals(took(answers, "a", 9), 1);
});

Deno.test("Answers: a cap that is changed counts at once", () => {
  const answers = new Answers(5, () => 1000);
  assertEquals(took(answers, "a", 3), 3);
  answers.max = 3;
  assertEquals(answers.take("a"), false);
  answers.max = 4;
  assertEquals(took(answers, "a", 2), 1);
});

Deno.test("Answers: no minute, however cut, gives more than the cap", () => {
  // Steady, in bursts at the end of a minute, and at random.
  const patterns: ((now: number) => boolean)[] = [
    () => true,
    (now) => now % 60_000 >= 59_000 || now % 60_000 < 1_000,
    () => Math.random() < 0.3,
  ];
  for (const pattern of patterns) {
    let now = 0;
    const answers = new Answers(60, () => now);
    const taken: number[] = [];
    for (now = 0; now < 600_000; now += 20) {
      if (pattern(now) && answers.take("a")) taken.push(now);
    }
    taken.forEach((from, i) => {
      const last = taken[i + 60];
      assert(last === undefined || last > from + 60_000, `61 answers from ${from} to ${last}`);
    });
    assert(taken.length >= 400, `only ${taken.length} in ten minutes`);
  }
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
