/**
 * The thread in which directories are watched, and nothing else is done.
 *
 * The runtime's watcher opens every path that an event names, following links, before it hands the
 * event on, and does so under the lock that every other call of `Deno.watchFs` in the same isolate
 * needs. A named pipe in a watched directory stops it there for good: no more events, and the next
 * call that touches a watcher never returns (P7). What can be stopped by anybody who may write into
 * a queue must not run where the requests are served; a worker can be given up and replaced.
 *
 * For the same reason it tells no faster than it is listened to: one message is under way at a time,
 * and what happens meanwhile is gathered, one entry a name, and counted as lost beyond a bound. A
 * message costs the other thread far more than the rename that caused it, so that somebody who renames
 * without end would otherwise have that thread do nothing else (Q5).
 *
 * The worker gets its program as text, because loading a module file would need a permission to read
 * it. So `watchInWorker` must not use anything but its parameter and globals.
 *
 * @module
 */
import type { EntryEvent } from "./types.ts";

/** To the worker: watch this directory under this number, in place of what had the number. */
export interface WatchOrder {
  readonly id: number;
  /** Absolute path. */
  readonly directory: string;
}

/** To the worker: the last message was dealt with, the next may come. */
export const HEARD = "heard";

/** From the worker: one message holds all that is to be told. */
export type WatchReport =
  | { readonly id: number; readonly kind: "watching" }
  | { readonly id: number; readonly kind: "failed"; readonly message: string }
  | {
    readonly id: number;
    readonly kind: "events";
    readonly events: readonly NamedEvent[];
    /** How many there were before those were left out that a later one makes moot. */
    readonly seen: number;
    /** Wall clock of the last of them: they may have been kept back. */
    readonly at: number;
  }
  /** Events were dropped by the system or the runtime. */
  | { readonly id: number; readonly kind: "lost" }
  /** Something happened under a name that the runtime cannot say. */
  | { readonly id: number; readonly kind: "unnamed" };

export type NamedEvent = readonly [name: string, kind: EntryEvent];

/** What the worker's program uses of its global scope. */
interface Scope {
  onmessage: ((event: MessageEvent<WatchOrder | "heard">) => void) | null;
  postMessage(reports: readonly WatchReport[]): void;
}

/** The worker's program. */
function watchInWorker(scope: Scope): void {
  /** For how long events are gathered while many come. */
  const GATHER_MS = 2;
  const kinds: Readonly<Record<string, EntryEvent>> = {
    create: "create",
    modify: "modify",
    access: "close",
    rename: "rename",
    remove: "remove",
  };
  /** Messages in a row that are sent without waiting for what may come. */
  const BURST = 16;
  /** For how long the end of an entry is kept back: nobody waits for it. */
  const IDLE_MS = 25;
  /** Names gathered for one directory; what is more is told as lost. */
  const GATHER_NAMES = 2048;
  const watchers = new Map<number, Deno.FsWatcher>();
  /** What a directory's next report will say. */
  interface News {
    names: Map<string, EntryEvent[]>;
    seen: number;
    at: number;
    lost: boolean;
    unnamed: boolean;
  }
  const news = new Map<number, News>();
  /** Reports that are not gathered: few, since each answers an order. */
  let answers: WatchReport[] = [];
  /** A message is under way. */
  let told = false;
  /** There are news that are to be told as soon as none is. */
  let urgent = false;
  let flushedAt = 0;
  /** Messages that may be sent at once; one more each `GATHER_MS`. */
  let credit = BURST;
  let timer: ReturnType<typeof setTimeout> | null = null;
  /** Fires at the latest when something has been kept back for `IDLE_MS`. */
  let idle: ReturnType<typeof setTimeout> | null = null;

  function newsOf(id: number): News {
    let of = news.get(id);
    if (of === undefined) {
      of = { names: new Map(), seen: 0, at: 0, lost: false, unnamed: false };
      news.set(id, of);
    }
    return of;
  }

  function flush(): void {
    if (timer !== null) clearTimeout(timer);
    if (idle !== null) clearTimeout(idle);
    timer = idle = null;
    urgent = told;
    if (told) return;
    const reports = answers;
    answers = [];
    for (const [id, { names, seen, at, lost, unnamed }] of news) {
      if (lost) reports.push({ id, kind: "lost" });
      if (unnamed) reports.push({ id, kind: "unnamed" });
      const events: NamedEvent[] = [];
      for (const [name, kinds] of names) for (const kind of kinds) events.push([name, kind]);
      if (events.length > 0) reports.push({ id, kind: "events", events, seen, at });
    }
    news.clear();
    if (reports.length === 0) return;
    told = true;
    const now = performance.now();
    credit = Math.max(0, Math.min(BURST, credit + (now - flushedAt) / GATHER_MS) - 1);
    flushedAt = now;
    scope.postMessage(reports);
  }

  /** Flushes at once where not much was told of late, else when some more may have come. */
  function flushSoon(): void {
    if (told) {
      urgent = true;
      return;
    }
    const now = performance.now();
    if (Math.min(BURST, credit + (now - flushedAt) / GATHER_MS) >= 1) flush();
    else timer ??= setTimeout(flush, GATHER_MS);
  }

  function add(id: number, name: string, kind: EntryEvent): void {
    const of = newsOf(id);
    of.seen++;
    of.at = Date.now();
    const kinds = of.names.get(name);
    if (kinds === undefined) {
      if (of.names.size >= GATHER_NAMES) {
        of.names.clear();
        of.lost = true;
      }
      of.names.set(name, [kind]);
    } else if (kind === "remove") {
      // What happened to the entry that had the name does not matter any more.
      of.names.set(name, [kind]);
    } else if (!kinds.includes(kind)) kinds.push(kind);
  }

  /** @param before the event before this one, or null */
  function tell(
    id: number,
    directory: string,
    event: Deno.FsEvent,
    before: Deno.FsEvent | null,
  ): void {
    if (event.flag === "rescan") {
      newsOf(id).lost = true;
      return flushSoon();
    }
    let kind = kinds[event.kind];
    if (kind === undefined) return;
    let { paths } = event;
    const [from = "", to] = paths;
    if (to !== undefined && before?.kind === "rename" && before.paths[0] === to) {
      // The system tells of each name and the runtime then of the pair: new is only that the first
      // name is free.
      paths = [from];
      kind = "remove";
    }
    const names: string[] = [];
    for (const path of paths) {
      const slash = path.lastIndexOf("/");
      // The directory itself, and other watched directories, are told to every watcher.
      if (path.slice(0, slash) === directory) names.push(path.slice(slash + 1));
    }
    const last = names.pop();
    if (last === undefined) return;
    for (const name of names) add(id, name, kind === "rename" ? "remove" : kind);
    // What happens under the temporary name of a writer is found by the next scan early enough.
    // Telling it would only keep the rename waiting that follows.
    const temporary = last.startsWith(".") && last.endsWith(".tmp");
    if (temporary && kind !== "remove") return void newsOf(id).seen++;
    add(id, last, kind);
    // Nobody waits for the end of an entry but of a probe. Each that the bridge claims comes to one,
    // and most often something new comes right behind.
    if (kind === "remove" && !last.startsWith(".chb-probe-")) idle ??= setTimeout(flush, IDLE_MS);
    else flushSoon();
  }

  function answer(report: WatchReport): void {
    answers.push(report);
    flush();
  }

  async function follow(id: number, directory: string): Promise<void> {
    let watcher: Deno.FsWatcher;
    try {
      watchers.get(id)?.close();
      watchers.delete(id);
      watcher = Deno.watchFs(directory, { recursive: false });
    } catch (error) {
      const message = error instanceof Error ? error.message : "unknown error";
      answer({ id, kind: "failed", message });
      return;
    }
    watchers.set(id, watcher);
    answer({ id, kind: "watching" });
    const iterator = watcher[Symbol.asyncIterator]();
    let before: Deno.FsEvent | null = null;
    for (;;) {
      try {
        const step = await iterator.next();
        if (step.done === true) return;
        tell(id, directory, step.value, before);
        before = step.value;
      } catch (error) {
        if (watchers.get(id) !== watcher) return;
        if (!(error instanceof TypeError)) {
          const message = error instanceof Error ? error.message : "unknown error";
          answer({ id, kind: "failed", message });
          return;
        }
        // The name is not UTF-8; the iterator goes on behind it.
        newsOf(id).unnamed = true;
        flushSoon();
      }
    }
  }

  scope.onmessage = ({ data }) => {
    if (data !== "heard") return void follow(data.id, data.directory);
    told = false;
    if (answers.length > 0) flush();
    else if (urgent) flushSoon();
    else if (news.size > 0) idle ??= setTimeout(flush, IDLE_MS);
  };
}

/** The address of the worker's program. */
export function watchWorkerUrl(): string {
  return `data:text/javascript,${encodeURIComponent(`(${watchInWorker.toString()})(globalThis);`)}`;
}
