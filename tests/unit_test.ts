/**
 * `chb unit` and `chb permissions`: the units verify, rate as they must, say what they are for, and
 * hold together with what the program grants itself.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { confinement } from "../src/human/unit_directives.ts";
import { permissionSets } from "../src/human/permission_sets.ts";
import { type UnitFacts, unitName } from "../src/human/unit_facts.ts";
import { unitFiles } from "../src/human/unit_text.ts";
import { grants } from "../src/permissions.ts";
import { TestBridge, verb } from "./helpers/bridge.ts";
import { unitFacts } from "./helpers/unit_facts.ts";

const ROOT = Deno.uid() === 0;

/** Why units cannot be judged here, or null. */
function noAnalyzer(): string | null {
  try {
    new Deno.Command("systemd-analyze", { args: ["--version"] }).outputSync();
    return null;
  } catch {
    return "systemd-analyze is not here: install systemd";
  }
}
const NO_ANALYZER = noAnalyzer();

function analyzed(name: string, fn: () => Promise<void>): void {
  Deno.test({
    name: NO_ANALYZER === null ? name : `${name} # SKIP ${NO_ANALYZER}`,
    ignore: NO_ANALYZER !== null,
    fn,
  });
}

async function analyze(...args: string[]): Promise<{ code: number; said: string }> {
  // A user's manager has a directory of its own, which is not there for whoever is not logged in.
  const runtime = Deno.makeTempDirSync({ prefix: "chb-run-" });
  try {
    return await analyzeIn(runtime, args);
  } finally {
    Deno.removeSync(runtime, { recursive: true });
  }
}

async function analyzeIn(
  runtime: string,
  args: string[],
): Promise<{ code: number; said: string }> {
  const { code, stdout, stderr } = await new Deno.Command("systemd-analyze", {
    args,
    env: { SYSTEMD_LOG_LEVEL: "warning", XDG_RUNTIME_DIR: runtime },
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  return { code, said: text.decode(stdout) + text.decode(stderr) };
}

/** Facts with something of everything that only needs a path that exists. */
function facts(root: string, more: Partial<UnitFacts> = {}): UnitFacts {
  return unitFacts({ root, name: "chb-app", ...more });
}

/** A root of which units can be verified: what they start has to be there. */
async function withUnits(
  files: (root: string) => { name: string; text: string }[],
  judge: (paths: string[]) => Promise<void>,
): Promise<void> {
  const directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-unit-" }));
  try {
    const root = join(directory, "ro ot%n$x");
    Deno.mkdirSync(join(root, "bin"), { recursive: true });
    Deno.writeTextFileSync(join(root, "bin/chb"), "#!/bin/sh\n");
    Deno.chmodSync(join(root, "bin/chb"), 0o755);
    const paths = files(root).map(({ name, text }) => {
      Deno.writeTextFileSync(join(directory, name), text);
      return join(directory, name);
    });
    await judge(paths);
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
}

const ENGINE: Partial<UnitFacts> = {
  programs: ["/usr/bin/docker-compose"],
  engines: ["/usr/bin/docker-compose"],
};

/** What, profile, once, facts, highest rating. */
const RATED: readonly [string, "strict" | "containers", boolean, Partial<UnitFacts>, number][] = [
  ["strict", "strict", false, {}, 0.6],
  ["strict once, without --jitless", "strict", true, { jitless: false }, 0.6],
  ["containers once", "containers", true, ENGINE, 2.4],
  ["containers, in a home", "containers", false, { ...ENGINE, homes: ["/home/me"] }, 2.4],
];

for (const [what, profile, once, more, limit] of RATED) {
  analyzed(`a unit (${what}) verifies clean and rates at most ${limit}`, () =>
    withUnits(
      (root) => unitFiles(facts(root, more), { profile, user: false, once }),
      async (paths) => {
        assertEquals(await analyze("verify", "--man=no", ...paths), { code: 0, said: "" });
        const { said } = await analyze(
          "security",
          "--offline=yes",
          "--no-pager",
          "--json=off",
          paths[0] ?? "",
        );
        const rating = Number(/exposure level for .*: ([0-9.]+) /.exec(said)?.[1] ?? NaN);
        assert(rating <= limit, `${rating}\n${said}`);
      },
    ));
}

for (const profile of ["strict", "containers"] as const) {
  analyzed(
    `a ${profile} unit for a user verifies clean, and names what is left out`,
    () =>
      withUnits(
        (root) => unitFiles(facts(root), { profile, user: true, once: false }),
        async (paths) => {
          assertEquals(await analyze("verify", "--user", "--man=no", ...paths), {
            code: 0,
            said: "",
          });
          const text = Deno.readTextFileSync(paths[0] ?? "");
          assertMatch(text, /^# To serve while nobody is logged in: {2}loginctl enable-linger$/m);
          assertMatch(text, /^# {3}ProtectSystem ReadWritePaths/m);
          for (const directive of ["User", "ProtectSystem", "PrivateNetwork", "IPAddressDeny"]) {
            assert(!new RegExp(`^${directive}=`, "m").test(text), directive);
          }
          assertMatch(text, /^NoNewPrivileges=yes$/m);
        },
      ),
  );
}

Deno.test("no unit starts for as long as something lies in a directory", () => {
  for (const user of [false, true]) {
    const files = unitFiles(facts("/r"), { profile: "strict", user, once: true });
    assertEquals(files.map(({ name }) => name), [
      "chb-app.service",
      "chb-app.path",
      "chb-app.timer",
    ]);
    for (const { text } of files) {
      assert(!/DirectoryNotEmpty|PathExists/.test(text), text);
    }
    assertMatch(files[1]?.text ?? "", /^PathChanged=\/r\/spool\/main\/queue$/m);
    assertMatch(files[2]?.text ?? "", /^OnUnitInactiveSec=/m);
  }
});

Deno.test("every permission stands in the unit with its reason and its counterpart", () => {
  const [file] = unitFiles(facts("/r"), { profile: "strict", user: false, once: false });
  const { read, write, run } = grants(["/usr/bin/true"], "/usr/bin/kill");
  const lines = (file?.text ?? "").split("\n");
  for (const [kind, paths] of Object.entries({ read, write, run })) {
    for (const path of paths) {
      const line = lines.find((l) => l.startsWith(`#   ${kind.padEnd(5)} ${path}: `)) ?? "";
      assertMatch(line, /: .+ \[[A-Z][A-Za-z]+\]$/, `${kind} ${path}`);
    }
  }
  for (
    const line of [
      "KillMode=process",
      "OOMPolicy=continue",
      "Restart=on-failure",
      "RestartPreventExitStatus=64 77 78",
      "StartLimitBurst=5",
      "WorkingDirectory=/r",
      "ExecStart=/r/bin/chb serve",
      "Environment=MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=65536 MALLOC_TRIM_THRESHOLD_=131072",
    ]
  ) {
    assert(lines.includes(line), line);
  }
});

function values(more: Partial<UnitFacts>, profile: "strict" | "containers" = "strict") {
  return (key: string) =>
    confinement(facts("/r", more), profile).filter((d) => d.key === key).map((d) => d.value);
}

Deno.test("the root is one writable mount, since requests move through it by rename", () => {
  assertEquals(values({})("ReadWritePaths"), ["/r"]);
});

const ROOM: readonly [string, Partial<UnitFacts>, string, (string | null)[]][] = [
  ["network", { needs: [{ need: "network", verbs: ["v"] }] }, "PrivateNetwork", [null]],
  [
    "network",
    { needs: [{ need: "network", verbs: ["v"] }] },
    "RestrictAddressFamilies",
    ["AF_UNIX AF_INET AF_INET6"],
  ],
  ["jit", { needs: [{ need: "jit", verbs: ["v"] }] }, "MemoryDenyWriteExecute", [null]],
  [
    "a place to write",
    { needs: [{ need: "write:/srv/x y", verbs: ["v"] }] },
    "ReadWritePaths",
    ["/r", '"/srv/x y"'],
  ],
  ["a script", { scripts: ["base/a.sh"] }, "NoExecPaths", [null]],
  ["an agent of another user", { otherUsers: ["main"] }, "PrivateUsers", [null]],
  ["a queue of a group", { groups: ["main"] }, "RestrictSUIDSGID", [null]],
  ["a root in a home", { root: "/home/me/b" }, "BindPaths", ["/home/me/b"]],
  [
    "a rootless engine",
    { programs: ["/usr/bin/podman"], engines: ["/usr/bin/podman"], uid: 1000 },
    "BindPaths",
    ["-/run/user/1000/podman"],
  ],
];

for (const [what, more, key, expected] of ROOM) {
  Deno.test(`a unit makes room for ${what}: ${key}, and says for whom`, () => {
    assertEquals(values(more, more.engines === undefined ? "strict" : "containers")(key), expected);
    assert(JSON.stringify(values({})(key)) !== JSON.stringify(expected));
    const [file] = unitFiles(facts("/r", more), { profile: "strict", user: false, once: false });
    if (expected[0] === null) {
      assertMatch(
        file?.text ?? "",
        new RegExp(`^# no ${key}=: .*(?:\\bv\\b|main|base/a\\.sh)`, "m"),
      );
    }
  });
}

Deno.test("unitName() is the root's name as far as units can hold it", () => {
  assertEquals(unitName("/home/me/.local/share/chb/app"), "chb-app");
  assertEquals(unitName("/srv/my bridge/"), "chb");
  assertEquals(unitName("/srv/my bridge"), "chb-my-bridge");
  assertEquals(unitName("/srv/chb"), "chb");
});

Deno.test("permissionSets() tells who holds what, and what a query of its own cannot see", () => {
  const { read, write, run } = grants(["/usr/bin/true", "/usr/bin/date"], "/bin/kill");
  const held = { read, write, run };
  const rows = permissionSets(
    {
      granted: ["/usr/bin/true", "/usr/bin/date"],
      programs: ["/usr/bin/true", "/usr/bin/id"],
      agents: ["main", "dev"],
    },
    ({ kind, path }) => held[kind].includes(path),
    ({ path }) => held.read.includes(path),
  );
  const row = (kind: string, path: string) => {
    const found = rows.find((one) => one.kind === kind && one.path === path);
    return found && [found.compiled, found.daemon, found.shim, found.needed];
  };
  assertEquals(row("run", "/usr/bin/true"), [true, false, true, true]);
  assertEquals(row("run", "/usr/bin/date"), [true, false, true, false]);
  assertEquals(row("run", "/usr/bin/id"), [false, false, false, true]);
  assertEquals(row("run", "/bin/kill"), [true, true, true, true]);
  assertEquals(row("run", "./bin/chb"), [true, true, false, true]);
  assertEquals(row("read", "./spool"), [true, true, false, true]);
  assertEquals(row("write", "./state/runs"), [true, true, true, true]);
  assertEquals(row("write", "./state"), [true, true, false, true]);
  assertEquals(row("read", "./state/KILL.main"), [true, true, true, true]);
  assertEquals(row("read", "./state/KILL.dev"), [false, false, false, true]);
});

Deno.test("chb permissions and chb unit, under the program's own permissions", async () => {
  await using bridge = await TestBridge.make({
    policy: {
      agents: { main: { verbs: ["true"] }, dev: { verbs: ["true"] } },
      verbs: { "true": verb(["/usr/bin/true"]) },
    },
    programs: ["/usr/bin/date"],
    trust: false,
  });
  const shown = await bridge.chb("permissions", "--json");
  assertEquals(shown.code, 1, shown.err);
  const said = JSON.parse(shown.out);
  assertEquals(said.policy.run, ["./bin/chb", "/usr/bin/kill", "/usr/bin/true"]);
  assert(said.compiled.run.includes("/usr/bin/date"));
  assert(!said.daemon.run.includes("/usr/bin/true"));
  assert(!said.shim.read.includes("./spool"));
  // The wrapper was written for one agent only, and `./state` covers the switch of the other.
  assert(!said.compiled.read.includes("./state/KILL.dev"));
  assertEquals(said.findings.map((f: { path: string }) => f.path), ["./state/KILL.dev"]);
  const table = await bridge.chb("permissions");
  assertMatch(table.out, /^run +\/usr\/bin\/date +yes +- +yes +-$/m);
  for (const line of table.out.split("\n")) assert(line.length <= 80, line);

  const one = JSON.stringify({
    agents: { main: { verbs: ["true"] } },
    verbs: { "true": verb(["/usr/bin/true"]) },
  });
  assertEquals((await bridge.chbWith(one, "permissions", "-")).code, 0);

  if (ROOT) new Deno.Command("chown", { args: ["1000", bridge.path("state")] }).outputSync();
  const unit = await bridge.chb("unit", "--name", "chb-x");
  assertEquals([unit.code, unit.err], [0, ""]);
  if (ROOT) new Deno.Command("chown", { args: ["0", bridge.path("state")] }).outputSync();
  assertMatch(unit.out, new RegExp(`^User=${ROOT ? 1000 : Deno.uid()}$`, "m"));
  assertStringIncludes(unit.out, "# bin/chb runs from source");
  // The check of the executable, run as it stands.
  const check = /^ExecStartPre=\+\/bin\/sh -c "(.*)"$/m.exec(unit.out)?.[1] ?? "false";
  const sh = () => new Deno.Command("/bin/sh", { args: ["-c", check] }).outputSync().code;
  assertEquals(sh(), 0);
  Deno.chmodSync(bridge.path("bin/chb"), 0o755);
  Deno.writeTextFileSync(bridge.path("bin/chb"), "#\n", { append: true });
  assertEquals(sh(), 1);

  for (const args of [["--profile", "x"], ["--part", "path"], ["--name", "a b"]]) {
    assertEquals((await bridge.chb("unit", ...args)).code, 64, args.join(" "));
  }
  const plist = await bridge.chb("unit", "--launchd");
  assertStringIncludes(plist.out, `<key>WorkingDirectory</key><string>${bridge.root}</string>`);
  assertStringIncludes(plist.out, "<key>AbandonProcessGroup</key><true/>");
});
