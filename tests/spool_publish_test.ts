/**
 * Publication: what an agent reads is whole, has the right mode, and goes nowhere else, whoever sits
 * on its name.
 *
 * @module
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path/join";
import { Buffer } from "node:buffer";
import { errorCode } from "../src/errors.ts";
import { ensureAgent } from "../src/spool/layout.ts";
import {
  dropAhead,
  openOutput,
  type OutputFile,
  publish,
  removeRefused,
  removeResult,
  SquattedError,
  stageAhead,
  sweepStaging,
} from "../src/spool/publish.ts";
import { MAX_DIRECTORIES } from "../src/spool/quarantine.ts";
import {
  AGENT,
  canMount,
  modeOf,
  mountSmall,
  names,
  PATHS,
  run,
  sh,
  SpoolRoot,
  testWhen,
  there,
} from "./spool_fixture.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const RESULT = `${PATHS.results}/a.json`;

Deno.test("publish() writes whole files with mode 0644 into each place, whatever the umask (Q12)", () => {
  using _ = new SpoolRoot();
  const before = Deno.umask(0o077);
  try {
    publish(AGENT, "results", "a.json", bytes("result"));
    publish(AGENT, "inbox", "status.json", bytes("status"));
    publish(AGENT, "refused", "1.json", bytes("refused"));
    publish(AGENT, "messages", "1.json", bytes("message"));
    publish(AGENT, "kit", "AGENTS.md", bytes("kit"));
    publish(AGENT, "kit", "shims/docker", bytes("shim"), { mode: 0o755 });
  } finally {
    Deno.umask(before);
  }
  for (
    const [path, text, mode] of [
      [RESULT, "result", "0644"],
      [`${PATHS.inbox}/status.json`, "status", "0644"],
      [`${PATHS.refused}/1.json`, "refused", "0644"],
      [`${PATHS.messages}/1.json`, "message", "0644"],
      [`${PATHS.kit}/AGENTS.md`, "kit", "0644"],
      [`${PATHS.kit}/shims/docker`, "shim", "0755"],
    ] as const
  ) {
    assertEquals([Deno.readTextFileSync(path), modeOf(path)], [text, mode], path);
  }
  assertEquals(modeOf(`${PATHS.kit}/shims`), "0755");
  assertEquals(names(PATHS.staging), []);
});

Deno.test("stageAhead() makes the file of an agent's next result, and of no other agent's", () => {
  using _ = new SpoolRoot();
  const before = Deno.umask(0o077);
  try {
    stageAhead(new Set([AGENT]));
    stageAhead(new Set([AGENT]));
  } finally {
    Deno.umask(before);
  }
  const [staged = "", ...more] = names(PATHS.staging);
  assertEquals([more, modeOf(`${PATHS.staging}/${staged}`)], [[], "0644"]);
  publish(AGENT, "results", "b.json", bytes("running"));
  assertEquals(names(PATHS.staging), [staged], "it is for a result that is waited for");
  const inode = Deno.statSync(`${PATHS.staging}/${staged}`).ino;
  publish(AGENT, "results", "a.json", bytes("result"), { awaited: true });
  assertEquals([names(PATHS.staging), Deno.statSync(RESULT).ino], [[], inode]);
  assertEquals([Deno.readTextFileSync(RESULT), modeOf(RESULT)], ["result", "0644"]);
  publish(AGENT, "results", "a.json", bytes("newer"), { awaited: true });
  assertEquals([Deno.readTextFileSync(RESULT), names(PATHS.staging)], ["newer", []]);
  // One that somebody removed is not missed.
  stageAhead(new Set([AGENT]));
  for (const name of names(PATHS.staging)) Deno.removeSync(`${PATHS.staging}/${name}`);
  publish(AGENT, "results", "a.json", bytes("newest"), { awaited: true });
  assertEquals([Deno.readTextFileSync(RESULT), names(PATHS.staging)], ["newest", []]);
  stageAhead(new Set());
  const [kept = "", ...others] = names(PATHS.staging);
  assertEquals(
    [others, Deno.statSync(`${PATHS.staging}/${kept}`).size],
    [[], 0],
    "the last to be told",
  );
  dropAhead();
  assertEquals(names(PATHS.staging), [], "the end of the service");
  stageAhead(new Set([AGENT]));
  stageAhead(new Set());
  assertEquals(names(PATHS.staging), [], "its commands have ended, and it was told of none");
});

Deno.test("stageAhead() keeps files for the four agents that were told last", () => {
  using _ = new SpoolRoot();
  const agents = ["a", "b", "c", "d", "e"];
  for (const agent of agents) {
    for (const path of [`spool/${agent}/results`, `work/${agent}/staging`]) {
      Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
    }
    publish(agent, "results", "one.json", bytes("told"), { awaited: true });
  }
  const held = () => agents.filter((agent) => names(`work/${agent}/staging`).length > 0);
  stageAhead(new Set());
  assertEquals(held(), ["b", "c", "d", "e"]);
  publish("b", "results", "two.json", bytes("told"), { awaited: true });
  publish("a", "results", "two.json", bytes("told"), { awaited: true });
  stageAhead(new Set());
  assertEquals(held(), ["a", "b", "d", "e"]);
  stageAhead(new Set(["c"]));
  assertEquals(held(), agents, "one whose commands run has its own");
  dropAhead();
  assertEquals(held(), []);
});

Deno.test("publish() writes into the file that it made beforehand, or into a new one", () => {
  using _ = new SpoolRoot();
  dropAhead();
  Deno.writeTextFileSync("other", "a longer text of somebody else");
  for (
    const [what, replace] of [
      ["another file", (path: string) => Deno.copyFileSync("other", path)],
      ["a symlink", (path: string) => Deno.symlinkSync(Deno.realPathSync("other"), path)],
      ["a hard link", (path: string) => Deno.linkSync("other", path)],
      ["a pipe", (path: string) => sh(`mkfifo ${path}`)],
    ] as const
  ) {
    stageAhead(new Set([AGENT]));
    const [staged = ""] = names(PATHS.staging);
    Deno.removeSync(`${PATHS.staging}/${staged}`);
    replace(`${PATHS.staging}/${staged}`);
    publish(AGENT, "results", "a.json", bytes(what), { awaited: true });
    assertEquals([Deno.readTextFileSync(RESULT), names(PATHS.staging)], [what, []], what);
    assertEquals(Deno.lstatSync(RESULT).isFile, true, what);
  }
  assertEquals(Deno.readTextFileSync("other"), "a longer text of somebody else");
  // Nor into its own, when that has a second name or somebody wrote into it.
  stageAhead(new Set([AGENT]));
  const [linked = ""] = names(PATHS.staging);
  Deno.linkSync(`${PATHS.staging}/${linked}`, "second");
  publish(AGENT, "results", "a.json", bytes("own"), { awaited: true });
  assertEquals(Deno.readTextFileSync("second"), "");
  stageAhead(new Set([AGENT]));
  const [filled = ""] = names(PATHS.staging);
  Deno.writeTextFileSync(`${PATHS.staging}/${filled}`, "a longer text of somebody else");
  publish(AGENT, "results", "a.json", bytes("own"), { awaited: true });
  assertEquals([Deno.readTextFileSync(RESULT), names(PATHS.staging)], ["own", []]);
});

Deno.test("publish() replaces a file by another one: an open reader keeps the old content", () => {
  using _ = new SpoolRoot();
  publish(AGENT, "results", "a.json", bytes("old"));
  using reader = Deno.openSync(RESULT);
  publish(AGENT, "results", "a.json", bytes("new"));
  const buffer = new Uint8Array(10);
  assertEquals(reader.readSync(buffer), 3);
  assertEquals(new TextDecoder().decode(buffer.subarray(0, 3)), "old");
  assertEquals(Deno.readTextFileSync(RESULT), "new");
});

Deno.test("publish() writes large documents whole (S1)", () => {
  using _ = new SpoolRoot();
  const large = new Uint8Array(3_000_000).map((_, i) => i % 251);
  publish(AGENT, "results", "a.json", large);
  assertEquals(Buffer.compare(Deno.readFileSync(RESULT), large), 0);
});

Deno.test("publish() replaces links, pipes and files that have the name, and writes through none (Q3)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  const absent = join(root.outside, "absent");
  const plant: [string, () => void][] = [
    ["a symlink to a host file", () => Deno.symlinkSync(secret, RESULT)],
    ["a dangling symlink", () => Deno.symlinkSync(absent, RESULT)],
    ["a symlink to a directory", () => Deno.symlinkSync(root.outside, RESULT)],
    ["a hard link to a host file", () => Deno.linkSync(secret, RESULT)],
    ["a file", () => Deno.writeTextFileSync(RESULT, "forged")],
    ["a file of mode 000", () => {
      Deno.writeTextFileSync(RESULT, "forged");
      Deno.chmodSync(RESULT, 0o000);
    }],
    ["a named pipe", () => sh(`mkfifo ${RESULT}`)],
  ];
  for (const [what, make] of plant) {
    for (const way of ["publish", "openOutput"] as const) {
      make();
      if (way === "publish") publish(AGENT, "results", "a.json", bytes("true result"));
      else {
        const file = openOutput(AGENT, "a.json");
        file.append(bytes("true result"));
        file.close();
      }
      assert(Deno.lstatSync(RESULT).isFile, what);
      assertEquals(Deno.readTextFileSync(RESULT), "true result", what);
      assertEquals(modeOf(RESULT), "0644", what);
      Deno.removeSync(RESULT);
    }
  }
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
  assertEquals(names(root.outside), ["secret"]);
  assertEquals(names(PATHS.staging), []);
});

Deno.test("publish() moves a directory that has the name to quarantine, unentered (Q3)", () => {
  using root = new SpoolRoot();
  Deno.mkdirSync(RESULT);
  publish(AGENT, "results", "a.json", bytes("one"));
  assertEquals(Deno.readTextFileSync(RESULT), "one");
  assertEquals(names(PATHS.quarantine), []);
  Deno.removeSync(RESULT);
  Deno.mkdirSync(`${RESULT}/x`, { recursive: true });
  Deno.symlinkSync(root.outside, `${RESULT}/link`);
  publish(AGENT, "results", "a.json", bytes("two"));
  assertEquals(Deno.readTextFileSync(RESULT), "two");
  const [kept] = names(PATHS.quarantine);
  assertEquals(names(`${PATHS.quarantine}/${kept}`), ["link", "x"]);
});

Deno.test("publish() says SquattedError when the directory cannot be moved, and leaves no stage (Q3)", () => {
  using _ = new SpoolRoot();
  for (let i = 0; i < MAX_DIRECTORIES; i++) Deno.mkdirSync(`${PATHS.quarantine}/dir.${i}`);
  Deno.mkdirSync(`${RESULT}/x`, { recursive: true });
  assertThrows(() => publish(AGENT, "results", "a.json", bytes("x")), SquattedError);
  assertThrows(() => openOutput(AGENT, "a.json"), SquattedError);
  assertThrows(() => removeResult(AGENT, "a.json"), SquattedError);
  assertEquals(names(PATHS.staging), []);
  assert(there(`${RESULT}/x`));
});

Deno.test("publish() throws the system's error when results/ is missing, and leaves no stage", () => {
  using _ = new SpoolRoot();
  Deno.removeSync(PATHS.results);
  const error = assertThrows(() => publish(AGENT, "results", "a.json", bytes("x")));
  assertEquals(errorCode(error), "ENOENT");
  assertEquals(names(PATHS.staging), []);
});

Deno.test("publish() refuses names that are not one file below one directory (P15)", () => {
  using root = new SpoolRoot();
  for (
    const name of [
      "",
      ".",
      "..",
      "../x",
      "../../../host/x",
      "a/b",
      "a/",
      "/a",
      ".hidden",
      "a\0b",
      "a\n",
      "a b",
      "x".repeat(129),
    ]
  ) {
    for (const target of ["results", "inbox", "refused", "messages"] as const) {
      assertThrows(() => publish(AGENT, target, name, bytes("x")), RangeError);
    }
    assertThrows(() => openOutput(AGENT, name), RangeError);
    assertThrows(() => removeResult(AGENT, name), RangeError);
  }
  for (const name of ["../x", "a/../b", "a/b/c", "/a", "a//b"]) {
    assertThrows(() => publish(AGENT, "kit", name, bytes("x")), RangeError);
  }
  assertEquals(names(root.outside), []);
  assertEquals(names(PATHS.results), []);
});

Deno.test("openOutput() gives a file that grows where the agent reads, and ends with close", () => {
  using _ = new SpoolRoot();
  const file = openOutput(AGENT, "a.stdout");
  const path = `${PATHS.results}/a.stdout`;
  assertEquals([Deno.readTextFileSync(path), modeOf(path), file.size], ["", "0644", 0]);
  file.append(bytes("one "));
  assertEquals([Deno.readTextFileSync(path), file.size], ["one ", 4]);
  file.append(bytes("two"));
  assertEquals([Deno.readTextFileSync(path), file.size], ["one two", 7]);
  file.close();
  file.close();
  assertThrows(() => file.append(bytes("x")), TypeError);
  assertEquals(names(PATHS.staging), []);
});

Deno.test("openOutput() that pauses holds nothing open, and writes on only into the same file", () => {
  using root = new SpoolRoot();
  const file = openOutput(AGENT, "a.stdout");
  const path = `${PATHS.results}/a.stdout`;
  file.append(bytes("one "));
  file.pause();
  file.pause();
  file.append(bytes("two"));
  assertEquals([Deno.readTextFileSync(path), file.size], ["one two", 7]);
  file.pause();
  Deno.writeTextFileSync(`${root.outside}/host`, "host");
  // It lives on elsewhere, so that no other file gets its number.
  Deno.renameSync(path, `${path}.old`);
  for (const put of ["link", "file", "nothing"] as const) {
    if (put === "link") Deno.symlinkSync(`${root.outside}/host`, path);
    if (put === "file") Deno.writeTextFileSync(path, "another");
    assertThrows(() => file.append(bytes("three")), Error, "was replaced");
    if (put !== "nothing") Deno.removeSync(path);
  }
  assertEquals(Deno.readTextFileSync(`${root.outside}/host`), "host");
  file.close();
  assertThrows(() => file.append(bytes("x")), TypeError);
});

Deno.test("openOutput() writes on into its own file when the name was given to another one (Q3)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  const file = openOutput(AGENT, "a.stdout");
  Deno.removeSync(`${PATHS.results}/a.stdout`);
  Deno.symlinkSync(secret, `${PATHS.results}/a.stdout`);
  file.append(bytes("output"));
  file.close();
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
});

Deno.test("removeResult() removes a name, says whether there was one, and follows nothing", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  assertEquals(removeResult(AGENT, "a.json"), false);
  publish(AGENT, "results", "a.json", bytes("x"));
  assertEquals(removeResult(AGENT, "a.json"), true);
  Deno.symlinkSync(secret, RESULT);
  assertEquals(removeResult(AGENT, "a.json"), true);
  Deno.mkdirSync(`${RESULT}/x`, { recursive: true });
  assertEquals(removeResult(AGENT, "a.json"), true);
  assertEquals(names(PATHS.results), []);
  assertEquals(names(PATHS.quarantine).length, 1);
  publish(AGENT, "refused", "7.json", bytes("x"));
  assertEquals(removeRefused(AGENT, 7), true);
  assertEquals(removeRefused(AGENT, 7), false);
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
});

Deno.test("sweepStaging() removes staged files and enters nothing", () => {
  using root = new SpoolRoot();
  Deno.writeTextFileSync(`${PATHS.staging}/abc`, "left by a crash");
  Deno.writeTextFileSync(`${PATHS.staging}/def`, "");
  Deno.mkdirSync(`${PATHS.staging}/dir/x`, { recursive: true });
  Deno.symlinkSync(root.outside, `${PATHS.staging}/link`);
  assertEquals(sweepStaging(AGENT), 2);
  assertEquals(names(PATHS.staging), ["dir", "link"]);
});

testWhen(
  canMount(),
  "only root with the right to mount can make a small file system",
  "without space publish() throws ENOSPC, shows no part, and keeps the old content (S1)",
  () => {
    using root = new SpoolRoot();
    Deno.mkdirSync("small");
    mountSmall("small");
    let file: OutputFile | null = null;
    try {
      Deno.chdir("small");
      Deno.mkdirSync("state");
      ensureAgent(AGENT, null);
      publish(AGENT, "results", "a.json", bytes("old"));
      // The write before the last one is a short one: it takes what still fits.
      const large = new Uint8Array(1_000_000);
      const error = assertThrows(() => publish(AGENT, "results", "a.json", large));
      assertEquals(errorCode(error), "ENOSPC");
      assertEquals(Deno.readTextFileSync(RESULT), "old");
      assertEquals(names(PATHS.staging), []);
      const output = openOutput(AGENT, "a.stdout");
      file = output;
      const failed = assertThrows(() => {
        for (;;) output.append(large.subarray(0, 10_007));
      });
      assertEquals(errorCode(failed), "ENOSPC");
      assert(output.size > 0 && output.size < 65_536, `${output.size}`);
      assertEquals(Deno.statSync(`${PATHS.results}/a.stdout`).size, output.size);
    } finally {
      file?.close();
      Deno.chdir(root.root);
      run("umount", ["small"]);
    }
  },
);
