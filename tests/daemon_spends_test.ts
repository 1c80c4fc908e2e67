/** How the account of a request is closed that ends without a report. */
import { assert, assertEquals } from "@std/assert";
import { closeSpend } from "../src/daemon/spends.ts";
import type { Spend } from "../src/ledger/spends.ts";
import { newRow, TempState } from "./ledger_fixture.ts";

Deno.test("closeSpend() charges what was reserved, frees what was held, and leaves nothing open", () => {
  using state = new TempState();
  const ledger = state.writer();
  const at = { agent: "main", charged: 3n };
  const rids = ledger.transaction((tx) => {
    const put = (id: string, spend: Spend) => {
      const rid = tx.insertRow(newRow(id));
      tx.putSpend(rid, spend);
      return rid;
    };
    return [
      put("reserved", { ...at, state: "reserved", day: 20_000, granted: 5n }),
      put("held", { ...at, state: "held", day: null, granted: 5n }),
      put("ended", { ...at, state: "charged", day: 20_000, granted: 5n }),
    ];
  });
  const [reserved, held, ended] = rids;
  assert(reserved !== undefined && held !== undefined && ended !== undefined);
  assertEquals(ledger.openSpends().toSorted(), [reserved, held]);
  ledger.transaction((tx) => rids.forEach((rid) => closeSpend(tx, rid)));
  assertEquals(ledger.openSpends(), []);
  assertEquals([ledger.heldSpend("main"), ledger.spend(reserved)?.charged], [0n, 8n]);
  assertEquals([ledger.spend(held)?.charged, ledger.spend(ended)?.charged], [3n, 3n]);
  // Closed twice is closed once.
  ledger.transaction((tx) => closeSpend(tx, reserved));
  assertEquals(ledger.spend(reserved)?.charged, 8n);
});
