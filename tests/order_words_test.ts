/**
 * The words between daemon and shim: an order is taken while its start is committed, started at a word
 * and put back without one. Nothing starts before the word, twice, or after it was taken back, whoever
 * dies or stands still in between (S5, S6, S7).
 *
 * @module
 */
import { assert, assertEquals, AssertionError, assertNotEquals, assertRejects } from "@std/assert";
import { join } from "@std/path/join";
import { markCancel, prepareRun, runLocked, voidOrder } from "../src/run/order_file.ts";
import { inRepository } from "../tools/launcher.ts";
import { ENTRIES } from "../tools/wrapper.ts";
import { assertAgreement } from "./helpers/agreement.ts";
import { type TestBridge, there, until as eventually } from "./helpers/bridge.ts";
import { type Counted, countedBridge, LOOKUP, marking, UNTIL_GO } from "./helpers/counting.ts";
import { AFTER_MS, shims } from "./helpers/round.ts";
import { type RawShim, ShimRoot, sleep } from "./helpers/shim_root.ts";
import { cannotInject, Injector, lives, processesOf } from "./helpers/tracer.ts";

// The shim

/** Leaves a line for each start. */
const MARK = 'echo x >> "${0%/*}/marks"';

/** A root whose verb `mark` leaves a line for each start. */
function markRoot(more: Record<string, unknown> = {}): ShimRoot {
  return ShimRoot.make({
    scripts: { mark: MARK },
    verbs: { mark: more },
    files: { data: "data" },
  });
}

/** How often `mark` was started. */
function marks(root: ShimRoot): number {
  const path = root.path("base/marks");
  return there(path) ? Deno.readTextFileSync(path).length / 2 : 0;
}

/** Has a shim take an order, and waits until it waits for the word. */
async function offer(root: ShimRoot, shim: RawShim, run: string): Promise<void> {
  await shim.write(`take ${run}\nping\n`);
  assertEquals(await shim.line(), "pong");
  assertEquals([marks(root), runLocked(run, root.root)], [0, true]);
  assertEquals(root.files(run).filter((name) => name !== "shim.log"), ["taken.json"]);
}

/** Says something that starts nothing, and waits until it was heard. */
async function unheard(shim: RawShim, text: string): Promise<void> {
  await shim.write(`${text}ping\n`);
  assertEquals(await shim.line(), "pong");
}

Deno.test("shim starts a taken order at the word, however late, and once", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  await offer(root, shim, run);
  for (const signal of ["SIGTERM", "SIGHUP", "SIGSTOP", "SIGCONT"] as const) {
    Deno.kill(shim.pid, signal);
  }
  await sleep(500);
  assertEquals([marks(root), root.files(run)], [0, ["taken.json"]]);
  await shim.write(`go ${run}\n`);
  assertEquals(await shim.line(), `exit ${run} reusable`);
  assertEquals([marks(root), root.mustExit(run).kind], [1, "exited"]);
  await unheard(shim, `go ${run}\n`);
  assertEquals([marks(root), runLocked(run, root.root)], [1, false]);
});

Deno.test("shim starts an order whose word came with it, though its input ends", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  await shim.write(`take ${run}\ngo ${run}\n`);
  await shim.closeStdin();
  assertEquals(await shim.line(), `exit ${run} reusable`);
  assertEquals([marks(root), (await shim.close()).code], [1, 0]);
});

/** Has a shim take an order and put it back. */
async function takeBack(root: ShimRoot, shim: RawShim, run: string): Promise<void> {
  await offer(root, shim, run);
  await shim.write(`drop ${run}\n`);
  assertEquals(await shim.line(), `gone ${run}`);
  assertEquals([root.files(run), runLocked(run, root.root)], [["order.json"], false]);
  assertEquals(marks(root), 0);
}

Deno.test("shim puts an order back that is dropped, and takes the next one", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  const text = root.read(run, "order.json");
  for (let i = 0; i < 2; i++) {
    await takeBack(root, shim, run);
    assertEquals(root.read(run, "order.json"), text, "the same order");
  }
  assertEquals(voidOrder(run, root.root), true);
  const next = root.prepare(shim, "mark");
  await offer(root, shim, next);
  await shim.write(`go ${next}\n`);
  assertEquals(await shim.line(), `exit ${next} reusable`);
  assertEquals([marks(root), root.files(run)], [1, ["void.json"]]);
});

Deno.test("shim puts an order back when its input ends before the word, and leaves", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  await offer(root, shim, run);
  // Half a word is none.
  await shim.write(`go ${run}`);
  await shim.closeStdin();
  assertEquals(await shim.line(), `gone ${run}`);
  assertEquals(await shim.line(), null);
  assertEquals((await shim.close()).code, 0);
  assertEquals([root.files(run), runLocked(run, root.root)], [["order.json"], false]);
  assertEquals(marks(root), 0);
});

Deno.test("shims that wait for the word all put back when their daemon's pipes close", async () => {
  await using root = markRoot();
  // Started after one another, so that a later one could have inherited an earlier one's pipe.
  const all: [RawShim, string][] = [];
  for (let i = 0; i < 3; i++) {
    const shim = await root.shim();
    all.push([shim, root.prepare(shim, "mark")]);
  }
  for (const [shim, run] of all) await offer(root, shim, run);
  for (const [shim, run] of all) {
    await shim.closeStdin();
    assertEquals(await shim.line(), `gone ${run}`);
    assertEquals(root.files(run), ["order.json"]);
  }
  assertEquals(marks(root), 0);
});

Deno.test("shim starts nothing at a word that is not about the order which it took", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  const other = root.prepare(shim, "mark");
  // Nothing was taken.
  await unheard(shim, `go ${run}\ndrop ${run}\ngo\ntake\ntake x\ntake ../x\nTAKE ${run}\n`);
  assertEquals([root.files(run), root.files(other)], [["order.json"], ["order.json"]]);
  await offer(root, shim, run);
  await unheard(
    shim,
    `go ${other}\ndrop ${other}\ntake ${other}\n${other}\n${run}\ngo\ngo ${run} \n go ${run}\n` +
      `go ${run} x\ndrop\n`,
  );
  assertEquals([marks(root), root.files(run), root.files(other)], [
    0,
    ["taken.json"],
    ["order.json"],
  ]);
  await shim.write(`go ${run}\n`);
  assertEquals(await shim.line(), `exit ${run} reusable`);
  assertEquals([marks(root), root.files(other)], [1, ["order.json"]]);
});

Deno.test("shim starts nothing when it is stopped between an order and its word", async (t) => {
  const rows: [string, string, (root: ShimRoot, run: string) => void][] = [
    ["cancelled", "before-start", (root, run) => markCancel(run, root.root)],
    ["killed", "before-start", (root) => Deno.writeTextFileSync(root.path("state/KILL"), "")],
    ["killed", "before-start", (root) => Deno.writeTextFileSync(root.path("state/KILL.main"), "")],
    ["base_changed", "program-differs", (root) => {
      Deno.writeTextFileSync(root.path("base/new"), "#!/bin/sh\necho y >> ${0%/*}/marks\n");
      Deno.chmodSync(root.path("base/new"), 0o755);
      Deno.renameSync(root.path("base/new"), root.path("base/mark"));
    }],
    ["base_changed", "required-file-differs", (root) => {
      Deno.writeTextFileSync(root.path("base/data"), "other");
    }],
  ];
  for (const [i, [kind, detail, change]] of rows.entries()) {
    await t.step(`${i}: ${kind}, ${detail}`, async () => {
      await using root = markRoot({ requires: ["base/data"] });
      const shim = await root.shim();
      const run = root.prepare(shim, "mark");
      await offer(root, shim, run);
      change(root, run);
      await sleep(50);
      await shim.write(`go ${run}\n`);
      assertEquals(await shim.line(), `exit ${run} reusable`);
      const exit = root.mustExit(run);
      assertEquals([exit.kind, exit.detail, exit.started], [kind, detail, false]);
      assertEquals(marks(root), 0);
    });
  }
});

Deno.test("shim records nothing of an order that it cannot read before the word", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  Deno.writeTextFileSync(join(root.dir(run), "order.json"), "{");
  await offer(root, shim, run);
  assertEquals(root.exit(run), null);
  await shim.write(`drop ${run}\n`);
  assertEquals(await shim.line(), `gone ${run}`);
  assertEquals(root.files(run), ["order.json", "shim.log"]);
  await offer(root, shim, run);
  await shim.write(`go ${run}\n`);
  assertEquals(await shim.line(), `exit ${run} reusable`);
  const exit = root.mustExit(run);
  assertEquals([exit.kind, exit.detail, exit.started], ["base_changed", "order-unreadable", false]);
});

Deno.test("shim starts nothing when the run directory is gone at the word", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  await offer(root, shim, run);
  Deno.removeSync(root.dir(run), { recursive: true });
  await shim.write(`go ${run}\n`);
  assertEquals(await shim.line(), `gone ${run}`);
  const next = root.prepare(shim, "mark");
  assertEquals(await shim.run(next), `exit ${next} reusable`);
  assertEquals(marks(root), 1, "only the next one ran");
});

Deno.test("shim starts nothing either when an order cannot be put back, and works on", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const order = root.order(shim, "mark");
  prepareRun(order, root.root);
  await offer(root, shim, order.run);
  Deno.mkdirSync(join(root.dir(order.run), "order.json"));
  await shim.write(`drop ${order.run}\n`);
  assertEquals(await shim.line(), `gone ${order.run}`);
  assertEquals(root.files(order.run), ["order.json", "shim.log", "taken.json"]);
  assert(root.read(order.run, "shim.log").includes("cannot-put-back"));
  assertEquals([marks(root), runLocked(order.run, root.root)], [0, false]);
  const next = root.prepare(shim, "mark");
  assertEquals(await shim.run(next), `exit ${next} reusable`);
});

Deno.test("shim that is killed before the word has started nothing, and lets go of the lock", async () => {
  await using root = markRoot();
  const shim = await root.shim();
  const run = root.prepare(shim, "mark");
  await offer(root, shim, run);
  Deno.kill(shim.pid, "SIGKILL");
  assertEquals(await shim.line(), null);
  assertEquals([root.files(run), runLocked(run, root.root)], [["taken.json"], false]);
  assertEquals(marks(root), 0);
});

/** Shims that are wrong: what is left out, its place in `src/run/shim.ts`, and what stands there. */
const MUTANTS: readonly (readonly [what: string, find: string, replace: string])[] = [
  ["starts without the word", "if (!mayStart() || ", "if ("],
  ["does not put back", "      putBack(dir, handle);\n", ""],
  [
    "takes a drop for the word",
    "if (line === null || line === `drop ${run}`) return false;",
    "if (line === null || line === `drop ${run}`) return true;",
  ],
];

for (const [what, find, replace] of MUTANTS) {
  Deno.test(`a shim that ${what} is noticed`, async () => {
    const directory = Deno.makeTempDirSync({ prefix: "chb-mutant-" });
    try {
      const parts = Deno.readTextFileSync(inRepository("src/run/shim.ts")).split(find);
      assertEquals(parts.length, 2, "its place is there once");
      const beside = new URL(`file://${inRepository("src/run/x")}`);
      const text = parts.join(replace)
        .replace(/ from "(\.[^"]+)"/g, (_, path) => ` from "${new URL(path, beside)}"`);
      Deno.writeTextFileSync(`${directory}/shim.ts`, `${text}\nDeno.exit(await runShim());\n`);
      Deno.chmodSync(directory, 0o755);
      await using root = ShimRoot.make({
        scripts: { mark: MARK },
        wrapper: (text) => text.replaceAll(ENTRIES.shim, `${directory}/shim.ts`),
      });
      const shim = await root.shim();
      const run = root.prepare(shim, "mark");
      await assertRejects(() => takeBack(root, shim, run), AssertionError);
    } finally {
      Deno.removeSync(directory, { recursive: true });
    }
  });
}

// The daemon

const noInject = cannotInject();

/** A bridge that runs one command at a time and has one shim to spare. */
async function oneBridge(
  verbs: Record<string, unknown> = {},
  then = "",
): Promise<Counted> {
  const counted = await countedBridge({
    verbs: { change: marking([], { class: "mutating", lock: "one" }), look: marking(), ...verbs },
    then,
    limits: { concurrency: 1, grace_s: 0.5 },
  });
  await counted.bridge.serve();
  return counted;
}

/** Shims that wait for an order, of a daemon that has nothing left to commit. */
async function atRest(bridge: TestBridge): Promise<number[]> {
  const path = bridge.path("state/ledger.db-wal");
  const still = () => Date.now() - (Deno.statSync(path).mtime?.getTime() ?? 0) > AFTER_MS;
  await eventually("the ledger to rest", still, 30_000);
  return await shims(bridge);
}

/** Holds the daemon up before it writes its next commit, or after it has made it durable. */
async function holdCommit(bridge: TestBridge, mode: "before" | "after"): Promise<Injector> {
  await atRest(bridge);
  const call = mode === "before" ? "pwrite64" : "fsync";
  return await Injector.start([bridge.pid], { mode, call, about: "state/ledger.db-wal" });
}

/** Run directories, by what their order is called. */
function runDirs(bridge: TestBridge): { run: string; dir: string; names: string[] }[] {
  return [...Deno.readDirSync(bridge.path("state/runs"))].map(({ name: run }) => {
    const dir = bridge.path("state/runs", run);
    return { run, dir, names: [...Deno.readDirSync(dir)].map((entry) => entry.name) };
  });
}

/**
 * Waits until a shim has taken an order, and gives its directory.
 *
 * @param but one that was taken before
 */
async function taken(bridge: TestBridge, but = ""): Promise<string> {
  const dir = await eventually("a taken order", () => {
    const found = runDirs(bridge).find(({ run, dir, names }) =>
      dir !== but && names.includes("taken.json") && !names.includes("exit.json") &&
      runLocked(run, bridge.root)
    );
    return found?.dir;
  }, 30_000);
  // Long enough for a start that does not wait.
  await sleep(300);
  return dir;
}

/** The shim that has a taken order. */
function shimOf(dir: string): number {
  return JSON.parse(Deno.readTextFileSync(join(dir, "taken.json"))).pgid;
}

async function agree({ bridge, runs }: Counted, ids: readonly string[]): Promise<void> {
  await assertAgreement(bridge, { ids, starts: runs(), mayBeUncertain: () => false });
}

Deno.test({
  name:
    "S6 S7 a daemon that is killed while an order is taken leaves a request that runs once, and " +
    "who stops it meanwhile is heeded" + (noInject === null ? "" : ` # SKIP ${noInject}`),
  ignore: noInject !== null,
  async fn(t) {
    await using c = await oneBridge(
      {
        dies: marking(["dies"], {
          class: "mutating",
          lock: "one",
          ...LOOKUP,
        }),
      },
      `case $2 in dies) ${UNTIL_GO}; kill -KILL 0;; esac`,
    );
    const { bridge, runs } = c;
    for (const where of ["before", "after"] as const) {
      await t.step(`killed ${where} the commit`, async () => {
        const id = `killed-${where}`;
        const ran = runs().length;
        let dir: string;
        {
          await using _held = await holdCommit(bridge, where);
          bridge.submit(id, { verb: "change" });
          dir = await taken(bridge);
          assertEquals(runs().length, ran, "nothing starts before the word");
          await bridge.stop("SIGKILL");
        }
        await eventually("the order to be put back", () => there(join(dir, "order.json")));
        await eventually("its shim to leave", () => processesOf(bridge.root).length === 0);
        assertEquals(runs().length, ran);
        await bridge.serve();
        const result = await bridge.final(id, 60_000);
        assertEquals([result.outcome, result.attempt], ["succeeded", 1]);
        assertEquals(runs().slice(ran), [id]);
        await agree(c, [id]);
      });
    }
    await t.step("it gives up, since nobody knows whether the commit happened", async () => {
      const ran = runs().length;
      await atRest(bridge);
      const before = new Set(runDirs(bridge).map(({ run }) => run));
      {
        await using _failing = await Injector.start([bridge.pid], {
          mode: "applied",
          call: "fsync",
          error: "EIO",
          about: "state/ledger.db-wal",
        });
        bridge.submit("unknown", { verb: "change" });
        await eventually("the end of the service", () => !lives(bridge.pid), 30_000);
      }
      assertNotEquals(await bridge.stop(), 0);
      await eventually("its shims to leave", () => processesOf(bridge.root).length === 0);
      const left = runDirs(bridge).filter(({ run }) => !before.has(run));
      assertEquals(left.map(({ names }) => names.includes("order.json")), [true], "put back");
      assertEquals(runs().length, ran);
      await bridge.serve();
      assertEquals((await bridge.final("unknown", 60_000)).outcome, "succeeded");
      assertEquals(runs().slice(ran), ["unknown"]);
      await agree(c, ["unknown"]);
    });
    await t.step("killed while it asks what became of an earlier run", async () => {
      const ran = runs().length;
      bridge.submit("asked", { verb: "dies", idempotency_key: "k-asked" });
      const first = await taken(bridge);
      let second: string;
      {
        await using _held = await holdCommit(bridge, "after");
        c.go();
        second = await taken(bridge, first);
        assertEquals(runs().slice(ran), ["asked"]);
        await bridge.stop("SIGKILL");
      }
      await eventually("the order to be put back", () => there(join(second, "order.json")));
      await bridge.serve();
      const result = await bridge.final("asked", 60_000);
      assertEquals([result.outcome, result.resolved?.by], ["succeeded", "lookup"]);
      assertEquals(runs().slice(ran), ["asked", "k-asked"]);
    });
    await t.step("a kill switch goes up", async () => {
      const ran = runs().length;
      {
        await using _held = await holdCommit(bridge, "after");
        bridge.submit("stopped", { verb: "change" });
        await taken(bridge);
        Deno.writeTextFileSync(bridge.path("state/KILL"), "");
      }
      const result = await bridge.final("stopped", 60_000);
      assertEquals([result.reason, result.outcome], ["killed", "rejected"]);
      assertEquals(runs().length, ran);
      Deno.removeSync(bridge.path("state/KILL"));
    });
    await t.step("its shim stands still for a while", async () => {
      const ran = runs().length;
      let pid: number;
      {
        await using _held = await holdCommit(bridge, "after");
        bridge.submit("still", { verb: "change" });
        pid = shimOf(await taken(bridge));
        Deno.kill(pid, "SIGSTOP");
      }
      await eventually("the commit", () => bridge.result("still")?.state === "running", 60_000);
      assertEquals(runs().length, ran);
      Deno.kill(pid, "SIGCONT");
      assertEquals((await bridge.final("still", 60_000)).outcome, "succeeded");
      assertEquals(runs().slice(ran), ["still"]);
    });
    await t.step("its shim is killed: nobody knows, and it never runs", async () => {
      const ran = runs().length;
      {
        await using _held = await holdCommit(bridge, "after");
        bridge.submit("lost", { verb: "change" });
        Deno.kill(shimOf(await taken(bridge)), "SIGKILL");
      }
      assertEquals((await bridge.final("lost", 60_000)).state, "uncertain");
      bridge.submit("lost", { verb: "change" });
      await sleep(1500);
      assertEquals(runs().length, ran);
    });
  },
});

Deno.test({
  name:
    "S5 a commit that fails gives back order, shim and slot, is not tried without a pause, and the " +
    "request runs once" + (noInject === null ? "" : ` # SKIP ${noInject}`),
  ignore: noInject !== null,
  async fn(t) {
    await using c = await oneBridge({}, UNTIL_GO);
    const { bridge, runs } = c;
    const failing = (pid: number) =>
      Injector.start([pid], {
        mode: "lost",
        call: "pwrite64",
        error: "ENOSPC",
        when: 0,
        about: "ledger.db-wal",
      });
    const failed = () => bridge.log.includes("commit-failed");

    await t.step("that of an entry", async () => {
      const before = await atRest(bridge);
      {
        await using injector = await failing(bridge.pid);
        bridge.submit("one", { verb: "change" });
        await eventually("a commit that fails", () => injector.injected.length > 0, 30_000);
        await eventually("the run directory to go", () => runDirs(bridge).length === 0);
        assertEquals([failed(), runs().length, lives(bridge.pid)], [true, 0, true]);
        const now = processesOf(bridge.root).filter((pid) => pid !== bridge.pid);
        assertEquals(now, before, "no shim was spent");
      }
      await eventually("its start", () => runs().length === 1, 60_000);
    });
    await t.step("that of a start which waited", async () => {
      bridge.submit("two", { verb: "change" });
      await eventually("the waiter", () => bridge.result("two")?.state === "pending");
      const shim = shimOf(await taken(bridge));
      await atRest(bridge);
      // Its shim has told of the end, and holds lock and slot until it has ended.
      let ending: Injector | null = await Injector.start([shim], {
        mode: "before",
        call: "clone3",
      });
      try {
        c.go();
        await eventually("the end", () => bridge.result("one")?.state === "done");
        await atRest(bridge);
        await using injector = await failing(bridge.pid);
        await ending[Symbol.asyncDispose]();
        ending = null;
        await eventually("a commit that fails", () => injector.injected.length > 0, 30_000);
        const seen = injector.injected.length;
        await sleep(3000);
        const more = injector.injected.length - seen;
        assert(more <= 60, `${more} commits were tried in 3 s`);
        await eventually("the run directory to go", () => runDirs(bridge).length === 0);
        assertEquals([bridge.result("two")?.state, runs()], ["pending", ["one"]]);
      } finally {
        await ending?.[Symbol.asyncDispose]();
      }
      for (const id of ["one", "two"]) {
        assertEquals((await bridge.final(id, 60_000)).outcome, "succeeded");
      }
      assertEquals(runs(), ["one", "two"]);
      await agree(c, ["one", "two"]);
    });
    await t.step("while the shim stands still: another one takes its place", async () => {
      const pids = await atRest(bridge);
      {
        await using injector = await failing(bridge.pid);
        for (const pid of pids) Deno.kill(pid, "SIGSTOP");
        bridge.submit("three", { verb: "change" });
        await eventually("a commit that fails", () => injector.injected.length > 0, 30_000);
        await eventually(
          "the end of one that was stopped",
          () => pids.some((pid) => !lives(pid)),
          40_000,
        );
        await eventually("the run directory to go", () => runDirs(bridge).length === 0);
      }
      for (const pid of pids) if (lives(pid)) Deno.kill(pid, "SIGCONT");
      assertEquals((await bridge.final("three", 60_000)).outcome, "succeeded");
      assertEquals(runs(), ["one", "two", "three"]);
    });
  },
});

Deno.test({
  name:
    "S7 an order of an earlier daemon that is put back while the next one asks for its group was " +
    "never started" + (noInject === null ? "" : ` # SKIP ${noInject}`),
  ignore: noInject !== null,
  async fn() {
    await using c = await oneBridge();
    const { bridge, runs } = c;
    let dir: string;
    {
      await using _held = await holdCommit(bridge, "after");
      bridge.submit("back", { verb: "change" });
      dir = await taken(bridge);
      Deno.kill(shimOf(dir), "SIGKILL");
      await bridge.stop("SIGKILL");
    }
    // The test is the shim now: a process group that lives, and an order that it has taken.
    const group = new Deno.Command("/usr/bin/setsid", {
      args: ["sleep", "60"],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
    const path = join(dir, "taken.json");
    const order = JSON.parse(Deno.readTextFileSync(path));
    Deno.writeTextFileSync(path, JSON.stringify({ ...order, pgid: group.pid }));
    try {
      await bridge.serve();
      await shims(bridge);
      await sleep(1500);
      assertEquals(bridge.result("back")?.state ?? "running", "running");
      // It asks once a second. It has looked for the order by then, and has not asked for the group.
      const asking = await Injector.start([bridge.pid], { mode: "before", call: "clone3" });
      try {
        await eventually("its question", () => asking.injected.length > 0);
        Deno.renameSync(path, join(dir, "order.json"));
        group.kill("SIGKILL");
        await group.status;
      } finally {
        await asking[Symbol.asyncDispose]();
      }
    } finally {
      await group[Symbol.asyncDispose]();
    }
    assertEquals((await bridge.final("back", 60_000)).outcome, "succeeded");
    assertEquals(runs(), ["back"]);
    await agree(c, ["back"]);
  },
});
