/**
 * A little space, one name and one descriptor that are kept back for an agent's status: when the
 * disk is full or nothing more can be opened, that is what its status must be able to say (S1).
 *
 * The reserve is a file of its own in `work/<agent>/`, on the file system of the spool, and is held
 * open. It is given up when it is needed and taken again as far as it can be had. The status that is
 * replaced gives its space back, so the next one fits as well.
 *
 * @module
 */
import { closeSync, openSync, unlinkSync, writeSync } from "node:fs";
import { errorCode } from "../errors.ts";
import { agentPaths } from "./agent_paths.ts";

/** Bytes kept back, at most; more than the longest status. */
const RESERVE_BYTES = 64 * 1024;
const STEP = 4096;

/** What having the reserve back may help against. */
const SCARCE: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT", "EMFILE", "ENFILE"]);

export class Reserve {
  readonly #path: string;
  /** Open for reading, so that it stands against no change of the mount. */
  #fd: number | null = null;
  #size = 0;

  constructor(agent: string) {
    this.#path = agentPaths(agent).reserve;
  }

  /**
   * Takes the reserve, as much of it as can be had; what is held already stays. Never throws: a
   * reserve that cannot be had is one that is missed later.
   */
  take(): void {
    if (this.#size >= RESERVE_BYTES && this.#fd !== null) return;
    try {
      if (this.#size === 0) this.#remove();
      this.#grow();
      this.#fd ??= openSync(this.#path, "r");
    } catch {
      // It is as big as it could be made.
    }
  }

  #grow(): void {
    const fd = openSync(this.#path, this.#size === 0 ? "wx" : "a", 0o600);
    try {
      const page = new Uint8Array(STEP);
      while (this.#size < RESERVE_BYTES) this.#size += writeSync(fd, page);
    } catch (error) {
      if (!SCARCE.has(errorCode(error) ?? "")) throw error;
    } finally {
      closeSync(fd);
    }
  }

  /**
   * Does something that needs a little space, a name or a descriptor, and does it again without the
   * reserve when that was what failed.
   *
   * @throws whatever `write` throws in the end
   */
  spend(write: () => void): void {
    try {
      write();
    } catch (error) {
      if ((this.#fd === null && this.#size === 0) || !SCARCE.has(errorCode(error) ?? "")) {
        throw error;
      }
      this.#give();
      write();
    } finally {
      this.take();
    }
  }

  /** Gives it back for good, at the end of the service. */
  close(): void {
    if (this.#fd !== null || this.#size > 0) this.#give();
  }

  #give(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
    this.#size = 0;
    this.#remove();
  }

  #remove(): void {
    try {
      unlinkSync(this.#path);
    } catch {
      // There is none, or it stays and is tried again the next time.
    }
  }
}
