/**
 * The suite tested by itself: its files fit their schemas and each other, every statement of the two
 * sources is found in a requirement, and an implementation with one fault fails exactly the vectors
 * that are meant for it.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { validate } from "../tests/json_schema.ts";
import { inRepository } from "../tools/launcher.ts";
import { CODES as OURS } from "../src/codes.ts";
import { STAGES as OUR_STAGES } from "../src/gates/stages.ts";
import { changesOf, MUTANTS, mutate } from "./mutants.ts";
import { failed, readRequirements, reportOf } from "./suite/report.ts";
import { playAll, type Played } from "./suite/play.ts";
import { CODES, differences, faults, STAGES } from "./suite/result.ts";
import {
  LEVELS,
  matches,
  readJson,
  readVectors,
  SUITE,
  upTo,
  type Vector,
} from "./suite/vector.ts";

interface Statements {
  readonly documents: Readonly<Record<string, string>>;
  readonly statements: readonly {
    readonly document: string;
    readonly heading: string;
    readonly statement: string;
    readonly requirements: readonly string[];
  }[];
}

const { requirements, chapters } = readRequirements();
const VECTORS = readVectors();
const IDS = requirements.map(({ id }) => id);

function twice(names: readonly string[]): string[] {
  return names.filter((name, at) => names.indexOf(name) !== at);
}

function namesIn(directory: string): string[] {
  return [...Deno.readDirSync(join(SUITE, directory))].map(({ name }) => name).sort();
}

Deno.test("identifiers are unique, in order, and of their chapter", () => {
  assertEquals(twice(IDS), []);
  assertEquals(IDS, [...IDS].sort());
  assertEquals(Object.keys(chapters).length, 19);
  for (const chapter of Object.keys(chapters)) {
    assert(IDS.some((id) => id.startsWith(`R${chapter}-`)), `no requirement of ${chapter}`);
  }
});

Deno.test("the requirements fit their schema", () => {
  assertEquals(validate(readJson("requirements.schema.json"), readJson("requirements.json")), []);
});

Deno.test("every requirement is checked by a vector or a test, or says why a person looks", () => {
  const manual = requirements.filter((one) => one.manual !== undefined);
  assert(manual.length * 10 <= requirements.length, `${manual.length} are manual`);
  for (const { id, vectors, test, manual } of requirements) {
    const ways = [vectors, test, manual].filter((way) => way !== undefined);
    assert(manual === undefined ? ways.length > 0 : ways.length === 1, id);
    if (test === undefined) continue;
    const text = Deno.readTextFileSync(inRepository(...test.file.split("/")));
    assert(text.includes(test.name), `${id}: ${test.file} has no test "${test.name}"`);
  }
});

Deno.test("vectors and requirements name each other", () => {
  for (const { id, requirements: named } of VECTORS) {
    for (const name of named) {
      assert(requirements.find((one) => one.id === name)?.vectors?.includes(id), `${id}: ${name}`);
    }
  }
  for (const { id, vectors = [] } of requirements) {
    for (const name of vectors) {
      assert(VECTORS.find((one) => one.id === name)?.requirements.includes(id), `${id}: ${name}`);
    }
  }
});

Deno.test("a requirement is of the lowest level that one of its vectors has", () => {
  for (const { id, conformance, vectors = [] } of requirements) {
    if (vectors.length === 0) continue;
    assert(
      VECTORS.some((one) => vectors.includes(one.id) && upTo(conformance).includes(one.level)),
      `${id} is of level ${conformance}, and none of its vectors`,
    );
  }
});

Deno.test("vectors fit their schema, lie under their id, and use what there is", () => {
  const schema = readJson<unknown>("vector.schema.json");
  const policies = namesIn("policies").map((name) => name.replace(".json", ""));
  for (const vector of VECTORS) {
    assertEquals(validate(schema, vector), [], vector.id);
    assertEquals(readJson("vectors", `${vector.id}.json`), JSON.parse(JSON.stringify(vector)));
    assert(policies.includes(vector.policy), vector.id);
  }
  assertEquals(twice(VECTORS.map(({ id }) => id)), []);
  assertEquals(
    policies.filter((name) => !VECTORS.some(({ policy }) => policy === name)),
    [],
    "policies that no vector uses",
  );
});

Deno.test("no two vectors that share an implementation use one name", () => {
  const owners = new Map<string, string>();
  for (const { id, policy, steps } of VECTORS) {
    for (const step of steps) {
      const name = "put" in step ? step.put : "make" in step ? step.make : null;
      if (name === null || !/^[a-z0-9][a-z0-9_-]{0,63}\.json$/.test(name)) continue;
      const key = `${policy}/${step.agent ?? "main"}/${name}`;
      assertEquals(owners.get(key) ?? id, id, key);
      owners.set(key, id);
    }
  }
});

Deno.test("codes and stages are those of our program", () => {
  assertEquals(
    CODES,
    OURS.map(({ code, reason, outcome, next }) => ({ code, reason, outcome, next })),
  );
  assertEquals(STAGES, OUR_STAGES);
});

Deno.test("every statement of both sources is said by requirements that there are", () => {
  const { documents, statements } = readJson<Statements>("statements.json");
  for (const document of Object.keys(documents)) {
    assert(statements.filter((one) => one.document === document).length > 40, document);
  }
  for (const { document, statement, requirements: named } of statements) {
    assert(Object.hasOwn(documents, document), statement);
    assert(named.length > 0, statement);
    assertEquals(named.filter((id) => !IDS.includes(id)), [], statement);
  }
  assertEquals(twice(statements.map(({ document, statement }) => document + statement)), []);
});

Deno.test("the conformance statement has the figures of these files", () => {
  const text = Deno.readTextFileSync(inRepository("docs", "conformance.md")).replace(/\s+/g, " ");
  const [core, hardened, durable] = LEVELS.map((level) => ({
    requirements: requirements.filter(({ conformance }) => conformance === level).length,
    vectors: VECTORS.filter((one) => one.level === level).length,
  }));
  const manual = requirements.filter((one) => one.manual !== undefined).length;
  for (
    const figures of [
      `${requirements.length} requirements (${core?.requirements} core, ` +
      `${hardened?.requirements} hardened, ${durable?.requirements} durable), ${manual} of them manual`,
      `${VECTORS.length} vectors (${core?.vectors}, ${hardened?.vectors} and ${durable?.vectors})`,
    ]
  ) assert(text.includes(figures), figures);
});

Deno.test("the judgement of a result finds what is wrong with it", () => {
  const whole = {
    chb: 1,
    id: "a",
    agent: "main",
    state: "done",
    outcome: "rejected",
    code: 77,
    reason: "denied-verb",
    next: "fix-request",
    stage: "denial",
    message: "No",
    hint: "Ask for another",
  };
  const judge = (value: Record<string, unknown>) =>
    faults({ text: JSON.stringify(value), value }, "main", "a");
  assertEquals(judge(whole), []);
  for (
    const change of [
      { chb: 2 },
      { id: "b" },
      { agent: "other" },
      { state: "ended" },
      { outcome: "failed" },
      { reason: "unknown-verb" },
      { next: "wait" },
      { stage: "somewhere" },
      { message: "two\nlines" },
      { hint: "" },
      { more: "host-only-secret-5f1c8e" },
    ]
  ) assert(judge({ ...whole, ...change }).length > 0, JSON.stringify(change));
  assertEquals(faults({ text: "{", value: null }, "main", "a").length, 1);
  assertEquals(differences({ code: 78 }, { text: "", value: whole }).length, 1);
  assertEquals(differences({ code: 77 }, { text: "", value: whole }), []);
});

Deno.test("failures and errors end with 1, skips do not", () => {
  const played = (status: Played["status"]): Played => ({ id: "04/x", status, why: [], ms: 1 });
  assert(failed(reportOf([played("fail")], "core")));
  assert(failed(reportOf([played("error")], "core")));
  assert(!failed(reportOf([played("pass"), played("skip")], "core")));
});

Deno.test("a pattern for vectors means what it says", () => {
  assert(matches("04/*", "04/shape_null"));
  assert(matches("*null", "04/shape_null"));
  assert(!matches("04/shape", "04/shape_null"));
  assert(!matches("0./shape_null", "04/shape_null"));
});

Deno.test("every mutant finds its place once, and vectors that there are", () => {
  for (const mutant of MUTANTS) {
    for (const change of changesOf(mutant)) {
      mutate(change, Deno.readTextFileSync(inRepository(...change.file.split("/"))));
    }
    for (const pattern of mutant.vectors) {
      assert(VECTORS.some(({ id }) => matches(pattern, id)), `${mutant.what}: ${pattern}`);
    }
  }
  assertEquals(twice(MUTANTS.map(({ what }) => what)), []);
});

const FAULTS = [
  "leaves-entries",
  "follows-symlinks",
  "answers-out-of-order",
  "runs-twice",
  "runs-replays",
  "uses-a-shell",
];

Deno.test("every fault that a vector catches is one of the broken implementations", () => {
  const caught = new Set(VECTORS.flatMap(({ catches = [] }) => catches));
  assertEquals([...caught].sort(), [...FAULTS].sort());
});

const BROKEN = `'${Deno.execPath()}' run -A --quiet --no-config --no-lock '${
  join(SUITE, "broken", "bridge.ts")
}'`;
const CORE = VECTORS.filter(({ level }) => level === "core");

/** What is played against a fault beside what is meant for it: with CI_WHOLE set, everything. */
function others(meant: readonly Vector[], turn: number): Vector[] {
  const all = Boolean(Deno.env.get("CI_WHOLE"));
  // Else a share, another one for each fault.
  return CORE.filter((one, at) => !meant.includes(one) && (all || at % FAULTS.length === turn));
}

/** Holds what fails against what is meant to; what differs says why. */
async function assertFailing(
  command: string,
  meant: readonly Vector[],
  sound: readonly Vector[],
): Promise<void> {
  // Long enough for a busy machine where all is well; what is wrong is not waited for that long.
  const options = { command, patience_ms: 15_000, final_ms: 3000 };
  const played = await playAll([...meant, ...sound], options, 1);
  const wrong = played.filter(({ id, status }) =>
    meant.some((one) => one.id === id) ? status === "pass" : status === "fail" || status === "error"
  );
  assertEquals(wrong, [], `${command}: these fail or pass, and should not`);
}

Deno.test("another implementation without a fault passes every vector of core", async () => {
  await assertFailing(BROKEN, [], CORE);
});

for (const [turn, fault] of FAULTS.entries()) {
  Deno.test(`an implementation with the fault ${fault} fails the vectors meant for it, and no others`, async () => {
    const meant = CORE.filter(({ catches = [] }) => catches.includes(fault));
    await assertFailing(`${BROKEN} --fault ${fault}`, meant, others(meant, turn));
  });
}
