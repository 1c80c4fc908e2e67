/** The keys of `keys/` as a daemon sees them: what counts, when it is looked at again, and bounds. */
import { assert, assertEquals } from "@std/assert";
import { KeyStore, MAX_KEYS, readKeys } from "../src/daemon/key_store.ts";
import { IS_ROOT, SpoolRoot, testWhen } from "./spool_fixture.ts";

const SECRET = "0123456789abcdef".repeat(2);

function write(file: string, value: unknown, mode = 0o600): void {
  const path = `keys/${file}`;
  Deno.writeTextFileSync(path, typeof value === "string" ? value : JSON.stringify(value));
  Deno.chmodSync(path, mode);
}

const hmac = (agent = "main", more: Record<string, unknown> = {}) => ({
  alg: "hmac-sha256",
  agent,
  secret: SECRET,
  ...more,
});

/** A root with keys/, and a store with a clock that the test moves. */
class Bench implements Disposable {
  readonly root = new SpoolRoot();
  ms = 0;
  readonly store = new KeyStore(() => this.ms);

  constructor() {
    Deno.mkdirSync("keys");
    Deno.chmodSync("keys", 0o700);
  }

  /** The agents of which a key of this name is taken, after the time between two looks. */
  agents(name: string): string[] {
    this.ms += 100;
    return ["main", "other"].filter((agent) => this.store.find(agent, name) !== null);
  }

  [Symbol.dispose](): void {
    this.root[Symbol.dispose]();
  }
}

Deno.test("KeyStore.find() gives a key to its own agent only", () => {
  using bench = new Bench();
  write("k1.json", hmac());
  write("k2.json", hmac("other"), 0o400);
  assertEquals(bench.agents("k1"), ["main"]);
  assertEquals(bench.agents("k2"), ["other"]);
  for (const name of ["k3", "k1.json", "", "../keys/k1", "__proto__"]) {
    assertEquals(bench.agents(name), [], name);
  }
});

Deno.test("KeyStore.find() looks again only after a while, and then sees every change", () => {
  using bench = new Bench();
  const { store } = bench;
  assertEquals(store.find("main", "k1"), null);
  write("k1.json", hmac());
  bench.ms += 99;
  assertEquals(store.find("main", "k1"), null);
  bench.ms += 1;
  const first = store.find("main", "k1");
  assert(first !== null);
  assertEquals(bench.agents("k1"), ["main"]);
  // A file that stayed as it was is not read again.
  assert(store.find("main", "k1") === first);
  // Written over in place, replaced, closed, opened, removed.
  write("k1.json", hmac("other", { note: "n" }));
  assertEquals(bench.agents("k1"), ["other"]);
  write("k2.json", hmac());
  Deno.renameSync("keys/k2.json", "keys/k1.json");
  assertEquals(bench.agents("k1"), ["main"]);
  Deno.chmodSync("keys/k1.json", 0o644);
  assertEquals(bench.agents("k1"), []);
  Deno.chmodSync("keys/k1.json", 0o600);
  assertEquals(bench.agents("k1"), ["main"]);
  Deno.removeSync("keys/k1.json");
  assertEquals(bench.agents("k1"), []);
  Deno.removeSync("keys");
  assertEquals(bench.agents("k1"), []);
});

const UNFIT: readonly (readonly [name: string, make: () => void])[] = [
  ["a mode that lets others read", () => write("k1.json", hmac(), 0o640)],
  ["a mode that lets others write", () => write("k1.json", hmac(), 0o602)],
  ["a mode that runs", () => write("k1.json", hmac(), 0o700)],
  ["a symbolic link", () => {
    Deno.writeTextFileSync("elsewhere", JSON.stringify(hmac()), { mode: 0o600 });
    Deno.symlinkSync("../elsewhere", "keys/k1.json");
  }],
  ["a directory", () => Deno.mkdirSync("keys/k1.json", { mode: 0o600 })],
  [
    "more bytes than a key file has",
    () => write("k1.json", hmac("main", { note: " ".repeat(4096) })),
  ],
  ["no key in it", () => write("k1.json", "{}")],
  ["half a file", () => write("k1.json", JSON.stringify(hmac()).slice(0, 40))],
];

for (const [name, make] of UNFIT) {
  Deno.test(`readKeys() takes no key from a file with ${name}, and says so`, () => {
    using _bench = new Bench();
    make();
    write("k2.json", hmac());
    const { entries, fault } = readKeys();
    assertEquals(fault, null);
    assertEquals([...entries.keys()], ["k1.json", "k2.json"]);
    const entry = entries.get("k1.json");
    assert(entry?.key === null && entry.why !== "" && !entry.why.includes(SECRET.slice(0, 8)));
    // Its neighbour is none the worse for it.
    assert(entries.get("k2.json")?.key?.name === "k2");
  });
}

testWhen(IS_ROOT, "needs root", "readKeys() takes no key that another user owns", () => {
  using _bench = new Bench();
  write("k1.json", hmac());
  Deno.chownSync("keys/k1.json", 1000, 1000);
  assertEquals(readKeys().entries.get("k1.json")?.key, null);
});

Deno.test("readKeys() takes no key out of a directory that others may enter, or that is none", () => {
  using _bench = new Bench();
  write("k1.json", hmac());
  Deno.chmodSync("keys", 0o750);
  assertEquals([readKeys().entries.size, readKeys().fault === null], [0, false]);
  Deno.renameSync("keys", "real");
  Deno.chmodSync("real", 0o700);
  Deno.symlinkSync("real", "keys");
  assertEquals([readKeys().entries.size, readKeys().fault === null], [0, false]);
  Deno.removeSync("keys");
  assertEquals([readKeys().entries.size, readKeys().fault], [0, null]);
});

Deno.test("readKeys() takes as many keys as its bound, and none beyond it", () => {
  using _bench = new Bench();
  for (let i = 0; i < MAX_KEYS; i++) write(`k${i}.json`, hmac());
  assertEquals([...readKeys().entries.values()].filter(({ key }) => key !== null).length, MAX_KEYS);
  write("one-more.json", hmac());
  assertEquals([readKeys().entries.size, readKeys().fault === null], [0, false]);
});

Deno.test("KeyStore tells of each change once, by names", () => {
  using bench = new Bench();
  const { store } = bench;
  const told = () => {
    bench.ms += 100;
    store.refresh();
    return store.takeChanges();
  };
  assertEquals(told(), { keys: [], faults: [] });
  assertEquals(told(), null);
  write("k1.json", hmac());
  write("k2.json", "{}");
  const changes = told();
  assertEquals(changes?.keys, ["k1"]);
  assertEquals(changes?.faults.map(({ file }) => file), ["keys/k2.json"]);
  assertEquals(told(), null);
  // Another key of the same name is a change.
  write("k1.json", hmac("main", { note: "another" }));
  assertEquals(told()?.keys, ["k1"]);
});
