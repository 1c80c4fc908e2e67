/**
 * What the helper writes is what it was given, byte for byte, or it writes nothing: random values
 * in every shell that a sandbox may have. No daemon is needed for it.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { runKit, type Sandbox, Sandboxes } from "./helpers/sandbox.ts";

const HELPER = inRepository("agent", "chb-request");
/** Values a kind of sandbox; the whole thousand with SLOW. */
const VALUES = Deno.env.get("SLOW") ? 1000 : 200;
/** Arguments of one call. */
const BATCH = 50;

/** An agent's three directories with a catalogue and a status, and nobody behind them. */
function arena(verbs: readonly unknown[]): string {
  const directory = Deno.makeTempDirSync({ prefix: "chb-values-" });
  for (const role of ["queue", "results", "inbox"]) Deno.mkdirSync(join(directory, role));
  const write = (name: string, value: unknown) =>
    Deno.writeTextFileSync(join(directory, "inbox", name), JSON.stringify(value) + "\n");
  write("status.json", { chb: 1, seq: 1, state: "serving", why: "", recent: [] });
  write("catalogue.json", { chb: 1, verbs });
  return directory;
}

const TEXTS = Object.fromEntries(
  Array.from({ length: BATCH }, (_, i) => [`a${i}`, { type: "text", max_length: 1000 }]),
);
const VERB = { verb: "put", class: "observe", args: TEXTS };

/** A small generator with a seed, so that a failure can be had again. */
function generator(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 4294967296 * below);
  };
}

const PIECES = [
  ..."\"'\\`$(){}[]<>|&;*?~#!%^=@:,. \t\n\r",
  "\\n",
  "\\u0041",
  "\\\\",
  '\\"',
  "$(id)",
  "`id`",
  "${HOME}",
  "%s",
  "%n",
  "--",
  "-n",
  "-e",
  "=",
  "\x01",
  "\x07",
  "\x08",
  "\x0b",
  "\x1b[31m",
  "\x7f",
  "\u0080",
  "\u00e9",
  "\u2028",
  "\ufeff",
  "\uffff",
  "\ud7ff",
  "\ue000",
  "\u{10000}",
  "\u{1f600}",
  "\u{10ffff}",
  "é",
  "漢字",
  "CHB_EOF",
  "END",
  "\n\n",
  "null",
  "true",
  "0",
  "1e3",
  "a",
  "Z",
];

function value(random: (below: number) => number): string {
  const start = ["", "-", "--wait", "--", "=", " ", "\n", "@"][random(8)] ?? "";
  let text = start;
  for (let n = random(12); n > 0; n--) text += PIECES[random(PIECES.length)] ?? "";
  return text + (["", "", "\n", " ", "\\"][random(5)] ?? "");
}

function sent(chb: string): { name: string; text: string }[] {
  return [...Deno.readDirSync(join(chb, "queue"))].map(({ name }) => ({
    name,
    text: Deno.readTextFileSync(join(chb, "queue", name)),
  }));
}

/** Every shell; `all` also with and without what the helper does not need. */
async function eachSandbox(
  check: (sandbox: Sandbox) => Promise<void>,
  all = false,
): Promise<void> {
  using sandboxes = new Sandboxes();
  assert(sandboxes.all.length > 0, "no shell at all");
  for (const sandbox of sandboxes.all) {
    if (!all && / with jq$/.test(sandbox.name)) continue;
    try {
      await check(sandbox);
    } catch (error) {
      throw new Error(`In ${sandbox.name}: ${error instanceof Error ? error.message : error}`, {
        cause: error,
      });
    }
  }
}

Deno.test("random values arrive exactly, in every shell", async () => {
  const chb = arena([VERB]);
  try {
    let seed = 7;
    await eachSandbox(async (sandbox) => {
      for (let done = 0; done < VALUES; done += BATCH) {
        const random = generator(seed++);
        const args = Object.fromEntries(Object.keys(TEXTS).map((name) => [name, value(random)]));
        const words = Object.entries(args).map(([name, text]) => `${name}=${text}`);
        const said = await runKit(sandbox, HELPER, ["put", ...words, "--id", "r1"], chb);
        assertEquals(said, { code: 0, out: "r1\n", err: "" });
        const [entry, ...others] = sent(chb);
        assertEquals(others, []);
        assertEquals(entry?.name, "r1.json");
        const request = JSON.parse(entry?.text ?? "");
        assertEquals(request, { verb: "put", args, id: "r1" }, `seed ${seed - 1}`);
        Deno.removeSync(join(chb, "queue", "r1.json"));
      }
    }, true);
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("what is no UTF-8 is refused and nothing is sent", async () => {
  const chb = arena([VERB]);
  // A process cannot be given such words here, so a shell makes them out of octal digits.
  const wrong = [
    "\\0200",
    "\\0377",
    "\\0300\\0200",
    "\\0301\\0277",
    "\\0340\\0200\\0200",
    "\\0355\\0240\\0200",
    "\\0355\\0277\\0277",
    "\\0360\\0200\\0200\\0200",
    "\\0364\\0220\\0200\\0200",
    "\\0365\\0200\\0200\\0200",
    "a\\0303",
    "\\0303a",
    "\\0342\\0202",
    "\\0360\\0237\\0230",
  ];
  const call = join(chb, "call");
  Deno.writeTextFileSync(call, '. /dev/null\nexec $1 "$2" put "a0=$(printf "%b" "$3")" --id r1\n');
  try {
    await eachSandbox(async (sandbox) => {
      for (const bytes of wrong) {
        const words = [sandbox.shell.join(" "), HELPER, bytes];
        const said = await runKit(sandbox, call, words, chb);
        assertEquals({ code: said.code, out: said.out }, { code: 64, out: "" }, bytes);
        assertStringIncludes(said.err, "not UTF-8");
        assertEquals(sent(chb), [], bytes);
      }
      const right = await runKit(sandbox, call, [
        sandbox.shell.join(" "),
        HELPER,
        "\\0360\\0237\\0230\\0200",
      ], chb);
      assertEquals(right.code, 0, right.err);
      assertEquals(JSON.parse(sent(chb)[0]?.text ?? "").args, { a0: "\u{1f600}" });
      Deno.removeSync(join(chb, "queue", "r1.json"));
    });
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("types come from the catalogue", async () => {
  const typed = { n: { type: "integer" }, on: { type: "boolean" }, s: { type: "name" } };
  const chb = arena([{ verb: "other", class: "mutating", args: { n: { type: "name" } } }, {
    verb: "typed",
    class: "observe",
    args: typed,
  }]);
  const rows: [string[], Record<string, unknown>][] = [
    [["n=5", "on=true", "s=5"], { n: 5, on: true, s: "5" }],
    [["n=-12", "on=false", "s=true"], { n: -12, on: false, s: "true" }],
    [["n=0"], { n: 0 }],
    // What JSON would read differently, or not at all, stays as it was typed.
    [["n=007"], { n: "007" }],
    [["n=-0"], { n: "-0" }],
    [["n="], { n: "" }],
    [["n=-"], { n: "-" }],
    [["n=1e3"], { n: "1e3" }],
    [["n=12345678901234567890"], { n: "12345678901234567890" }],
    [["on=yes"], { on: "yes" }],
    [["unknown=1"], { unknown: "1" }],
  ];
  try {
    await eachSandbox(async (sandbox) => {
      for (const [words, args] of rows) {
        const said = await runKit(sandbox, HELPER, ["typed", ...words, "--id", "r1"], chb);
        assertEquals(said.code, 0, said.err);
        assertEquals(JSON.parse(sent(chb)[0]?.text ?? "").args, args);
        Deno.removeSync(join(chb, "queue", "r1.json"));
      }
    });
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("the same call has the same id, and another call another one", async () => {
  const chb = arena([{ verb: "restart", class: "mutating", args: { a: {}, b: {} } }, VERB]);
  try {
    await eachSandbox(async (sandbox) => {
      const id = async (...words: string[]) => {
        const { code, out, err } = await runKit(sandbox, HELPER, words, chb);
        assertEquals(code, 0, err);
        return out;
      };
      const one = await id("restart", "a=1", "b=2", "--intent", "x");
      assertMatch(one, /^restart-[0-9a-f]{24}\n$/);
      assertEquals(await id("restart", "b=2", "a=1", "--intent", "x"), one);
      assert(await id("restart", "a=1", "b=2", "--intent", "y") !== one);
      assert(await id("restart", "a=2", "b=1", "--intent", "x") !== one);
      assert(await id("restart", "a=1\nb 2", "--intent", "x") !== one);
      assertEquals(await id("restart", "a=3", "--key", "k1"), await id("restart", "--key", "k1"));
      assert(await id("put") !== await id("put"));
      const refused = await runKit(sandbox, HELPER, ["restart", "a=1"], chb);
      assertEquals([refused.code, refused.out], [64, ""]);
      assertStringIncludes(refused.err, "--intent");
      for (const { name } of sent(chb)) Deno.removeSync(join(chb, "queue", name));
    });
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("a result that is there counts for more than an older status.json", async () => {
  const chb = arena([VERB]);
  using sandboxes = new Sandboxes();
  const [sandbox] = sandboxes.all;
  assert(sandbox !== undefined, "no shell");
  const call = (...words: string[]) => runKit(sandbox, HELPER, words, chb);
  try {
    const id = (await call("put", "--again")).out.trim();
    const row = { id, state: "running", outcome: null, verb: "put", note: "a \\ b" };
    const status = { chb: 1, seq: 1, state: "serving", why: "", recent: [row] };
    Deno.writeTextFileSync(join(chb, "inbox/status.json"), JSON.stringify(status) + "\n");
    assertEquals((await call("--recent")).out, `${id}\trunning\tput\ta \\ b\n`);
    const result = { chb: 1, id, agent: "main", verb: "put", state: "done", outcome: "failed" };
    Deno.writeTextFileSync(join(chb, `results/${id}.json`), JSON.stringify(result) + "\n");
    assertEquals((await call("--recent")).out, `${id}\tdone failed\tput\ta \\ b\n`);
    const again = await call("put", "--again");
    assertMatch(again.out, /^put-[0-9a-f-]+\n$/, again.err);
    assert(again.out.trim() !== id, "a finished call was taken for one that is under way");
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("a call that is interrupted while it waits says how to go on", async () => {
  const chb = arena([VERB]);
  try {
    const { code, stderr } = await new Deno.Command("/bin/sh", {
      args: [
        "-c",
        'sh "$1" put --id r1 --wait 20 & p=$!\n' +
        'while [ ! -e "$CHB_DIR/queue/r1.json" ]; do sleep 0.1; done\n' +
        "sleep 0.3; kill -TERM $p; wait $p",
        "sh",
        HELPER,
      ],
      env: { CHB_DIR: chb },
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).output();
    assertEquals(code, 130);
    assertStringIncludes(new TextDecoder().decode(stderr), "chb-request --result r1 --wait");
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("a call that cannot be understood sends nothing and says what is wrong", async () => {
  const chb = arena([{ verb: "restart", class: "mutating", args: {} }, VERB]);
  const rows: [string[], number, string][] = [
    [[], 64, "usage:"],
    [["a=1"], 64, "the verb comes first"],
    [["put", "put"], 64, "one verb at a time, and arguments as key=value; put is neither"],
    [["put", "--nonsense"], 64, "unknown option --nonsense"],
    [["put", "--key"], 64, "--key needs a value"],
    [["put", "--id", "A"], 64, "--id takes"],
    [["put", "--id", "../x"], 64, "--id takes"],
    [["put", "--key", "a b"], 64, "--key takes"],
    [["put", "A=1"], 64, "an argument is key=value"],
    [["put", "a0=1", "a0=2"], 64, "given twice"],
    [["put", "--timeout", "soon"], 64, "--timeout takes a number"],
    [["put", "--timeout", "007"], 64, "--timeout takes a number"],
    [["put", "--scope", "all"], 64, "--scope takes"],
    [["putt"], 78, 'no verb "putt" here'],
    [["--result", "never-sent"], 66, "no request never-sent"],
    [["--result", "../../etc/passwd"], 64, "an id is"],
  ];
  try {
    await eachSandbox(async (sandbox) => {
      for (const [words, code, text] of rows) {
        const said = await runKit(sandbox, HELPER, words, chb);
        assertEquals([said.code, said.out], [code, ""], words.join(" "));
        assertStringIncludes(said.err, text);
        assertEquals(sent(chb), [], words.join(" "));
      }
    });
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("without a tool that it needs the helper says so, and not that the bridge is down", async () => {
  using sandboxes = new Sandboxes();
  const chb = arena([VERB]);
  try {
    for (
      const { name, shell, path } of sandboxes.all.filter((s) => s.name.endsWith("without jq"))
    ) {
      for (const tool of ["awk", "od"]) {
        const lacking = `${path}-no-${tool}`;
        Deno.mkdirSync(lacking);
        for (const entry of Deno.readDirSync(path)) {
          if (entry.name === tool) continue;
          Deno.symlinkSync(Deno.readLinkSync(join(path, entry.name)), join(lacking, entry.name));
        }
        for (const words of [["put", "a0=x"], ["--verbs"], ["--status"], ["--recent"]]) {
          const said = await runKit({ name, shell, path: lacking }, HELPER, words, chb);
          assertEquals([said.code, said.out], [69, ""], `${name} ${words}: ${said.err}`);
          assertStringIncludes(said.err, `this sandbox lacks what the helper needs: ${tool}.`);
        }
        const help = await runKit({ name, shell, path: lacking }, HELPER, ["--help"], chb);
        assertEquals([help.code, help.err], [0, ""], name);
      }
    }
    assertEquals([...Deno.readDirSync(join(chb, "queue"))], []);
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});
