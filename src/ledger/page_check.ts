/**
 * Reads every page of the ledger in a thread of its own, over a connection of its own that can only
 * read, while the ledger is in use. A write-ahead log lets a reader and the writer work side by
 * side; only its tail is not folded into the file meanwhile.
 *
 * The worker gets its program as text, because loading a module file would need a permission to read
 * it. So `checkInWorker` must not use anything but its parameters.
 *
 * @module
 */
import type { DatabaseSync } from "node:sqlite";

/** What became of a check: null when every page holds together, else what does not. */
export type PageVerdict =
  | { readonly kind: "sound" }
  | { readonly kind: "damaged"; readonly message: string }
  /** It could not be made or ended; nothing is known. */
  | { readonly kind: "unknown"; readonly message: string };

/** A check that is under way. */
export interface PageCheck {
  readonly verdict: Promise<PageVerdict>;
  /** Gives it up; the verdict is `unknown` then. */
  stop(): void;
}

/** What the worker's program uses of its global scope. */
interface Scope {
  onmessage: ((event: MessageEvent<string>) => void) | null;
  postMessage(verdict: PageVerdict): void;
}

/** The worker's program. */
function checkInWorker(scope: Scope, Database: typeof DatabaseSync): void {
  scope.onmessage = ({ data: path }) => {
    try {
      const db = new Database(path, { readOnly: true, timeout: 60_000 });
      db.prepare("PRAGMA cell_size_check = ON").run();
      const row = db.prepare("PRAGMA quick_check(1)").get();
      const said = String(row?.["quick_check"] ?? "nothing");
      db.close();
      scope.postMessage(said === "ok" ? { kind: "sound" } : { kind: "damaged", message: said });
    } catch (error) {
      const code = (error as { errcode?: unknown }).errcode;
      const message = error instanceof Error ? error.message : String(error);
      // SQLITE_CORRUPT and SQLITE_NOTADB; anything else says nothing of the pages.
      const damaged = typeof code === "number" && [11, 26].includes(code & 0xff);
      scope.postMessage({ kind: damaged ? "damaged" : "unknown", message });
    }
  };
}

/** Begins to check. Needs read permission for the directory of `path`. */
export function checkPagesInBackground(path: string): PageCheck {
  const program = 'import { DatabaseSync } from "node:sqlite";\n' +
    `(${checkInWorker.toString()})(globalThis, DatabaseSync);`;
  const { promise, resolve } = Promise.withResolvers<PageVerdict>();
  let worker: Worker;
  try {
    const url = `data:text/javascript,${encodeURIComponent(program)}`;
    worker = new Worker(url, { type: "module", name: "chb-page-check" });
  } catch (error) {
    resolve({ kind: "unknown", message: String(error) });
    return { verdict: promise, stop() {} };
  }
  const end = (verdict: PageVerdict) => {
    worker.terminate();
    resolve(verdict);
  };
  worker.onmessage = (event: MessageEvent<PageVerdict>) => end(event.data);
  worker.onerror = (event) => {
    // It is handled here: unhandled it would end this thread too.
    event.preventDefault();
    end({ kind: "unknown", message: event.message });
  };
  worker.postMessage(path);
  return { verdict: promise, stop: () => end({ kind: "unknown", message: "given up" }) };
}
