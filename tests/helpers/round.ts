/**
 * Rounds of requests for tests that break something in their course: what is asked, and the check
 * that it all ended well; and the points of a round at which something can be broken.
 *
 * @module
 */
import { assertAgreement } from "./agreement.ts";
import { type TestBridge, until, verb } from "./bridge.ts";
import { type Counted, countedBridge } from "./counting.ts";
import { type Effect, processesOf } from "./tracer.ts";

/** True when every point is to be taken, not a sample. */
export const SLOW = Deno.env.get("SLOW") === "1";

/** How long after the last answer calls still belong to a round: what was published is noted. */
export const AFTER_MS = 1300;

/** Requests of one round: an observing one, a changing one, one more with its key, and a refused one. */
export class Round {
  readonly #counted: Counted;
  readonly ids: readonly string[];
  readonly keys: readonly string[];
  readonly #name: string;

  constructor(counted: Counted, name: string) {
    this.#counted = counted;
    this.#name = name;
    this.ids = ["look", "change", "join", "wrong"].map((word) => `${word}-${name}`);
    this.keys = [`look-${name}`, `key-${name}`];
  }

  submit(): void {
    const { bridge } = this.#counted;
    const [look = "", change = "", join = "", wrong = ""] = this.ids;
    bridge.submit(look, { verb: "look" });
    bridge.submit(change, { verb: "change", idempotency_key: `key-${this.#name}` });
    bridge.submit(join, { verb: "change", idempotency_key: `key-${this.#name}` });
    bridge.submit(wrong, { verb: "no-such-verb" });
  }

  final(): boolean {
    return this.ids.every((id) => {
      const state = this.#counted.bridge.result(id)?.state;
      return state === "done" || state === "uncertain";
    });
  }

  /** Waits until every request has its answer. */
  async finals(): Promise<void> {
    await until(`the answers of ${this.#name}`, () => this.final(), 60_000);
  }

  /** Fails unless all that is stored and told about this round agrees. */
  async agree(mayBeUncertain: boolean): Promise<void> {
    const keys = new Set(this.keys);
    await assertAgreement(this.#counted.bridge, {
      ids: this.ids,
      starts: this.#counted.runs().filter((key) => keys.has(key)),
      mayBeUncertain: () => mayBeUncertain,
    }, `after ${this.#name}`);
  }
}

/**
 * A trusted root with the verbs of a round, one run at a time; not served yet.
 *
 * @param then what every command does before it prints
 */
export async function roundBridge(then = ""): Promise<Counted> {
  const mark = ["base/mark.sh", "{idempotency_key}"];
  return await countedBridge({
    verbs: { look: verb(mark), change: verb(mark, { class: "mutating", lock: "one" }) },
    then: `${then}\necho "ran $1"; echo "told $1" >&2`,
    limits: { concurrency: 1 },
  });
}

/** Shims that wait for an order; the daemon keeps one and a spare. */
export async function shims(bridge: TestBridge): Promise<number[]> {
  return await until("the shims", () => {
    const all = processesOf(bridge.root).filter((pid) => pid !== bridge.pid);
    return all.length >= 2 ? all : null;
  });
}

/** A place in a round: the `n`-th call of a name. */
export interface Point {
  readonly call: Effect;
  readonly n: number;
}

/** Every point that a round without a kill showed, or a sample of them that holds every call. */
export function points(
  counts: readonly { call: Effect; count: number }[],
  sample: number,
): Point[] {
  const most = new Map<Effect, number>();
  for (const { call, count } of counts) most.set(call, Math.max(most.get(call) ?? 0, count));
  const all = [...most].flatMap(([call, count]) =>
    Array.from({ length: count }, (_, i): Point => ({ call, n: i + 1 }))
  );
  if (SLOW || all.length <= sample) return all;
  const chosen = new Set<Point>();
  for (let i = 0; i < sample; i++) {
    const point = all[Math.floor(i * all.length / sample)];
    if (point !== undefined) chosen.add(point);
  }
  // The first of each call, so that none is left out.
  for (const point of all) if (point.n === 1) chosen.add(point);
  return all.filter((point) => chosen.has(point));
}
