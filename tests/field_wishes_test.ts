/**
 * What people asked for, or complained about, in systems that do a related job, as far as it is about
 * finding out, progress and time limits, and output: each is answered by a test that is named here, by
 * a sentence of the guide, or by the test below. The numbers are those of the reports in our list of
 * them; 21 to 35 are in `field_reports_test.ts`.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { TestBridge, until, verb } from "./helpers/bridge.ts";
import { runKit, Sandboxes } from "./helpers/sandbox.ts";

const HERE = "field_wishes_test.ts";

interface Wish {
  readonly n: number;
  readonly wish: string;
  /** File and name of a test that answers it, or the beginning of the name. */
  readonly tests?: readonly (readonly [file: string, name: string])[];
  /** Sentences of the guide that answer it. */
  readonly guide?: readonly string[];
}

const LIVE = "what an agent is told while it asks, waits and reads";

const WISHES: readonly Wish[] = [
  {
    n: 36,
    wish: "find out in one read what the host can do",
    tests: [
      ["kit_flow_test.ts", "every example of the catalogue is a request that is taken"],
      ["new_user_test.ts", "a newcomer with busybox and nothing else gets along"],
    ],
    guide: ["lists every verb that you may ask for", "nothing has to be tried out"],
  },
  {
    n: 37,
    wish: "an unknown name is answered with those that there are",
    tests: [[HERE, LIVE], ["policy_suggest_test.ts", "suggest() "]],
    guide: ["The same line will be refused again, however often"],
  },
  {
    n: 38,
    wish: "failures that the sandbox causes say so beforehand",
    tests: [["kit_flow_test.ts", "stand-ins ask for the verb of the policy, and say what"]],
    guide: ["There is no `docker` here, and installing one would not help"],
  },
  {
    n: 39,
    wish: "something that is missing on either side does not fail in silence",
    tests: [
      ["kit_values_test.ts", "without a tool that it needs the helper says so"],
      ["shim_test.ts", "shim says spawn_failed when a command cannot be started"],
      ["attacks_run_test.ts", "X8 no program without content or format can be trusted at all"],
    ],
  },
  {
    n: 40,
    wish: "wait once instead of looking again and again",
    tests: [["kit_flow_test.ts", "one waiting call ends with the result, not with its own limit"]],
    guide: ["Do not poll in a loop: one waiting call does it"],
  },
  {
    n: 41,
    wish: "one wait that blocks, with a time limit",
    tests: [["kit_flow_test.ts", "one waiting call ends with the result, not with its own limit"]],
    guide: ["`--wait 600` waits for\nten minutes"],
  },
  {
    n: 42,
    wish: "nobody's answer is not a no",
    tests: [["approval_test.ts", "what waits for a word survives restarts, joins, and lapses"]],
    guide: ["nobody answered in time (83) is not a no"],
  },
  {
    n: 43,
    wish: "an approval does not carry over when something changed",
    tests: [["approval_test.ts", "situation 10: what was approved and has changed since does not"]],
  },
  {
    n: 44,
    wish: "what waits for a word is brought to a person",
    tests: [
      ["notify_test.ts", "a human is told of what waits for a word and of a kill switch"],
      [HERE, LIVE],
    ],
    guide: ["Tell them; `--plan` is shown\nto them"],
  },
  {
    n: 45,
    wish: "calls that end at 60 s although the work goes on",
    tests: [["kit_mcp_test.ts", "a long verb under a client's limit: started once, found again"]],
    guide: ["waits in one call for at most 50 s, less than the limit of most tools"],
  },
  {
    n: 46,
    wish: "who gave up and asks again does not repeat it",
    tests: [
      ["kit_flow_test.ts", "in every shell: look, ask, follow, cancel, and find work again"],
      ["kit_mcp_test.ts", "who gives up waiting leaves it running, who cancels ends it"],
    ],
    guide: ["Were you interrupted, killed, or cut off by a time limit: run the same line again"],
  },
  {
    n: 47,
    wish: "limits that are told, output that is kept, and no success that was none",
    tests: [[HERE, LIVE]],
    guide: ["how long it may take", "2 with `timed-out`"],
  },
  {
    n: 48,
    wish: "a command that has ended but for descriptors that somebody inherited",
    tests: [
      ["attacks_run_test.ts", "X11 situation 8: a result does not wait for who holds the pipe"],
      ["attacks_run_test.ts", "X12 situation 8: nor for one that has left the group"],
    ],
  },
  {
    n: 49,
    wish: "completion follows the exit",
    tests: [[
      "shim_endings_test.ts",
      "shim does not wait for a background child that holds the pipes",
    ]],
    guide: ["left something running that held its output open: the exit code counts"],
  },
  {
    n: 50,
    wish: "much output does not make the command hang",
    tests: [
      ["attacks_run_test.ts", "X13 both streams may flood at once"],
      ["attacks_run_test.ts", "X13 situation 9: a million short lines are counted to the byte"],
    ],
  },
  {
    n: 51,
    wish: "who follows is not cut off while nothing is printed",
    tests: [
      [HERE, LIVE],
      ["kit_mcp_test.ts", "a long verb under a client's limit: started once, found again"],
    ],
  },
  {
    n: 52,
    wish: "progress displays are handed on and not understood",
    tests: [[HERE, LIVE], ["shim_endings_test.ts", "shim keeps output as it came: no decoding"]],
  },
  {
    n: 60,
    wish: "both ends in the answer, all of it in a file",
    tests: [["kit_flow_test.ts", "long output: both ends, where the rest is, and all of it"]],
    guide: ["the end is often what matters"],
  },
  {
    n: 61,
    wish: "a mark where something was left out that says what to do",
    tests: [["kit_flow_test.ts", "long output: both ends, where the rest is, and all of it"]],
    guide: ["look into it with `grep` and `tail`"],
  },
  {
    n: 62,
    wish: "the file that is named can be read where its name is told",
    tests: [["new_user_test.ts", "a newcomer with busybox and nothing else gets along"]],
    guide: ["the file that is named, readable here"],
  },
  {
    n: 63,
    wish: "a byte that is no text ends nothing",
    tests: [
      ["attacks_run_test.ts", "X14 situation 9: bytes that are no text are replaced and counted"],
    ],
    guide: ["Bytes that are not UTF-8 are shown as U+FFFD"],
  },
];

Deno.test("every wish about finding out, progress and output has its answer", () => {
  const guide = Deno.readTextFileSync(inRepository("agent", "AGENTS.md"));
  const numbers = WISHES.map(({ n }) => n);
  const all = [...Array.from({ length: 17 }, (_, i) => 36 + i), 60, 61, 62, 63];
  assertEquals(numbers, all);
  for (const { n, wish, tests = [], guide: sentences = [] } of WISHES) {
    assert(tests.length + sentences.length > 0, `${n} ${wish}`);
    for (const sentence of sentences) {
      assertStringIncludes(guide, sentence, `${n} ${wish}`);
    }
    for (const [file, name] of tests) {
      if (file === HERE) continue;
      const text = Deno.readTextFileSync(inRepository("tests", file));
      const found = ['"', "`"].some((quote) => text.includes(quote + name));
      assert(found, `${n} ${wish}: ${file} has no test "${name}"`);
    }
  }
});

Deno.test(LIVE, async () => {
  const progress = "pull 10%\r pull 20%\r\x1b[2K\x1b[1Apull 100%\n";
  await using bridge = await TestBridge.start({
    scripts: {
      "quiet.sh": "#!/bin/sh\necho begun\nsleep 4\necho ended\n",
      "progress.sh": "#!/bin/sh\nprintf 'pull 10%%\\r pull 20%%\\r\\033[2K\\033[1Apull 100%%\\n'\n",
      "slow.sh": "#!/bin/sh\necho half\nsleep 60\n",
    },
    policy: {
      agents: { main: { verbs: ["quiet", "progress", "slow", "asked"], scope: "mutating" } },
      verbs: {
        quiet: verb(["base/quiet.sh"]),
        progress: verb(["base/progress.sh"]),
        slow: verb(["base/slow.sh"], { timeout_s: 1.5, description: "Take long." }),
        asked: verb(["/usr/bin/true"], { class: "mutating", approval: "always" }),
      },
      limits: { concurrency: 4, grace_s: 1 },
    },
  });
  using sandboxes = new Sandboxes();
  const sandbox = sandboxes.all[0];
  assert(sandbox !== undefined, "no shell at all");
  const chb = bridge.path("spool/main");
  const ask = (...words: string[]) =>
    runKit(sandbox, bridge.path("spool/main/inbox/kit/chb-request"), words, chb);

  // 37: by the helper, and by the bridge itself.
  const wrong = await ask("progres", "--wait");
  assertEquals([wrong.code, bridge.queued()], [78, []]);
  assertStringIncludes(wrong.err, "only: quiet, progress, slow, asked, bridge.ping,");
  const near = await bridge.ask("near", { verb: "progres" });
  assertStringIncludes(near.hint ?? "", 'Did you mean "progress"?');

  // 47: the limit stands in the listing; what came before it is kept, and it is no success.
  const listed = await ask("--verbs", "slow");
  assertStringIncludes(listed.out, "up to 1.5 s");
  const late = await ask("slow", "--wait");
  assertEquals([late.code, late.out], [2, "half\n"], late.err);
  assertStringIncludes(late.err, "timed_out, code 2 (timed-out)");

  // 51: nothing was printed for a while, and it was still followed to its end.
  const quiet = await ask("quiet", "--follow");
  assertEquals([quiet.code, quiet.out], [0, "begun\nended\n"], quiet.err);

  // 52: byte for byte, in the file and in the answer.
  const shown = await ask("progress", "--id", "p1", "--wait");
  assertEquals(shown.out, progress);
  assertEquals(Deno.readTextFileSync(join(chb, "results/p1.stdout")), progress);

  // 44: who asks learns at once that somebody has to be told; who looks finds it.
  const waits = await ask("asked", "--intent", "x", "--wait", "2");
  assertEquals(waits.code, 75, waits.err);
  assertStringIncludes(
    waits.err,
    "waits for a person to approve it (on the host: ./bin/chb pending)",
  );
  await until(
    "it among what waits",
    async () => (await bridge.chb("pending")).out.includes("asked"),
  );
  assertStringIncludes((await bridge.chb("status")).out, "for your word: ./bin/chb pending");
});
