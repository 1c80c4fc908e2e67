/**
 * Watching: what events tell, what polling finds without them, and what an agent can do to either.
 *
 * @module
 */
import { assert, assertEquals, assertLess } from "@std/assert";
import { look } from "../src/spool/look.ts";
import { ensureAgent } from "../src/spool/layout.ts";
import { type ScanReason, SpoolWatch, type SpoolWatchOptions } from "../src/spool/watch.ts";
import { agentPaths } from "../src/spool/agent_paths.ts";
import { AGENT, entry, PATHS, put, sh, sleep, SpoolRoot, until } from "./spool_fixture.ts";

/** A watch that writes down what it is told. */
class Watching {
  readonly events: string[] = [];
  readonly scans: string[] = [];
  readonly logs: string[] = [];
  readonly watch: SpoolWatch;

  constructor(options: Partial<SpoolWatchOptions> = {}) {
    this.watch = new SpoolWatch({
      agents: [AGENT],
      pollMs: 60_000,
      pulseMs: 200,
      onEvent: (agent, name, kind) => this.events.push(`${agent} ${name} ${kind}`),
      onScan: (agent, reason) => this.scans.push(`${agent} ${reason}`),
      log: (event, fields) => this.logs.push(`${event} ${JSON.stringify(fields)}`),
      ...options,
    });
  }

  count(reason: ScanReason, agent = AGENT): number {
    return this.scans.filter((one) => one === `${agent} ${reason}`).length;
  }

  has(name: string, kind: string, agent = AGENT): boolean {
    return this.events.includes(`${agent} ${name} ${kind}`);
  }

  /** Waits until events of the agent arrive. */
  async heard(): Promise<void> {
    await until("watch mode", () => this.watch.mode(AGENT) === "watch", 10_000);
  }

  [Symbol.dispose](): void {
    this.watch.close();
  }
}

/** Makes something in the queue whose event must come. */
async function proveEvents(watching: Watching, name: string): Promise<void> {
  put(`.${name}.tmp`);
  Deno.renameSync(entry(`.${name}.tmp`), entry(`${name}.json`));
  await until(`event of ${name}`, () => watching.has(`${name}.json`, "rename"));
}

Deno.test("start() finds that events arrive, asks for a scan, and leaves nothing in the queue", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching();
  await watching.watch.start();
  assertEquals(watching.watch.mode(AGENT), "watch");
  assertEquals(watching.count("start"), 1);
  assertEquals([...Deno.readDirSync(PATHS.queue)], []);
  assertEquals(watching.events, [], "the probe is nobody's business");
});

Deno.test("with a poll each minute a write is told of at once, and how it was written", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching();
  await watching.watch.start();
  const began = performance.now();
  put("direct.json");
  await until("close", () => watching.has("direct.json", "close"));
  await proveEvents(watching, "renamed");
  assertLess(performance.now() - began, 1000);
  assert(watching.has("direct.json", "create"));
  await until("the temporary name's end", () => watching.has(".renamed.tmp", "remove"));
  Deno.removeSync(entry("direct.json"));
  await until("remove", () => watching.has("direct.json", "remove"));
  assertEquals(watching.count("poll"), 1);
});

Deno.test("what is renamed away is told as its end, behind what is new", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching();
  await watching.watch.start();
  await proveEvents(watching, "claimed");
  Deno.renameSync(entry("claimed.json"), `${PATHS.claims}/claimed`);
  await proveEvents(watching, "next");
  await until("the end", () => watching.has("claimed.json", "remove"));
  const told = watching.events.filter((event) => event.includes(" claimed.json "));
  assertEquals(told, [`${AGENT} claimed.json rename`, `${AGENT} claimed.json remove`]);
  const of = (name: string, kind: string) => watching.events.indexOf(`${AGENT} ${name} ${kind}`);
  assert(of(".claimed.tmp", "remove") >= 0, "its temporary name has gone too");
  assertEquals(watching.events.filter((event) => event.endsWith("next.json rename")).length, 1);
});

Deno.test("without events scans are asked for each fastPollMs (N2, N4)", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching({ events: false, fastPollMs: 40 });
  await watching.watch.start();
  assertEquals(watching.watch.mode(AGENT), "poll");
  await sleep(400);
  const polls = watching.count("poll");
  assert(polls >= 4 && polls <= 12, `${polls} polls`);
  put("a.json");
  await sleep(100);
  assertEquals(watching.events, []);
});

Deno.test("a replaced queue is noticed within a pulse, scanned, and watched again", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching();
  await watching.watch.start();
  await proveEvents(watching, "before");
  Deno.renameSync(PATHS.queue, "spool/main/old");
  Deno.mkdirSync(PATHS.queue);
  await until("the scan", () => watching.count("replaced") === 1, 1000);
  await watching.heard();
  await proveEvents(watching, "after");
});

Deno.test("a removed queue is polled for, and watched again when it is back", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching({ pollMs: 500, fastPollMs: 50 });
  await watching.watch.start();
  Deno.removeSync(PATHS.queue, { recursive: true });
  await until("poll mode", () => watching.watch.mode(AGENT) === "poll");
  Deno.mkdirSync(PATHS.queue);
  await watching.heard();
  await proveEvents(watching, "after");
});

Deno.test("a missing queue at the start is no error", async () => {
  using _ = new SpoolRoot();
  Deno.removeSync(PATHS.queue);
  using watching = new Watching({ pollMs: 300 });
  await watching.watch.start();
  assertEquals(watching.watch.mode(AGENT), "poll");
  Deno.mkdirSync(PATHS.queue);
  await watching.heard();
});

Deno.test("a named pipe in the queue, and one that is gone again, stop neither thread nor events (P7)", async () => {
  using _ = new SpoolRoot();
  ensureAgent("second", null);
  using watching = new Watching({ agents: [AGENT, "second"] });
  await watching.watch.start();
  await proveEvents(watching, "before");
  // Whoever opens it by name now waits in an open that nobody can end.
  sh(`mkfifo ${entry("f.json")} && sleep 0.2 && rm ${entry("f.json")}`);
  // The other agent's events do not suffer.
  Deno.writeTextFileSync(`${agentPaths("second").queue}/b.json`, "{}");
  await until("the other's event", () => watching.has("b.json", "close", "second"), 1000);
  // The directory changed and nobody told: it is scanned, and the silent watcher replaced.
  await until("the scan", () => watching.count("changed") > 0);
  await until("poll mode", () => watching.logs.some((line) => line.includes('"mode":"poll"')));
  await watching.heard();
  await proveEvents(watching, "after");
});

Deno.test("pipes without end cost events, not service: polling goes on (P7)", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching({ fastPollMs: 50, probeMs: 100, pulseMs: 50 });
  await watching.watch.start();
  for (let i = 0; i < 6; i++) {
    sh(`mkfifo ${entry("f.json")} && sleep 0.3 && rm ${entry("f.json")}`);
    await sleep(300);
  }
  const polls = watching.count("poll");
  await until("further polls", () => watching.count("poll") >= polls + 3, 2000);
  assertEquals(watching.watch.mode(AGENT), "poll");
});

Deno.test("links, sockets and directories come and go without harm to the events (P8, P9, P10)", async () => {
  using root = new SpoolRoot();
  using watching = new Watching();
  await watching.watch.start();
  Deno.symlinkSync(root.hostFile("secret", "s3cret"), entry("live.json"));
  Deno.symlinkSync("nowhere", entry("dangling.json"));
  Deno.symlinkSync("loop.json", entry("loop.json"));
  Deno.mkdirSync(entry("d.json/x"), { recursive: true });
  const listener = Deno.listen({ transport: "unix", path: entry("s.json") });
  await proveEvents(watching, "after");
  listener.close();
  assertEquals(watching.watch.mode(AGENT), "watch");
});

Deno.test("names that are not UTF-8, or hold U+FFFD, end in a scan and not in an event (P16)", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching();
  await watching.watch.start();
  sh(`cd ${PATHS.queue} && for i in $(seq 50); do touch "$(printf "\\377$i.json")"; done`);
  await until("a scan", () => watching.count("changed") > 0);
  const before = watching.count("changed");
  put("\uFFFD.json");
  await until("another scan", () => watching.count("changed") > before);
  await proveEvents(watching, "after");
  assertEquals(watching.events.filter((one) => one.includes("\uFFFD")), []);
});

Deno.test("an entry that a scan finds without its event brings fast polls, and events in time end them", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching({ fastPollMs: 50 });
  await watching.watch.start();
  // As an entry looks whose event got lost: made after the start, and never heard of.
  put("real.json");
  const seen = look(entry("real.json"));
  assert(seen !== null);
  watching.watch.found(AGENT, "unheard.json", { ...seen, ctime_ms: Date.now() + 2000 });
  await until("poll mode", () => watching.watch.mode(AGENT) === "poll", 2000);
  // The probe is answered, which proves nothing about the agent's writes.
  await sleep(300);
  assertEquals(watching.watch.mode(AGENT), "poll");
  for (let i = 0; i < 25; i++) {
    put(`r${i}.json`);
    await sleep(10);
  }
  await watching.heard();
});

Deno.test("an old entry, a link, and one whose event is on its way are no proof of missing events", async () => {
  using _ = new SpoolRoot();
  put("old.json");
  using watching = new Watching();
  await watching.watch.start();
  const old = look(entry("old.json"));
  assert(old !== null);
  const later = { ...old, ctime_ms: Date.now() + 2000 };
  watching.watch.found(AGENT, "old.json", old);
  watching.watch.found(AGENT, "link.json", { ...later, kind: "symlink" });
  watching.watch.found(AGENT, "two.json", { ...later, nlink: 2 });
  watching.watch.found(AGENT, "late.json", later);
  put("late.json");
  await sleep(900);
  assertEquals(watching.watch.mode(AGENT), "watch");
});

Deno.test("a burst of more events than any queue holds loses nothing: what is missing is scanned for (N1)", async () => {
  using _ = new SpoolRoot();
  using watching = new Watching({ pulseMs: 60_000 });
  await watching.watch.start();
  const scans = watching.scans.length;
  sh(`cd ${PATHS.queue} && seq 2000 | sed 's/$/.json/' | xargs touch`);
  await until("events to settle", () => watching.events.length > 0, 10_000);
  let before = -1;
  while (before !== watching.events.length) {
    before = watching.events.length;
    await sleep(300);
  }
  const heard = new Set(watching.events.map((one) => one.split(" ")[1]));
  const all = Array.from({ length: 2000 }, (_, i) => `${i + 1}.json`).every((n) => heard.has(n));
  assert(all || watching.scans.length > scans, `${heard.size} heard, no scan asked for`);
});

Deno.test("close() ends all calls, before and after start()", async () => {
  using _ = new SpoolRoot();
  const never = new Watching();
  never.watch.close();
  const watching = new Watching({ fastPollMs: 20 });
  const started = watching.watch.start();
  watching.watch.close();
  await started;
  const before = [watching.events.length, watching.scans.length];
  put("a.json");
  await sleep(300);
  assertEquals([watching.events.length, watching.scans.length], before);
});
