/**
 * The page that an agent reads first: every command in it is run, as it stands, against a bridge
 * that has the verbs it talks of, and every code and every `next` that it explains is a real one.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { CODES } from "../src/codes.ts";
import { BUILTINS } from "../src/surface.ts";
import { inRepository } from "../tools/launcher.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { runKit, type Sandbox, Sandboxes } from "./helpers/sandbox.ts";

const GUIDE = Deno.readTextFileSync(inRepository("agent", "AGENTS.md"));

/** The commands of the page: every line of its `sh` blocks. */
const COMMANDS = [...GUIDE.matchAll(/^```sh\n(.*?)^```/gms)].flatMap(([, text = ""]) =>
  text.trim().split("\n")
);

const SCRIPTS = {
  "build.sh": "#!/bin/sh\necho built $1\n",
  "restart.sh": "#!/bin/sh\necho restarted $1\n",
  "slow.sh": "#!/bin/sh\necho started\nsleep 60\n",
};
const VERBS = {
  build: verb(["base/build.sh", "{target}"], { args: { target: { type: "name" } } }),
  restart: verb(["base/restart.sh", "{service}"], {
    class: "mutating",
    args: { service: { type: "name" } },
  }),
  slow: verb(["base/slow.sh"], { timeout_s: 90 }),
};

/** What a command of the page may end with, where it is not 0, and what it needs beforehand. */
const CODES_OF: readonly [RegExp, readonly number[]][] = [
  // Nobody has asked anything here: the bridge says so.
  [/^chb-request bridge\.reply /, [79]],
  [/check-mounts$/, [1]],
];

Deno.test("every command of the guide does what it says", async () => {
  await using bridge = await TestBridge.start({ verbs: VERBS, scripts: SCRIPTS });
  using sandboxes = new Sandboxes();
  const sandbox = sandboxes.all.find(({ name }) => name === "dash with jq") ?? sandboxes.all[0];
  assert(sandbox !== undefined, "no shell at all");
  const chb = bridge.path("spool/main");
  const script = join(bridge.outside, "command");
  const run = async (command: string, by: Sandbox = sandbox) => {
    const written = command.replace(/^chb-request/, "sh /chb/inbox/kit/chb-request");
    Deno.writeTextFileSync(script, written.replaceAll("/chb/", `${chb}/`) + "\n");
    return await runKit(by, script, [], chb);
  };
  assert(COMMANDS.length >= 18, `only ${COMMANDS.length} commands were found`);
  const ran: string[] = [];
  for (const command of COMMANDS) {
    if (/bridge\.(\w+)/.test(command)) {
      const [name = ""] = /bridge\.\w+/.exec(command) ?? [];
      if (!(BUILTINS as readonly string[]).includes(name)) continue;
    }
    // The page's ID is one of a request that still runs when it is to be cancelled.
    let id = "done1";
    if (command.includes("bridge.cancel")) {
      id = "slow1";
      bridge.submit(id, { verb: "slow", id });
      await until("slow1 to run", () => bridge.result(id)?.state === "running");
    } else if (bridge.result(id) === null) {
      assertEquals((await run(`chb-request build target=x --id ${id} --wait`)).code, 0);
    }
    const { code, err } = await run(command.replace(/\bID\b/, id));
    const allowed = CODES_OF.find(([pattern]) => pattern.test(command))?.[1] ?? [0];
    assert(allowed.includes(code), `${command} ended with ${code}: ${err}`);
    ran.push(command);
  }
  const text = ran.join("\n");
  for (
    const part of [
      "--verbs",
      "--wait",
      "--intent",
      "--result",
      "--follow",
      "--from",
      "--recent",
      "--full",
      "--messages",
      "--status",
      "check-mounts",
      "jq -n",
      "p1.json",
    ]
  ) {
    assertStringIncludes(text, part);
  }
  // What it shows without the helper arrives like anything else.
  assertEquals((await bridge.final("p1")).code, 0);
  assertEquals((await bridge.final("r1")).stdout?.head, "restarted web\n");
});

Deno.test("the guide explains every next, and no code that there is not", () => {
  for (const next of new Set(CODES.map(({ next }) => next))) {
    assertStringIncludes(GUIDE, `| \`${next}\` |`);
  }
  const known = new Set(CODES.map(({ code }) => code));
  for (const [, code] of GUIDE.matchAll(/\((\d\d)\)/g)) assert(known.has(Number(code)), code);
  for (const { code } of CODES) {
    if (code >= 77) assert(code <= 92, `the guide says 77 to 92; there is ${code}`);
  }
});

Deno.test("the guide says what the helper's own help says, and the kit is whole", async () => {
  await using bridge = await TestBridge.start({ verbs: VERBS, scripts: SCRIPTS });
  const kit = bridge.path("spool/main/inbox/kit");
  const published = (dir: string): string[] =>
    [...Deno.readDirSync(dir)].flatMap((e) =>
      e.isDirectory ? published(join(dir, e.name)).map((n) => `${e.name}/${n}`) : [e.name]
    ).sort();
  assertEquals(published(kit), [
    "AGENTS.md",
    "block-runtime",
    "chb-request",
    "check-mounts",
    "shims/docker",
    "shims/docker-compose",
    "shims/podman",
    "shims/podman-compose",
  ]);
  for (const name of published(kit)) {
    const source = inRepository("agent", name.startsWith("shims/") ? "shims/docker" : name);
    assertEquals(Deno.readTextFileSync(join(kit, name)), Deno.readTextFileSync(source), name);
    const mode = (Deno.statSync(join(kit, name)).mode ?? 0) & 0o777;
    assertEquals(mode, name === "AGENTS.md" ? 0o644 : 0o755, name);
  }
  // Whoever reads the inbox first is sent to the page, and every name there is a file.
  const readme = Deno.readTextFileSync(bridge.path("spool/main/inbox/README"));
  for (const [, name = ""] of readme.matchAll(/^ {2}(\S+) {2,}/gm)) {
    await until(`${name} in the inbox`, () => there(bridge.path("spool/main/inbox", name)));
  }
  const note = await bridge.chb("agent-note");
  assertEquals(note.code, 0, note.err);
  assertEquals(note.out.trim().split("\n").length, 4);
  assertStringIncludes(note.out, "/chb/inbox/kit/AGENTS.md");
  // What a human changed there is put right by the next start.
  await bridge.stop();
  Deno.writeTextFileSync(join(kit, "AGENTS.md"), "x");
  await bridge.serve();
  assertEquals(Deno.readTextFileSync(join(kit, "AGENTS.md")), GUIDE);
});
