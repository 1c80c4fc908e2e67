/**
 * Runs that end together share a commit: of what several shims have said, the ledger's log shows fewer
 * commits than runs.
 *
 * @module
 */
import { assertEquals, assertLess } from "@std/assert";
import { there, until } from "./helpers/bridge.ts";
import { countedBridge, marking, UNTIL_GO } from "./helpers/counting.ts";

/** Bytes of the header of SQLite's log, and of each frame's header before its page. */
const LOG_HEADER = 32;
const FRAME_HEADER = 24;

/** How many commits the log beside a database holds since it was begun: frames that end one. */
function commits(path: string): number {
  const bytes = Deno.readFileSync(path);
  const view = new DataView(bytes.buffer);
  const size = FRAME_HEADER + view.getUint32(8);
  // Frames of an earlier round have other salts.
  const salt = view.getBigUint64(16);
  let count = 0;
  for (let at = LOG_HEADER; at + size <= bytes.length; at += size) {
    if (view.getBigUint64(at + 8) !== salt) break;
    if (view.getUint32(at + 4) !== 0) count++;
  }
  return count;
}

Deno.test("runs that end while others run share a commit", async () => {
  const RUNS = 6;
  await using c = await countedBridge({
    verbs: { look: marking() },
    then: UNTIL_GO,
    limits: { concurrency: RUNS },
  });
  const { bridge } = c;
  await bridge.serve();
  const ids = Array.from({ length: RUNS }, (_, n) => `r${n}`);
  for (const id of ids) bridge.submit(id, { verb: "look" });
  await until("all runs", () => ids.every((id) => bridge.result(id)?.state === "running"));
  const log = bridge.path("state/ledger.db-wal");
  Deno.kill(bridge.pid, "SIGSTOP");
  const before = commits(log);
  try {
    c.go();
    // All have been told of when the daemon goes on.
    await until("all ends", () => {
      const runs = [...Deno.readDirSync(bridge.path("state/runs"))];
      return runs.length === RUNS &&
        runs.every(({ name }) => there(bridge.path("state/runs", name, "exit.json")));
    });
  } finally {
    Deno.kill(bridge.pid, "SIGCONT");
  }
  for (const id of ids) assertEquals((await bridge.final(id)).outcome, "succeeded");
  const made = commits(log) - before;
  console.log(`${made} commits for ${RUNS} ends`);
  assertLess(made, RUNS);
  assertEquals(c.runs().toSorted(), ids);
});
