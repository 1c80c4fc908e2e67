/**
 * What a bridge does under load, and what it costs when there is none: throughput with thousands of
 * requests waiting, the cost of one request at every size, floods of broken entries, and idleness.
 *
 * Where requests wait their latency says nothing, so their cost is told as processor time of daemon
 * and shims for each request that was finished.
 *
 * @module
 */
import { type BridgeOptions, TestBridge, verb } from "../tests/helpers/bridge.ts";
import {
  ask,
  costOf,
  fillQueue,
  type Gathered,
  median,
  memoryOf,
  nap,
  OBSERVE,
  shimsOf,
  startTrue,
  warm,
  whenDone,
} from "./bench_kit.ts";

const TARGETS = Object.freeze({
  /** Over the bare loop that starts as many at a time. */
  throughput: 0.8,
  /** Cost at any size over that of an empty bridge. */
  scale: 1.3,
  /** Resident memory of a process after many requests, MB. */
  memory: 80,
  /** Resident memory after all requests over that after half of them. */
  flat: 1.05,
  /** Of one processor, daemon and shims together, %. */
  idle: 0.1,
  /** From the arrival of a valid request among broken ones to its result, ms. */
  flood: 1000,
});

/** Milliseconds after which a measurement is given up. */
const LIMIT_MS = 300_000;

/** A bridge for many requests of one agent, not started yet. */
async function makeBridge(
  limits: Record<string, unknown> = {},
  more: BridgeOptions = {},
): Promise<TestBridge> {
  return await TestBridge.make({
    serve: [],
    verbs: { observe: verb(["/usr/bin/true"]) },
    limits: { backlog: "queue", answers: 1_000_000, ...limits },
    ...more,
  });
}

/** A start, from the program's to its ready line, milliseconds. */
async function timedStart(bridge: TestBridge): Promise<number> {
  const begun = performance.now();
  await bridge.serve();
  return performance.now() - begun;
}

/** How many runs of `/usr/bin/true` a second a bare loop makes, `width` at a time. */
async function bareLoop(count: number, width: number): Promise<number> {
  let left = count;
  const start = performance.now();
  await Promise.all(Array.from({ length: width }, async () => {
    while (left-- > 0) await startTrue();
  }));
  return count * 1000 / (performance.now() - start);
}

/** Throughput with many requests waiting, and memory while they are worked off. */
export async function benchThroughput(out: Gathered, waiting: number): Promise<void> {
  const bare = await bareLoop(Math.min(2000, waiting), 4);
  out.figure("a bare loop, 4 at a time", bare, "a second");
  for (const concurrency of [1, 2, 4]) {
    await using bridge = await makeBridge({ concurrency });
    fillQueue(bridge, waiting);
    await bridge.serve();
    const counted = Math.ceil(waiting / (concurrency === 4 ? 2 : 5));
    // The first ones meet a daemon that is still taking the others in.
    const from = Math.ceil(counted / 10);
    const start = whenDone(bridge, from, LIMIT_MS);
    const parts = [["daemon", [bridge.pid]], ["shims", shimsOf(bridge.pid)]] as const;
    const before = parts.map(([, pids]) => costOf(pids).cpu_ms);
    const memory: number[] = [];
    let end = start;
    for (const part of [0.5, 0.75, 1]) {
      end = whenDone(bridge, Math.floor(counted * part), LIMIT_MS);
      memory.push(memoryOf(bridge.pid));
    }
    const rate = (counted - from) * 1000 / (end - start);
    out.figure(`${waiting} waiting, concurrency ${concurrency}`, rate, "a second");
    for (const [i, [name, pids]] of parts.entries()) {
      const spent = (costOf(pids).cpu_ms - (before[i] ?? NaN)) / (counted - from);
      out.figure(`concurrency ${concurrency}, processor time of ${name} a request`, spent, "ms");
    }
    if (concurrency !== 4) continue;
    out.figure("concurrency 4 over the bare loop", rate / bare, "times", {
      target: { atLeast: TARGETS.throughput },
    });
    const [half = NaN, , all = NaN] = memory;
    const target = { target: { atMost: TARGETS.memory } };
    out.figure(`daemon after ${counted / 2} requests, resident`, half, "MB");
    out.figure(`daemon after ${counted} requests, resident`, all, "MB", target);
    const shims = shimsOf(bridge.pid).map((pid) => memoryOf(pid));
    out.figure("largest shim then, resident", Math.max(...shims), "MB", target);
  }
}

/** Cost of one request with so many others waiting. */
export async function benchWaiting(out: Gathered, sizes: readonly number[]): Promise<void> {
  let empty = NaN;
  for (const size of sizes) {
    await using bridge = await makeBridge();
    fillQueue(bridge, size);
    const start_ms = await timedStart(bridge);
    const requests = 500;
    const skipped = size === 0 ? 20 : 200;
    if (size === 0) warm(bridge, skipped);
    else whenDone(bridge, skipped, LIMIT_MS);
    const pids = [bridge.pid, ...shimsOf(bridge.pid)];
    const before = costOf(pids);
    if (size === 0) { for (let n = 0; n < requests; n++) ask(bridge, `r-${n}`, OBSERVE); }
    else whenDone(bridge, skipped + requests, LIMIT_MS);
    const cost = (costOf(pids).cpu_ms - before.cpu_ms) / requests;
    if (size === 0) empty = cost;
    out.figure(`start with ${size} waiting`, start_ms, "ms");
    out.figure(`processor time a request with ${size} waiting`, cost, "ms", {
      ...(size === 0 ? {} : { target: { atMost: TARGETS.scale * empty } }),
    });
    out.figure(`daemon with ${size} waiting, resident`, memoryOf(bridge.pid), "MB");
  }
}

/** Latency, start and memory with so many agents, of which one asks. */
export async function benchAgents(out: Gathered, counts: readonly number[]): Promise<void> {
  let one = NaN;
  for (const count of counts) {
    const names = ["main", ...Array.from({ length: count - 1 }, (_, n) => `agent-${n}`)];
    await using bridge = await makeBridge({}, {
      agents: names,
      policy: {
        agents: Object.fromEntries(names.map((name) => [name, { verbs: ["observe"] }])),
        verbs: { observe: verb(["/usr/bin/true"]) },
        limits: { answers: 1_000_000, concurrency: 2 },
      },
    });
    const start_ms = await timedStart(bridge);
    warm(bridge);
    const samples: number[] = [];
    for (let n = 0; n < 200; n++) {
      samples.push(ask(bridge, `r-${n}`, OBSERVE));
      nap(2);
    }
    if (count === 1) one = median(samples);
    out.figure(`start with ${count} agents`, start_ms, "ms");
    out.figure(`a request with ${count} agents, median`, median(samples), "ms", {
      ...(count === 1 ? {} : { target: { atMost: TARGETS.scale * one } }),
    });
    out.figure(`daemon with ${count} agents, resident`, memoryOf(bridge.pid), "MB");
  }
}

/** A valid request behind broken entries: written while the daemon serves, and before its start. */
export async function benchPoison(
  out: Gathered,
  flood: number,
  standing: number,
): Promise<void> {
  {
    await using bridge = await makeBridge({ answers: 600 });
    await bridge.serve();
    warm(bridge);
    const times: number[] = [];
    for (const name of ["a", "b"]) {
      for (let n = 0; n < flood; n++) {
        Deno.writeTextFileSync(bridge.queue(`${name}-${n}.json`), "{");
      }
      const start = performance.now();
      times.push(ask(bridge, `valid-${name}`, OBSERVE));
      while (bridge.queued().length > 0 && performance.now() - start < LIMIT_MS) nap(50);
      out.figure(`${flood} broken entries gone after`, (performance.now() - start) / 1000, "s");
    }
    out.figure(
      `valid request behind ${flood} broken ones, slower of two`,
      Math.max(...times),
      "ms",
      {
        target: { atMost: TARGETS.flood },
      },
    );
    out.figure("daemon after two floods, resident", memoryOf(bridge.pid), "MB");
    // However slowly they can be written: they are all there when the daemon goes on, and the system
    // has not remembered every event.
    Deno.kill(bridge.pid, "SIGSTOP");
    try {
      for (let n = 0; n < flood; n++) Deno.writeTextFileSync(bridge.queue(`c-${n}.json`), "{");
    } finally {
      Deno.kill(bridge.pid, "SIGCONT");
    }
    const behind = ask(bridge, "valid-c", OBSERVE);
    out.figure(`valid request behind ${flood} broken ones that came at once`, behind, "ms", {
      target: { atMost: TARGETS.flood },
    });
  }
  {
    await using bridge = await makeBridge({ answers: 600 });
    for (let n = 0; n < standing; n++) Deno.writeTextFileSync(bridge.queue(`p-${n}.json`), "{");
    out.figure(`start with ${standing} broken entries`, await timedStart(bridge), "ms");
    const samples: number[] = [];
    for (let n = 0; n < 20; n++) samples.push(ask(bridge, `valid-${n}`, OBSERVE));
    out.figure(`valid requests among ${standing} broken ones, median`, median(samples), "ms");
    out.figure(
      `valid requests among ${standing} broken ones, slowest`,
      Math.max(...samples),
      "ms",
      {
        target: { atMost: TARGETS.flood },
      },
    );
    out.figure(`daemon among ${standing} broken entries, resident`, memoryOf(bridge.pid), "MB");
  }
}

/** A command that prints very much. */
export async function benchOutput(out: Gathered, megabytes: number): Promise<void> {
  await using bridge = await TestBridge.start({
    serve: [],
    verbs: {
      observe: verb(["/usr/bin/true"]),
      print: verb(["/usr/bin/head", "-c", String(megabytes * 1e6), "/dev/zero"]),
    },
  });
  warm(bridge);
  const took = ask(bridge, "big", '{"verb":"print"}');
  out.figure(`${megabytes} MB of output`, took / 1000, "s");
  out.figure("daemon at its most, resident", memoryOf(bridge.pid, "VmHWM"), "MB");
  const shims = shimsOf(bridge.pid).map((pid) => memoryOf(pid, "VmHWM"));
  out.figure("largest shim at its most, resident", Math.max(...shims), "MB");
}

/** Of so many requests of the section `long` one starts a program; the others ask the bridge itself. */
const LONG_RUNS = 10;

/**
 * Memory of the daemon and of its shims over very many requests, one after the other: at twenty times
 * on the way, what the second half added, and the end.
 */
export async function benchLong(out: Gathered, requests: number): Promise<void> {
  await using bridge = await makeBridge();
  await bridge.serve();
  const steps = Math.min(20, requests);
  const daemon: number[] = [];
  const shims: number[] = [];
  for (let step = 1; step <= steps; step++) {
    const from = Math.floor((step - 1) * requests / steps);
    const to = Math.floor(step * requests / steps);
    for (let n = from; n < to; n++) {
      ask(bridge, `r-${n}`, n % LONG_RUNS === 0 ? OBSERVE : '{"verb":"bridge.ping"}');
    }
    const now = memoryOf(bridge.pid);
    daemon.push(now);
    shims.push(...shimsOf(bridge.pid).map((pid) => memoryOf(pid)));
    out.say(`${to} requests: daemon ${now.toFixed(1)} MB`);
  }
  const half = daemon[Math.floor(steps / 2) - 1] ?? NaN;
  const end = daemon.at(-1) ?? NaN;
  const target = { target: { atMost: TARGETS.memory } };
  out.figure(
    `daemon after ${requests} requests, one in ${LONG_RUNS} a program, resident`,
    end,
    "MB",
    target,
  );
  out.figure("daemon, second half over first", end / half, "times", {
    target: { atMost: TARGETS.flat },
  });
  out.figure(
    "of it the runtime's file, shared by all its processes",
    memoryOf(bridge.pid, "RssFile"),
    "MB",
  );
  out.figure("largest shim on the way, resident", Math.max(...shims), "MB", target);
}

/**
 * Nothing to do: processor time, wake-ups and memory, the heartbeat included. It begins when what the
 * last request left to be done is over: threads that wait for more work, and the collector.
 */
export async function benchIdle(
  out: Gathered,
  seconds: number,
  settle_s: number,
): Promise<void> {
  await using bridge = await TestBridge.start({
    serve: [],
    verbs: { observe: verb(["/usr/bin/true"]) },
  });
  warm(bridge);
  nap(settle_s * 1000);
  const parts = [["daemon", [bridge.pid]], ["shims", shimsOf(bridge.pid)]] as const;
  const before = parts.map(([, pids]) => costOf(pids));
  nap(seconds * 1000);
  let all = 0;
  for (const [i, [name, pids]] of parts.entries()) {
    const now = costOf(pids);
    const cpu = (now.cpu_ms - (before[i]?.cpu_ms ?? NaN)) / (seconds * 1000) * 100;
    const wakes = (now.wakes - (before[i]?.wakes ?? NaN)) / seconds * 60;
    all += cpu;
    out.figure(`${name}, of one processor`, cpu, "%");
    out.figure(`${name}, wake-ups`, wakes, "a minute");
    const memory = Math.max(...pids.map((pid) => memoryOf(pid)));
    out.figure(`${name}, resident (the largest)`, memory, "MB");
  }
  out.figure("all processes, of one processor", all, "%", { target: { atMost: TARGETS.idle } });
}
