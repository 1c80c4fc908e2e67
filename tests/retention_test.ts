/** Retention as an agent and a human see it: a served bridge, its files and its ledger. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { join } from "@std/path/join";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { flood, markText, middle } from "./helpers/flood.ts";
import { SLOW } from "./helpers/round.ts";

const DAY = 24 * 3_600_000;
/**
 * Distinct ids of the flood, a third of each kind: a million with `SLOW=1`, which takes an hour on a
 * machine that has other things to do, and says now and then how far it has come.
 */
const FLOOD = SLOW ? 1_000_000 : 3000;
/** Bytes of a segment of the audit log: small enough that a flood makes several. */
const SEGMENT = SLOW ? 16 * 1024 * 1024 : 65_536;
/** Results above the cap: what comes between two looks of whoever reaps, on a busy machine. */
const LATE = SLOW ? 3000 : 1000;
/** Records that the ledger keeps: the text's, a segment's, and one on its way out; 300 bytes each. */
const RECORDS = 3 * SEGMENT / 300;

/** A bridge whose one verb notes its runs in a file and prints a line; nothing serves it yet. */
async function counting(
  limits: Record<string, unknown> = {},
): Promise<{ bridge: TestBridge; runs: () => number }> {
  const bridge = await TestBridge.make({
    verbs: { count: verb(["base/count.sh"]) },
    scripts: { "count.sh": '#!/bin/sh\necho ran >> "$COUNT_FILE"\necho counted\n' },
    limits: { answers: 1_000_000, ...limits },
    trust: false,
  });
  const count = join(bridge.outside, "count");
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  policy.env = { COUNT_FILE: count };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  const { code, err } = await bridge.chb("trust", "--yes");
  assertEquals(code, 0, err);
  const runs = () => there(count) ? Deno.readTextFileSync(count).trim().split("\n").length : 0;
  return { bridge, runs };
}

/** Makes everything that the ledger knows older; no daemon runs. */
function age(bridge: TestBridge, days: number): void {
  const db = new DatabaseSync(bridge.path("state/ledger.db"));
  try {
    db.prepare("UPDATE hours SET at_ms = at_ms - ?").run(days * DAY);
  } finally {
    db.close();
  }
}

function results(bridge: TestBridge): string[] {
  return Array.from(Deno.readDirSync(bridge.path("spool/main/results")), (e) => e.name).sort();
}

async function reap(bridge: TestBridge): Promise<Record<string, number>> {
  const { code, out, err } = await bridge.chb("reap", "--json", "--by", "a test");
  assertEquals(code, 0, err);
  return JSON.parse(out).removed;
}

Deno.test("a result goes by age, its key stays until ledger_days are over, then it runs again", async () => {
  const { bridge, runs } = await counting();
  await using _ = bridge;
  await bridge.serve();
  const first = await bridge.ask("deploy", { verb: "count" });
  assertEquals([first.outcome, first.stdout?.head, runs()], ["succeeded", "counted\n", 1]);
  await bridge.ask("ping", { verb: "bridge.ping" });
  await bridge.ask("bad", { verb: "no-such-verb" });
  assertEquals(results(bridge), ["bad.json", "deploy.json", "deploy.stdout", "ping.json"]);
  await reap(bridge);
  assertEquals(results(bridge).length, 4, "nothing is old yet");
  await bridge.stop();

  // Eight days later: a start removes what is old, by itself, and publishes nothing of it again.
  age(bridge, 8);
  await bridge.serve();
  await until("old results to go", () => results(bridge).length === 0);
  await bridge.stop();
  await bridge.serve();
  assertEquals(results(bridge), []);
  const replay = await bridge.ask("deploy", { verb: "count" });
  assertEquals([replay.outcome, replay.replays, runs()], ["succeeded", 1, 1]);
  assertEquals(
    [replay.stdout?.head, replay.stdout?.bytes, replay.stdout?.dropped_bytes, replay.stdout?.file],
    ["", 8, 8, null],
  );
  assertMatch(
    replay.hint ?? "",
    /its output is not kept any more\. To run it again, send it under a new id and key/,
  );
  const other = await bridge.ask("deploy-2", { verb: "count", idempotency_key: "deploy" });
  assertEquals([other.replay_of, runs()], ["deploy", 1]);
  await reap(bridge);
  await bridge.stop();

  // The horizon: a replay until then, a new run from then on.
  age(bridge, 91);
  await bridge.serve();
  await until("old results to go", () => results(bridge).length === 0);
  await reap(bridge);
  const again = await bridge.ask("deploy", { verb: "count" });
  assertEquals([again.outcome, again.replays ?? 0, runs()], ["succeeded", 0, 2]);
});

Deno.test("chb reap without a daemon does the same, and every time it is a record", async () => {
  const { bridge } = await counting();
  await using _ = bridge;
  await bridge.serve();
  await bridge.ask("r1", { verb: "count" });
  await bridge.ask("ping", { verb: "bridge.ping" });
  await reap(bridge);
  await bridge.stop();
  age(bridge, 8);
  assertEquals(await reap(bridge), {
    results: 1,
    answers: 1,
    rows: 0,
    notes: 0,
    copies: 0,
    runs: 1,
    policies: 0,
  });
  assertEquals(results(bridge), []);
  const { out } = await bridge.chb("reap");
  assertEquals(out, "nothing to remove\n");
  const said = bridge.audit().filter((r) => r["event"] === "human").map((r) => [
    r["command"],
    r["by"],
  ]);
  assertEquals(said, [["reap", "a test"], ["reap", "a test"], ["reap", ""]]);
});

Deno.test("an uncertain request outlives every age, with its run directory", async () => {
  const { bridge } = await counting();
  await using _ = bridge;
  await bridge.serve();
  await bridge.ask("unsure", { verb: "count" });
  await bridge.ask("sure", { verb: "count" });
  await reap(bridge);
  await bridge.stop();
  const db = new DatabaseSync(bridge.path("state/ledger.db"));
  db.exec(
    "UPDATE rows SET state = 'uncertain', outcome = NULL, pub = 0, " +
      "result = json_set(result, '$.state', 'uncertain', '$.next', 'ask-human', " +
      "'$.reason', 'uncertain', '$.code', 90) WHERE id = 'unsure'",
  );
  db.exec("UPDATE rows SET result = json_remove(result, '$.outcome') WHERE id = 'unsure'");
  const { run } = db.prepare("SELECT run FROM rows WHERE id = 'unsure'").get() as { run: string };
  db.close();
  age(bridge, 100);
  const removed = await reap(bridge);
  assertEquals([removed["rows"], removed["runs"]], [1, 1]);
  await bridge.serve();
  await until("the uncertain result", () => bridge.result("unsure")?.state === "uncertain");
  assert(there(bridge.path("state/runs", run)));
  assertEquals(bridge.result("sure"), null);
});

Deno.test("ids without end leave ledger, results and inbox within their caps", async () => {
  const caps = { results_files: 200, notes: 200, mirror: 8 * 1024 * 1024 };
  const verbs = { count: verb(["/usr/bin/true"]) };
  const agent = { verbs: ["count"], scope: "observe" };
  await using bridge = await TestBridge.make({
    policy: {
      agents: { main: agent, second: agent },
      verbs,
      limits: { concurrency: 2, answers: 1_000_000, results_files: caps.results_files },
      retention: { audit_segment_bytes: SEGMENT },
    },
  });
  await bridge.serve();
  await bridge.ask("replay-1", { verb: "count", idempotency_key: "k" });
  const { marks, waits } = await flood(bridge, {
    ids: FLOOD,
    key: "k",
    verb: "count",
    marks: SLOW ? 50 : 10,
    probes: Math.min(1000, Math.ceil(FLOOD / 100)),
    at(mark) {
      const now = markText(mark);
      if (SLOW) console.error(now);
      assert(mark.results <= caps.results_files + LATE, now);
      assert(mark.answers <= caps.results_files + LATE, now);
      assert(mark.notes <= caps.notes + 48, now);
      assert(mark.mirror <= caps.mirror, now);
      assert(mark.records <= RECORDS + 5000, now);
      assert(mark.log <= 32 * 1024 * 1024, now);
      assert(mark.ledger <= 4 * SEGMENT + 8 * 1024 * 1024, now);
      assert(mark.memory <= 400e6, now);
    },
  });
  if (SLOW) {
    // The heap finds its size in the first tenth, and keeps it.
    const memory = marks.map((mark) => mark.memory);
    const [early, late] = [middle(memory.slice(5, 10)), middle(memory.slice(-5))];
    assert(late < 1.5 * early, `${early} bytes resident early, ${late} late`);
  }
  await until("the results to be within the cap", () => results(bridge).length <= 200, 60_000);
  await sleep(1500);
  const files = results(bridge).length;
  assert(files <= 200 && files > 100, `${files} files`);
  // The end of a flood serves the other agent as the beginning does; generous for a busy machine.
  const tenth = Math.ceil(waits.length / 10);
  const [early, late] = [middle(waits.slice(0, tenth)), middle(waits.slice(-tenth))];
  if (SLOW) console.error(`the other agent waited ${early} ms early, ${late} ms late`);
  assert(late < 3 * early + 2000, `${early} ms early, ${late} ms late`);
  const db = new DatabaseSync(bridge.path("state/ledger.db"), { readOnly: true, timeout: 5000 });
  const count = (sql: string) => Number((db.prepare(sql).get() as { n: number }).n);
  try {
    const records = () => count("SELECT COUNT(*) AS n FROM records");
    await until("older records to leave", () => records() <= RECORDS + 1500, 30_000);
    await bridge.stop();
    assertEquals(count("SELECT COUNT(*) AS n FROM rows WHERE agent = 'main'"), 1);
    assertEquals(count("SELECT COUNT(*) AS n FROM ids WHERE agent = 'main'"), 32);
    assert(count("SELECT COUNT(*) AS n FROM answers") <= 200);
    const shown = count("SELECT SUM(files) AS n FROM rows WHERE pub = 1 AND agent = 'main'") +
      count("SELECT COUNT(*) AS n FROM answers WHERE pub = 1");
    assertEquals(shown, results(bridge).length, "the ledger knows every file");
  } finally {
    db.close();
  }
  const { code, out, err } = await bridge.chb("audit", "verify");
  assertEquals(code, 0, out + err);
});

Deno.test("a start publishes every result that was not published, not the first thousand", async () => {
  const { bridge } = await counting();
  await using _ = bridge;
  await bridge.serve();
  await bridge.ask("r0", { verb: "count" });
  await bridge.stop();
  const db = new DatabaseSync(bridge.path("state/ledger.db"));
  const columns = (db.prepare("SELECT name FROM pragma_table_info('rows')").all() as {
    name: string;
  }[]).map((c) => c.name).filter((name) => name !== "rid");
  const copy = columns.map((name) =>
    ["id", "key", "claim"].includes(name)
      ? `'many-' || value`
      : name === "pub"
      ? "0"
      : name === "result"
      ? `json_set(result, '$.id', 'many-' || value)`
      : name
  );
  db.exec("BEGIN");
  db.exec(
    `INSERT INTO rows (${columns.join(", ")}) SELECT ${copy.join(", ")} FROM rows, ` +
      "(WITH RECURSIVE c(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM c WHERE value < 2500) " +
      "SELECT value FROM c) WHERE rid = 1",
  );
  db.exec("INSERT INTO ids SELECT agent, id, rid, 0 FROM rows WHERE rid > 1");
  db.exec("COMMIT");
  db.close();
  await bridge.serve();
  await until("all of them", () => results(bridge).length >= 2502, 60_000);
  assertEquals((await bridge.ask("new", { verb: "count" })).outcome, "succeeded");
});
