/**
 * The second implementation, `sh/bridge`: it was written from the page alone, so that it passes says
 * that page and vectors describe a contract and not one program. Played with every small shell that is
 * there, and held to what it claims to be: short, and plain POSIX sh. The first shell plays every
 * vector, another one every fourth, and all of them with `SLOW=1`.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { playAll } from "./suite/play.ts";
import { readVectors, SUITE } from "./suite/vector.ts";

const BRIDGE = join(SUITE, "sh", "bridge");
/** How long an answer may take on a machine that does other things too, milliseconds. */
const PATIENCE = 120_000;
const LONGEST = 300;
/** Vectors that a busy machine may fail: something has to be done while a program sleeps two seconds. */
const TIMED = /^(02\/running_|13\/timeout|15\/slow_)/;

/** Words of bash, ksh and zsh that dash and ash do not know, or not in the same way. */
const BASHISMS: readonly RegExp[] = [
  /\[\[|\]\]/,
  /^\s*(function|local|declare|typeset|source|select|shopt)\b/,
  /\$'|\$"|<<<|<\(|>\(|&>|>&[^0-9-]|\|&/,
  /\$\{[a-z_]+(\[|:[0-9]|\/|\^|,)/i,
  /\becho -[en]\b|\bread -[^r]|\b(let|pushd|popd|disown) /,
  /\(\([a-z]+(\+\+|--)/,
];

async function succeeds(command: string, ...args: string[]): Promise<boolean> {
  try {
    const { success } = await new Deno.Command(command, {
      args,
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).output();
    return success;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** The shells of this machine that it is played with. */
async function shells(): Promise<string[][]> {
  const all = [["dash"], ["busybox", "sh"]];
  const there = await Promise.all(
    all.map(([command = "", ...args]) => succeeds(command, ...args, "-c", ":")),
  );
  return all.filter((_, at) => there[at]);
}

const SHELLS = await shells();
// Its regular expressions are a part of jq that can be left out.
const HAS_TOOLS = await succeeds("jq", "-n", '"a" | test("(?<x>a){0}\\\\g<x>")') &&
  await succeeds("iconv", "-f", "UTF-8", "-t", "UTF-8") && await succeeds("setsid", "true");
const WHY = HAS_TOOLS && SHELLS.length > 0
  ? null
  : "dash or busybox, jq, iconv or setsid is not on this machine";

Deno.test("sh/bridge is short, and plain sh outside of its quotes", () => {
  const text = Deno.readTextFileSync(BRIDGE);
  const lines = text.split("\n");
  assert(text.startsWith("#!/bin/sh\n"));
  assertEquals(lines.pop(), "");
  assert(lines.length <= LONGEST, `It has ${lines.length} lines`);
  // Programs of jq stand in single quotes, which hold none themselves.
  const outside = text.replace(/^#.*$/gm, "").replace(
    /'[^']*'/g,
    (quoted) => "''" + "\n".repeat(quoted.split("\n").length - 1),
  );
  const found = outside.split("\n").flatMap((line, at) =>
    BASHISMS.filter((one) => one.test(line)).map((one) => `${at + 1}: ${one}: ${line}`)
  );
  assertEquals(found, []);
});

Deno.test({
  name: `sh/bridge passes every vector of core${WHY === null ? "" : ` # SKIP ${WHY}`}`,
  ignore: WHY !== null,
  fn: async () => {
    const vectors = readVectors().filter(({ level }) => level === "core");
    // In two halves beside each other: a bridge waits more than it works.
    const shares = SHELLS.flatMap((shell, which) =>
      which === 0 || Deno.env.get("SLOW")
        ? [0, 1].map((at) => ({ shell, at, every: 2 }))
        : [{ shell, at: 0, every: 4 }]
    );
    const played = await Promise.all(shares.map(async ({ shell, at, every }) => {
      const [command = "", ...args] = shell;
      assert(await succeeds(command, ...args, "-n", BRIDGE), `${command} cannot read it`);
      const options = { command: [...shell, `'${BRIDGE}'`].join(" "), patience_ms: PATIENCE };
      const share = vectors.filter((_, index) => index % every === at);
      const all = await playAll(share, options, 1);
      return all.map((one) => ({ shell: command, options, ...one }));
    }));
    const bad = played.flat().filter(({ status }) => status === "fail" || status === "error");
    // Once more, with nothing beside them.
    for (const one of bad.filter(({ id }) => TIMED.test(id))) {
      const [again] = await playAll(vectors.filter(({ id }) => id === one.id), one.options, 1);
      if (again?.status === "pass") bad.splice(bad.indexOf(one), 1);
    }
    assertEquals(bad, []);
    // Root reads every file.
    const skipped = played.flat().filter(({ status, id }) =>
      status === "skip" && id !== "09/unreadable"
    );
    assertEquals(skipped, []);
  },
});
