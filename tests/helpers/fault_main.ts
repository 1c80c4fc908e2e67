/**
 * A program of its own that makes system calls of other processes fail, in both ways in which a call
 * can fail, or holds them up at one:
 *
 * - `lost`: the call is not made, and its caller is told the error
 * - `applied`: the call is made, has its whole effect, and its caller is told the error all the same
 * - `before`: the thread is stopped before the call; it makes it when this program ends
 * - `after`: the call is made and has its whole effect, and its caller hears of it when this program ends
 *
 * The second one no tracer at hand can do, so this one stops the traced thread at the end of the
 * call and writes the error into the register that holds the result. Nothing of the traced program
 * is changed, and it runs under its real permissions.
 *
 * Usage: `fault_main.ts MODE CALL ERROR WHEN PATH TID…`: makes CALL fail with ERROR in those threads;
 * WHEN is the number of the one call that fails, counted over all threads, or 0 for every one; PATH
 * is a part of the name that the call must be about, or empty. Writes `ready` when it watches, and a
 * line for each call that it made fail or holds. Ends when it is killed; the threads go on then.
 *
 * @module
 */

/** Numbers of the calls on this machine type: name, number, and where its file is named. */
const CALLS: Readonly<Record<string, { nr: bigint; names: readonly number[]; fd: boolean }>> = {
  write: { nr: 1n, names: [], fd: true },
  pwrite64: { nr: 18n, names: [], fd: true },
  clone: { nr: 56n, names: [], fd: false },
  fsync: { nr: 74n, names: [], fd: true },
  fdatasync: { nr: 75n, names: [], fd: true },
  ftruncate: { nr: 77n, names: [], fd: true },
  rename: { nr: 82n, names: [0, 1], fd: false },
  mkdir: { nr: 83n, names: [0], fd: false },
  unlink: { nr: 87n, names: [0], fd: false },
  openat: { nr: 257n, names: [1], fd: false },
  clone3: { nr: 435n, names: [], fd: false },
};

const ERRORS: Readonly<Record<string, number>> = {
  EIO: 5,
  EAGAIN: 11,
  EMFILE: 24,
  ENOSPC: 28,
  EROFS: 30,
};

const PTRACE = {
  pokeuser: 6n,
  syscall: 24n,
  seize: 0x4206n,
  interrupt: 0x4207n,
  listen: 0x4208n,
  info: 0x420en,
} as const;
const WALL = 0x40000000;
/** Byte offsets of registers in the area that `pokeuser` writes. */
const RAX = 80n;
const ORIG_RAX = 120n;
const INFO_BYTES = 88n;
const TRACESYSGOOD = 1n;

const libc = Deno.dlopen("libc.so.6", {
  ptrace: { parameters: ["i64", "i64", "i64", "i64"], result: "i64" },
  info: {
    name: "ptrace",
    parameters: ["i64", "i64", "i64", "buffer"],
    result: "i64",
  },
  waitpid: { parameters: ["i32", "buffer", "i32"], result: "i32" },
});

const [mode, callName = "", errorName = "", when = "0", part = "", ...tids] = Deno.args;
const call = CALLS[callName];
const errno = ERRORS[errorName];
const modes = ["lost", "applied", "before", "after"];
if (mode === undefined || !modes.includes(mode) || call === undefined || errno === undefined) {
  throw new RangeError(`Cannot inject ${Deno.args.join(" ")}`);
}

const info = new Uint8Array(Number(INFO_BYTES));
const view = new DataView(info.buffer);

function ptrace(request: bigint, tid: number, addr = 0n, data = 0n): boolean {
  return libc.symbols.ptrace(request, BigInt(tid), addr, data) !== -1n;
}

function say(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

/** Text at an address of a traced thread, up to its NUL. */
function textAt(tid: number, address: bigint): string {
  using memory = Deno.openSync(`/proc/${tid}/mem`, { read: true });
  memory.seekSync(address, Deno.SeekMode.Start);
  const bytes = new Uint8Array(400);
  const n = memory.readSync(bytes) ?? 0;
  const end = bytes.indexOf(0);
  return new TextDecoder().decode(bytes.subarray(0, end < 0 ? n : end));
}

/** What the call that a thread enters is about. */
function subject(tid: number): string {
  const arg = (i: number) => view.getBigUint64(32 + 8 * i, true);
  try {
    if (call?.fd === true) return Deno.readLinkSync(`/proc/${tid}/fd/${arg(0)}`);
    return (call?.names ?? []).map((i) => textAt(tid, arg(i))).join(" ");
  } catch {
    return "";
  }
}

/** Threads that are inside a call that is to fail, and what it is about. */
const failing = new Map<number, string>();
let count = 0;

/**
 * Takes part in a call of a thread, at its beginning or its end.
 *
 * @returns false when the thread is to go no further
 */
function atCall(tid: number): boolean {
  if (libc.symbols.info(PTRACE.info, BigInt(tid), INFO_BYTES, info) <= 0n) return true;
  const op = view.getUint8(0);
  if (op === 1 && view.getBigUint64(24, true) === call?.nr) {
    const about = subject(tid);
    if (!about.includes(part)) return true;
    count++;
    if (when !== "0" && count !== Number(when)) return true;
    if (mode === "before") {
      say(`${tid} ${callName} ${count} ${about}`);
      return false;
    }
    failing.set(tid, about);
    if (mode === "lost") ptrace(PTRACE.pokeuser, tid, ORIG_RAX, -1n);
  } else if (op === 2 && failing.has(tid)) {
    const about = failing.get(tid);
    failing.delete(tid);
    // A call that fails by itself is left as it is.
    if (mode !== "lost" && view.getUint8(32) !== 0) return true;
    if (mode !== "after") ptrace(PTRACE.pokeuser, tid, RAX, -BigInt(errno ?? 0));
    say(`${tid} ${callName} ${count} ${about}`);
    return mode !== "after";
  }
  return true;
}

const status = new Int32Array(1);
for (const tid of tids.map(Number)) {
  if (ptrace(PTRACE.seize, tid, 0n, TRACESYSGOOD)) ptrace(PTRACE.interrupt, tid);
}
say("ready");
for (;;) {
  const tid = libc.symbols.waitpid(-1, new Uint8Array(status.buffer), WALL);
  if (tid < 0) break;
  const value = status[0] ?? 0;
  // Only a stop has 0x7f in its low byte.
  if ((value & 0xff) !== 0x7f) continue;
  const signal = (value >> 8) & 0xff;
  const event = value >> 16;
  if (signal === (5 | 0x80)) {
    if (!atCall(tid)) continue;
  } else if (event === 128 && signal !== 5) {
    ptrace(PTRACE.listen, tid);
    continue;
  } else if (event === 0) {
    ptrace(PTRACE.syscall, tid, 0n, BigInt(signal));
    continue;
  }
  ptrace(PTRACE.syscall, tid);
}
