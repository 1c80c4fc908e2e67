/**
 * The thread in which directories are watched, and nothing else is done.
 *
 * The runtime's watcher opens every path that an event names, following links, before it hands the
 * event on, and does so under the lock that every other call of `Deno.watchFs` in the same isolate
 * needs. A named pipe in a watched directory stops it there for good: no more events, and the next
 * call that touches a watcher never returns (P7). What can be stopped by anybody who may write into
 * a queue must not run where the requests are served; a worker can be given up and replaced.
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

/** From the worker. */
export type WatchReport =
  | { readonly id: number; readonly kind: "watching" }
  | { readonly id: number; readonly kind: "failed"; readonly message: string }
  | { readonly id: number; readonly kind: "events"; readonly events: readonly NamedEvent[] }
  /** Events were dropped by the system or the runtime. */
  | { readonly id: number; readonly kind: "lost" }
  /** Something happened under a name that the runtime cannot say. */
  | { readonly id: number; readonly kind: "unnamed" };

export type NamedEvent = readonly [name: string, kind: EntryEvent];

/** What the worker's program uses of its global scope. */
interface Scope {
  onmessage: ((event: MessageEvent<WatchOrder>) => void) | null;
  postMessage(report: WatchReport): void;
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
  const watchers = new Map<number, Deno.FsWatcher>();
  const gathered = new Map<number, NamedEvent[]>();
  let flushedAt = 0;
  let timer: ReturnType<typeof setTimeout> | null = null;

  function flush(): void {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    flushedAt = performance.now();
    for (const [id, events] of gathered) scope.postMessage({ id, kind: "events", events });
    gathered.clear();
  }

  function add(id: number, name: string, kind: EntryEvent): void {
    const events = gathered.get(id);
    if (events === undefined) gathered.set(id, [[name, kind]]);
    else events.push([name, kind]);
  }

  function tell(id: number, directory: string, event: Deno.FsEvent): void {
    if (event.flag === "rescan") {
      flush();
      scope.postMessage({ id, kind: "lost" });
      return;
    }
    const kind = kinds[event.kind];
    if (kind === undefined) return;
    const names: string[] = [];
    for (const path of event.paths) {
      const slash = path.lastIndexOf("/");
      // The directory itself, and other watched directories, are told to every watcher.
      if (path.slice(0, slash) === directory) names.push(path.slice(slash + 1));
    }
    const last = names.pop();
    if (last === undefined) return;
    for (const name of names) add(id, name, kind === "rename" ? "remove" : kind);
    add(id, last, kind);
    // A rename ends a request that is complete: nobody should wait for it.
    if (kind === "rename" || performance.now() - flushedAt > GATHER_MS) flush();
    else timer ??= setTimeout(flush, GATHER_MS);
  }

  async function follow(id: number, directory: string): Promise<void> {
    let watcher: Deno.FsWatcher;
    try {
      watchers.get(id)?.close();
      watchers.delete(id);
      watcher = Deno.watchFs(directory, { recursive: false });
    } catch (error) {
      const message = error instanceof Error ? error.message : "unknown error";
      scope.postMessage({ id, kind: "failed", message });
      return;
    }
    watchers.set(id, watcher);
    scope.postMessage({ id, kind: "watching" });
    const iterator = watcher[Symbol.asyncIterator]();
    for (;;) {
      try {
        const step = await iterator.next();
        if (step.done === true) return;
        tell(id, directory, step.value);
      } catch (error) {
        if (watchers.get(id) !== watcher) return;
        if (!(error instanceof TypeError)) {
          const message = error instanceof Error ? error.message : "unknown error";
          scope.postMessage({ id, kind: "failed", message });
          return;
        }
        // The name is not UTF-8; the iterator goes on behind it.
        scope.postMessage({ id, kind: "unnamed" });
      }
    }
  }

  scope.onmessage = ({ data }) => void follow(data.id, data.directory);
}

/** The address of the worker's program. */
export function watchWorkerUrl(): string {
  return `data:text/javascript,${encodeURIComponent(`(${watchInWorker.toString()})(globalThis);`)}`;
}
