/**
 * Whether a directory of the host's still has the entries that it had when it was read last, by one
 * look at its time of change, so that nobody reads it again for nothing.
 *
 * 1. The look comes before the reading: what arrives in between changes the time once more.
 * 2. A time that was young at the look proves nothing, since clocks of file systems stand still for
 *    up to two seconds: an entry made after the reading may have the same one.
 * 3. It saves work: whoever uses it reads the directory now and then all the same, so that a clock or
 *    a time that was set costs seconds.
 *
 * @module
 */

/** From this age on a time of change is surely not that of a later entry, milliseconds. */
const OLD_MS = 2500;

export class Unchanged {
  readonly #path: string;
  readonly #now: () => number;
  /** The time of change when it was old enough, or null. */
  #mtime: number | null = null;

  /**
   * @param path a directory
   * @param now wall clock, milliseconds
   */
  constructor(path: string, now: () => number) {
    this.#path = path;
    this.#now = now;
  }

  /** True when nothing came or went since the last call. Otherwise the directory is to be read. */
  look(): boolean {
    let mtime: number | null = null;
    try {
      mtime = Deno.lstatSync(this.#path).mtime?.getTime() ?? null;
    } catch {
      // Whoever reads the directory meets the same.
    }
    if (mtime !== null && mtime === this.#mtime) return true;
    this.#mtime = mtime !== null && this.#now() - mtime >= OLD_MS ? mtime : null;
    return false;
  }
}
