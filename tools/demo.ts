/**
 * The demo: makes a bridge in a temporary directory, starts the daemon, plays the agent, and shows
 * what becomes of what it sends. Harmless local programs only; no root, no container engine, no
 * network. Everything is removed at the end.
 *
 * @module
 */
import { join } from "node:path";
import { QUIET } from "./launcher.ts";

const POLICY = `{
  "agents": { "main": { "verbs": ["date", "greet", "count", "note"], "scope": "mutating" } },
  "verbs": {
    "date": {
      "description": "Tell the host's date and time.", "class": "observe",
      "argv": ["/usr/bin/date", "--utc"], "timeout_s": 10
    },
    "greet": {
      "description": "Print a greeting.", "class": "observe",
      "argv": ["/usr/bin/printf", "hello %s\\\\n", "{who}"],
      "args": { "who": { "type": "name" } }, "timeout_s": 10
    },
    "count": {
      "description": "Count slowly.", "class": "observe",
      "argv": ["base/count.sh", "{to}"],
      "args": { "to": { "type": "integer", "min": 1, "max": 20 } }, "timeout_s": 30
    },
    "note": {
      "description": "Append one line to a file of the host.", "class": "mutating",
      "argv": ["base/note.sh"], "timeout_s": 10, "lock": "note"
    }
  },
  "limits": { "concurrency": 3, "answers": 5000 }
}
`;

const COUNT = `#!/bin/sh
i=1
while [ "$i" -le "$1" ]; do echo "step $i of $1"; i=$((i + 1)); sleep 0.3; done
`;

/** A result file as far as the demo reads it. */
interface Result {
  readonly state: string;
  readonly outcome?: string;
  readonly code?: number;
  readonly reason?: string;
  readonly hint?: string;
  readonly message?: string;
  readonly replays?: number;
  readonly stdout?: { readonly head: string; readonly file: string | null };
}

const root = Deno.makeTempDirSync({ prefix: "chb-demo-" });
const queue = join(root, "spool/main/queue");
const results = join(root, "spool/main/results");
let daemon: Deno.ChildProcess | null = null;
let step = 0;
let wrong = 0;

function say(text: string): void {
  console.log(text);
}

function title(text: string): void {
  say(`\n${++step}. ${text}`);
}

/** Says what came, and counts it as a fault of the demo when it is not what should come. */
function expect(what: string, ok: boolean): void {
  if (!ok) wrong++;
  say(`   ${ok ? "->" : "!! UNEXPECTED:"} ${what}`);
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Reads a result until it is final, or until `until` says that it is enough. */
async function wait(
  id: string,
  until = (r: Result) => r.state === "done" || r.state === "uncertain",
): Promise<Result & { ms: number }> {
  const start = performance.now();
  for (;;) {
    try {
      const result: Result = JSON.parse(Deno.readTextFileSync(join(results, `${id}.json`)));
      if (until(result)) return { ...result, ms: Math.round(performance.now() - start) };
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    if (performance.now() - start > 15_000) throw new Error(`No answer for ${id} in 15 s`);
    await sleep(5);
  }
}

/** Submits as one should: a temporary name, then a rename. */
function submit(id: string, request: unknown): void {
  const temporary = join(queue, `.${id}.tmp`);
  Deno.writeTextFileSync(temporary, JSON.stringify(request));
  Deno.renameSync(temporary, join(queue, `${id}.json`));
}

function has(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

async function run(program: string, args: string[], env: Record<string, string> = {}) {
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args,
    cwd: root,
    env: { ...QUIET, ...env },
    stdin: "null",
  }).output();
  const text = new TextDecoder();
  return { code, out: text.decode(stdout), err: text.decode(stderr) };
}

async function must(program: string, args: string[], env: Record<string, string> = {}) {
  const done = await run(program, args, env);
  if (done.code !== 0) {
    throw new Error(`${program} ${args.join(" ")} exited ${done.code}: ${done.err}${done.out}`);
  }
  return done.out;
}

async function startDaemon(): Promise<void> {
  daemon = new Deno.Command("./bin/chb", {
    args: ["serve"],
    cwd: root,
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  let text = "";
  const decoder = new TextDecoder();
  const reader = daemon.stderr.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`The daemon left: ${text}`);
    text += decoder.decode(value, { stream: true });
    const ready = text.split("\n").find((line) => line.startsWith("chb: ready"));
    if (ready === undefined) continue;
    say(`   ${ready.replace(root, "ROOT")}`);
    break;
  }
  // Keep the pipe empty; the daemon must not wait for the demo.
  (async () => {
    while (!(await reader.read()).done) { /* discarded */ }
  })().catch(() => {});
}

async function stopDaemon(signal: Deno.Signal): Promise<void> {
  if (daemon === null) return;
  daemon.kill(signal);
  await daemon.status;
  daemon = null;
}

async function demo(): Promise<void> {
  const begun = performance.now();
  const tools = new URL(".", import.meta.url).pathname;
  const note = join(root, "notes.txt");

  title("A human makes a bridge: chb init > init.sh; sh init.sh");
  const script = await must(Deno.execPath(), [
    "run",
    "-A",
    "--no-config",
    join(tools, "chb.ts"),
    "--root",
    root,
    "init",
  ]);
  Deno.writeTextFileSync(join(root, "init.sh"), script);
  await must("/bin/sh", ["init.sh"], { CHB_INIT_ANYWHERE: "1" });
  Deno.writeTextFileSync(join(root, "bridge.jsonc"), POLICY);
  Deno.writeTextFileSync(join(root, "base/count.sh"), COUNT);
  Deno.writeTextFileSync(
    join(root, "base/note.sh"),
    `#!/bin/sh\necho ran >> '${note}'\necho noted\n`,
  );
  for (const name of ["count.sh", "note.sh"]) Deno.chmodSync(join(root, "base", name), 0o755);
  // From source the wrapper grants what the policy names: it is written again for this policy.
  await must(Deno.execPath(), [
    "run",
    "-A",
    "--no-config",
    join(tools, "chb.ts"),
    "--root",
    root,
    "check",
  ]);
  expect("layout, a policy of four verbs and two host-only scripts; chb check says ok", true);
  const trusted = await must("./bin/chb", ["trust", "--yes", "--by", "demo"]);
  expect(`chb trust: ${trusted.trim().split("\n").at(-1)}`, trusted.includes("Trusted"));

  title("The host serves: chb serve");
  await startDaemon();

  title(`The agent writes a file directly: echo '{"verb":"date"}' > queue/now.json`);
  Deno.writeTextFileSync(join(queue, "now.json"), '{"verb":"date"}');
  const now = await wait("now");
  expect(
    `results/now.json after ${now.ms} ms: ${now.outcome}, ${now.stdout?.head.trim()}`,
    now.outcome === "succeeded",
  );

  title("Better: a temporary name, then a rename");
  submit("hello", { verb: "greet", args: { who: "world" } });
  const hello = await wait("hello");
  expect(
    `${hello.outcome} after ${hello.ms} ms: ${hello.stdout?.head.trim()}`,
    hello.outcome === "succeeded" && hello.stdout?.head === "hello world\n",
  );

  title("A mistyped verb");
  submit("typo", { verb: "gret", args: { who: "world" } });
  const typo = await wait("typo");
  expect(`${typo.code} ${typo.reason}: ${typo.hint}`, typo.code === 78);

  title(`An injected argument: {"who":"--version; rm -rf ~"}`);
  submit("inject", { verb: "greet", args: { who: "--version; rm -rf ~" } });
  const inject = await wait("inject");
  expect(`${inject.code} ${inject.reason}: ${inject.message}`, inject.code === 79);

  title("A symlink to a host file: ln -s /etc/passwd queue/link.json");
  Deno.symlinkSync("/etc/passwd", join(queue, "link.json"));
  const link = await wait("link");
  expect(
    `${link.code} ${link.reason}; gone from the queue, /etc/passwd never opened`,
    link.code === 66 && !has(join(queue, "link.json")) && has("/etc/passwd"),
  );

  title("A flood of 3,000 broken files, and one valid request among them");
  for (let i = 0; i < 1500; i++) Deno.writeTextFileSync(join(queue, `flood-a${i}.json`), "{");
  submit("valid", { verb: "greet", args: { who: "flood" } });
  const answered = wait("valid");
  for (let i = 0; i < 1500; i++) Deno.writeTextFileSync(join(queue, `flood-b${i}.json`), "{");
  const valid = await answered;
  expect(`${valid.outcome}: it did not wait for the others`, valid.outcome === "succeeded");

  title("The same request again: a replay, not a second run");
  submit("note-1", { verb: "note", note: "first" });
  const first = await wait("note-1");
  submit("note-1", { verb: "note", note: "first" });
  const replay = await wait("note-1", (r) => (r.replays ?? 0) > 0);
  const lines = Deno.readTextFileSync(note).trim().split("\n").length;
  expect(
    `${first.outcome}, then ${replay.hint}; the script ran ${lines} time(s)`,
    first.outcome === "succeeded" && lines === 1,
  );

  title("A long run, followed through its output file");
  submit("slow", { verb: "count", args: { to: 4 } });
  await wait("slow", (r) => r.state === "running" || r.state === "done");
  let seen = 0;
  for (;;) {
    const text = has(join(results, "slow.stdout"))
      ? Deno.readTextFileSync(join(results, "slow.stdout"))
      : "";
    if (text.length > seen) {
      for (const line of text.slice(seen).trimEnd().split("\n")) say(`   | ${line}`);
      seen = text.length;
    }
    const result = await wait("slow", () => true);
    if (result.state === "done") {
      expect(`${result.outcome}`, result.outcome === "succeeded");
      break;
    }
    await sleep(100);
  }

  title("A human stops everything: touch state/KILL");
  Deno.writeTextFileSync(join(root, "state/KILL"), "");
  submit("late", { verb: "date" });
  const late = await wait("late");
  expect(`${late.code} ${late.reason}: ${late.message}`, late.code === 80);
  Deno.removeSync(join(root, "state/KILL"));

  title("The daemon is killed in the middle of a run, and started again");
  submit("survivor", { verb: "count", args: { to: 6 } });
  await wait("survivor", (r) => r.state === "running");
  await stopDaemon("SIGKILL");
  say("   kill -9; the command runs on in its shim");
  await startDaemon();
  const survivor = await wait("survivor");
  expect(
    `${survivor.outcome}: ${survivor.stdout?.head.trim().split("\n").at(-1)}`,
    survivor.outcome === "succeeded" && survivor.stdout?.head.includes("step 6 of 6") === true,
  );

  await stopDaemon("SIGTERM");
  say(`\nDone in ${((performance.now() - begun) / 1000).toFixed(1)} s.`);
}

try {
  await demo();
} catch (error) {
  wrong++;
  console.error(`demo: ${error instanceof Error ? error.message : error}`);
} finally {
  await stopDaemon("SIGKILL").catch(() => {});
  Deno.removeSync(root, { recursive: true });
}
if (wrong > 0) {
  console.error(`demo: ${wrong} step(s) did not go as they should`);
  Deno.exit(1);
}
