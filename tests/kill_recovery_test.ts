/**
 * Kills in the middle of recovery: the daemon is killed at some point of a round, and the start that
 * is to bring everything into agreement is killed at the N-th call of every system call with an
 * effect, too. The start after that must end with what a single one would have ended with: every
 * request has its answer, nothing is uncertain, no key was started twice (S6, S7, X18). Where a shim
 * was killed as well, an order that it had not taken runs once; one that it had taken is uncertain.
 *
 * By default a fixed number of points is taken, spread over all of them; `SLOW=1` takes every one.
 *
 * @module
 */
import { assert } from "@std/assert";
import { sleep, type TestBridge, there, until } from "./helpers/bridge.ts";
import type { Counted } from "./helpers/counting.ts";
import { AFTER_MS, type Point, points, Round, roundBridge, shims, SLOW } from "./helpers/round.ts";
import {
  cannotTrace,
  countCalls,
  type Effect,
  EFFECTS,
  killAt,
  lives,
  processesOf,
} from "./helpers/tracer.ts";

/** Points of a recovery, and of the round before it, of a run that does not take all. */
const SAMPLE = { recovery: 4, crash: 6 };

const noTrace = cannotTrace();

/** Makes the next start of a bridge one that a tracer watches from its first call on. */
function tracedStart(c: Counted, words: readonly string[]): Disposable {
  const { bridge } = c;
  const program = bridge.program;
  const path = `${bridge.outside}/traced`;
  // The program keeps the process id that it was started with, and its shims are not watched.
  const command = ["strace", "-D", "-qq", ...words, program].map((word) => `'${word}'`).join(" ");
  Deno.writeTextFileSync(path, `#!/bin/sh\nexec ${command} "$@"\n`, { mode: 0o755 });
  bridge.program = path;
  return {
    [Symbol.dispose]() {
      bridge.program = program;
    },
  };
}

/** Kills the daemon at a point of a round. */
async function crash(c: Counted, round: Round, { call, n }: Point): Promise<void> {
  const { bridge } = c;
  await shims(bridge);
  await using _tracer = await killAt([bridge.pid], call, n);
  round.submit();
  await until(`the end at ${call} ${n}`, () => !lives(bridge.pid) || round.final(), 60_000);
  await bridge.stop("SIGKILL");
}

/** True when the only run that there is has a file of this name, and the agent was told of it. */
function hasOne(bridge: TestBridge, round: Round, file: string): boolean {
  return round.ids.some((id) => bridge.result(id)?.state === "running") &&
    [...Deno.readDirSync(bridge.path("state/runs"))].some(({ name }) =>
      there(bridge.path("state/runs", name, file))
    );
}

/** The shims when none has ended or come for a while: one that has run may be about to end. */
async function restingShims(bridge: TestBridge): Promise<number[]> {
  for (let before = "";;) {
    const pids = await shims(bridge);
    const now = pids.join();
    if (pids.length === 2 && now === before) return pids;
    before = now;
    await sleep(500);
  }
}

/** Kills the daemon and its shims, before one of them took its order. */
async function crashUntaken(c: Counted, round: Round): Promise<void> {
  const { bridge } = c;
  const pids = await restingShims(bridge);
  for (const pid of pids) Deno.kill(pid, "SIGSTOP");
  round.submit();
  await until("an order", () => hasOne(bridge, round, "order.json"));
  await bridge.stop("SIGKILL");
  for (const pid of pids) Deno.kill(-pid, "SIGKILL");
}

/** Commands of this round end their shim a second after their start. */
const TAKEN = "r-taken";
const END_SHIM = `case "$1" in *${TAKEN}) sleep 1; kill -KILL $PPID ;; esac`;

/** Kills the daemon, and then a shim whose command has begun. */
async function crashTaken(c: Counted, round: Round): Promise<void> {
  const { bridge } = c;
  const before = c.runs().length;
  await shims(bridge);
  round.submit();
  await until("a start", () => c.runs().length > before);
  await bridge.stop("SIGKILL");
  await until("the end of the shims", () => processesOf(bridge.root).length === 0);
}

/** Calls with an effect that a start makes until it is ready, and for a moment more. */
async function callsOfStart(c: Counted): Promise<{ call: Effect; count: number }[]> {
  const { bridge } = c;
  const file = `${bridge.outside}/trace`;
  {
    using _traced = tracedStart(c, ["-o", file, "-e", `trace=${EFFECTS.join(",")}`]);
    await bridge.serve();
  }
  await sleep(200);
  // The tracer would stay with it.
  await bridge.stop("SIGKILL");
  await bridge.serve();
  const counts = new Map<Effect, number>();
  for (const line of Deno.readTextFileSync(file).split("\n")) {
    const [, call] = /^([a-z0-9]+)\(/.exec(line) ?? [];
    if (call === undefined) continue;
    counts.set(call as Effect, (counts.get(call as Effect) ?? 0) + 1);
  }
  return [...counts].map(([call, count]) => ({ call, count }));
}

/**
 * Starts a bridge anew that is killed at a call of its recovery, and once more, until all is told.
 *
 * @returns true when it was killed
 */
async function recovers(c: Counted, round: Round, call: Effect, n: number): Promise<boolean> {
  const { bridge } = c;
  let killed: boolean;
  {
    const inject = `inject=${call}:signal=KILL:when=${n}`;
    using _traced = tracedStart(c, ["-o", "/dev/null", "-e", `trace=${call}`, "-e", inject]);
    try {
      await bridge.serve();
      await round.finals();
    } catch (error) {
      if (lives(bridge.pid)) throw error;
    }
    killed = !lives(bridge.pid);
  }
  await bridge.stop("SIGKILL");
  await bridge.serve();
  await round.finals();
  return killed;
}

/** Points spread over the whole of a recovery; its first calls are those of any start. */
function spread(all: readonly Point[]): Point[] {
  if (SLOW || all.length <= SAMPLE.recovery) return [...all];
  return Array.from({ length: SAMPLE.recovery }, (_, i) => {
    const point = all[Math.floor((i + 0.9) * all.length / SAMPLE.recovery)];
    assert(point !== undefined);
    return point;
  });
}

Deno.test({
  name:
    "S6 S7 X18 a recovery that is killed at every call with an effect is done by the next one, " +
    "and nothing runs twice or is called uncertain" +
    (noTrace === null ? "" : ` # SKIP ${noTrace}`),
  ignore: noTrace !== null,
  async fn() {
    await using c = await roundBridge(END_SHIM);
    const { bridge } = c;
    await bridge.serve();
    await shims(bridge);
    const first = new Round(c, "r-none");
    const seen = await countCalls([bridge.pid], async () => {
      first.submit();
      await first.finals();
      await sleep(AFTER_MS);
    });
    await first.agree(false);
    const crashes = points(seen, SAMPLE.crash);
    const middle = crashes[Math.floor(crashes.length / 2)];
    assert(middle !== undefined);

    const second = new Round(c, "r-counted");
    await crash(c, second, middle);
    const list = spread(points(await callsOfStart(c), Infinity));
    await second.finals();
    await second.agree(false);

    // An order that nobody took. The first rename of a recovery tells of the daemon, the next voids it.
    const untaken = new Round(c, "r-untaken");
    await crashUntaken(c, untaken);
    const renames = points(await callsOfStart(c), Infinity).filter(({ call }) => call === "rename");
    await untaken.finals();
    await untaken.agree(false);
    for (const { call, n } of SLOW ? renames : renames.slice(1, 2)) {
      const round = new Round(c, `r-untaken-${n}`);
      await crashUntaken(c, round);
      await recovers(c, round, call, n);
      await round.agree(false);
    }
    // One that had begun, and nobody knows how it ended.
    const taken = new Round(c, TAKEN);
    await crashTaken(c, taken);
    await recovers(c, taken, "rename", 1);
    await taken.agree(true);
    assert(
      taken.ids.some((id) => bridge.result(id)?.state === "uncertain"),
      "what had begun and was not recorded is uncertain",
    );

    let killed = 0;
    const tried = new Map<Effect, number>();
    for (const [i, { call, n }] of list.entries()) {
      // Another point of the round each time, so that there is something else to recover.
      const at = crashes[i * 5 % crashes.length] ?? middle;
      const round = new Round(c, `r${i}-${at.call}-${at.n}-${call}-${n}`);
      await crash(c, round, at);
      if (await recovers(c, round, call, n)) killed++;
      tried.set(call, (tried.get(call) ?? 0) + 1);
      await round.agree(false);
    }
    console.log(
      `kill points of a recovery: ${killed} of ${list.length} tried; ` +
        [...tried].map(([call, count]) => `${call} ${count}`).join(", "),
    );
    assert(
      killed >= Math.floor(list.length * 0.5) && killed >= (SLOW ? 10 : 2),
      `${killed} kill points`,
    );
  },
});
