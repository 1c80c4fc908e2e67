/**
 * `chb doctor`: each finding is caused, seen, mended with the printed command as it stands, and not
 * seen any more. Several that have nothing to do with each other are caused in one root, since every
 * look is a process of its own.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { examMounts } from "../src/human/exam_mounts.ts";
import { examClock } from "../src/human/exam_service.ts";
import { examSpace } from "../src/human/exam_space.ts";
import { examUnit } from "../src/human/exam_unit.ts";
import type { UnitFacts } from "../src/human/unit_facts.ts";
import { unitFiles } from "../src/human/unit_text.ts";
import type { Ledger } from "../src/ledger/ledger.ts";
import { checkProgram } from "../src/spool/check_program.ts";
import type { Finding } from "../src/spool/types.ts";
import { TestBridge, until, verb } from "./helpers/bridge.ts";
import { sh } from "./helpers/outside.ts";
import { answer } from "./helpers/terminal.ts";
import { unitFacts } from "./helpers/unit_facts.ts";

interface Report {
  readonly ok: boolean;
  readonly findings: readonly Finding[];
  readonly not_checked: readonly { check: string; why: string; failed: boolean }[];
}

/** What doctor says; every test root runs from source, which is an error that all have. */
async function examine(
  bridge: TestBridge,
  stdin = "",
  ...args: string[]
): Promise<Report & { code: number; seen: string[] }> {
  const { code, out, err } = await bridge.chbWith(stdin, "doctor", "--json", ...args);
  assertEquals(err, "");
  const report: Report = JSON.parse(out);
  const findings = report.findings.filter(({ check }) => check !== "source");
  assertEquals(findings.length, report.findings.length - 1, "the source is told of, once");
  assertEquals(report.not_checked.filter(({ failed }) => failed), []);
  return {
    ...report,
    findings,
    code,
    seen: findings.map(({ level, check, path }) => `${level} ${check} ${path}`).sort(),
  };
}

/** The user who runs the tests does without it, or is root. */
const SUDO = 'sudo() { "$@"; }\n';

/** Runs the mends as they stand, each once. */
async function mend(bridge: TestBridge, findings: readonly Finding[]): Promise<void> {
  for (const command of new Set(findings.map((finding) => finding.mend))) {
    if (command === "./bin/chb trust") {
      const { code, said } = await answer(command, bridge.root, "yes");
      assertEquals(code, 0, said);
    } else if (command !== "") await sh(SUDO + command, bridge.root);
  }
}

const POLICY = {
  agents: { main: { verbs: ["script"], scope: "mutating" } },
  verbs: { script: verb(["base/s.sh"], { requires: ["base/s.sh"] }) },
};

/** Entries that cannot be addressed, as far as the runtime lists them: an older one leaves them out. */
const STUCK = (([major = 0, minor = 0]) => major > 2 || minor >= 8 ? 1 : 0)(
  Deno.version.deno.split(".").map(Number),
);

Deno.test("doctor finds and mends what changed around a running daemon", async () => {
  await using bridge = await TestBridge.start({
    policy: POLICY,
    scripts: { "s.sh": "#!/bin/sh\n" },
    programs: ["/usr/bin/date"],
  });
  const surplus = "note surplus-grant bin/chb";
  assertMatch((await bridge.chb("doctor")).out, /^\d errors?, 0 warnings, 1 note, 3 not checked$/m);
  const well = await examine(bridge);
  assertEquals(well.seen, [surplus]);
  assertEquals(well.not_checked.map(({ check }) => check), [
    "unit",
    "mounts",
    "root and what is above it",
  ]);

  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), "\n", { append: true });
  Deno.writeTextFileSync(bridge.path("base/s.sh"), "exit 0\n", { append: true });
  Deno.chmodSync(bridge.path("bin/chb"), 0o755);
  Deno.writeTextFileSync(bridge.path("bin/chb"), "# changed\n", { append: true });
  Deno.chmodSync(bridge.path("base/s.sh"), 0o777);
  Deno.writeTextFileSync(bridge.path("state/KILL.main"), "a reason\n");
  Deno.writeTextFileSync(bridge.path("keys/k"), "x", { mode: 0o644 });
  Deno.chmodSync(bridge.path("keys/k"), 0o644);
  await sh("mkdir \"$(printf 'spool/main/queue/\\377')\"", bridge.root);
  await until(
    "the stuck entry in the status",
    () => (bridge.status()?.["stuck"] as { count: number } | undefined)?.count === STUCK,
    60_000,
  );
  const broken = await examine(bridge);
  assertEquals(broken.seen, [
    "error base-changed base/s.sh",
    "error bin-changed bin/chb",
    "error program-writable base/s.sh",
    "error wrong-mode base/s.sh",
    "error wrong-mode keys/k",
    surplus,
    "warning edited bridge.jsonc",
    "warning killed state/KILL.main",
    ...(STUCK === 1 ? ["warning stuck spool/main"] : []),
  ]);
  assertEquals(broken.code, 1);
  assertMatch(
    broken.findings.find(({ check }) => check === "killed")?.message ?? "",
    /of this agent .*a reason$/,
  );
  await mend(bridge, broken.findings);
  await until(
    "a status without the entry",
    () => (bridge.status()?.["stuck"] as { count: number } | undefined)?.count === 0,
    60_000,
  );
  assertEquals((await examine(bridge)).seen, [surplus]);

  // A daemon that says nothing, and a directory that was replaced under it.
  const status = bridge.path("spool/main/inbox/status.json");
  Deno.kill(bridge.pid, "SIGSTOP");
  try {
    const old = JSON.parse(Deno.readTextFileSync(status));
    Deno.writeTextFileSync(
      status,
      JSON.stringify({ ...old, at: "2020-01-01T00:00:00.000Z", state: "degraded", why: "full" }),
    );
    Deno.renameSync(bridge.path("spool/main/results"), bridge.path("spool/main/old"));
    Deno.mkdirSync(bridge.path("spool/main/results"), { mode: 0o755 });
    const silent = await examine(bridge);
    assertEquals(silent.seen, [
      "error degraded spool/main",
      "error replaced spool/main",
      "error silent spool/main/inbox/status.json",
      surplus,
    ]);
    assertEquals(
      silent.findings.find(({ check }) => check === "silent")?.mend,
      `kill -CONT ${bridge.pid}`,
    );
    assertMatch((await bridge.chb("status")).out, /^serving: .*\nbut it has told nothing for 15 s/);
    Deno.removeSync(bridge.path("spool/main/results"));
    Deno.renameSync(bridge.path("spool/main/old"), bridge.path("spool/main/results"));
  } finally {
    Deno.kill(bridge.pid, "SIGCONT");
  }
  await until("a status of a daemon that goes on", () => bridge.status()?.["state"] === "serving");
  assertMatch((await bridge.chb("status")).out, /^serving: .*\npolicy: /);
});

Deno.test("doctor finds and mends what keeps a new root from serving", async () => {
  await using bridge = await TestBridge.make({
    policy: POLICY,
    scripts: { "s.sh": "#!/bin/sh\n" },
  });
  const ok = Deno.readTextFileSync(bridge.path("bridge.jsonc"));
  // As if nobody had ever trusted anything.
  for (const name of ["ledger.db", "ledger.db-wal", "ledger.db-shm"]) {
    await Deno.remove(bridge.path("state", name)).catch(() => {});
  }
  Deno.removeSync(bridge.path("state/audit"), { recursive: true });
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), "{");
  Deno.chmodSync(bridge.path("spool/main/queue"), 0o777);
  const broken = await examine(bridge);
  assertEquals(broken.seen, [
    "error policy bridge.jsonc",
    "error wrong-mode spool/main/queue",
    "warning not-serving state",
    "warning untrusted bridge.jsonc",
  ]);
  // What is wrong with a policy is told by the command that is named, and mended by a person.
  assertEquals(broken.findings.find(({ check }) => check === "policy")?.mend, "./bin/chb check");
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), ok);
  const serve = broken.findings.find(({ check }) => check === "not-serving")?.mend;
  assertEquals(serve, "./bin/chb serve");
  await mend(
    bridge,
    broken.findings.filter(({ check }) => check !== "policy" && check !== "not-serving"),
  );
  await bridge.serve();
  assertEquals((await examine(bridge)).seen, []);

  // A unit: printed by the mend as it stands, then held against root, executable and policy.
  const bad = await examine(bridge, "[Service]\nExecStart=/bin/sh\n", "--unit", "-");
  assert(bad.seen.includes("error unit Service.ExecStart"), bad.seen.join("\n"));
  await mend(bridge, bad.findings);
  const file = bad.findings[0]?.mend.split("> ")[1] ?? "";
  const unit = Deno.readTextFileSync(bridge.path(file));
  assertEquals((await examine(bridge, unit, "--unit", "-")).seen, []);

  // A container: the mend prints what it should have had.
  const inspected = (mounts: unknown) => JSON.stringify([{ Name: "/agent", Mounts: mounts }]);
  const none = await examine(bridge, inspected([]), "--mounts", "-");
  assertEquals(none.seen, ["warning mount-missing agent"]);
  const { out } = await bridge.chb(...(none.findings[0]?.mend ?? "").split(" ").slice(1), "--json");
  const given = JSON.parse(out).mounts.map(
    (m: { source: string; target: string; read_only: boolean }) => ({
      Type: "bind",
      Source: m.source,
      Destination: m.target,
      RW: !m.read_only,
    }),
  );
  assertEquals((await examine(bridge, inspected(given), "--mounts", "-")).seen, []);
  await bridge.stop();

  Deno.truncateSync(bridge.path("state/ledger.db"), 100);
  const { seen } = await examine(bridge);
  assert(seen.includes("error ledger state/ledger.db"), seen.join("\n"));
});

Deno.test("doctor finds an agent that is not served, a base/ too large to look at, a program that cannot be read", async () => {
  await using bridge = await TestBridge.start({
    policy: POLICY,
    scripts: { "s.sh": "#!/bin/sh\n" },
    agents: ["main", "late"],
  });
  assertEquals((await examine(bridge)).seen, []);
  // Trusted while its place in the spool cannot be made.
  const agents = { ...POLICY.agents, late: { verbs: ["script"] } };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify({ ...POLICY, agents }));
  Deno.symlinkSync("nowhere", bridge.path("spool/late"));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  await until("the policy", () => bridge.log.includes("agent-not-served"));
  await sh(
    "mkdir base/many && cd base/many && seq 10001 | xargs touch && cd .. && " +
      "mv s.sh ../outside.sh && ln -s s.sh s.sh",
    bridge.root,
  );
  const broken = await examine(bridge);
  assertEquals(broken.seen, [
    "error base-changed base/s.sh (ELOOP)",
    ...["inbox", "queue", "results"].map((name) => `error missing spool/late/${name}`),
    ...["claims", "quarantine", "staging"].map((name) => `error missing work/late/${name}`),
    "error program-unreadable base/s.sh",
    "error symlink base/s.sh",
    "error symlink spool/late",
    "error too-many base",
    "warning not-served spool/late",
  ]);
  const of = (wanted: string) => broken.findings.find(({ check }) => check === wanted);
  assertEquals(of("program-unreadable")?.mend, "");
  assertMatch(
    of("program-unreadable")?.message ?? "",
    /lead in a circle, .* put the program itself/,
  );

  // A start is refused with the same command.
  await bridge.stop();
  const refused = await bridge.chb("serve");
  assertEquals(refused.code, 78);
  assertStringIncludes(refused.err, `mend="${of("too-many")?.mend}"`);
  assertMatch(of("too-many")?.mend ?? "", /^mkdir -p base\.old && mv -- base\/many /);

  // What only a person can decide, and then the commands as they stand.
  await sh("mv -f outside.sh base/s.sh", bridge.root);
  await mend(
    bridge,
    broken.findings.filter(({ check, path }) =>
      check === "too-many" || /^(spool|work)\/late/.test(path)
    ),
  );
  assertEquals([...Deno.readDirSync(bridge.path("base.old/many"))].length, 10_001);
  await bridge.serve();
  assertEquals((await examine(bridge)).seen, []);

  // A plain file in the place of an agent that the policy names.
  const place = bridge.path("spool/late");
  Deno.renameSync(place, `${bridge.outside}/late`);
  Deno.writeTextFileSync(place, "");
  const filed = await examine(bridge);
  Deno.removeSync(place);
  Deno.renameSync(`${bridge.outside}/late`, place);
  const seen = ["error wrong-type spool/late", "warning not-served spool/late"];
  assertEquals(filed.seen.filter((one) => / spool\/late$/.test(one)), seen);
});

const ordinary = Deno.uid() !== 0;

Deno.test({
  name: "doctor finds and mends a program that may not be read, and a directory above it" +
    (ordinary ? "" : " # SKIP root may read everything"),
  ignore: !ordinary,
  async fn() {
    await using bridge = await TestBridge.start({
      policy: { ...POLICY, verbs: { script: verb(["base/sub/s.sh"]) } },
      scripts: {},
      trust: false,
    });
    Deno.mkdirSync(bridge.path("base/sub"));
    Deno.writeTextFileSync(bridge.path("base/sub/s.sh"), "#!/bin/sh\n", { mode: 0o755 });
    assertEquals((await bridge.chb("trust", "--yes")).code, 0);
    await bridge.stop();
    await bridge.serve();
    assertEquals((await examine(bridge)).seen, []);
    for (const path of ["base/sub/s.sh", "base/sub"]) {
      Deno.chmodSync(bridge.path(path), 0);
      const { findings } = await examine(bridge);
      const found = findings.filter(({ check }) => check === "program-unreadable");
      assertEquals(found.map(({ path, mend }) => [path, mend]), [
        ["base/sub/s.sh", `chmod u+${path === "base/sub" ? "rx" : "r"} -- ${path}`],
      ]);
      await mend(bridge, found);
      if (path === "base/sub/s.sh") Deno.chmodSync(bridge.path(path), 0o755);
      assertEquals((await examine(bridge)).seen, []);
    }

    // As another user would meet it who serves there.
    const own = bridge.path("base/sub/s.sh");
    for (const path of [own, bridge.path("base/sub")]) {
      Deno.chmodSync(path, 0);
      const [found] = checkProgram(own, 4242);
      const how = path === own ? "r" : "rx";
      assertEquals([found?.check, found?.mend], [
        "program-unreadable",
        `sudo chmod a+${how} -- ${path}`,
      ]);
      await sh(SUDO + found?.mend, bridge.root);
      assertEquals(checkProgram(own, 4242).filter(({ check }) => check === found?.check), []);
    }
  },
});

/** Mends of what keeps `state/` from taking a file, and how it comes to that. */
const UNWRITABLE: readonly (readonly [code: string, cause: string, mend: string])[] = [
  [
    "EROFS",
    "mount --bind state state && mount -o remount,bind,ro state",
    'sudo mount -o remount,rw -- "$(df --output=target -- state | tail -n 1)"',
  ],
  ["EPERM", "chattr +i state", "sudo chattr -i -- state"],
];

for (const [code, cause, mend] of UNWRITABLE) {
  const why = ordinary ? "it takes root" : await cannot(cause);
  Deno.test({
    name: `doctor finds and mends a state/ that takes no file (${code})` +
      (why === null ? "" : ` # SKIP ${why}`),
    ignore: why !== null,
    async fn() {
      await using bridge = await TestBridge.make({
        policy: POLICY,
        scripts: { "s.sh": "#!/bin/sh\n" },
      });
      const mended = ". ./mend >/dev/null; ./bin/chb doctor --json";
      Deno.writeTextFileSync(bridge.path("mend"), `${SUDO}${mend}\n`);
      const { stdout } = await new Deno.Command("unshare", {
        args: ["--mount", "/bin/sh", "-c", `${cause} && ./bin/chb doctor --json; ${mended}`],
        cwd: bridge.root,
        stdin: "null",
        stderr: "null",
      }).output();
      const [before, after] = new TextDecoder().decode(stdout).split("\n").map((line) =>
        line === ""
          ? []
          : (JSON.parse(line) as Report).findings.filter(({ check }) => check === "not-writable")
      );
      assertEquals(before?.map(({ level, path, mend }) => [level, path, mend]), [
        ["error", "state", mend],
      ]);
      assertStringIncludes(before?.[0]?.message ?? "", `state takes no new file (${code}): `);
      assertEquals(after, []);
    },
  });
}

/** Why a cause cannot be made here, or null: tried in a directory of its own. */
async function cannot(cause: string): Promise<string | null> {
  const directory = Deno.makeTempDirSync({ prefix: "chb-cannot-" });
  try {
    const { success } = await new Deno.Command("unshare", {
      args: [
        ...["--mount", "/bin/sh", "-c"],
        `mkdir state && ${cause} && ! touch state/x; r=$?; chattr -i state; exit $r`,
      ],
      cwd: directory,
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).output();
    return success ? null : `not possible here: ${cause}`;
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
}

Deno.test("doctor outside of a root, and with two texts for one input, does nothing", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  for (const args of [["--unit", "x"], ["--unit", "-", "--mounts", "-"]]) {
    assertEquals((await bridge.chb("doctor", ...args)).code, 64);
  }
  // What is no description of containers was not checked, and so is not well.
  const { code, out } = await bridge.chbWith("no json", "doctor", "--mounts", "-");
  assertEquals(code, 1);
  assertStringIncludes(
    out,
    "not checked: mounts: standard input is not what docker inspect prints",
  );
  assertMatch(out, /^error: bin\/chb: It runs from source/m);
});

// -------------------------------------------------------------------------------- unit and mounts

const FACTS = unitFacts();

/** What is done to a unit, and the one finding that it makes. */
const UNITS: readonly [string, (text: string) => string, string | null, Partial<UnitFacts>?][] = [
  ["nothing", (text) => text, null],
  ["comments and blank lines", (text) => text.replace(/^#.*$/gm, "\n; x"), null],
  ["another executable", (text) => text, "error Service.ExecStartPre", {
    bin_sha256: "f".repeat(64),
  }],
  ["another user", (text) => text.replace("User=1000", "User=0"), "error Service.User"],
  ["no user", (text) => text.replace("User=1000\n", ""), "error Service.User"],
  [
    "a program that is killed with its daemon",
    (text) => text.replace("KillMode=process", "KillMode=mixed"),
    "error Service.KillMode",
  ],
  [
    "a missing wall",
    (text) => text.replace("PrivateNetwork=yes\n", ""),
    "warning Service.PrivateNetwork",
  ],
  [
    "a widened wall",
    (text) => text.replace("AF_UNIX\n", "AF_UNIX AF_INET\n"),
    "warning Service.RestrictAddressFamilies",
  ],
  [
    "a need of the policy that came later",
    (text) => text,
    "error Service.ReadWritePaths",
    { needs: [{ need: "write:/srv/x", verbs: ["v"] }] },
  ],
  ["an addition", (text) => text.replace("[Service]", "[Service]\nNice=5"), "note Service.Nice"],
  [
    "a condition that never ends",
    (text) =>
      `${text}\n[Path]\nDirectoryNotEmpty=/r/spool/main/queue\nPathChanged=/r/spool/main/queue\n`,
    "error Path.DirectoryNotEmpty",
  ],
  ["another text", () => "hello", "error --unit"],
];

for (const [what, change, expected, now] of UNITS) {
  Deno.test(`examUnit() of a unit with ${what}`, () => {
    const once = /\[Path\]/.test(change(""));
    const options = { profile: "strict", user: false, once } as const;
    const [file] = unitFiles(FACTS, options);
    const found = examUnit(change(file?.text ?? ""), { ...FACTS, ...now });
    assertEquals(
      found.map(({ level, path }) => `${level} ${path}`),
      expected === null ? [] : [expected],
    );
  });
}

Deno.test("examUnit() knows every kind of unit that is printed", () => {
  for (const profile of ["strict", "containers"] as const) {
    for (const user of [false, true]) {
      for (const once of [false, true]) {
        for (const { name, text } of unitFiles(FACTS, { profile, user, once })) {
          assertEquals(examUnit(text, FACTS), [], `${name} ${profile} ${user} ${once}`);
        }
      }
    }
  }
});

const bind = (Source: string, RW = false, Destination = "/x") => ({
  Type: "bind",
  Source,
  Destination,
  RW,
});
const GOOD = [
  bind("/r/spool/main/queue", true),
  bind("/r/spool/main/results"),
  bind("/r/spool/main/inbox"),
];

/** A container, and what is wrong with it. */
const CONTAINERS: readonly [string, Record<string, unknown>, readonly string[]][] = [
  ["the three directories", { Mounts: GOOD }, []],
  ["a workspace and a volume", {
    Mounts: [
      ...GOOD,
      bind("/srv/work", true),
      { Type: "volume", Source: "/var/lib/docker/volumes/x/_data", RW: true },
    ],
  }, []],
  ["nothing of it", { Mounts: [bind("/srv/work", true)] }, ["warning mount-missing"]],
  ["no results", { Mounts: GOOD.filter((_, i) => i !== 1) }, ["error mount-missing"]],
  ["a read-only queue", {
    Mounts: [bind("/r/spool/main/queue"), ...GOOD.slice(1)],
  }, ["error mount-mode"]],
  ["writable results", {
    Mounts: [...GOOD.filter((_, i) => i !== 1), bind("/r/spool/main/results", true)],
  }, ["error mount-mode"]],
  ["one mount of all", { Mounts: [bind("/r/spool/main", true)] }, ["error mount-single"]],
  ["one mount of all, as accepted", { Mounts: [bind("/r/spool/solo", true)] }, []],
  ["the state", { Mounts: [...GOOD, bind("/r/state")] }, ["error mount-host"]],
  ["the whole spool", { Mounts: [...GOOD, bind("/r/spool", true)] }, ["error mount-host"]],
  ["what the root lies in", { Mounts: [...GOOD, bind("/", false)] }, ["error mount-host"]],
  ["the engine's socket", {
    Mounts: [...GOOD, bind("/var/run/docker.sock", true)],
  }, ["error mount-host"]],
  ["part of a queue", { Mounts: [...GOOD, bind("/r/spool/main/queue/x", true)] }, [
    "error mount-other",
  ]],
  ["another agent's directory", { Mounts: [...GOOD, bind("/r/spool/solo", true)] }, [
    "error mount-agents",
  ]],
  ["every privilege", { Mounts: GOOD, HostConfig: { Privileged: true } }, ["error mount-powers"]],
  ["the host's processes", { Mounts: GOOD, HostConfig: { PidMode: "host" } }, [
    "error mount-powers",
  ]],
  ["a capability too many", { Mounts: GOOD, HostConfig: { CapAdd: ["CAP_SYS_ADMIN"] } }, [
    "error mount-powers",
  ]],
];

for (const [what, inspected, expected] of CONTAINERS) {
  Deno.test(`examMounts() of a container with ${what}`, () => {
    const facts = { root: "/r", agents: ["main", "solo"], single: ["solo"] };
    const found = examMounts(JSON.stringify([{ Name: "/c", ...inspected }]), facts);
    assertEquals(found.map(({ level, check }) => `${level} ${check}`), expected);
  });
}

// --------------------------------------------------------------------------------- clock and space

Deno.test("examClock() tells of a clock that went back", () => {
  const at = "2026-01-01T00:00:00.000Z";
  const ledger = {
    head: () => ({ seq: 7, hash: "" }),
    records: (from: number) => [{ seq: from, line: JSON.stringify({ seq: from, at }) }],
  } as unknown as Ledger;
  assertEquals(examClock(ledger, Date.parse(at)), []);
  assertEquals(examClock(ledger, Date.parse(at) - 30_000), []);
  const [found] = examClock(ledger, Date.parse(at) - 3_600_000);
  assertEquals(found?.check, "clock");
  assertStringIncludes(found?.message ?? "", "3600 s behind");
});

/** A small file system of its own, which only root can have; or why not. */
function noMount(): string | null {
  if (Deno.uid() !== 0) return "only root can mount";
  const { success } = new Deno.Command("unshare", {
    args: ["-m", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"],
    stderr: "null",
  }).outputSync();
  return success ? null : "nothing can be mounted here";
}
const NO_MOUNT = noMount();

Deno.test({
  name: "examSpace() tells of a directory without room, and leaves nothing there" +
    (NO_MOUNT === null ? "" : ` # SKIP ${NO_MOUNT}`),
  ignore: NO_MOUNT !== null,
  fn() {
    const directory = Deno.makeTempDirSync({ prefix: "chb-space-" });
    try {
      assertEquals(examSpace(directory), []);
      const mount = new Deno.Command("mount", {
        args: ["-t", "tmpfs", "-o", "size=1m", "none", directory],
      }).outputSync();
      assert(mount.success);
      try {
        assertEquals(examSpace(directory).map(({ check }) => check), ["no-space"]);
        assertEquals([...Deno.readDirSync(directory)], []);
      } finally {
        new Deno.Command("umount", { args: [directory] }).outputSync();
      }
    } finally {
      Deno.removeSync(directory, { recursive: true });
    }
  },
});

Deno.test("doctor tells of a daemon that is another than bin/chb, and of one that polls", async () => {
  const both = ["/usr/bin/true", "/usr/bin/date"];
  const verbs = { a: verb(["/usr/bin/true"]) };
  await using bridge = await TestBridge.start({ verbs, serve: ["--no-events"] });
  assertEquals((await examine(bridge)).seen, ["note polling spool/main"]);

  // The executable was made for a policy with one more program, and trusted; the daemon is older.
  const path = bridge.path("bin/chb");
  const text = Deno.readTextFileSync(path);
  Deno.chmodSync(path, 0o755);
  Deno.writeTextFileSync(path, text.replaceAll("/usr/bin/true", both.join(",")));
  Deno.chmodSync(path, 0o555);
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  Object.assign(policy.verbs, { b: verb(["/usr/bin/date"]) });
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  const facts = JSON.parse(Deno.readTextFileSync(bridge.path("state/daemon.json")));
  const older = JSON.stringify({ ...facts, version: "0.0.0" });
  Deno.writeTextFileSync(bridge.path("state/daemon.json"), older);
  assertEquals((await examine(bridge)).seen, [
    "note polling spool/main",
    "warning other-version state/daemon.json",
    "warning restart-due /usr/bin/date",
  ]);
  await bridge.stop();
  await bridge.serve();
  assertEquals((await examine(bridge)).seen, ["note polling spool/main"]);
});
