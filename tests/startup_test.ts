import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { mkdirSync } from "node:fs";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { attacked, Outside, sh } from "./helpers/outside.ts";

const ROOT = Deno.uid() === 0;
const STRANGER = 54_321;

/** What a start that is refused says about one thing. */
interface Told {
  readonly check: string;
  readonly path: string;
  readonly message: string;
  readonly mend: string | undefined;
}

/** One start: its findings, and its exit code, or null when it served and was ended. */
interface Start {
  readonly code: number | null;
  readonly told: readonly Told[];
  readonly log: string;
}

/** The value of `key=` in a log line, unquoted. */
function field(line: string, key: string): string | undefined {
  const match = new RegExp(` ${key}=(?:"((?:\\\\.|[^"\\\\])*)"|(\\S+))`).exec(line);
  return match?.[1]?.replaceAll('\\"', '"').replaceAll("\\\\", "\\") ?? match?.[2];
}

/** Starts the daemon and waits until it serves or has left. */
async function start(
  bridge: TestBridge,
  command = "./bin/chb",
  args: readonly string[] = [],
): Promise<Start> {
  const child = new Deno.Command(command, {
    args: [...args, "serve"],
    cwd: bridge.root,
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  let log = "";
  const reading = (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of child.stderr) log += decoder.decode(chunk, { stream: true });
  })();
  let over = false;
  child.status.then(() => over = true);
  let served = false;
  try {
    await until("an end or a ready line", () => over || log.includes("chb: ready"), 30_000);
    served = !over;
  } finally {
    if (!over) child.kill("SIGTERM");
  }
  const { code } = await child.status;
  await reading;
  const told = log.split("\n").filter((line) => line.includes(" refused-to-start ")).map((
    line,
  ) => ({
    check: field(line, "check") ?? "",
    path: field(line, "path") ?? "",
    message: field(line, "message") ?? "",
    mend: field(line, "mend"),
  }));
  return { code: served ? null : code, told, log };
}

/** Everything below the root that a refused start must leave alone. */
async function everything(bridge: TestBridge): Promise<string> {
  // To learn who it is, a start makes a file in `state` and removes it; and it opens its ledger.
  return (await sh("find . -printf '%p %y %m %U %s %l %T@\\n'", bridge.root)).split("\n")
    .map((line) =>
      /^\.\/state(\/ledger\.db)? /.test(line) ? line.slice(0, line.lastIndexOf(" ")) : line
    )
    .sort().join("\n");
}

/**
 * Runs the mends as a person would, in the order in which they were told. `sudo` is a program that
 * this test is able to be.
 */
async function mend(bridge: TestBridge, outside: Outside, told: readonly Told[]): Promise<void> {
  const sudo = outside.path("sudo");
  if (!there(sudo)) {
    Deno.writeTextFileSync(sudo, '#!/bin/sh\nexec "$@"\n');
    Deno.chmodSync(sudo, 0o755);
  }
  for (const { path, mend } of told) {
    assert(mend !== undefined && mend !== "", `no mend for ${path}`);
    await sh(`PATH="${outside.dir}:$PATH"; ${mend}`, bridge.root);
  }
}

/** What is broken in one root at once, and what the start must say of each. */
interface Break {
  readonly name: string;
  readonly path: string;
  readonly check: string;
  /** Part of the mend. */
  readonly mend: string;
  readonly act: (path: string) => void | Promise<void>;
}

/** A root with something in every room. */
async function makeRoot(outside: Outside): Promise<TestBridge> {
  const bridge = await TestBridge.make({
    ...attacked(outside),
    verbs: {},
    policy: {
      agents: { main: { verbs: ["true"] } },
      verbs: { "true": verb(["/usr/bin/true"]) },
    },
    scripts: { "file.sh": "#!/bin/sh\n" },
  });
  mkdirSync(bridge.path("base/sub"), { mode: 0o755 });
  Deno.writeTextFileSync(bridge.path("base/sub/compose.yaml"), "services: {}\n", { mode: 0o644 });
  Deno.writeTextFileSync(bridge.path("keys/laptop"), "secret\n", { mode: 0o600 });
  return bridge;
}

/**
 * Breaks everything at once, and asserts that one start refuses, tells each of the breaks with its
 * mend, tells nothing else, changes nothing, and that the mends, when run, let the next one serve.
 */
async function refusesAll(t: Deno.TestContext, breaks: readonly Break[]): Promise<void> {
  using outside = new Outside();
  await using bridge = await makeRoot(outside);
  for (const { path, act } of breaks) await act(bridge.path(path));
  const before = await everything(bridge);
  const first = await start(bridge);
  assertEquals(first.code, 78, first.log);
  for (const { name, path, check, mend } of breaks) {
    await t.step(name, () => {
      const mine = first.told.filter((f) => f.path === path && f.check === check);
      assertEquals(mine.length, 1, first.log);
      assertStringIncludes(mine[0]?.mend ?? "", mend);
      assertStringIncludes(mine[0]?.message ?? "", path);
    });
  }
  await t.step("nothing else is told, and nothing was changed", async () => {
    const expected = new Set(breaks.map((b) => `${b.check} ${b.path}`));
    const beside = first.told.filter((f) => !expected.has(`${f.check} ${f.path}`));
    // What lies below something broken will be missing once that is mended.
    for (const { check, path } of beside) {
      assertEquals(check, "missing", `${path}\n${first.log}`);
      assert(breaks.some((b) => path.startsWith(`${b.path}/`)), path);
    }
    assertEquals(await everything(bridge), before);
  });
  await t.step(
    "every mend, run in the root, makes its finding go away, and the next start serves",
    async () => {
      await mend(bridge, outside, first.told);
      const next = await start(bridge);
      assertEquals(next.told, [], next.log);
      assertEquals(next.code, null, next.log);
    },
  );
}

const DIRECTORIES = [
  "bin",
  "base",
  "base/sub",
  "keys",
  "state",
  "state/runs",
  "work",
  "work/main",
  "work/main/claims",
  "work/main/staging",
  "work/main/quarantine",
  "spool",
  "spool/main",
  "spool/main/queue",
  "spool/main/results",
  "spool/main/inbox",
] as const;
const FILES = [
  "bin/chb",
  "bridge.jsonc",
  "base/file.sh",
  "base/sub/compose.yaml",
  "keys/laptop",
] as const;

Deno.test("a start tells every wrong mode at once, each with the command that mends it", async (t) => {
  await refusesAll(
    t,
    [...DIRECTORIES, ...FILES].map((path) => ({
      name: `others may write ${path}`,
      path,
      check: "wrong-mode",
      mend: "chmod ",
      act: (full) => Deno.chmodSync(full, (Deno.statSync(full).mode ?? 0) & 0o777 | 0o022),
    })),
  );
});

Deno.test("a start tells every mode that is too open to readers, or not what a role needs", async (t) => {
  const modes: readonly (readonly [path: string, mode: number, mend: string])[] = [
    ["state", 0o750, "chmod 0700"],
    ["state/runs", 0o701, "chmod 0700"],
    ["work", 0o755, "chmod 0700"],
    ["work/main/claims", 0o711, "chmod 0700"],
    ["work/main/staging", 0o500, "chmod 0700"],
    ["keys", 0o755, "chmod 0700"],
    ["keys/laptop", 0o644, "chmod 0600"],
    ["spool/main/queue", 0o755, "chmod 0700"],
    ["spool/main/results", 0o700, "chmod 0755"],
    ["spool/main/inbox", 0o1755, "chmod 0755"],
  ];
  await refusesAll(
    t,
    modes.map(([path, mode, mend]) => ({
      name: `${path} of mode ${mode.toString(8)}`,
      path,
      check: "wrong-mode",
      mend,
      act: (full) => Deno.chmodSync(full, mode),
    })),
  );
});

/** Puts a symlink in the place of something, to the very thing, moved aside. */
function linkInstead(path: string): void {
  Deno.renameSync(path, `${path}.real`);
  Deno.symlinkSync(`${path}.real`, path);
}

/** Puts the other type in its place. */
function otherType(path: string): void {
  const { isDirectory } = Deno.lstatSync(path);
  Deno.renameSync(path, `${path}.real`);
  if (isDirectory) Deno.writeTextFileSync(path, "", { mode: 0o600 });
  else mkdirSync(path, { mode: 0o700 });
}

const LEAVES = [
  "work/main/claims",
  "work/main/staging",
  "work/main/quarantine",
  "spool/main/queue",
  "spool/main/results",
  "spool/main/inbox",
  "base/sub",
  "base/file.sh",
  "keys/laptop",
  "bridge.jsonc",
  "state/runs",
] as const;
const BRANCHES = ["work/main", "spool/main", "base", "keys"] as const;
const TRUNKS = ["work", "spool"] as const;

for (
  const [what, paths] of [["leaves", LEAVES], ["branches", BRANCHES], ["trunks", TRUNKS]] as const
) {
  Deno.test(`a start follows no symlink in the place of what it needs: ${what}`, async (t) => {
    await refusesAll(
      t,
      paths.map((path) => ({
        name: `${path} is a symlink`,
        path,
        check: "symlink",
        mend: `rm -- ${path}`,
        act: linkInstead,
      })),
    );
  });
  Deno.test(`a start tells what is of another type: ${what}`, async (t) => {
    // In these two rooms a file is as good as any other file.
    const fixed = paths.filter((path) => path !== "base/sub" && path !== "base/file.sh");
    await refusesAll(
      t,
      fixed.map((path) => ({
        name: `${path} is of another type`,
        path,
        check: "wrong-type",
        // Everything in `keys` is a key, so what is none leaves it.
        mend: `mv -- ${path} ${path.replace(/^keys\//, "")}.old`,
        act: otherType,
      })),
    );
  });
}

Deno.test("a start tells every role directory that is missing", async (t) => {
  const paths = LEAVES.filter((path) => path.includes("/main/"));
  await refusesAll(
    t,
    paths.map((path) => ({
      name: `${path} is missing`,
      path,
      check: "missing",
      mend: "mkdir -m ",
      act: (full) => Deno.removeSync(full, { recursive: true }),
    })),
  );
});

for (
  const [check, act] of [
    ["symlink", linkInstead],
    ["wrong-type", otherType],
  ] as const
) {
  Deno.test(`a start refuses a state directory that is none: ${check}`, async () => {
    using outside = new Outside();
    await using bridge = await makeRoot(outside);
    Deno.chmodSync(bridge.path("work"), 0o755);
    act(bridge.path("state"));
    const kept = await everything(bridge);
    const first = await start(bridge);
    assertEquals(first.code, 78);
    assertEquals(first.told.map((f) => [f.check, f.path]), [[check, "state"], [
      "wrong-mode",
      "work",
    ]]);
    assertEquals(await everything(bridge), kept);
    await mend(bridge, outside, first.told);
    // An empty state is that of a host which never trusted a policy.
    const next = await start(bridge);
    assertEquals([next.code, next.told], [null, []], next.log);
    assertMatch(next.log, /chb: ready .* UNTRUSTED\n/);
    assertMatch(next.log, /^WARN untrusted .* mend="\.\/bin\/chb trust"$/m);
  });
}

Deno.test("a start refuses a bin directory that is a symlink, although it runs through it", async () => {
  using outside = new Outside();
  await using bridge = await makeRoot(outside);
  linkInstead(bridge.path("bin"));
  const first = await start(bridge);
  assertEquals(first.code, 78);
  assertEquals(first.told.map((f) => [f.check, f.path]), [["symlink", "bin"], [
    "missing",
    "bin/chb",
  ]]);
  const [bin] = first.told;
  await mend(bridge, outside, bin === undefined ? [] : [bin]);
  Deno.renameSync(bridge.path("bin.real/chb"), bridge.path("bin/chb"));
  const next = await start(bridge);
  assertEquals([next.code, next.told], [null, []], next.log);
});

Deno.test("a start makes nothing through a symlink that has the name of an agent", async () => {
  using outside = new Outside();
  await using bridge = await makeRoot(outside);
  const elsewhere = outside.path("elsewhere");
  mkdirSync(elsewhere);
  for (const room of ["spool", "work"]) {
    Deno.removeSync(bridge.path(room, "main"), { recursive: true });
    Deno.symlinkSync(elsewhere, bridge.path(room, "main"));
  }
  const first = await start(bridge);
  assertEquals(first.code, 78);
  for (const path of ["spool/main", "work/main"]) {
    assert(first.told.some((f) => f.check === "symlink" && f.path === path), first.log);
  }
  assertEquals([...Deno.readDirSync(elsewhere)], []);
});

Deno.test({
  name: `a start tells every wrong owner at once${ROOT ? "" : " # SKIP needs root"}`,
  ignore: !ROOT,
  fn: async (t) => {
    await refusesAll(
      t,
      [...DIRECTORIES, ...FILES].map((path) => ({
        name: `${path} of another user`,
        path,
        check: "wrong-owner",
        mend: "sudo chown 0 -- ",
        act: (full) => Deno.chownSync(full, STRANGER, null),
      })),
    );
  },
});

Deno.test("a start that may not write its state says so, with all other findings", async () => {
  using outside = new Outside();
  await using bridge = await makeRoot(outside);
  Deno.chmodSync(bridge.path("state"), 0o500);
  Deno.chmodSync(bridge.path("work"), 0o755);
  const first = await start(bridge);
  assertEquals(first.code, 78);
  assertEquals(first.told.map((f) => [f.check, f.path]), [
    ["wrong-mode", "state"],
    ["wrong-mode", "work"],
  ]);
  await mend(bridge, outside, first.told);
  const next = await start(bridge);
  assertEquals([next.code, next.told], [null, []], next.log);
});

Deno.test("X8 X9 a start tells every program that nobody should run", async (t) => {
  using outside = new Outside();
  const names = ["gone", "empty", "text", "loose", "shut", "inside", "owned"];
  for (const name of names) {
    Deno.writeTextFileSync(outside.path(name), "#!/bin/sh\n");
    Deno.chmodSync(outside.path(name), 0o755);
  }
  const options = {
    agents: { main: { verbs: names } },
    verbs: Object.fromEntries(names.map((name) => [name, verb([outside.path(name)])])),
  };
  await using bridge = await TestBridge.make({ policy: options });
  assertEquals((await start(bridge)).code, null);

  Deno.removeSync(outside.path("gone"));
  Deno.truncateSync(outside.path("empty"));
  Deno.writeTextFileSync(outside.path("text"), "rm -rf x\n");
  Deno.chmodSync(outside.path("loose"), 0o777);
  Deno.chmodSync(outside.path("shut"), 0o644);
  Deno.removeSync(outside.path("inside"));
  Deno.writeTextFileSync(bridge.path("work/planted"), "#!/bin/sh\n");
  Deno.chmodSync(bridge.path("work/planted"), 0o755);
  Deno.symlinkSync(bridge.path("work/planted"), outside.path("inside"));
  if (ROOT) Deno.chownSync(outside.path("owned"), STRANGER, null);
  const expected: readonly (readonly [name: string, check: string, mend: string])[] = [
    ["gone", "program-missing", "command -v gone"],
    ["empty", "program-empty", "ls -l"],
    ["text", "program-format", "file -- "],
    ["loose", "program-writable", "chmod go-w -- "],
    ["shut", "program-mode", "chmod a+x -- "],
    ["inside", "program-in-write-grant", "base/"],
    ...(ROOT ? [["owned", "program-owner", "sudo chown root -- "] as const] : []),
  ];
  const first = await start(bridge);
  assertEquals(first.code, 78, first.log);
  for (const [name, check, mend] of expected) {
    await t.step(`${check} is told with its mend`, () => {
      const mine = first.told.filter((f) => f.path === outside.path(name));
      assertEquals(mine.map((f) => f.check), [check], first.log);
      assertStringIncludes(mine[0]?.mend ?? "", mend);
    });
  }
  assertEquals(first.told.length, expected.length);

  await t.step("they are told together with what is wrong in the root", async () => {
    Deno.chmodSync(bridge.path("work"), 0o755);
    const both = await start(bridge);
    assertEquals(both.code, 78);
    assertEquals(both.told.length, expected.length + 1, both.log);
    assert(both.told.some((f) => f.path === "work"));
    Deno.chmodSync(bridge.path("work"), 0o700);
  });
  await t.step("the mends that can mend do, and the rest is put right by hand", async () => {
    const mendable = ["program-writable", "program-mode", "program-owner"];
    await mend(bridge, outside, first.told.filter((f) => mendable.includes(f.check)));
    const next = await start(bridge);
    assertEquals(next.code, 78);
    assertEquals(next.told.map((f) => f.check).sort(), [
      "program-empty",
      "program-format",
      "program-in-write-grant",
      "program-missing",
    ]);
    for (const name of ["gone", "empty", "text", "inside"]) {
      if (there(outside.path(name))) Deno.removeSync(outside.path(name));
      Deno.writeTextFileSync(outside.path(name), "#!/bin/sh\n");
      Deno.chmodSync(outside.path(name), 0o755);
    }
    const last = await start(bridge);
    assertEquals([last.code, last.told], [null, []], last.log);
  });
});

Deno.test("P3 a start refuses a single mount for an agent that is the daemon's own user", async () => {
  await using bridge = await TestBridge.make({
    policy: {
      agents: { main: { verbs: ["true"], mount: "single", agent_uid: Deno.uid() } },
      verbs: { "true": verb(["/usr/bin/true"]) },
    },
  });
  const first = await start(bridge);
  assertEquals(first.code, 78, first.log);
  assertEquals(first.told.map((f) => [f.check, f.path]), [["single-mount", "spool/main"]]);
  assertStringIncludes(first.told[0]?.mend ?? "", "chb mounts");
});

Deno.test("X5 a start refuses permissions without bounds, all at once, and serves with its own", async (t) => {
  using outside = new Outside();
  await using bridge = await makeRoot(outside);
  const wrapper = Deno.readTextFileSync(bridge.path("bin/chb"));
  /** Starts the program with the wrapper's flags, changed. */
  const startWith = (change: (text: string) => string) => {
    const text = change(wrapper);
    assert(text !== wrapper);
    Deno.writeTextFileSync(outside.path("wrapper"), text);
    return start(bridge, "/bin/sh", [outside.path("wrapper")]);
  };
  /** Adds a flag. */
  const flag = (text: string) => (w: string) => w.replace("--no-prompt", `--no-prompt ${text}`);
  const before = await everything(bridge);

  await t.step("everything is allowed", async () => {
    const all = await startWith((w) =>
      w.replace(/--allow-(?:read|write|run)=\S+/g, "").replace("--no-prompt", "-A")
    );
    assertEquals(all.code, 78, all.log);
    assertEquals(all.told.map((f) => f.message.replace("This process may ", "")), [
      "run any program",
      "read any file",
      "write any file",
      "use the network",
      "load native code",
      "read the environment",
      "read system information",
    ]);
    for (const { check, path, mend } of all.told) {
      assertEquals([check, path], ["unbounded-permission", "bin/chb"]);
      assertStringIncludes(mend ?? "", "./bin/chb");
    }
  });
  const single: readonly (readonly [string, (w: string) => string, string])[] = [
    ["all programs", (w) => w.replace(/--allow-run=\S+/, "--allow-run"), "run any program"],
    ["all reads", (w) => w.replace(/--allow-read=\S+/, "--allow-read"), "read any file"],
    ["reads below /", (w) => w.replace("--allow-read=", "--allow-read=/,"), "read any file"],
    ["all writes", (w) => w.replace(/--allow-write=\S+/, "--allow-write"), "write any file"],
    ["writes below /", (w) => w.replace("--allow-write=", "--allow-write=/,"), "write any file"],
    ["the network", flag("--allow-net"), "use the network"],
    ["native code", flag("--allow-ffi"), "load native code"],
    ["the environment", flag("--allow-env"), "read the environment"],
    ["system information", flag("--allow-sys"), "read system information"],
    [
      "all reads but one",
      (w) => w.replace(/--allow-read=\S+/, "--allow-read --deny-read=/etc/shadow"),
      "read any file",
    ],
  ];
  for (const [what, change, message] of single) {
    await t.step(`${what} is allowed`, async () => {
      const one = await startWith(change);
      assertEquals(one.code, 78, one.log);
      assertEquals(one.told.map((f) => f.message), [`This process may ${message}`]);
    });
  }
  await t.step("it is told together with what is wrong in the root", async () => {
    Deno.chmodSync(bridge.path("work"), 0o755);
    const both = await startWith(flag("--allow-net"));
    assertEquals(both.told.map((f) => f.check), ["unbounded-permission", "wrong-mode"]);
    Deno.chmodSync(bridge.path("work"), 0o700);
  });
  await t.step("no start changed anything, and the wrapper as it was serves", async () => {
    assertEquals(await everything(bridge), before);
    assertEquals((await start(bridge)).code, null);
  });
});

Deno.test("S10 a second daemon refuses, changes nothing, and the first one serves on", async () => {
  using outside = new Outside();
  await using bridge = await TestBridge.start(attacked(outside));
  assertEquals((await bridge.ask("a", { verb: "count" })).code, 0);
  const records = bridge.audit().length;
  const second = await start(bridge);
  assertEquals(second.code, 78);
  const line = second.log.split("\n").find((l) => l.startsWith("ERROR locked ")) ?? "";
  assertEquals(field(line, "pid"), String(bridge.pid));
  assertEquals(field(line, "mend"), "./bin/chb status");
  assertEquals(bridge.audit().length, records);
  assertEquals((await bridge.ask("b", { verb: "count" })).code, 0);
  assertEquals(outside.runs(), ["a", "b"]);
  await bridge.stop();
  assertEquals((await start(bridge)).code, null);
});

Deno.test("a start in a directory that is no root says what to do there", async () => {
  using outside = new Outside();
  await using bridge = await makeRoot(outside);
  mkdirSync(outside.path("elsewhere"));
  const child = await new Deno.Command(bridge.path("bin/chb"), {
    args: ["serve"],
    cwd: outside.path("elsewhere"),
    stdin: "null",
  }).output();
  const log = new TextDecoder().decode(child.stderr);
  assertEquals(child.code, 78, log);
  assertStringIncludes(log, "no-root");
  assertStringIncludes(log, "the root that the init script made");
  assertEquals([...Deno.readDirSync(outside.path("elsewhere"))], []);
});

Deno.test("a start tells programs that it was not granted, absolute ones and scripts, with the command that grants them", async () => {
  await using bridge = await TestBridge.make({
    verbs: { id: verb(["/usr/bin/id"]), hi: verb(["base/hi"]), true: verb(["/usr/bin/true"]) },
    scripts: { hi: "#!/bin/sh\necho hi\n" },
  });
  const path = bridge.path("bin/chb");
  const all = Deno.readTextFileSync(path);
  Deno.removeSync(path);
  const less = all.replaceAll("/usr/bin/id,", "").replaceAll("./base/hi,", "");
  Deno.writeTextFileSync(path, less, { mode: 0o555 });
  const first = await start(bridge);
  assertEquals(first.code, 78, first.log);
  assertEquals(first.told.map((f) => [f.check, f.path]), [
    ["program-not-granted", "/usr/bin/id"],
    ["program-not-granted", "base/hi"],
  ]);
  for (const { mend } of first.told) {
    assertStringIncludes(mend ?? "", `chb --root ${bridge.root} check`);
  }
});
