/**
 * A ledger that is locked, truncated, replaced, rolled back or deleted while the bridge serves. No
 * key is started twice. What passes is waited for; what cannot be believed any more ends the service
 * with a status that says why, and the next start refuses until a human has looked (S8, S9, Q1).
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { assertAgreement } from "./helpers/agreement.ts";
import { type TestBridge, until, verb } from "./helpers/bridge.ts";
import { type Counted, countedBridge } from "./helpers/counting.ts";
import { doctorNames } from "./helpers/doctor.ts";
import { lives } from "./helpers/tracer.ts";

const MARK = ["base/mark.sh", "{idempotency_key}"];

async function bridgeWith(): Promise<Counted> {
  return await countedBridge({
    verbs: { look: verb(MARK), change: verb(MARK, { class: "mutating" }) },
  });
}

Deno.test("S9 a ledger that somebody locks is waited for, and nothing is lost or run twice", async () => {
  await using c = await bridgeWith();
  const { bridge } = c;
  await bridge.serve();
  await bridge.ask("before", { verb: "change" });
  const other = new DatabaseSync(bridge.path("state/ledger.db"), { timeout: 10_000 });
  try {
    other.exec("BEGIN IMMEDIATE");
    bridge.submit("meanwhile", { verb: "change" });
    await until("a status that says so", () => {
      const status = bridge.status();
      return status?.["state"] === "degraded" && /BUSY/.test(String(status["why"]));
    }, 60_000);
    assertEquals(c.runs(), ["before"], "no intent, no start");
    await doctorNames(bridge, /^error: spool\/main: .*BUSY/m);
    assert(lives(bridge.pid), "the daemon lives");
  } finally {
    other.exec("ROLLBACK");
    other.close();
  }
  assertEquals((await bridge.final("meanwhile", 60_000)).outcome, "succeeded");
  await assertAgreement(bridge, {
    ids: ["before", "meanwhile"],
    starts: c.runs(),
    mayBeUncertain: () => false,
  });
  await until("a status without a fault", () => bridge.status()?.["state"] === "serving", 30_000);
});

/** Files of the ledger that are there. */
const FILES = ["ledger.db", "ledger.db-wal", "ledger.db-shm"];

function copyLedger(bridge: TestBridge, to: string): void {
  Deno.mkdirSync(to);
  for (const name of FILES) {
    try {
      Deno.copyFileSync(bridge.path("state", name), `${to}/${name}`);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
}

/**
 * What is done to the ledger of a daemon that runs. `old` holds a copy from before the last run. Where
 * the log beside it still has every commit, nothing is missing, and the next start serves.
 */
const DAMAGE: readonly (readonly [
  what: string,
  damage: (bridge: TestBridge, old: string) => void,
  whole?: boolean,
])[] = [
  ["deleted", (bridge) => Deno.removeSync(bridge.path("state/ledger.db"))],
  ["deleted with its log", (bridge) => {
    for (const name of FILES) Deno.removeSync(bridge.path("state", name));
  }],
  ["replaced by an older copy", (bridge, old) => {
    Deno.copyFileSync(`${old}/ledger.db`, bridge.path("state/ledger.new"));
    Deno.renameSync(bridge.path("state/ledger.new"), bridge.path("state/ledger.db"));
  }, true],
  ["rolled back in place with its log", (bridge, old) => {
    for (const name of FILES) Deno.copyFileSync(`${old}/${name}`, bridge.path("state", name));
  }],
  ["truncated", (bridge) => Deno.truncateSync(bridge.path("state/ledger.db"), 0)],
  ["cut in its log", (bridge) => Deno.truncateSync(bridge.path("state/ledger.db-wal"), 0)],
];

for (const [what, damage, whole = false] of DAMAGE) {
  Deno.test(`S8 Q1 situation 6: a ledger that is ${what} while the bridge serves is never believed`, async () => {
    await using c = await bridgeWith();
    const { bridge } = c;
    await bridge.serve();
    await bridge.ask("one", { verb: "change" });
    const old = `${bridge.outside}/old`;
    copyLedger(bridge, old);
    await bridge.ask("two", { verb: "change" });
    damage(bridge, old);
    // The same requests again, as an agent that asks again would send them, and a fresh one.
    for (const id of ["one", "two", "three"]) bridge.submit(id, { verb: "change" });
    await until("the end of the service", () => !lives(bridge.pid), 30_000);
    const status = bridge.status();
    assertEquals(status?.["state"], "stopped");
    assertMatch(String(status?.["why"]), /ended with a fault: .*ledger/i);
    assert(await bridge.stop() !== 0, "giving up is told");
    await doctorNames(
      bridge,
      whole ? /No daemon serves here: .*ledger/i : /^error: state\/ledger.db: /m,
    );
    // Who starts it again is refused, as often as it is tried, and nothing runs.
    for (let tries = 0; tries < 2; tries++) {
      const { code, err } = await bridge.chb("once");
      assertEquals(code, whole ? 0 : 78, err);
      if (!whole) assertMatch(err, /ledger/i);
    }
    if (whole) assertEquals(c.runs(), ["one", "two", "three"]);
    const runs = c.runs();
    assertEquals(new Set(runs).size, runs.length, `no key twice: ${runs}`);
  });
}
