import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { join } from "@std/path/join";
import { AuditText } from "../src/audit/audit_text.ts";
import { readChain } from "../src/audit/read_chain.ts";
import { LedgerError } from "../src/ledger/ledger_error.ts";
import { type TestBridge, until } from "./helpers/bridge.ts";
import { countedBridge, marking } from "./helpers/counting.ts";
import { newRow, TempState } from "./ledger_fixture.ts";

/** The daemon refuses to start, and says what a human can do. */
async function assertRefused(bridge: TestBridge): Promise<void> {
  const { code, err } = await bridge.chb("serve");
  assertEquals(code, 78, err);
  assertStringIncludes(err, "chb ledger accept-loss");
}

async function accept(bridge: TestBridge): Promise<{ uncertain: string[]; set_aside: unknown }> {
  const args = ["ledger", "accept-loss", "--reason", "a test", "--by", "ann", "--json"];
  const { code, out, err } = await bridge.chb(...args);
  assertEquals(code, 0, err);
  const { uncertain, set_aside } = JSON.parse(out);
  return { uncertain: uncertain.map((one: { id: string }) => one.id), set_aside };
}

async function assertVerified(bridge: TestBridge): Promise<void> {
  const { code, out, err } = await bridge.chb("audit", "verify");
  assertEquals(code, 0, out + err);
}

Deno.test("S8 Q1 a ledger that lost something is refused, and accept-loss runs nothing again", async (t) => {
  await using counted = await countedBridge({
    verbs: {
      work: marking([], { class: "mutating", lock: "one" }),
      hold: marking(["hold"], { class: "mutating", lock: "one", timeout_s: 120 }),
    },
    then: "case $2 in hold) sleep 60;; esac",
    limits: { concurrency: 2, grace_s: 0.3 },
  });
  const { bridge, runs } = counted;
  const db = bridge.path("state/ledger.db");
  const ask = async (id: string, key = id) => {
    bridge.submit(id, { verb: "work", idempotency_key: key });
    return await bridge.final(id);
  };
  /** Sends the same again and waits for the answer; nothing may run for it. */
  const again = async (id: string, key = id) => {
    const before = runs().length;
    bridge.submit(id, { verb: "work", idempotency_key: key });
    const result = await until("the replay", () => {
      const now = bridge.result(id);
      return now?.replays === undefined ? null : now;
    });
    assertEquals(runs().length, before);
    return result;
  };

  await bridge.serve();
  assertEquals((await bridge.chb("ledger", "accept-loss", "--reason", "x")).code, 77);
  await ask("old");
  await bridge.stop();
  assertEquals((await bridge.chb("ledger", "accept-loss", "--reason", "x")).code, 77);
  assertEquals((await bridge.chb("ledger", "accept-loss")).code, 64);
  Deno.copyFileSync(db, `${db}.backup`);

  await t.step("an older ledger", async () => {
    await bridge.serve();
    await ask("new", "k-new");
    await ask("new-2", "k-new");
    bridge.submit("hold", { verb: "hold" });
    await until("the run", () => runs().includes("hold"));
    bridge.submit("wait", { verb: "work" });
    await until("the waiter", () => bridge.result("wait")?.state === "pending");
    await bridge.ask("c", { verb: "bridge.cancel", args: { id: "hold" } });
    assertEquals((await bridge.final("hold")).outcome, "cancelled");
    await bridge.final("wait");
    assertEquals(runs(), ["old", "new", "hold", "wait"]);
    await bridge.stop();
    Deno.copyFileSync(`${db}.backup`, db);

    await assertRefused(bridge);
    const { uncertain, set_aside } = await accept(bridge);
    assertEquals([uncertain.sort(), set_aside], [["hold", "new", "wait"], null]);
    await assertVerified(bridge);
    await bridge.serve();
    const told = await again("new", "k-new");
    assertEquals([told.state, told.code], ["uncertain", 90]);
    assertStringIncludes(told.message ?? "", "finished (ok)");
    assertEquals((await again("new-2", "k-new")).replay_of, "new");
    assertEquals((await again("new-3", "k-new")).state, "uncertain");
    assertEquals((await again("old")).outcome, "succeeded");
    bridge.submit("new", { verb: "hold", idempotency_key: "k-new" });
    const other = await until("the conflict", () => bridge.result("new.refused"));
    assertEquals(other.reason, "key-conflict");
    assertEquals((await ask("fresh")).outcome, "succeeded");

    const retry = await bridge.chb("resolve", "new", "--as", "retry");
    assertEquals(retry.code, 77);
    assertStringIncludes(retry.err, "was lost with the ledger");
    assertEquals((await bridge.chb("resolve", "new", "--as", "done")).code, 0);
    await until("the outcome", () => bridge.result("new-3")?.outcome === "succeeded");
    const record = bridge.audit().find((r) => r["event"] === "accepted-loss");
    assertEquals([record?.["by"], record?.["why"], record?.["requests"]], ["ann", "a test", 3]);
  });

  const gone: [string, () => void][] = [
    ["an empty ledger", () => Deno.truncateSync(db, 0)],
    ["a cut ledger", () => Deno.truncateSync(db, 8192)],
    ["no ledger", () => Deno.removeSync(db)],
  ];
  for (const [name, lose] of gone) {
    await t.step(name, async () => {
      await bridge.stop();
      lose();
      await assertRefused(bridge);
      const { uncertain, set_aside } = await accept(bridge);
      for (const id of ["old", "new", "wait", "fresh"]) assert(uncertain.includes(id), id);
      assertEquals(set_aside === null, name === "no ledger");
      await assertVerified(bridge);
      const trusted = await bridge.chb("trust", "--yes");
      assertEquals(trusted.code, 0, trusted.err);
      await bridge.serve();
      assertEquals((await again("old")).state, "uncertain");
      assertEquals((await again("new-2", "k-new")).state, "uncertain");
    });
  }
  assertEquals(runs(), ["old", "new", "hold", "wait", "fresh"]);
});

Deno.test("readChain() goes through the segments, and stops at the first line that does not hold", () => {
  using state = new TempState();
  const ledger = state.writer();
  const text = new AuditText(state.text);
  text.repair(ledger);
  ledger.afterCommit = (records) => void text.append(records);
  for (let n = 1; n <= 6; n++) {
    ledger.transaction((tx) => tx.append({ event: "human", n }));
    if (n === 2 || n === 4) assert(text.rotate(() => true) !== null);
  }
  assertEquals([...readChain(state.text)].map((r) => r.seq), [1, 2, 3, 4, 5, 6]);
  Deno.writeTextFileSync(state.text, '{"seq":7,"at":', { append: true });
  assertEquals([...readChain(state.text)].length, 6);
  const segment = join(state.dir, "audit", "audit.3-4.jsonl");
  Deno.writeTextFileSync(segment, Deno.readTextFileSync(segment).replace('"n":4', '"n":5'));
  const error = assertThrows(() => [...readChain(state.text)], LedgerError);
  assertEquals([error.kind, error.message.includes("record 4 ")], ["corrupt", true]);
});

Deno.test("Tx.adopt() takes only what follows, and beginAt() only before the first record", () => {
  using one = new TempState();
  using two = new TempState();
  const from = one.writer();
  for (let n = 1; n <= 3; n++) from.transaction((tx) => tx.append({ event: "human", n }));
  const [first, second, third] = from.records(1, 3);
  assert(first !== undefined && second !== undefined && third !== undefined);
  const to = two.writer();
  to.transaction((tx) => {
    tx.beginAt(first);
    assertThrows(() => tx.adopt(third, null), LedgerError);
    tx.adopt(second, "c-2");
    tx.beginAt(third);
    tx.insertRow(newRow("r"));
  });
  assertEquals([to.head()?.seq, to.floor()?.seq, to.removed()?.seq], [2, 1, 1]);
  assertEquals(to.claimSeen("c-2"), { kind: "answer", answer: null });
  to.close();
  assertEquals(two.writer().head()?.hash, second.hash);
});
