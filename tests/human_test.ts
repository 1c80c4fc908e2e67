import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import type { Io } from "../src/human/command.ts";
import { initScript, STARTER_POLICY } from "../src/human/init.ts";
import { mountLines } from "../src/human/mounts.ts";
import { parseCommandLine, runHuman } from "../src/human/run_human.ts";
import { GENERIC_PROGRAMS } from "../src/permissions.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import { policyPrograms } from "../src/policy/programs.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

function recorder(): Io & { text: { out: string; err: string } } {
  const text = { out: "", err: "" };
  return {
    text,
    out: (t) => void (text.out += t),
    err: (t) => void (text.err += t),
    stdin: () => new Uint8Array(),
    ask: () => null,
  };
}

async function run(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  const io = recorder();
  const code = await runHuman(argv, io);
  return { code, ...io.text };
}

const NAMES = [
  "init",
  "check",
  "trust",
  "status",
  "history",
  "report",
  "pending",
  "show",
  "approve",
  "deny",
  "doctor",
  "kill",
  "resume",
  "schema",
  "mounts",
  "unit",
  "permissions",
  "completions",
  "key",
  "version",
];

Deno.test("chb --help lists every command in 80 columns", async () => {
  const { code, out } = await run("--help");
  assertEquals(code, 0);
  for (const name of [...NAMES, "serve", "once"]) {
    assertEquals(out.match(new RegExp(`^  ${name} `, "gm"))?.length, 1, name);
  }
  // Under the title that it belongs to.
  assertMatch(out, /^Stop everything:\n {2}kill .*\n {2}resume .*\n\n/m);
  assertMatch(out, /^The program:\n(?: {2}\S+ .*\n)* {2}version .*\n/m);
  for (const line of out.split("\n")) assert(line.length <= 100, line);
});

for (const name of NAMES) {
  Deno.test(`chb ${name} --help has usage and an example, and does nothing else`, async () => {
    const { code, out, err } = await run(name, "--help");
    assertEquals([code, err], [0, ""]);
    assertStringIncludes(out, `Usage: chb ${name}`);
    assertMatch(out, /Example:\n {2}\S/);
  });

  Deno.test(`chb ${name} refuses an unknown option with exit 64`, async () => {
    const { code, err } = await run(name, "--no-such-option");
    assertEquals(code, 64);
    assertStringIncludes(err, `chb ${name} --help`);
  });
}

Deno.test("chb without a command, and with an unknown one, is a usage error", async () => {
  assertEquals((await run()).code, 64);
  const { code, err } = await run("frobnicate");
  assertEquals(code, 64);
  assertStringIncludes(err, "frobnicate");
});

Deno.test("parseCommandLine() takes a dash for standard input as a value and as a word", () => {
  const command = { name: "x", flags: ["yes"], options: ["unit"] };
  const parse = (...words: string[]) => {
    const { options, positional } = parseCommandLine(command, words);
    return [options, positional];
  };
  assertEquals(parse("--unit", "-"), [{ unit: "-" }, []]);
  assertEquals(parse("--unit=-", "-"), [{ unit: "-" }, ["-"]]);
  assertEquals(parse("--yes", "-"), [{}, ["-"]]);
});

Deno.test("parseCommandLine() keeps flags, options and words apart", () => {
  const parsed = parseCommandLine(
    { name: "x", flags: ["yes"], options: ["by"] },
    ["a", "--yes", "--by", "me", "--json", "--", "--b"],
  );
  assertEquals(parsed, {
    positional: ["a", "--b"],
    flags: { yes: true },
    options: { by: "me" },
    json: true,
  });
});

Deno.test("chb version --json names protocol, build and reference", async () => {
  const { code, out } = await run("version", "--json");
  assertEquals(code, 0);
  const facts = JSON.parse(out);
  assertEquals([facts.protocol, facts.requirement_ids], [1, "own"]);
  assert(["jsr", "fallback"].includes(facts.std));
  assertMatch(facts.version, /^\d+\.\d+\.\d+$/);
});

Deno.test("chb schema prints each schema by its name and refuses others", async () => {
  const { out } = await run("schema");
  const all = JSON.parse(out);
  for (const name of Object.keys(all)) {
    assertEquals(JSON.parse((await run("schema", name)).out), all[name]);
  }
  assertEquals((await run("schema", "constructor")).code, 64);
});

Deno.test("mountLines() gives each role a mount of its own, only queue writable", () => {
  const docker = mountLines("docker", "/r o", "main", false);
  assertEquals(docker, [
    "-v '/r o/spool/main/queue':/chb/queue:rw",
    "-v '/r o/spool/main/results':/chb/results:ro",
    "-v '/r o/spool/main/inbox':/chb/inbox:ro",
  ]);
  assertEquals(mountLines("podman", "/r", "a", true), [
    "--userns=keep-id",
    "-v /r/spool/a/queue:/chb/queue:rw,z",
    "-v /r/spool/a/results:/chb/results:ro,z",
    "-v /r/spool/a/inbox:/chb/inbox:ro,z",
  ]);
  assertEquals(
    mountLines("bwrap", "/r", "a", false)[1],
    "--ro-bind /r/spool/a/results /chb/results",
  );
  assertEquals(
    mountLines("compose", "/r", "a", false).filter((l) => l.includes("read_only")).length,
    2,
  );
  const dev = mountLines("devcontainer", "/r", "a", false).join("\n");
  assertEquals(JSON.parse(`{${dev}}`).mounts.length, 3);
});

Deno.test("the starter policy is valid as it stands", () => {
  const parsed = parsePolicy(new TextEncoder().encode(STARTER_POLICY));
  assert(parsed.ok, JSON.stringify(parsed));
  assertEquals([...parsed.policy.verbs.keys()], ["date"]);
  // The executable is there before the policy, and may run it.
  for (const program of policyPrograms(parsed.policy)) assert(GENERIC_PROGRAMS.includes(program));
});

async function sh(script: string, cwd: string, env: Record<string, string> = {}) {
  const { code, stdout, stderr } = await new Deno.Command("/bin/sh", {
    args: ["-c", script],
    cwd,
    env,
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  return { code, out: text.decode(stdout), err: text.decode(stderr) };
}

Deno.test("the init script refuses below a repository and in a temporary directory", async () => {
  const dir = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-init-" }));
  try {
    const script = initScript(null);
    const temporary = await sh(script, dir);
    assertEquals(temporary.code, 78);
    assertStringIncludes(temporary.err, "temporary directory");
    assertStringIncludes(temporary.err, "directory elsewhere");
    Deno.mkdirSync(join(dir, ".git"));
    Deno.mkdirSync(join(dir, "deep"));
    const repository = await sh(script, join(dir, "deep"), { CHB_INIT_ANYWHERE: "1" });
    assertEquals(repository.code, 78);
    assertStringIncludes(repository.err, "git repository");
    assertEquals([...Deno.readDirSync(join(dir, "deep"))].length, 0);
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});

Deno.test("the init script installs the executable it is told, with a name that a shell could misread", async () => {
  const dir = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-init-" }));
  try {
    const exe = join(dir, "it's $(touch pwned) chb");
    Deno.writeTextFileSync(exe, "#!/bin/sh\necho mounts\n");
    Deno.chmodSync(exe, 0o755);
    const root = join(dir, "root");
    Deno.mkdirSync(root);
    const made = await sh(initScript(exe), root, { CHB_INIT_ANYWHERE: "1" });
    assertEquals(made.code, 0, made.err);
    assertEquals((Deno.statSync(join(root, "bin/chb")).mode ?? 0) & 0o777, 0o555);
    assertEquals(there(join(root, "pwned")), false);
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});

Deno.test("the init script makes what the start-up checks want, and overwrites nothing", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const before = Deno.readTextFileSync(bridge.path("bridge.jsonc"));
  const again = await sh(initScript(null), bridge.root, { CHB_INIT_ANYWHERE: "1" });
  assertEquals(again.code, 0, again.err);
  assertStringIncludes(again.out, "kept bridge.jsonc");
  assertEquals(Deno.readTextFileSync(bridge.path("bridge.jsonc")), before);
  assertMatch(await bridge.serve(), /^chb: ready root=/);
});

Deno.test("chb check tells every error at once, with path and hint, and exits 78", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const policy =
    '{ "agents": { "main": { "verbs": ["x"] } },\n "verbs": { "x": { "argv": ["sh"] } } }';
  const { code, err } = await bridge.chbWith(policy, "check", "-");
  assertEquals(code, 78);
  for (const what of ['"class" is missing', '"timeout_s" is missing', "3 errors"]) {
    assertStringIncludes(err, what);
  }
  const json = await bridge.chbWith(policy, "check", "-", "--json");
  assertEquals(JSON.parse(json.out).ok, false);
  const syntax = await bridge.chbWith('{\n  "agents": }', "check", "-");
  assertMatch(syntax.err, /bridge\.jsonc:2:13/);
});

Deno.test("chb check names a program that the executable cannot run, with the command that grants it", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const policy = JSON.stringify({
    agents: { main: { verbs: ["x"] } },
    verbs: { x: { description: "d", class: "observe", argv: ["/usr/bin/id"], timeout_s: 1 } },
  });
  const { code, err } = await bridge.chbWith(policy, "check", "-");
  assertEquals(code, 78);
  assertStringIncludes(err, `chb --root ${bridge.root} check`);
});

Deno.test("chb check's command for a program that cannot be run works as printed", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const policy = {
    agents: { main: { verbs: ["x", "y"] } },
    verbs: { x: verb(["/usr/bin/id"]), y: verb(["/usr/bin/env-of-nobody"]) },
  };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  const first = await bridge.chb("check");
  assertEquals(first.code, 78);
  const commands = first.err.split("\n").filter((l) => l.startsWith("    npx "));
  assertEquals(commands.length, 1, first.err);
  const command = commands[0]?.replace(/^ *npx -y deno@\S+/, Deno.execPath()) ?? "";
  const mended = await sh(command, "/", { ...Deno.env.toObject(), NO_COLOR: "1" });
  assert(!mended.err.includes("program-not-granted"), mended.err);
  assertStringIncludes(mended.err, "/usr/bin/env-of-nobody is missing");
});

Deno.test("chb check warns of an agent whose kill switch the shims could not see, with what mends it", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const verbs = { x: verb(["/usr/bin/true"]) };
  const agents = { main: { verbs: ["x"] }, other: { verbs: ["x"] } };
  const { code, out, err } = await bridge.chbWith(JSON.stringify({ agents, verbs }), "check", "-");
  assertEquals([code, out.endsWith("ok\n")], [0, true], err);
  assertMatch(
    err,
    /^warning: \.\/state\/KILL\.other: .*\[program-not-granted\]\n {4}npx .* check$/m,
  );
  assert(!err.includes("KILL.main"), err);
});

Deno.test("a program that is trusted beside a running daemon waits for its next start, and all say so", async () => {
  await using bridge = await TestBridge.make({ programs: ["/usr/bin/id", "/usr/bin/true"] });
  // The daemon starts without what is granted to the commands after it.
  const path = bridge.path("bin/chb");
  const all = Deno.readTextFileSync(path);
  Deno.removeSync(path);
  Deno.writeTextFileSync(path, all.replaceAll("/usr/bin/id,", ""), { mode: 0o555 });
  await bridge.serve();
  Deno.removeSync(path);
  Deno.writeTextFileSync(path, all, { mode: 0o555 });
  Deno.writeTextFileSync(
    bridge.path("bridge.jsonc"),
    JSON.stringify({
      agents: { main: { verbs: ["id", "true"] } },
      verbs: { id: verb(["/usr/bin/id"]), true: verb(["/usr/bin/true"]) },
    }),
  );
  assertMatch((await bridge.chb("status")).out, /^bridge\.jsonc differs from it: /m);
  const trusted = await bridge.chb("trust", "--yes");
  assertEquals(trusted.code, 0, trusted.err);
  assertMatch(trusted.out, /may not run \/usr\/bin\/id yet: end/);
  const before = await bridge.ask("r1", { verb: "id" });
  assertEquals([before.code, before.stage], [81, "base"]);
  assertMatch(before.hint ?? "", /starts it again/);
  assertEquals((await bridge.ask("r2", { verb: "true" })).code, 0);
  assertMatch(bridge.log, /WARN restart-needed programs=\/usr\/bin\/id /);
  assertStringIncludes((await bridge.chb("status")).out, "next start:\n  /usr/bin/id\n");
  await bridge.stop();
  await bridge.serve();
  assertEquals((await bridge.ask("r3", { verb: "id" })).code, 0);
  const { out } = await bridge.chb("status");
  assert(!out.includes("next start") && !out.includes("differs"), out);
});

Deno.test("chb status tells since when the daemon runs, whatever was trusted since, and what stops it", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const fresh = await bridge.chb("status");
  assertEquals([fresh.code, fresh.err], [69, ""]);
  assertStringIncludes(fresh.out, "nothing was trusted yet: ./bin/chb trust, then serve\n");
  await bridge.serve();
  const since = async () =>
    JSON.parse((await bridge.chb("status", "--json")).out).daemon.started_at;
  const first = await since();
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  assertEquals(await since(), first);
  Deno.writeTextFileSync(bridge.path("state/KILL"), "");
  assertStringIncludes((await bridge.chb("status")).out, "./bin/chb resume\n");
});

Deno.test("a command that finds the lock held by nobody who serves does its work as soon as it is free", async () => {
  await using bridge = await TestBridge.make();
  const state = Deno.openSync(bridge.path("state"), { read: true });
  using _ = state;
  state.lockSync(true);
  const told = bridge.chb("tell", "Are you there?", "--json");
  const lost = bridge.chb("ledger", "accept-loss", "--reason", "a test");
  await until("its question", () => [...Deno.readDirSync(bridge.path("state/control"))].length > 0);
  state.unlockSync();
  const began = performance.now();
  const { code, out, err } = await told;
  assertEquals(code, 0, err);
  assert(performance.now() - began < 10_000, "nobody was waited for");
  assertEquals(JSON.parse(out).n, 1, out);
  assertEquals([...Deno.readDirSync(bridge.path("state/control"))], []);
  assertStringIncludes((await lost).err, "nothing is lost");
  const { out: replies } = await bridge.chb("replies");
  assertEquals(replies.split("Are you there?").length, 2, replies);

  // Who only looks is no daemon for anybody else who looks.
  state.lockSync(false);
  assertEquals((await bridge.chb("status")).code, 69);
  assertStringIncludes((await bridge.chb("doctor")).out, "[not-serving]");
});

Deno.test("commands outside a root say so, and print no commands for a root", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const dir = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-outside-" }));
  try {
    // Others have a directory of such a name as well.
    Deno.mkdirSync(join(dir, "work"), { mode: 0o755 });
    for (const command of ["check", "trust", "status", "mounts", "serve", "once"]) {
      const { code, out, err } = await sh(`${bridge.path("bin/chb")} ${command}`, dir);
      assertEquals([code, out], [78, ""], command);
      assertStringIncludes(err, "run it in the root that the init script made");
      assert(!/chmod|rm --|mkdir/.test(err), err);
    }
    assertEquals([...Deno.readDirSync(dir)].length, 1);
  } finally {
    Deno.removeSync(dir, { recursive: true });
  }
});

Deno.test("chb mounts prints no lines for an agent that has no directories", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  assertEquals((await bridge.chb("mounts", "--agent", "main")).code, 0);
  const { code, out, err } = await bridge.chb("mounts", "--agent", "other");
  assertEquals([code, out], [78, ""]);
  assertStringIncludes(err, "no spool/other yet: say --agent");
});

Deno.test("chb refuses words that a command does not take", async () => {
  for (const words of [["status", "x"], ["trust", "bridge.jsonc"], ["schema", "policy", "x"]]) {
    const { code, err } = await run(...words);
    assertEquals(code, 64, words.join(" "));
    assertStringIncludes(err, `Unexpected argument ${words.at(-1)}`);
  }
});

Deno.test("chb trust without a terminal asks for --yes and changes nothing", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const { code, err } = await bridge.chb("trust");
  assertEquals(code, 64);
  assertStringIncludes(err, "--yes");
  assertEquals([...Deno.readDirSync(bridge.path("state/policies"))], []);
});

Deno.test("chb status exits 69 without a daemon and 0 beside one, in words and in JSON", async () => {
  await using bridge = await TestBridge.make();
  assertEquals((await bridge.chb("status")).code, 69);
  await bridge.serve();
  await bridge.ask("r1", { verb: "true" });
  const long = "restart-".padEnd(64, "0");
  await bridge.ask(long, { verb: "true" });
  const whole = (await bridge.chb("status")).out;
  assertMatch(whole, new RegExp(` main/${long}$`, "m"), "an id that is cut names no request");
  assertEquals((await bridge.chb("show", `main/${long}`)).code, 0);
  const words = await bridge.chb("status");
  assertEquals(words.code, 0, words.err);
  assertStringIncludes(words.out, `pid ${bridge.pid}`);
  assertStringIncludes(words.out, "main/r1");
  for (const line of words.out.split("\n").filter((l) => !l.includes(long))) {
    assert(line.length <= 80, line);
  }
  const json = JSON.parse((await bridge.chb("status", "--json")).out);
  assertEquals([json.serving, json.recent[0].id, json.recent[1].id], [true, long, "r1"]);
  assertEquals(json.approvals, 0);
});
