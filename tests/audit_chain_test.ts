/** One event, one line: its form, its hash, and that nothing can hide in it. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { GENESIS, MAX_LINE, readLine, recordLine, verifyLine } from "../src/audit/chain.ts";
import type { AuditEvent } from "../src/ledger/types.ts";

const AT = Date.UTC(2026, 0, 2, 3, 4, 5, 6);

async function sha256(text: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(hash), (b) => b.toString(16).padStart(2, "0")).join("");
}

Deno.test("recordLine() writes seq, at, event, the facts, prev and hash, in this order", async () => {
  const event: AuditEvent = { event: "refused", agent: "main", id: "r1", code: 64, list: ["a", 1] };
  const { line, hash } = recordLine(event, 12, AT, GENESIS);
  const hashed = '{"seq":12,"at":"2026-01-02T03:04:05.006Z","event":"refused","agent":"main",' +
    `"id":"r1","code":64,"list":["a",1],"prev":"${GENESIS}"}`;
  assertEquals(hash, await sha256(hashed));
  assertEquals(line, `${hashed.slice(0, -1)},"hash":"${hash}"}`);
  assertEquals(JSON.parse(line), {
    seq: 12,
    at: "2026-01-02T03:04:05.006Z",
    event: "refused",
    agent: "main",
    id: "r1",
    code: 64,
    list: ["a", 1],
    prev: GENESIS,
    hash,
  });
});

const SED = "/bin/sed";
const SUM = "/usr/bin/sha256sum";
const tools = [SED, SUM, "/bin/sh"].every((path) => {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
});

Deno.test({
  name: "a line is checked by the commands that the chain's description names" +
    (tools ? "" : " (ignored: no sed or sha256sum at the usual paths)"),
  ignore: !tools,
  fn: async () => {
    const { line, hash } = recordLine(
      { event: "human", text: "\u00e9\u001b\u2028" },
      1,
      AT,
      GENESIS,
    );
    const dir = Deno.makeTempDirSync({ prefix: "chb-audit-" });
    try {
      Deno.writeTextFileSync(`${dir}/audit.jsonl`, line + "\n");
      const { stdout } = await new Deno.Command("/bin/sh", {
        args: [
          "-c",
          `sed -n 1p audit.jsonl | sed 's/,"hash":"[0-9a-f]*"}$/}/' | tr -d '\\n' | sha256sum`,
        ],
        cwd: dir,
        stdout: "piped",
      }).output();
      assertEquals(new TextDecoder().decode(stdout).slice(0, 64), hash);
    } finally {
      Deno.removeSync(dir, { recursive: true });
    }
  },
});

Deno.test("Q11 P18 recordLine() lets no character through that could break, forge or hide a line", () => {
  let hostile = "";
  for (let unit = 0; unit <= 0x2100; unit++) hostile += String.fromCharCode(unit);
  hostile += '\u202e\u2066\ufeff\u{1f600}\ud800\udc00\ud800\n{"seq":1}';
  const { line } = recordLine(
    { event: "refused", name: hostile, [hostile]: [{ [hostile]: 1 }] },
    1,
    AT,
    GENESIS,
  );
  assert(/^[\x20-\x7e]+$/.test(line));
  const back = JSON.parse(line);
  assertEquals(back.name, hostile);
  assertEquals(back[hostile][0][hostile], 1);
  assert(line.includes("\\u007f") && line.includes("\\u009b") && line.includes("\\u2028"));
  assert(readLine(line) !== null);
});

Deno.test("Q11 recordLine() refuses fields that would double a member of the chain", () => {
  for (const name of ["seq", "at", "prev", "hash"]) {
    assertThrows(() => recordLine({ event: "human", [name]: "x" }, 1, AT, GENESIS), TypeError);
  }
});

Deno.test("recordLine() refuses what JSON cannot hold instead of writing null", () => {
  for (
    const value of [NaN, Infinity, 1n, () => 0, Symbol("x"), [undefined], new Uint8Array(1), {
      a: NaN,
    }]
  ) {
    assertThrows(() => recordLine({ event: "human", value }, 1, AT, GENESIS), TypeError);
  }
  const { line } = recordLine(
    { event: "human", a: undefined, b: null, c: { d: undefined } },
    1,
    AT,
    GENESIS,
  );
  const back = JSON.parse(line);
  assertEquals(["a" in back, back.b, back.c], [false, null, {}]);
});

Deno.test("recordLine() refuses numbers, hashes and lengths out of bounds", () => {
  const event: AuditEvent = { event: "human" };
  for (const seq of [0, -1, 1.5, NaN, 2 ** 53]) {
    assertThrows(() => recordLine(event, seq, AT, GENESIS), RangeError);
  }
  for (const prev of ["", "0".repeat(63), "G".repeat(64), GENESIS + "\n"]) {
    assertThrows(() => recordLine(event, 1, AT, prev), RangeError);
  }
  assertThrows(() => recordLine(event, 1, NaN, GENESIS), RangeError);
  const name = 'human","x":"' as AuditEvent["event"];
  assertThrows(() => recordLine({ event: name }, 1, AT, GENESIS), TypeError);
  assertThrows(() => recordLine({ ...event, a: "x".repeat(MAX_LINE) }, 1, AT, GENESIS), RangeError);
});

Deno.test("verifyLine() takes a sound line after its predecessor and nothing else", () => {
  const first = recordLine({ event: "accepted", id: "r1" }, 1, AT, GENESIS);
  const second = recordLine({ event: "started", id: "r1" }, 2, AT, first.hash);
  assertEquals(verifyLine(first.line, GENESIS), { seq: 1, hash: first.hash });
  assertEquals(verifyLine(second.line, first.hash), { seq: 2, hash: second.hash });
  assertEquals(verifyLine(second.line, GENESIS), null);
  assertEquals(verifyLine(first.line, first.hash), null);
  for (const line of ["", "{}", first.line + " ", first.line + "\n", " " + first.line]) {
    assertEquals(verifyLine(line, GENESIS), null);
  }
  assertEquals(verifyLine(first.line.toUpperCase(), GENESIS), null);
});

Deno.test("Q11 readLine() takes no line with a raw character, not even under the right hash", async () => {
  const { line } = recordLine({ event: "accepted", id: "r?" }, 1, AT, GENESIS);
  for (const char of ["\u00e9", "\u001b", "\u007f"]) {
    const body = line.slice(0, -75).replace("?", char) + "}";
    const bytes = Uint8Array.from(body, (one) => one.charCodeAt(0));
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const hash = Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
    assertEquals(readLine(`${body.slice(0, -1)},"hash":"${hash}"}`), null);
  }
});

Deno.test("law: a line with any one character changed, added or taken away does not hold", () => {
  const { line } = recordLine({ event: "accepted", agent: "main", n: 10 }, 7, AT, GENESIS);
  for (let at = 0; at < line.length; at++) {
    const char = line.charAt(at);
    for (const other of [char === "0" ? "1" : "0", "", char + "0"]) {
      const changed = line.slice(0, at) + other + line.slice(at + 1);
      if (changed !== line) assertEquals(readLine(changed), null, changed);
    }
  }
});
