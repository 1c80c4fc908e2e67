/**
 * Signed requests from outside, with the program's own permissions: the shell recipe of the docs
 * under the real openssl, replays before and after a row is gone, keys that come and go while the
 * daemon serves, and secrets that appear nowhere.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { createPrivateKey } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import type { Result } from "../src/result.ts";
import { type TestBridge, there, until } from "./helpers/bridge.ts";
import { type Counted, countedBridge, type CountedOptions, marking } from "./helpers/counting.ts";
import { envelopeOf, keyField, opensslTest, payloadOf, type Signer } from "./helpers/signing.ts";

const DOCS = new URL("../docs/signatures.md", import.meta.url);
const HELPER = new URL("../agent/chb-request", import.meta.url).pathname;

/** Runs `chb key new` as a person would, and gives what it printed last and the agent's file. */
async function makeKey(
  bridge: TestBridge,
  name: string,
  ...words: string[]
): Promise<{ said: string; file: string }> {
  const { code, out, err } = await bridge.chb("key", "new", name, ...words);
  assertEquals(code, 0, err);
  const said = await shell(bridge, out);
  return { said, file: bridge.path("handed", `${name}.key`) };
}

/** Runs a script and gives what it printed. */
async function shell(
  bridge: TestBridge,
  script: string,
  env: Record<string, string> = {},
  program = "/bin/sh",
): Promise<string> {
  const path = `${bridge.outside}/script.sh`;
  Deno.writeTextFileSync(path, script);
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args: program === "/bin/sh" ? [path] : ["ash", path],
    cwd: bridge.outside,
    env,
    stdin: "null",
  }).output();
  Deno.removeSync(path);
  const text = new TextDecoder();
  assertEquals(code, 0, text.decode(stderr));
  return text.decode(stdout);
}

/** How a test signs with an agent's key file. */
function signerOf(file: string): Signer {
  const text = Deno.readTextFileSync(file);
  const alg = keyField(text, "alg") === "ed25519" ? "ed25519" : "hmac-sha256";
  return {
    alg,
    key: keyField(text, "key"),
    agent: keyField(text, "agent"),
    secret: alg === "ed25519"
      ? createPrivateKey(text.slice(text.indexOf("-----BEGIN")))
      : keyField(text, "secret"),
  };
}

async function signing(options: Partial<CountedOptions> = {}): Promise<Counted> {
  return await countedBridge({
    verbs: { mark: marking() },
    ...options,
    agent: { auth: "signed", ...options.agent },
  });
}

/** Signs and submits a request, and waits for its answer. */
async function ask(
  bridge: TestBridge,
  signer: Signer,
  id: string,
  request: Record<string, unknown>,
  created_ms?: number,
): Promise<Result> {
  return await bridge.ask(
    id,
    envelopeOf(signer, payloadOf(signer.agent, id, request, created_ms)),
  );
}

/** Submits a file as it is, and waits until something new stands under this name. */
async function again(bridge: TestBridge, name: string, id: string, text: string): Promise<Result> {
  const path = bridge.path("spool/main/results", `${name}.json`);
  const before = there(path) ? Deno.readTextFileSync(path) : null;
  bridge.submitText(id, text);
  await until(
    `another results/${name}.json`,
    () => there(path) && Deno.readTextFileSync(path) !== before,
  );
  return await bridge.final(name);
}

function answer(result: Result): string {
  return `${result.reason} at ${result.stage ?? "the end"}`;
}

/** The recipe of the docs, as it stands there. */
function recipe(): string {
  const text = Deno.readTextFileSync(DOCS);
  const start = text.indexOf("id=restart-web-1\n");
  return text.slice(start, text.indexOf("```", start));
}

for (const alg of ["hmac-sha256", "ed25519"]) {
  opensslTest(`the recipe of the docs is taken, with openssl and ${alg}`, async () => {
    await using one = await signing({
      verbs: {
        restart: marking(["{service}"], {
          args: { service: { type: "enum", values: ["web", 'quo"te'] } },
        }),
      },
      then: 'echo "service $2"',
    });
    const { bridge } = one;
    const { said, file } = await makeKey(bridge, "laptop-1", "--alg", alg);
    assertMatch(said, /handed\/laptop-1\.key:\/run\/chb\/key:ro -e CHB_KEY_FILE=/);
    await bridge.serve();
    const script = recipe().replace("file=/run/chb/key", `file=${file}`);
    assert(script.includes(file));
    const env = { CHB_DIR: bridge.path("spool/main"), PATH: "/usr/bin:/bin" };
    await shell(bridge, script, env);
    const result = await bridge.final("restart-web-1");
    assertEquals(answer(result), "ok at the end");
    assertEquals(result.stdout?.head, "service web\n");
    // Quotation marks and backslashes come through the recipe's way of writing a JSON string.
    await shell(
      bridge,
      script.replaceAll("restart-web-1", "quoted").replace('"web"', '"quo\\"te"'),
      env,
    );
    assertEquals((await bridge.final("quoted")).stdout?.head, 'service quo"te\n');
    // The agent's helper signs by itself; asked again, it is given the stored result.
    const helper = `sh '${HELPER}' restart service=web --id helped --wait 40\n`;
    for (let i = 0; i < 2; i++) {
      const said = await shell(bridge, helper, { ...env, CHB_KEY_FILE: file });
      assertStringIncludes(said, "service web\n");
    }
    assertEquals(one.runs(), ["restart-web-1", "quoted", "helped"]);
    // The text of the log follows the answers.
    const accepted = () => bridge.audit().filter((r) => r["event"] === "accepted");
    await until("the records", () => accepted().length === 3);
    assertEquals(accepted().map((r) => r["signed_by"]), Array(3).fill("laptop-1"));
    assertEquals(bridge.audit().find((r) => r["event"] === "keys")?.["keys"], ["laptop-1"]);
  });
}

opensslTest(
  "a key pair of the agent's own signs once the host has its public half, closed to others",
  async () => {
    await using one = await signing();
    const { bridge } = one;
    const text = Deno.readTextFileSync(DOCS);
    const start = text.indexOf("openssl genpkey");
    const hex = await shell(bridge, text.slice(start, text.indexOf("```", start)), {
      PATH: "/usr/bin:/bin",
    });
    assertMatch(hex, /^[0-9a-f]{64}$/);
    // Until there is a key, check says so and how to make one.
    const before = await bridge.chb("check");
    assertEquals(before.code, 0);
    assertMatch(before.err, /warning: agents\.main: It must sign what it asks, and has no key/);
    assertMatch(before.err, /\.\/bin\/chb key new main-1 --agent main \| sh/);
    const { file } = await makeKey(bridge, "own", "--public", hex);
    assertEquals((await bridge.chb("check")).err, "");
    assert(!there(file), "the host made a private key");
    Deno.chmodSync(bridge.path("keys/own.json"), 0o644);
    const { code, err } = await bridge.chb("serve");
    assertEquals(code, 78);
    assertMatch(err, /path=keys\/own\.json .*0644 instead of 0600/);
    assertMatch(err, /chmod 0600/);
    Deno.chmodSync(bridge.path("keys/own.json"), 0o600);
    await bridge.serve();
    const secret = createPrivateKey(Deno.readTextFileSync(`${bridge.outside}/own.pem`));
    const signer: Signer = { key: "own", alg: "ed25519", agent: "main", secret };
    assertEquals(answer(await ask(bridge, signer, "a", { verb: "mark" })), "ok at the end");
  },
);

Deno.test("what is not signed by a key of this agent is refused, and no other agent must sign", async () => {
  const verbs = { mark: marking() };
  await using one = await countedBridge({
    verbs,
    agent: { auth: "signed" },
    agents: ["main", "plain", "second"],
    top: {
      agents: {
        main: { verbs: ["mark"], auth: "signed" },
        plain: { verbs: ["mark"] },
        second: { verbs: ["mark"], auth: "signed" },
      },
    },
  });
  const { bridge } = one;
  const main = signerOf((await makeKey(bridge, "m1")).file);
  const second = signerOf((await makeKey(bridge, "s1", "--agent", "second")).file);
  await bridge.serve();
  const refused = async (id: string, request: unknown) => {
    const result = await bridge.ask(id, request);
    assertEquals(answer(result), "unauthenticated at auth");
    assertEquals([result.code, result.next, result.outcome], [68, "ask-human", "rejected"]);
  };
  await refused("plain", { verb: "mark" });
  await refused("ping", { verb: "bridge.ping" });
  await refused("theirs", envelopeOf(second, payloadOf("main", "theirs", { verb: "mark" })));
  await refused(
    "posed",
    envelopeOf({ ...second, key: "m1" }, payloadOf("main", "posed", { verb: "mark" })),
  );
  await refused("for-them", envelopeOf(main, payloadOf("second", "for-them", { verb: "mark" })));
  assertEquals(answer(await ask(bridge, main, "mine", { verb: "mark" })), "ok at the end");
  assertEquals((await ask(bridge, main, "signed-ping", { verb: "bridge.ping" })).reason, "ok");
  // An agent of placement is served as ever, and has no use for a signature.
  const queue = (name: string) => bridge.path("spool/plain/queue", name);
  const read = (id: string): Result | null => {
    const path = bridge.path("spool/plain/results", `${id}.json`);
    const result: Result | null = there(path) ? JSON.parse(Deno.readTextFileSync(path)) : null;
    return result?.state === "done" ? result : null;
  };
  const put = async (id: string, value: unknown): Promise<Result> => {
    Deno.writeTextFileSync(queue(".t.tmp"), JSON.stringify(value));
    Deno.renameSync(queue(".t.tmp"), queue(`${id}.json`));
    return await until(`the answer to ${id}`, () => read(id));
  };
  assertEquals((await put("p1", { verb: "mark" })).reason, "ok");
  const signed = envelopeOf(second, payloadOf("plain", "p2", { verb: "mark" }));
  assertEquals(answer(await put("p2", signed)), "schema at schema");
  assertEquals(one.runs(), ["mine", "p1"]);
});

Deno.test("Q1 signed bytes run once: again, under another id, too late, after their row is gone", async () => {
  await using one = await signing({
    verbs: {
      mark: marking(),
      hold: marking(["hold"], { lock: "one" }),
      next: marking([], { lock: "one" }),
    },
    then: 'test -z "$2" || while [ ! -e "$MARKS.open" ]; do sleep 0.05; done',
    agent: { auth: "signed", signature_window_s: 60 },
  });
  const { bridge } = one;
  const signer = signerOf((await makeKey(bridge, "k1")).file);
  await bridge.serve();
  const now = Date.now();
  const asked = (id: string, request: Record<string, unknown>, created_ms: number) =>
    ask(bridge, signer, id, { verb: "mark", ...request }, created_ms);

  // Outside the window nothing starts.
  for (const [id, off_ms] of [["old", -70_000], ["ahead", 120_000]] as const) {
    const result = await asked(id, {}, now + off_ms);
    assertEquals(answer(result), "stale-signature at replay");
    assertEquals([result.code, result.next], [92, "fix-request"]);
  }
  // A refusal before any start leaves the same signed bytes good for another try.
  const text = JSON.stringify(envelopeOf(signer, payloadOf("main", "r1", { verb: "mark" })));
  Deno.writeTextFileSync(bridge.path("state/KILL"), "");
  bridge.submitText("r1", text);
  assertEquals(answer(await bridge.final("r1")), "killed at kill");
  assertEquals(one.runs(), []);
  Deno.removeSync(bridge.path("state/KILL"));
  assertEquals((await again(bridge, "r1", "r1", text)).reason, "ok");
  // Once it ran it is answered with its result, signed in time or not.
  const repeated = await again(bridge, "r1", "r1", text);
  assertEquals([repeated.reason, repeated.replays], ["ok", 1]);
  const late = envelopeOf(signer, payloadOf("main", "r1", { verb: "mark" }, now - 70_000));
  assertEquals((await again(bridge, "r1", "r1", JSON.stringify(late))).replays, 2);
  bridge.submitText("r2", text);
  assertEquals(answer(await bridge.final("r2")), "replayed-request at replay");
  // The same request signed anew under another id joins, as without signatures.
  const joined = await ask(bridge, signer, "r3", { verb: "mark", idempotency_key: "r1" });
  assertEquals([joined.reason, joined.replay_of], ["ok", "r1"]);
  assertEquals(
    answer(await asked("r6", { idempotency_key: "r1" }, now - 70_000)),
    "stale-signature at replay",
  );
  const third = JSON.stringify(
    envelopeOf(signer, payloadOf("main", "r4", { verb: "mark", idempotency_key: "r1" })),
  );
  bridge.submitText("r4", third);
  await bridge.final("r4");
  // One that started at once and one that waited, each sent only once.
  const held = JSON.stringify(envelopeOf(signer, payloadOf("main", "held", { verb: "hold" })));
  const waited = JSON.stringify(envelopeOf(signer, payloadOf("main", "waited", { verb: "next" })));
  bridge.submitText("held", held);
  await until("the run", () => one.runs().includes("held"));
  bridge.submitText("waited", waited);
  await until("its wait", () => bridge.result("waited")?.waiting_for === "lock");
  const { MARKS } = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc"))).env;
  Deno.writeTextFileSync(`${MARKS}.open`, "");
  assertEquals((await bridge.final("waited")).reason, "ok");
  Deno.removeSync(`${MARKS}.open`);
  await bridge.stop();
  forgetRows(bridge);
  await bridge.serve();
  const all = [["r1", text], ["r4", third], ["held", held], ["waited", waited]] as const;
  for (const [id, bytes] of all) {
    const result = await again(bridge, id, id, bytes);
    assertEquals(answer(result), "replayed-request at replay", id);
    assertEquals([result.code, result.next], [91, "resend-new-key"]);
  }
  assertEquals(one.runs(), ["r1", "held", "waited"]);
  // What is signed anew is another request.
  assertEquals((await ask(bridge, signer, "r5", { verb: "mark" })).reason, "ok");
  assertEquals(one.runs(), ["r1", "held", "waited", "r5"]);
});

/** Takes all rows out of the ledger of a bridge that is down, as retention does in time. */
function forgetRows(bridge: TestBridge): void {
  using database = {
    db: new DatabaseSync(bridge.path("state/ledger.db")),
    [Symbol.dispose]() {
      this.db.close();
    },
  };
  database.db.exec("DELETE FROM ids; DELETE FROM rows;");
  for (const { name } of Deno.readDirSync(bridge.path("spool/main/results"))) {
    Deno.removeSync(bridge.path("spool/main/results", name));
  }
}

Deno.test("keys come, change and go while the daemon serves; two are valid at once", async () => {
  await using one = await signing();
  const { bridge } = one;
  await bridge.serve();
  const recordOfKeys = () => bridge.audit().filter((r) => r["event"] === "keys").at(-1);
  const keyFile = (name: string) => bridge.path("keys", `${name}.json`);
  /** Asks under new ids until the answer is this one. */
  let n = 0;
  const comesTo = async (signer: Signer, reason: string, message = /^/) => {
    const end = performance.now() + 20_000;
    for (;;) {
      const result = await ask(bridge, signer, `n${n++}`, { verb: "bridge.ping" });
      if (result.reason === reason && message.test(result.message ?? "")) return;
      assert(performance.now() < end, `${result.reason} (${result.message}) for ${reason}`);
    }
  };
  const first = signerOf((await makeKey(bridge, "k1")).file);
  await comesTo(first, "ok");
  const second = signerOf((await makeKey(bridge, "k2", "--alg", "ed25519")).file);
  await comesTo(second, "ok");
  await comesTo(first, "ok");
  Deno.removeSync(keyFile("k1"));
  await comesTo(first, "unauthenticated");
  await comesTo(second, "ok");
  // A key whose file others may read is none, and neither is one that is no key.
  Deno.chmodSync(keyFile("k2"), 0o640);
  await comesTo(second, "unauthenticated");
  Deno.chmodSync(keyFile("k2"), 0o600);
  await comesTo(second, "ok");
  const text = Deno.readTextFileSync(keyFile("k2"));
  Deno.writeTextFileSync(keyFile("k2"), text.replace("{", "{,"));
  await comesTo(second, "unauthenticated");
  const words = /WARN key-unusable file=keys\/k2\.json why="it is not one strict JSON/;
  await until("the daemon to tell of it", () => words.test(bridge.log));
  await until("a record of it", () => String(recordOfKeys()?.["unusable"]) === "keys/k2.json");
  assertEquals(recordOfKeys()?.["keys"], []);
  Deno.writeTextFileSync(
    keyFile("k2"),
    text.replace("{", '{"not_after":"2020-01-01T00:00:00Z",'),
  );
  await comesTo(second, "unauthenticated", /valid until 2020-01-01/);
  await until("a record of the keys", () => String(recordOfKeys()?.["keys"]) === "k2");
  const { code, out } = await bridge.chb("key", "list", "--json");
  assertEquals([code, JSON.parse(out).keys[0].state], [0, "expired"]);
});

Deno.test("secrets appear in no result, log, record, catalogue, output or order", async () => {
  await using one = await signing({ then: "cat; ls -l keys ../../keys ../../../keys; env" });
  const { bridge } = one;
  const { file } = await makeKey(bridge, "k1");
  const { file: pair } = await makeKey(bridge, "k2", "--alg", "ed25519");
  Deno.writeTextFileSync(
    bridge.path("keys/broken.json"),
    Deno.readTextFileSync(bridge.path("keys/k1.json")).replace('"agent"', '"agents"'),
    { mode: 0o600 },
  );
  const secret = keyField(Deno.readTextFileSync(file), "secret");
  assertMatch(secret, /^[0-9a-f]{64}$/);
  const pem = Deno.readTextFileSync(pair).split("\n").find((line) => line.startsWith("MC4CAQ"));
  assert(pem !== undefined);
  await bridge.serve();
  const signer = signerOf(file);
  assertEquals((await ask(bridge, signer, "ok", { verb: "mark" })).reason, "ok");
  const good = envelopeOf(signer, payloadOf("main", "bad", { verb: "mark" }));
  await bridge.ask("bad", { ...good, payload: good.payload + " " });
  await ask(bridge, { ...signer, key: "broken" }, "broken", { verb: "mark" });
  await ask(bridge, { ...signer, alg: "ed25519" }, "alg", { verb: "mark" });
  await ask(bridge, { ...signer, key: "k2" }, "other", { verb: "mark" });
  assertEquals(one.runs(), ["ok"]);
  let told = "";
  for (const words of [["list"], ["list", "--json"], ["show", "k1"], ["show", "k1", "--json"]]) {
    const { out, err } = await bridge.chb("key", ...words);
    told += out + err;
  }
  told += (await bridge.chb("key", "show", "broken")).err;
  told += (await bridge.chb("key", "new", "k1")).err + (await bridge.chb("check")).err;
  assertMatch(told, /no key: keys\/broken\.json: it has a field besides/);
  await bridge.stop();
  told += bridge.log;
  let files = 0;
  const walk = (path: string) => {
    for (const { name, isDirectory, isFile } of Deno.readDirSync(path)) {
      const at = `${path}/${name}`;
      if (isDirectory) walk(at);
      else if (isFile) {
        files++;
        told += new TextDecoder("latin1").decode(Deno.readFileSync(at));
      }
    }
  };
  for (const room of ["spool", "work", "state"]) walk(bridge.path(room));
  assert(files > 10);
  for (const hidden of [secret, secret.slice(8, 40), pem]) assert(!told.includes(hidden), "leaked");
});

Deno.test("a synced queue: what a sync program keeps there is left alone, all else is answered", async () => {
  await using one = await signing({ agent: { auth: "signed", mount: "synced" } });
  const { bridge } = one;
  const signer = signerOf((await makeKey(bridge, "k1")).file);
  // The last would be taken at once elsewhere; the others after ten minutes.
  const foreign = [".syncthing.r1.json.tmp", ".stfolder", "r1.json.!sync", "desktop.ini"];
  for (const name of foreign) {
    if (name === ".stfolder") Deno.mkdirSync(bridge.queue(name));
    else Deno.writeTextFileSync(bridge.queue(name), "half");
  }
  await bridge.serve();
  // A sync program writes beside and renames.
  const payload = payloadOf("main", "r1", { verb: "mark" });
  const part = bridge.queue(".syncthing.r1.json.tmp");
  Deno.writeTextFileSync(part, JSON.stringify(envelopeOf(signer, payload)));
  Deno.renameSync(part, bridge.queue("r1.json"));
  assertEquals((await bridge.final("r1")).reason, "ok");
  Deno.writeTextFileSync(bridge.queue("r1.sync-conflict-20260101-000000-ABCDEFG.json"), "{}");
  await until("an answer to the conflict copy", () => bridge.refused().length > 0);
  assertEquals(bridge.refused().map((note) => note["reason"]), ["bad-name"]);
  assertEquals(bridge.queued().sort(), foreign.slice(1).sort());
  assertEquals(one.runs(), ["r1"]);
});
