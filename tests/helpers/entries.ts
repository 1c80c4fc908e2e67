/**
 * Entries of a queue of every type, made the way a sandbox would make them: built in a place of
 * their own and renamed in, or made right in the queue. Beside them a host file that must stay
 * what it is.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";

/** Types of entries. `hardlink`, `symlink` and `fifo-link` lead to something of the host. */
export type EntryKind =
  | "file"
  | "unreadable"
  | "empty-directory"
  | "directory"
  | "sealed-directory"
  | "sealed-empty-directory"
  | "symlink"
  | "device-link"
  | "directory-link"
  | "fifo-link"
  | "dangling-link"
  | "loop-link"
  | "fifo"
  | "socket"
  | "hardlink";

/** Every type that is no plain file. */
export const OTHER_KINDS: readonly EntryKind[] = [
  "unreadable",
  "empty-directory",
  "directory",
  "sealed-directory",
  "sealed-empty-directory",
  "symlink",
  "device-link",
  "directory-link",
  "fifo-link",
  "dangling-link",
  "loop-link",
  "fifo",
  "socket",
  "hardlink",
];

/** What a file of the host said, its time and its mode, so that any change is seen. */
interface Witness {
  readonly text: string;
  readonly mtime: number;
  readonly mode: number;
}

/** A directory of the host beside the bridge, on the same file system as its queue. */
export class EntryMaker implements Disposable {
  readonly #queue: string;
  readonly #room: string;
  readonly #witnesses = new Map<string, Witness>();
  /** A host file that links lead to. It is a valid request, so that following a link would run. */
  readonly secret: string;
  #n = 0;

  /**
   * @param queue absolute path of the queue
   * @param secret content of the host file
   */
  constructor(queue: string, secret: string) {
    this.#queue = queue;
    this.#room = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-entries-" }));
    Deno.mkdirSync(join(this.#room, "host"));
    this.secret = this.hostFile("secret", secret);
    run("mkfifo", join(this.#room, "host/fifo"));
  }

  /** Makes a file of the host and remembers what it is. */
  hostFile(name: string, text: string): string {
    const path = join(this.#room, "host", name);
    Deno.writeTextFileSync(path, text);
    Deno.chmodSync(path, 0o640);
    Deno.utimeSync(path, 1_600_000_000, 1_600_000_000);
    this.#witnesses.set(path, { text, mtime: 1_600_000_000_000, mode: 0o640 });
    return path;
  }

  /** Fails when a file of the host is not what it was. */
  assertHostUntouched(): void {
    for (const [path, { text, mtime, mode }] of this.#witnesses) {
      const stat = Deno.lstatSync(path);
      assertEquals(stat.isFile, true, path);
      assertEquals(stat.mtime?.getTime(), mtime, `mtime of ${path}`);
      assertEquals((stat.mode ?? 0) & 0o7777, mode, `mode of ${path}`);
      assertEquals(Deno.readTextFileSync(path), text, path);
    }
    const names = [...Deno.readDirSync(join(this.#room, "host"))].map((e) => e.name).sort();
    assertEquals(
      names,
      [...this.#witnesses.keys()].map((p) => p.slice(p.lastIndexOf("/") + 1))
        .concat("fifo").sort(),
    );
  }

  /** Makes an entry and puts it under its name, complete from the first moment. */
  make(kind: EntryKind, name: string, bytes: Uint8Array): void {
    if (kind === "sealed-directory" || kind === "sealed-empty-directory") {
      // Only within its parent can a directory be renamed whose inside its owner cannot write.
      const hidden = join(this.#queue, `.sealed-${this.#n++}`);
      Deno.mkdirSync(hidden);
      if (kind === "sealed-directory") {
        Deno.writeTextFileSync(join(hidden, "inside.json"), '{"verb":"mark"}');
      }
      Deno.chmodSync(hidden, 0);
      Deno.renameSync(hidden, join(this.#queue, name));
      return;
    }
    const path = join(this.#room, `${this.#n++}`);
    const to = join(this.#queue, name);
    if (kind === "socket") {
      // Closing removes the name that it was bound to, which must be another one by then.
      using _socket = Deno.listen({ transport: "unix", path });
      return Deno.renameSync(path, to);
    }
    this.#build(kind, path, name, bytes);
    Deno.renameSync(path, to);
  }

  /** Writes a file right under its final name. */
  write(name: string, bytes: Uint8Array): void {
    Deno.writeFileSync(join(this.#queue, name), bytes);
  }

  /** A file of this size without content. */
  sparse(name: string, size: number): void {
    const path = join(this.#room, `${this.#n++}`);
    Deno.writeFileSync(path, new Uint8Array());
    Deno.truncateSync(path, size);
    Deno.renameSync(path, join(this.#queue, name));
  }

  #build(
    kind: Exclude<EntryKind, "socket" | "sealed-directory" | "sealed-empty-directory">,
    path: string,
    name: string,
    bytes: Uint8Array,
  ): void {
    switch (kind) {
      case "file":
        return Deno.writeFileSync(path, bytes);
      case "unreadable":
        return Deno.writeFileSync(path, bytes, { mode: 0 });
      case "empty-directory":
        return Deno.mkdirSync(path);
      case "directory":
        Deno.mkdirSync(path);
        Deno.writeFileSync(join(path, "inside.json"), bytes);
        return Deno.symlinkSync(this.secret, join(path, "link"));
      case "symlink":
        return Deno.symlinkSync(this.secret, path);
      case "device-link":
        return Deno.symlinkSync("/dev/zero", path);
      case "directory-link":
        return Deno.symlinkSync(join(this.#room, "host"), path);
      case "fifo-link":
        return Deno.symlinkSync(join(this.#room, "host/fifo"), path);
      case "dangling-link":
        return Deno.symlinkSync(join(this.#room, "host/nothing"), path);
      case "loop-link":
        return Deno.symlinkSync(name, path);
      case "fifo":
        return run("mkfifo", path);
      case "hardlink":
        return Deno.linkSync(this.secret, path);
    }
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.#room, { recursive: true });
  }
}

/** Runs a program to its end, which must be a good one. */
export function run(program: string, ...args: string[]): void {
  const { success, stderr } = new Deno.Command(program, { args, stdin: "null" }).outputSync();
  assertEquals(success, true, `${program}: ${new TextDecoder().decode(stderr)}`);
}
