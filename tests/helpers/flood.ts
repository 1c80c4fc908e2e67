/**
 * A flood that an agent keeps up for as long as a test likes, while another agent asks for a run now
 * and then: what lies in files and ledger at marks on the way, and how long the other one waits.
 *
 * Three kinds of entries come in turn, each under an id that never comes again: `bridge.ping`, a
 * request for a key that is taken, and `{}`. Some more are replays of ids that belong to a row, and
 * some have no usable name. Only a bounded number waits in the queue, so that the speed is the
 * daemon's; the flood fails when the queue stops becoming shorter, and not for being slow.
 *
 * @module
 */
import { DatabaseSync } from "node:sqlite";
import { join } from "@std/path/join";
import { sleep, type TestBridge, there } from "./bridge.ts";

/** Entries that wait in the queue, at most. */
const WAITING = 400;
/** Entries written between two looks at everything else: a few milliseconds. */
const STEP = 40;
/** Milliseconds without a sign of life of the queue after which the flood gives up. */
const STALL_MS = 120_000;
/** Milliseconds that the other agent waits for its result, at most. */
const ANSWER_MS = 60_000;

/** How much comes, and from whom. */
export interface FloodOptions {
  /** Ids that come once, all kinds together. */
  readonly ids: number;
  /** Key that belongs to a row of the agent `main`, whose id it is too. */
  readonly key: string;
  /** Verb of that row, which the agent `second` asks for as well. */
  readonly verb: string;
  /** Marks on the way. */
  readonly marks: number;
  /** Requests of the other agent. */
  readonly probes: number;
  /** Told at each mark. */
  readonly at: (mark: Mark) => void;
}

/** What there is at one moment of a flood. */
export interface Mark {
  /** Ids so far, and the seconds that they took. */
  readonly ids: number;
  readonly seconds: number;
  /** Files in the agent's `results/`. */
  readonly results: number;
  /** Notes in its `inbox/refused/`. */
  readonly notes: number;
  /** Bytes of its `inbox/audit.jsonl`. */
  readonly mirror: number;
  /** Bytes of the ledger's file and of its log. */
  readonly ledger: number;
  readonly log: number;
  /** Rows of its tables, all agents. */
  readonly rows: number;
  readonly idRows: number;
  readonly answers: number;
  readonly records: number;
  /** Bytes of the audit text, its segments included. */
  readonly audit: number;
  /** Resident memory of the daemon, bytes. */
  readonly memory: number;
  /** Middle and longest wait of the other agent since the last mark, milliseconds. */
  readonly wait: number;
  readonly longest: number;
}

/** A mark as one line. */
export function markText(mark: Mark): string {
  return Object.entries(mark).map(([name, value]) => `${name} ${Math.round(value)}`).join(", ");
}

/** The middle one of some values; NaN without any. */
export function middle(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? NaN;
}

/**
 * Writes the entries and waits until the queue is empty.
 *
 * @returns the marks, and how long the other agent waited for each of its results, milliseconds
 */
export async function flood(
  bridge: TestBridge,
  options: FloodOptions,
): Promise<{ readonly marks: Mark[]; readonly waits: number[] }> {
  const { ids, key, verb, probes } = options;
  const texts = ['{"verb":"bridge.ping"}', JSON.stringify({ verb, idempotency_key: key }), "{}"];
  const kinds = ["ping", "replay", "empty"];
  const begun = performance.now();
  const marks: Mark[] = [];
  const waits: number[] = [];
  let marked = 0;
  const mark = (sent: number) => {
    const since = waits.slice(marked);
    marked = waits.length;
    const seconds = (performance.now() - begun) / 1000;
    const now: Mark = {
      ids: sent,
      seconds,
      ...stock(bridge),
      memory: bridge.memory(),
      wait: middle(since),
      longest: Math.max(...since),
    };
    marks.push(now);
    options.at(now);
  };
  let sent = 0;
  let ended = false;
  const other = async () => {
    for (let n = 0; n < probes && !ended; n++) {
      while (sent < n * ids / probes && !ended) await sleep(5);
      if (!ended) waits.push(await secondAsks(bridge, `s-${n}`, verb));
    }
  };
  const asking = other();
  // Told below, when the flood itself has ended.
  asking.catch(() => {});
  try {
    let room = 0;
    while (sent < ids) {
      if (room < STEP) {
        room = await roomFor(bridge);
        continue;
      }
      for (let n = 0; n < STEP && sent < ids; n++, sent++, room--) {
        const kind = sent % kinds.length;
        bridge.submitText(`${kinds[kind]}-${sent}`, texts[kind] ?? "");
        if (sent % 7 === 0) bridge.submitText(`replay-${3 * (sent % 10) + 1}`, texts[1] ?? "");
        // Without a usable name: a note in the inbox.
        if (sent % 10 === 0) Deno.writeTextFileSync(bridge.queue(`Bad ${sent}.json`), "{}");
      }
      if (sent * options.marks >= ids * (marks.length + 1) && sent < ids) mark(sent);
      await sleep(0);
    }
    while (bridge.queued().length > 0) await roomFor(bridge, WAITING);
    await asking;
  } finally {
    ended = true;
  }
  mark(sent);
  return { marks, waits };
}

/** How many entries may follow, as soon as there is room for so many. */
async function roomFor(bridge: TestBridge, room = STEP): Promise<number> {
  let least = Infinity;
  let end = performance.now() + STALL_MS;
  for (;;) {
    const queued = bridge.queued().length;
    if (WAITING - queued >= room) return WAITING - queued;
    if (queued < least) {
      least = queued;
      end = performance.now() + STALL_MS;
    }
    if (performance.now() > end) {
      throw new Error(`${queued} entries wait, and none was taken in ${STALL_MS} ms`);
    }
    await sleep(5);
  }
}

/** Another agent asks and waits for its result, milliseconds. */
async function secondAsks(bridge: TestBridge, id: string, verb: string): Promise<number> {
  const temporary = bridge.path(`spool/second/queue/.${id}.tmp`);
  const result = bridge.path(`spool/second/results/${id}.json`);
  Deno.writeTextFileSync(temporary, JSON.stringify({ verb }));
  const begun = performance.now();
  Deno.renameSync(temporary, bridge.path(`spool/second/queue/${id}.json`));
  for (;;) {
    await sleep(2);
    const waited = performance.now() - begun;
    if (there(result) && Deno.readTextFileSync(result).includes('"succeeded"')) return waited;
    if (waited > ANSWER_MS) throw new Error(`The other agent's ${id} has no result`);
  }
}

function sizeOf(path: string): number {
  return there(path) ? Deno.statSync(path).size : 0;
}

/** What lies in the files of a bridge that is being served. */
function stock(bridge: TestBridge): Omit<Mark, "ids" | "seconds" | "memory" | "wait" | "longest"> {
  const names = (...parts: string[]) => [...Deno.readDirSync(bridge.path(...parts))];
  const audit = names("state/audit").map(({ name }) => sizeOf(bridge.path("state/audit", name)));
  const inbox = bridge.path("spool/main/inbox");
  const db = new DatabaseSync(bridge.path("state/ledger.db"), { readOnly: true, timeout: 5000 });
  const count = (table: string) =>
    Number(db.prepare(`SELECT COUNT(*) AS n FROM ${table}`).get()?.["n"]);
  try {
    return {
      results: names("spool/main/results").length,
      notes: there(join(inbox, "refused")) ? names("spool/main/inbox/refused").length : 0,
      mirror: sizeOf(join(inbox, "audit.jsonl")),
      ledger: sizeOf(bridge.path("state/ledger.db")),
      log: sizeOf(bridge.path("state/ledger.db-wal")),
      rows: count("rows"),
      idRows: count("ids"),
      answers: count("answers"),
      records: count("records"),
      audit: audit.reduce((sum, size) => sum + size, 0),
    };
  } finally {
    db.close();
  }
}
