/**
 * Faults and crashes as people met them: names that are squatted, keys that come again after a
 * crash, two daemons on one root, a stop in the middle of things, nobody who reads the log, and a
 * command that leaves no room for the helper that is to end it.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { assertAgreement } from "./helpers/agreement.ts";
import { Ledger } from "../src/ledger/ledger.ts";
import type { Result } from "../src/result.ts";
import { sleep, TestBridge, until, verb } from "./helpers/bridge.ts";
import { type Counted, countedBridge } from "./helpers/counting.ts";
import { lives, processesOf } from "./helpers/tracer.ts";

const MARK = ["base/mark.sh", "{idempotency_key}"];

async function bridgeWith(then: string, more: Record<string, unknown> = {}): Promise<Counted> {
  return await countedBridge({
    verbs: {
      look: verb(MARK),
      change: verb([...MARK, "wait"], { class: "mutating", timeout_s: 30, ...more }),
    },
    then,
    limits: { grace_s: 0.5 },
  });
}

/** Waits for a final result under a name that something else may have for a while. */
async function told(bridge: TestBridge, id: string): Promise<Result> {
  return await until(`results/${id}.json`, () => {
    try {
      const result = bridge.result(id);
      return result?.state === "done" ? result : null;
    } catch {
      return null;
    }
  });
}

const SLEEPS = '[ "$2" != wait ] || sleep 1.5; echo over';

Deno.test("situation 4: names that are planted before and during a run change no host file and run nothing twice", async () => {
  await using c = await bridgeWith(SLEEPS);
  const { bridge } = c;
  const host = `${bridge.outside}/host.txt`;
  Deno.writeTextFileSync(host, "host\n");
  await bridge.serve();
  const results = bridge.path("spool/main/results");
  const plant = (id: string) => {
    Deno.mkdirSync(`${results}/${id}.json`);
    Deno.writeTextFileSync(`${results}/${id}.json/full`, "x");
    Deno.symlinkSync(host, `${results}/${id}.stdout`);
    Deno.linkSync(host, `${results}/${id}.stderr`);
    Deno.symlinkSync(host, `${results}/${id}.json.tmp`);
  };
  plant("before");
  bridge.submit("before", { verb: "look" });
  const first = await told(bridge, "before");
  assertEquals([first.outcome, first.stdout?.head], ["succeeded", "over\n"]);
  bridge.submit("during", { verb: "change" });
  await until("the start", () => c.runs().includes("during"));
  await until("its state", () => bridge.result("during") !== null);
  Deno.removeSync(`${results}/during.json`);
  for (const name of ["during.stdout", "during.stderr"]) {
    await Deno.remove(`${results}/${name}`).catch(() => {});
  }
  plant("during");
  const second = await told(bridge, "during");
  assertEquals(second.outcome, "succeeded");
  assertEquals(Deno.readTextFileSync(host), "host\n");
  assertEquals(c.runs(), ["before", "during"]);
});

Deno.test("X18 situation 6: a key comes again while it runs, with other arguments, and after a crash, and runs once", async () => {
  await using c = await countedBridge({
    verbs: {
      change: verb([...MARK, "{n}"], {
        class: "mutating",
        timeout_s: 30,
        args: { n: { type: "integer", min: 0, max: 9, default: 0 } },
      }),
    },
    then: SLEEPS.replace('"$2" != wait', '"$2" = 1'),
    limits: { grace_s: 0.5 },
  });
  const { bridge } = c;
  await bridge.serve();
  const key = { idempotency_key: "key" };
  bridge.submit("a", { verb: "change", ...key });
  await until("the start", () => c.runs().length === 1);
  // (a) The same while it runs joins it.
  bridge.submit("b", { verb: "change", ...key });
  await until("the join", () => bridge.result("b")?.replay_of === "a");
  // (b) Another one under the key is a conflict.
  assertEquals(
    (await bridge.ask("c", { verb: "change", args: { n: 1 }, ...key })).reason,
    "key-conflict",
  );
  // (c) What ran it dies, and so does the daemon: uncertain, and never a second run.
  for (const pid of processesOf(bridge.root)) if (pid !== bridge.pid) Deno.kill(pid, "SIGKILL");
  await bridge.stop("SIGKILL");
  await bridge.serve();
  assertEquals((await bridge.final("a", 60_000)).state, "uncertain");
  assertEquals((await bridge.final("b", 60_000)).state, "uncertain");
  for (const id of ["a", "b", "d"]) {
    bridge.submit(id, { verb: "change", ...key });
    await until(`the end of ${id}`, () => bridge.queued().length === 0);
    assertEquals((await bridge.final(id)).state, "uncertain", "the answer stays");
  }
  await sleep(300);
  assertEquals(c.runs(), ["key"]);
});

Deno.test("S10 situation 7: two daemons and one that starts again while a command runs start nothing twice over 20 requests", async () => {
  await using c = await bridgeWith('[ "$2" != wait ] || sleep 0.2; echo over');
  const { bridge } = c;
  await bridge.serve();
  const ids = Array.from({ length: 20 }, (_, i) => `r${i}`);
  for (const [i, id] of ids.entries()) {
    bridge.submit(id, { verb: i % 2 === 0 ? "change" : "look" });
    if (i === 6) {
      const { code, err } = await bridge.chb("serve");
      assertEquals(code, 78);
      assert(err.includes(String(bridge.pid)), "the first one's pid is told");
    }
    if (i === 13) {
      await until("a run", () => c.runs().length > 0);
      await bridge.stop("SIGKILL");
      await bridge.serve();
    }
  }
  for (const id of ids) assertEquals((await bridge.final(id, 60_000)).outcome, "succeeded", id);
  await assertAgreement(bridge, { ids, starts: c.runs(), mayBeUncertain: () => false });
});

Deno.test("S11 a stop in the middle of requests leaves nothing half done, and what a writer left is swept", async () => {
  await using c = await bridgeWith(SLEEPS);
  const { bridge } = c;
  await bridge.serve();
  const ids = Array.from({ length: 12 }, (_, i) => `r${i}`);
  for (const id of ids) bridge.submit(id, { verb: "look" });
  await until("some work", () => c.runs().length > 1);
  assertEquals(await bridge.stop("SIGTERM"), 0);
  assertEquals(bridge.status()?.["state"], "stopped");
  for (const id of ids) bridge.result(id);
  Deno.writeTextFileSync(bridge.path("work/main/staging", "0".repeat(32)), '{"half":');
  await bridge.serve();
  for (const id of ids) assertEquals((await bridge.final(id, 60_000)).outcome, "succeeded", id);
  await assertAgreement(bridge, { ids, starts: c.runs(), mayBeUncertain: () => false });
});

Deno.test("S6 an answer of an earlier request never comes back over the result of its name", async () => {
  await using bridge = await TestBridge.make({});
  const isDone = (id: string) => {
    const result = bridge.result(id);
    return result?.verb === "true" && result.outcome === "succeeded";
  };
  /** Each name is used twice, and belongs to what came last. */
  const ask = async (id: string, first: string) => {
    bridge.submit(id, { verb: first });
    await until("the answer", () => bridge.result(id)?.verb === first);
    bridge.submit(id, { verb: "true" });
    await until("the result", () => isDone(id));
  };
  const ids: string[] = [];
  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    await bridge.serve();
    for (const first of ["nope", "bridge.ping"]) {
      const id = `name-${ids.length}`;
      await ask(id, first);
      ids.push(id);
    }
    await bridge.stop(signal);
    await bridge.serve();
    assertEquals(ids.filter((id) => !isDone(id)), [], signal);
    await bridge.stop();
  }
  // Without a daemon each run is a start of its own.
  for (const verb of ["nope", "true"]) {
    bridge.submit("once", { verb });
    assertEquals((await bridge.chb("once")).code, 0);
  }
  assertEquals((await bridge.chb("once")).code, 0);
  assertEquals([...ids, "once"].filter((id) => !isDone(id)), []);
});

Deno.test("Q5 results stay within their number when the bridge is run now and then", async () => {
  const results_files = 100;
  await using bridge = await TestBridge.make({ limits: { results_files, concurrency: 4 } });
  const files = () => [...Deno.readDirSync(bridge.path("spool/main/results"))].length;
  for (let run = 0; run < 4; run++) {
    for (let n = 0; n < 30; n++) bridge.submit(`ping-${run}-${n}`, { verb: "bridge.ping" });
    for (let n = 0; n < 5; n++) bridge.submit(`run-${run}-${n}`, { verb: "true" });
    assertEquals((await bridge.chb("once")).code, 0);
    using ledger = Ledger.open(bridge.path("state/ledger.db"), { now: Date.now, mode: "reader" });
    assertEquals([ledger.unpublished(100), ledger.answers()], [[], []], "all of it is noted");
  }
  assertEquals(files(), results_files);
});

Deno.test("S12 a daemon whose standard error nobody reads serves on", async () => {
  await using c = await bridgeWith(SLEEPS);
  const { bridge } = c;
  const daemon = new Deno.Command("./bin/chb", {
    args: ["serve", "--poll-ms", "500"],
    cwd: bridge.root,
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  try {
    await daemon.stderr.cancel();
    const result = await bridge.ask("one", { verb: "look" });
    assertEquals(result.outcome, "succeeded");
    // A start of an entry that is worth a line: it must not matter that it cannot be written.
    Deno.symlinkSync("/etc/hostname", bridge.queue("odd.json"));
    assertEquals((await bridge.final("odd")).reason, "not-regular");
    assertEquals((await bridge.ask("two", { verb: "look" })).outcome, "succeeded");
    assert(lives(daemon.pid));
  } finally {
    daemon.kill("SIGTERM");
    await daemon.status;
  }
  assertEquals(c.runs(), ["one", "two"]);
});

/** A user that nobody else has, so that its processes can be counted. */
const NOBODY = 64_321;
const notRoot = Deno.uid() === 0 ? null : "needs root to become another user";

Deno.test({
  name:
    "X10 X16 a command that takes every process of its user is ended at its limit all the same" +
    (notRoot === null ? "" : ` # SKIP ${notRoot}`),
  ignore: notRoot !== null,
  async fn() {
    const host = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-bomb-" }));
    Deno.chmodSync(host, 0o755);
    const marks = `${host}/marks`;
    Deno.writeTextFileSync(marks, "");
    Deno.chownSync(marks, NOBODY, NOBODY);
    const script = (name: string, then: string) => {
      Deno.writeTextFileSync(`${host}/${name}`, `#!/bin/bash\necho "$1" >> ${marks}\n${then}\n`);
      Deno.chmodSync(`${host}/${name}`, 0o755);
      return verb([`${host}/${name}`, "{id}"], { class: "mutating", timeout_s: 5 });
    };
    await using after = new AsyncDisposableStack();
    after.defer(() => Deno.remove(host, { recursive: true }));
    const bridge = after.use(
      await TestBridge.make({
        verbs: {
          // This shell waits and tries again where no process can be made.
          bomb: script("bomb.sh", "while :; do sleep 30 & done"),
          look: script("look.sh", ""),
        },
        limits: { grace_s: 0.5 },
        uid: NOBODY,
      }),
    );
    // Threads count as well: about ten for the daemon and for each of its shims.
    bridge.program = `${host}/limited`;
    Deno.writeTextFileSync(
      bridge.program,
      '#!/bin/bash\nulimit -u 100\nexec ./bin/chb "$@"\n',
    );
    Deno.chmodSync(bridge.program, 0o755);
    await bridge.serve();
    bridge.submit("bomb", { verb: "bomb" });
    const result = await bridge.final("bomb", 60_000);
    assertEquals(result.reason, "timed-out");
    assertMatch(result.stderr?.head ?? "", /fork/, "there were no processes left");
    assertEquals((await bridge.ask("after", { verb: "look" })).outcome, "succeeded");
    assertEquals(Deno.readTextFileSync(marks), "bomb\nafter\n");
  },
});
