/** Did-you-mean: near words are found, far ones are not, and the work is bounded. */
import { assert, assertEquals } from "@std/assert";
import { didYouMean, suggest } from "../src/policy/suggest.ts";

const VERBS = ["ps", "logs", "restart", "up", "down", "run-tests"];

for (
  const [word, wanted] of [
    ["restrat", "restart"],
    ["restar", "restart"],
    ["restartt", "restart"],
    ["RESTART", "restart"],
    ["log", "logs"],
    ["lgos", "logs"],
    ["run_tests", "run-tests"],
    ["runtests", "run-tests"],
    ["sp", "ps"],
    ["dwon", "down"],
    ["rsetrat", "restart"],
    ["status", null],
    ["x", null],
    ["", null],
    ["zz", null],
    ["restart-everything", null],
    ["r".repeat(1_000_000), null],
  ] as const
) {
  Deno.test(`suggest() finds ${wanted} for ${word.slice(0, 20) || "nothing"}`, () => {
    assertEquals(suggest(word, VERBS), wanted);
  });
}

Deno.test("suggest() prefers the nearest, then the first", () => {
  assertEquals(suggest("logx", ["logss", "logs", "logy"]), "logs");
  assertEquals(suggest("abcx", ["abcd", "abce"]), "abcd");
  assertEquals(suggest("abc", ["ABC", "abd"]), "ABC");
  assertEquals(suggest("anything", []), null);
});

Deno.test("suggest() forgives as many errors as the word is long for, whichever way round", () => {
  const letters = "abcdefghijkl";
  for (let i = 0; i < letters.length; i++) {
    const without = letters.slice(0, i) + letters.slice(i + 1);
    const doubled = letters.slice(0, i) + "zz" + letters.slice(i);
    const swapped = letters.slice(0, i) + letters.slice(i + 1, i + 2) + letters.charAt(i) +
      letters.slice(i + 2);
    for (const word of [without, doubled, swapped]) assertEquals(suggest(word, [letters]), letters);
    assertEquals(suggest(letters.slice(0, i) + "zzzz" + letters.slice(i), [letters]), null);
  }
});

Deno.test("suggest() stays cheap with a thousand candidates of full length", () => {
  const candidates = Array.from({ length: 1000 }, (_, i) => `${"a".repeat(60)}${i}`);
  const start = performance.now();
  suggest("a".repeat(60) + "zzzz", candidates);
  suggest("b".repeat(64), candidates);
  assert(performance.now() - start < 1000);
});

Deno.test("didYouMean() is the head of a hint, or nothing", () => {
  assertEquals(didYouMean("restrat", VERBS), 'Did you mean "restart"? ');
  assertEquals(didYouMean("nothing-like-it", VERBS), "");
});
