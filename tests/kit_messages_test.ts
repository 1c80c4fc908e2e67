/**
 * Messages both ways: from people and from running commands to an agent, and its replies.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { schemas } from "../src/policy/schema.ts";
import { validate } from "./json_schema.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

interface Shown {
  readonly n: number;
  readonly from: string;
  readonly text: string;
  readonly ask: boolean;
  readonly reply_by: string | null;
  readonly replied: boolean;
}

function message(bridge: TestBridge, n: number): Shown | null {
  const path = bridge.path(`spool/main/inbox/messages/${n}.json`);
  if (!there(path)) return null;
  const value = JSON.parse(Deno.readTextFileSync(path));
  assertEquals(validate(schemas().message, value), []);
  return value;
}

const reply = (n: unknown, text: unknown) => ({ verb: "bridge.reply", args: { n, text } });

Deno.test("a person tells, asks, and reads the reply; the first reply counts", async () => {
  await using bridge = await TestBridge.start();
  assertEquals(bridge.status()?.["messages"], { newest: 0, asking: 0 });
  const told = await bridge.chb("tell", "Deploys are frozen.\nUntil noon.", "--by", "ann");
  assertEquals(told.code, 0, told.err);
  const first = await until("message 1", () => message(bridge, 1));
  assertEquals([first.from, first.text, first.ask], [
    "ann",
    "Deploys are frozen.\nUntil noon.",
    false,
  ]);

  const asked = await bridge.chb("tell", "May db be away?", "--ask", "--within", "3600", "--json");
  assertEquals(JSON.parse(asked.out), { ok: true, agent: "main", n: 2, published: true });
  const question = await until("message 2", () => message(bridge, 2));
  assert(question.ask && question.reply_by !== null && !question.replied);
  await until("the status to say so", () => {
    const { asking } = bridge.status()?.["messages"] as { asking: number };
    return asking === 1;
  });
  const early = await bridge.chb("replies", "2", "--wait", "0.2");
  assertEquals(early.code, 75, early.out);

  const answer = "yes,\n\u001b[31mafter\u202e the tests é";
  assertEquals((await bridge.ask("a1", reply(2, answer))).code, 0);
  assertEquals(message(bridge, 2)?.replied, true);
  const shown = await bridge.chb("replies");
  assertEquals(shown.code, 0);
  assertStringIncludes(shown.out, "  main replied:\n  | yes,\n  |  [31mafter  the tests ");
  assert(
    !shown.out.includes("\u001b") && !shown.out.includes("\u202e"),
    "controls reach the terminal",
  );
  const one = JSON.parse((await bridge.chb("replies", "2", "--wait", "5", "--json")).out);
  assertEquals(one.messages[0].reply, "yes,\n [31mafter  the tests é");

  // The same reply again is the same; another one is not taken.
  assertEquals((await bridge.ask("a2", reply(2, answer))).code, 0);
  assertEquals((await bridge.ask("a3", reply(2, "no"))).reason, "key-conflict");
  for (
    const [id, args] of Object.entries({
      b1: reply(3, "x"),
      b2: reply(0, "x"),
      b3: reply("2", "x"),
      b4: reply(1.5, "x"),
      b5: reply(2, ""),
      b6: reply(2, "x".repeat(4097)),
      b7: reply(2, 5),
      b8: { verb: "bridge.reply", args: { n: 2, text: "x", more: 1 } },
      b9: { verb: "bridge.reply" },
    })
  ) assertEquals((await bridge.ask(id, args)).reason, "bad-args", id);
  const events = bridge.audit().filter(({ event }) => event === "told");
  assertEquals(events.map(({ n, ask }) => [n, ask]), [[1, false], [2, true]]);
});

Deno.test("a question whose time is over takes no reply; what is told while nobody serves arrives", async () => {
  await using bridge = await TestBridge.start();
  const asked = await bridge.chb("tell", "Quick?", "--ask", "--within", "0.05");
  assertEquals(asked.code, 0, asked.err);
  await until("message 1", () => message(bridge, 1));
  await new Promise((resolve) => setTimeout(resolve, 100));
  assertEquals((await bridge.ask("late", reply(1, "yes"))).reason, "expired");
  assertStringIncludes((await bridge.chb("replies")).out, "nobody answered in time");

  await bridge.stop();
  const offline = await bridge.chb("tell", "Back soon");
  assertEquals(offline.code, 0, offline.err);
  assertStringIncludes(offline.out, "when the bridge serves");
  assertEquals(message(bridge, 2), null);
  await bridge.serve();
  assertEquals(message(bridge, 2)?.text, "Back soon");
  for (
    const [args, text] of [
      [["tell"], "say what"],
      [["tell", "x", "--agent", "nobody"], "there is no agent nobody"],
      [["tell", "x", "--within", "soon"], "--within takes seconds"],
      [["tell", "x".repeat(4097)], "longer than"],
      [["replies", "x"], "named by its number"],
    ] as [string[], string][]
  ) {
    const said = await bridge.chb(...args);
    assertEquals(said.code, 64, args.join(" ").slice(0, 40));
    assertStringIncludes(said.err, text);
  }
});

/** Asks the agent, waits for its answer as long as it said, and prints it. */
const ASKER = `#!/bin/sh
cd "$CHB_MESSAGES" || exit 9
echo '{"text":"token ghp_0123456789abcdefghijABCDEFGHIJ012345","ask":false}' > t.tmp; mv t.tmp t.json
echo '{"text":7}' > bad.tmp; mv bad.tmp bad.json
ln -s /etc/hostname link.json
printf '{"text":"Migrate %s tables?","ask":true,"wait_s":%s}' 12 "$1" > q1.tmp; mv q1.tmp q1.json
i=0
until [ -e q1.reply ]; do
  [ $i -lt $(($1 * 10)) ] || { echo nobody; exit 3; }
  i=$((i+1)); sleep 0.1
done
cat q1.reply bad.error link.error
`;

Deno.test("what a command does to its directory of messages harms nobody", async () => {
  const script = (text: string) => `#!/bin/sh\ncd "$CHB_MESSAGES" || exit 9\n${text}`;
  await using bridge = await TestBridge.start({
    scripts: {
      "away.sh": script('rm -r "$CHB_MESSAGES"; ln -s "$BAIT" "$CHB_MESSAGES"; sleep 2\n'),
      "many.sh": script(
        'i=0; while [ $i -lt 150 ]; do echo \'{"text":"x"}\' > .$i; i=$((i+1)); done\n' +
          "i=0; while [ $i -lt 150 ]; do mv .$i $i.json; i=$((i+1)); done\n" +
          "until [ $(ls | grep -c 'error$') -ge 50 ]; do sleep 0.1; done\n",
      ),
      "full.sh": script(
        'mkdir -p a.json/in plain/in; echo \'{"text":"behind it"}\' > .z; mv .z z.json\n' +
          "until [ -e a.error ] && [ ! -e z.json ]; do sleep 0.1; done\n",
      ),
    },
    verbs: Object.fromEntries(["away", "many", "full"].map((name) => [
      name,
      verb([`base/${name}.sh`], { class: "mutating", timeout_s: 60, messages: true }),
    ])),
    programs: ["base/away.sh", "base/many.sh", "base/full.sh"],
    trust: false,
  });
  const bait = join(bridge.outside, "bait");
  Deno.mkdirSync(bait);
  for (const name of ["a", "b.json"]) {
    Deno.writeTextFileSync(join(bait, name), '{"text":"of the host"}');
  }
  const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
  policy.env = { PATH: "/usr/bin:/bin", BAIT: bait };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  const directory = join(bridge.root, "state/messages");
  const cleared = () =>
    until("the directories to be gone", () => {
      return there(directory) && [...Deno.readDirSync(directory)].length === 0;
    });
  bridge.submit("r1", { verb: "away" });
  assertEquals((await bridge.final("r1", 40_000)).code, 0);
  await cleared();
  assertEquals([...Deno.readDirSync(bait)].length, 2, "the host's files were removed");
  assertEquals(message(bridge, 1), null);
  // Its bound holds however fast they come, so it does not push out what others said.
  bridge.submit("r2", { verb: "many" });
  assertEquals((await bridge.final("r2", 40_000)).code, 0);
  await cleared();
  assert(message(bridge, 100) !== null);
  assertEquals(message(bridge, 101), null);
  // A directory where a message should be, and one beside it: the next message arrives all the same.
  bridge.submit("r3", { verb: "full" });
  assertEquals((await bridge.final("r3", 40_000)).code, 0);
  await until("the log", () => bridge.log.includes("run-messages-left"));
  assertEquals([...Deno.readDirSync(directory)].map((e) => e.name), [".left"]);
  assertEquals(message(bridge, 101)?.["text"], "behind it");
});

Deno.test("a running command asks the agent and waits for the answer, with a deadline", async () => {
  await using bridge = await TestBridge.start({
    scripts: { "asker.sh": ASKER },
    verbs: {
      asker: verb(["base/asker.sh", "{s}"], {
        class: "mutating",
        timeout_s: 60,
        messages: true,
        env: { PATH: "/usr/bin:/bin" },
        args: { s: { type: "integer", min: 1, max: 50 } },
      }),
    },
  });
  bridge.submit("r1", { verb: "asker", args: { s: 30 } });
  // A line and a question, in the order in which they were found.
  const one = (ask: boolean, ...numbers: number[]) =>
    until(
      ask ? "the question" : "the line",
      () => numbers.map((n) => message(bridge, n)).find((m) => m?.ask === ask),
    );
  const [question, line] = [await one(true, 1, 2), await one(false, 1, 2)];
  assertEquals(question.text, "Migrate 12 tables?");
  assertEquals(question.from, "the command of request r1");
  // What it says is masked like its output.
  assert(line.text.startsWith("token "), line.text);
  assert(!line.text.includes("ghp_0123456789"), "a credential is shown");
  assertEquals((await bridge.ask("a1", reply(question.n, "yes, all 12"))).code, 0);
  const done = await bridge.final("r1", 40_000);
  assertEquals([done.code, done.stdout?.head], [
    0,
    "yes, all 12\ntext is no text\nit is no plain file\n",
  ], JSON.stringify(done));
  assertEquals(message(bridge, 3), null);

  // Nobody answers: the command goes its own way, and later replies are told so.
  bridge.submit("r2", { verb: "asker", args: { s: 1 } });
  const ended = await bridge.final("r2", 40_000);
  assertEquals([ended.exit_code, ended.stdout?.head], [3, "nobody\n"]);
  const open = await one(true, 3, 4);
  assertEquals((await bridge.ask("a2", reply(open.n, "yes"))).reason, "expired");
  await until("the directories to be gone", () => {
    const directory = join(bridge.root, "state/messages");
    return [...Deno.readDirSync(directory)].length === 0;
  });
});
