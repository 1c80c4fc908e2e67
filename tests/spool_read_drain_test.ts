/**
 * What is read of a claim, what is not even opened, and how every kind of claim goes away.
 *
 * @module
 */
import { assert, assertEquals, assertLess, assertThrows } from "@std/assert";
import { join } from "@std/path/join";
import { claimEntry, leftoverClaims } from "../src/spool/claim.ts";
import { agentPaths } from "../src/spool/layout.ts";
import { look } from "../src/spool/look.ts";
import { objectRefusal } from "../src/spool/object_check.ts";
import { disposePoison, dropClaim, keepCopy } from "../src/spool/drain_claim.ts";
import {
  MAX_COPIES,
  MAX_COPY_BYTES,
  MAX_DIRECTORIES,
  MAX_STANDING,
  QUARANTINE_FULL,
  storeCopy,
} from "../src/spool/quarantine.ts";
import { readClaim } from "../src/spool/read_claim.ts";
import type { Claim, Look } from "../src/spool/types.ts";
import {
  AGENT,
  claim,
  entry,
  IS_ROOT,
  modeOf,
  names,
  PATHS,
  put,
  run,
  sh,
  SpoolRoot,
  testWhen,
  there,
} from "./spool_fixture.ts";

const ANY = { size_max: 65_536, owners: "any" } as const;

function text(claimed: Claim, max = 1000): string {
  const read = readClaim(claimed, max);
  assert(read.kind === "bytes", JSON.stringify(read));
  return new TextDecoder().decode(read.bytes);
}

Deno.test("readClaim() returns exactly the bytes of a file, at and below the bound", () => {
  using _ = new SpoolRoot();
  for (const size of [0, 1, 999, 1000]) {
    put("a.json", "x".repeat(size));
    const taken = claim("a.json");
    assertEquals(text(taken), "x".repeat(size));
    dropClaim(taken);
  }
});

Deno.test("readClaim() refuses a file above the bound as malformed", () => {
  using _ = new SpoolRoot();
  put("a.json", "x".repeat(1001));
  const read = readClaim(claim("a.json"), 1000);
  assert(read.kind === "refused");
  assertEquals(read.reason, "malformed");
});

Deno.test("readClaim() refuses a file that grew or shrank after the look (P5)", () => {
  using _ = new SpoolRoot();
  for (const later of ["longer than before", "s"]) {
    put("a.json", "original");
    const taken = claim("a.json");
    Deno.writeTextFileSync(taken.path, later);
    const read = readClaim(taken, 1000);
    assert(read.kind === "refused");
    assertEquals([read.reason, read.detail], ["malformed", "changed while it was read"]);
    dropClaim(taken);
  }
});

Deno.test("what was read stays as it was when the agent writes on through its descriptor (P5)", () => {
  using _ = new SpoolRoot();
  put("a.json", "innocent");
  using kept = Deno.openSync(entry("a.json"), { read: true, write: true });
  const taken = claim("a.json");
  const read = readClaim(taken, 1000);
  kept.seekSync(0, Deno.SeekMode.Start);
  kept.writeSync(new TextEncoder().encode("EVIL-"));
  assert(read.kind === "bytes");
  assertEquals(new TextDecoder().decode(read.bytes), "innocent");
  keepCopy(taken, read.bytes);
  const [copy] = names(PATHS.quarantine);
  assertEquals(Deno.readTextFileSync(`${PATHS.quarantine}/${copy}`), "innocent");
});

Deno.test("readClaim() refuses a file that is not the one that was looked at (P2)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "12345678");
  put("a.json", "innocent");
  const taken = claim("a.json");
  Deno.removeSync(taken.path);
  // Nobody but the host could do this; the comparison must notice all the same.
  Deno.symlinkSync(secret, taken.path);
  assertEquals(readClaim(taken, 1000).kind, "refused");
  Deno.removeSync(taken.path);
  Deno.writeTextFileSync(taken.path, "12345678");
  if (look(taken.path)?.ino !== taken.look.ino) {
    assertEquals(readClaim(taken, 1000).kind, "refused");
  }
});

Deno.test("readClaim() refuses a file that got a second link after the look (P4)", () => {
  using root = new SpoolRoot();
  put("a.json", "innocent");
  const taken = claim("a.json");
  Deno.linkSync(taken.path, join(root.outside, "second"));
  assertEquals(readClaim(taken, 1000).kind, "refused");
});

Deno.test("a hard link is refused unread, goes away, and the host's file keeps its content (P4)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  Deno.linkSync(secret, entry("a.json"));
  const before = modeOf(secret);
  const taken = claim("a.json");
  assertEquals(objectRefusal(taken.look, ANY)?.detail, "a file with more than one link");
  assertEquals(readClaim(taken, 1000).kind, "refused");
  assertEquals(keepCopy(taken, null), false);
  dropClaim(taken);
  assertEquals(names(PATHS.claims), []);
  assertEquals(names(PATHS.quarantine), []);
  assertEquals([Deno.readTextFileSync(secret), modeOf(secret)], ["s3cret", before]);
});

Deno.test("40 named pipes are refused unopened and removed, and nothing waits (P7)", async () => {
  using _ = new SpoolRoot();
  const count = 40;
  sh(`for i in $(seq ${count}); do mkfifo ${PATHS.queue}/f$i.json; done`);
  const began = performance.now();
  for (let i = 1; i <= count; i++) {
    const taken = claim(`f${i}.json`);
    assertEquals(objectRefusal(taken.look, ANY)?.detail, "a named pipe");
    assertEquals(readClaim(taken, 1000).kind, "refused");
    assertEquals(keepCopy(taken, null), false);
    assertEquals(disposePoison(taken), null);
  }
  assertLess(performance.now() - began, 2000);
  assertEquals(names(PATHS.claims), []);
  assertEquals(names(PATHS.queue), []);
  // Forty reads that wait would have used up every thread for this.
  assert((await Deno.stat(PATHS.queue)).isDirectory);
});

Deno.test("disposePoison() lets go whoever waits for the other end of a named pipe (P7)", async () => {
  using _ = new SpoolRoot();
  sh(`mkfifo ${entry("f.json")}`);
  const reader = new Deno.Command("cat", {
    args: [entry("f.json")],
    stdin: "null",
    stdout: "null",
  }).spawn();
  // It must have opened the pipe before the name is gone: /proc tells when it waits in open.
  await new Promise((done) => setTimeout(done, 300));
  assertEquals(disposePoison(claim("f.json")), null);
  const timer = setTimeout(() => reader.kill("SIGKILL"), 3000);
  const { signal } = await reader.status;
  clearTimeout(timer);
  assertEquals(signal, null);
});

Deno.test("a socket is refused unopened and removed (P9)", () => {
  using _ = new SpoolRoot();
  const listener = Deno.listen({ transport: "unix", path: entry("s.json") });
  try {
    const taken = claim("s.json");
    assertEquals(objectRefusal(taken.look, ANY)?.detail, "a socket or device");
    assertEquals(readClaim(taken, 1000).kind, "refused");
    assertEquals(disposePoison(taken), null);
    assertEquals(names(PATHS.claims), []);
  } finally {
    listener.close();
  }
});

/** True when this user can make device nodes. */
function canMakeDevices(): boolean {
  if (!IS_ROOT) return false;
  const directory = Deno.makeTempDirSync({ prefix: "chb-dev-" });
  try {
    run("mknod", [join(directory, "d"), "c", "1", "5"]);
    return true;
  } catch {
    return false;
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
}

testWhen(
  canMakeDevices(),
  "only root with the right to make devices can plant one",
  "a device is refused unopened and removed (P9)",
  () => {
    using _ = new SpoolRoot();
    run("mknod", [entry("zero.json"), "c", "1", "5"]);
    const taken = claim("zero.json");
    assertEquals(objectRefusal(taken.look, ANY)?.detail, "a socket or device");
    assertEquals(readClaim(taken, 1000).kind, "refused");
    assertEquals(disposePoison(taken), null);
    assertEquals(names(PATHS.claims), []);
  },
);

Deno.test("symlinks, live, dangling and looping, are removed and their targets kept (P1, P8)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  Deno.mkdirSync(join(root.outside, "dir"));
  for (const target of [secret, join(root.outside, "dir"), "nowhere", "l.json", "/dev/zero"]) {
    Deno.symlinkSync(target, entry("l.json"));
    assertEquals(disposePoison(claim("l.json")), null);
    assertEquals(names(PATHS.claims), []);
  }
  assertEquals(names(root.outside), ["dir", "secret"]);
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
});

testWhen(
  !IS_ROOT,
  "root reads it",
  "a file of mode 000 is refused as unreadable, removed, and no copy is kept (P12)",
  () => {
    using _ = new SpoolRoot();
    put("a.json", "shut");
    Deno.chmodSync(entry("a.json"), 0o000);
    const taken = claim("a.json");
    const read = readClaim(taken, 1000);
    assert(read.kind === "refused");
    assertEquals(read.reason, "not-regular");
    assertEquals(keepCopy(taken, null), false);
    dropClaim(taken);
    assertEquals(names(PATHS.claims), []);
  },
);

Deno.test("a sparse file of 1 TiB is refused by its size, and its copy is small (J14)", () => {
  using _ = new SpoolRoot();
  Deno.writeTextFileSync(entry("big.json"), "");
  Deno.truncateSync(entry("big.json"), 2 ** 40);
  const began = performance.now();
  const taken = claim("big.json");
  assertEquals(objectRefusal(taken.look, ANY), {
    reason: "malformed",
    detail: "larger than 65536 bytes",
  });
  assertEquals(readClaim(taken, 65_536).kind, "refused");
  assertEquals(keepCopy(taken, null), true);
  const [copy] = names(PATHS.quarantine);
  assertEquals(Deno.statSync(`${PATHS.quarantine}/${copy}`).size, MAX_COPY_BYTES);
  dropClaim(taken);
  assertLess(performance.now() - began, 1000);
});

Deno.test("objectRefusal() refuses by type, links, owner and size, in this order", () => {
  const good: Look = {
    kind: "file",
    dev: "1",
    ino: "2",
    nlink: 1,
    uid: 7,
    size: 100,
    ctime_ms: 0,
    mtime_ms: 0,
    mode: 0o644,
  };
  const bounds = { size_max: 100, owners: new Set([7]) };
  assertEquals(objectRefusal(good, bounds), null);
  const all = { ...good, nlink: 2, uid: 8, size: 101 };
  const detail = (look: Look) => objectRefusal(look, bounds)?.detail;
  assertEquals(detail({ ...all, kind: "symlink" }), "a symbolic link");
  assertEquals(detail({ ...all, kind: "directory" }), "a directory");
  assertEquals(detail({ ...all, kind: "other", fifo: true }), "a named pipe");
  assertEquals(detail({ ...all, kind: "other" }), "a socket or device");
  assertEquals(detail(all), "a file with more than one link");
  assertEquals(detail({ ...all, nlink: 0 }), "a file with more than one link");
  assertEquals(detail({ ...all, nlink: 1 }), "a file of an owner who is not accepted here");
  assertEquals(detail({ ...all, nlink: 1, uid: 7 }), "larger than 100 bytes");
  assertEquals(objectRefusal({ ...good, uid: 8 }, { ...bounds, owners: "any" }), null);
  assertEquals(objectRefusal({ ...good, size: NaN }, bounds)?.reason, "malformed");
});

Deno.test("dropClaim() removes a claim and does not mind one that is gone", () => {
  using _ = new SpoolRoot();
  put("a.json");
  const taken = claim("a.json");
  dropClaim(taken);
  dropClaim(taken);
  assertEquals(names(PATHS.claims), []);
});

Deno.test("disposePoison() removes an empty directory and quarantines a full one unentered (P10)", () => {
  using root = new SpoolRoot();
  const secret = root.hostFile("secret", "s3cret");
  Deno.mkdirSync(entry("empty.json"));
  assertEquals(disposePoison(claim("empty.json")), null);
  assertEquals(names(PATHS.quarantine), []);
  Deno.mkdirSync(entry("full.json/deep/deeper"), { recursive: true });
  Deno.symlinkSync(root.outside, entry("full.json/link"));
  Deno.chmodSync(entry("full.json/deep"), 0o000);
  const taken = claim("full.json");
  assertEquals(disposePoison(taken), null);
  assertEquals(names(PATHS.claims), []);
  const [kept, ...more] = names(PATHS.quarantine);
  assertEquals(more, []);
  assertEquals(kept, `dir.${taken.path.slice(PATHS.claims.length + 1)}`);
  assertEquals(names(`${PATHS.quarantine}/${kept}`), ["deep", "link"]);
  assertEquals(modeOf(`${PATHS.quarantine}/${kept}/deep`), "0000");
  assertEquals(Deno.readTextFileSync(secret), "s3cret");
});

Deno.test("disposePoison() leaves a directory beyond the bound where it is, and says so (P21)", () => {
  using _ = new SpoolRoot();
  for (let i = 0; i < MAX_DIRECTORIES; i++) {
    Deno.mkdirSync(`${PATHS.quarantine}/dir.-.${i}.${"0".repeat(32)}`);
  }
  Deno.mkdirSync(entry("d.json/x"), { recursive: true });
  const taken = claim("d.json");
  assertEquals(disposePoison(taken), QUARANTINE_FULL);
  assert(there(`${taken.path}/x`));
  assertEquals(names(PATHS.quarantine).length, MAX_DIRECTORIES);
  // Copies do not count against it, and one place free is enough.
  Deno.removeSync(`${PATHS.quarantine}/dir.-.0.${"0".repeat(32)}`);
  assertEquals(disposePoison(taken), null);
  assertEquals(names(PATHS.claims), []);
});

Deno.test("claim() leaves full directories in the queue when enough stand among the claims (Q5)", () => {
  using _ = new SpoolRoot();
  for (let i = 0; i < MAX_DIRECTORIES; i++) {
    Deno.mkdirSync(`${PATHS.quarantine}/dir.-.${i}.${"0".repeat(32)}`);
  }
  for (let i = 0; i < MAX_STANDING; i++) {
    Deno.mkdirSync(entry("d.json/x"), { recursive: true });
    assertEquals(disposePoison(claim("d.json")), QUARANTINE_FULL);
  }
  const random = "f".repeat(32);
  const again = () => claimEntry(AGENT, "d.json", { arrival_ms: Date.now(), random });
  Deno.mkdirSync(entry("d.json/x"), { recursive: true });
  assertEquals(again(), { kind: "stuck", error: QUARANTINE_FULL });
  assert(there(entry("d.json/x")));
  // After a restart they still count.
  assertEquals(leftoverClaims(AGENT).length, MAX_STANDING);
  assertEquals(again(), { kind: "stuck", error: QUARANTINE_FULL });
  // An empty one needs no room, and files have nothing to do with it.
  Deno.mkdirSync(entry("e.json"));
  assertEquals(disposePoison(claim("e.json")), null);
  put("f.json");
  claim("f.json");
  // Once a person has made room, it goes on.
  for (const name of names(PATHS.claims).slice(0, 500)) {
    Deno.removeSync(`${PATHS.claims}/${name}`, { recursive: true });
  }
  let tries = 0;
  while (again().kind === "stuck") assert(tries++ < MAX_STANDING, "there is room again");
  assert(!there(entry("d.json")));
});

Deno.test("keepCopy() keeps the first 64 KiB of the newest 200 refused files, for the owner only", () => {
  using _ = new SpoolRoot();
  put("a.json", "x".repeat(MAX_COPY_BYTES + 1));
  const taken = claim("a.json");
  assertEquals(keepCopy(taken, null), true);
  const path = `${PATHS.quarantine}/copy.${taken.arrival_ms}.${taken.random}.a`;
  assertEquals(Deno.statSync(path).size, MAX_COPY_BYTES);
  assertEquals(modeOf(path), "0600");
  for (let i = 0; i < MAX_COPIES; i++) {
    const random = i.toString(16).padStart(32, "0");
    const about = { arrival_ms: taken.arrival_ms + 1 + i, random, id: null };
    assert(storeCopy(AGENT, about, new Uint8Array(1), performance.now() + 60_000 + i));
  }
  const copies = names(PATHS.quarantine);
  assertEquals(copies.length, MAX_COPIES);
  assert(!there(path), "the oldest one made room");
});

Deno.test("keepCopy() keeps the first 200 of a minute, and those of the next in place of them (Q5)", () => {
  using _ = new SpoolRoot();
  // Another test's directory may have had the same number: its minutes are over by then.
  const begun = performance.now() + 3_600_000;
  const store = (i: number, after: number) => {
    const random = i.toString(16).padStart(32, "0");
    return storeCopy(AGENT, { arrival_ms: i, random, id: "a" }, new Uint8Array(1), begun + after);
  };
  const kept = () =>
    names(PATHS.quarantine).map((name) => Number(name.split(".")[1])).sort(byValue);
  let stored = 0;
  for (let i = 0; i < 10_000; i++) if (store(i, i)) stored++;
  assertEquals(stored, MAX_COPIES, "of ten thousand in ten seconds");
  assertEquals(kept(), Array.from({ length: MAX_COPIES }, (_, i) => i));
  assertEquals(store(10_000, 60_000), true);
  assertEquals(kept(), [...Array.from({ length: MAX_COPIES - 1 }, (_, i) => i + 1), 10_000]);
});

function byValue(a: number, b: number): number {
  return a - b;
}

Deno.test("keepCopy() throws when there is no place, and the claim is still there", () => {
  using _ = new SpoolRoot();
  put("a.json");
  const taken = claim("a.json");
  Deno.removeSync(agentPaths(AGENT).quarantine);
  assertThrows(() => keepCopy(taken, new Uint8Array(3)));
  assert(there(taken.path));
});
