/**
 * What a report says of the entries, gathered while they are read once: totals, times, and the rows
 * of the page's table in a compact form. What it keeps is bounded by the number of entries that the
 * report may have, never by the ledger.
 *
 * @module
 */
import { durationOf, endOf, type Entry } from "./entries.ts";
import { pageJson, shown } from "./html.ts";

/** How an entry ended, in the five groups that the page tells by colour and word. */
export const GROUPS = ["succeeded", "failed", "refused", "stopped", "open"] as const;
export type Group = (typeof GROUPS)[number];

const GROUP_OF: Readonly<Record<string, Group>> = {
  succeeded: "succeeded",
  failed: "failed",
  timed_out: "failed",
  rejected: "refused",
  cancelled: "stopped",
  denied: "stopped",
  approval_lapsed: "stopped",
  expired: "stopped",
};

/** The group of an outcome or state. */
export function groupOf(end: string): Group {
  return GROUP_OF[end] ?? "open";
}

/** Entries of one block of data. */
const BLOCK = 2000;
/** Longest argument text and note in the page, characters. */
export const CUT = 160;
/** Longest argument text that counts as a word, characters, and words that are kept at most. */
const WORD = 64;
const WORDS = 20_000;

/** What one verb's runs took. */
export interface VerbTimes {
  runs: number;
  failed: number;
  /** Milliseconds of every run that ended. */
  readonly took: number[];
}

export class Digest {
  entries = 0;
  requests = 0;
  refusals = 0;
  readonly ends = new Map<string, number>();
  readonly stages = new Map<string, number>();
  readonly reasons = new Map<string, number>();
  readonly agents = new Map<string, number>();
  readonly verbs = new Map<string, VerbTimes>();
  /** When each entry came, wall-clock milliseconds, and the number of its group. */
  readonly times: number[] = [];
  readonly groups: number[] = [];
  /** Texts of more than `CUT` characters that the table shows in part. */
  cut = 0;
  /** JSON texts for the page, each at most some hundred KiB. */
  readonly blocks: string[] = [];
  readonly #words = new Map<string, number>();
  #block = new Block();

  add(entry: Entry): void {
    const end = endOf(entry);
    const group = groupOf(end);
    this.entries++;
    if (entry.kind === "request") this.requests++;
    else this.refusals++;
    count(this.ends, end);
    count(this.agents, entry.agent);
    if (group === "refused") {
      count(this.stages, entry.stage ?? "");
      count(this.reasons, entry.reason ?? "");
    }
    this.times.push(entry.received_ms);
    this.groups.push(GROUPS.indexOf(group));
    const took = durationOf(entry);
    if (entry.kind === "request" && entry.verb !== null && entry.started_ms !== null) {
      const verb = this.verbs.get(entry.verb) ?? { runs: 0, failed: 0, took: [] };
      verb.runs++;
      if (group === "failed") verb.failed++;
      if (took !== null) verb.took.push(took);
      this.verbs.set(entry.verb, verb);
    }
    this.#row(entry, end, took);
  }

  /** The last block is complete. */
  end(): void {
    if (this.#block.rows > 0) this.blocks.push(pageJson(this.#block.data()));
    this.#block = new Block();
  }

  #row(entry: Entry, end: string, took: number | null): void {
    const block = this.#block;
    const { columns } = block;
    for (const text of [entry.args, entry.note]) if ((text?.length ?? 0) > CUT) this.cut++;
    const word = (text: string) => {
      const known = this.#words.get(text);
      if (known !== undefined) return known;
      const n = this.#words.size;
      this.#words.set(text, n);
      block.words.push(text);
      return n;
    };
    const received = Math.round(entry.received_ms);
    columns.t.push(received - block.last);
    block.last = received;
    columns.a.push(word(entry.agent));
    columns.i.push(entry.id ?? (entry.name === null ? "" : shown(entry.name, CUT)));
    columns.e.push(word(end));
    columns.r.push(word(entry.reason ?? ""));
    columns.s.push(word(entry.stage ?? ""));
    columns.d.push(took === null ? -1 : Math.round(took));
    const args = entry.args === null || entry.args === "{}" ? "" : shown(entry.args, CUT);
    columns.x.push(args.length <= WORD && this.#words.size < WORDS ? word(args) : args);
    // A verb that was accepted is one of the policy's; any other one is a text of an agent.
    const verb = shown(entry.verb ?? "", CUT);
    columns.v.push(entry.kind === "request" && this.#words.size < WORDS ? word(verb) : verb);
    const more: Record<string, string | number> = {};
    if (entry.id === null) more["unnamed"] = 1;
    if (entry.kind === "refusal") more["refusal"] = 1;
    if (entry.note !== null) more["note"] = shown(entry.note, CUT);
    if (entry.exit_code !== null) more["exit"] = entry.exit_code;
    if (entry.signal !== null) more["signal"] = shown(entry.signal, 20);
    if (entry.attempt > 1) more["attempt"] = entry.attempt;
    if (entry.replays > 0) more["replays"] = entry.replays;
    if (Object.keys(more).length > 0) block.more[block.rows] = more;
    block.rows++;
    if (block.rows === BLOCK) this.end();
  }
}

/** Columns of the page's table, words by number where they come again: time, agent, id, end, reason, stage, milliseconds, arguments, verb. */
class Block {
  rows = 0;
  last = 0;
  /** Words that no earlier block had; columns name them by number. */
  readonly words: string[] = [];
  readonly columns = {
    /** Milliseconds after the row before; the first one's since the epoch. */
    t: [] as number[],
    a: [] as number[],
    i: [] as string[],
    e: [] as number[],
    r: [] as number[],
    s: [] as number[],
    d: [] as number[],
    x: [] as (number | string)[],
    v: [] as (number | string)[],
  };
  /** What few rows have, by the row's place in the block. */
  readonly more: Record<number, Record<string, string | number>> = {};

  data(): unknown {
    return { n: this.rows, w: this.words, ...this.columns, m: this.more };
  }
}

function count(map: Map<string, number>, key: string): void {
  map.set(key, (map.get(key) ?? 0) + 1);
}

/** The value below which a share of the sorted values lies. */
export function quantile(sorted: readonly number[], share: number): number | null {
  if (sorted.length === 0) return null;
  const at = Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1));
  return sorted[at] ?? null;
}
