/** The shim as a real process under its real permissions: what it runs, and what it refuses. */
import { assert, assertEquals } from "@std/assert";
import { randomHex } from "../src/names.ts";
import { groupAlive } from "../src/run/kill_group.ts";
import { lookBeforeStart } from "../src/run/look_before_start.ts";
import type { Order } from "../src/run/order.ts";
import { markCancel, prepareRun, runLocked, voidOrder } from "../src/run/order_file.ts";
import { type RawShim, ShimRoot, sleep, until } from "./helpers/shim_root.ts";

/** In a script: the directory that it lies in, where tests let scripts leave marks. */
const HERE = "${0%/*}";

// Ordinary runs

Deno.test("shim runs an order, records it before it says so, and takes the next one", async () => {
  await using root = ShimRoot.make();
  const shim = await root.shim();
  for (let i = 0; i < 3; i++) {
    const run = root.prepare(shim, "true");
    assertEquals(await shim.run(run), `exit ${run} reusable`);
    const exit = root.mustExit(run);
    assertEquals([exit.kind, exit.started, exit.exit_code, exit.signal], ["exited", true, 0, null]);
    assertEquals([exit.stdout.bytes, exit.stdout.complete, exit.detail], [0, true, ""]);
    assert(exit.started_ms !== null && Math.abs(exit.started_ms - Date.now()) < 60_000);
    assert(exit.finished_ms >= exit.started_ms && (exit.duration_ms ?? -1) >= 0);
    assertEquals(root.files(run), ["exit.json", "taken.json"]);
    assertEquals(runLocked(run, root.root), false);
  }
});

Deno.test("shim carries out orders that came in one write, one after the other", async () => {
  await using root = ShimRoot.make();
  const shim = await root.shim();
  const runs = [1, 2, 3].map(() => root.prepare(shim, "true"));
  await shim.write(runs.map((run) => `${run}\n`).join(""));
  for (const run of runs) assertEquals(await shim.line(), `exit ${run} reusable`);
});

Deno.test("shim starts nothing for a line that is no run id, and goes by what it takes", async () => {
  await using root = ShimRoot.make({
    scripts: { one: `echo one >> ${HERE}/ran`, two: `echo two >> ${HERE}/ran` },
  });
  const shim = await root.shim();
  const run = root.prepare(shim, "one");
  await shim.write(`hint ${run}\n${run} \n${run.toUpperCase()}x\n\n`);
  const other = root.prepare(shim, "true");
  assertEquals(await shim.run(other), `exit ${other} reusable`);
  assertEquals(root.files(run), ["order.json"]);
  assertEquals(runLocked(run, root.root), false);
  // The order is another one by the time it is taken.
  const changed = root.order(shim, "two", {}, { run });
  Deno.writeTextFileSync(`${root.dir(run)}/order.json`, JSON.stringify(changed));
  assertEquals(await shim.run(run), `exit ${run} reusable`);
  assertEquals(Deno.readTextFileSync(root.path("base/ran")), "two\n");
});

Deno.test("shim gives a command its exact vector and environment, / and no standard input (X2, X7, X20)", async () => {
  await using root = ShimRoot.make({
    scripts: {
      show: `printenv | sort; pwd; cat; printf '<%s>\\n' "$@"; echo problem >&2`,
    },
    verbs: {
      show: {
        argv: ["base/show", "fixed $(id) ; rm", "--text={text}"],
        args: { text: { type: "text", description: "Anything." } },
      },
    },
    env: { GREETING: "hello world" },
  });
  const shim = await root.shim();
  const run = root.prepare(shim, "show", { text: "$(touch /tmp/pwned) `id` 'q' \"é\" ; *" });
  await shim.run(run);
  assertEquals(root.read(run, "stdout").split("\n"), [
    "GREETING=hello world",
    "PATH=/usr/bin:/bin",
    "PWD=/", // set by the script's own shell
    "/",
    "<fixed $(id) ; rm>",
    "<--text=$(touch /tmp/pwned) `id` 'q' \"é\" ; *>",
    "",
  ]);
  assertEquals(root.read(run, "stderr"), "problem\n");
  const { stdout } = root.mustExit(run);
  assertEquals([stdout.bytes, stdout.file_bytes, stdout.tail], [
    stdout.file_bytes,
    stdout.bytes,
    "",
  ]);
  assertEquals((Deno.statSync(`${root.dir(run)}/stdout`).mode ?? 0) & 0o777, 0o600);
});

Deno.test("shim tells exit codes and signals apart, whatever the command ends by (X15)", async () => {
  await using root = ShimRoot.make({
    scripts: {
      seven: "exit 7",
      code: "exit 137",
      kill: "kill -KILL $$",
      term: "kill -TERM $$",
      realtime: "kill -35 $$",
      last: "kill -64 $$",
      core: "ulimit -c 0; kill -SEGV $$",
    },
  });
  const rows: [string, number | null, string | null][] = [
    ["seven", 7, null],
    ["code", 137, null],
    ["kill", null, "SIGKILL"],
    ["term", null, "SIGTERM"],
    ["realtime", null, "SIG35"],
    ["last", null, "SIG64"],
    ["core", null, "SIGSEGV"],
  ];
  const shim = await root.shim();
  for (const [verb, code, signal] of rows) {
    const run = root.prepare(shim, verb);
    assertEquals(await shim.run(run), `exit ${run} reusable`, verb);
    const exit = root.mustExit(run);
    assertEquals([exit.kind, exit.exit_code, exit.signal], ["exited", code, signal], verb);
  }
});

Deno.test("shim survives every signal that a command can send to its own group", async () => {
  const signals = "TERM INT HUP QUIT USR1 USR2 PIPE ALRM TSTP TTIN TTOU CONT " +
    "ABRT XCPU XFSZ VTALRM PROF IO PWR STKFLT";
  await using root = ShimRoot.make({
    scripts: {
      noisy: `trap '' ${signals}; for s in ${signals}; do kill -$s 0; done; echo survived`,
    },
  });
  const shim = await root.shim();
  for (let i = 0; i < 2; i++) {
    const run = root.prepare(shim, "noisy");
    assertEquals(await shim.run(run), `exit ${run} reusable`);
    assertEquals(root.read(run, "stdout"), "survived\n");
  }
});

Deno.test("shim that waits for an order survives signals, and being stopped for a while", async () => {
  await using root = ShimRoot.make();
  const shim = await root.shim();
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP", "SIGSTOP", "SIGCONT"] as const) {
    Deno.kill(shim.pid, signal);
    await sleep(20);
  }
  const run = root.prepare(shim, "true");
  assertEquals(await shim.run(run), `exit ${run} reusable`);
});

// What is not an order

Deno.test("shim starts nothing for a run that is not there, was voided, or is done", async () => {
  await using root = ShimRoot.make({ scripts: { mark: `echo x >> ${HERE}/marks` } });
  const shim = await root.shim();
  const missing = randomHex(16);
  assertEquals(await shim.run(missing), `gone ${missing}`);
  const voided = root.prepare(shim, "mark");
  assertEquals(voidOrder(voided, root.root), true);
  assertEquals(await shim.run(voided), `gone ${voided}`);
  assertEquals(root.files(voided), ["void.json"]);
  const run = root.prepare(shim, "mark");
  assertEquals(await shim.run(run), `exit ${run} reusable`);
  assertEquals(await shim.run(run), `gone ${run}`, "the same order again");
  assertEquals(Deno.readTextFileSync(root.path("base/marks")), "x\n");
});

Deno.test("shim ignores what is no run id, and a line that never got its newline (P15)", async () => {
  await using root = ShimRoot.make({ scripts: { mark: `echo x >> ${HERE}/marks` } });
  const shim = await root.shim();
  await shim.write("\n../../etc\nquit\nready 1\n" + "f".repeat(5000) + "\n\u0000\u001b[2J\n");
  const run = root.prepare(shim, "true");
  assertEquals(await shim.run(run), `exit ${run} reusable`, "none of them was answered");
  const cut = root.prepare(shim, "mark");
  await shim.write(cut);
  await shim.closeStdin();
  assertEquals(await shim.line(), null);
  assertEquals((await shim.close()).code, 0);
  assertEquals(root.files(cut), ["order.json"], "nobody took it");
});

const CHANGED: [string, string, (order: Order, root: ShimRoot) => Order | void][] = [
  ["another command", "command-differs", (o) => ({ ...o, command_sha256: "0".repeat(64) })],
  ["arguments of another command", "command-differs", (o) => ({ ...o, args: { word: "b" } })],
  [
    "arguments that the policy refuses",
    "arguments-refused",
    (o) => ({ ...o, args: { word: "c" } }),
  ],
  ["a missing argument", "arguments-refused", (o) => ({ ...o, args: {} })],
  ["a verb that does not exist", "verb-not-allowed", (o) => ({ ...o, verb: "other" })],
  ["a verb that the agent does not have", "verb-not-allowed", (o) => ({ ...o, agent: "second" })],
  ["an agent that does not exist", "verb-not-allowed", (o) => ({ ...o, agent: "third" })],
  ["a policy that was never trusted", "policy-differs", (o) => ({ ...o, policy: "0".repeat(64) })],
  ["the order of another shim", "other-shim", (o) => ({ ...o, pgid: o.pgid + 1 })],
  ["a longer time limit", "timeout-wider-than-policy", (o) => ({ ...o, timeout_ms: 60_001 })],
  ["a wider output cap", "output-wider-than-policy", (o) => ({ ...o, output_cap: 2_000_000 })],
  ["a program of another inode", "program-differs", (o) => ({
    ...o,
    program: { ...o.program, ino: "1" },
  })],
  ["a program of another size", "program-differs", (o) => ({
    ...o,
    program: { ...o.program, size: o.program.size + 1 },
  })],
  ["a program of another time", "program-differs", (o) => ({
    ...o,
    program: { ...o.program, mtime_ms: 0 },
  })],
  ["a required file that the order leaves out", "required-file-not-in-order", (o) => ({
    ...o,
    requires: [],
  })],
  ["a field that no order has", "order-unreadable", (o) => Object.assign(o, { argv: ["/bin/sh"] })],
];

const CHANGED_DISK: typeof CHANGED = [
  ["a program rewritten after the order", "program-differs", (_, root) => {
    Deno.writeTextFileSync(root.path("base/word"), "#!/bin/sh\necho evil >> ${0%/*}/marks\n");
  }],
  ["an emptied program (X8)", "program-empty", (o, root) => {
    Deno.truncateSync(root.path("base/word"));
    return { ...o, program: { ...o.program, size: 0 } };
  }],
  ["a program that is text (X8)", "program-not-executable-format", (_, root) => {
    Deno.writeTextFileSync(root.path("base/word"), "echo evil >> ${0%/*}/marks\n");
  }],
  ["a program that is gone", "program-missing", (_, root) => {
    Deno.removeSync(root.path("base/word"));
  }],
  ["a required file that changed", "required-file-differs", (_, root) => {
    Deno.writeTextFileSync(root.path("base/data"), "changed");
  }],
  ["a required file that is a directory now", "required-file-differs", (_, root) => {
    Deno.removeSync(root.path("base/data"));
    Deno.mkdirSync(root.path("base/data"));
  }],
];

/** A root with one verb whose script leaves a mark, for the orders above. */
function wordRoot(): ShimRoot {
  return ShimRoot.make({
    scripts: { word: `echo ran >> ${HERE}/marks`, other: "true" },
    verbs: {
      word: {
        argv: ["base/word", "{word}"],
        args: { word: { type: "enum", values: ["a", "b"], description: "A word." } },
        requires: ["base/data"],
      },
    },
    files: { data: "data" },
    agents: { main: ["true", "word"], second: ["true"] },
    limits: { output_bytes: 1_000_000 },
  });
}

async function refuses(
  root: ShimRoot,
  shim: RawShim,
  [what, detail, change]: (typeof CHANGED)[number],
): Promise<void> {
  const order = root.order(shim, "word", { word: "a" });
  prepareRun(change(order, root) ?? order, root.root);
  assertEquals(await shim.run(order.run), `exit ${order.run} reusable`, what);
  const exit = root.mustExit(order.run);
  assert(root.read(order.run, "shim.log").includes(detail), what);
  assertEquals([exit.kind, exit.started, exit.detail], ["base_changed", false, detail], what);
  assertEquals([exit.exit_code, exit.signal, exit.started_ms], [null, null, null]);
  const names = [...Deno.readDirSync(root.path("base"))].map((entry) => entry.name);
  assert(!names.includes("marks"), `${what}: nothing ran`);
}

Deno.test("shim refuses an order that differs from what was trusted, and runs nothing", async () => {
  await using root = wordRoot();
  const shim = await root.shim();
  for (const row of CHANGED) await refuses(root, shim, row);
  const run = root.prepare(shim, "word", { word: "a" });
  assertEquals(await shim.run(run), `exit ${run} reusable`);
  assertEquals(Deno.readTextFileSync(root.path("base/marks")), "ran\n", "the same one, unchanged");
});

for (const row of CHANGED_DISK) {
  Deno.test(`shim refuses an order with ${row[0]}, and runs nothing`, async () => {
    await using root = wordRoot();
    const shim = await root.shim();
    await refuses(root, shim, row);
  });
}

Deno.test("shim believes a stored policy only when its bytes have the digest", async () => {
  await using root = wordRoot();
  const path = root.path("state/policies", `${root.policy.digest}.jsonc`);
  Deno.writeTextFileSync(path, Deno.readTextFileSync(path) + " ");
  const shim = await root.shim();
  const run = root.prepare(shim, "word", { word: "a" });
  await shim.run(run);
  assertEquals(root.mustExit(run).detail, "policy-differs");
});

Deno.test("shim refuses an order that lies in another run's directory", async () => {
  await using root = ShimRoot.make();
  const shim = await root.shim();
  const order = root.order(shim, "true");
  prepareRun(order, root.root);
  const other = randomHex(16);
  Deno.renameSync(root.dir(order.run), root.dir(other));
  await shim.run(other);
  assertEquals(root.mustExit(other).detail, "order-unreadable");
});

Deno.test("shim says spawn_failed when a command cannot be started", async () => {
  await using root = ShimRoot.make({ verbs: { true: { cwd: "/nonexistent/directory" } } });
  const shim = await root.shim();
  const run = root.prepare(shim, "true");
  assertEquals(await shim.run(run), `exit ${run} reusable`);
  const exit = root.mustExit(run);
  assertEquals([exit.kind, exit.started, exit.detail], ["spawn_failed", false, "ENOENT"]);
});

// Switches

Deno.test("shim starts nothing while a kill switch is up, whatever it is made of", async () => {
  await using root = ShimRoot.make({ scripts: { mark: `echo x >> ${HERE}/marks` } });
  const shim = await root.shim();
  const raise: [string, (path: string) => void][] = [
    ["KILL", (path) => Deno.writeTextFileSync(path, "")],
    ["KILL.main", (path) => Deno.writeTextFileSync(path, "")],
    ["KILL", (path) => Deno.mkdirSync(path)],
    ["KILL", (path) => Deno.symlinkSync("/nonexistent", path)],
  ];
  for (const [name, make] of raise) {
    const path = root.path("state", name);
    make(path);
    const run = root.prepare(shim, "mark");
    assertEquals(await shim.run(run), `exit ${run} reusable`);
    const exit = root.mustExit(run);
    assertEquals([exit.kind, exit.started], ["killed", false]);
    Deno.removeSync(path);
  }
  // Another agent's switch is none of this agent's business.
  Deno.writeTextFileSync(root.path("state/KILL.other"), "");
  const run = root.prepare(shim, "mark");
  await shim.run(run);
  assertEquals(root.mustExit(run).kind, "exited");
  assertEquals(Deno.readTextFileSync(root.path("base/marks")), "x\n");
});

Deno.test("shim leaves an agent's own switch to the daemon when it has no grant to see it", async () => {
  await using root = ShimRoot.make({ seenAgents: ["other"] });
  const shim = await root.shim();
  Deno.writeTextFileSync(root.path("state/KILL.main"), "");
  const run = root.prepare(shim, "true");
  await shim.run(run);
  assertEquals(root.mustExit(run).kind, "exited");
  Deno.writeTextFileSync(root.path("state/KILL"), "");
  const stopped = root.prepare(shim, "true");
  await shim.run(stopped);
  assertEquals(root.mustExit(stopped).kind, "killed", "the switch of the host is always seen");
});

Deno.test("lookBeforeStart() takes what it cannot look at for a mark that is there", async () => {
  const dir = await Deno.makeTempDir();
  try {
    assertEquals(lookBeforeStart(dir, "main"), null);
    Deno.writeTextFileSync(`${dir}/file`, "");
    assertEquals(lookBeforeStart(`${dir}/file`, "main"), "cancelled", "not a directory");
    assertEquals(lookBeforeStart(dir, "../x"), "killed", "no agent has such a name");
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("shim starts nothing for a run that was cancelled before", async () => {
  await using root = ShimRoot.make({ scripts: { mark: `echo x >> ${HERE}/marks` } });
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  markCancel(run, root.root);
  assertEquals(await shim.run(run), `exit ${run} reusable`);
  const exit = root.mustExit(run);
  assertEquals([exit.kind, exit.started], ["cancelled", false]);
});

Deno.test("shim ends a running command when its cancel mark appears", async () => {
  await using root = ShimRoot.make({ scripts: { wait: "echo up; exec sleep 60" } });
  const shim = await root.shim();
  const run = root.prepare(shim, "wait");
  await shim.write(`${run}\n`);
  await until("the command", () => root.files(run).includes("stdout"));
  assertEquals(runLocked(run, root.root), true);
  const start = performance.now();
  markCancel(run, root.root);
  assertEquals(await shim.line(), `exit ${run}`);
  assert(performance.now() - start < 2000, "the mark was seen soon");
  const exit = root.mustExit(run);
  assertEquals([exit.kind, exit.started, exit.signal], ["cancelled", true, "SIGTERM"]);
  assertEquals((await shim.close()).signal, "SIGKILL");
  await root.groupEnds(shim.pid);
  assertEquals(runLocked(run, root.root), false);
});

// Reuse

Deno.test("shim ends with its group after a run that may have changed something", async () => {
  await using root = ShimRoot.make({ verbs: { true: { class: "mutating" } } });
  // An order that asks for reuse is not believed: the policy says what the verb is.
  for (const reuse of [false, true]) {
    const shim = await root.shim();
    const run = root.prepare(shim, "true", {}, { reuse });
    assertEquals(await shim.run(run), `exit ${run}`);
    assertEquals(root.mustExit(run).kind, "exited");
    assertEquals((await shim.close()).signal, "SIGKILL");
    await root.groupEnds(shim.pid);
  }
});

Deno.test("shim takes another order after one that started nothing, whatever its class", async () => {
  await using root = ShimRoot.make({ verbs: { true: { class: "mutating" } } });
  const shim = await root.shim();
  const refused = root.prepare(shim, "true", {}, { command_sha256: "0".repeat(64) });
  assertEquals(await shim.run(refused), `exit ${refused} reusable`);
  const run = root.prepare(shim, "true");
  assertEquals(await shim.run(run), `exit ${run}`);
});

// Standard input and output

Deno.test("shim leaves with 0 when its input ends between two runs", async () => {
  await using root = ShimRoot.make();
  const shim = await root.shim();
  await shim.closeStdin();
  assertEquals(await shim.line(), null);
  assertEquals((await shim.close()).code, 0);
});

Deno.test("shim finishes its run when its input ends meanwhile", async () => {
  await using root = ShimRoot.make({ scripts: { slow: "sleep 0.5; echo finished" } });
  const shim = await root.shim();
  const run = root.prepare(shim, "slow");
  await shim.write(`${run}\n`);
  await shim.closeStdin();
  assertEquals(await shim.line(), `exit ${run} reusable`);
  assertEquals(root.read(run, "stdout"), "finished\n");
  assertEquals((await shim.close()).code, 0);
});

Deno.test("shim records its run and works on when nobody listens any more", async () => {
  await using root = ShimRoot.make({ scripts: { hello: "echo hello" } });
  const shim = await root.shim();
  await shim.deafen();
  for (let i = 0; i < 2; i++) {
    const run = root.prepare(shim, "hello");
    await shim.write(`${run}\n`);
    await until("the exit record", () => root.exit(run));
    assertEquals(root.read(run, "stdout"), "hello\n");
  }
});

// What a shim cannot be stopped from, and what it can

Deno.test("shim that is killed by its command lets go of the lock; the command lives on in the group", async () => {
  await using root = ShimRoot.make({ scripts: { revolt: "kill -KILL $PPID; exec sleep 60" } });
  const shim = await root.shim();
  const run = root.prepare(shim, "revolt");
  await shim.write(`${run}\n`);
  assertEquals(await shim.line(), null);
  assertEquals((await shim.close()).signal, "SIGKILL");
  assertEquals(runLocked(run, root.root), false);
  assertEquals(root.exit(run), null);
  assertEquals(root.files(run), ["taken.json"]);
  assertEquals(await groupAlive(shim.pid), true);
});

// Starting

async function firstLine(root: ShimRoot, detached = true): Promise<[string, number]> {
  const shim: RawShim = root.spawn(detached);
  const line = await shim.line() ?? "";
  await shim.closeStdin().catch(() => {});
  return [line, (await shim.close()).code];
}

Deno.test("shim refuses to work when it could not give up what it must", async () => {
  const rows: [string, (text: string) => string][] = [
    ["everything", (text) => text.replace(/--allow-read=\S+/, "-A").replace(/--allow-\S+/g, "")],
    ["all reading", (text) => text.replace(/--allow-read=\S+/, "--allow-read")],
    [
      "the ledger by name",
      (text) => text.replace("--allow-read=", "--allow-read=./state/ledger.db,"),
    ],
    ["all programs", (text) => text.replace(/--allow-run=\S+/, "--allow-run")],
    ["the network", (text) => text.replace("--allow-read=", "--allow-net --allow-read=")],
    ["the environment", (text) => text.replace("--allow-read=", "--allow-env --allow-read=")],
  ];
  for (const [what, wrapper] of rows) {
    await using root = ShimRoot.make({ wrapper });
    const [line, code] = await firstLine(root);
    assert(line.startsWith("fault grants still:"), `${what}: ${line}`);
    assertEquals(code, 78, what);
  }
});

Deno.test("shim refuses to work without the grants that it needs", async () => {
  await using root = ShimRoot.make({
    wrapper: (text) => text.replace("./state/policies,", ""),
  });
  assertEquals(await firstLine(root), ["fault grants missing:read:./state/policies", 78]);
});

Deno.test("shim refuses to work when it does not lead a group of its own", async () => {
  await using root = ShimRoot.make();
  const [line, code] = await firstLine(root, false);
  assert(line.startsWith("fault group "), line);
  assertEquals(code, 78);
});

Deno.test("shim cannot read what agents wrote, keys or ledger, and cannot start itself: shown by trying", async () => {
  await using root = ShimRoot.make({ main: "tests/helpers/grants_main.ts" });
  for (const dir of ["spool/main/queue", "work/main/claims", "state/control", "state/audit"]) {
    Deno.mkdirSync(root.path(dir), { recursive: true });
  }
  for (
    const file of [
      "spool/main/queue/r1.json",
      "work/main/claims/x",
      "keys/k",
      "bridge.jsonc",
      "state/ledger.db",
      "state/control/x",
      "state/audit/audit.jsonl",
      "state/runs/x",
      "state/policies/x",
      "base/x",
    ]
  ) Deno.writeTextFileSync(root.path(file), "secret");
  const { stdout, success } = await new Deno.Command(root.path("bin/chb"), {
    args: ["shim"],
    cwd: root.root,
    clearEnv: true,
    stdin: "null",
    stderr: "inherit",
  }).output();
  assert(success);
  assertEquals(JSON.parse(new TextDecoder().decode(stdout)), {
    before: { read: "granted", write: "granted", run: "granted" },
    wrong: [],
    read: {
      "spool/main/queue/r1.json": "NotCapable",
      "work/main/claims/x": "NotCapable",
      "keys/k": "NotCapable",
      "bridge.jsonc": "NotCapable",
      "state/ledger.db": "NotCapable",
      "state/control/x": "NotCapable",
      "state/audit/audit.jsonl": "NotCapable",
      "state/runs/x": "ok",
      "state/policies/x": "ok",
      "base/x": "ok",
    },
    write: {
      "spool/main/queue/new": "NotCapable",
      "work/main/claims/new": "NotCapable",
      "state/new": "NotCapable",
      "state/KILL": "NotCapable",
      "state/policies/new": "NotCapable",
      "base/new": "NotCapable",
      "state/runs/new": "ok",
    },
    run: { "./bin/chb": "NotCapable", "/usr/bin/id": "NotCapable", "/usr/bin/true": "ok" },
  });
});

Deno.test("shim does not use the processor while it waits", async () => {
  await using root = ShimRoot.make();
  const shim = await root.shim();
  const run = root.prepare(shim, "true");
  await shim.run(run);
  const ticks = () => {
    const fields = Deno.readTextFileSync(`/proc/${shim.pid}/stat`).split(") ")[1]?.split(" ") ?? [];
    return Number(fields[11]) + Number(fields[12]);
  };
  await sleep(200); // what the run left to do
  const before = ticks();
  await sleep(500);
  assert(ticks() - before <= 1, "at most one clock tick in half a second");
});
