/**
 * What parses hostile requests cannot start a program, and what starts programs cannot read what
 * agents write, nor keys, nor the ledger: shown by trying, in the real program under its real
 * grants. Each attempt is also made by a process of the same grants that gave up nothing, so that
 * none of them can fail for another reason.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { killPath, SELF } from "../src/permissions.ts";
import { compileArgs } from "../tools/compile.ts";
import { inRepository } from "../tools/launcher.ts";
import { ENTRIES, runFlags, wrapperFacts } from "../tools/wrapper.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { type Tries, WRITE } from "./helpers/separation_main.ts";

const SCRIPT = '#!/bin/sh\necho ran >> "${0%/*}/../ran"\n';
/** Programs that a wrapper may grant beyond those of any policy. */
const SPARE = ["/usr/bin/id", "base/spare"];
const NONE: Tries = { who: "", run: [], read: [], list: [], write: [] };

type Tried = Record<string, string>;

/** A root whose `bin/chb` is the program that tries things on its way out. */
async function makeRoot(trust: boolean): Promise<TestBridge> {
  const bridge = await TestBridge.make({
    verbs: {
      "true": verb(["/usr/bin/true"]),
      used: verb(["base/used"]),
      end: verb([killPath(there), "-0", "--", "1"]),
    },
    scripts: { used: SCRIPT, spare: SCRIPT, text: "text" },
    programs: SPARE,
    trust,
  });
  const path = bridge.path("bin/chb");
  const main = inRepository("main.ts");
  const wrapper = Deno.readTextFileSync(path);
  assertStringIncludes(wrapper, main);
  Deno.removeSync(path);
  const trying = inRepository("tests", "helpers", "separation_main.ts");
  const text = wrapper.replaceAll(main, trying).replaceAll(ENTRIES.shim, trying);
  Deno.writeTextFileSync(path, text, { mode: 0o555 });
  return bridge;
}

function setTries(bridge: TestBridge, tries: Partial<Tries>): void {
  Deno.writeTextFileSync(bridge.path("base/tries.json"), JSON.stringify({ ...NONE, ...tries }));
}

function spawn(bridge: TestBridge, args: string[], detached = false): Deno.ChildProcess {
  return new Deno.Command("./bin/chb", {
    args,
    cwd: bridge.root,
    detached,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

async function tried(child: Deno.ChildProcess): Promise<{ code: number; out: Tried; all: string }> {
  const { code, stdout, stderr } = await child.output();
  const all = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  const line = all.split("\n").find((l) => l.startsWith("{"));
  assert(line !== undefined, `it told nothing: ${all}`);
  return { code, out: JSON.parse(line), all };
}

/** The same attempts by a process that gave up nothing. */
async function control(bridge: TestBridge): Promise<Tried> {
  const { code, out } = await tried(spawn(bridge, ["control"]));
  assertEquals(code, 0);
  return out;
}

/** Names of attempts that did not come to `want`, with what they came to. */
function otherThan(want: string, out: Tried, which: (name: string) => boolean): Tried {
  const names = Object.keys(out).filter(which);
  assert(names.length > 0, "nothing was tried");
  return Object.fromEntries(
    names.filter((name) => out[name] !== want).map((name) => [name, out[name] ?? ""]),
  );
}

/** What nobody may do. */
const POWERS = [
  "net",
  "unix",
  "env",
  "sys",
  "ffi",
  "kill others",
  "read anything",
  "write anything",
];

function noPowers(out: Tried): void {
  assertEquals(POWERS.map((power) => [power, out[power]]), POWERS.map((p) => [p, "NotCapable"]));
}

function runs(bridge: TestBridge): number {
  const path = bridge.path("ran");
  return there(path) ? Deno.readTextFileSync(path).split("\n").length - 1 : 0;
}

/** Each spelling of each granted program, and some that were never granted. */
function programs(bridge: TestBridge): { granted: string[]; never: string[] } {
  return {
    granted: [
      "/usr/bin/true",
      "/usr/bin/../bin/true",
      "/usr/bin/id",
      "./base/used",
      "base/used",
      bridge.path("base/used"),
      "./base/spare",
      bridge.path("base/spare"),
    ],
    never: ["/bin/sh", "/usr/bin/env", Deno.execPath(), "./base/text"],
  };
}

for (const how of ["serve", "once", "serve without a trusted policy"]) {
  Deno.test(`the daemon cannot start any granted program: ${how}`, async () => {
    const trust = how !== "serve without a trusted policy";
    await using bridge = await makeRoot(trust);
    const { granted, never } = programs(bridge);
    const keeps = [killPath(there)];
    const who = how === "once" ? "once" : "serve";
    setTries(bridge, { who, run: [...granted, ...never, ...keeps] });
    const starts = (list: string[]) => (name: string) =>
      list.some((program) => name === `run ${program}` || name === `spawn ${program}`);
    const free = await control(bridge);
    assertEquals(otherThan("ok", free, starts(granted)), {}, "without the start they can");
    assertEquals(otherThan("NotCapable", free, starts(never)), {}, "the wrapper grants no more");
    const before = await until("the control's runs", () => runs(bridge) === 10 ? 10 : null);

    bridge.submit("r1", { verb: trust ? "used" : "bridge.ping" });
    const child = spawn(bridge, how === "once" ? ["once"] : ["serve", "--poll-ms", "500"]);
    const over = tried(child);
    try {
      assertEquals((await bridge.final("r1", 30_000)).outcome, "succeeded");
    } finally {
      if (how !== "once") child.kill("SIGTERM");
    }
    const { code, out, all } = await over;
    assertEquals(code, 0, all);
    assertEquals(otherThan("NotCapable", out, starts(granted)), {});
    assertEquals(otherThan("NotCapable", out, starts(never)), {});
    assertEquals(otherThan("ok", out, starts(keeps)), {}, "it can still end a group");
    noPowers(out);
    // The request's own run, by a shim, is the only one.
    assertEquals(runs(bridge) - before, trust ? 1 : 0);
  });
}

Deno.test("the shim cannot reach spool, keys, ledger or policy text, nor start itself", async () => {
  await using bridge = await makeRoot(true);
  const forbidden = [
    "spool/main/queue",
    "spool/main/results",
    "spool/main/inbox",
    "work/main/claims",
    "work/main/staging",
    "work/main/quarantine",
    "keys",
    "state",
    "state/control",
    "state/audit",
  ];
  /** Readable, never writable. */
  const readable = ["base", "bin", "state/policies"];
  const writable = ["state/runs"];
  for (const dir of [...forbidden, ...readable, ...writable]) {
    Deno.mkdirSync(bridge.path(dir), { recursive: true });
    Deno.writeTextFileSync(bridge.path(dir, "secret"), "secret");
    for (const way of Object.keys(WRITE)) {
      Deno.writeTextFileSync(bridge.path(dir, `try-${way}`), "before", { mode: 0o600 });
    }
  }
  const secrets = [
    ...forbidden.map((dir) => `${dir}/secret`),
    "bridge.jsonc",
    "state/ledger.db",
    "./state/ledger.db",
    "state/runs/../ledger.db",
    "state/policies/../../keys/secret",
    bridge.path("state/ledger.db"),
    bridge.path("spool/main/queue/secret"),
  ];
  const open = [...readable, ...writable].map((dir) => `${dir}/secret`);
  const itself = [SELF, "bin/chb", bridge.path("bin/chb")];
  setTries(bridge, {
    who: "shim",
    run: [...itself, "/usr/bin/true", "./base/used", "/bin/sh"],
    read: [...secrets, ...open],
    list: [...forbidden, ".", "spool", "work", ...readable, ...writable],
    write: [...forbidden, ...readable, ...writable],
  });
  const ends = (list: readonly string[]) => (name: string) =>
    list.some((what) => name.endsWith(` ${what}`)) && !name.includes(" in ");
  const changes = (list: readonly string[]) => (name: string) =>
    list.some((dir) => name.endsWith(` in ${dir}`));

  const child = spawn(bridge, ["shim"], true);
  const { code, out, all } = await tried(child);
  assertEquals(code, 0, all);
  assertStringIncludes(all, `ready ${child.pid}\n`);
  assertEquals(otherThan("NotCapable", out, ends(secrets)), {});
  assertEquals(otherThan("NotCapable", out, ends([...forbidden, ".", "spool", "work"])), {});
  assertEquals(otherThan("NotCapable", out, changes([...forbidden, ...readable])), {});
  assertEquals(otherThan("NotCapable", out, ends([...itself, "/bin/sh"])), {});
  assertEquals(otherThan("ok", out, ends([...open, ...readable, ...writable])), {});
  assertEquals(otherThan("ok", out, changes(writable)), {});
  assertEquals(otherThan("ok", out, ends(["/usr/bin/true", "./base/used"])), {});
  noPowers(out);
  for (const dir of [...forbidden, ...readable]) {
    assertEquals(
      [...Deno.readDirSync(bridge.path(dir))].map((e) => e.name).filter((n) => n.startsWith("try-"))
        .sort(),
      Object.keys(WRITE).map((way) => `try-${way}`).sort(),
    );
    for (const way of Object.keys(WRITE)) {
      const path = bridge.path(dir, `try-${way}`);
      assertEquals(Deno.readTextFileSync(path), "before", path);
      assertEquals((Deno.statSync(path).mode ?? 0) & 0o777, 0o600, path);
    }
  }

  // The same by a process that gave up nothing; last, since it can.
  for (const way of Object.keys(WRITE)) {
    Deno.writeTextFileSync(bridge.path("state/runs", `try-${way}`), "before", { mode: 0o600 });
    for (const left of ["d", "new", "moved", "link"]) {
      const path = bridge.path("state/runs", `try-${way}.${left}`);
      if (there(path)) Deno.removeSync(path);
    }
  }
  setTries(bridge, {
    run: ["/usr/bin/true"],
    read: secrets,
    list: [...forbidden, "spool", "work"],
    write: [...forbidden, ...readable, ...writable],
  });
  const granted = forbidden.filter((dir) => dir !== "keys");
  const free = await control(bridge);
  assertEquals(otherThan("ok", free, ends(secrets)), {}, "without the start it can read them");
  assertEquals(otherThan("ok", free, ends([...forbidden, "spool", "work"])), {});
  assertEquals(otherThan("ok", free, changes([...granted, ...writable, "state/policies"])), {});
  assertEquals(otherThan("NotCapable", free, changes(["base", "bin", "keys"])), {});
});

Deno.test("every granted program is named to the program, by wrapper and by executable", async () => {
  await using bridge = await TestBridge.make({ programs: SPARE, trust: false });
  const facts = wrapperFacts(Deno.readTextFileSync(bridge.path("bin/chb")));
  assert(facts !== undefined);
  const flags = runFlags(facts);
  const granted = (words: readonly string[]) =>
    words.find((word) => word.startsWith("--allow-run="))?.slice("--allow-run=".length).split(",")
      .filter((program) => program !== SELF && program !== killPath(there)).sort();
  const last = flags.at(-1);
  assertEquals(granted(flags), ["./base/spare", "/usr/bin/id", "/usr/bin/true"]);
  assertEquals(last, `--programs=${granted(flags)?.join(",")}`);
  const compiled = compileArgs("/stage", "fallback", flags, facts.programs, "/out");
  assertEquals(compiled.slice(-2), [join("/stage", "main.ts"), last]);
});
