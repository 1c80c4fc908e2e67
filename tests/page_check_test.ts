/** What a start does about a big ledger after a crash, from outside. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { Ledger } from "../src/ledger/ledger.ts";
import { TestBridge, until } from "./helpers/bridge.ts";
import { newRow } from "./ledger_fixture.ts";

/** Adds more than the pages that every start reads, about 20 MiB. */
function fill(bridge: TestBridge): void {
  using ledger = Ledger.open(bridge.path("state/ledger.db"), { now: Date.now, mode: "writer" });
  ledger.transaction((tx) => {
    for (let n = 0; n < 2500; n++) {
      const rid = tx.insertRow(newRow(`big${n}`, { state: "done", note: "x".repeat(8000) }));
      tx.updateRow(rid, { pub: 2 });
    }
  });
}

/** Overwrites pages from the middle of the file on, where those rows lie. */
function damage(bridge: TestBridge): void {
  const path = bridge.path("state/ledger.db");
  const { size } = Deno.statSync(path);
  using file = Deno.openSync(path, { write: true });
  for (let page = Math.floor(size / 8192); page < size / 4096 - 200; page += 97) {
    file.seekSync(page * 4096, Deno.SeekMode.Start);
    file.writeSync(new Uint8Array(4096).fill(0xa5));
  }
}

Deno.test("S8 after a crash a big ledger serves at once, is read whole beside, and then is clean", async () => {
  await using bridge = await TestBridge.make();
  fill(bridge);
  await bridge.serve();
  assert(!bridge.log.includes("page-check"), "it was closed");
  await bridge.stop("SIGKILL");
  await bridge.serve();
  assertEquals((await bridge.ask("a", { verb: "true" })).outcome, "succeeded");
  await until("the pages to be read", () => bridge.log.includes("all of them hold together"));
  assertEquals((await bridge.ask("b", { verb: "true" })).outcome, "succeeded");
  assertEquals(await bridge.stop(), 0);
  await bridge.serve();
  assert(!bridge.log.includes("page-check"));
});

Deno.test("S8 damage that is found beside the service ends it, and no start gets past it", async () => {
  await using bridge = await TestBridge.make();
  fill(bridge);
  await bridge.serve();
  await bridge.stop("SIGKILL");
  damage(bridge);
  await bridge.serve();
  await until("the service to end", () => bridge.log.includes("ERROR fatal"));
  assertMatch(bridge.log, /do not hold together/);
  assert(await bridge.stop() !== 0);
  const again = await bridge.serve().then(() => "served", (error: Error) => error.message);
  assertMatch(again, /The daemon left:[^]*its pages do not hold together/);
  assertEquals(await bridge.stop(), 78);
});
