/**
 * Claims: whatever lies in the queue leaves it by one rename, and what cannot is left alone.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { join } from "@std/path/join";
import { randomHex } from "../src/names.ts";
import { claimEntry, claimName, leftoverClaims, parseClaimName } from "../src/spool/claim.ts";
import { isAddressable, isTemporary, requestId } from "../src/spool/entry_name.ts";
import { agentPaths } from "../src/spool/layout.ts";
import { comparePins, readPins } from "../src/spool/pins.ts";
import { objectRefusal } from "../src/spool/object_check.ts";
import { readClaim } from "../src/spool/read_claim.ts";
import {
  AGENT,
  canMount,
  claim,
  entry,
  IS_ROOT,
  modeOf,
  mountSmall,
  names,
  PATHS,
  put,
  run,
  sh,
  SpoolRoot,
  testWhen,
  there,
} from "./spool_fixture.ts";

const ANY = { size_max: 65_536, owners: "any" } as const;

function attempt(name: string) {
  return claimEntry(AGENT, name, { arrival_ms: 1000, random: randomHex(16) });
}

Deno.test("claimEntry() moves a request to a name made of checked parts", () => {
  using _ = new SpoolRoot();
  put("r1.json", '{"verb":"x"}');
  const random = randomHex(16);
  const outcome = claimEntry(AGENT, "r1.json", { arrival_ms: 1234, random });
  assert(outcome.kind === "claimed");
  assertEquals(outcome.claim.path, `${PATHS.claims}/r1.1234.${random}`);
  assertEquals(outcome.claim.id, "r1");
  assertEquals(outcome.claim.name, "r1.json");
  assertEquals(outcome.claim.arrival_ms, 1234);
  assertEquals(outcome.claim.look.kind, "file");
  assertEquals(names(PATHS.queue), []);
  assertEquals(Deno.readTextFileSync(outcome.claim.path), '{"verb":"x"}');
});

Deno.test("claimEntry() takes the ctime for the arrival when that is earlier, and never an mtime", () => {
  using _ = new SpoolRoot();
  put("r1.json");
  Deno.utimeSync(entry("r1.json"), new Date(2099, 1, 1), new Date(1999, 1, 1));
  const far = Date.now() + 3_600_000;
  const outcome = claimEntry(AGENT, "r1.json", { arrival_ms: far, random: randomHex(16) });
  assert(outcome.kind === "claimed");
  const { arrival_ms } = outcome.claim;
  assert(Math.abs(arrival_ms - Date.now()) < 10_000, `${arrival_ms}`);
});

Deno.test("claimEntry() returns gone for a withdrawn entry (Q14)", () => {
  using _ = new SpoolRoot();
  assertEquals(attempt("nothing.json"), { kind: "gone" });
  put("r1.json");
  claim("r1.json");
  assertEquals(attempt("r1.json"), { kind: "gone" });
});

Deno.test("claimEntry() gives an entry to exactly one of several processes", async () => {
  using root = new SpoolRoot();
  const count = 150;
  for (let i = 0; i < count; i++) put(`r${i}.json`);
  const script = join(root.outside, "racer.ts");
  Deno.writeTextFileSync(
    script,
    `import { claimEntry } from ${
      JSON.stringify(new URL("../src/spool/claim.ts", import.meta.url))
    };
     import { randomHex } from ${JSON.stringify(new URL("../src/names.ts", import.meta.url))};
     let won = 0;
     for (let i = 0; i < ${count}; i++) {
       const o = claimEntry("main", "r" + i + ".json", { arrival_ms: 1, random: randomHex(16) });
       if (o.kind === "claimed") won++;
       else if (o.kind !== "gone") throw new Error(JSON.stringify(o));
     }
     console.log(won);`,
  );
  const racers = [1, 2].map(() =>
    new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--no-config", "--no-lock", script],
      stdin: "null",
    }).output()
  );
  let won = 0;
  for (const { code, stdout, stderr } of await Promise.all(racers)) {
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    won += Number(new TextDecoder().decode(stdout));
  }
  assertEquals(won, count);
  assertEquals(names(PATHS.claims).length, count);
  assertEquals(names(PATHS.queue), []);
});

Deno.test("claimEntry() throws when claims/ itself is missing, and the entry stays", () => {
  using _ = new SpoolRoot();
  put("r1.json");
  Deno.removeSync(PATHS.claims);
  assertThrows(() => attempt("r1.json"));
  assertEquals(names(PATHS.queue), ["r1.json"]);
});

/** Names that are no request's, each a hostile one. */
const HOSTILE_NAMES: readonly [string, string][] = [
  ["upper case (P17)", "A.json"],
  ["composed accent (P17)", "\u00e9.json"],
  ["decomposed accent (P17)", "e\u0301.json"],
  ["newline and forged line (P18)", 'x\n{"forged":1}.json'],
  ["escape sequence (P18)", "\u001b[31mred\u001b[0m.json"],
  ["right-to-left override (P18)", "\u202egnp.json"],
  ["option (P18)", "--help.json"],
  ["shell text (P18)", "$(id).json"],
  ["255 bytes (P15)", "a".repeat(250) + ".json"],
  ["65 characters (P15)", "a".repeat(65) + ".json"],
  ["dots (P15)", "...json"],
  ["percent encoding (P15)", "%2e%2e.json"],
  ["backslash (P15)", "..\\x.json"],
  ["double ending", "a.json.json"],
  ["no ending", "a"],
  ["ending alone", ".json"],
];

for (const [what, name] of HOSTILE_NAMES) {
  Deno.test(`claimEntry() gives no id to a name with ${what} and puts none of it in a path`, () => {
    using _ = new SpoolRoot();
    put(name);
    const taken = claim(name);
    assertEquals(taken.id, null);
    assertEquals(taken.name, name);
    assertMatch(taken.path, /^work\/main\/claims\/-\.[0-9]+\.[0-9a-f]{32}$/);
    assertEquals(names(PATHS.queue), []);
  });
}

Deno.test("agentPaths() and claimName() refuse parts that could leave a directory (P15)", () => {
  for (const agent of ["", "..", "a/b", "../x", "A", "a\0b", "%2e%2e", "a".repeat(65)]) {
    assertThrows(() => agentPaths(agent), RangeError);
  }
  const random = "0".repeat(32);
  for (const id of ["..", "a/b", "-", "a.b", "", "a\n"]) {
    assertThrows(() => claimName({ id, arrival_ms: 1, random }), RangeError);
  }
  for (const arrival_ms of [-1, NaN, Infinity, 1.5, 1e21]) {
    assertThrows(() => claimName({ id: "a", arrival_ms, random }), RangeError);
  }
  assertThrows(() => claimName({ id: "a", arrival_ms: 1, random: "../x" }), RangeError);
});

Deno.test("parseClaimName() reads back what claimName() wrote and nothing else", () => {
  const random = randomHex(16);
  for (const id of ["a", "deploy-2_x", "9", null]) {
    const parts = { id, arrival_ms: 1_700_000_000_123, random };
    assertEquals(parseClaimName(claimName(parts)), parts);
  }
  for (
    const name of [
      `a.01.${random}`,
      `a.1.${random}0`,
      `a.1.${random.slice(1)}`,
      `A.1.${random}`,
      `a.b.1.${random}`,
      `.1.${random}`,
      `--.1.${random}`,
      `a.1.${random}\n`,
      `a.-1.${random}`,
      "a.json",
      "",
    ]
  ) assertEquals(parseClaimName(name), null, JSON.stringify(name));
});

Deno.test("leftoverClaims() lists what an earlier daemon claimed, oldest first, and nothing else", () => {
  using _ = new SpoolRoot();
  put("new.json");
  put("old.json");
  put("Bad Name.json");
  const at = (name: string, arrival_ms: number) =>
    claimEntry(AGENT, name, { arrival_ms, random: randomHex(16) });
  at("new.json", 3000);
  at("old.json", 1000);
  at("Bad Name.json", 2000);
  Deno.writeTextFileSync(`${PATHS.claims}/notes.txt`, "a human's");
  const left = leftoverClaims(AGENT);
  assertEquals(left.map((one) => one.arrival_ms), [1000, 2000, 3000]);
  assertEquals(left.map((one) => one.id), ["old", null, "new"]);
  assertEquals(left[0]?.name, "old.json");
  assertEquals(left.map((one) => one.look.kind), ["file", "file", "file"]);
  for (const one of left) assert(there(one.path));
});

Deno.test("claimEntry() never touches names that are listed with U+FFFD, nor their decoy (P16)", () => {
  using _ = new SpoolRoot();
  const decoy = "\uFFFD\uFFFD.json";
  put(decoy, "decoy");
  sh(`printf real > "$(printf '${PATHS.queue}/\\377\\376.json')"`);
  assertEquals(isAddressable(decoy), false);
  assertEquals(attempt(decoy), { kind: "stuck", error: "EILSEQ" });
  assertEquals(names(PATHS.claims), []);
  assertEquals(Deno.readTextFileSync(entry(decoy)), "decoy");
  assertEquals(sh(`ls ${PATHS.queue} | wc -l`).trim(), "2");
});

Deno.test("claimEntry() refuses names that no directory can list", () => {
  using _ = new SpoolRoot();
  Deno.writeTextFileSync("spool/main/beside", "host");
  for (const name of ["", ".", "..", "../beside", "a/b", "a\0b", "\ud800.json"]) {
    assertEquals(attempt(name), { kind: "stuck", error: "EILSEQ" }, JSON.stringify(name));
  }
  assert(there("spool/main/beside"));
});

Deno.test("claimEntry() moves a symlink itself and leaves what it leads to (P1, P8)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  for (const target of [secret, "/dev/zero", "nowhere", "a.json"]) {
    Deno.symlinkSync(target, entry("a.json"));
    const taken = claim("a.json");
    assertEquals(taken.look.kind, "symlink");
    assertEquals(objectRefusal(taken.look, ANY)?.reason, "not-regular");
    assertEquals(readClaim(taken, 100).kind, "refused");
  }
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
});

Deno.test("a swap of file and symlink never gets a host file read or moved (P2)", async () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  const swapper = join(root.outside, "swapper.ts");
  // Puts a file and a symlink under the same name in turn, each by one rename.
  Deno.writeTextFileSync(
    swapper,
    `const queue = Deno.args[0], secret = Deno.args[1];
     console.log("ready");
     for (let i = 0; ; i++) {
       const file = queue + "/.f" + i, link = queue + "/.l" + i;
       try {
         Deno.writeTextFileSync(file, "innocent");
         Deno.renameSync(file, queue + "/a.json");
         Deno.symlinkSync(secret, link);
         Deno.renameSync(link, queue + "/a.json");
       } catch (error) {
         if (!(error instanceof Deno.errors.NotFound)) throw error;
       }
     }`,
  );
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-config", "--no-lock", swapper, PATHS.queue, secret],
    stdin: "null",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  let files = 0;
  let links = 0;
  try {
    const reader = child.stdout.getReader();
    await reader.read();
    await reader.cancel();
    const end = performance.now() + 1500;
    while (performance.now() < end) {
      const outcome = attempt("a.json");
      if (outcome.kind === "gone") continue;
      assert(outcome.kind === "claimed", JSON.stringify(outcome));
      const read = readClaim(outcome.claim, 100);
      if (read.kind === "bytes") {
        files++;
        assertEquals(new TextDecoder().decode(read.bytes), "innocent");
      } else {
        links++;
        assertEquals(outcome.claim.look.kind, "symlink", read.detail);
      }
    }
  } finally {
    child.kill("SIGKILL");
    await child.status;
  }
  assert(files > 20 && links > 20, `${files} files, ${links} links`);
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
  assertEquals(names(root.outside), ["secret", "swapper.ts"]);
});

Deno.test("comparePins() names the role directory that was replaced, moved or removed (P3)", () => {
  using root = new SpoolRoot();
  const pins = readPins(AGENT);
  assertEquals(comparePins(pins, AGENT), null);
  for (const role of ["queue", "results", "inbox", "claims", "staging", "quarantine"] as const) {
    const path = PATHS[role];
    Deno.renameSync(path, `${path}.old`);
    assertEquals(comparePins(pins, AGENT), role, "removed");
    Deno.symlinkSync(`${role}.old`, path);
    assertEquals(comparePins(pins, AGENT), role, "a symlink to the very directory");
    Deno.removeSync(path);
    Deno.symlinkSync(root.outside, path);
    assertEquals(comparePins(pins, AGENT), role, "a symlink elsewhere");
    Deno.removeSync(path);
    Deno.mkdirSync(path);
    assertEquals(comparePins(pins, AGENT), role, "another directory");
    Deno.removeSync(path);
    Deno.renameSync(`${path}.old`, path);
    assertEquals(comparePins(pins, AGENT), null, "back again");
  }
});

Deno.test("comparePins() names the first role when the agent's directory is a symlink now (P3)", () => {
  using root = new SpoolRoot();
  const pins = readPins(AGENT);
  Deno.renameSync("spool/main", "spool/old");
  Deno.symlinkSync(root.outside, "spool/main");
  Deno.mkdirSync(join(root.outside, "queue"));
  assertEquals(comparePins(pins, AGENT), "queue");
});

Deno.test("readPins() refuses a role directory that is none", () => {
  using _ = new SpoolRoot();
  Deno.removeSync(PATHS.results);
  Deno.symlinkSync("queue", PATHS.results);
  assertThrows(() => readPins(AGENT), TypeError);
});

testWhen(
  !IS_ROOT,
  "root may do all of it",
  "claimEntry() takes an empty directory that it may not move out of the queue, by a stand-in (P10)",
  () => {
    using _ = new SpoolRoot();
    Deno.mkdirSync(entry("d.json"));
    Deno.chmodSync(entry("d.json"), 0o500);
    const taken = claim("d.json");
    assertEquals(taken.look.kind, "directory");
    assertEquals(taken.id, "d");
    assertEquals(names(PATHS.queue), []);
    assertEquals(names(PATHS.claims).length, 1);
  },
);

testWhen(
  !IS_ROOT,
  "root may do all of it",
  "claimEntry() reports a full directory that it may not move as stuck and leaves no trace (P10)",
  () => {
    using _ = new SpoolRoot();
    Deno.mkdirSync(entry("d.json"));
    Deno.mkdirSync(entry("d.json/x"));
    Deno.chmodSync(entry("d.json"), 0o000);
    assertEquals(attempt("d.json"), { kind: "stuck", error: "EACCES" });
    assertEquals(names(PATHS.queue), ["d.json"]);
    assertEquals(modeOf(entry("d.json")), "0000");
    assertEquals(names(PATHS.claims), []);
  },
);

testWhen(
  !IS_ROOT,
  "root may do all of it",
  "claimEntry() reports every entry of a closed queue as stuck and does not open it again (P13)",
  () => {
    using _ = new SpoolRoot();
    put("a.json");
    for (const mode of [0o000, 0o555]) {
      Deno.chmodSync(PATHS.queue, mode);
      assertEquals(attempt("a.json"), { kind: "stuck", error: "EACCES" });
      assertEquals(modeOf(PATHS.queue), mode.toString(8).padStart(4, "0"));
    }
    Deno.chmodSync(PATHS.queue, 0o1700);
    assertEquals(claim("a.json").id, "a");
  },
);

/** A user that owns nothing here. */
const DAEMON = 12_345;

/** Runs this Deno as another user. */
function asDaemon(args: readonly string[], home: string): Deno.CommandOutput {
  return new Deno.Command(Deno.execPath(), {
    args: [...args],
    uid: DAEMON,
    gid: DAEMON,
    cwd: Deno.cwd(),
    clearEnv: true,
    env: { HOME: home, DENO_DIR: join(home, ".deno"), PATH: "/usr/bin:/bin" },
    stdin: "null",
  }).outputSync();
}

/** True when root runs this, from where other users can run it too. */
function canBeAnother(): boolean {
  if (!IS_ROOT) return false;
  const source = new URL("../src/spool/claim.ts", import.meta.url).pathname;
  const code = `Deno.readTextFileSync(${JSON.stringify(source)})`;
  try {
    return asDaemon(["eval", "--no-config", "--no-lock", code], "/nonexistent").success;
  } catch {
    return false;
  }
}

testWhen(
  canBeAnother(),
  "only root can be two users, with a Deno and a source that both can read",
  "claimEntry() claims files of another user, and reports what it may not move (P10, P12)",
  () => {
    using root = new SpoolRoot();
    const stranger = 54_321;
    run("chown", ["-R", `${DAEMON}`, "--", root.root]);
    Deno.chmodSync(join(root.root, ".."), 0o755);
    Deno.chmodSync(PATHS.queue, 0o1733);
    put("file.json");
    put("shut.json");
    Deno.chmodSync(entry("shut.json"), 0o000);
    Deno.mkdirSync(entry("empty.json"));
    Deno.mkdirSync(entry("full.json/x"), { recursive: true });
    Deno.chmodSync(entry("empty.json"), 0o700);
    Deno.chmodSync(entry("full.json"), 0o700);
    run("chown", ["-R", `${stranger}`, "--", ...names(PATHS.queue).map(entry)]);
    const script = join(root.outside, "as_daemon.ts");
    Deno.writeTextFileSync(
      script,
      `import { claimEntry } from ${
        JSON.stringify(new URL("../src/spool/claim.ts", import.meta.url))
      };
       import { readClaim } from ${
        JSON.stringify(new URL("../src/spool/read_claim.ts", import.meta.url))
      };
       import { randomHex } from ${JSON.stringify(new URL("../src/names.ts", import.meta.url))};
       for (const name of ["file", "shut", "empty", "full"]) {
         const o = claimEntry("main", name + ".json", { arrival_ms: 1, random: randomHex(16) });
         console.log(name, o.kind === "claimed" ? o.claim.look.kind : o.error,
           o.kind === "claimed" && o.claim.look.kind === "file" ? readClaim(o.claim, 9).kind : "");
       }`,
    );
    const { code, stdout, stderr } = asDaemon(
      ["run", "-A", "--no-config", "--no-lock", script],
      root.outside,
    );
    const said = new TextDecoder().decode(stdout);
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    assertEquals(said.trim().split("\n").map((line) => line.trim()), [
      "file file bytes",
      "shut file refused",
      "empty directory",
      "full EACCES",
    ]);
    assertEquals(names(PATHS.queue), ["full.json"]);
  },
);

testWhen(
  canMount(),
  "only root with the right to mount can make two file systems",
  "claimEntry() never copies across file systems: the entry stays and is stuck (P20)",
  () => {
    using _ = new SpoolRoot();
    mountSmall(PATHS.queue);
    try {
      put("a.json");
      assertEquals(attempt("a.json"), { kind: "stuck", error: "EXDEV" });
      assertEquals(names(PATHS.queue), ["a.json"]);
      assertEquals(names(PATHS.claims), []);
    } finally {
      run("umount", [PATHS.queue]);
    }
  },
);

Deno.test("requestId() and isTemporary() tell requests, temporary names and poison apart", () => {
  assertEquals(requestId("restart-web_1.json"), "restart-web_1");
  for (const name of ["A.json", "a.JSON", "a.json ", "a", ".json", "a.json.tmp", "a\n.json"]) {
    assertEquals(requestId(name), null, name);
  }
  for (
    const name of [
      ".a.json.tmp",
      "a.tmp",
      "a.json.tmp",
      ".hidden",
      ".json.x",
      "~a.json",
      "a.json~",
      ".syncthing.a.json.tmp",
      "a.part",
      "a.json.crdownload",
      "a.!sync",
    ]
  ) assert(isTemporary(name), name);
  for (const name of ["a.json", ".json", "tmp", "a.tmp.json", "A.json"]) {
    assert(!isTemporary(name), name);
  }
});
