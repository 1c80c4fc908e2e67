/**
 * Hostile arguments, programs, endings and outputs through a running daemon, from outside: what was
 * asked is answered truthfully, nothing else runs, and neither daemon nor shim is stopped by it.
 */
import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { GENESIS, verifyLine } from "../src/audit/chain.ts";
import type { Result } from "../src/result.ts";
import { VIEW_BYTES } from "../src/run/output_view.ts";
import { Arena, type Refused } from "./helpers/arena.ts";
import { type TestBridge, there, until } from "./helpers/bridge.ts";

const MIB = 1024 * 1024;
/** Bytes kept of each output stream of these bridges. */
const CAP = MIB;

const BAD_ARGS: Refused = { reason: "bad-args", stage: "args" };
const SCHEMA: Refused = { reason: "schema", stage: "schema" };
const CHANGED: Refused = { reason: "base-changed", stage: "base" };

/** In a script: the root. Scripts leave what tests look for there, outside of every mount. */
const ROOT = "${0%/*}/..";

/** In a script: leaves its own pid and, with `$!`, that of the last background child. */
const NOTE_PIDS = `echo $$ >> ${ROOT}/pids; echo $! >> ${ROOT}/pids`;

/** True while a process lives; one that has ended and was not waited for does not. */
function alive(pid: number): boolean {
  try {
    const stat = Deno.readTextFileSync(`/proc/${pid}/stat`);
    return !"ZX".includes(stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3));
  } catch {
    return false;
  }
}

/** Pids that scripts have left, and forgets them. */
function takePids(bridge: TestBridge): number[] {
  const path = bridge.path("pids");
  const pids = Deno.readTextFileSync(path).split("\n").filter((l) => l !== "").map(Number);
  Deno.removeSync(path);
  assert(pids.every((pid) => Number.isInteger(pid) && pid > 1), pids.join());
  return pids;
}

/** Waits until none of these processes lives. */
async function gone(pids: readonly number[]): Promise<void> {
  assert(pids.length > 0);
  await until(`the end of ${pids.join(", ")}`, () => !pids.some(alive));
}

/** Processes of the bridge: its daemon and its shims. */
function processes(root: string): number[] {
  const pids: number[] = [];
  for (const { name } of Deno.readDirSync("/proc")) {
    try {
      if (/^[0-9]+$/.test(name) && Deno.readLinkSync(`/proc/${name}/cwd`) === root) {
        pids.push(Number(name));
      }
    } catch {
      // Gone, or somebody else's.
    }
  }
  return pids.filter((pid) => pid !== Deno.pid);
}

/** The most memory that a process ever had resident, bytes; 0 when it has gone. */
function peak(pid: number): number {
  try {
    const text = Deno.readTextFileSync(`/proc/${pid}/status`);
    return Number(/VmHWM:\s+(\d+) kB/.exec(text)?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

/** Reads the audit text and checks that it is one chain of printable lines. */
function auditLines(bridge: TestBridge): string[] {
  const bytes = Deno.readFileSync(bridge.path("state/audit/audit.jsonl"));
  assert(bytes.every((b) => b === 0x0a || (b >= 0x20 && b < 0x7f)), "audit text is ASCII");
  const lines = new TextDecoder().decode(bytes).split("\n");
  assertEquals(lines.pop(), "");
  let prev = GENESIS;
  for (const [i, line] of lines.entries()) {
    const ref = verifyLine(line, prev);
    assert(ref !== null, `record ${i + 1} does not hold: ${line}`);
    assertEquals(ref.seq, i + 1);
    prev = ref.hash;
  }
  return lines;
}

/** What the daemon has written to its log is one line of plain words an event. */
function checkLog(bridge: TestBridge): void {
  for (const line of bridge.log.split("\n")) {
    if (line === "") continue;
    assertMatch(
      line,
      /^(?:(?:DEBUG|INFO|WARN|ERROR) [a-z-]+(?: [a-z_0-9]+=(?:[!-~]+|"[ -~]*"))*|chb: ready [ -~]*)$/,
    );
  }
}

function names(bridge: TestBridge, ...parts: string[]): string[] {
  return [...Deno.readDirSync(bridge.path(...parts))].map((e) => e.name).sort();
}

Deno.test("hostile arguments and programs start nothing but what was trusted", async (t) => {
  const values = {
    flagged: { type: "text", default: "f" },
    who: { type: "name", default: "w" },
    ref: { type: "git-ref", default: "main" },
    version: { type: "semver", default: "1.0.0" },
    sha: { type: "sha", default: "3f2a9c1" },
    ratio: { type: "decimal", default: "1" },
    file: { type: "path", root: "base/files", default: "note" },
    mode: { type: "enum", values: ["web", "db"], default: "web" },
    rest: { type: "text", default: "r" },
    free: { type: "text", allow_leading_dash: true, default: "x" },
  };
  const opt = [
    "base/opt",
    "--flag={flagged}",
    "{who}",
    "{ref}",
    "{version}",
    "{sha}",
    "{ratio}",
    "{file}",
    "{mode}",
    "--",
    "{rest}",
    "{free}",
  ];
  const changes = ["emptied", "moved", "touched", "rewritten", "linked", "removed", "directory"];
  await using arena = await Arena.start({
    scripts: {
      opt: "",
      where: "printenv; pwd; cat",
      hold: `while [ ! -e "${ROOT}/go" ]; do sleep 0.05; done; rm "${ROOT}/go"`,
      late: "",
      ...Object.fromEntries(["text", ...changes].map((name) => [name, ""])),
    },
    files: { "guard.conf": "trusted" },
    verbs: {
      opt: { argv: opt, args: values },
      where: { argv: ["base/where"] },
      hold: { argv: ["base/hold"], lock: "one" },
      late: { argv: ["base/late"], lock: "one" },
      reads: {
        argv: ["base/opt", "{file}"],
        lock: "one",
        args: { file: { type: "path", root: "base/files" } },
      },
      guarded: { argv: ["base/ok", "guarded"], requires: ["base/guard.conf"] },
      ...Object.fromEntries(["text", ...changes].map((name) => [name, { argv: [`base/${name}`] }])),
    },
    limits: { output_bytes: CAP },
  });
  const { bridge } = arena;
  const base = bridge.path("base");
  Deno.mkdirSync(`${base}/files`);
  Deno.writeTextFileSync(`${base}/files/note`, "a file");
  /** What `opt` gets for these values. */
  const line = (more: Partial<Record<keyof typeof values, string>> = {}) => {
    const v = {
      flagged: "f",
      who: "w",
      ref: "main",
      version: "1.0.0",
      sha: "3f2a9c1",
      ratio: "1",
      file: "note",
      mode: "web",
      rest: "r",
      free: "x",
      ...more,
    };
    return [
      `--flag=${v.flagged}`,
      v.who,
      v.ref,
      v.version,
      v.sha,
      v.ratio,
      `${base}/files/${v.file}`,
      v.mode,
      "--",
      v.rest,
      v.free,
    ].map((word) => `<${word}>`).join("");
  };

  await t.step("X1 no value can be taken for an option or a file to read", async () => {
    const hostile = ["--file=/tmp/x", "-H=tcp://evil", "-", "--", "@file", "-rf", "--help"];
    let n = 0;
    for (const name of Object.keys(values).filter((name) => name !== "free")) {
      for (const value of hostile) {
        await arena.refuses(
          `x1-${n++}`,
          JSON.stringify({ verb: "opt", args: { [name]: value } }),
          BAD_ARGS,
        );
      }
    }
    const special: [string, string][] = [
      ["ref", "+main:main"],
      ["ref", "a..b"],
      ["ref", "main@{1}"],
      ["ratio", "-1"],
      ["file", "../state/ledger.db"],
      ["file", "/etc/passwd"],
      ["file", "./note"],
      ["file", "a/../note"],
      ["file", "~root/.ssh/id_rsa"],
      ["file", "note\\x"],
      ["file", "not-there"],
      ["sha", "HEAD"],
    ];
    for (const [name, value] of special) {
      await arena.refuses(
        `x1-${n++}`,
        JSON.stringify({ verb: "opt", args: { [name]: value } }),
        BAD_ARGS,
      );
    }
    // Where the policy says that no option can be meant it arrives as one element behind the "--".
    for (const [i, value] of hostile.entries()) {
      const { line: got } = await arena.runs(`x1-free-${i}`, {
        verb: "opt",
        args: { free: value },
      });
      assertEquals(got, line({ free: value }));
    }
  });

  await t.step("X2 what a shell would act on arrives as it was sent", async () => {
    const witness = bridge.path("witness");
    const texts = [
      `$(touch ${witness})`,
      `\`touch ${witness}\``,
      `; touch ${witness}`,
      `| touch ${witness}`,
      `&& touch ${witness} &`,
      `> ${witness}`,
      `' ; touch ${witness} ; '`,
      `" ; touch ${witness} ; "`,
      "${IFS}$IFS$PATH$0$@",
      "* ~ ? [a-z] {a,b} !! #",
      "%s%n%x \\n\\0 \\",
      "a  b\u00a0c",
    ];
    for (const [i, text] of texts.entries()) {
      const { line: got } = await arena.runs(`x2-${i}`, {
        verb: "opt",
        args: { flagged: text, rest: text, free: text },
      });
      assertEquals(got, line({ flagged: text, rest: text, free: text }));
      assertEquals(there(witness), false, text);
    }
    const kinds = ["null", "[]", '["t"]', '{"toString":"t"}', "0", "false"];
    for (const [i, json] of kinds.entries()) {
      await arena.refuses(
        `x2-kind-${i}`,
        `{"verb":"opt","args":{"rest":${json}}}`,
        BAD_ARGS,
      );
    }
  });

  await t.step("X2 no request sets program, vector, environment, directory or input", async () => {
    const fields = {
      argv: ["/bin/sh", "-c", "id"],
      program: "/bin/sh",
      command: "id",
      shell: true,
      env: { PATH: "/tmp", BASH_ENV: "/tmp/x", LD_PRELOAD: "/tmp/x.so" },
      cwd: "/tmp",
      stdin: "yes",
      user: "root",
    };
    for (const [name, value] of Object.entries(fields)) {
      await arena.refuses(`x2-${name}`, JSON.stringify({ verb: "ok", [name]: value }), SCHEMA);
      await arena.refuses(
        `x2-arg-${name}`,
        JSON.stringify({ verb: "ok", args: { [name]: value } }),
        BAD_ARGS,
      );
    }
    const result = await bridge.ask("x2-where", { verb: "where" });
    // The script's own shell adds PWD; standard input is at its end.
    assertEquals(result.stdout?.head.split("\n").sort(), ["", "/", "PATH=/usr/bin:/bin", "PWD=/"]);
  });

  await t.step("X8 what waits is judged by the policy that it would start under", async () => {
    const path = bridge.path("bridge.jsonc");
    const policy = Deno.readTextFileSync(path);
    const narrowed = [
      { late: { approval: "always" }, main: {} },
      { late: { class: "mutating" }, main: { scope: "observe" } },
      { late: {}, main: { verbs: ["ok", "hold"] } },
    ];
    for (const [i, { late, main }] of narrowed.entries()) {
      const held = arena.ran().length;
      bridge.submit(`x8-hold-policy-${i}`, { verb: "hold" });
      await until("the holder", () => arena.ran().length > held);
      bridge.submit(`x8-policy-${i}`, { verb: "late" });
      await until("the waiter", () => bridge.result(`x8-policy-${i}`)?.waiting_for === "lock");
      const parsed = JSON.parse(policy);
      Object.assign(parsed.verbs.late, late);
      Object.assign(parsed.agents.main, main);
      Deno.writeTextFileSync(path, JSON.stringify(parsed));
      assertEquals((await bridge.chb("trust", "--yes")).code, 0);
      const before = arena.ran().length;
      Deno.writeTextFileSync(bridge.path("go"), "");
      const result = await bridge.final(`x8-policy-${i}`);
      assertEquals([result.code, result.reason, result.stage], [81, "base-changed", "recheck"]);
      await arena.behind();
      assertEquals(arena.ran().slice(before), ["<ok>"]);
      Deno.writeTextFileSync(path, policy);
      assertEquals((await bridge.chb("trust", "--yes")).code, 0);
    }
    await until("the first policy", () => {
      const text = Deno.readTextFileSync(bridge.path("spool/main/inbox/catalogue.json"));
      return text.includes('"late"');
    });
  });

  await t.step("X8 a program that is not the trusted one any more is not started", async () => {
    const evil = `#!/bin/sh\necho evil >> "${ROOT}/ran"\n`;
    const act: Record<string, (path: string) => void> = {
      emptied: (path) => Deno.truncateSync(path),
      moved: (path) => {
        // Same size, same times, another file.
        const { size, mtime } = Deno.statSync(path);
        Deno.writeTextFileSync(`${path}.new`, evil.padEnd(size, "#"), { mode: 0o755 });
        assertEquals(Deno.statSync(`${path}.new`).size, size);
        Deno.utimeSync(`${path}.new`, mtime ?? 0, mtime ?? 0);
        Deno.renameSync(`${path}.new`, path);
      },
      touched: (path) => {
        // Same size, same file, another content.
        const { size } = Deno.statSync(path);
        Deno.writeTextFileSync(path, evil.padEnd(size, "#"));
        Deno.utimeSync(path, 1, 1);
      },
      rewritten: (path) => Deno.writeTextFileSync(path, evil),
      linked: (path) => {
        Deno.writeTextFileSync(`${path}.evil`, evil, { mode: 0o755 });
        Deno.removeSync(path);
        Deno.symlinkSync(`${path}.evil`, path);
      },
      removed: (path) => Deno.removeSync(path),
      directory: (path) => {
        Deno.removeSync(path);
        Deno.mkdirSync(path);
      },
    };
    assertEquals(Object.keys(act), changes);
    for (const [name, change] of Object.entries(act)) {
      const { line: got } = await arena.runs(`x8-${name}-before`, { verb: name });
      assertEquals(got, "");
      change(`${base}/${name}`);
      await arena.refuses(`x8-${name}`, JSON.stringify({ verb: name }), {
        ...CHANGED,
        message: new RegExp(`base/${name}`),
      });
    }
  });

  await t.step("X8 a required file that changed stops its verb, and only that", async () => {
    const { line: got } = await arena.runs("x8-guarded", { verb: "guarded" });
    assertEquals(got, "<guarded>");
    const path = `${base}/guard.conf`;
    Deno.writeTextFileSync(path, "changed");
    await arena.refuses("x8-guard-gone", '{"verb":"guarded"}', {
      ...CHANGED,
      message: /guard\.conf/,
    });
    Deno.writeTextFileSync(path, "trusted");
    await arena.runs("x8-guard-back", { verb: "guarded" });
  });

  await t.step("X8 a program that changes while its request waits is not started", async () => {
    const path = `${base}/late`;
    const { mtime } = Deno.statSync(path);
    const text = Deno.readTextFileSync(path);
    const held = arena.ran().length;
    bridge.submit("x8-hold", { verb: "hold" });
    await until("the holder", () => arena.ran().length > held);
    bridge.submit("x8-late", { verb: "late" });
    await until("the waiter", () => bridge.result("x8-late")?.waiting_for === "lock");
    Deno.truncateSync(path);
    const before = arena.ran().length;
    Deno.writeTextFileSync(bridge.path("go"), "");
    const late = await bridge.final("x8-late");
    assertEquals([late.code, late.reason, late.stage], [81, "base-changed", "recheck"]);
    assertEquals((await bridge.final("x8-hold")).outcome, "succeeded");
    await arena.behind();
    assertEquals(arena.ran().slice(before), ["<ok>"]);
    // Nothing was bound: once the program is the trusted one again the same request runs.
    Deno.writeTextFileSync(path, text);
    Deno.utimeSync(path, mtime ?? 0, mtime ?? 0);
    bridge.submit("x8-late", { verb: "late" });
    await until("the run", () => bridge.result("x8-late")?.outcome === "succeeded");
    assertEquals(arena.ran().slice(before), ["<ok>", ""]);
  });

  await t.step("X8 a file that becomes a link while its request waits is not used", async () => {
    const held = arena.ran().length;
    bridge.submit("x8-hold-2", { verb: "hold" });
    await until("the holder", () => arena.ran().length > held);
    bridge.submit("x8-reads", { verb: "reads", args: { file: "note" } });
    await until("the waiter", () => bridge.result("x8-reads")?.waiting_for === "lock");
    const path = `${base}/files/note`;
    Deno.removeSync(path);
    Deno.symlinkSync("/etc/passwd", path);
    const before = arena.ran().length;
    Deno.writeTextFileSync(bridge.path("go"), "");
    const result = await bridge.final("x8-reads");
    assertEquals([result.code, result.reason, result.stage], [81, "base-changed", "recheck"]);
    await arena.behind();
    assertEquals(arena.ran().slice(before), ["<ok>"]);
    await arena.refuses("x8-reads-2", '{"verb":"reads","args":{"file":"note"}}', BAD_ARGS);
  });

  await t.step("X8 no program without content or format can be trusted at all", async () => {
    const rows: [string, RegExp][] = [["", /empty/], ["echo evil\n", /#!/], ["\x7fELG", /#!/]];
    for (const [text, message] of rows) {
      Deno.writeTextFileSync(`${base}/text`, text);
      const { code, err } = await bridge.chb("trust", "--yes");
      assertEquals(code, 78, err);
      assertMatch(err, message);
      await arena.refuses(`x8-text-${text.length}`, '{"verb":"text"}', CHANGED);
    }
  });

  auditLines(bridge);
  checkLog(bridge);
});

Deno.test("no ending and no output of a command stops daemon or shim", async (t) => {
  const STUBBORN = `
    trap '' TERM INT HUP
    (trap '' TERM INT HUP; while :; do sleep 0.2; done) &
    ${NOTE_PIDS}
    while :; do sleep 0.2; done`;
  const EARLY = `echo early; (sleep 60; echo late; echo late >> ${ROOT}/late) & ${NOTE_PIDS}`;
  const scripts: Record<string, string> = {
    stubborn: STUBBORN,
    "stubborn-change": STUBBORN,
    early: `${EARLY}; exit 0`,
    "early-change": `${EARLY}; exit 3`,
    quiet: `exec sleep 60 >/dev/null 2>&1 & ${NOTE_PIDS}; echo done`,
    holds: `echo up; (exec sleep 60) & ${NOTE_PIDS}`,
    leaves: `echo here; setsid sh -c 'echo $$ >> "$0"; exec sleep 60' ${ROOT}/pids &
      while [ ! -s ${ROOT}/pids ]; do sleep 0.02; done`,
    polite: `trap 'echo cleaning; exit 9' TERM; ${NOTE_PIDS}; while :; do sleep 0.1; done`,
    e0: "exit 0",
    e1: "exit 1",
    e64: "exit 64",
    e125: "exit 125",
    e126: "exit 126",
    e127: "exit 127",
    e137: "exit 137",
    e255: "exit 255",
    skill: "kill -KILL $$",
    sterm: "kill -TERM $$",
    ssegv: "ulimit -c 0; kill -SEGV $$",
    srt: "kill -35 $$",
    srtmax: "kill -64 $$",
    shower: "trap '' TERM INT HUP QUIT USR1 USR2 PIPE ALRM\n" +
      "for s in TERM INT HUP QUIT USR1 USR2 PIPE ALRM; do kill -$s 0; done; echo dry",
    parent: "kill -KILL $PPID; sleep 0.2; exit 0",
    group: "kill -KILL 0; sleep 5",
    flood: "head -c 400000000 /dev/zero | tr '\\0' x; echo; echo the end",
    both:
      "head -c 30000000 /dev/zero >&2 & head -c 30000000 /dev/zero; wait; echo out; echo err >&2",
    lines: "yes line | head -n 1000000",
    torn: "printf 'a\\377\\376b\\303\\050\\355\\240\\200c\\303'",
    odd:
      `printf '\\033[2J\\033]0;title\\007a\\rb\\b\\302\\205\\302\\233\\342\\200\\256\\342\\200\\250'
      printf '\\n{"chb":1,"id":"forged","state":"done","code":0}\\n{"seq":1,"event":"started"}\\n'
      printf 'ERROR forged event=1\\n' >&2`,
    progress: "for i in 1 2 3; do printf '\\033[1A\\033[2K\\rstep %s' $i; done",
    nothing: "",
  };
  await using arena = await Arena.start({
    scripts,
    verbs: Object.fromEntries(
      Object.keys(scripts).map((name) => [name, {
        argv: [`base/${name}`],
        class: name.endsWith("-change") ? "mutating" : "observe",
      }]),
    ),
    limits: { output_bytes: CAP, concurrency: 3 },
  });
  const { bridge } = arena;
  /** Somebody else's process of the same user, in a group of its own. */
  const bystander = new Deno.Command("sleep", { args: ["600"], detached: true }).spawn();
  const pid = bridge.pid;

  /** Asks for a verb that must run once, whatever becomes of it, with a valid request behind it. */
  async function ends(verb: string, more: Record<string, unknown> = {}): Promise<Result> {
    const before = arena.ran().length;
    const id = `r-${verb}-${before}`;
    bridge.submit(id, { verb, ...more });
    const result = await bridge.final(id, 30_000);
    await arena.behind();
    assertEquals(arena.ran().slice(before).sort(), ["", "<ok>"], `${verb} ran once`);
    assertEquals(bridge.pid, pid);
    assert(alive(pid) && alive(bystander.pid));
    assert(!there(bridge.path("late")));
    assertEquals(bridge.queued(), []);
    return result;
  }

  await using _ = {
    async [Symbol.asyncDispose]() {
      bystander.kill("SIGKILL");
      await bystander.status;
    },
  };

  await t.step("X10 a tree that ignores every polite signal ends with its time limit", async () => {
    for (const verb of ["stubborn", "stubborn-change"]) {
      const result = await ends(verb, { timeout_s: 0.6 });
      assertEquals(
        [result.outcome, result.code, result.reason, result.next],
        ["timed_out", 2, "timed-out", "resend-new-key"],
      );
      const pids = takePids(bridge);
      assertEquals(pids.length, 2);
      await gone(pids);
    }
  });

  await t.step("X10 a command that ends itself in its grace time tells its own code", async () => {
    const result = await ends("polite", { timeout_s: 0.6 });
    assertEquals([result.reason, result.exit_code, result.signal], ["timed-out", 9, null]);
    assertEquals(result.stdout?.head, "cleaning\n");
    takePids(bridge);
  });

  await t.step("X10 situation 8: a cancel mark ends the whole tree", async () => {
    bridge.submit("cancel-me", { verb: "stubborn-change" });
    const pids = await until("the tree", () => {
      const path = bridge.path("pids");
      if (!there(path)) return null;
      return Deno.readTextFileSync(path).split("\n").length > 2 ? takePids(bridge) : null;
    });
    assert(pids.every(alive));
    const [started] = arena.records("cancel-me").filter((r) => r["event"] === "started");
    Deno.writeTextFileSync(bridge.path("state/runs", String(started?.["run"]), "cancel"), "");
    const result = await bridge.final("cancel-me");
    assertEquals([result.outcome, result.code, result.reason], ["cancelled", 3, "cancelled"]);
    await gone(pids);
    await arena.behind();
  });

  await t.step("X11 situation 8: a result does not wait for who holds the pipe", async () => {
    for (const [verb, code] of [["early", 0], ["early-change", 3], ["holds", 0]] as const) {
      const started = performance.now();
      const result = await ends(verb);
      assert(performance.now() - started < 20_000, "it came long before the pipe's end");
      assertEquals([result.exit_code, result.signal, result.state], [code, null, "done"]);
      assertEquals(result.reason, code === 0 ? "ok" : "command-failed");
      assertEquals(result.stdout?.head, verb === "holds" ? "up\n" : "early\n");
      assertEquals(result.stdout?.complete, false, "the output is told as cut");
      await gone(takePids(bridge));
    }
    const result = await ends("quiet");
    assertEquals([result.stdout?.head, result.stdout?.complete], ["done\n", true]);
    for (const left of takePids(bridge)) {
      if (alive(left)) Deno.kill(left, "SIGKILL");
    }
  });

  await t.step("X12 situation 8: nor for one that has left the group", async () => {
    const result = await ends("leaves");
    assertEquals([result.outcome, result.stdout?.head], ["succeeded", "here\n"]);
    assertEquals(result.stdout?.complete, false);
    // A signal to the group cannot reach it; that is what a unit's own group is for.
    const [left] = takePids(bridge);
    if (left !== undefined && alive(left)) Deno.kill(left, "SIGKILL");
  });

  await t.step("X15 exit codes and signals are told apart, whatever they are", async () => {
    const rows: [string, number | null, string | null][] = [
      ["e0", 0, null],
      ["e1", 1, null],
      ["e64", 64, null],
      ["e125", 125, null],
      ["e126", 126, null],
      ["e127", 127, null],
      ["e137", 137, null],
      ["e255", 255, null],
      ["skill", null, "SIGKILL"],
      ["sterm", null, "SIGTERM"],
      ["ssegv", null, "SIGSEGV"],
      ["srt", null, "SIG35"],
      ["srtmax", null, "SIG64"],
    ];
    for (const [verb, code, signal] of rows) {
      const result = await ends(verb);
      assertEquals([result.exit_code, result.signal], [code, signal], verb);
      assertEquals(
        [result.code, result.reason, result.outcome],
        code === 0 ? [0, "ok", "succeeded"] : [1, "command-failed", "failed"],
      );
    }
    const dry = await ends("shower");
    assertEquals([dry.exit_code, dry.stdout?.head], [0, "dry\n"]);
  });

  await t.step("X15 a command that kills its own shim is uncertain and not run again", async () => {
    for (const verb of ["parent", "group"]) {
      const result = await ends(verb);
      assertEquals(
        [result.state, result.code, result.reason, result.next],
        ["uncertain", 90, "uncertain", "ask-human"],
        verb,
      );
      const count = arena.ran().length;
      bridge.submit(result.id, { verb });
      await until("the replay", () => (bridge.result(result.id)?.replays ?? 0) > 0);
      assertEquals([bridge.result(result.id)?.state, arena.ran().length], ["uncertain", count]);
    }
  });

  await t.step("X16 a killed group takes nobody else with it", async () => {
    // Every step above killed groups; this is the last look, with a daemon that still has shims.
    const result = await ends("stubborn-change", { timeout_s: 0.6 });
    assertEquals(result.reason, "timed-out");
    await gone(takePids(bridge));
    assert(alive(bystander.pid) && alive(pid) && processes(bridge.root).length > 1);
  });

  await t.step("X13 situation 9: 400 MB without a newline are counted, not kept", async () => {
    const id = "flooded";
    const before = peak(pid);
    const start = performance.now();
    let shims = 0;
    bridge.submit(id, { verb: "flood" });
    await until("the flood", () => bridge.result(id)?.state === "running");
    assertEquals((await bridge.ask("beside", { verb: "e0" })).outcome, "succeeded");
    const result = await until("its end", () => {
      for (const p of processes(bridge.root)) if (p !== pid) shims = Math.max(shims, peak(p));
      return bridge.result(id)?.state === "done" ? bridge.result(id) : null;
    }, 60_000);
    assertEquals([result.outcome, result.exit_code], ["succeeded", 0], String(start));
    const out = result.stdout;
    assert(out !== undefined);
    assertEquals(out.bytes, 400_000_009);
    assertEquals(out.head, "x".repeat(VIEW_BYTES));
    assertEquals(out.tail.length, VIEW_BYTES);
    assert(out.tail.endsWith("x\nthe end\n"));
    assertEquals(out.dropped_bytes, out.bytes - 2 * VIEW_BYTES);
    assertEquals([out.replaced_bytes, out.file, out.complete], [0, `${id}.stdout`, false]);
    const file = bridge.path("spool/main/results", `${id}.stdout`);
    assertEquals(Deno.statSync(file).size, CAP);
    assertEquals((Deno.statSync(file).mode ?? 0) & 0o777, 0o644, "a sandbox can read it");
    assert(peak(pid) - before < 60 * MIB, `the daemon grew by ${peak(pid) - before} bytes`);
    assert(shims > 0 && shims < 220 * MIB, `a shim had ${shims} bytes`);
    const kept = names(bridge, "state/runs").flatMap((run) =>
      names(bridge, "state/runs", run).filter((n) => n === "stdout").map((n) =>
        Deno.statSync(bridge.path("state/runs", run, n)).size
      )
    );
    assert(kept.every((size) => size <= CAP), kept.join());
  });

  await t.step("X13 both streams may flood at once", async () => {
    const result = await ends("both");
    assertEquals([result.stdout?.bytes, result.stderr?.bytes], [30_000_004, 30_000_004]);
    assert(result.stdout?.tail.endsWith("\0out\n") && result.stderr?.tail.endsWith("\0err\n"));
  });

  await t.step("X13 situation 9: a million short lines are counted to the byte", async () => {
    const result = await ends("lines");
    const out = result.stdout;
    assert(out !== undefined);
    assertEquals([out.bytes, out.dropped_bytes], [5_000_000, 5_000_000 - 2 * VIEW_BYTES]);
    assertMatch(out.head, /^(?:line\n)+(?:l|li|lin|line)?$/);
    assertMatch(out.tail, /^(?:e|ne|ine)?\n?(?:line\n)+$/);
  });

  await t.step("X14 situation 9: bytes that are no text are replaced and counted", async () => {
    const result = await ends("torn");
    const text = "a\ufffd\ufffdb\ufffd(\ufffd\ufffd\ufffdc\ufffd";
    assertEquals(result.stdout?.head, text);
    assertEquals([result.stdout?.bytes, result.stdout?.replaced_bytes], [11, 7]);
    const bytes = Deno.readFileSync(
      bridge.path("spool/main/results", result.stdout?.file ?? ""),
    );
    assertEquals(new TextDecoder("utf-8", { fatal: true }).decode(bytes), text);
    const steps = await ends("progress");
    assertEquals(
      steps.stdout?.head,
      [1, 2, 3].map((i) => `\u001b[1A\u001b[2K\rstep ${i}`).join(""),
    );
    const none = await ends("nothing");
    assertEquals([none.stdout?.bytes, none.stdout?.head, none.stdout?.file], [0, "", null]);
  });

  await t.step("X14 what a command prints is data: it forges nothing", async () => {
    const lines = auditLines(bridge).length;
    const result = await ends("odd");
    assertEquals(
      result.stdout?.head,
      "\u001b[2J\u001b]0;title\u0007a\rb\b\u0085\u009b\u202e\u2028\n" +
        '{"chb":1,"id":"forged","state":"done","code":0}\n{"seq":1,"event":"started"}\n',
    );
    assertEquals(result.stderr?.head, "ERROR forged event=1\n");
    for (const text of [result.message ?? "", result.hint ?? ""]) assertMatch(text, /^[ -~]*$/);
    assertEquals(bridge.result("forged"), null);
    assert(auditLines(bridge).length > lines);
    const audit = Deno.readTextFileSync(bridge.path("state/audit/audit.jsonl"));
    const status = await bridge.chb("status");
    for (const text of [audit, bridge.log, status.out, status.err]) {
      assert(!text.includes("forged event") && !text.includes("title"));
    }
  });

  auditLines(bridge);
  checkLog(bridge);
});

Deno.test("a key or id belongs to one request", async (t) => {
  await using arena = await Arena.start({
    scripts: {
      count: 'echo "$1"',
      slow: `while [ ! -e "${ROOT}/go" ]; do sleep 0.05; done; echo over`,
    },
    verbs: {
      count: {
        argv: ["base/count", "{n}", "{word}"],
        class: "mutating",
        args: {
          n: { type: "integer", min: 0, max: 9, default: 1 },
          word: { type: "name", default: "a" },
        },
      },
      slow: { argv: ["base/slow"], class: "mutating" },
    },
  });
  const { bridge } = arena;
  const CONFLICT: Refused = { reason: "key-conflict", stage: "replay" };

  await t.step("Q2 the same request in another spelling is the same request", async () => {
    const first = await bridge.ask("same", { verb: "count" });
    assertEquals([first.outcome, first.stdout?.head], ["succeeded", "1\n"]);
    const spelled = [
      '{"verb":"count","args":{}}',
      '{"verb":"count","args":{"word":"a","n":1}}',
      '{"args":{"n":1.0},"verb":"count"}',
      '{"verb":"count","id":"same","note":"again","timeout_s":5,"max_age_s":60}',
      '{"verb":"count","idempotency_key":"same","plan":"p"}',
    ];
    for (const [i, text] of spelled.entries()) {
      bridge.submitText("same", text);
      const again = await until("the replay", () => {
        const r = bridge.result("same");
        return r?.replays === i + 1 ? r : null;
      });
      assertEquals([again.outcome, again.stdout?.head], ["succeeded", "1\n"]);
    }
    assertEquals(arena.ran(), ["<1><a>"]);
  });

  await t.step("Q2 another request under a bound id or key is refused", async () => {
    const stored = bridge.result("same");
    const others = [
      { verb: "count", args: { n: 2 } },
      { verb: "count", args: { word: "b" } },
      { verb: "count", scope: "mutating" },
      { verb: "count", max_spend: 1 },
      { verb: "count", idempotency_key: "another" },
      { verb: "ok" },
    ];
    for (const [i, request] of others.entries()) {
      const count = arena.ran().length;
      bridge.submit("same", request);
      // Each replaces the latest refusal of this id; the stored result stays.
      const refused = await until("the refusal", () => {
        const list = arena.records("same").filter((r) => r["event"] === "refused");
        return list.length === i + 1 ? bridge.result("same.refused") : null;
      });
      assertEquals(
        [refused.code, refused.reason, refused.stage, refused.next],
        [86, "key-conflict", "replay", "resend-new-key"],
      );
      assertEquals(arena.ran().length, count);
    }
    assertEquals(bridge.result("same"), stored);
    for (const [i, request] of others.slice(0, 4).entries()) {
      await arena.refuses(
        `key-${i}`,
        JSON.stringify({ ...request, idempotency_key: "same" }),
        CONFLICT,
      );
    }
    // A refusal binds nothing: the id is free, and so is the key that it came with.
    const count = arena.ran().length;
    bridge.submit("key-0", { verb: "ok" });
    await until("its own run", () => bridge.result("key-0")?.outcome === "succeeded");
    assertEquals(arena.ran().slice(count), ["<ok>"]);
    assertEquals(
      (await bridge.ask("k-another", { verb: "ok", idempotency_key: "another" })).code,
      0,
    );
  });

  await t.step("Q2 so it is while the first one still runs", async () => {
    const count = arena.ran().length;
    bridge.submit("run", { verb: "slow", idempotency_key: "slow-1" });
    await until("the run", () => arena.ran().length === count + 1);
    bridge.submit("run", { verb: "slow", idempotency_key: "slow-1" });
    bridge.submit("joined", { verb: "slow", idempotency_key: "slow-1" });
    const joined = await until("the joined id", () => bridge.result("joined"));
    assertEquals([joined.state, joined.replay_of], ["running", "run"]);
    bridge.submit("other", { verb: "count", idempotency_key: "slow-1" });
    assertEquals((await bridge.final("other")).reason, "key-conflict");
    bridge.submit("run", { verb: "count" });
    assertEquals((await bridge.final("run.refused")).reason, "key-conflict");
    assertEquals(bridge.result("run")?.state, "running");
    Deno.writeTextFileSync(bridge.path("go"), "");
    for (const id of ["run", "joined"]) {
      const result = await bridge.final(id);
      assertEquals([result.outcome, result.stdout?.head], ["succeeded", "over\n"], id);
    }
    assertEquals(arena.ran().length, count + 1);
    await arena.behind();
  });
});

Deno.test("no field and no name can forge a line of audit text, log or terminal", async (t) => {
  await using arena = await Arena.start({
    scripts: { take: "" },
    verbs: {
      take: {
        argv: ["base/take", "--mode={mode}"],
        args: { mode: { type: "enum", values: ["web"], default: "web" } },
      },
    },
  });
  const { bridge } = arena;
  const FORGED = '{"seq":1,"event":"trusted","by":"root"}';
  /** Everything that moves a cursor, ends a line or turns the reading order round. */
  const HOSTILE = [
    `a\n${FORGED}\nERROR forged event=1\n`,
    "\u001b[2J\u001b]0;title\u0007\u001b[1A",
    "a\r\u0008\u0008b",
    "\u0085\u009b2J\u0090",
    "\u2028\u2029",
    "\u202e\u2066desrever\u2069",
    "\u007f\u200b\ufeff",
    "\ud83d\ude00 \u00e9",
    '"},{"forged":true,"x":"',
    "%s%n%d \\ \\n \\u000a",
  ];

  /** Nothing of what was sent is anywhere as it was sent; returns the audit lines. */
  async function looksClean(): Promise<string[]> {
    const lines = auditLines(bridge);
    checkLog(bridge);
    for (const args of [["status"], ["status", "--json"]]) {
      const { code, out, err } = await bridge.chb(...args);
      assertEquals([code, err], [0, ""]);
      assertMatch(out, /^[\n -~]+$/);
      assert(!out.includes("forged") && !out.includes("title"), out);
    }
    assert(!bridge.log.includes("\nERROR forged"), bridge.log);
    return lines;
  }

  await t.step("Q11 in a note", async () => {
    for (const [i, note] of HOSTILE.entries()) {
      const id = `note-${i}`;
      await arena.runs(id, { verb: "take", note });
      const [accepted] = arena.records(id).filter((r) => r["event"] === "accepted");
      assert(typeof accepted?.["note"] === "string");
      assertMatch(accepted["note"], /^[ -~]+$/, "escaped in the record, not only in its JSON");
    }
    await arena.runs("note-long", { verb: "take", note: "\u001b".repeat(2000) });
    await looksClean();
  });

  await t.step("Q11 in a verb, a scope, an id or a key", async () => {
    for (const [i, text] of HOSTILE.entries()) {
      await arena.refuses(`verb-${i}`, JSON.stringify({ verb: text }), {
        reason: "unknown-verb",
        stage: "allow",
      });
      for (const field of ["scope", "id", "idempotency_key"]) {
        const id = `${field.slice(0, 4)}-${i}`;
        await arena.refuses(id, JSON.stringify({ verb: "ok", [field]: text }), SCHEMA);
      }
      await arena.refuses(
        `field-${i}`,
        JSON.stringify({ verb: "ok", [text]: text }),
        SCHEMA,
      );
    }
    await looksClean();
  });

  await t.step("Q11 in the name or value of an argument", async () => {
    for (const [i, text] of HOSTILE.entries()) {
      await arena.refuses(
        `arg-${i}`,
        JSON.stringify({ verb: "take", args: { [text]: text } }),
        BAD_ARGS,
      );
      await arena.refuses(
        `value-${i}`,
        JSON.stringify({ verb: "take", args: { mode: text } }),
        BAD_ARGS,
      );
    }
    await looksClean();
  });

  await t.step("Q11 P18 in the name of a file", async () => {
    const before = arena.ran().length;
    const notes = bridge.refused().length;
    const records = auditLines(bridge).length;
    const files = [...HOSTILE, "--help", "$(id)", "-rf *", "a'b\"c"].map((text) =>
      `${text.replaceAll("/", "|").slice(0, 100)}.json`
    );
    for (const name of files) {
      Deno.writeTextFileSync(bridge.queue(name), '{"verb":"take"}');
      await arena.behind();
    }
    const told = await until("the notes", () => {
      const list = bridge.refused().slice(notes);
      return list.length === files.length ? list : null;
    });
    for (const note of told) {
      assertEquals([note["reason"], note["stage"]], ["bad-name", "name"]);
      assertMatch(JSON.stringify(note), /^[ -~]+$/);
    }
    const dir = bridge.path("spool/main/inbox/refused");
    for (const { name } of Deno.readDirSync(dir)) {
      assertMatch(Deno.readTextFileSync(`${dir}/${name}`), /^[ -~]+\n$/);
    }
    assertEquals(new Set(told.map((n) => n["name"])).size, files.length, "each under its name");
    const refused = bridge.audit().slice(records).filter((r) => r["event"] === "refused");
    assertEquals(refused.length, files.length, "one record each");
    assertEquals(bridge.queued(), []);
    assertEquals(arena.ran().slice(before), files.map(() => "<ok>"));
    const lines = await looksClean();
    assertNotEquals(lines.length, records);
  });

  await t.step("Q11 P16 in the name of an entry that nobody can take away", async () => {
    // Not UTF-8, so the runtime has no name for it: made and removed by a shell.
    const shell = async (cwd: string, script: string) => {
      const { success } = await new Deno.Command("sh", { args: ["-c", script], cwd }).output();
      assert(success);
    };
    await shell(
      bridge.path("spool/main/queue"),
      `printf '{"verb":"take"}' > "$(printf 'x\\nERROR forged event=1\\033[2J\\377.json')"`,
    );
    await arena.behind();
    if (bridge.queued().length === 0) {
      // Older runtimes leave such names out of a listing: nobody can tell of what nobody sees.
      auditLines(bridge);
      checkLog(bridge);
      return await shell(bridge.path("spool/main/queue"), "rm -- x*");
    }
    const stuck = await until("a stuck entry", () => {
      const report = bridge.status()?.["stuck"] as { count: number; commands: string[] };
      return report.count > 0 ? report : null;
    });
    assertMatch(JSON.stringify(stuck), /^[ -~]*$/);
    const told = bridge.log.split("\n").filter((line) => line.includes("forged event"));
    assertEquals(told.length, 1, "told once");
    assertMatch(told[0] ?? "", /^WARN stuck /);
    auditLines(bridge);
    checkLog(bridge);
    const [command] = stuck.commands;
    assert(command !== undefined);
    await shell(bridge.root, command);
    assertEquals(bridge.queued(), [], "the command that it tells takes it away");
    await arena.behind();
  });
});
