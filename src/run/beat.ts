/**
 * The beat of a run: its shim tells once a second that it is not standing still, and for how long the
 * run has gone on. A shim that was stopped, or gets no time, tells nothing.
 *
 * 1. It is told by the time of change of `taken.json`: the milliseconds of awake time since the order
 *    was taken, as if the epoch had been then. That needs no space, so a full disk does not silence it,
 *    and a run that outlives its daemon tells the next one as well.
 * 2. Whoever looks compares two looks: what is the same for seconds stands still. No clock of
 *    two processes is compared.
 * 3. It is information. Whether a run goes on is said by its lock alone.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { RUN_FILES } from "./order.ts";
import { runDir } from "./run_dir.ts";

/** Milliseconds between two beats, and before the first: most commands have ended by then. */
export const RUN_BEAT_MS = 1000;
const FIRST_MS = 100;

/** No run goes on for so long, milliseconds: a later time is that of a clock, before the first beat. */
const NEVER_MS = 1e11;

/** Beats until it is disposed of. */
export class Beat {
  readonly #path: string;
  readonly #begun = performance.now();
  #timer: ReturnType<typeof setTimeout>;

  /** @param dir the run directory, with a taken order */
  constructor(dir: string) {
    this.#path = `${dir}/${RUN_FILES.taken}`;
    this.#timer = setTimeout(() => this.#tell(), FIRST_MS);
  }

  #tell(): void {
    this.#timer = setTimeout(() => this.#tell(), RUN_BEAT_MS);
    const at = new Date(performance.now() - this.#begun);
    try {
      Deno.utimeSync(this.#path, at, at);
    } catch {
      // The order was renamed to its outcome, or its directory is gone.
    }
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}

/**
 * Milliseconds of awake time that a run had gone on at its last beat; null when no order is taken,
 * or it cannot be seen.
 */
export function beatOf(run: string, root = "."): number | null {
  try {
    const { mtime } = Deno.lstatSync(`${runDir(run, root)}/${RUN_FILES.taken}`);
    const at = mtime?.getTime() ?? NaN;
    return at >= 0 && at < NEVER_MS ? at : 0;
  } catch (error) {
    if (errorCode(error) === undefined) throw error;
    return null;
  }
}
