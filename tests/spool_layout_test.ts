/**
 * The layout: made with exact modes, and held against what it must be before anything is served.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { join } from "@std/path/join";
import type { AgentPolicy } from "../src/policy/policy.ts";
import {
  agentPaths,
  checkLayout,
  checkProgram,
  daemonUid,
  ensureAgent,
  fileIdentity,
  lockState,
} from "../src/spool/layout.ts";
import { setDirectoryMode } from "../src/spool/make_directory.ts";
import { queueMode } from "../src/spool/queue_mode.ts";
import type { Finding } from "../src/spool/types.ts";
import {
  AGENT,
  canMount,
  IS_ROOT,
  modeOf,
  mountSmall,
  names,
  PATHS,
  run,
  sh,
  SpoolRoot,
  testWhen,
} from "./spool_fixture.ts";

function policy(more: Partial<AgentPolicy> = {}): AgentPolicy {
  return {
    name: AGENT,
    verbs: [],
    auth: "placement",
    signature_window_s: 300,
    scope: "observe",
    concurrency: null,
    mount: "role",
    agent_uid: null,
    agent_gid: null,
    uids: [],
    ...more,
  };
}

function check(of: AgentPolicy | null = policy()): Finding[] {
  return checkLayout([AGENT], { queueMode: () => of });
}

const told = (findings: readonly Finding[]): string[] =>
  findings.map((one) => `${one.check} ${one.path}`);

Deno.test("ensureAgent() makes every directory with its mode, whatever the umask (Q12)", () => {
  for (const umask of [0o000, 0o077]) {
    using _ = new SpoolRoot();
    const before = Deno.umask(umask);
    try {
      ensureAgent("second", null);
    } finally {
      Deno.umask(before);
    }
    const second = agentPaths("second");
    for (const path of ["spool/second", second.results, second.inbox, second.refused]) {
      assertEquals(modeOf(path), "0755", path);
    }
    for (const path of ["work/second", second.queue, second.claims, second.staging]) {
      assertEquals(modeOf(path), "0700", path);
    }
    assertEquals(names("spool/second/inbox"), ["kit", "messages", "refused"]);
    assertEquals(names("work/second"), ["claims", "quarantine", "staging"]);
  }
});

Deno.test("ensureAgent() gives the queue the mode of its writers, and leaves one that is there", () => {
  using _ = new SpoolRoot();
  const gid = Deno.gid() ?? 0;
  ensureAgent("group", policy({ agent_gid: gid }));
  const queue = agentPaths("group").queue;
  assertEquals([modeOf(queue), Deno.lstatSync(queue).gid], ["2770", gid]);
  ensureAgent("drop", policy({ agent_uid: daemonUid() + 1 }));
  assertEquals(modeOf(agentPaths("drop").queue), "1733");
  ensureAgent("drop", policy());
  assertEquals(modeOf(agentPaths("drop").queue), "1733");
});

Deno.test("queueMode() is open to nobody but those the policy names", () => {
  assertEquals(queueMode(null, 1000), 0o700);
  assertEquals(queueMode(policy(), 1000), 0o700);
  assertEquals(queueMode(policy({ agent_uid: 1000 }), 1000), 0o700);
  assertEquals(queueMode(policy({ agent_uid: 1001 }), 1000), 0o1733);
  assertEquals(queueMode(policy({ agent_uid: 1001, agent_gid: 5 }), 1000), 0o2770);
});

Deno.test("setDirectoryMode() does not follow a symlink to somebody else's directory (P5)", () => {
  using root = new SpoolRoot();
  Deno.symlinkSync(root.outside, "spool/link");
  assertThrows(() => setDirectoryMode("spool/link", 0o777), TypeError);
  assertEquals(modeOf(root.outside), "0755");
});

Deno.test("daemonUid() is the user of this process, and leaves nothing behind", () => {
  using _ = new SpoolRoot();
  assertEquals(daemonUid(), Deno.uid());
  assertEquals(names("state"), []);
});

Deno.test("checkLayout() finds nothing wrong with what ensureAgent() made", () => {
  using _ = new SpoolRoot();
  assertEquals(check(), []);
  assertEquals(check(null), []);
  Deno.writeTextFileSync("bridge.jsonc", "{}", { mode: 0o644 });
  Deno.chmodSync("bridge.jsonc", 0o644);
  Deno.mkdirSync("keys");
  Deno.chmodSync("keys", 0o700);
  Deno.writeTextFileSync("keys/k", "");
  Deno.chmodSync("keys/k", 0o600);
  Deno.mkdirSync("base/sub");
  Deno.chmodSync("base/sub", 0o755);
  Deno.writeTextFileSync("base/sub/run.sh", "#!/bin/sh\n");
  Deno.chmodSync("base/sub/run.sh", 0o755);
  assertEquals(check(), []);
});

/** Ways to break a layout, the finding that must come of it, and what its mend must reach. */
const BREAKAGES: readonly { what: string; make: () => void; finding: string; mends: boolean }[] = [
  ...["state", "work", "work/main", PATHS.claims, PATHS.staging, PATHS.quarantine, PATHS.queue]
    .map((path) => ({
      what: `${path} that others can list`,
      make: () => Deno.chmodSync(path, 0o755),
      finding: `wrong-mode ${path}`,
      mends: true,
    })),
  ...["bin", "base", "spool", "spool/main", PATHS.results, PATHS.inbox].map((path) => ({
    what: `${path} that others can write`,
    make: () => Deno.chmodSync(path, 0o777),
    finding: `wrong-mode ${path}`,
    mends: true,
  })),
  ...[PATHS.queue, PATHS.results, PATHS.inbox, PATHS.claims, PATHS.staging].map((path) => ({
    what: `a symlink in the place of ${path}`,
    make: () => {
      Deno.renameSync(path, `${path}.moved`);
      Deno.symlinkSync(Deno.realPathSync(`${path}.moved`), path);
    },
    finding: `symlink ${path}`,
    mends: true,
  })),
  ...[PATHS.queue, PATHS.claims].map((path) => ({
    what: `a file in the place of ${path}`,
    make: () => {
      Deno.removeSync(path);
      Deno.writeTextFileSync(path, "");
    },
    finding: `wrong-type ${path}`,
    mends: true,
  })),
  ...[PATHS.results, PATHS.quarantine].map((path) => ({
    what: `no ${path}`,
    make: () => Deno.removeSync(path, { recursive: true }),
    finding: `missing ${path}`,
    mends: true,
  })),
  {
    what: "results/ that nobody else can read",
    make: () => Deno.chmodSync(PATHS.results, 0o700),
    finding: `wrong-mode ${PATHS.results}`,
    mends: true,
  },
  {
    what: "a policy that others can write",
    make: () => {
      Deno.writeTextFileSync("bridge.jsonc", "{}");
      Deno.chmodSync("bridge.jsonc", 0o666);
    },
    finding: "wrong-mode bridge.jsonc",
    mends: true,
  },
  {
    what: "a policy that is a symlink",
    make: () => Deno.symlinkSync("/etc/passwd", "bridge.jsonc"),
    finding: "symlink bridge.jsonc",
    mends: true,
  },
  {
    what: "an executable that others can write",
    make: () => Deno.chmodSync("bin/chb", 0o777),
    finding: "wrong-mode bin/chb",
    mends: true,
  },
  {
    what: "no executable",
    make: () => Deno.removeSync("bin/chb"),
    finding: "missing bin/chb",
    mends: false,
  },
  {
    what: "a key that others can read",
    make: () => {
      Deno.mkdirSync("keys");
      Deno.chmodSync("keys", 0o700);
      Deno.writeTextFileSync("keys/k", "");
      Deno.chmodSync("keys/k", 0o644);
    },
    finding: "wrong-mode keys/k",
    mends: true,
  },
  {
    what: "a base file that others can write, deep below and with an odd name",
    make: () => {
      Deno.mkdirSync("base/a b");
      Deno.writeTextFileSync("base/a b/it's.sh", "#!/bin/sh\n");
      Deno.chmodSync("base/a b/it's.sh", 0o775);
    },
    finding: "wrong-mode base/a b/it's.sh",
    mends: true,
  },
  {
    what: "a symlink below base/",
    make: () => Deno.symlinkSync("/etc", "base/etc"),
    finding: "symlink base/etc",
    mends: true,
  },
];

for (const { what, make, finding, mends } of BREAKAGES) {
  Deno.test(`checkLayout() finds ${what}${mends ? ", and its mend mends it" : ""}`, () => {
    using _ = new SpoolRoot();
    make();
    const found = check();
    assertEquals(told(found), [finding]);
    const [first] = found;
    assertEquals(first?.level, "error");
    if (!mends) return;
    sh(first?.mend ?? "false");
    assertEquals(told(check()), []);
  });
}

Deno.test("checkLayout() tells all that is wrong at once", () => {
  using _ = new SpoolRoot();
  Deno.chmodSync("work", 0o755);
  Deno.chmodSync(PATHS.queue, 0o777);
  Deno.removeSync(PATHS.claims);
  assertEquals(told(check()), [
    "wrong-mode work",
    `wrong-mode ${PATHS.queue}`,
    `missing ${PATHS.claims}`,
  ]);
});

Deno.test("checkLayout() holds the queue against the policy, and against any policy without one", () => {
  using _ = new SpoolRoot();
  const stranger = policy({ agent_uid: daemonUid() + 1 });
  assertEquals(told(check(stranger)), [`wrong-mode ${PATHS.queue}`]);
  Deno.chmodSync(PATHS.queue, 0o1733);
  assertEquals(check(stranger), []);
  assertEquals(check(null), []);
  assertEquals(told(check(policy())), [`wrong-mode ${PATHS.queue}`]);
  Deno.chmodSync(PATHS.queue, 0o733);
  assertEquals(told(check(null)), [`wrong-mode ${PATHS.queue}`]);
});

Deno.test("checkLayout() refuses a single mount for an agent of the daemon's own user (P3)", () => {
  using _ = new SpoolRoot();
  const single = policy({ mount: "single", agent_uid: daemonUid() });
  assertEquals(told(check(single)), ["single-mount spool/main"]);
});

Deno.test("checkLayout() tells a missing state/ and does not make one", () => {
  using _ = new SpoolRoot();
  Deno.removeSync("state");
  assertEquals(told(check()), ["missing state"]);
  Deno.symlinkSync("work", "state");
  assertEquals(told(check()), ["symlink state"]);
});

testWhen(IS_ROOT, "it takes two users", "checkLayout() finds what belongs to another user", () => {
  using _ = new SpoolRoot();
  for (const path of ["state", "bin/chb", PATHS.queue, PATHS.results, PATHS.claims]) {
    run("chown", ["54321", path]);
    const found = check();
    assertEquals(told(found), [`wrong-owner ${path}`]);
    assertMatch(found[0]?.mend ?? "", /^sudo chown 0 -- /);
    sh((found[0]?.mend ?? "false").replace("sudo ", ""));
    assertEquals(check(), []);
  }
});

testWhen(
  canMount(),
  "only root with the right to mount can make two file systems",
  "checkLayout() refuses queue and claims, or results and staging, on two file systems (P20)",
  () => {
    for (const path of [PATHS.queue, PATHS.staging]) {
      using _ = new SpoolRoot();
      mountSmall(path);
      try {
        Deno.chmodSync(path, 0o700);
        const found = check().filter((one) => one.check === "file-system");
        assert(found.length > 0);
        assertEquals(found[0]?.mend, `sudo umount ${path}`);
      } finally {
        run("umount", [path]);
      }
      assertEquals(check(), []);
    }
  },
);

/** What fills `base/`, what policies name there, and the mend; null where only a person can tell. */
const TOO_MANY: readonly (readonly [
  what: string,
  fill: string,
  named: readonly string[] | null,
  mend: string | null,
])[] = [
  [
    "a directory that no policy names",
    "mkdir -p base/big/sub && cd base/big/sub && seq 10001 | xargs touch",
    ["kept", "kept.sh"],
    "mkdir -p base.old && mv -- base/big base.old/",
  ],
  [
    "files that no policy names",
    "cd base && seq 10001 | xargs touch",
    ["kept", "kept.sh", "a*b"],
    "mkdir -p base.old && find base -mindepth 1 -maxdepth 1 ! -name kept ! -name kept.sh " +
    `! -name 'a\\*b' -exec sh -c 'mv -- "$@" base.old/' sh {} +`,
  ],
  [
    "what a policy names",
    "cd base/kept && seq 10001 | xargs touch",
    ["kept", "kept.sh"],
    null,
  ],
  [
    "anything, with a policy that names all of base/",
    "cd base && seq 10001 | xargs touch",
    null,
    null,
  ],
];

for (const [what, fill, named, mend] of TOO_MANY) {
  Deno.test(`checkLayout() finds a base/ too large to be looked at, full of ${what}`, () => {
    using _ = new SpoolRoot();
    sh("mkdir -p base/kept && touch base/kept.sh base/kept/x base/'a*b' base/axb");
    const look = () =>
      checkLayout([AGENT], {
        queueMode: () => policy(),
        baseNames: named === null ? null : new Set(named),
      });
    assertEquals(look(), []);
    sh(`(${fill})`);
    const found = look();
    assertEquals(told(found), ["too-many base"]);
    assertEquals(found[0]?.mend, mend ?? "");
    if (mend === null) return;
    sh(mend);
    assertEquals(look(), []);
    // Nothing is lost, and what is named stays.
    const rest = sh("ls base; find base base.old -type f | wc -l").trim().split("\n");
    assertEquals(rest.at(-1)?.trim(), "10005");
    for (const name of ["kept", "kept.sh"]) assert(rest.includes(name), rest.join());
    assertEquals(rest.includes("a*b"), true);
    assertEquals(rest.includes("axb"), what.startsWith("a directory"), "no pattern");
  });
}

Deno.test("lockState() is for one process at a time, and for nobody who removes a file (S10)", () => {
  using root = new SpoolRoot();
  const script = join(root.outside, "lock.ts");
  Deno.writeTextFileSync(
    script,
    `import { lockState } from ${
      JSON.stringify(new URL("../src/spool/state_lock.ts", import.meta.url))
    };
     console.log(lockState() === null ? "held" : "free");`,
  );
  const other = () =>
    run(Deno.execPath(), ["run", "-A", "--no-config", "--no-lock", script]).trim();
  const lock = lockState();
  assert(lock !== null);
  assertEquals(lockState(), null);
  assertEquals(other(), "held");
  assertEquals(names("state"), [], "there is no lock file");
  lock.release();
  lock.release();
  assertEquals(other(), "free");
  const again = lockState();
  assert(again !== null);
  again.release();
});

const PROGRAMS: readonly { what: string; make: (path: string) => void; checks: string[] }[] = [
  { what: "a script", make: (path) => file(path, "#!/bin/sh\n"), checks: [] },
  { what: "an ELF file", make: (path) => file(path, "\x7fELF\x02"), checks: [] },
  { what: "an empty file (X8)", make: (path) => file(path, ""), checks: ["program-empty"] },
  { what: "text (X8)", make: (path) => file(path, "id\n"), checks: ["program-format"] },
  { what: "a byte", make: (path) => file(path, "#"), checks: ["program-format"] },
  { what: "nothing", make: () => {}, checks: ["program-missing"] },
  { what: "a directory", make: (path) => Deno.mkdirSync(path), checks: ["program-type"] },
  { what: "a named pipe", make: (path) => void sh(`mkfifo ${path}`), checks: ["program-type"] },
  {
    what: "a script that a group can write (X5)",
    make: (path) => file(path, "#!/bin/sh\n", 0o775),
    checks: ["program-writable"],
  },
  {
    what: "a script that nobody may execute",
    make: (path) => file(path, "#!/bin/sh\n", 0o644),
    checks: ["program-mode"],
  },
  {
    what: "a symlink to a script",
    make: (path) => {
      file(`${path}.real`, "#!/bin/sh\n");
      Deno.symlinkSync(Deno.realPathSync(`${path}.real`), path);
    },
    checks: [],
  },
  {
    what: "a symlink into a directory that the daemon may write (X9)",
    make: (path) => {
      file("work/main/evil", "#!/bin/sh\n");
      Deno.symlinkSync(Deno.realPathSync("work/main/evil"), path);
    },
    checks: ["program-in-write-grant"],
  },
];

function file(path: string, text: string, mode = 0o755): void {
  Deno.writeTextFileSync(path, text);
  Deno.chmodSync(path, mode);
}

for (const { what, make, checks } of PROGRAMS) {
  Deno.test(`checkProgram() says ${checks.join(" ") || "nothing"} of ${what}`, () => {
    using _ = new SpoolRoot();
    make("base/program");
    assertEquals(checkProgram("base/program").map((one) => one.check), checks);
    assertEquals(checkProgram(join(Deno.cwd(), "base/program")).map((one) => one.check), checks);
    for (const one of checkProgram("base/program")) assertEquals(one.level, "error");
  });
}

Deno.test("checkProgram() says of a script that is not in base/ to put it there", () => {
  using _ = new SpoolRoot();
  const [one] = checkProgram("base/program");
  assertEquals([one?.check, one?.mend], ["program-missing", "ls -l -- base/"]);
  assert(one?.message.includes("put the script there"), one?.message);
});

Deno.test("checkProgram() refuses a program in each directory that the daemon may write (X9)", () => {
  using _ = new SpoolRoot();
  for (const room of ["spool", "work", "state"]) {
    file(`${room}/p`, "#!/bin/sh\n");
    assertEquals(checkProgram(`${room}/p`).map((one) => one.check), ["program-in-write-grant"]);
  }
  assertEquals(checkProgram("bin/chb"), []);
});

Deno.test("checkProgram() judges the owner, and notes it where that cannot be done", () => {
  using _ = new SpoolRoot();
  file("base/program", "#!/bin/sh\n");
  const uid = daemonUid();
  assertEquals(checkProgram("base/program", uid), []);
  if (uid !== 0) {
    const [wrong] = checkProgram("base/program", uid + 1);
    assertEquals([wrong?.check, wrong?.level], ["program-owner", "error"]);
  }
  const [note] = checkProgram("base/program", null);
  assertEquals([note?.check, note?.level], ["program-owner", "note"]);
});

Deno.test("fileIdentity() changes when a file is replaced or rewritten, and follows links (X8)", () => {
  using _ = new SpoolRoot();
  file("base/a", "#!/bin/sh\n");
  Deno.symlinkSync("a", "base/link");
  const first = fileIdentity("base/a");
  assertEquals(fileIdentity("base/a"), first);
  assertEquals(fileIdentity("base/link"), { ...first, path: "base/link" });
  file("base/b", "#!/bin/sh\n");
  Deno.renameSync("base/b", "base/a");
  const second = fileIdentity("base/a");
  assert(second.ino !== first.ino);
  file("base/a", "#!/bin/sh\nexit\n");
  assert(fileIdentity("base/a").size !== second.size);
  assertThrows(() => fileIdentity("base/nothing"));
});
