/**
 * Goes through a directory of any size in small steps: one iterator, kept open over many turns and
 * opened anew after its end. So a turn is bounded, memory does not grow with the directory, and no
 * name is seen a second time before all others were seen once (Q5).
 *
 * The iterator is the runtime's asynchronous one, because its synchronous ones read the whole
 * directory before they give the first name: 100,000 names blocked everything for a third of a
 * second. (Deno before 2.8 does so here too, in a thread of its own, and then holds the list.)
 *
 * @module
 */
import { errorCode } from "../errors.ts";

/** What one step found. */
export interface ScanTurn {
  readonly names: readonly string[];
  /** The end was reached: every entry that was there all the time has been seen since the last end. */
  readonly wrapped: boolean;
  /**
   * Why the directory could not be read on, else null. The round has ended then without having seen
   * everything, and the next step begins another one.
   */
  readonly error: string | null;
}

export class Scanner {
  readonly #path: string;
  #iterator: AsyncIterator<Deno.DirEntry> | null = null;
  #busy = false;

  /** @param path the directory, relative to the root */
  constructor(path: string) {
    this.#path = path;
  }

  /**
   * The next names, at most `bound`. Read permission on the directory. One call at a time.
   *
   * A name may have gone when it is returned, and one that came during a round may wait for the next.
   *
   * @throws {TypeError} when an earlier call has not ended
   */
  async next(bound: number): Promise<ScanTurn> {
    if (this.#busy) throw new TypeError("Cannot scan: a scan of this directory is going on");
    this.#busy = true;
    const names: string[] = [];
    try {
      this.#iterator ??= Deno.readDir(this.#path)[Symbol.asyncIterator]();
      while (names.length < bound) {
        const step = await this.#iterator.next();
        if (step.done === true) {
          this.#iterator = null;
          return { names, wrapped: true, error: null };
        }
        names.push(step.value.name);
      }
      return { names, wrapped: false, error: null };
    } catch (error) {
      await this.#end();
      return { names, wrapped: true, error: errorCode(error) ?? "unknown" };
    } finally {
      this.#busy = false;
    }
  }

  /** Starts over with the next step, as after the directory was replaced. Ends the use of it too. */
  async reset(): Promise<void> {
    await this.#end();
  }

  async #end(): Promise<void> {
    const iterator = this.#iterator;
    this.#iterator = null;
    try {
      await iterator?.return?.();
    } catch {
      // It is not used any more; there is nothing to save.
    }
  }
}
