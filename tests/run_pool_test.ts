/** The daemon's shims: ready beforehand, replaced when spent, never a loop of starts. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { randomHex } from "../src/names.ts";
import { killGroup } from "../src/run/kill_group.ts";
import { type Shim, type ShimLine, ShimPool } from "../src/run/pool.ts";
import { ShimRoot, sleep, until } from "./helpers/shim_root.ts";

/** How long shims may take to start, or to end, on a machine that does much else: milliseconds. */
const START_MS = 60_000;

/** A pool in a root, with everything it said. */
class Watched implements AsyncDisposable {
  readonly pool: ShimPool;
  readonly lines: [Shim, ShimLine][] = [];
  readonly gone: Shim[] = [];
  readonly logged: string[] = [];
  changes = 0;

  constructor(root: ShimRoot, size = 1, spares = 1, onLine?: (shim: Shim) => void) {
    this.pool = new ShimPool({
      size,
      spares,
      root: root.root,
      onLine: (shim, line) => {
        this.lines.push([shim, line]);
        onLine?.(shim);
      },
      onGone: (shim) => this.gone.push(shim),
      onChange: () => this.changes++,
      log: (event, detail) => this.logged.push(`${event} ${detail}`),
    });
    this.pool.open();
  }

  async idle(n: number): Promise<void> {
    await until(`${n} idle shims`, () => this.pool.idle === n, START_MS);
  }

  /** Takes a shim, which must be there. */
  take(reuse: boolean): Shim {
    const shim = this.pool.take(reuse);
    assert(shim !== null);
    return shim;
  }

  async line(n: number): Promise<ShimLine> {
    await until(`line ${n}`, () => this.lines.length >= n, START_MS);
    return this.lines[n - 1]?.[1] ?? { kind: "gone", run: "", reusable: false };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.pool.close();
    const { pids } = this.pool;
    await until("idle shims to leave", () => this.pool.pids.length <= this.pool.busy, 3000)
      .catch(() => {});
    for (const pid of pids.filter((p) => this.pool.pids.includes(p))) await killGroup(pid, "KILL");
    await until("the end of all shims", () => this.pool.pids.length === 0);
    await sleep(10); // their pipes close in the next turns
  }
}

Deno.test("ShimPool keeps size and spares ready, and lends a shim to one run at a time", async () => {
  await using root = ShimRoot.make();
  await using watched = new Watched(root, 1, 1);
  assertEquals(watched.pool.take(true), null, "none is ready at once");
  await watched.idle(2);
  const first = watched.take(true);
  const second = watched.take(true);
  assert(first !== second);
  assertEquals(watched.pool.take(true), null);
  watched.pool.release(second);
  assertEquals(watched.pool.idle, 1);
  assertThrows(() => second.send(randomHex(16)), Error, "idle");
  assertThrows(() => first.send("../x"), RangeError);
  const run = root.prepare(first, "true");
  first.send(run);
  assertEquals([first.run, watched.pool.busy], [run, 1]);
  assertThrows(() => first.send(randomHex(16)), Error, "busy");
  assertEquals(await watched.line(1), { kind: "exit", run, reusable: true });
  assertEquals([first.run, watched.pool.busy, watched.pool.idle], [null, 0, 2]);
  assertEquals(root.mustExit(run).kind, "exited");
});

Deno.test("ShimPool uses one shim again and again for observing runs", async () => {
  await using root = ShimRoot.make();
  await using watched = new Watched(root);
  await watched.idle(2);
  const pids = new Set<number>();
  for (let i = 1; i <= 5; i++) {
    const shim = watched.take(true);
    pids.add(shim.pid);
    shim.send(root.prepare(shim, "true"));
    await watched.line(i);
  }
  assertEquals(pids.size, 1);
  assertEquals(watched.gone.length, 0);
});

Deno.test("ShimPool lets its callback take the shim that has just become free", async () => {
  await using root = ShimRoot.make();
  const runs: string[] = [];
  await using watched = new Watched(root, 1, 1, () => {
    if (runs.length >= 3) return;
    const shim = watched.take(true);
    const run = root.prepare(shim, "true");
    runs.push(run);
    shim.send(run);
  });
  await watched.idle(2);
  const shim = watched.take(true);
  shim.send(root.prepare(shim, "true"));
  await watched.line(4);
  assertEquals(watched.lines.slice(1).map(([, line]) => line.run), runs);
});

Deno.test("ShimPool replaces a spent shim beforehand, and says when it is gone", async () => {
  // It runs until the test says so, however long a shim takes to start.
  const hold = Deno.makeTempFileSync({ prefix: "chb-hold-" });
  await using root = ShimRoot.make({
    scripts: { slow: `while [ -e ${hold} ]; do sleep 0.05; done` },
    verbs: { slow: { class: "mutating" } },
  });
  await using watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(false);
  const run = root.prepare(shim, "slow");
  shim.send(run);
  try {
    await watched.idle(2);
    assertEquals(watched.pool.busy, 1, "the replacement was there before the end");
  } finally {
    Deno.removeSync(hold);
  }
  assertEquals(await watched.line(1), { kind: "exit", run, reusable: false });
  await until("its end", () => watched.gone.length === 1, START_MS);
  assertEquals(watched.gone[0], shim);
  assert(!watched.pool.pids.includes(shim.pid));
  assertEquals([watched.pool.idle, watched.pool.fault], [2, null]);
});

Deno.test("ShimPool keeps no surplus when a shim that was to be spent lives on", async () => {
  await using root = ShimRoot.make({ verbs: { true: { class: "mutating" } } });
  await using watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(false);
  await watched.idle(2);
  assertEquals(watched.pool.pids.length, 3);
  const run = root.prepare(shim, "true", {}, { command_sha256: "0".repeat(64) });
  shim.send(run);
  assertEquals(await watched.line(1), { kind: "exit", run, reusable: true });
  await until("the surplus to leave", () => watched.pool.pids.length === 2);
  assertEquals([watched.pool.idle, watched.gone.length], [2, 0]);
});

Deno.test("ShimPool hands on that an order was gone, and the shim is free again", async () => {
  await using root = ShimRoot.make();
  await using watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(true);
  const run = randomHex(16);
  shim.send(run);
  assertEquals(await watched.line(1), { kind: "gone", run, reusable: true });
  assertEquals(watched.pool.idle, 2);
});

Deno.test("ShimPool has a shim take an order, and has it started at one word", async () => {
  await using root = ShimRoot.make();
  await using watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(true);
  assertThrows(() => shim.go(), Error, "taken");
  assertThrows(() => shim.offer("../x"), RangeError);
  shim.drop();
  const run = root.prepare(shim, "true");
  shim.offer(run);
  assertEquals([shim.run, watched.pool.busy, watched.pool.idle], [run, 0, 1]);
  for (const give of [() => shim.offer(run), () => shim.send(run)]) {
    assertThrows(give, Error, "offered");
  }
  await until("the order to be taken", () => root.files(run).includes("taken.json"));
  assertEquals(root.files(run), ["taken.json"]);
  shim.go();
  assertEquals([watched.pool.busy, watched.pool.runs], [1, [{ pid: shim.pid, run }]]);
  assertThrows(() => shim.go(), Error, "busy");
  shim.drop();
  assertEquals(await watched.line(1), { kind: "exit", run, reusable: true });
  assertEquals([watched.pool.idle, root.mustExit(run).kind], [2, "exited"]);
  assertThrows(() => shim.go(), Error, "idle");
});

Deno.test("ShimPool has a dropped shim back when it is gone with its order, and replaces none", async () => {
  await using root = ShimRoot.make({ verbs: { true: { class: "mutating" } } });
  await using watched = new Watched(root);
  await watched.idle(2);
  const before = watched.pool.pids;
  const shim = watched.take(false);
  // For longer than it takes to start another one.
  Deno.kill(shim.pid, "SIGSTOP");
  const run = root.prepare(shim, "true");
  shim.offer(run);
  shim.drop();
  await sleep(500);
  assertEquals([shim.run, watched.pool.idle, watched.pool.busy], [run, 1, 0]);
  assertEquals(watched.lines, []);
  Deno.kill(shim.pid, "SIGCONT");
  assertEquals(await watched.line(1), { kind: "gone", run, reusable: true });
  assertEquals([shim.run, watched.pool.idle, watched.pool.pids], [null, 2, before]);
  assertEquals(root.files(run), ["order.json"]);
  assertEquals([watched.lines.length, watched.gone], [1, []]);
});

Deno.test("ShimPool says that a shim is gone when it dies with an order that it was offered, once", async () => {
  await using root = ShimRoot.make();
  await using watched = new Watched(root);
  await watched.idle(2);
  for (const word of ["none", "drop"]) {
    const shim = watched.take(true);
    const run = root.prepare(shim, "true");
    shim.offer(run);
    await until("the order to be taken", () => root.files(run).includes("taken.json"));
    Deno.kill(shim.pid, "SIGSTOP");
    if (word === "drop") shim.drop();
    watched.pool.abandon(shim);
    await until("its end", () => watched.gone.includes(shim), START_MS);
    assertEquals(root.files(run), ["taken.json"]);
    await watched.idle(2);
    shim.drop();
    assertThrows(() => shim.go(), Error, "gone");
  }
  assertEquals([watched.gone.length, watched.lines, watched.pool.fault], [2, [], null]);
});

Deno.test("ShimPool that is closed has a shim put back the order that it was offered", async () => {
  await using root = ShimRoot.make();
  await using watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(true);
  const run = root.prepare(shim, "true");
  shim.offer(run);
  await until("the order to be taken", () => root.files(run).includes("taken.json"));
  watched.pool.close();
  assertEquals(await watched.line(1), { kind: "gone", run, reusable: true });
  assertEquals(root.files(run), ["order.json"]);
  await until("its end", () => !watched.pool.pids.includes(shim.pid));
});

Deno.test("ShimPool says that a shim is gone when it dies in its run, once", async () => {
  await using root = ShimRoot.make({ scripts: { revolt: "kill -KILL $PPID" } });
  await using watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(true);
  const run = root.prepare(shim, "revolt");
  shim.send(run);
  await until("its end", () => watched.gone.length === 1, START_MS);
  assertEquals([watched.gone[0]?.run, watched.lines.length], [run, 0]);
  await watched.idle(2);
});

Deno.test("ShimPool counts a shim whose pipes are held as spent", async () => {
  await using root = ShimRoot.make({ scripts: { left: "sleep 60 & exit 0" } });
  await using watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(true);
  const run = root.prepare(shim, "left");
  shim.send(run);
  assertEquals(await watched.line(1), { kind: "exit", run, reusable: false });
  await until("its end", () => watched.gone.length === 1, START_MS);
  await watched.idle(2);
});

/** How often `bin/chb` was started, as it wrote down itself. */
function starts(root: ShimRoot): number {
  try {
    return Deno.readTextFileSync(root.path("starts")).length;
  } catch {
    return 0;
  }
}

const FAILING: [string, string, (root: string) => string][] = [
  ["exits at once", "ended with code 3", (root) => `printf x >> ${root}/starts; exit 3`],
  [
    "says why it will not work",
    "fault grants",
    (root) => `printf x >> ${root}/starts; echo 'fault grants still:x'; exit 78`,
  ],
  [
    "does not keep its pid",
    "does not keep its pid",
    (root) => `printf x >> ${root}/starts; echo ready 1; exec sleep 60`,
  ],
];
for (const [what, fault, script] of FAILING) {
  Deno.test(`ShimPool waits longer and longer with a program that ${what}`, async () => {
    await using root = ShimRoot.make();
    Deno.writeTextFileSync(root.path("bin/chb"), `#!/bin/sh\n${script(root.root)}\n`);
    await using watched = new Watched(root);
    await until("the fault", () => watched.pool.fault !== null);
    assert(watched.pool.fault?.includes(fault), watched.pool.fault ?? "");
    const early = starts(root);
    await sleep(1500);
    const late = starts(root);
    assert(late - early <= 4, `${late} starts`);
    assertEquals([watched.pool.idle, watched.gone.length], [0, 0]);
    assert(watched.changes >= 1);
  });
}

Deno.test("ShimPool has its shims as soon as the program works again", async () => {
  await using root = ShimRoot.make();
  const works = Deno.readTextFileSync(root.path("bin/chb"));
  Deno.writeTextFileSync(root.path("bin/chb"), "#!/bin/sh\nexit 3\n");
  await using watched = new Watched(root);
  await until("the fault", () => watched.pool.fault !== null);
  Deno.writeTextFileSync(root.path("bin/chb"), works);
  await watched.idle(2);
  assertEquals(watched.pool.fault, null);
});

Deno.test("ShimPool reports a program that is not there", async () => {
  await using root = ShimRoot.make();
  Deno.removeSync(root.path("bin/chb"));
  await using watched = new Watched(root);
  await until("the fault", () => watched.pool.fault !== null);
  assert(watched.pool.fault?.includes("cannot start a shim"), watched.pool.fault ?? "");
});

Deno.test("ShimPool replaces a shim that stands still as soon as it has to be given to somebody", async () => {
  await using root = ShimRoot.make();
  await using watched = new Watched(root, 1, 1);
  const { pool } = watched;
  await watched.idle(2);
  const stopped = pool.pids;
  for (const pid of stopped) Deno.kill(pid, "SIGSTOP");
  try {
    for (let n = 0; n < 2; n++) pool.beat(true);
    for (let n = 0; n < 6; n++) pool.beat(false);
    assertEquals(pool.still.toSorted(), stopped.toSorted());
    assert(stopped.includes(watched.take(true).pid));
    // Who waits for that one in vain is given a shim that goes on.
    await watched.idle(2);
    assert(!stopped.includes(watched.take(true).pid));
  } finally {
    for (const pid of stopped) Deno.kill(pid, "SIGCONT");
  }
});

Deno.test("ShimPool.close() lets idle shims leave and busy ones finish", async () => {
  await using root = ShimRoot.make({ scripts: { slow: "sleep 0.6; echo finished" } });
  const watched = new Watched(root);
  await watched.idle(2);
  const shim = watched.take(true);
  const run = root.prepare(shim, "slow");
  shim.send(run);
  watched.pool.close();
  assertEquals(watched.pool.take(true), null);
  await until("the idle one to leave", () => watched.pool.pids.length === 1, 500);
  await until("the busy one to leave", () => watched.pool.pids.length === 0);
  assertEquals(watched.lines.map(([, line]) => line.run), [run]);
  assertEquals(root.read(run, "stdout"), "finished\n");
  await watched[Symbol.asyncDispose]();
});

Deno.test("ShimPool lets a daemon end that has nothing running, and not one that waits for a run", async () => {
  await using root = ShimRoot.make({ scripts: { slow: "sleep 0.5; echo finished" } });
  const start = (): Deno.ChildProcess =>
    new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-A",
        "--quiet",
        "--no-check",
        "--no-lock",
        new URL("./helpers/pool_daemon.ts", import.meta.url).pathname,
      ],
      cwd: root.root,
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
  const daemon = start();
  const reader = daemon.stdout.getReader();
  const [word, pid] = new TextDecoder().decode((await reader.read()).value).split(" ");
  assertEquals(word, "idle");
  root.adopt(Number(pid));
  const run = root.prepare({ pid: Number(pid) }, "slow");
  const stdin = daemon.stdin.getWriter();
  await stdin.write(new TextEncoder().encode(`${run}\n`));
  await stdin.close();
  const said = new TextDecoder().decode((await reader.read()).value);
  assertEquals(said, `exit ${pid} ${run} true\n`);
  const told = performance.now();
  assertEquals((await daemon.status).code, 0);
  assert(performance.now() - told < 5000, "nothing kept it alive afterwards");
  await reader.cancel();
});
