/** Retention as an agent and a human see it: a served bridge, its files and its ledger. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { join } from "@std/path/join";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";

const DAY = 24 * 3_600_000;
const FLOOD = Deno.env.get("SLOW") === undefined ? 1500 : 1_000_000;

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
  const { bridge } = await counting({ results_files: 200 });
  await using _ = bridge;
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  policy.agents.second = policy.agents.main;
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  await bridge.serve();
  /** Another agent asks in the middle of the flood and has its answer before that has gone. */
  const waits: number[] = [];
  const second = async (id: string) => {
    const begun = performance.now();
    Deno.writeTextFileSync(bridge.path(`spool/second/queue/${id}.json`), '{"verb":"count"}');
    const result = bridge.path(`spool/second/results/${id}.json`);
    await until(
      `the other agent's ${id}`,
      () => there(result) && Deno.readTextFileSync(result).includes('"succeeded"'),
      60_000,
    );
    waits.push(performance.now() - begun);
  };
  await bridge.ask("kept", { verb: "count", idempotency_key: "k" });
  const kinds: readonly [string, () => string][] = [
    ["ping", () => '{"verb":"bridge.ping"}'],
    ["empty", () => "{}"],
    // The row takes 32 ids; whoever comes after that is refused, and replays go on under those.
    ["replay", () => '{"verb":"count","idempotency_key":"k"}'],
  ];
  let most = 0;
  for (let n = 0; n < FLOOD; n++) {
    const [name, text] = kinds[n % kinds.length] ?? ["", () => ""];
    bridge.submitText(n % 7 === 0 ? `${name}-${n % 20}` : `${name}-${n}`, text());
    // Without a usable name: a note in the inbox.
    if (n % 10 === 0) Deno.writeTextFileSync(bridge.queue(`Bad ${n}.json`), "{}");
    if (n % 500 === 499) {
      await second(`s-${n}`);
      await until("the queue to be drained", () => bridge.queued().length === 0, 120_000);
      most = Math.max(most, results(bridge).length);
    }
  }
  await until("the queue to be drained", () => bridge.queued().length === 0, 120_000);
  await until("the results to be within the cap", () => results(bridge).length <= 200, 60_000);
  await sleep(1500);
  const files = results(bridge).length;
  assert(files <= 200 && files > 100, `${files} files`);
  assert(most <= 200 + 1500, `${most} files at the most`);
  assert([...Deno.readDirSync(bridge.path("spool/main/inbox/refused"))].length <= 200);
  assert(Deno.statSync(bridge.path("spool/main/inbox/audit.jsonl")).size <= 8 * 1024 * 1024);
  // The end of a flood serves the other agent as the beginning does; generous for a busy machine.
  const half = waits.length >> 1;
  const middle = (some: number[]) => some.sort((a, b) => a - b)[some.length >> 1] ?? 0;
  const [early, late] = [middle(waits.slice(0, half + 1)), middle(waits.slice(half))];
  assert(late < 10 * early + 5000, `${early} ms early, ${late} ms late`);
  await bridge.stop();
  const db = new DatabaseSync(bridge.path("state/ledger.db"), { readOnly: true });
  const count = (sql: string) => Number((db.prepare(sql).get() as { n: number }).n);
  try {
    assertEquals(count("SELECT COUNT(*) AS n FROM rows WHERE agent = 'main'"), 1);
    assert(count("SELECT COUNT(*) AS n FROM ids WHERE agent = 'main'") <= 32);
    assert(count("SELECT COUNT(*) AS n FROM answers") <= 200);
    const shown = count("SELECT SUM(files) AS n FROM rows WHERE pub = 1 AND agent = 'main'") +
      count("SELECT COUNT(*) AS n FROM answers WHERE pub = 1");
    assertEquals(shown, results(bridge).length, "the ledger knows every file");
  } finally {
    db.close();
  }
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
