/** The audit log of a served bridge, as a human verifies it and as its agent sees it. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

function segments(bridge: TestBridge): string[] {
  return [...Deno.readDirSync(bridge.path("state/audit"))].map((e) => e.name)
    .filter((name) => name !== "audit.jsonl").sort();
}

function mirror(bridge: TestBridge, agent: string): Record<string, unknown>[] {
  const path = bridge.path("spool", agent, "inbox/audit.jsonl");
  if (!there(path)) return [];
  return Deno.readTextFileSync(path).split("\n").filter((l) => l !== "").map((l) => JSON.parse(l));
}

Deno.test("chb audit: sound while it serves and rotates, each result names its record, damage is named", async () => {
  const policy = {
    agents: { main: { verbs: ["true", "say"], scope: "mutating" } },
    verbs: { "true": verb(["/usr/bin/true"]), "say": verb(["/bin/echo", "x"]) },
    limits: { concurrency: 2, answers: 100_000 },
    retention: { audit_segment_bytes: 65_536 },
  };
  await using bridge = await TestBridge.start({ policy });
  const result = await bridge.ask("first", { verb: "true", note: "why not" });
  const noted = (await bridge.chb("audit", "head")).out.trim();
  assert(/^[0-9]+ [0-9a-f]{64}$/.test(noted), noted);
  for (let n = 0; n < 280; n++) bridge.submit(`p${n}`, { verb: "bridge.ping" });
  for (let n = 0; n < 280; n++) await bridge.final(`p${n}`, 60_000);
  await until("a segment", () => segments(bridge).length > 0, 30_000);
  bridge.submit("late", { verb: "say" });
  await bridge.final("late");

  const live = await bridge.chb("audit", "verify", "--anchor", noted, "--json");
  assertEquals(live.code, 0, live.out + live.err);
  const report = JSON.parse(live.out);
  assertEquals([report.ok, report.first, report.segments, report.rows], [true, 1, 1, 2]);
  assertEquals(report.anchor, Number(noted.split(" ")[0]));
  const words = await bridge.chb("audit", "verify");
  assertStringIncludes(words.out, "sound: records 1 to ");

  const all = [...segments(bridge), "audit.jsonl"].flatMap((name) =>
    Deno.readTextFileSync(bridge.path("state/audit", name)).split("\n").filter((l) => l !== "")
  ).map((line) => JSON.parse(line));
  for (const one of [result, bridge.result("late"), bridge.result("p7")]) {
    const record = all.find((r) => r.seq === one?.audit?.seq);
    assertEquals(record?.hash, one?.audit?.hash, JSON.stringify(one));
    assertEquals([record?.agent, record?.id], ["main", one?.id]);
  }

  const tail = await bridge.chb("audit", "tail", "3", "--json");
  const lines = tail.out.trim().split("\n").map((l) => JSON.parse(l));
  assertEquals(lines.length, 3);
  assertEquals(lines.at(-1).event, "finished");
  const said = await bridge.chb("audit", "tail", "1");
  assertStringIncludes(said.out, "finished main/late");
  // What was escaped when it was recorded is not escaped again, and nothing else gets through.
  bridge.submit("odd", { verb: "say", note: 'a\\b "c" \u001b[2J' });
  await bridge.final("odd");
  const odd = (await bridge.chb("audit", "tail", "3")).out;
  assertStringIncludes(odd, 'note="a\\\\b \\"c\\" \\u001b[2J"');

  // A record in the rotated part is altered: found, named, exit 1.
  const [name] = segments(bridge);
  const path = bridge.path("state/audit", name ?? "");
  const before = Deno.readTextFileSync(path);
  Deno.writeTextFileSync(path, before.replace('"id":"p9"', '"id":"p0"'));
  const damaged = await bridge.chb("audit", "verify");
  const seq = all.find((r) => r.id === "p9")?.seq;
  assertEquals(damaged.code, 1);
  assertStringIncludes(damaged.out, `NOT SOUND: record ${seq} was altered`);
  Deno.writeTextFileSync(path, before);
  const other = await bridge.chb("audit", "verify", "--anchor", "0".repeat(64));
  assertEquals(other.code, 1);
  assertStringIncludes(other.out, "no record has the hash");
  assertEquals((await bridge.chb("audit", "verify", "--anchor", "x")).code, 64);
  assertEquals((await bridge.chb("audit")).code, 64);

  await bridge.stop();
  const rest = await bridge.chb("audit", "verify");
  assertEquals(rest.code, 0, rest.out);
});

Deno.test("what humans do is recorded, and a repair of the text too", async () => {
  await using bridge = await TestBridge.start();
  await bridge.chb("kill", "--reason", "a look", "--by", "ann");
  await bridge.chb("resume", "--by", "ann");
  await bridge.chb("trust", "--yes", "--by", "bob");
  await bridge.stop();
  const path = bridge.path("state/audit/audit.jsonl");
  Deno.writeTextFileSync(path, '{"seq":torn', { append: true });
  await bridge.serve();
  await bridge.stop();
  const events = bridge.audit().map((r) => [r["event"], r["by"] ?? r["what"]].join(" ").trim());
  for (const want of ["killed ann", "resumed ann", "trusted bob", "repaired audit-text"]) {
    assert(events.includes(want), `${want} in ${events.join(", ")}`);
  }
  assertEquals((await bridge.chb("audit", "verify")).code, 0);
});

Deno.test("a text that is changed while the daemon serves is mended, and that is recorded", async () => {
  await using bridge = await TestBridge.start();
  await bridge.ask("a1", { verb: "true" });
  const path = bridge.path("state/audit/audit.jsonl");
  const repairs = () => bridge.audit().filter((r) => r["event"] === "repaired");
  assertEquals(repairs(), []);
  Deno.removeSync(path);
  await bridge.ask("a2", { verb: "true" });
  await until("the first record of it", () => there(path) && repairs().length === 1);
  assertEquals([repairs()[0]?.["what"], repairs()[0]?.["cut_bytes"]], ["audit-text", 0]);
  assert(Number(repairs()[0]?.["appended"]) > 3);
  Deno.writeTextFileSync(path, "not a record", { append: true });
  await bridge.ask("a3", { verb: "true" });
  await until("the second", () => repairs().length === 2);
  assertEquals([repairs()[1]?.["cut_bytes"], repairs()[1]?.["appended"]], [12, 0]);
  assertStringIncludes(bridge.log, "audit-text-repaired");
  assertEquals((await bridge.chb("audit", "verify")).code, 0);
});

Deno.test("a text that could not be written is level again in seconds, though nothing else happens", async () => {
  await using bridge = await TestBridge.start({});
  assertEquals((await bridge.ask("before", { verb: "true" })).outcome, "succeeded");
  const path = bridge.path("state/audit/audit.jsonl");
  const kept = `${path}.kept`;
  // A directory takes no lines, whoever writes them.
  Deno.renameSync(path, kept);
  Deno.mkdirSync(path);
  const { audit } = await bridge.ask("during", { verb: "true" });
  await until("the fault", () => bridge.log.includes("ERROR audit-text"));
  assert(audit !== undefined && !Deno.readTextFileSync(kept).includes(audit.hash));
  Deno.removeSync(path);
  Deno.renameSync(kept, path);
  await until("the last record", () => Deno.readTextFileSync(path).includes(audit.hash));
  await until("no fault", () => bridge.status()?.["state"] === "serving");
  assertEquals((await bridge.chb("audit", "verify")).code, 0);
});

Deno.test("an agent's mirror has its own records, without what is the host's, and masked", async () => {
  const policy = {
    agents: {
      main: { verbs: ["true"], scope: "mutating" },
      other: { verbs: ["true"], scope: "mutating" },
    },
    verbs: { "true": verb(["/usr/bin/true"]) },
    redact: ["do-not-show-this"],
  };
  await using bridge = await TestBridge.start({ policy, agents: ["main", "other"] });
  await bridge.ask("mine", { verb: "true", note: "because do-not-show-this" });
  await bridge.ask("wrong", { verb: "nothing" });
  const temporary = bridge.path("spool/other/queue/.x.tmp");
  Deno.writeTextFileSync(temporary, '{"verb":"true"}');
  Deno.renameSync(temporary, bridge.path("spool/other/queue/theirs.json"));
  await until(
    "both mirrors",
    () =>
      mirror(bridge, "main").some((r) => r["reason"] === "unknown-verb") &&
      mirror(bridge, "other").some((r) => r["event"] === "finished"),
  );
  const own = mirror(bridge, "main");
  assertEquals(own.filter((r) => r["id"] === "mine").map((r) => r["event"]), [
    "accepted",
    "started",
    "finished",
  ]);
  assert(!own.some((r) => r["id"] === "theirs"), "another agent's record");
  assert(mirror(bridge, "other").every((r) => r["id"] === undefined || r["id"] === "theirs"));
  const accepted = own.find((r) => r["event"] === "accepted");
  assertEquals(accepted?.["note"], "because [masked]");
  for (const field of ["claim", "policy", "uid", "run", "prev", "by", "control"]) {
    assert(!own.some((r) => field in r), `${field} is shown`);
  }
  const record = bridge.audit().find((r) => r["seq"] === accepted?.["seq"]);
  assertEquals(record?.["hash"], accepted?.["hash"], "the record can be asked about by its hash");
  // A restart writes it anew from the ledger, each record once.
  await bridge.stop();
  await bridge.serve();
  await bridge.ask("again", { verb: "true" });
  await until("the mirror", () => mirror(bridge, "main").some((r) => r["id"] === "again"));
  const seqs = mirror(bridge, "main").map((r) => Number(r["seq"]));
  assertEquals(seqs, [...new Set(seqs)].sort((a, b) => a - b));
  assertEquals(mirror(bridge, "main").filter((r) => r["id"] === "mine").length, 3);
});

Deno.test({
  name: "audit_gid lets a group read the log, also what is rotated later, and nobody write it" +
    (Deno.uid() === 0 ? "" : " # SKIP needs root"),
  ignore: Deno.uid() !== 0,
  async fn() {
    const policy = {
      agents: { main: { verbs: ["true"], scope: "mutating" } },
      verbs: { "true": verb(["/usr/bin/true"]) },
      limits: { answers: 100_000 },
      retention: { audit_segment_bytes: 65_536 },
      audit_gid: 4321,
    };
    await using bridge = await TestBridge.start({ policy });
    const facts = (path: string) => {
      const { mode, gid } = Deno.statSync(bridge.path(path));
      return [(mode ?? 0) & 0o7777, gid];
    };
    assertEquals(facts("state/audit"), [0o750, 4321]);
    assertEquals(facts("state/audit/audit.jsonl"), [0o640, 4321]);
    for (let n = 0; n < 260; n++) bridge.submit(`p${n}`, { verb: "bridge.ping" });
    await until("a segment", () => segments(bridge).length > 0, 60_000);
    await until("the new text", () => there(bridge.path("state/audit/audit.jsonl")));
    await until("its group", () => facts("state/audit/audit.jsonl")[1] === 4321);
    assertEquals(facts("state/audit/audit.jsonl"), [0o640, 4321]);
    for (const name of segments(bridge)) assertEquals(facts(`state/audit/${name}`), [0o640, 4321]);
    // The layout of such a root is right at the next start too.
    await bridge.stop();
    await bridge.serve();
  },
});
