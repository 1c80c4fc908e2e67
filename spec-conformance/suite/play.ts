/**
 * Plays vectors against a started implementation.
 *
 * Rules
 * 1. What an entry must not cause is asked of a witness that only the host's programs write, never
 *    of the implementation.
 * 2. A vector passes only when every entry that it put has left the queue, whatever became of it.
 * 3. A published file that is not whole at any look fails the vector: it was not published at once.
 * 4. Vectors that ask for nothing but files are played beside each other: their ids are their own.
 *    Whoever kills, stops, takes the next note, or could harm the host, is played alone.
 * 5. When all vectors of a started implementation have been played, the witness is asked once more:
 *    what ran a second time later is found then.
 *
 * @module
 */
import { join } from "node:path";
import { Driver, DriverError, sleep } from "./driver.ts";
import { bytesOf, make, put, SkipError } from "./entries.ts";
import { differences, faults, isFinal, type Published, readPublished } from "./result.ts";
import type { Expected, Step, Vector } from "./vector.ts";
import { Work } from "./work.ts";

/** What became of a vector. */
export interface Played {
  readonly id: string;
  readonly status: "pass" | "fail" | "error" | "skip";
  /** Why, unless it passed. */
  readonly why: readonly string[];
  readonly ms: number;
}

/** How the suite plays. */
export interface Options {
  readonly command: string;
  /** How long an answer may take, milliseconds. */
  readonly patience_ms: number;
  /**
   * A final result that is not what is expected counts as wrong after so many milliseconds, and an
   * entry that is still in the queue when all results are there after twice as many. By default both
   * may take as long as an answer.
   */
  readonly final_ms?: number;
  /** Where the first work directory is made; a temporary one by default. */
  readonly work?: string;
  /** Stop at the first vector that does not pass. */
  readonly first?: boolean;
}

class Failure extends Error {}

/** How often is looked: often at first, and less the longer something takes. */
const POLL_MS = { least: 4, most: 25 };

/** One started implementation and its place. */
class Stage {
  readonly work: Work;
  readonly driver: Driver;
  readonly #options: Options;
  #notes = new Map<string, number>();
  /** What was put, by name. */
  readonly #sent = new Map<string, Uint8Array>();

  constructor(options: Options, directory: string, policy: string) {
    this.#options = options;
    this.work = new Work(directory, policy);
    this.driver = new Driver(options.command, this.work);
  }

  /** Plays one vector; throws what went wrong. */
  async play(vector: Vector): Promise<void> {
    const left: [string, string][] = [];
    for (const step of vector.steps) {
      const agent = step.agent ?? "main";
      if ("put" in step && step.how !== "leave") left.push([agent, step.put]);
      if ("make" in step && step.place === undefined) left.push([agent, step.make]);
      await this.#step(step, agent);
    }
    // All that was expected has come by now.
    const { final_ms, patience_ms } = this.#options;
    for (const [agent, name] of left) {
      await this.#until(
        () =>
          isThere(this.work.spool(agent, "queue", name)) ? `"${name}" is still in the queue` : null,
        final_ms === undefined ? patience_ms : 2 * final_ms,
      );
    }
    this.check(vector);
  }

  /** What the witness says of a vector. */
  check(vector: Vector): void {
    const told = this.work.told();
    const found = Object.entries(vector.runs ?? {}).filter(([tag, n]) => (told.get(tag) ?? 0) !== n)
      .map(([tag, n]) => `"${tag}" was run ${told.get(tag) ?? 0} times instead of ${n}`);
    if (isAlone(vector)) found.push(...this.work.harm());
    if (found.length > 0) throw new Failure(found.join("; "));
  }

  /** Calls `wrong` until it finds nothing, or fails with what it found last. */
  async #until(wrong: () => string | null, ms = this.#options.patience_ms): Promise<void> {
    const begun = performance.now();
    for (;;) {
      const found = wrong();
      if (found === null) return;
      const waited = performance.now() - begun;
      if (waited > ms) throw new Failure(found);
      if (!this.driver.runs) throw new Failure(`${found}; the implementation has ended`);
      await sleep(Math.max(POLL_MS.least, Math.min(POLL_MS.most, waited / 20)));
    }
  }

  async #step(step: Step, agent: string): Promise<void> {
    const { work, driver } = this;
    const queue = work.spool(agent, "queue");
    if ("put" in step) {
      Deno.mkdirSync(queue, { recursive: true });
      const bytes = step.same === undefined ? bytesOf(step) : this.#sent.get(step.same);
      if (bytes === undefined) throw new TypeError(`Nothing was put under "${step.same}"`);
      this.#sent.set(step.put, bytes);
      await put(queue, step.put, bytes, step.how ?? "rename");
    } else if ("make" in step) {
      const directory = work.spool(agent, step.place ?? "queue");
      await make(work, directory, step.make, step.kind, step.target);
    } else if ("result" in step) {
      const { result, agent: _, ...expected } = step;
      await this.#result(agent, result, expected);
    } else if ("note" in step) {
      await this.#note(agent, step.note);
    } else if ("kill" in step) {
      const path = join(work.root, "state", step.of === undefined ? "KILL" : `KILL.${step.of}`);
      if (step.kill === "up") Deno.writeTextFileSync(path, "");
      else Deno.removeSync(path);
    } else if ("crash" in step) await driver.crash();
    else if ("start" in step) await driver.start();
    else if ("stop" in step) await driver.stop();
    else if ("sleep" in step) await sleep(step.sleep);
    else if ("remove" in step) Deno.removeSync(work.spool(agent, step.remove));
    else if ("tamper" in step) work.tamper(step.tamper);
    else if ("host" in step) await driver.host(step.host);
    else if ("absent" in step) {
      if (isThere(work.spool(agent, step.absent))) throw new Failure(`${step.absent} is there`);
    } else if ("stays" in step) {
      await sleep(step.for_ms);
      if (!isThere(join(queue, step.stays))) throw new Failure(`"${step.stays}" has been taken`);
      Deno.removeSync(join(queue, step.stays));
    } else {
      await this.#until(() => {
        const times = work.told().get(step.ran) ?? 0;
        return times === step.times ? null : `"${step.ran}" was run ${times} times`;
      });
    }
  }

  async #result(agent: string, name: string, expected: Expected): Promise<void> {
    const path = this.work.spool(agent, "results", `${name}.json`);
    let last = { text: "", since: 0 };
    await this.#until(() => {
      const published = readPublished(path);
      if (published === null) return `results/${name}.json is not there`;
      wholeOrFail(published, `results/${name}.json`);
      const wanted = expected.state ?? "done";
      if (
        wanted !== "pending" && wanted !== "running" && !isFinal(published) &&
        expected.states === undefined
      ) {
        return `results/${name}.json says ${published.value?.["state"]}`;
      }
      const found = [
        ...differences(expected, published),
        ...faults(published, agent, name.replace(/\.refused$/, "")),
      ];
      if (found.length === 0) return null;
      const why = `results/${name}.json: ${found.join("; ")}`;
      const now = performance.now();
      if (last.text !== published.text) last = { text: published.text, since: now };
      if (isFinal(published) && now - last.since > (this.#options.final_ms ?? Infinity)) {
        throw new Failure(why);
      }
      return why;
    });
  }

  /** The next note in `inbox/refused/` that no earlier step has taken. */
  async #note(agent: string, { name, ...expected }: Expected & { name?: string }): Promise<void> {
    const directory = this.work.spool(agent, "inbox/refused");
    const last = this.#notes.get(agent) ?? 0;
    await this.#until(() => {
      const n = numbersIn(directory).find((one) => one > last);
      if (n === undefined) return "no new note in inbox/refused/";
      const published = readPublished(join(directory, `${n}.json`));
      if (published === null) return "the note has gone";
      wholeOrFail(published, `inbox/refused/${n}.json`);
      const found = [...differences(expected, published), ...faults(published, agent, null)];
      if (name !== undefined && published.value?.["name"] !== name) {
        found.push(`name: ${JSON.stringify(published.value?.["name"])} instead of "${name}"`);
      }
      if (found.length > 0) throw new Failure(`inbox/refused/${n}.json: ${found.join("; ")}`);
      return null;
    });
  }

  /** What notes there are counts as seen: a vector looks at its own only. */
  forgetNotes(): void {
    this.#notes.clear();
    for (const agent of ["main", "other"]) {
      const numbers = numbersIn(this.work.spool(agent, "inbox/refused"));
      this.#notes.set(agent, numbers.at(-1) ?? 0);
    }
  }

  async end(): Promise<void> {
    await this.driver.end();
    this.work.remove();
  }
}

function wholeOrFail(published: Published, path: string): void {
  if (published.value === null) throw new Failure(`${path} was seen in part: it is no JSON object`);
}

function numbersIn(directory: string): number[] {
  try {
    return [...Deno.readDirSync(directory)].map(({ name }) => name)
      .filter((name) => /^\d+\.json$/.test(name)).map((name) => parseInt(name))
      .sort((a, b) => a - b);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

function isThere(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

async function judge(vector: Vector, play: () => Promise<void>): Promise<Played> {
  const begun = performance.now();
  const played = (status: Played["status"], ...why: string[]): Played => ({
    id: vector.id,
    status,
    why,
    ms: Math.round(performance.now() - begun),
  });
  try {
    await play();
    return played("pass");
  } catch (error) {
    if (error instanceof Failure) return played("fail", error.message);
    if (error instanceof SkipError) return played("skip", error.message);
    return played("error", error instanceof Error ? error.message : String(error));
  }
}

/** Steps whose effect is not bounded to the vector's own ids. */
const ALONE = ["make", "note", "kill", "crash", "start", "stop", "tamper", "host"];

function isAlone({ steps }: Vector): boolean {
  return steps.some((step) => ALONE.some((name) => name in step));
}

/** Vectors that are played beside each other. */
const WIDE = 8;

/** Plays vectors of one policy that share one start. */
async function playTogether(vectors: readonly Vector[], options: Options): Promise<Played[]> {
  const [first] = vectors;
  if (first === undefined) return [];
  const all: Played[] = [];
  const directory = options.work ??
    Deno.realPathSync(Deno.makeTempDirSync({ prefix: "conformance-" }));
  Deno.mkdirSync(directory, { recursive: true });
  Deno.chmodSync(directory, 0o755);
  let stage: Stage | null = null;
  try {
    stage = new Stage(options, directory, first.policy);
    if (first.fresh !== true) await stage.driver.start();
    const one = stage;
    const rest = vectors.filter((vector) => !isAlone(vector));
    const goesOn = () =>
      options.first !== true || all.every(({ status }) => status === "pass" || status === "skip");
    await Promise.all(Array.from({ length: WIDE }, async () => {
      for (let next = rest.shift(); next !== undefined && goesOn(); next = rest.shift()) {
        const vector = next;
        all.push(await judge(vector, () => one.play(vector)));
      }
    }));
    for (const vector of vectors.filter(isAlone)) {
      if (!goesOn()) break;
      if (!one.driver.runs && vector.fresh !== true) {
        // What one vector did to it must not be counted against the next.
        await one.driver.crash();
        await one.driver.start();
      }
      one.forgetNotes();
      one.work.heal();
      all.push(await judge(vector, () => one.play(vector)));
    }
    one.work.heal();
    for (const vector of vectors) {
      const at = all.findIndex(({ id, status }) => id === vector.id && status === "pass");
      const again = await judge(vector, () => Promise.resolve(stage?.check(vector)));
      if (at >= 0 && again.status !== "pass") {
        all[at] = { ...again, why: ["later:", ...again.why] };
      }
    }
  } catch (error) {
    const why = error instanceof DriverError ? error.message : String(error);
    for (const { id } of vectors) {
      if (!all.some((one) => one.id === id)) all.push({ id, status: "error", why: [why], ms: 0 });
    }
  } finally {
    await stage?.end();
  }
  return all;
}

/** Vectors that can share one start. */
function groups(vectors: readonly Vector[]): Vector[][] {
  const found = new Map<string, Vector[]>();
  for (const vector of vectors) {
    const key = vector.fresh === true ? vector.id : `policy ${vector.policy}`;
    found.set(key, [...(found.get(key) ?? []), vector]);
  }
  // The largest first, so that what is played beside it ends with it.
  return [...found.values()].sort((a, b) => b.length - a.length);
}

/** Plays vectors, `jobs` implementations at a time. */
export async function playAll(
  vectors: readonly Vector[],
  options: Options,
  jobs: number,
): Promise<Played[]> {
  const rest = groups(vectors);
  const all: Played[] = [];
  const worker = async () => {
    for (let next = rest.shift(); next !== undefined; next = rest.shift()) {
      const played = await playTogether(next, options);
      all.push(...played);
      if (options.first === true && played.some(({ status }) => status === "fail")) rest.length = 0;
    }
  };
  await Promise.all(Array.from({ length: options.work === undefined ? jobs : 1 }, worker));
  return all.sort((a, b) => (a.id < b.id ? -1 : 1));
}
