/**
 * Hostile texts and values through a running daemon, from outside: each is answered once, nothing
 * runs, and a valid request behind it is served. One bridge serves all of them.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { Reason } from "../src/codes.ts";
import { Arena, type Refused } from "./helpers/arena.ts";
import { sleep, there, until } from "./helpers/bridge.ts";

const MIB = 1024 * 1024;

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Bytes from text and numbers. */
function bytes(...parts: (string | readonly number[])[]): Uint8Array {
  return new Uint8Array(
    parts.flatMap((part) => typeof part === "string" ? [...encode(part)] : part),
  );
}

function utf16(text: string, littleEndian: boolean): Uint8Array {
  const view = new DataView(new ArrayBuffer(text.length * 2));
  for (let i = 0; i < text.length; i++) view.setUint16(i * 2, text.charCodeAt(i), littleEndian);
  return new Uint8Array(view.buffer);
}

const MALFORMED: Refused = { reason: "malformed", stage: "parse" };
const SCHEMA: Refused = { reason: "schema", stage: "schema" };
const BAD_ARGS: Refused = { reason: "bad-args", stage: "args" };
const UNKNOWN: Refused = { reason: "unknown-verb", stage: "allow" };
const TOO_LARGE: Refused = { reason: "malformed", stage: "object" };

/** A verb with an argument of each kind that a value could be mistaken for. */
const TAKE = {
  argv: [
    "base/take",
    "--n={n}",
    "{on}",
    "--mode={mode}",
    "--text={text}",
    "--who={who}",
    "--ratio={ratio}",
  ],
  args: {
    n: { type: "integer", min: -5, max: 100, default: 1 },
    on: { type: "boolean", element: "--on", default: false },
    mode: { type: "enum", values: ["web", "db"], default: "web" },
    text: { type: "text", default: "t" },
    who: { type: "name", default: "a" },
    ratio: { type: "decimal", default: "1" },
  },
};

/** The line that the script of `take` leaves for these arguments. */
function taken(more: Partial<Record<"n" | "mode" | "text" | "who" | "ratio", string>> = {}) {
  const { n = "1", mode = "web", text = "t", who = "a", ratio = "1" } = more;
  return `<--n=${n}><--mode=${mode}><--text=${text}><--who=${who}><--ratio=${ratio}>`;
}

/** Refused texts of one attack; ids are made from the attack and the position. */
async function refuseAll(
  arena: Arena,
  attack: string,
  rows: readonly (readonly [string | Uint8Array, Refused])[],
): Promise<void> {
  for (const [i, [content, want]] of rows.entries()) {
    await arena.refuses(`${attack}-${String(i).padStart(2, "0")}`, content, want);
  }
}

/** A request for `take` with one argument given as JSON text. */
const arg = (name: string, json: string): string =>
  `{"verb":"take","args":{${JSON.stringify(name)}:${json}}}`;

/** A request for `ok` with one more field given as JSON text. */
const field = (name: string, json: string): string =>
  `{"verb":"ok",${JSON.stringify(name)}:${json}}`;

/** Makes a file that seems huge and takes no room; null when the file system has no such sizes. */
function sparse(path: string, sizes: readonly number[]): number | null {
  for (const size of sizes) {
    const file = Deno.openSync(path, { write: true, createNew: true });
    try {
      file.truncateSync(size);
      return size;
    } catch {
      Deno.removeSync(path);
    } finally {
      file.close();
    }
  }
  return null;
}

Deno.test("hostile values are refused once, run nothing and hold nobody up", async (t) => {
  await using arena = await Arena.start({
    scripts: { take: "" },
    verbs: { take: TAKE },
    limits: { output_bytes: 65_536 },
  });
  const { bridge } = arena;

  await t.step("J1 a key given twice is malformed, however it is spelled", async () => {
    await refuseAll(arena, "j1", [
      ['{"verb":"ok","verb":"down"}', MALFORMED],
      ['{"verb":"ok","verb":"ok"}', MALFORMED],
      ['{"\\u0076erb":"take","verb":"ok"}', MALFORMED],
      ['{"verb":"ok","id":"j1-03","id":"j1-03"}', MALFORMED],
      ['{"verb":"take","args":{"n":1,"\\u006e":2}}', MALFORMED],
      ['{"verb":"ok","__proto__":1,"__proto__":2}', MALFORMED],
      ['{"verb":"ok","args":{},"note":"x","args":{}}', { ...MALFORMED, message: /same key twice/ }],
    ]);
    // The same key in two objects is no duplicate, and a verb's name in a value is no key.
    const { line } = await arena.runs(
      "j1-good",
      '{"verb":"take","args":{"text":"\\"verb\\":\\"down\\""}}',
    );
    assertEquals(line, taken({ text: '"verb":"down"' }));
  });

  await t.step("J2 names of a prototype are names that nobody has", async () => {
    await refuseAll(arena, "j2", [
      ['{"verb":"ok","__proto__":{"verb":"take"}}', { ...SCHEMA, message: /__proto__/ }],
      ['{"__proto__":{"verb":"ok"}}', SCHEMA],
      ['{"verb":"ok","constructor":{"prototype":{"verb":"take"}}}', SCHEMA],
      ['{"verb":"constructor"}', UNKNOWN],
      ['{"verb":"__proto__"}', UNKNOWN],
      ['{"verb":"toString"}', UNKNOWN],
      ['{"verb":"hasOwnProperty"}', UNKNOWN],
      [arg("__proto__", '{"n":5}'), BAD_ARGS],
      [arg("__proto__", "null"), BAD_ARGS],
      [arg("constructor", "1"), BAD_ARGS],
      [arg("toString", '"x"'), BAD_ARGS],
      [arg("mode", '"constructor"'), BAD_ARGS],
      [arg("mode", '"__proto__"'), BAD_ARGS],
      [field("scope", '"constructor"'), SCHEMA],
      [field("scope", '"__proto__"'), SCHEMA],
    ]);
    // An id or a key of such a name is bound, found again and told apart like any other.
    await arena.runs("constructor", { verb: "take", args: { n: 2 }, idempotency_key: "valueof" });
    const conflict = await bridge.ask("hasownproperty", {
      verb: "ok",
      idempotency_key: "valueof",
    });
    assertEquals(conflict.reason, "key-conflict");
    await arena.runs("tostring", { verb: "take", args: { n: 3 } });
  });

  await t.step("J3 nothing passes for the text or number that it would turn into", async () => {
    const fields: Record<string, readonly string[]> = {
      verb: ['["ok"]', '[["ok"]]', '{"toString":"ok"}', "1", "true", "null", "{}", '""'],
      args: ["[]", '[["n",1]]', '"n"', "1", "true", "null"],
      id: ["1", "null", "{}"],
      idempotency_key: ['["k"]', "{}", "5", "null", '""'],
      timeout_s: ['"soon"', '"5"', "[5]", "{}", "true", "null"],
      max_age_s: ['"soon"', '"2026-02-30"', "[5]", "null"],
      max_spend: ['"1"', "[1]", "true", "null"],
      scope: ['["observe"]', "0", "null", '"Observe"', '"all"'],
      note: ["[]", "1", "{}", "null"],
      plan: ['["do it"]', "false"],
      chb: ['"1"', "[1]", "true", "null", "1.5", "2", "0"],
    };
    const rows: [string, Refused][] = [];
    for (const [name, values] of Object.entries(fields)) {
      for (const json of values) {
        rows.push([name === "verb" ? `{"verb":${json}}` : field(name, json), SCHEMA]);
      }
    }
    rows.push([field("id", `["j3-${rows.length}"]`), SCHEMA]);
    const values: Record<string, readonly string[]> = {
      mode: ['["web"]', '{"0":"web"}', "0", "true", "null", '"WEB"', '" web"', '""'],
      text: ['["t"]', '{"length":1}', "5", "false", "null", '""'],
      who: ['["a"]', "1", "null", '"a b"', '"a\\n"'],
      n: ['"1"', "[1]", "{}", "true", "null"],
      on: ['"true"', "1", "0", "[]", "[true]", "null"],
      ratio: ["1", "1.5", '"1e3"', '"Infinity"', '"0x10"', '" 1"', "null"],
    };
    for (const [name, list] of Object.entries(values)) {
      for (const json of list) rows.push([arg(name, json), BAD_ARGS]);
    }
    await refuseAll(arena, "j3", rows);
  });

  await t.step("J4 a number counts as what was written, or not at all", async () => {
    await refuseAll(arena, "j4", [
      [arg("n", "9007199254740993"), MALFORMED],
      [arg("n", "-9007199254740993"), MALFORMED],
      [arg("n", "1e999"), MALFORMED],
      [arg("n", "9007199254740991"), BAD_ARGS],
      [arg("n", "101"), BAD_ARGS],
      [arg("n", "-6"), BAD_ARGS],
      [arg("n", "1.5"), BAD_ARGS],
      [arg("n", "1e-1"), BAD_ARGS],
      [field("timeout_s", "1e999"), MALFORMED],
      [field("timeout_s", "-1e999"), MALFORMED],
      [field("timeout_s", "0"), SCHEMA],
      [field("timeout_s", "-0"), SCHEMA],
      [field("timeout_s", "-1"), SCHEMA],
      [field("timeout_s", "1e-999"), SCHEMA],
      [field("max_age_s", "0"), SCHEMA],
      [field("max_age_s", "-1e308"), MALFORMED],
      [field("max_age_s", "-1e-300"), SCHEMA],
      [field("max_spend", "-0.01"), SCHEMA],
      [field("max_spend", "1e999"), MALFORMED],
    ]);
    const spelled: [string, string][] = [
      ["-0", "0"],
      ["1.0", "1"],
      ["1E2", "100"],
      ["1e0", "1"],
      ["-5", "-5"],
      ["100", "100"],
    ];
    for (const [i, [json, said]] of spelled.entries()) {
      const { line } = await arena.runs(`j4-good-${i}`, arg("n", json));
      assertEquals(line, taken({ n: said }));
    }
    // Limits of a request are numbers, not integers; a huge one is not more than the policy's.
    const limits = ["1.2345", "2.00049", "59.99999", "9007199254740991", "604800.5"];
    for (const [i, json] of limits.entries()) {
      await arena.runs(`j4-timeout-${i}`, field("timeout_s", json));
      await arena.runs(`j4-age-${i}`, field("max_age_s", json));
      await arena.runs(`j4-spend-${i}`, field("max_spend", json));
    }
  });

  await t.step("J4 a time limit too short for anything ends the run, and is no fault", async () => {
    for (const [i, json] of ["0.0004", "1e-300"].entries()) {
      const id = `j4-short-${i}`;
      bridge.submitText(id, field("timeout_s", json));
      const result = await bridge.final(id);
      // Whether the command was quicker is nobody's promise.
      assert(result.reason === "timed-out" || result.reason === "ok", JSON.stringify(result));
      bridge.submitText(`${id}-age`, field("max_age_s", json));
      const late = await bridge.final(`${id}-age`);
      assert(late.reason === "expired" || late.reason === "ok", JSON.stringify(late));
      await arena.behind();
    }
  });

  await t.step("J6 NUL is nowhere in a request, neither raw nor escaped", async () => {
    await refuseAll(arena, "j6", [
      [arg("text", '"a\\u0000b"'), MALFORMED],
      [arg("mode", '"web\\u0000"'), MALFORMED],
      ['{"verb":"ok\\u0000"}', MALFORMED],
      [field("note", '"a\\u0000b"'), MALFORMED],
      [field("idempotency_key", '"k\\u0000"'), MALFORMED],
      ['{"verb":"ok","no\\u0000te":"x"}', MALFORMED],
      [bytes('{"verb":"ok","note":"a', [0], 'b"}'), MALFORMED],
      [bytes('{"verb":"ok"}', [0]), MALFORMED],
      [bytes([0, 0, 0, 0]), MALFORMED],
    ]);
  });

  await t.step("J7 only UTF-8 without a mark is read, and nothing replaced", async () => {
    const good = '{"verb":"ok"}';
    await refuseAll(arena, "j7", [
      [bytes([0xef, 0xbb, 0xbf], good), { ...MALFORMED, message: /byte order mark/ }],
      [utf16(`\ufeff${good}`, true), MALFORMED],
      [utf16(`\ufeff${good}`, false), MALFORMED],
      [utf16(good, true), MALFORMED],
      [utf16(good, false), MALFORMED],
      [bytes('{"verb":"ok","note":"', [0xff], '"}'), { ...MALFORMED, message: /UTF-8/ }],
      [bytes('{"verb":"ok","note":"', [0xc0, 0xaf], '"}'), MALFORMED],
      [bytes('{"verb":"ok","note":"', [0xed, 0xa0, 0x80], '"}'), MALFORMED],
      [bytes('{"verb":"ok","note":"', [0xf4, 0x90, 0x80, 0x80], '"}'), MALFORMED],
      [bytes('{"verb":"ok","note":"caf', [0xe9], '"}'), MALFORMED],
      [bytes('{"verb":"ok"}', [0xe2, 0x82]), MALFORMED],
      [bytes('{"verb":"o', [0xef, 0xbb, 0xbf], 'k"}'), {
        reason: "unknown-verb",
        stage: "allow",
      }],
    ]);
    const { line } = await arena.runs("j7-good", arg("text", '"caf\u00e9 \u20ac \ud83d\ude00"'));
    assertEquals(line, taken({ text: "caf\u00e9 \u20ac \ud83d\ude00" }));
  });

  await t.step("J8 nesting is refused before anything follows it", async () => {
    const nested = (n: number) => `{"verb":"ok","args":{"x":${"[".repeat(n)}${"]".repeat(n)}}}`;
    await refuseAll(arena, "j8", [
      ["[".repeat(30_000), { ...MALFORMED, message: /deep/ }],
      ["[".repeat(60_000), MALFORMED],
      ['{"a":'.repeat(12_000), MALFORMED],
      ["[".repeat(30_000) + "]".repeat(30_000), MALFORMED],
      [nested(15), { ...MALFORMED, message: /deep/ }],
      // One level less is read, and found to be no argument.
      [nested(14), BAD_ARGS],
      ["[".repeat(200_000), TOO_LARGE],
    ]);
  });

  await t.step("J9 what is too large or has too many parts is refused at its bound", async () => {
    const keys = (n: number) =>
      `{"verb":"ok","args":{${Array.from({ length: n }, (_, i) => `"k${i}":1`).join(",")}}}`;
    const padded = (size: number) => {
      const text = '{"verb":"ok"}';
      return text + " ".repeat(size - text.length);
    };
    const before = bridge.memory();
    await refuseAll(arena, "j9", [
      [padded(65_537), { ...TOO_LARGE, message: /65536/ }],
      [padded(10 * MIB), TOO_LARGE],
      [keys(65), { ...MALFORMED, message: /keys/ }],
      [keys(5000), MALFORMED],
      [keys(200_000), TOO_LARGE],
      [keys(64), BAD_ARGS],
      [field("note", JSON.stringify("x".repeat(8193))), MALFORMED],
      [field("note", JSON.stringify("\u20ac".repeat(2731))), MALFORMED],
    ]);
    await arena.runs("j9-full", padded(65_536));
    await arena.runs("j9-note", field("note", JSON.stringify("\u20ac".repeat(2730))));
    const grown = bridge.memory() - before;
    assert(grown < 60 * MIB, `the daemon grew by ${grown} bytes`);
  });

  await t.step("J10 a text whose value is no object is of the wrong shape", async () => {
    const values = ["null", "true", "false", "5", '"ok"', '""', "[]", "[1,2]", '[{"verb":"ok"}]'];
    await refuseAll(arena, "j10", values.map((json) => [json, SCHEMA]));
    await arena.refuses("j10-empty", "{}", { ...SCHEMA, message: /verb/ });
  });

  await t.step("J11 what other parsers forgive is malformed", async () => {
    const rows = [
      '{"verb":"ok"} x',
      '{"verb":"ok"}{"verb":"ok"}',
      '{"verb":"ok"}\n{"verb":"take"}\n',
      '{"verb":"ok"},',
      '// why\n{"verb":"ok"}',
      '{"verb":"ok" /* why */}',
      '{"verb":"ok",}',
      '{"verb":"take","args":{"n":NaN}}',
      '{"verb":"take","args":{"n":Infinity}}',
      '{"verb":"take","args":{"n":01}}',
      '{"verb":"take","args":{"n":+1}}',
      '{"verb":"take","args":{"n":.5}}',
      '{"verb":"take","args":{"n":1.}}',
      '{"verb":"take","args":{"n":0x10}}',
      "{'verb':'ok'}",
      '{verb:"ok"}',
      '{"verb":"ok","note":undefined}',
      '{"verb":"ok","note":"a\nb"}',
      '{"verb":"ok","note":"\\x41"}',
      '{"verb":"ok","note":"\\ud83d"}',
      '{"verb":"ok"}\u00a0',
      "",
      " \n\t",
    ];
    await refuseAll(arena, "j11", rows.map((text) => [text, MALFORMED]));
    await arena.runs("j11-good", ' \r\n\t{ "verb" : "ok" }\n');
  });

  await t.step("J13 no time that a sandbox can set or name counts", async () => {
    await refuseAll(arena, "j13", [
      [field("created_at", '"2026-01-01T00:00:00.000Z"'), SCHEMA],
      [field("created_at", "1"), SCHEMA],
      [field("deadline", '"Jan 1 9999 (x)"'), SCHEMA],
    ]);
    for (const [id, when] of [["j13-future", "2099-01-01"], ["j13-past", "1970-01-02"]] as const) {
      const before = arena.ran().length;
      const temporary = bridge.queue(`.${id}.tmp`);
      Deno.writeTextFileSync(temporary, field("max_age_s", "600"));
      Deno.utimeSync(temporary, new Date(when), new Date(when));
      Deno.renameSync(temporary, bridge.queue(`${id}.json`));
      const result = await bridge.final(id);
      assertEquals([result.outcome, arena.ran().length], ["succeeded", before + 1]);
      const received = Date.parse(result.received_at ?? "");
      assert(Math.abs(Date.now() - received) < 120_000, `received at ${result.received_at}`);
    }
  });

  await t.step("J14 a file that seems endless is refused by its size and never read", async () => {
    const before = bridge.memory();
    for (const [i, sizes] of [[2 ** 40, 2 ** 36, 2 ** 33], [3 * 1024 * MIB]].entries()) {
      const id = `j14-${i}`;
      let size: number | null = null;
      await arena.refuses(id, () => {
        const temporary = bridge.queue(`.${id}.tmp`);
        size = sparse(temporary, sizes);
        assert(size !== null, "the file system knows no sparse files");
        Deno.renameSync(temporary, bridge.queue(`${id}.json`));
      }, { ...TOO_LARGE, message: new RegExp(`${sizes.length === 1 ? sizes[0] : ""} bytes`) });
    }
    const grown = bridge.memory() - before;
    assert(grown < 60 * MIB, `the daemon grew by ${grown} bytes`);
    // What is kept for a person is short, too.
    for (const entry of Deno.readDirSync(bridge.path("work/main/quarantine"))) {
      const { size } = Deno.lstatSync(bridge.path("work/main/quarantine", entry.name));
      assert(size <= 65_536, `${entry.name} has ${size} bytes`);
    }
  });

  await t.step("J15 a text that ends too early is told to use a rename", async () => {
    const whole = '{"verb":"take","args":{"n":7}}';
    for (const [i, length] of [1, 5, 12, 24, whole.length - 1].entries()) {
      const id = `j15-${i}`;
      await arena.refuses(id, () => {
        Deno.writeTextFileSync(bridge.queue(`${id}.json`), whole.slice(0, length));
      }, { ...MALFORMED, hint: /rename/ });
      bridge.submitText(id, whole);
      const again = await until(`the second result of ${id}`, () => {
        const r = bridge.result(id);
        return r?.outcome === "succeeded" ? r : null;
      });
      assertEquals([again.code, arena.ran().at(-1)], [0, taken({ n: "7" })]);
    }
  });

  await t.step("J15 a slow writer is waited for, one that never ends is not", async () => {
    const whole = '{"verb":"take","args":{"n":8}}';
    const before = arena.ran().length;
    const file = Deno.openSync(bridge.queue("j15-slow.json"), { write: true, createNew: true });
    try {
      for (const part of [whole.slice(0, 10), whole.slice(10, 20), whole.slice(20)]) {
        file.writeSync(encode(part));
        await sleep(120);
      }
    } finally {
      file.close();
    }
    const result = await bridge.final("j15-slow");
    assertEquals([result.outcome, arena.ran().slice(before)], ["succeeded", [taken({ n: "8" })]]);
    const open = Deno.openSync(bridge.queue("j15-open.json"), { write: true, createNew: true });
    try {
      await arena.refuses("j15-open", () => {
        open.writeSync(encode(whole.slice(0, 10)));
      }, MALFORMED);
      // What comes after the claim is nobody's request.
      open.writeSync(encode(whole.slice(10)));
      await arena.behind();
      assertEquals(bridge.result("j15-open")?.reason, "malformed");
    } finally {
      open.close();
    }
  });

  await t.step("J16 no byte of a refused text comes back out of it", async () => {
    const canary = "CANARY-5e1f";
    const rows: [string | Uint8Array, Refused][] = [
      [`${canary}`, MALFORMED],
      [`{"verb":"ok" ${canary}}`, MALFORMED],
      [`{"verb":"ok","note":"\u001b[31m${canary}"}`, MALFORMED],
      [`{"verb":"ok"}\u001b]0;${canary}\u0007`, MALFORMED],
      [`{"${canary}":1,"${canary}":2}`, MALFORMED],
      [bytes(`{"verb":"ok","note":"${canary}`, [0xff], '"}'), MALFORMED],
      [`{"verb":["${canary}"]}`, SCHEMA],
      [field("timeout_s", `"${canary}"`), SCHEMA],
      [field("id", `"${canary.toLowerCase()}"`), SCHEMA],
    ];
    await refuseAll(arena, "j16", rows);
    const told = arena.results().filter((name) => name.startsWith("j16-")).map((name) =>
      Deno.readTextFileSync(bridge.path("spool/main/results", name))
    );
    assertEquals(told.length, rows.length);
    const audit = Deno.readTextFileSync(bridge.path("state/audit/audit.jsonl"));
    const inbox = Deno.readTextFileSync(bridge.path("spool/main/inbox/status.json"));
    for (const text of [...told, audit, bridge.log, inbox]) {
      assert(!text.toLowerCase().includes(canary.toLowerCase()), text.slice(0, 500));
    }
  });

  await t.step("situation 3: wrong shapes that parse are each answered, all at once", async () => {
    const shapes: [string | Uint8Array, Reason][] = [
      ["[1,2]", "schema"],
      ["5", "schema"],
      ["null", "schema"],
      ['""', "schema"],
      ["{}", "schema"],
      ['{"verb":"ok","timeout":"soon"}', "schema"],
      ['{"verb":"ok","timeout_s":"soon"}', "schema"],
      ['{"verb":"ok","timeout_s":NaN}', "malformed"],
      ['{"verb":"ok","timeout_s":-1}', "schema"],
      ['{"verb":"ok","timeout_s":1e309}', "malformed"],
      ['{"verb":"ok","idempotency_key":["k"]}', "schema"],
      ['{"verb":"ok","idempotency_key":{"k":1}}', "schema"],
      ['{"verb":"ok","id":"a","id":"b"}', "malformed"],
      ['{"verb":"ok","__proto__":{"verb":"take"}}', "schema"],
      ["[".repeat(100_000), "malformed"],
      ['{"verb":"ok","note":"\\ud800"}', "malformed"],
      ['{"verb":"\\ud800"}', "malformed"],
      [bytes([0xef, 0xbb, 0xbf], '{"verb":"ok"}'), "malformed"],
      [utf16('\ufeff{"verb":"ok"}', true), "malformed"],
      ['{"verb":"ok"}{"verb":"ok"}', "malformed"],
      ["", "malformed"],
      ['{"verb":"ok"}' + " ".repeat(65_537 - 13), "malformed"],
    ];
    const before = arena.ran().length;
    const notes = bridge.refused().length;
    for (const [i, [content]] of shapes.entries()) {
      const data = typeof content === "string" ? encode(content) : content;
      Deno.writeFileSync(bridge.queue(`00-shape-${String(i).padStart(2, "0")}.json`), data);
      // Without an id that can be answered there is a note instead.
      if (i % 4 === 0) Deno.writeFileSync(bridge.queue(`Bad Name ${i}.json`), data);
    }
    await arena.behind();
    for (const [i, [, reason]] of shapes.entries()) {
      const id = `00-shape-${String(i).padStart(2, "0")}`;
      const result = await bridge.final(id);
      assertEquals([result.reason, result.outcome], [reason, "rejected"], id);
      assertEquals(arena.results().filter((n) => n.startsWith(id)), [`${id}.json`]);
      assertEquals(arena.records(id).length, 1);
    }
    const wanted = Math.ceil(shapes.length / 4);
    const told = await until("the notes", () => {
      const list = bridge.refused().slice(notes);
      return list.length === wanted ? list : null;
    });
    for (const note of told) {
      assert(note["reason"] === "bad-name" || note["reason"] === "malformed", JSON.stringify(note));
      assertStringIncludes(String(note["name"]), "Bad Name");
    }
    await until("an empty queue", () => bridge.queued().length === 0);
    assertEquals(arena.ran().slice(before), ["<ok>"]);
    assert(there(`/proc/${bridge.pid}/status`));
  });
});
