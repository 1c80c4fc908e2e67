/**
 * How requests are noticed: by change events, by polling alone, after a burst that no watcher can
 * follow, and after the queue itself was exchanged; and `chb once`, which looks and leaves.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { type TestBridge, there, until } from "./helpers/bridge.ts";
import { type Counted, countedBridge, marking } from "./helpers/counting.ts";
import { run } from "./helpers/entries.ts";
import { runKit, Sandboxes } from "./helpers/sandbox.ts";

/** No poll falls into a test. */
const NEVER = ["--poll-ms", "60000"];

async function counted(serve: readonly string[], limits = {}): Promise<Counted> {
  return await countedBridge({
    verbs: { mark: marking() },
    limits: { answers: 1_000_000, ...limits },
    serve,
  });
}

/** Waits until the bridge relies on change events. */
async function watching(bridge: TestBridge): Promise<void> {
  await until("change events", () => bridge.log.includes("mode=watch"));
}

/** Milliseconds from the request to its final result, several times, by rename or written. */
async function latencies(
  { bridge }: Counted,
  name: string,
  count: number,
  how: "renamed" | "written",
): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const id = `${name}-${i}`;
    const begin = performance.now();
    if (how === "renamed") bridge.submit(id, { verb: "mark" });
    else Deno.writeTextFileSync(bridge.queue(`${id}.json`), '{"verb":"mark"}');
    assertEquals((await bridge.final(id)).outcome, "succeeded");
    times.push(performance.now() - begin);
  }
  return times.sort((a, b) => a - b);
}

function median(sorted: readonly number[]): number {
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

function rounded(times: readonly number[]): string {
  return times.map((time) => Math.round(time)).join(", ");
}

Deno.test("N1 with polls a minute apart a request is answered at once, by its event", async () => {
  await using one = await counted(NEVER);
  const { bridge } = one;
  await bridge.serve();
  await watching(bridge);
  const renamed = await latencies(one, "r", 15, "renamed");
  const written = await latencies(one, "w", 5, "written");
  console.log(`renamed: ${rounded(renamed)} ms; written: ${rounded(written)} ms`);
  assert(median(renamed) < 2000, `${median(renamed)} ms`);
  assert(median(written) < 2000, `${median(written)} ms`);
  // Not because it fell back to looking again and again.
  assert(!bridge.log.includes("mode=poll"), bridge.log);
  assertEquals(one.runs().length, 20);
});

Deno.test("N2 without events polling alone answers, and the status says so", async () => {
  await using one = await counted([...NEVER, "--no-events"]);
  const { bridge } = one;
  await bridge.serve();
  const renamed = await latencies(one, "r", 5, "renamed");
  const written = await latencies(one, "w", 3, "written");
  console.log(`renamed: ${rounded(renamed)} ms; written: ${rounded(written)} ms`);
  assert(median(renamed) < 5000, `${median(renamed)} ms`);
  assertEquals(bridge.status()?.["watch"], "poll");
  assert(!bridge.log.includes("mode=watch"), bridge.log);
  assertEquals(one.runs().length, 8);
});

Deno.test("N1 a burst that overflows the watcher is found to its last entry before any poll", async () => {
  await using one = await counted(NEVER, { answers: 200 });
  const { bridge } = one;
  await bridge.serve();
  await watching(bridge);
  const begin = performance.now();
  for (let i = 0; i < 2500; i++) Deno.writeTextFileSync(bridge.queue(`p-${i}.json`), "[]");
  bridge.submit("zz-valid", { verb: "mark" });
  assertEquals((await bridge.final("zz-valid")).outcome, "succeeded");
  const left = () => bridge.queued().filter((name) => !name.startsWith(".chb-probe-")).length;
  await until("an empty queue", () => left() === 0, 50_000);
  const took = performance.now() - begin;
  assert(took < 55_000, `it took ${took} ms: a poll may have helped`);
  assertEquals(await bridge.stop(), 0);
  const results = [...Deno.readDirSync(bridge.path("spool/main/results"))];
  const answered = results.filter((e) => e.name.startsWith("p-")).length;
  const shed = bridge.audit().filter((r) => r["event"] === "shed")
    .reduce((sum, r) => sum + Number(r["count"]), 0);
  assertEquals(answered + shed, 2500);
  assertEquals(one.runs(), ["zz-valid"]);
});

Deno.test("N1 a request whose event the system dropped is found before any poll", async () => {
  await using one = await counted(NEVER);
  const { bridge } = one;
  await bridge.serve();
  await watching(bridge);
  assertEquals((await bridge.ask("before", { verb: "mark" })).outcome, "succeeded");
  // While the daemon stands still more happens than the system remembers for it.
  const most = Number(Deno.readTextFileSync("/proc/sys/fs/inotify/max_queued_events"));
  Deno.kill(bridge.pid, "SIGSTOP");
  try {
    for (let i = 0; i * 2 < most; i++) Deno.writeTextFileSync(bridge.queue(`.t-${i}`), "{}");
    bridge.submit("lost", { verb: "mark" });
  } finally {
    Deno.kill(bridge.pid, "SIGCONT");
  }
  const begin = performance.now();
  assertEquals((await bridge.final("lost", 30_000)).outcome, "succeeded");
  assert(performance.now() - begin < 30_000, "a poll may have helped");
  assertEquals(one.runs(), ["before", "lost"]);
});

Deno.test("N1 Q5 behind thousands of broken entries one whose event was dropped is among the first", async () => {
  await using one = await counted(NEVER, { answers: 50 });
  const { bridge } = one;
  await bridge.serve();
  await watching(bridge);
  const most = Number(Deno.readTextFileSync("/proc/sys/fs/inotify/max_queued_events"));
  // More than the system remembers while the daemon stands still: each is made, written and closed.
  const COUNT = Math.ceil(most / 3) + 1000;
  // On a machine that is done with all of them in a moment one look may come too late.
  const asked: string[] = [];
  let left = 0;
  while (left < COUNT / 6 && asked.length < 4) {
    await until("an empty queue", () => bridge.queued().length === 0, 60_000);
    const id = `behind-${asked.length}`;
    asked.push(id);
    Deno.kill(bridge.pid, "SIGSTOP");
    try {
      for (let i = 0; i < COUNT; i++) Deno.writeTextFileSync(bridge.queue(`p-${i}.json`), "[]");
      bridge.submit(id, { verb: "mark" });
    } finally {
      Deno.kill(bridge.pid, "SIGCONT");
    }
    assertEquals((await bridge.final(id, 60_000)).outcome, "succeeded");
    left = bridge.queued().length;
    console.log(`${left} of ${COUNT} were left`);
  }
  assert(left >= COUNT / 6, `only ${left} of ${COUNT} were left when it was answered`);
  assertEquals(one.runs(), asked);
});

Deno.test("P7 a pipe that stays and stops the watcher leaves polling, which answers", async () => {
  await using one = await counted(NEVER);
  const { bridge } = one;
  await bridge.serve();
  await watching(bridge);
  for (let i = 0; i < 3; i++) {
    run("mkfifo", bridge.queue(`.stays-${i}`));
    const begin = performance.now();
    assertEquals((await bridge.ask(`after-${i}`, { verb: "mark" })).outcome, "succeeded");
    assert(performance.now() - begin < 10_000, "the request waited");
  }
  assertEquals(one.runs(), ["after-0", "after-1", "after-2"]);
  assertEquals(await bridge.stop(), 0);
});

/** Exchanges the queue for another directory with the same mode. */
function exchangeQueue(bridge: TestBridge): void {
  const queue = bridge.path("spool/main/queue");
  const other = `${queue}-other`;
  Deno.mkdirSync(other);
  Deno.chmodSync(other, (Deno.lstatSync(queue).mode ?? 0) & 0o7777);
  Deno.renameSync(queue, bridge.path("queue-before"));
  Deno.renameSync(other, queue);
}

for (const serve of [NEVER, ["--no-events"]]) {
  Deno.test(`P3 an exchanged queue is noticed within one poll and not served (${serve[0]})`, async () => {
    await using one = await counted(serve);
    const { bridge } = one;
    await bridge.serve();
    assertEquals((await bridge.ask("before", { verb: "mark" })).outcome, "succeeded");
    exchangeQueue(bridge);
    const begin = performance.now();
    bridge.submit("behind", { verb: "mark" });
    const changed = () => Deno.lstatSync(bridge.queue("")).mtime?.getTime();
    const then = changed();
    await until("the kill switch", () => there(bridge.path("state/KILL.main")), 10_000);
    const took = performance.now() - begin;
    assert(took < 5000, `noticed after ${took} ms`);
    const status = await until("the status", () => {
      const now = bridge.status();
      return now?.["state"] === "killed" ? now : null;
    });
    assertEquals(status["why"], "Restart the sandbox: queue/ was replaced");
    assertStringIncludes(bridge.log, "role-replaced agent=main role=queue");
    // Not served, not taken, not run, and told once.
    assertEquals(bridge.queued(), ["behind.json"]);
    assertEquals(changed(), then, "the bridge put something into the other directory");
    assertEquals(bridge.result("behind"), null);
    assertEquals(one.runs(), ["before"]);
    assertEquals(await bridge.stop(), 0);
    // The text of the audit log comes a moment after the commit, and so perhaps after the status.
    const killed = bridge.audit().filter((r) => r["event"] === "killed");
    assertEquals(killed.map((r) => [r["agent"], r["role"]]), [["main", "queue"]]);
    // A human who has looked lowers the switch and starts it again: the directory is a new one.
    Deno.removeSync(bridge.path("state/KILL.main"));
    await bridge.serve();
    assertEquals((await bridge.final("behind")).outcome, "succeeded");
    assertEquals(one.runs(), ["before", "behind"]);
  });
}

Deno.test("N1 a queue removed and made anew is served within a poll, or known as another one", async () => {
  await using one = await counted(["--poll-ms", "1000"]);
  const { bridge } = one;
  await bridge.serve();
  await watching(bridge);
  const queue = bridge.path("spool/main/queue");
  const mode = (Deno.lstatSync(queue).mode ?? 0) & 0o7777;
  const { ino } = Deno.lstatSync(queue);
  // The file system may give the new directory the number of the old one: then it is the same to
  // everybody, but no watcher watches it.
  Deno.removeSync(queue, { recursive: true });
  Deno.mkdirSync(queue);
  Deno.chmodSync(queue, mode);
  const same = Deno.lstatSync(queue).ino === ino;
  bridge.submit("behind", { verb: "mark" });
  const seen = await until(
    "an answer or the kill switch",
    () =>
      bridge.result("behind")?.state === "done"
        ? "answered"
        : there(bridge.path("state/KILL.main"))
        ? "killed"
        : null,
    10_000,
  );
  // A turn between the removal and the new directory saw that the old one was gone.
  if (!same) assertEquals(seen, "killed");
  assertEquals(one.runs(), seen === "answered" ? ["behind"] : []);
  assertEquals(await bridge.stop(), 0);
});

Deno.test("Q7 chb once leaves stuck and temporary entries, handles the rest and exits", async () => {
  await using one = await counted([]);
  const { bridge } = one;
  run("sh", "-c", `: > "$1$(printf '\\377').json"`, "sh", bridge.queue("/"));
  for (let i = 0; i < 50; i++) Deno.writeTextFileSync(bridge.queue(`.t-${i}.tmp`), "{}");
  run("mkfifo", bridge.queue(".stays"));
  bridge.submit("first", { verb: "mark" });
  Deno.writeTextFileSync(bridge.queue("bad.json"), "[]");
  // Just written, and not renamed: it must settle first.
  Deno.writeTextFileSync(bridge.queue("written.json"), '{"verb":"mark"}');
  const before = performance.now();
  const first = await bridge.chb("once");
  const busy = performance.now() - before;
  assertEquals(first.code, 0, first.err);
  assertEquals(bridge.result("first")?.outcome, "succeeded");
  assertEquals(bridge.result("written")?.outcome, "succeeded");
  assertEquals(bridge.result("bad")?.reason, "schema");
  const left = bridge.queued().sort();
  // With nothing left to do but what it may not touch, it looks and leaves.
  const again = performance.now();
  const second = await bridge.chb("once");
  const idle = performance.now() - again;
  assertEquals(second.code, 0, second.err);
  console.log(`once: ${Math.round(busy)} ms with requests, ${Math.round(idle)} ms without`);
  assert(idle < 10_000, `${idle} ms`);
  assertEquals(bridge.queued().sort(), left);
  const listed = left.filter((name) => name.includes("\uFFFD")).length;
  assertEquals(left.length, 51 + listed);
  assertEquals(bridge.refused(), []);
  assertEquals(one.runs().sort(), ["first", "written"]);
});

Deno.test("a bridge that is started for each look is none that is down", async () => {
  await using one = await counted([]);
  const { bridge } = one;
  const chb = bridge.path("spool/main");
  assertEquals((await bridge.chb("once")).code, 0);
  assertEquals([bridge.status()?.["watch"], bridge.status()?.["state"]], ["once", "serving"]);
  using sandboxes = new Sandboxes();
  const sandbox = sandboxes.all[0];
  assert(sandbox !== undefined, "no shell at all");
  const ask = (...words: string[]) =>
    runKit(sandbox, bridge.path("spool/main/inbox/kit/chb-request"), words, chb);
  const up = await ask("--status");
  assertEquals([up.code, up.out], [0, "serving\n"], up.err);
  assertStringIncludes(up.err, "started when something is asked");
  // No answer within the wait takes nothing back.
  const waited = await ask("mark", "--id", "m1", "--wait", "1");
  assertEquals(waited.code, 75, waited.err);
  assertStringIncludes(waited.err, "two minutes without an answer: ask-human");
  assertEquals(bridge.queued(), ["m1.json"]);
  assertEquals((await bridge.chb("once")).code, 0);
  const result = await ask("--result", "m1");
  assertEquals(result.code, 0, result.err);
  assertEquals(one.runs(), ["m1"]);
});
