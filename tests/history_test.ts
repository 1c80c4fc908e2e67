/**
 * What people look back and on with: `chb history`, `show` of what ended or was refused, `status
 * --watch`, and the completions of three shells.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { runHuman } from "../src/human/run_human.ts";
import { sinceOption } from "../src/human/since_option.ts";
import { lines, type Watched } from "../src/human/status_watch.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import { TestBridge, until, verb } from "./helpers/bridge.ts";
import { fillPast, PAST_END } from "./helpers/report_ledger.ts";

interface Line {
  readonly kind: string;
  readonly agent: string;
  readonly id: string | null;
  readonly verb: string | null;
  readonly outcome: string | null;
  readonly state: string;
  readonly received_at: string;
}

async function history(bridge: TestBridge, ...words: string[]): Promise<Line[]> {
  const { code, out, err } = await bridge.chb("history", "--json", ...words);
  assertEquals(code, 0, err);
  // Notes and arguments of agents are in it, and a person may look at it.
  assert(/^[\n\x20-\x7e]*$/.test(out), "only printable ASCII");
  return out.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line));
}

function shell(program: string): { ignore: boolean; skip: string } {
  try {
    Deno.statSync(`/usr/bin/${program}`);
    return { ignore: false, skip: "" };
  } catch {
    return { ignore: true, skip: ` # SKIP ${program} is not installed` };
  }
}

Deno.test("--since takes ages and times, and nothing that only looks like one", () => {
  const since = (word: string) =>
    sinceOption({ positional: [], flags: {}, json: false, options: { since: word } }, PAST_END);
  assertEquals(since("90m"), PAST_END - 90 * 60_000);
  assertEquals(since("7d"), PAST_END - 7 * 86_400_000);
  assertEquals(since("2026-03-01"), Date.parse("2026-03-01T00:00:00Z"));
  assertEquals(since("2026-03-01T08:30"), Date.parse("2026-03-01T08:30:00Z"));
  assertEquals(since("2026-03-01 08:30:15+02:00"), Date.parse("2026-03-01T06:30:15Z"));
  for (const word of ["yesterday", "7", "-7d", "7y", "2026-13-01", "2026-03-01T", "1e3s"]) {
    let said = "";
    try {
      since(word);
    } catch (error) {
      said = (error as Error).message;
    }
    assertMatch(said, /^--since takes an age such as/, word);
  }
});

Deno.test("chb history lists requests and refusals once each, narrowed by every filter, and show tells of each", async () => {
  await using bridge = await TestBridge.make({ verbs: { observe: verb(["/usr/bin/true"]) } });
  const path = bridge.path("state/ledger.db");
  const text = bridge.path("state/audit/audit.jsonl");
  fillPast(path, text, { rows: 300, refusals: 60, end: PAST_END, span_ms: 86_400_000 });
  // One that had waited and was turned down then: a row, and a record that says so.
  {
    using ledger = Ledger.open(path, { now: () => PAST_END, mode: "writer" });
    const row = ledger.rowById("main", "job-298") ?? ledger.rowById("ci", "job-298");
    assert(row !== null);
    ledger.transaction((tx) => {
      tx.release(row.rid);
      tx.updateRow(row.rid, { state: "done", outcome: "rejected", reason: "killed", pub: 2 });
      tx.append({
        event: "refused",
        agent: row.agent,
        id: row.id,
        stage: "recheck",
        reason: "killed",
        released: true,
      });
    });
  }
  const all = await history(bridge, "--limit", "1000");
  assertEquals(all.length, 360);
  assertEquals(all.filter((e) => e.kind === "refusal").length, 60);
  assertEquals(all.filter((e) => e.id === "job-298").map((e) => e.outcome), ["rejected"]);
  const times = all.map((e) => e.received_at);
  assertEquals(times, times.toSorted().reverse());
  assertEquals(
    new Set(all.map((e) => `${e.kind} ${e.agent}/${e.id} ${e.received_at}`)).size,
    360,
  );

  const failed = await history(bridge, "--outcome", "failed", "--verb", "ps", "--limit", "1000");
  assertEquals(failed, all.filter((e) => e.outcome === "failed" && e.verb === "ps"));
  assert(failed.length > 0);
  const since = new Date(PAST_END - 6 * 3_600_000).toISOString();
  assertEquals(
    await history(bridge, "--since", since, "--limit", "1000"),
    all.filter((e) => e.received_at >= since),
  );
  assertEquals((await history(bridge, "--outcome", "running")).map((e) => e.id), ["job-299"]);

  const { out, err } = await bridge.chb("history", "--limit", "40");
  assertEquals(out.trimEnd().split("\n").length, 40);
  assertStringIncludes(err, "There are more: these are the newest 40");
  assert(/^[\n\x20-\x7e]*$/.test(out), "only printable ASCII");
  assertEquals((await bridge.chb("history", "--outcome", "fine")).code, 64);

  const released = all.find((e) => e.id === "job-298");
  const shown = (await bridge.chb("show", `${released?.agent}/job-298`)).out;
  assertStringIncludes(shown, "code     80 killed");
  assertMatch(shown, /^ {2}\d+ \S+ refused stage=recheck reason=killed released=true$/m);
  const refused = all.find((e) => e.kind === "refusal" && e.id !== null);
  const told = await bridge.chb("show", `${refused?.agent}/${refused?.id}`);
  assertEquals(told.code, 0);
  assertStringIncludes(told.out, "nothing of it was accepted");
  assertMatch(told.out, /refused .*stage=\S+ reason=\S+/);
  const none = await bridge.chb("show", "main/never");
  assertEquals(none.code, 1);
  assertStringIncludes(none.err, "./bin/chb history");
});

Deno.test("beside a daemon: show tells how a run went, and status --watch prints what changes until it is ended", async () => {
  await using bridge = await TestBridge.start({
    verbs: { speak: verb(["base/speak"], { requires: ["base/speak"] }) },
    scripts: { speak: "#!/bin/sh\nprintf 'one\\033[2J\\ntwo\\n'; exit 3\n" },
  });
  const child = new Deno.Command("./bin/chb", {
    args: ["status", "--watch"],
    cwd: bridge.root,
    stdin: "null",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  let said = "";
  const reading = (async () => {
    for await (const chunk of child.stdout) said += new TextDecoder().decode(chunk);
  })();
  await until("the first look", () => said.includes("serving"));
  const result = await bridge.ask("s1", { verb: "speak" });
  assertEquals([result.outcome, result.exit_code], ["failed", 3]);
  await until("the change", () => said.includes("main/s1"));
  child.kill("SIGINT");
  assertEquals((await child.status).code, 0);
  await reading;
  // Printed once each, with nothing that draws.
  assertEquals(said.split("main/s1").length, 2, said);
  assert(!said.includes("\x1b"));

  const { out } = await bridge.chb("show", "main/s1");
  assertStringIncludes(out, "code     1 command-failed, the command exited with 3");
  assertMatch(out, /^stdout, \d+ bytes:\n\| one\\u001b\[2J\n\| two$/m);
  for (const event of ["accepted", "started", "finished"]) {
    assertMatch(out, new RegExp(`^ {2}\\d+ \\S+Z ${event} `, "m"));
  }
  assert(!out.includes("\x1b"));
});

const terminal = shell("script");
Deno.test({
  name: "status --watch at a terminal draws on the second screen, and gives it back on q" +
    terminal.skip,
  ignore: terminal.ignore,
  fn: async () => {
    await using bridge = await TestBridge.make();
    const child = new Deno.Command("timeout", {
      args: [
        "60",
        "script",
        "-qec",
        "stty rows 20 cols 60; ./bin/chb status --watch; stty -a",
        "/dev/null",
      ],
      cwd: bridge.root,
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    let said = "";
    const keys = child.stdin.getWriter();
    const reading = (async () => {
      for await (const chunk of child.stdout) said += new TextDecoder().decode(chunk);
    })();
    await until("the screen", () => said.includes("q leaves"));
    await keys.write(new TextEncoder().encode("q"));
    await until("the terminal's settings", () => /echoctl/.test(said));
    await keys.close().catch(() => {});
    await child.status;
    await reading;
    const at = said.indexOf("\x1b[?1049h");
    const left = said.indexOf("\x1b[?1049l");
    assert(at >= 0 && left > at);
    assert(said.lastIndexOf("\x1b[?25h") > said.lastIndexOf("\x1b[?25l"));
    // One drawing for one state of things, and the terminal reads lines and echoes again.
    assertEquals(said.split("NOT SERVING").length, 2);
    assertMatch(said.slice(left), /[^-]icanon/);
    assertMatch(said.slice(left), /[^-]echo\b/);
  },
});

Deno.test("what status --watch draws fits the screen, whatever agents wrote and however much waits", () => {
  const row = (n: number) => ({
    rid: n,
    agent: "main",
    id: `id-${n}`.padEnd(64, "x"),
    verb: "v",
    class: "observe" as const,
    state: "pending" as const,
    outcome: null,
    reason: null,
    args: "{}",
    note: null,
    received_ms: PAST_END,
    started_ms: PAST_END,
    finished_ms: null,
    attempt: 1,
    replays: 0,
    stage: null,
    exit_code: null,
    signal: null,
  });
  const rows = Array.from({ length: 40 }, (_, n) => row(n));
  const seen: Watched = {
    serving: true,
    switches: [{ name: "KILL.main", why: "because" }],
    trusted: true,
    counts: { running: 40, pending: 90_000, uncertain: 2, approvals: 1 },
    running: rows,
    waiting: rows.map((r) => ({ row: r, for: "your word" })),
    recent: rows.map((r) => ({
      kind: "refusal",
      ...r,
      id: null,
      name: "\x1b[2J\n../x",
      verb: "\u202e",
    })),
    stages: [["args", 99]],
    spend: [],
  };
  for (const [width, height] of [[80, 24], [40, 10], [20, 3], [200, 60]] as const) {
    const drawn = lines(seen, width, height);
    assert(drawn.length <= height, `${width}x${height}: ${drawn.length}`);
    for (const line of drawn) assert(line.length <= width && !/[^\x20-\x7e]/.test(line), line);
  }
  const drawn = lines(seen, 80, 24).join("\n");
  for (const word of ["KILL.main is up", "and 899", "Running", "Waiting", "Newest"]) {
    assertStringIncludes(drawn, word);
  }
});

/** What a command says that needs no root. */
async function said(...argv: string[]): Promise<{ code: number; out: string }> {
  let out = "";
  const code = await runHuman(argv, {
    out: (text) => void (out += text),
    err: () => {},
    stdin: () => new Uint8Array(),
    ask: () => null,
  });
  return { code, out };
}

/** What a shell offers, after the script was loaded from a root with a past. */
async function offers(bridge: TestBridge, program: string, args: string[]): Promise<string[]> {
  const { code, stdout, stderr } = await new Deno.Command(`/usr/bin/${program}`, {
    args,
    cwd: bridge.root,
    env: { HOME: bridge.root, XDG_CONFIG_HOME: bridge.root, XDG_DATA_HOME: bridge.root },
    stdin: "null",
  }).output();
  assertEquals([code, new TextDecoder().decode(stderr)], [0, ""], args.join(" "));
  return new TextDecoder().decode(stdout).split("\n").filter((line) => line !== "");
}

/** The line to complete, and what has to be among the offers and what not. */
const LINES: readonly (readonly [string[], string[], string[]])[] = [
  [["hi"], ["history"], ["kill"]],
  [["history", "--out"], ["--outcome"], ["--reason"]],
  [["history", "--outcome", "fa"], ["failed"], ["succeeded"]],
  [["history", "--verb", ""], ["ps", "deploy"], ["--verb"]],
  [["show", "main/job-1"], ["main/job-17"], ["main/no-1"]],
  [["audit", ""], ["verify", "tail"], ["bash"]],
  [["kill", "--reason", ""], [], ["main", "verify"]],
];

/** How each shell is asked, in its own words. */
const SHELLS: Readonly<Record<string, (words: readonly string[]) => string[]>> = {
  bash: (words) => [
    "--norc",
    "-c",
    'source ./completions; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); ' +
    '_chb; for w in "${COMPREPLY[@]}"; do printf "%s\\n" "$w"; done',
    "bash",
    "./bin/chb",
    ...words,
  ],
  // Without a line editor: what it would add is printed, the prefix is left to the editor.
  zsh: (words) => [
    "-f",
    "-c",
    "autoload() { :; }; compdef() { :; }; source ./completions; " +
    'compadd() { shift; for w in "$@"; do [[ $w == ${words[CURRENT]}* ]] && print -r -- $w; done; true }; ' +
    "_describe() { for w in $commands; do [[ $w == ${words[CURRENT]}* ]] && print -r -- ${w%%:*}; done; true }; " +
    'words=("$@"); CURRENT=$#; _chb; true',
    "zsh",
    "./bin/chb",
    ...words,
  ],
  fish: (words) => [
    "--no-config",
    "-c",
    `source ./completions; complete -C './bin/chb ${words.join(" ")}' | string split -f1 \\t; true`,
  ],
};

for (const [program, ask] of Object.entries(SHELLS)) {
  const { ignore, skip } = shell(program);
  Deno.test({
    name:
      `chb completions ${program}, loaded by ${program}, offers commands, options and names${skip}`,
    ignore,
    fn: async () => {
      await using bridge = await TestBridge.make({ verbs: { observe: verb(["/usr/bin/true"]) } });
      fillPast(bridge.path("state/ledger.db"), bridge.path("state/audit/audit.jsonl"), {
        rows: 40,
        refusals: 8,
        end: PAST_END,
        span_ms: 86_400_000,
      });
      Deno.writeTextFileSync(bridge.path("completions"), (await said("completions", program)).out);
      for (const [words, wanted, unwanted] of LINES) {
        const offered = await offers(bridge, program, ask(words));
        for (const word of wanted) {
          assert(offered.includes(word), `${words}: ${word} in ${offered}`);
        }
        for (const word of unwanted) assert(!offered.includes(word), `${words}: ${word}`);
      }
    },
  });
}

Deno.test("chb completions knows every command that chb --help lists, and refuses another shell", async () => {
  const listed = [...(await said("--help")).out.matchAll(/^ {2}([a-z-]+) {2,}/gm)].map((m) => m[1]);
  const { out } = await said("completions", "fish");
  const completed = [...out.matchAll(/-n __fish_use_subcommand -a ([a-z-]+)/g)].map((m) => m[1]);
  assertEquals(completed.toSorted(), listed.toSorted());
  assert(completed.includes("serve") && completed.includes("completions"));
  assertEquals((await said("completions", "csh")).code, 64);
  assertEquals((await said("completions")).code, 64);
});
