/**
 * A small file system of its own, which a test can fill, run out of names, or make read-only.
 *
 * @module
 */
import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { errorCode } from "../../src/errors.ts";

const NAME = "chb-full";

function run(program: string, args: readonly string[]): boolean {
  return new Deno.Command(program, {
    args: [...args],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).outputSync().success;
}

/** Why no file system can be mounted here, or null. */
export function cannotMount(): string | null {
  if (Deno.uid() !== 0) return "needs root to mount a small file system";
  try {
    using _disk = new SmallDisk();
    return null;
  } catch {
    return "mounting is not allowed here";
  }
}

export class SmallDisk implements Disposable {
  readonly path: string;
  readonly #own: boolean;

  /** @param path where it is mounted; a new temporary directory by default */
  constructor(path?: string, size = "24m") {
    this.#own = path === undefined;
    this.path = path ?? Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-disk-" }));
    const options = `size=${size},mode=755`;
    if (run("mount", ["-t", "tmpfs", "-o", options, "tmpfs", this.path])) return;
    if (this.#own) Deno.removeSync(this.path);
    throw new Error("Cannot mount");
  }

  /** Takes all space that is left. */
  fill(): void {
    using file = Deno.openSync(join(this.path, NAME), { write: true, create: true, append: true });
    for (let size = 1 << 20; size >= 1;) {
      try {
        if (file.writeSync(new Uint8Array(size)) < size) size = Math.trunc(size / 2);
      } catch (error) {
        if (errorCode(error) !== "ENOSPC") throw error;
        size = Math.trunc(size / 2);
      }
    }
  }

  /** Gives the space back. */
  free(): void {
    Deno.removeSync(join(this.path, NAME));
  }

  /** Allows so many names; 0 for any number. */
  inodes(count: number): void {
    assert(run("mount", ["-o", `remount,nr_inodes=${count}`, this.path]), "remount");
  }

  /** The number of names in use. */
  get used(): number {
    const { stdout } = new Deno.Command("stat", {
      args: ["-f", "-c", "%c %d", this.path],
    }).outputSync();
    const [all = 0, free = 0] = new TextDecoder().decode(stdout).split(" ").map(Number);
    return all - free;
  }

  /** Makes it read-only, or not; false when it is in use. */
  readOnly(on: boolean): boolean {
    return run("mount", ["-o", `remount,${on ? "ro" : "rw"}`, this.path]);
  }

  [Symbol.dispose](): void {
    run("umount", ["-l", this.path]);
    if (this.#own) Deno.removeSync(this.path);
  }
}

/** Why no file system that fails for good can be mounted here, or null. */
export function cannotAbort(): string | null {
  if (Deno.uid() !== 0) return "needs root to mount a file system from a file";
  try {
    using disk = new AbortingDisk();
    disk.abort();
    return null;
  } catch {
    return "mounting ext4 from a file is not allowed here";
  }
}

/**
 * An ext4 file system in a file, which can stop taking changes while files in it are open: what the
 * kernel does when a disk gives an error. It takes changes again when it is mounted anew, which
 * nobody can do who has files open in it.
 */
export class AbortingDisk implements Disposable {
  readonly path: string;
  readonly #own: boolean;
  readonly #image: string;

  /** @param path where it is mounted; a new temporary directory by default */
  constructor(path?: string) {
    this.#image = Deno.makeTempFileSync({ prefix: "chb-image-" });
    this.#own = path === undefined;
    this.path = path ?? Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-disk-" }));
    Deno.truncateSync(this.#image, 32 << 20);
    if (run("mkfs.ext4", ["-q", "-F", "-m", "0", this.#image]) && this.#mount()) return;
    this.#remove();
    throw new Error("Cannot mount");
  }

  #mount(): boolean {
    return run("mount", ["-t", "ext4", "-o", "loop", this.#image, this.path]);
  }

  #remove(): void {
    Deno.removeSync(this.#image);
    if (this.#own) Deno.removeSync(this.path);
  }

  /** From now on it is read-only, for open files too. */
  abort(): void {
    assert(run("mount", ["-o", "remount,abort", this.path]), "remount");
    const probe = join(this.path, NAME);
    try {
      Deno.writeTextFileSync(probe, "");
    } catch (error) {
      if (errorCode(error) === "EROFS") return;
      throw error;
    }
    Deno.removeSync(probe);
    throw new Error("It takes changes still");
  }

  /** Mounts it anew, as after a repair; false when files in it are open. */
  repair(): boolean {
    if (!run("umount", [this.path])) return false;
    // Its first mount after an abort finishes what the journal has.
    run("fsck.ext4", ["-p", this.#image]);
    assert(this.#mount(), "mount");
    return true;
  }

  [Symbol.dispose](): void {
    run("umount", ["-l", this.path]);
    this.#remove();
  }
}
