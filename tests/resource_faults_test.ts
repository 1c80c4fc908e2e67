/**
 * What a machine runs out of: space, names, a file system that takes changes, descriptors, processes;
 * and a shim that stands still. In each case nothing runs twice and nothing is lost, `status.json`
 * says what is wrong, and the service goes on by itself when the fault is gone (S1, S4).
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { assertAgreement } from "./helpers/agreement.ts";
import { type TestBridge, until, verb } from "./helpers/bridge.ts";
import { type Counted, countedBridge, type CountedOptions, UNTIL_GO } from "./helpers/counting.ts";
import { doctorNames } from "./helpers/doctor.ts";
import { AbortingDisk, cannotAbort, cannotMount, SmallDisk } from "./helpers/small_disk.ts";
import { lives, processesOf } from "./helpers/tracer.ts";

const noMount = cannotMount();
const root = {
  ignore: noMount !== null,
  skip: noMount === null ? "" : ` # SKIP ${noMount}`,
};

const noAbort = cannotAbort();
const aborting = {
  ignore: noAbort !== null,
  skip: noAbort === null ? "" : ` # SKIP ${noAbort}`,
};

const MARK = ["base/mark.sh", "{idempotency_key}"];
const WAIT = `[ "$2" != wait ] || ${UNTIL_GO}; ` +
  "head -c 200000 /dev/zero | tr '\\0' x; echo over";

async function bridgeWith(more: Partial<CountedOptions> = {}): Promise<Counted> {
  return await countedBridge({
    verbs: {
      look: verb(MARK),
      change: verb(MARK, { class: "mutating" }),
      wait: verb([...MARK, "wait"], { class: "mutating", timeout_s: 60 }),
    },
    then: WAIT,
    ...more,
  });
}

/** Waits until the status says that something is wrong. */
async function degraded(bridge: TestBridge, why: RegExp): Promise<void> {
  await until(`a status about ${why}`, () => {
    const status = bridge.status();
    return status?.["state"] === "degraded" && why.test(String(status["why"]));
  }, 30_000);
}

async function serving(bridge: TestBridge): Promise<void> {
  await until(
    "a status that says nothing is wrong",
    () => bridge.status()?.["state"] === "serving",
    30_000,
  );
}

/** Everything that was sent has run once and is told as it is stored. */
async function once(c: Counted, ids: readonly string[]): Promise<void> {
  for (const id of ids) assertEquals((await c.bridge.final(id, 30_000)).outcome, "succeeded", id);
  await assertAgreement(c.bridge, { ids, starts: c.runs(), mayBeUncertain: () => false });
  assertEquals(c.runs().toSorted(), ids.toSorted());
}

Deno.test({
  name:
    `S1 situation 5: a disk that fills while a command runs gives one run, told when there is space again${root.skip}`,
  ignore: root.ignore,
  async fn() {
    using disk = new SmallDisk();
    await using c = await bridgeWith({ within: disk.path });
    const { bridge } = c;
    await bridge.serve();
    bridge.submit("first", { verb: "wait" });
    await until("the start", () => c.runs().length === 1);
    await until("its state", () => bridge.result("first")?.state === "running");
    disk.fill();
    c.go();
    await degraded(bridge, /ENOSPC|FULL|space/);
    assertEquals(bridge.result("first")?.state, "running", "nothing is told that is not stored");
    await doctorNames(bridge, /^error: spool\/main: .*(ENOSPC|FULL|space)/m);
    await doctorNames(bridge, /^error: work: .*ENOSPC/m);
    disk.free();
    const result = await bridge.final("first", 30_000);
    assertEquals([result.outcome, result.exit_code], ["succeeded", 0]);
    assertEquals(result.stdout?.bytes, 200_005);
    await serving(bridge);
    bridge.submit("second", { verb: "look" });
    await once(c, ["first", "second"]);
  },
});

Deno.test({
  name:
    `S1 S4 without space for the state nothing starts, and what was asked runs once afterwards${root.skip}`,
  ignore: root.ignore,
  async fn() {
    await using c = await bridgeWith();
    const { bridge } = c;
    const state = bridge.path("state");
    const kept = bridge.path("state-kept");
    Deno.renameSync(state, kept);
    Deno.mkdirSync(state);
    using disk = new SmallDisk(state, "8m");
    await new Deno.Command("cp", { args: ["-a", `${kept}/.`, state] }).output();
    Deno.chmodSync(state, 0o700);
    await bridge.serve();
    for (const how of ["space", "names"]) {
      if (how === "space") disk.fill();
      else {
        // What is made for runs beforehand would be enough for these two: a daemon that can make none.
        assertEquals(await bridge.stop(), 0);
        Deno.removeSync(bridge.path("state/blank"), { recursive: true });
        Deno.writeTextFileSync(bridge.path("state/blank"), "");
        await bridge.serve();
        disk.inodes(disk.used);
      }
      const [look, change] = [`look-${how}`, `change-${how}`];
      bridge.submit(look, { verb: "look" });
      bridge.submit(change, { verb: "change" });
      await degraded(bridge, how === "space" ? /FULL|ENOSPC/ : /ENOSPC/);
      assertEquals(c.runs().filter((key) => key.endsWith(how)), [], "no intent, no start");
      await doctorNames(bridge, /^error: spool\/main: .*(ENOSPC|FULL)/m);
      await doctorNames(bridge, /^error: state: .*ENOSPC/m);
      if (how === "space") disk.free();
      else disk.inodes(0);
      await bridge.final(look, 30_000);
      await bridge.final(change, 30_000);
      await serving(bridge);
    }
    await once(c, ["look-space", "change-space", "look-names", "change-names"]);
  },
});

Deno.test({
  name:
    `S4 situation 5: a spool that turns read-only while a command runs gives one run, told when it can be${root.skip}`,
  ignore: root.ignore,
  async fn() {
    using disk = new SmallDisk();
    await using c = await bridgeWith({ within: disk.path });
    const { bridge } = c;
    // The state lies on a disk of its own, so that only what agents see is read-only.
    const kept = bridge.path("state-kept");
    Deno.renameSync(bridge.path("state"), kept);
    Deno.mkdirSync(bridge.path("state"), { mode: 0o700 });
    using _state = new SmallDisk(bridge.path("state"), "16m");
    await new Deno.Command("cp", { args: ["-a", `${kept}/.`, bridge.path("state")] }).output();
    Deno.chmodSync(bridge.path("state"), 0o700);
    await bridge.serve();
    bridge.submit("first", { verb: "wait" });
    await until("its state", () => bridge.result("first")?.state === "running");
    bridge.submit("second", { verb: "look" });
    await until("the mount", () => disk.readOnly(true));
    c.go();
    await until(
      "the end of the command",
      () => bridge.audit().some((r) => r["event"] === "finished" && r["id"] === "first"),
      30_000,
    );
    assertEquals(bridge.result("first")?.state, "running", "nothing can be told");
    assert(lives(bridge.pid), "the daemon lives");
    await until("the fault in the log", () => /EROFS/.test(bridge.log), 30_000);
    await doctorNames(bridge, /^error: work: .*EROFS/m);
    await until("the mount", () => disk.readOnly(false));
    await once(c, ["first", "second"]);
    await serving(bridge);
  },
});

Deno.test({
  name:
    `S1 S4 a disk under the ledger that takes no changes ends the service, and a start goes on when it does${aborting.skip}`,
  ignore: aborting.ignore,
  async fn() {
    await using c = await bridgeWith();
    const { bridge } = c;
    const state = bridge.path("state");
    const kept = bridge.path("state-kept");
    Deno.renameSync(state, kept);
    Deno.mkdirSync(state);
    using disk = new AbortingDisk(state);
    await new Deno.Command("cp", { args: ["-a", `${kept}/.`, state] }).output();
    // What the copy left to be written later would be lost, and was never promised by anybody.
    await new Deno.Command("sync", { args: ["-f", state] }).output();
    Deno.chmodSync(state, 0o700);
    await bridge.serve();
    await bridge.ask("before", { verb: "look" });
    bridge.submit("running", { verb: "wait" });
    await until("its state", () => bridge.result("running")?.state === "running");
    disk.abort();
    const waiting = ["look", "change"];
    for (const id of waiting) bridge.submit(id, { verb: id });
    await until("the end of the service", () => !lives(bridge.pid), 30_000);
    assertEquals(await bridge.stop(), 70, bridge.log);
    assertEquals(bridge.status()?.["state"], "stopped");
    assertMatch(String(bridge.status()?.["why"]), /ended with a fault: .*ledger: disk I\/O error/);
    await doctorNames(bridge, /^error: state: .*EROFS/m);
    await doctorNames(bridge, /^warning: state: No daemon serves here: .*disk I\/O error/m);
    // As a unit would start it again; the code is none that it leaves it at.
    assertEquals((await bridge.chb("once")).code, 75);
    assertEquals(c.runs(), ["before", "running"]);

    // A machine that is started again: nothing that runs outlives it.
    c.go();
    for (const pid of processesOf(bridge.root)) Deno.kill(-pid, "SIGKILL");
    await until("the mount", () => disk.repair(), 30_000);
    await bridge.serve();
    assertEquals((await bridge.final("running", 30_000)).state, "uncertain");
    for (const id of waiting) {
      assertEquals((await bridge.final(id, 30_000)).outcome, "succeeded", id);
    }
    const ids = ["before", "running", ...waiting];
    await assertAgreement(bridge, {
      ids,
      starts: c.runs(),
      mayBeUncertain: (id) => id === "running",
    });
    assertEquals(c.runs().toSorted(), ids.toSorted());
    await serving(bridge);
  },
});

/** Changes a limit of a running process. */
async function limit(pid: number, what: string): Promise<void> {
  const { success } = await new Deno.Command("prlimit", {
    args: ["--pid", String(pid), what],
    stderr: "null",
  }).output();
  assert(success, "prlimit");
}

Deno.test("S1 without descriptors nothing is lost or run twice, and it goes on when there are some", async () => {
  await using c = await bridgeWith();
  const { bridge } = c;
  await bridge.serve();
  await bridge.ask("before", { verb: "look" });
  bridge.submit("running", { verb: "wait" });
  await until("the start", () => c.runs().length === 2);
  // Far below what is open: nothing can be opened in the place of what is closed meanwhile.
  await limit(bridge.pid, "--nofile=8:1024");
  bridge.submit("meanwhile", { verb: "look" });
  c.go();
  await until("the fault in the log", () => /EMFILE/.test(bridge.log), 30_000);
  assert(lives(bridge.pid), "the daemon lives");
  // As long after the last status as that takes: nothing can be written in its place.
  const status = bridge.path("spool/main/inbox/status.json");
  const at = new Date(Date.now() - 60_000).toISOString();
  Deno.writeTextFileSync(status, JSON.stringify({ ...bridge.status(), at }));
  await doctorNames(bridge, /^error: .*status.json: .*wrote no status for 15 s/m);
  await limit(bridge.pid, "--nofile=1024:1024");
  await once(c, ["before", "running", "meanwhile"]);
  await serving(bridge);
});

Deno.test("X10 X18 a shim that stands still is ended at its limit by the daemon, and its run is told", async () => {
  await using c = await countedBridge({
    verbs: {
      hang: verb([...MARK, "wait"], { class: "mutating", timeout_s: 1, lock: "one" }),
      next: verb(MARK, { class: "mutating", lock: "one" }),
    },
    then: '[ "$2" != wait ] || exec sleep 60',
    limits: { grace_s: 0.5 },
  });
  const { bridge } = c;
  await bridge.serve();
  bridge.submit("hang", { verb: "hang" });
  await until("the start", () => c.runs().length === 1);
  const shim = processesOf(bridge.root).find((pid) => {
    if (pid === bridge.pid) return false;
    const children = Deno.readTextFileSync(`/proc/${pid}/task/${pid}/children`);
    return children.trim() !== "";
  });
  assert(shim !== undefined, "a shim runs it");
  Deno.kill(shim, "SIGSTOP");
  bridge.submit("next", { verb: "next" });
  const hang = await bridge.final("hang", 40_000);
  assertEquals([hang.outcome, hang.reason], ["timed_out", "timed-out"]);
  assertEquals((await bridge.final("next", 30_000)).outcome, "succeeded");
  assertEquals(c.runs(), ["hang", "next"]);
  await until("the end of the shim", () => !lives(shim));
});

Deno.test("X18 shims that stand still before they take an order: it is taken back and runs once elsewhere", async () => {
  await using c = await bridgeWith({ limits: { concurrency: 1 } });
  const { bridge } = c;
  await bridge.serve();
  const shims = () => processesOf(bridge.root).filter((pid) => pid !== bridge.pid);
  // One for the run and a spare.
  await until("idle shims", () => shims().length >= 2);
  await bridge.chb("status");
  const still = shims();
  for (const pid of still) Deno.kill(pid, "SIGSTOP");
  bridge.submit("first", { verb: "change" });
  const result = await bridge.final("first", 60_000);
  assertEquals([result.outcome, result.attempt], ["succeeded", 1]);
  for (const pid of still) if (lives(pid)) Deno.kill(pid, "SIGCONT");
  bridge.submit("second", { verb: "change" });
  await once(c, ["first", "second"]);
});

Deno.test({
  name: `S1 on a full disk a command can be cancelled, and a start is tried again${root.skip}`,
  ignore: root.ignore,
  async fn(t) {
    using disk = new SmallDisk();
    await using c = await bridgeWith({ within: disk.path });
    const { bridge } = c;
    await bridge.serve();
    for (const [n, daemon] of [true, false].entries()) {
      await t.step(daemon ? "beside a daemon" : "without one", async () => {
        const id = `run-${n}`;
        bridge.submit(id, { verb: "wait" });
        await until("the start", () => c.runs().length === n + 1);
        await until("its state", () => bridge.result(id)?.state === "running");
        if (!daemon) await bridge.stop();
        disk.fill();
        const { code, err } = await bridge.chb("cancel", id);
        assertEquals(code, 75, err);
        assertMatch(err, /was asked to end all the same/);
        const left = [...Deno.readDirSync(bridge.path("state/control"))].map((e) => e.name);
        assertEquals(left, [], "nothing is left that nobody reads");
        if (!daemon) {
          const child = new Deno.Command("./bin/chb", {
            args: ["serve"],
            cwd: bridge.root,
            stdin: "null",
            stdout: "null",
            stderr: "piped",
          }).spawn();
          let log = "";
          for await (const chunk of child.stderr.pipeThrough(new TextDecoderStream())) {
            log += chunk;
            if (log.includes("try-again")) break;
          }
          assertMatch(log, /disk is full|disk I\/O error/);
          child.kill("SIGTERM");
          assertEquals((await child.status).code, 75, "no code that a unit leaves it at");
        }
        disk.free();
        if (!daemon) await bridge.serve();
        assertEquals((await bridge.final(id, 30_000)).outcome, "cancelled");
      });
    }
  },
});
