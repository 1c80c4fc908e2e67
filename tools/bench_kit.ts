/**
 * What the parts of the benchmark share: figures and curves as they are kept, one request timed from
 * outside, and what the kernel says of a process.
 *
 * @module
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { TestBridge } from "../tests/helpers/bridge.ts";

/** Units of figures. `times` is a ratio. */
export type Unit = "ms" | "s" | "MB" | "%" | "a second" | "a minute" | "times";

/** One measured figure. */
export interface Figure {
  readonly section: string;
  readonly what: string;
  readonly value: number;
  readonly unit: Unit;
  /** The least and the greatest of the runs. */
  readonly spread?: readonly [number, number];
  /** What the figure is held to: at most this, or at least. */
  readonly target?: { readonly atMost: number } | { readonly atLeast: number };
}

/** The 0th to 100th percentile of a series, milliseconds. */
export interface Curve {
  readonly name: string;
  readonly percentiles: readonly number[];
}

/** All that one call of the benchmark measured. */
export interface Report {
  /** UTC, to the minute. */
  readonly made: string;
  readonly machine: {
    readonly deno: string;
    readonly processors: number;
    readonly model: string;
    readonly kernel: string;
    readonly filesystem: string;
    /** Processes that wanted a processor, over the last minute before the start. */
    readonly load: number;
  };
  readonly sections: readonly { readonly name: string; readonly seconds: number }[];
  readonly figures: readonly Figure[];
  readonly curves: readonly Curve[];
}

/** True when a figure has no target, or keeps it. */
export function isMet({ value, target }: Figure): boolean {
  if (target === undefined) return true;
  return "atMost" in target ? value <= target.atMost : value >= target.atLeast;
}

/** Gathers what the sections measure, and says so. */
export class Gathered {
  readonly figures: Figure[] = [];
  readonly curves: Curve[] = [];
  section = "";

  say(text: string): void {
    console.error(`  ${this.section}: ${text}`);
  }

  figure(what: string, value: number, unit: Unit, more: Pick<Figure, "spread" | "target"> = {}) {
    const rounded = more.spread === undefined ? {} : {
      spread: [round(more.spread[0]), round(more.spread[1])] as const,
    };
    const figure = { section: this.section, what, value: round(value), unit, ...more, ...rounded };
    this.figures.push(figure);
    this.say(`${what}: ${figure.value} ${unit}`);
  }

  curve(name: string, samples: readonly number[]): void {
    const percentiles = Array.from({ length: 101 }, (_, p) => round(quantile(samples, p / 100)));
    this.curves.push({ name, percentiles });
  }
}

/** Three digits that count, and never fewer than the whole number. */
function round(value: number): number {
  return Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3));
}

/** A quantile of values, `q` from 0 to 1; NaN without any. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? NaN;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The least and the greatest. */
export function spreadOf(values: readonly number[]): readonly [number, number] {
  return [Math.min(...values), Math.max(...values)];
}

const pause = new Int32Array(new SharedArrayBuffer(4));

/** Sleeps without the event loop: waking from it costs the measurement little. */
export function nap(ms: number): void {
  Atomics.wait(pause, 0, 0, ms);
}

/** Milliseconds between two looks for a result. */
export const LOOK_MS = 0.1;

/**
 * The final result in a file, when it is there. A look that finds nothing must cost the machine little:
 * it is made while the request is being served, and the floor has nothing of the kind.
 */
export function finalIn(path: string): boolean {
  return existsSync(path) && JSON.parse(Deno.readTextFileSync(path)).state === "done";
}

/**
 * One request from before its rename to its parsed final result, milliseconds.
 *
 * @throws {Error} when there is none in a minute
 */
export function ask(bridge: TestBridge, id: string, text: string): number {
  const temporary = bridge.queue(`.${id}.tmp`);
  const target = bridge.queue(`${id}.json`);
  const result = join(bridge.root, "spool/main/results", `${id}.json`);
  Deno.writeTextFileSync(temporary, text);
  const start = performance.now();
  Deno.renameSync(temporary, target);
  while (!finalIn(result)) {
    if (performance.now() - start > 60_000) throw new Error(`No result for ${id} in a minute`);
    nap(LOOK_MS);
  }
  return performance.now() - start;
}

/** The request that is measured most: a command that does nothing. */
export const OBSERVE = '{"verb":"observe"}';

/** Lets code and caches of a new daemon settle. */
export function warm(bridge: TestBridge, requests = 20, text = OBSERVE): void {
  for (let n = 0; n < requests; n++) ask(bridge, `warm-${n}`, text);
}

/** What a process has cost so far, all of its threads. */
export interface Cost {
  /** Processor time, milliseconds. */
  readonly cpu_ms: number;
  /** How often a thread slept and was woken. */
  readonly wakes: number;
}

/** The cost of processes up to now; those that have ended count nothing. */
export function costOf(pids: readonly number[]): Cost {
  let cpu_ms = 0;
  let wakes = 0;
  for (const pid of pids) {
    try {
      for (const { name } of Deno.readDirSync(`/proc/${pid}/task`)) {
        const task = `/proc/${pid}/task/${name}`;
        cpu_ms += Number(Deno.readTextFileSync(`${task}/schedstat`).split(" ")[0]) / 1e6;
        const status = Deno.readTextFileSync(`${task}/status`);
        wakes += Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1] ?? 0);
      }
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  return { cpu_ms, wakes };
}

/** Pids of the daemon's living shims. */
export function shimsOf(pid: number): number[] {
  const text = Deno.readTextFileSync(`/proc/${pid}/task/${pid}/children`);
  return text.split(" ").filter((word) => word.trim() !== "").map(Number);
}

/**
 * Resident memory of a process now, or the most it ever had, or what of it are pages of files; MB of
 * 1e6 bytes.
 */
export function memoryOf(pid: number, what: "VmRSS" | "VmHWM" | "RssFile" = "VmRSS"): number {
  const text = Deno.readTextFileSync(`/proc/${pid}/status`);
  return Number(new RegExp(`^${what}:\\s+(\\d+) kB`, "m").exec(text)?.[1] ?? NaN) * 1024 / 1e6;
}

/** How many requests of a bridge have a final result in the ledger. */
export function countDone(bridge: TestBridge): number {
  const db = new DatabaseSync(bridge.path("state/ledger.db"), { readOnly: true });
  try {
    const row = db.prepare("SELECT COUNT(*) AS n FROM rows WHERE state = 'done'").get();
    return Number(row?.["n"] ?? 0);
  } finally {
    db.close();
  }
}

/** Waits until so many requests are done; milliseconds on the monotonic clock when they were. */
export function whenDone(bridge: TestBridge, requests: number, limit_ms: number): number {
  const end = performance.now() + limit_ms;
  for (;;) {
    const done = countDone(bridge);
    const now = performance.now();
    if (done >= requests) return now;
    if (now > end) throw new Error(`Only ${done} of ${requests} requests done in ${limit_ms} ms`);
    nap(50);
  }
}

/** Puts requests into the queue, as an agent that is faster than the bridge. */
export function fillQueue(bridge: TestBridge, count: number, text = OBSERVE): void {
  for (let n = 0; n < count; n++) Deno.writeTextFileSync(bridge.queue(`w-${n}.json`), text);
}

/** A ledger's settings on the same file system, with one table and two commits a sample. */
export class Floor {
  readonly #db: DatabaseSync;
  readonly #insert: ReturnType<DatabaseSync["prepare"]>;
  #n = 0;

  constructor(path: string) {
    this.#db = new DatabaseSync(path);
    this.#db.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(a, b)");
    this.#insert = this.#db.prepare("INSERT INTO t VALUES (?, ?)");
  }

  /** Starts `/usr/bin/true` between two commits, milliseconds. */
  async sample(): Promise<number> {
    const start = performance.now();
    this.#commit();
    await startTrue();
    this.#commit();
    return performance.now() - start;
  }

  #commit(): void {
    this.#db.exec("BEGIN IMMEDIATE");
    this.#insert.run(this.#n++, "x".repeat(400));
    this.#db.exec("COMMIT");
  }

  [Symbol.dispose](): void {
    this.#db.close();
  }
}

/** Starts `/usr/bin/true` as a shim starts a command, and waits for its end. */
export async function startTrue(): Promise<void> {
  await new Deno.Command("/usr/bin/true", {
    clearEnv: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn().output();
}
