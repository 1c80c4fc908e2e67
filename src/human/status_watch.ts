/**
 * `chb status --watch`: what runs, what waits, what came of the newest requests, and what stands in
 * the way of all of them, kept up to date until the person leaves.
 *
 * 1. It reads: the ledger is opened for each look and closed again, so it holds nothing that a daemon
 *    waits for, and sees a ledger that was replaced.
 * 2. What is drawn changes only when something happened. Times are those of events, never an age that
 *    counts on: a screen that nobody has to follow does not move.
 * 3. At a terminal one write replaces the old lines in place, on the second screen; whatever ends it
 *    (q, Ctrl-C, a signal, an error) gives the terminal back as it was. Anywhere else the same lines
 *    are printed once, and again when they change.
 * 4. Every look is bounded, however much waits.
 *
 * @module
 */
import { raisedSwitches, switchText } from "../daemon/kill_switch.ts";
import { type Ledger } from "../ledger/ledger.ts";
import type { HistoryRow } from "../ledger/history_reads.ts";
import { amountText } from "../policy/amount.ts";
import { printable } from "../names.ts";
import { isoTime } from "../result.ts";
import { stateHeld } from "../spool/layout.ts";
import { durationText } from "./report/duration_text.ts";
import { durationOf, endOf, entries, type Entry } from "./report/entries.ts";
import type { Io } from "./command.ts";
import { readLedger } from "./reading.ts";

/** Milliseconds between two looks. */
const LOOK_MS = 1000;
/** Rows of each list that are read. */
const READ = 40;
/** Refusals that the line about stages is made of. */
const REFUSALS = 100;
/** Size of a terminal that does not say how big it is. */
const COLUMNS = 80;
const LINES = 24;

/** What one look found. */
export interface Watched {
  readonly serving: boolean;
  readonly switches: readonly { readonly name: string; readonly why: string }[];
  readonly trusted: boolean;
  readonly counts: {
    readonly running: number;
    readonly pending: number;
    readonly uncertain: number;
    readonly approvals: number;
  };
  readonly running: readonly HistoryRow[];
  readonly waiting: readonly { readonly row: HistoryRow; readonly for: string }[];
  readonly recent: readonly Entry[];
  /** Stages of the newest refusals, and how often each said no. */
  readonly stages: readonly (readonly [string, number])[];
  /** Agents that spent something today, and whether they may spend more. */
  readonly spend: readonly string[];
}

/** Looks once. */
export function look(now: number): Watched {
  const serving = stateHeld();
  const ledger = readLedger();
  try {
    return {
      serving,
      switches: raisedSwitches().map((name) => ({ name, why: switchText(name) })),
      trusted: ledger.currentTrust() !== null,
      counts: ledger.history.counts(),
      running: ledger.history.open("running", READ),
      waiting: ledger.history.open("pending", READ).map((row) => ({
        row,
        for: reason(ledger, row),
      })),
      recent: recent(ledger),
      stages: stages(ledger),
      spend: spend(ledger, Math.floor(now / 86_400_000)),
    };
  } finally {
    ledger.close();
  }
}

function reason(ledger: Ledger, row: HistoryRow): string {
  if (ledger.approval(row.rid)?.state === "waiting") return "your word";
  return ledger.reaping.row(row.rid)?.result.waiting_for ?? "slot";
}

function recent(ledger: Ledger): Entry[] {
  const list: Entry[] = [];
  for (const entry of entries(ledger, {}, READ)) {
    if (entry.state === "done" || entry.state === "uncertain") list.push(entry);
    if (list.length === READ) break;
  }
  return list;
}

function stages(ledger: Ledger): [string, number][] {
  const counts = new Map<string, number>();
  for (const { line } of ledger.history.records(["refused"], null, null, REFUSALS)) {
    const { stage } = JSON.parse(line) as { stage?: unknown };
    const name = typeof stage === "string" ? printable(stage, 20) : "unknown";
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

function spend(ledger: Ledger, today: number): string[] {
  return ledger.history.spendDays(today, READ).filter(({ day }) => day === today).map((d) =>
    `${d.agent} ${amountText(d.spent)}${d.blocked ? ", stopped for today" : ""}`
  );
}

/**
 * The lines of one look, at most `height` of them and none longer than `width`. What does not fit is
 * counted.
 */
export function lines(seen: Watched, width: number, height: number): string[] {
  const { counts } = seen;
  const head = [
    `${seen.serving ? "serving" : "NOT SERVING: ./bin/chb serve"}   ` +
    `running ${counts.running}   waiting ${counts.pending}   uncertain ${counts.uncertain}`,
  ];
  for (const { name, why } of seen.switches) {
    head.push(`${name} is up, lower it: ./bin/chb resume${why === "" ? "" : `   ${why}`}`);
  }
  if (!seen.trusted) head.push("policy UNTRUSTED: ./bin/chb trust");
  if (counts.approvals > 0) head.push(`${counts.approvals} for your word: ./bin/chb pending`);
  if (counts.uncertain > 0) head.push("uncertain ones: ./bin/chb history --outcome uncertain");
  if (seen.stages.length > 0) {
    const n = seen.stages.reduce((sum, [, count]) => sum + count, 0);
    head.push(
      `refused, of the last ${n}: ${seen.stages.map(([s, count]) => `${s} ${count}`).join(", ")}`,
    );
  }
  if (seen.spend.length > 0) head.push(`spent today: ${seen.spend.join(", ")}`);

  const running = seen.running.map((r) =>
    `  since ${clock(r.started_ms ?? r.received_ms)}  ${r.agent}/${r.id}  ${printable(r.verb, 16)}`
  );
  const waiting = seen.waiting.map(({ row, for: what }) =>
    `  since ${clock(row.received_ms)}  ${row.agent}/${row.id}  ${
      printable(row.verb, 16)
    }, for ${what}`
  );
  const ended = seen.recent.map((e) => {
    const took = durationOf(e);
    const what = took === null ? e.reason ?? "" : durationText(took);
    return `  ${clock(e.received_ms)}  ${endOf(e).padEnd(10)} ${what.padEnd(12)} ` +
      `${e.agent}/${e.id ?? printable(e.name ?? "", 60)}  ${printable(e.verb ?? "-", 16)}`;
  });
  // What is open comes first; what ended gets the rest of the screen, and at least three lines.
  const room = Math.max(0, height - head.length - 6);
  const third = Math.max(1, Math.floor((room - 3) / 2));
  const list = (title: string, rows: readonly string[], all: number, most: number) => {
    if (all === 0) return [];
    const there = rows.slice(0, all > most ? Math.max(0, most - 1) : most);
    const more = all - there.length;
    return ["", title, ...there, ...(more > 0 ? [`  and ${more} more`] : [])];
  };
  const open = [
    ...list("Running", running, counts.running, third),
    ...list("Waiting", waiting, counts.pending, third),
  ];
  const left = Math.max(0, height - head.length - open.length - 2);
  const past = ended.length === 0 || left === 0 ? [] : ["", "Newest", ...ended.slice(0, left)];
  return [...head, ...open, ...past].slice(0, height)
    .map((line) => line.length > width ? `${line.slice(0, Math.max(0, width - 3))}...` : line);
}

/** Month, day and time of day, UTC. */
function clock(ms: number): string {
  return isoTime(ms).slice(5, 19).replace("T", " ");
}

/** The person's terminal, or what stands for it. */
export interface Screen {
  /** Null where what is written goes elsewhere than to a terminal that can be drawn on. */
  readonly size: (() => { readonly columns: number; readonly rows: number }) | null;
  /** Takes the terminal: keys come one by one. Gives it back. */
  open(onKey: (key: string) => void, onEnd: () => void, onSize: () => void): () => void;
}

/** This process's own. */
export function ownScreen(): Screen {
  const both = Deno.stdout.isTerminal() && Deno.stdin.isTerminal();
  return {
    size: both ? size : null,
    open(onKey, onEnd, onSize) {
      // Ctrl-C stays a signal, so that it works whatever this program does.
      if (both) Deno.stdin.setRaw(true, { cbreak: true });
      const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
      for (const signal of signals) Deno.addSignalListener(signal, onEnd);
      const again = () => {
        if (both) Deno.stdin.setRaw(true, { cbreak: true });
        onSize();
      };
      if (both) {
        Deno.addSignalListener("SIGWINCH", onSize);
        Deno.addSignalListener("SIGCONT", again);
        readKeys(onKey);
      }
      return () => {
        for (const signal of signals) Deno.removeSignalListener(signal, onEnd);
        if (!both) return;
        Deno.removeSignalListener("SIGWINCH", onSize);
        Deno.removeSignalListener("SIGCONT", again);
        Deno.stdin.setRaw(false);
      };
    },
  };
}

function size(): { columns: number; rows: number } {
  try {
    const { columns, rows } = Deno.consoleSize();
    if (columns > 0 && rows > 0) return { columns, rows };
  } catch {
    // It does not say.
  }
  return { columns: COLUMNS, rows: LINES };
}

/** Hands on what is typed; ends with the process, which nothing else waits for. */
async function readKeys(onKey: (key: string) => void): Promise<void> {
  const buffer = new Uint8Array(64);
  for (;;) {
    const n = await Deno.stdin.read(buffer).catch(() => null);
    if (n === null) return onKey("q");
    for (const byte of buffer.subarray(0, n)) onKey(String.fromCharCode(byte));
  }
}

/** The second screen, without a cursor; and back. */
const ENTER = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J";
const LEAVE = "\x1b[?25h\x1b[?1049l";

/**
 * Watches until q, Ctrl-C or a signal.
 *
 * @param plain lines, also at a terminal
 */
export async function watchStatus(io: Io, screen: Screen, plain: boolean): Promise<void> {
  const draw = plain ? null : screen.size;
  let done = false;
  let wake = () => {};
  const stop = () => {
    done = true;
    wake();
  };
  let before = "";
  const resized = () => {
    before = "";
    wake();
  };
  const close = screen.open(
    (key) => {
      // Ctrl-C and Ctrl-D come as keys where a terminal makes no signal of them.
      if (["q", "Q", "\x03", "\x04"].includes(key)) stop();
    },
    stop,
    resized,
  );
  try {
    if (draw !== null) io.out(ENTER);
    while (!done) {
      const seen = look(Date.now());
      if (draw === null) {
        const text = lines(seen, 4096, 3 * READ).join("\n");
        if (text !== before) io.out(`${before === "" ? "" : "\n"}${text}\n`);
        before = text;
      } else {
        const { columns, rows } = draw();
        const body = lines(seen, columns, rows - 2);
        const text = body.map((line) => `${line}\x1b[K\r\n`).join("") +
          `\x1b[J\x1b[${rows};1Hq leaves${"\x1b[K"}`;
        if (text !== before) io.out(`\x1b[H${text}`);
        before = text;
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, LOOK_MS);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
        if (done) wake();
      });
    }
  } finally {
    close();
    if (draw !== null) io.out(LEAVE);
  }
}
