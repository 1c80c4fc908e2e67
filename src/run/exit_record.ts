/**
 * How the outcome of a run gets onto the disk and back. The shim writes it before it tells anybody
 * and before it kills its own group, so a daemon that was away finds it.
 *
 * 1. The record is written under another name, then renamed: to every process `exit.json` is there
 *    whole or not at all (S1, S6).
 * 2. On a full disk the outcome becomes the name of the file that already lies there: renaming
 *    needs no space (S1).
 * 3. Nothing is believed after a failed write: that attempt's file is thrown away. After a failed
 *    fsync the outcome is told by a name too; the device is never asked twice (S5).
 * 4. A reader believes a record only when it names the run whose directory it lies in, and only
 *    when every field has its type and bounds.
 *
 * What is written is made durable by `sync`, which may come after the daemon was told: the daemon
 * reads the record from the same kernel and makes it durable in the ledger. A power failure before
 * either leaves `taken.json`, with no record or with one that is no whole text, which recovery reads
 * as "perhaps started": an answer that is true, and that never starts anything twice.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { errorCode } from "../errors.ts";
import { readBounded, syncDirectory, writeAll } from "./bounded_file.ts";
import { type Exit, type ExitKind, RUN_FILES, type StreamEnd } from "./order.ts";
import {
  hasExactly,
  isFields,
  isIntegerIn,
  ORDER_BYTES_MAX,
  parseJsonBytes,
} from "./parse_order.ts";

/** Bytes of a stream's end that an exit record carries. */
export const TAIL_BYTES = 16 * 1024;

/** Longest record in bytes: two tails in base64 and room for the rest. */
const EXIT_BYTES_MAX = 128 * 1024;

const encoder = new TextEncoder();

const KINDS: readonly ExitKind[] = [
  "exited",
  "timed_out",
  "cancelled",
  "killed",
  "base_changed",
  "spawn_failed",
];

/** Kinds that can only mean that nothing was started. */
const UNSTARTED: readonly ExitKind[] = ["killed", "base_changed", "spawn_failed"];

const SIGNAL = /^SIG[A-Z0-9+]{1,16}$/;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
const NAME =
  /^exit-(exited|timed_out|cancelled|killed|base_changed|spawn_failed)-(none|unstarted|[0-9]{1,3})-(none|SIG[A-Z0-9+]{1,16})-([0-9]{1,16})-([0-9]{1,16})$/;

/** A stream that ended before it began. */
export const EMPTY_STREAM: StreamEnd = Object.freeze({
  bytes: 0,
  file_bytes: 0,
  tail: "",
  complete: true,
});

/** The outcome as far as a file name can tell it. */
export type NamedExit =
  & Pick<Exit, "kind" | "started" | "exit_code" | "signal">
  & { readonly stdout_bytes: number; readonly stderr_bytes: number };

/**
 * The outcome as a file name: `exit-<kind>-<code>-<signal>-<stdout bytes>-<stderr bytes>`. The
 * code is `unstarted` when nothing was started and `none` when there is no code.
 */
export function exitName(exit: Exit): string {
  const code = exit.started ? exit.exit_code ?? "none" : "unstarted";
  return `exit-${exit.kind}-${code}-${
    exit.signal ?? "none"
  }-${exit.stdout.bytes}-${exit.stderr.bytes}`;
}

/** The outcome that a file name tells, or null when it is no such name. */
export function parseExitName(name: string): NamedExit | null {
  const match = NAME.exec(name);
  if (match === null) return null;
  const [, kindText, code, signal, out, err] = match;
  const kind = KINDS.find((k) => k === kindText);
  if (kind === undefined) return null;
  const started = code !== "unstarted";
  const exit_code = code === "none" || !started ? null : Number(code);
  const stdout_bytes = Number(out);
  const stderr_bytes = Number(err);
  if (!Number.isSafeInteger(stdout_bytes) || !Number.isSafeInteger(stderr_bytes)) return null;
  if (exit_code !== null && (exit_code > 255 || signal !== "none")) return null;
  if (UNSTARTED.includes(kind) === started && kind !== "cancelled") return null;
  return {
    kind,
    started,
    exit_code,
    signal: signal === "none" || signal === undefined ? null : signal,
    stdout_bytes,
    stderr_bytes,
  };
}

/** The calls that storing a record needs; tests hand in ones that fail. */
export interface ExitDisk {
  open(path: string, options: Deno.OpenOptions): Pick<
    Deno.FsFile,
    "writeSync" | "syncSync" | "close"
  >;
  rename(from: string, to: string): void;
  remove(path: string): void;
}

const DISK: ExitDisk = {
  open: (path, options) => Deno.openSync(path, options),
  rename: (from, to) => Deno.renameSync(from, to),
  remove: (path) => Deno.removeSync(path),
};

function discard(disk: ExitDisk, path: string): void {
  try {
    disk.remove(path);
  } catch {
    // Not there, or not removable now; the next attempt meets it again.
  }
}

/** Creates a file of our own name; what an interrupted attempt left there goes first. */
function create(disk: ExitDisk, path: string): ReturnType<ExitDisk["open"]> {
  const options = { write: true, createNew: true, mode: 0o600 };
  try {
    return disk.open(path, options);
  } catch (error) {
    if (errorCode(error) !== "EEXIST") throw error;
    disk.remove(path);
    return disk.open(path, options);
  }
}

/** An outcome that is stored and not yet durable. */
export interface StoredExit {
  /** What holds the outcome: the record, or the name of a file. */
  readonly by: "record" | "name";
  /**
   * Makes it durable, as far as the device does. A record of which the device says that it cannot
   * keep it is told by a name as well. Called once; never throws.
   */
  sync(): void;
}

/** A record's file that has no content yet: which file it is. */
export interface BlankExit {
  readonly dev: number;
  readonly ino: number | null;
}

/**
 * The record's file, when it was made together with the directory (`blank_runs.ts`). To be asked before
 * the command starts: so far nobody else knows of the directory. It is not kept open, so that it stands
 * against no change of the mount.
 *
 * @returns null when there is none; `writeExit` then makes it
 */
export function blankExit(dir: string): BlankExit | null {
  try {
    const { dev, ino, isFile, nlink, size } = Deno.lstatSync(`${dir}/${RUN_FILES.exitTmp}`);
    return isFile && nlink === 1 && size === 0 ? { dev, ino } : null;
  } catch {
    return null;
  }
}

/** Opens the file that was made beforehand; null when it is not what has its name by now. */
function openBlank(
  disk: ExitDisk,
  dir: string,
  blank: BlankExit,
): ReturnType<ExitDisk["open"]> | null {
  const now = blankExit(dir);
  if (now === null || now.dev !== blank.dev || now.ino !== blank.ino) return null;
  try {
    return disk.open(`${dir}/${RUN_FILES.exitTmp}`, { write: true });
  } catch {
    return null;
  }
}

/**
 * Stores the outcome of a run. Calls in order: create, write, rename; on any failure remove, rename
 * of `taken.json`; `sync` of what it returns then makes it durable.
 *
 * @param dir the run directory, in which `taken.json` lies
 * @param blank what `blankExit` gave for this directory; used once
 * @returns what now holds the outcome, or null when nothing does and the caller has to try again
 */
export function writeExit(
  dir: string,
  exit: Exit,
  disk: ExitDisk = DISK,
  blank: BlankExit | null = null,
): StoredExit | null {
  const tmp = `${dir}/${RUN_FILES.exitTmp}`;
  const bytes = encoder.encode(JSON.stringify(exit));
  let file: ReturnType<ExitDisk["open"]> | null = null;
  try {
    if (blank !== null) file = openBlank(disk, dir, blank);
    file ??= create(disk, tmp);
    writeAll(file, bytes);
    disk.rename(tmp, `${dir}/${RUN_FILES.exit}`);
    const written = file;
    return {
      by: "record",
      sync() {
        try {
          written.syncSync();
        } catch {
          nameExit(dir, exit, disk);
        } finally {
          close(written);
        }
      },
    };
  } catch {
    if (file !== null) close(file);
    discard(disk, tmp);
  }
  return nameExit(dir, exit, disk) ? { by: "name", sync: () => syncQuietly(dir) } : null;
}

/** Tells the outcome by the name of the taken order; false when that failed. */
function nameExit(dir: string, exit: Exit, disk: ExitDisk): boolean {
  try {
    disk.rename(`${dir}/${RUN_FILES.taken}`, `${dir}/${exitName(exit)}`);
    return true;
  } catch {
    return false;
  }
}

function close(file: { close(): void }): void {
  try {
    file.close();
  } catch {
    // The descriptor is gone either way.
  }
}

function syncQuietly(dir: string): void {
  try {
    syncDirectory(dir);
  } catch {
    // The name stands all the same; only a power failure could take it back.
  }
}

function streamEnd(value: unknown): StreamEnd | null {
  if (!isFields(value) || !hasExactly(value, ["bytes", "file_bytes", "tail", "complete"])) {
    return null;
  }
  const { bytes, file_bytes, tail, complete } = value;
  if (!isIntegerIn(bytes, 0, Number.MAX_SAFE_INTEGER)) return null;
  if (!isIntegerIn(file_bytes, 0, bytes)) return null;
  if (typeof tail !== "string" || typeof complete !== "boolean") return null;
  if (!BASE64.test(tail) || tail.length % 4 !== 0) return null;
  const tailBytes = Buffer.byteLength(tail, "base64");
  if (tailBytes !== (bytes > file_bytes ? Math.min(bytes, TAIL_BYTES) : 0)) return null;
  return { bytes, file_bytes, tail, complete };
}

function isTime(value: unknown): value is number {
  return isIntegerIn(value, 0, 8_640_000_000_000_000);
}

/** The exit record that `bytes` hold for `run`, or null when they hold none. */
export function parseExit(bytes: Uint8Array, run: string): Exit | null {
  const value = parseJsonBytes(bytes);
  const keys = [
    "chb",
    "run",
    "kind",
    "started",
    "exit_code",
    "signal",
    "detail",
    "started_ms",
    "finished_ms",
    "duration_ms",
    "stdout",
    "stderr",
  ];
  if (!isFields(value) || !hasExactly(value, keys)) return null;
  const { started, exit_code, signal, detail, started_ms, finished_ms, duration_ms } = value;
  if (value.chb !== 1 || value.run !== run) return null;
  const kind = KINDS.find((k) => k === value.kind);
  if (kind === undefined || typeof started !== "boolean") return null;
  if (kind !== "cancelled" && UNSTARTED.includes(kind) === started) return null;
  if (exit_code !== null && !isIntegerIn(exit_code, 0, 255)) return null;
  if (signal !== null && (typeof signal !== "string" || !SIGNAL.test(signal))) return null;
  if (exit_code !== null && signal !== null) return null;
  if (!started && (exit_code !== null || signal !== null)) return null;
  if (typeof detail !== "string" || detail.length > 200) return null;
  if (started_ms !== null && !isTime(started_ms)) return null;
  if (!isTime(finished_ms)) return null;
  if (
    duration_ms !== null &&
    (typeof duration_ms !== "number" || !Number.isFinite(duration_ms) || duration_ms < 0)
  ) return null;
  const stdout = streamEnd(value.stdout);
  const stderr = streamEnd(value.stderr);
  if (stdout === null || stderr === null) return null;
  return {
    chb: 1,
    run,
    kind,
    started,
    exit_code,
    signal,
    detail,
    started_ms,
    finished_ms,
    duration_ms,
    stdout,
    stderr,
  };
}

/** A stream's end from its size and what the raw file holds; the tail beyond the file is lost. */
function namedStream(path: string, bytes: number): StreamEnd {
  let size = 0;
  try {
    size = Deno.statSync(path).size;
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
  return { bytes, file_bytes: Math.min(size, bytes), tail: "", complete: bytes === 0 };
}

/** The outcome of a run directory whose disk was full, told by a name in it. */
function readNamedExit(dir: string, run: string): Exit | null {
  for (const entry of Deno.readDirSync(dir)) {
    const named = parseExitName(entry.name);
    if (named === null) continue;
    const path = `${dir}/${entry.name}`;
    const order = parseJsonBytes(readBounded(path, ORDER_BYTES_MAX) ?? new Uint8Array());
    if (!isFields(order) || order.run !== run) continue;
    const { stdout_bytes, stderr_bytes, ...outcome } = named;
    return {
      chb: 1,
      run,
      ...outcome,
      detail: "disk-full",
      started_ms: null,
      // The rename that recorded the outcome set this time.
      finished_ms: Deno.statSync(path).ctime?.getTime() ?? 0,
      duration_ms: null,
      stdout: namedStream(`${dir}/${RUN_FILES.stdout}`, stdout_bytes),
      stderr: namedStream(`${dir}/${RUN_FILES.stderr}`, stderr_bytes),
    };
  }
  return null;
}

/**
 * The outcome of a run, or null when the directory holds none that belongs to `run`.
 *
 * An outcome that only a file name tells has `detail` `disk-full`, no start time, and streams that
 * count as incomplete unless they were empty; their `tail` is lost.
 *
 * @throws the system error of a directory that is there and cannot be read
 */
export function readExit(dir: string, run: string): Exit | null {
  try {
    const bytes = readBounded(`${dir}/${RUN_FILES.exit}`, EXIT_BYTES_MAX);
    return bytes === null ? null : parseExit(bytes, run);
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
  try {
    return readNamedExit(dir, run);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
}
