/**
 * What daemon and shim tell each other through the run directory: orders, exit records, locks,
 * marks, and the small parts they are made of.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { Buffer } from "node:buffer";
import { randomHex } from "../src/names.ts";
import { BlankRuns, sweepBlanks } from "../src/run/blank_runs.ts";
import { readBounded } from "../src/run/bounded_file.ts";
import {
  blankExit,
  EMPTY_STREAM,
  type ExitDisk,
  exitName,
  parseExit,
  parseExitName,
  readExit,
  TAIL_BYTES,
  writeExit,
} from "../src/run/exit_record.ts";
import { isExecutableFormat, lookProgram, sameFile } from "../src/run/file_identity.ts";
import {
  groupAlive,
  type GroupAnswer,
  type GroupSignal,
  insist,
  killArgv,
  killGroup,
  PGID_MAX,
} from "../src/run/kill_group.ts";
import { LastBytes } from "../src/run/last_bytes.ts";
import { LineReader } from "../src/run/line_reader.ts";
import type { Exit, Order } from "../src/run/order.ts";
import {
  markCancel,
  prepareRun,
  readTaken,
  removeRun,
  runLocked,
  voidOrder,
} from "../src/run/order_file.ts";
import { parseOrder } from "../src/run/parse_order.ts";
import { runDir } from "../src/run/run_dir.ts";
import { StreamSink } from "../src/run/stream_sink.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const json = (value: unknown) => encode(JSON.stringify(value));

const RUN = "0123456789abcdef0123456789abcdef";
const OTHER = "f".repeat(32);

function order(more: Partial<Order> = {}): Order {
  return {
    chb: 1,
    run: RUN,
    agent: "main",
    id: "r1",
    idempotency_key: "r1",
    verb: "true",
    args: {},
    attempt: 1,
    policy: "a".repeat(64),
    command_sha256: "b".repeat(64),
    program: { path: "/usr/bin/true", dev: "1", ino: "2", size: 3, mtime_ms: 4 },
    requires: [],
    max_spend: null,
    timeout_ms: 1000,
    grace_ms: 100,
    output_cap: 1024,
    pgid: 4711,
    reuse: true,
    ...more,
  };
}

function exit(more: Partial<Exit> = {}): Exit {
  return {
    chb: 1,
    run: RUN,
    kind: "exited",
    started: true,
    exit_code: 0,
    signal: null,
    detail: "",
    started_ms: 1,
    finished_ms: 2,
    duration_ms: 0.5,
    stdout: EMPTY_STREAM,
    stderr: EMPTY_STREAM,
    ...more,
  };
}

/** A temporary root with `state/runs`, and a run directory in it when `run` is given. */
function withRoot(test: (root: string, dir: string) => void | Promise<void>): () => Promise<void> {
  return async () => {
    const root = Deno.makeTempDirSync({ prefix: "chb-run-" });
    try {
      Deno.mkdirSync(`${root}/state/runs`, { recursive: true });
      await test(root, runDir(RUN, root));
    } finally {
      Deno.removeSync(root, { recursive: true });
    }
  };
}

function names(dir: string): string[] {
  return [...Deno.readDirSync(dir)].map((entry) => entry.name).sort();
}

// Orders

Deno.test("parseOrder() gives back the order that was written", () => {
  const full = order({
    args: { n: 1, flag: true, text: "x" },
    requires: [{ path: "base/x", sha256: "c".repeat(64) }],
  });
  assertEquals(parseOrder(json(full), RUN), full);
  const { requires: _, ...without } = order();
  assertEquals(parseOrder(json(without), RUN), order());
});

const BAD_ORDERS: [string, Record<string, unknown>][] = [
  ["another version", { chb: 2 }],
  ["another run", { run: OTHER }],
  ["an agent with a slash", { agent: "a/b" }],
  ["an id that is no string", { id: 5 }],
  ["an empty key", { idempotency_key: "" }],
  ["a verb that is a list", { verb: ["true"] }],
  ["arguments that are a list", { args: [] }],
  ["an argument that is an object", { args: { a: {} } }],
  ["an argument that is null", { args: { a: null } }],
  ["attempt 0", { attempt: 0 }],
  ["a policy with a path in it", { policy: "../" + "a".repeat(61) }],
  ["a digest in capitals", { command_sha256: "B".repeat(64) }],
  ["a program without inode", {
    program: { path: "/usr/bin/true", dev: "1", size: 1, mtime_ms: 1 },
  }],
  ["a program with a negative size", { program: { ...order().program, size: -1 } }],
  ["a required file without a digest", { requires: [{ path: "base/x" }] }],
  ["a required file with a digest that is none", { requires: [{ path: "x", sha256: "c" }] }],
  ["required files that are no list", { requires: {} }],
  ["max_spend as text", { max_spend: "5" }],
  ["no time limit", { timeout_ms: 0 }],
  ["a time limit above seven days", { timeout_ms: 604_800_001 }],
  ["a negative grace time", { grace_ms: -1 }],
  ["an output cap that is no integer", { output_cap: 1.5 }],
  ["process group 1", { pgid: 1 }],
  ["process group 0", { pgid: 0 }],
  ["a process group above the kernel's largest", { pgid: PGID_MAX + 1 }],
  ["reuse as a number", { reuse: 1 }],
  ["an unknown field", { argv: ["/bin/sh"] }],
];
for (const [what, change] of BAD_ORDERS) {
  Deno.test(`parseOrder() refuses ${what}`, () => {
    assert(parseOrder(json(order()), RUN) !== null);
    assertEquals(parseOrder(json({ ...order(), ...change }), RUN), null);
  });
}

Deno.test("parseOrder() refuses an order with any field missing, and what is no order at all", () => {
  for (const key of Object.keys(order()).filter((k) => k !== "requires")) {
    const rest: Record<string, unknown> = { ...order() };
    delete rest[key];
    assertEquals(parseOrder(json(rest), RUN), null, key);
  }
  for (const text of ["", "null", "[]", "5", '"x"', "{", "{}", JSON.stringify(order()) + "x"]) {
    assertEquals(parseOrder(encode(text), RUN), null, text);
  }
  assertEquals(parseOrder(new Uint8Array([0xff, 0xfe]), RUN), null);
});

// Run directories

Deno.test(
  "prepareRun() makes a private directory with a private order, once",
  withRoot((root, dir) => {
    prepareRun(order(), root);
    assertEquals(names(dir), ["order.json"]);
    assertEquals((Deno.statSync(dir).mode ?? 0) & 0o777, 0o700);
    assertEquals((Deno.statSync(`${dir}/order.json`).mode ?? 0) & 0o777, 0o600);
    assertEquals(parseOrder(Deno.readFileSync(`${dir}/order.json`), RUN), order());
    assertThrows(() => prepareRun(order(), root));
    assertEquals(names(dir), ["order.json"], "the first one is untouched");
  }),
);

Deno.test("runDir() makes no path of anything but a run id (P15)", () => {
  for (const run of ["", "..", "../x", RUN.toUpperCase(), RUN + "0", RUN.slice(1), `${RUN}\n`]) {
    assertThrows(() => runDir(run), RangeError);
  }
  assertEquals(runDir(RUN), `state/runs/${RUN}`);
});

Deno.test(
  "voidOrder() wins only while the order is not taken (S7)",
  withRoot((root, dir) => {
    assertEquals(voidOrder(RUN, root), false, "no directory");
    prepareRun(order(), root);
    assertEquals(voidOrder(RUN, root), true);
    assertEquals(voidOrder(RUN, root), false);
    assertEquals(names(dir), ["void.json"]);
    Deno.renameSync(`${dir}/void.json`, `${dir}/taken.json`);
    assertEquals(voidOrder(RUN, root), false);
    assertEquals(readTaken(RUN, root), order());
  }),
);

Deno.test(
  "markCancel() leaves one mark, twice is the same, and no directory is no error",
  withRoot((root, dir) => {
    assertEquals(markCancel(RUN, root), false);
    prepareRun(order(), root);
    assertEquals([markCancel(RUN, root), markCancel(RUN, root)], [true, true]);
    assertEquals(names(dir), ["cancel", "order.json"]);
  }),
);

Deno.test(
  "runLocked() sees a lock of another holder, and its own look leaves none behind",
  withRoot((root, dir) => {
    assertEquals(runLocked(RUN, root), false, "no directory");
    prepareRun(order(), root);
    assertEquals(runLocked(RUN, root), false);
    const holder = Deno.openSync(dir, { read: true });
    assertEquals(holder.tryLockSync(true), true, "the look before has let go");
    assertEquals(runLocked(RUN, root), true);
    holder.close();
    assertEquals(runLocked(RUN, root), false);
    // Two probes at once do not see each other.
    using probe = Deno.openSync(dir, { read: true });
    assertEquals(probe.tryLockSync(false), true);
    assertEquals(runLocked(RUN, root), false);
  }),
);

Deno.test(
  "removeRun() removes what belongs there and nothing else (P21)",
  withRoot((root, dir) => {
    prepareRun(order(), root);
    for (const name of ["stdout", "stderr", "shim.log", "cancel", "exit.json", "exit.json.tmp"]) {
      Deno.writeTextFileSync(`${dir}/${name}`, "x");
    }
    Deno.writeTextFileSync(`${dir}/exit-exited-0-none-1-2`, "x");
    Deno.mkdirSync(`${dir}/other`);
    Deno.writeTextFileSync(`${dir}/other/kept`, "x");
    assertEquals(removeRun(RUN, root), false);
    assertEquals(names(dir), ["other"]);
    assertEquals(Deno.readTextFileSync(`${dir}/other/kept`), "x");
    Deno.removeSync(`${dir}/other`, { recursive: true });
    assertEquals([removeRun(RUN, root), removeRun(RUN, root)], [true, true]);
    assertEquals(names(`${root}/state/runs`), []);
  }),
);

Deno.test(
  "readBounded() gives a file whole up to its bound, and null beyond",
  withRoot((root) => {
    const path = `${root}/file`;
    for (const size of [0, 1, 4095, 4096, 4097, 4098, 8193, 8194, 8195, 20_000, 65_536]) {
      const bytes = new Uint8Array(size).map((_, i) => i % 251);
      Deno.writeFileSync(path, bytes);
      for (const max of [0, 1, size - 1, size, size + 1, 4096, 4097, 100_000]) {
        if (max < 0) continue;
        assertEquals(readBounded(path, max), size > max ? null : bytes, `${size} of ${max}`);
      }
    }
    assertThrows(() => readBounded(`${root}/none`, 10), Deno.errors.NotFound);
  }),
);

// Directories made beforehand

Deno.test(
  "prepareRun() makes a run of its blank, which was nobody else's and is used once (S7)",
  withRoot((root) => {
    const blanks = new BlankRuns(root);
    assertEquals([blanks.take(), blanks.size], [null, 0]);
    assertEquals([blanks.make(2), blanks.make(2), blanks.make(2)], [true, true, false]);
    assertEquals([names(`${root}/state/runs`), blanks.size], [[], 2], "a blank is no run");
    const blank = blanks.take();
    const spare = blanks.take();
    assert(blank !== null && spare !== null && blanks.take() === null);
    const { run } = blank;
    const other = spare.run;
    assert(run !== other);
    const inode = Deno.statSync(`${root}/state/blank/${run}`).ino;
    prepareRun(order({ run }), root, blank);
    const dir = runDir(run, root);
    assertEquals(names(`${root}/state/runs`), [run]);
    assertEquals(names(`${root}/state/blank`), [other]);
    assertEquals([Deno.statSync(dir).ino, names(dir)], [inode, ["exit.json.tmp", "order.json"]]);
    assert(blankExit(dir) !== null, "the record has its file");
    assertEquals(parseOrder(Deno.readFileSync(`${dir}/order.json`), run), order({ run }));
    const files = names(dir).map((name) => [`${dir}/${name}`, 0o600] as const);
    for (const [path, mode] of [[dir, 0o700] as const, ...files]) {
      assertEquals((Deno.statSync(path).mode ?? 0) & 0o777, mode, path);
    }
    // The order of a run that was taken stays where it is, whoever asks for the run again.
    assertThrows(() => prepareRun(order({ run }), root, blank));
    assertEquals(parseOrder(Deno.readFileSync(`${dir}/order.json`), run), order({ run }));
    blanks.drop(spare);
    assertEquals(names(`${root}/state/blank`), []);
  }),
);

Deno.test(
  "prepareRun() does without a blank that is gone or cannot be used, and close() leaves none",
  withRoot((root) => {
    const blanks = new BlankRuns(root);
    const spoil = [
      (dir: string) => Deno.removeSync(dir, { recursive: true }),
      (dir: string) => {
        Deno.removeSync(`${dir}/order.json`);
        Deno.mkdirSync(`${dir}/order.json`);
      },
      () => Deno.removeSync(`${root}/state/runs`, { recursive: true }),
    ];
    for (const how of spoil) {
      blanks.make(1);
      const blank = blanks.take();
      assert(blank !== null);
      const { run } = blank;
      how(`${root}/state/blank/${run}`);
      prepareRun(order({ run }), root, blank);
      assertEquals(names(runDir(run, root)), ["order.json"]);
      assertEquals(names(`${root}/state/blank`), []);
    }
    blanks.make(4);
    const dropped = blanks.take();
    assert(dropped !== null);
    blanks.drop(dropped);
    blanks.make(4);
    blanks.close();
    assertEquals([blanks.size, names(`${root}/state/blank`)], [0, []]);
  }),
);

Deno.test(
  "sweepBlanks() removes what an earlier daemon left, and nothing else (P21)",
  withRoot((root) => {
    sweepBlanks(root);
    const earlier = new BlankRuns(root);
    earlier.make(1);
    Deno.mkdirSync(`${root}/state/blank/other`);
    Deno.mkdirSync(`${root}/state/blank/${OTHER}`);
    Deno.writeTextFileSync(`${root}/state/blank/${OTHER}/kept`, "x");
    sweepBlanks(root);
    assertEquals(names(`${root}/state/blank`), [OTHER, "other"].sort());
    earlier.close();
  }),
);

// Exit records

Deno.test(
  "writeExit() and readExit() give back the record, whole, and leave no other file",
  withRoot((root, dir) => {
    prepareRun(order(), root);
    assertEquals(readExit(dir, RUN), null);
    const tail = Buffer.from(new Uint8Array(TAIL_BYTES).fill(65)).toString("base64");
    const big = exit({
      kind: "timed_out",
      exit_code: null,
      signal: "SIGTERM",
      detail: "pipe-held",
      stdout: { bytes: 1_000_000, file_bytes: 500, tail, complete: false },
    });
    assertEquals(stored(dir, big), "record");
    assertEquals(readExit(dir, RUN), big);
    assertEquals(names(dir), ["exit.json", "order.json"]);
    assertEquals((Deno.statSync(`${dir}/exit.json`).mode ?? 0) & 0o777, 0o600);
  }),
);

Deno.test(
  "readExit() gives null for the record of another run, a torn one, and none",
  withRoot((root, dir) => {
    assertEquals(readExit(dir, RUN), null, "no directory");
    prepareRun(order(), root);
    stored(dir, exit({ run: OTHER }));
    assertEquals(readExit(dir, RUN), null);
    const text = JSON.stringify(exit());
    Deno.writeTextFileSync(`${dir}/exit.json`, text.slice(0, -5));
    assertEquals(readExit(dir, RUN), null);
    Deno.writeTextFileSync(`${dir}/exit.json`, text + " ".repeat(200_000));
    assertEquals(readExit(dir, RUN), null, "longer than any record");
    Deno.writeTextFileSync(`${dir}/exit.json`, text);
    assertEquals(readExit(dir, RUN), exit());
  }),
);

const stream = { bytes: 10, file_bytes: 10, tail: "", complete: true };
const BAD_EXITS: [string, Record<string, unknown>][] = [
  ["another version", { chb: 2 }],
  ["an unknown kind", { kind: "vanished" }],
  ["a start that cannot have been", { kind: "killed", started: true }],
  ["an exit that was never started", { kind: "exited", started: false }],
  ["an exit code above 255", { exit_code: 256 }],
  ["an exit code as text", { exit_code: "0" }],
  ["a code and a signal at once", { exit_code: 1, signal: "SIGTERM" }],
  ["a signal that is none", { exit_code: null, signal: "\u001b[31m" }],
  ["a code without a start", { kind: "cancelled", started: false, exit_code: 0 }],
  ["a time that is none", { finished_ms: "now" }],
  ["a negative duration", { duration_ms: -1 }],
  ["an unknown field", { more: 1 }],
  ["a stream with more in the file than there was", { stdout: { ...stream, file_bytes: 11 } }],
  ["a tail that is missing", { stdout: { ...stream, file_bytes: 9 } }],
  ["a tail that is not needed", { stdout: { ...stream, tail: "QUFB" } }],
  ["a tail that is no base64", { stdout: { ...stream, bytes: 3, file_bytes: 0, tail: "<ab>" } }],
  ["a stream with a field too many", { stderr: { ...stream, x: 1 } }],
];
for (const [what, change] of BAD_EXITS) {
  Deno.test(`parseExit() refuses ${what}`, () => {
    assert(parseExit(json(exit({ stdout: stream })), RUN) !== null);
    assertEquals(parseExit(json({ ...exit({ stdout: stream }), ...change }), RUN), null);
  });
}

Deno.test("parseExitName() reads every name that exitName() makes", () => {
  const rows: Partial<Exit>[] = [
    {},
    { exit_code: 255 },
    { exit_code: null, signal: "SIGKILL" },
    { exit_code: null, signal: "SIG35" },
    { kind: "timed_out", exit_code: null },
    { kind: "timed_out", exit_code: 0 },
    { kind: "cancelled", exit_code: null, signal: "SIGTERM" },
    { kind: "cancelled", started: false, exit_code: null },
    { kind: "killed", started: false, exit_code: null },
    { kind: "base_changed", started: false, exit_code: null },
    { kind: "spawn_failed", started: false, exit_code: null },
    { stdout: { ...stream, bytes: 400_000_000, file_bytes: 1 } },
  ];
  for (const row of rows) {
    const full = exit(row);
    const name = exitName(full);
    assert(name.length < 100, name);
    assertEquals(parseExitName(name), {
      kind: full.kind,
      started: full.started,
      exit_code: full.exit_code,
      signal: full.signal,
      stdout_bytes: full.stdout.bytes,
      stderr_bytes: full.stderr.bytes,
    }, name);
  }
});

Deno.test("parseExitName() takes no other name", () => {
  const bad = [
    "exit.json",
    "exit-exited-0-none-1",
    "exit-exited-0-none-1-2-3",
    "exit-exited-256-none-1-2",
    "exit-exited-0-SIGTERM-1-2",
    "exit-exited-unstarted-none-1-2",
    "exit-killed-0-none-1-2",
    "exit-gone-0-none-1-2",
    "exit-exited-0-none-1-99999999999999999",
    "exit-exited-0-none-1-2\n",
    "exit-exited--1-none-1-2",
    "exit-exited-0-none-01-2x",
  ];
  for (const name of bad) assertEquals(parseExitName(name), null, name);
  assert(parseExitName("exit-exited-0-none-1-2") !== null);
});

/** A disk on which the named calls fail; what they were asked is kept. */
function brokenDisk(
  broken: readonly string[],
  shortWrites = false,
): ExitDisk & { calls: string[] } {
  const calls: string[] = [];
  const fail = (call: string) => {
    calls.push(call);
    if (broken.includes(call)) throw Object.assign(new Error("no space"), { code: "ENOSPC" });
  };
  const base = (path: string) => path.slice(path.lastIndexOf("/") + 1);
  return {
    calls,
    open(path, options) {
      fail("open");
      const file = Deno.openSync(path, options);
      return {
        writeSync(bytes) {
          fail("write");
          return file.writeSync(shortWrites ? bytes.subarray(0, 7) : bytes);
        },
        syncSync() {
          fail("sync");
          file.syncSync();
        },
        close: () => file.close(),
      };
    },
    rename(from, to) {
      fail(`rename ${base(from)}`);
      Deno.renameSync(from, to);
    },
    remove: (path) => Deno.removeSync(path),
  };
}

/** Stores an outcome, makes it durable, and says what holds it. */
function stored(...args: Parameters<typeof writeExit>): "record" | "name" | null {
  const held = writeExit(...args);
  held?.sync();
  return held?.by ?? null;
}

function taken(root: string, dir: string): void {
  prepareRun(order(), root);
  Deno.renameSync(`${dir}/order.json`, `${dir}/taken.json`);
}

Deno.test(
  "writeExit() survives short writes (S1)",
  withRoot((root, dir) => {
    taken(root, dir);
    assertEquals(stored(dir, exit(), brokenDisk([], true)), "record");
    assertEquals(readExit(dir, RUN), exit());
  }),
);

for (const step of ["open", "write", "rename exit.json.tmp"]) {
  Deno.test(
    `writeExit() puts the outcome into a name when "${step}" fails (S1, S5)`,
    withRoot((root, dir) => {
      taken(root, dir);
      Deno.writeFileSync(`${dir}/stdout`, new Uint8Array(40));
      const full = exit({
        exit_code: 7,
        stdout: { bytes: 50, file_bytes: 40, tail: "", complete: true },
      });
      assertEquals(stored(dir, full, brokenDisk([step])), "name");
      assertEquals(names(dir), ["exit-exited-7-none-50-0", "stdout"]);
      const read = readExit(dir, RUN);
      assert(read !== null && Math.abs(read.finished_ms - Date.now()) < 60_000);
      assertEquals(read, {
        ...full,
        detail: "disk-full",
        started_ms: null,
        duration_ms: null,
        finished_ms: read.finished_ms,
        stdout: { bytes: 50, file_bytes: 40, tail: "", complete: false },
      });
      assertEquals(readExit(dir, OTHER), null, "the name is this run's only");
    }),
  );
}

Deno.test(
  "writeExit() makes the record durable when it is told to, and names it too when that fails (S5)",
  withRoot((root, dir) => {
    taken(root, dir);
    const good = brokenDisk([]);
    const stored = writeExit(dir, exit(), good);
    assertEquals(good.calls, ["open", "write", "rename exit.json.tmp"]);
    stored?.sync();
    assertEquals(good.calls.slice(3), ["sync"]);
    assertEquals(names(dir), ["exit.json", "taken.json"]);
    const bad = brokenDisk(["sync"]);
    writeExit(dir, exit(), bad)?.sync();
    assertEquals(bad.calls.slice(3), ["sync", "rename taken.json"], "asked once");
    assertEquals(names(dir), ["exit-exited-0-none-0-0", "exit.json"]);
    assertEquals(readExit(dir, RUN), exit(), "the record is read before the name");
  }),
);

Deno.test(
  "writeExit() says that nothing holds the outcome when no rename works either (S1)",
  withRoot((root, dir) => {
    taken(root, dir);
    const disk = brokenDisk(["open", "rename taken.json"]);
    assertEquals(stored(dir, exit(), disk), null);
    assertEquals(disk.calls, ["open", "rename taken.json"]);
    assertEquals(names(dir), ["taken.json"]);
    assertEquals(stored(dir, exit()), "record", "a later attempt finds nothing in its way");
    assertEquals(readExit(dir, RUN), exit());
  }),
);

Deno.test(
  "writeExit() writes into the file that was made with the directory",
  withRoot((root, dir) => {
    taken(root, dir);
    const tmp = `${dir}/exit.json.tmp`;
    const make = () => {
      Deno.writeTextFileSync(tmp, "");
      return blankExit(dir);
    };
    assertEquals(blankExit(dir), null, "there is none");
    const disk = brokenDisk([]);
    const blank = make();
    const { ino } = Deno.lstatSync(tmp);
    writeExit(dir, exit(), disk, blank)?.sync();
    assertEquals(disk.calls, ["open", "write", "rename exit.json.tmp", "sync"]);
    assertEquals([names(dir), readExit(dir, RUN)], [["exit.json", "taken.json"], exit()]);
    assertEquals(Deno.lstatSync(`${dir}/exit.json`).ino, ino);
    // Nothing is written into what somebody put in its place.
    const other = make();
    Deno.removeSync(tmp);
    Deno.writeTextFileSync(`${root}/other`, "");
    Deno.symlinkSync(`${root}/other`, tmp);
    assertEquals(blankExit(dir), null);
    const second = exit({ exit_code: 3 });
    writeExit(dir, second, undefined, other)?.sync();
    assertEquals(Deno.readTextFileSync(`${root}/other`), "");
    assertEquals([names(dir), readExit(dir, RUN)], [["exit.json", "taken.json"], second]);
    assert(Deno.lstatSync(`${dir}/exit.json`).isFile);
    // Without space for its content it goes away, and a name tells the outcome.
    assertEquals(writeExit(dir, exit(), brokenDisk(["write"]), make())?.by, "name");
    assertEquals(names(dir), ["exit-exited-0-none-0-0", "exit.json"]);
  }),
);

Deno.test(
  "writeExit() replaces what an interrupted attempt left",
  withRoot((root, dir) => {
    taken(root, dir);
    Deno.writeTextFileSync(`${dir}/exit.json.tmp`, "torn");
    assertEquals(stored(dir, exit()), "record");
    assertEquals(names(dir), ["exit.json", "taken.json"]);
  }),
);

// Streams

Deno.test("LastBytes keeps the end of a stream however it is cut", () => {
  const all = new Uint8Array(1000).map((_, i) => i % 251);
  for (const size of [1, 3, 16, 17, 31, 32, 33, 999, 1000]) {
    const last = new LastBytes(16);
    for (let at = 0; at < all.length; at += size) {
      last.push(all.subarray(at, at + size));
      const end = Math.min(at + size, all.length);
      const want = all.subarray(Math.max(0, end - 16), end);
      assertEquals([...last.bytes], [...want], `by ${size}`);
    }
  }
  assertEquals(new LastBytes(16).bytes.length, 0);
});

Deno.test(
  "StreamSink keeps a prefix in the file, counts the rest, and keeps its end (X13)",
  withRoot((root) => {
    const path = `${root}/stdout`;
    const sink = new StreamSink(path, 100);
    for (let i = 0; i < 50; i++) sink.push(encode("0123456789"));
    assertEquals(sink.end(), {
      bytes: 500,
      file_bytes: 100,
      tail: Buffer.from("0123456789".repeat(50)).toString("base64"),
      complete: false,
    });
    assertEquals(Deno.readTextFileSync(path), "0123456789".repeat(10));
    assertEquals((Deno.statSync(path).mode ?? 0) & 0o777, 0o600);
  }),
);

Deno.test(
  "StreamSink counts on when the disk is full, and stops writing for good (S1)",
  withRoot((root) => {
    let left = 25;
    let writes = 0;
    const sink = new StreamSink(`${root}/stdout`, 1000, (path) => {
      const file = Deno.openSync(path, { write: true, createNew: true });
      return {
        writeSync(bytes) {
          writes++;
          if (left === 0) throw Object.assign(new Error("no space"), { code: "ENOSPC" });
          const n = file.writeSync(bytes.subarray(0, left));
          left -= n;
          return n;
        },
        close: () => file.close(),
      };
    });
    for (let i = 0; i < 10; i++) sink.push(encode("0123456789"));
    assertEquals(Deno.readTextFileSync(`${root}/stdout`), "0123456789012345678901234");
    assertEquals(writes, 4, "two whole ones, a short one, one that failed");
    const end = sink.end();
    assertEquals([end.bytes, end.file_bytes], [100, 25]);
    assertEquals(Buffer.from(end.tail, "base64").toString(), "0123456789".repeat(10));
  }),
);

Deno.test(
  "StreamSink leaves no file for an empty stream, and takes nothing after a cut (X12)",
  withRoot(async (root) => {
    const empty = new StreamSink(`${root}/empty`, 100);
    await empty.drain(new Blob([]).stream());
    assertEquals([empty.ended, empty.end()], [true, EMPTY_STREAM]);
    const child = new Deno.Command("/bin/sh", {
      args: ["-c", "printf early; exec sleep 60"],
      stdin: "null",
      stdout: "piped",
      stderr: "null",
    }).spawn();
    const sink = new StreamSink(`${root}/held`, 100);
    const drained = sink.drain(child.stdout);
    const late = performance.now() + 5000;
    while (sink.bytes < 5) {
      assert(performance.now() < late);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    sink.cut();
    await drained;
    child.kill("SIGKILL");
    await child.status;
    const end = sink.end();
    assertEquals([end.bytes, end.complete, sink.ended], [5, false, false]);
    assertEquals(names(root), ["held", "state"]);
  }),
);

Deno.test("LineReader gives whole lines only, however they arrive, and drops overlong ones", () => {
  const reader = new LineReader();
  assertEquals(reader.push(encode("ab")), []);
  assertEquals(reader.push(encode("c\nd\n\ne")), ["abc", "d", ""]);
  assertEquals(reader.push(encode("x".repeat(10_000))), []);
  assertEquals(reader.push(encode("\nnext\n")), ["next"]);
  assertEquals(reader.push(new Uint8Array([0x1b, 0xff, 0x0a])), ["??"]);
});

// Programs and groups

Deno.test("isExecutableFormat() takes ELF and #! with an absolute interpreter only (X8)", () => {
  const rows: [string, boolean][] = [
    ["\x7fELF\x02", true],
    ["#!/bin/sh\n", true],
    ["#! \t/usr/bin/env x\n", true],
    ["", false],
    ["\x7fEL", false],
    ["#!\n", false],
    ["#!sh\n", false],
    ["#", false],
    ["echo hello\n", false],
    ["\n#!/bin/sh", false],
  ];
  for (const [head, want] of rows) {
    assertEquals(isExecutableFormat(encode(head)), want, JSON.stringify(head));
  }
});

Deno.test(
  "lookProgram() tells what is no program, and sees a replaced one (X8)",
  withRoot((root) => {
    const path = `${root}/tool`;
    const why = () => {
      const look = lookProgram(path);
      return look.ok ? "ok" : look.why;
    };
    assertEquals(why(), "missing");
    Deno.mkdirSync(path);
    assertEquals(why(), "not-a-file");
    Deno.removeSync(path);
    Deno.writeTextFileSync(path, "", { mode: 0o755 });
    assertEquals(why(), "empty");
    Deno.writeTextFileSync(path, "echo hi\n");
    assertEquals(why(), "not-executable-format");
    Deno.writeTextFileSync(path, "#!/bin/sh\n");
    const first = lookProgram(path);
    Deno.writeTextFileSync(`${root}/new`, "#!/bin/sh\n", { mode: 0o755 });
    Deno.utimeSync(`${root}/new`, new Date(), Deno.statSync(path).mtime ?? new Date());
    Deno.renameSync(`${root}/new`, path);
    const second = lookProgram(path);
    assert(first.ok && second.ok);
    assertEquals(sameFile(first.identity, first.identity), true);
    assertEquals(sameFile(first.identity, second.identity), false, "same text, another file");
  }),
);

Deno.test("killArgv() always separates the group, and never names one below 2 (X16)", () => {
  assertEquals(killArgv("KILL", 12345), ["-KILL", "--", "-12345"]);
  assertEquals(killArgv("TERM", 2), ["-TERM", "--", "-2"]);
  assertEquals(killArgv("0", PGID_MAX), ["-0", "--", `-${PGID_MAX}`]);
  for (const pgid of [1, 0, -1, -12345, 1.5, NaN, Infinity, PGID_MAX + 1, 4294967297]) {
    assertThrows(() => killArgv("KILL", pgid), RangeError, undefined, String(pgid));
  }
});

Deno.test("groupAlive() and killGroup() reach the whole group of a detached process (X16)", async () => {
  const child = new Deno.Command("/bin/sh", {
    args: ["-c", "sleep 60 & echo up; wait"],
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const reader = child.stdout.getReader();
  await reader.read();
  assertEquals(await groupAlive(child.pid), true);
  assertEquals(await killGroup(child.pid, "KILL"), true);
  assertEquals((await child.status).signal, "SIGKILL");
  const end = performance.now() + 5000;
  while (await groupAlive(child.pid)) assert(performance.now() < end, "the grandchild is gone too");
  assertEquals(await killGroup(child.pid, "KILL"), false, "nothing is there any more");
  await reader.cancel();
});

Deno.test("signalGroup() counts the helper's own death by the signal as success", async () => {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-A",
      "--quiet",
      "--no-check",
      "--no-lock",
      new URL("./helpers/term_main.ts", import.meta.url).pathname,
    ],
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const reader = child.stdout.getReader();
  const { value } = await reader.read();
  assertEquals(new TextDecoder().decode(value), "sent\n");
  await reader.cancel();
  assertEquals((await child.status).code, 0);
});

Deno.test("insist() tries again while the helper cannot run, and stops when it is sent or unwanted", async () => {
  const answers: GroupAnswer[] = ["unknown", "unknown", "none", "sent", "unknown"];
  const failed: GroupAnswer[] = [];
  const sent: [string, number][] = [];
  const how = {
    pgid: 4711,
    wanted: () => true,
    failed: (answer: GroupAnswer) => void failed.push(answer),
    send: (signal: GroupSignal, pgid: number) => {
      sent.push([signal, pgid]);
      return Promise.resolve(answers.shift() ?? "sent");
    },
  };
  const start = performance.now();
  await insist({ ...how, signal: "KILL" });
  assert(performance.now() - start >= 350 - 5, "50, 100 and 200 ms");
  assertEquals(failed, ["unknown", "unknown", "none"]);
  assertEquals(sent, Array.from({ length: 4 }, () => ["KILL", 4711]));
  let left = 1;
  await insist({ ...how, signal: "TERM", wanted: () => left-- > 0 });
  assertEquals(sent.slice(4), [["TERM", 4711]], "nobody wants it any more");
});

Deno.test("a run id is never used twice: 128 random bits", () => {
  const runs = new Set(Array.from({ length: 1000 }, () => randomHex(16)));
  assertEquals(runs.size, 1000);
});
