/**
 * Measures what makes a bridge look at its queue, one way after the other on the same machine: change
 * events, polls, a service that a path unit starts, one that a clock starts every minute. For each:
 * the time from before the rename of a request to its parsed final result, and what it costs while
 * nobody asks.
 *
 * The path unit and the clock are replayed here, without a service manager: a change of the queue,
 * or the full minute, starts `chb once`, never two at a time. A real one adds its own time.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { TestBridge, until, verb } from "../tests/helpers/bridge.ts";

const options = parseArgs(Deno.args, {
  string: ["requests", "idle", "bin"],
  boolean: ["help"],
});
if (options.help) {
  console.log(`usage: deno run -A tools/measure_triggers.ts [--requests N] [--idle S] [--bin FILE]

  --requests N   requests for each way (default 40; the clock gets 12)
  --idle S       seconds of doing nothing whose cost is counted (default 20)
  --bin FILE     an executable made by \`deno task compile\` that may run /usr/bin/true;
                 without it the bridge runs from source, which starts more slowly`);
  Deno.exit(0);
}
const REQUESTS = Number(options.requests ?? 40);
const IDLE_S = Number(options.idle ?? 20);
/** Requests of the replayed clock: all in one minute, evenly. */
const CLOCKED = 12;
/** Clock ticks of the kernel's accounts a second. */
const HZ = 100;

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A bridge whose verb does nothing; not served yet. */
async function bridgeFor(serve: readonly string[]): Promise<TestBridge> {
  const bridge = await TestBridge.make({
    serve,
    verbs: { nothing: verb(["/usr/bin/true"]) },
    trust: options.bin === undefined,
  });
  if (options.bin !== undefined) {
    Deno.removeSync(bridge.path("bin/chb"));
    Deno.copyFileSync(options.bin, bridge.path("bin/chb"));
    Deno.chmodSync(bridge.path("bin/chb"), 0o555);
    const { code, err } = await bridge.chb("trust", "--yes");
    if (code !== 0) throw new Error(`The executable does not serve here: ${err}`);
  }
  return bridge;
}

/** Milliseconds until the result of one request, however it is noticed. */
async function ask(bridge: TestBridge, id: string, written: boolean): Promise<number> {
  const begin = performance.now();
  if (written) Deno.writeTextFileSync(bridge.queue(`${id}.json`), '{"verb":"nothing"}');
  else bridge.submit(id, { verb: "nothing" });
  for (;;) {
    const result = bridge.result(id);
    if (result?.state === "done") {
      if (result.outcome !== "succeeded") throw new Error(`${id}: ${result.reason}`);
      return performance.now() - begin;
    }
    if (performance.now() - begin > 90_000) throw new Error(`No result for ${id}`);
    await sleep(1);
  }
}

/** Processor time that a bridge's processes have used so far, milliseconds. */
function used(bridge: TestBridge): number {
  let ticks = 0;
  for (const { name } of Deno.readDirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      if (Deno.readLinkSync(`/proc/${name}/cwd`) !== bridge.root) continue;
      const stat = Deno.readTextFileSync(`/proc/${name}/stat`);
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      ticks += Number(fields[11]) + Number(fields[12]);
    } catch {
      // Gone meanwhile.
    }
  }
  return ticks * 1000 / HZ;
}

/** Processor time of this process's children that have ended, milliseconds. */
function childrenUsed(): number {
  const stat = Deno.readTextFileSync("/proc/self/stat");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[13]) + Number(fields[14])) * 1000 / HZ;
}

function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? NaN;
}

function ms(value: number): string {
  return value < 10 ? value.toFixed(1) : String(Math.round(value));
}

function show(what: string, times: readonly number[]): void {
  const [low, mid, high] = [0, 0.5, 1].map((q) => ms(quantile(times, q)));
  console.log(`  ${what}: median ${mid} ms (${low} to ${high}, ${times.length} requests)`);
}

/** What this machine takes now to start a program and wait for it: nobody answers sooner. */
async function floor(): Promise<string> {
  const times: number[] = [];
  for (let n = 0; n < 40; n++) {
    const begin = performance.now();
    await new Deno.Command("/usr/bin/true", { stdin: "null" }).output();
    times.push(performance.now() - begin);
    await sleep(20);
  }
  return `  the start of /usr/bin/true meanwhile: median ${ms(quantile(times, 0.5))} ms, load ${
    Deno.loadavg()[0]?.toFixed(1)
  }`;
}

/** A daemon that stays, with or without change events. */
async function daemon(name: string, serve: readonly string[]): Promise<void> {
  await using bridge = await bridgeFor(serve);
  await bridge.serve();
  const mode = serve.includes("--no-events") ? "poll" : "watch";
  await until(`mode ${mode}`, () => bridge.status()?.["watch"] === mode, 30_000);
  for (let n = 0; n < 5; n++) await ask(bridge, `warm-${n}`, false);
  const renamed: number[] = [];
  const written: number[] = [];
  for (let n = 0; n < REQUESTS; n++) {
    // At no fixed distance from the polls.
    await sleep(20 + Math.random() * 300);
    renamed.push(await ask(bridge, `r-${n}`, false));
    if (n % 4 === 0) written.push(await ask(bridge, `w-${n}`, true));
  }
  const meanwhile = await floor();
  await sleep(3000);
  const before = used(bridge);
  await sleep(IDLE_S * 1000);
  const idle = (used(bridge) - before) / IDLE_S;
  console.log(`${name}\n${meanwhile}`);
  show("renamed into place", renamed);
  show("written directly", written);
  console.log(`  idle, daemon and shims: ${ms(idle)} ms of processor time a second`);
  console.log(`  resident memory of the daemon: ${Math.round(bridge.memory() / 1048576)} MiB`);
}

/** One `chb once`, to its end. */
async function once(bridge: TestBridge): Promise<void> {
  const { code, stderr } = await new Deno.Command(bridge.path("bin/chb"), {
    args: ["once"],
    cwd: bridge.root,
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  if (code !== 0) throw new Error(`chb once exited ${code}: ${new TextDecoder().decode(stderr)}`);
}

/** What one start costs that finds nothing. */
async function emptyStart(bridge: TestBridge): Promise<string> {
  const times: number[] = [];
  await once(bridge);
  const before = childrenUsed();
  for (let n = 0; n < 5; n++) {
    const begin = performance.now();
    await once(bridge);
    times.push(performance.now() - begin);
  }
  const cpu = (childrenUsed() - before) / times.length;
  return `a start that finds nothing: ${ms(quantile(times, 0.5))} ms, ${ms(cpu)} ms of processor ` +
    "time without its shims";
}

/** A change of the queue starts `chb once`; what changes meanwhile starts the next one. */
async function pathUnit(): Promise<void> {
  await using bridge = await bridgeFor([]);
  const empty = await emptyStart(bridge);
  const watcher = Deno.watchFs(bridge.path("spool/main/queue"));
  let starts = 0;
  const watching = (async () => {
    let changed = false;
    let running: Promise<void> | null = null;
    for await (const { kind } of watcher) {
      if (kind === "access") continue;
      changed = true;
      running ??= (async () => {
        while (changed) {
          changed = false;
          starts++;
          await once(bridge);
        }
        running = null;
      })();
    }
    await running;
  })();
  const renamed: number[] = [];
  for (let n = 0; n < Math.ceil(REQUESTS / 2); n++) {
    await sleep(1500 + Math.random() * 500);
    renamed.push(await ask(bridge, `p-${n}`, false));
  }
  await sleep(3000);
  watcher.close();
  await watching;
  console.log("path unit (replayed): a change of the queue starts chb once");
  console.log(await floor());
  show("renamed into place", renamed);
  console.log(`  ${starts} starts for ${renamed.length} requests; ${empty}`);
}

/** The full minute starts `chb once`. */
async function clock(): Promise<void> {
  await using bridge = await bridgeFor([]);
  const empty = await emptyStart(bridge);
  const untilMinute = () => 60_000 - Date.now() % 60_000;
  await sleep(untilMinute());
  const asked: Promise<number>[] = [];
  for (let n = 0; n < CLOCKED; n++) {
    await sleep(n === 0 ? 2500 : 60_000 / CLOCKED - 100);
    asked.push(ask(bridge, `c-${n}`, false));
  }
  await sleep(untilMinute());
  await once(bridge);
  console.log("cron or timer (replayed): the full minute starts chb once");
  show("renamed into place, evenly over a minute", await Promise.all(asked));
  console.log(`  ${empty}; 1440 such starts a day`);
}

const cpus = navigator.hardwareConcurrency;
console.log(
  `chb triggers: Deno ${Deno.version.deno}, ${cpus} processors, ` +
    `${options.bin === undefined ? "source" : "executable"}`,
);
await daemon("watch: chb serve", []);
await daemon("poll: chb serve --no-events", ["--no-events"]);
await pathUnit();
await clock();
