/** `chb key`: the script that makes a key, what it leaves, and what is told of keys afterwards. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { createPrivateKey, createPublicKey } from "node:crypto";
import type { Io } from "../src/human/command.ts";
import { runHuman } from "../src/human/run_human.ts";
import { keyField } from "./helpers/signing.ts";
import { IS_ROOT, modeOf, names, run, SpoolRoot, there } from "./spool_fixture.ts";

async function chb(...words: string[]): Promise<{ code: number; out: string; err: string }> {
  const text = { out: "", err: "" };
  const io: Io = {
    out: (more) => void (text.out += more),
    err: (more) => void (text.err += more),
    stdin: () => new Uint8Array(),
    ask: () => null,
  };
  const code = await runHuman(["key", ...words], io);
  return { code, ...text };
}

/** Names agents in the policy of the root. */
function nameAgents(...agents: string[]): void {
  const policy = {
    agents: Object.fromEntries(agents.map((agent) => [agent, { verbs: [] }])),
    verbs: {},
  };
  Deno.writeTextFileSync("bridge.jsonc", JSON.stringify(policy));
}

/** Makes a key's script and runs it from elsewhere. */
async function make(root: SpoolRoot, ...words: string[]): Promise<string> {
  const { code, out, err } = await chb("new", ...words);
  assertEquals([code, err], [0, ""]);
  const path = root.hostFile("key.sh", out);
  return run("sh", ["-c", `cd / && sh ${path}`], { env: { PATH: "/usr/bin:/bin" } });
}

for (const alg of ["hmac-sha256", "ed25519"]) {
  Deno.test(`key new makes both files of a key with ${alg}, closed as they must be`, async () => {
    using root = new SpoolRoot();
    const said = await make(root, "laptop-1", "--alg", alg, "--not-after", "2030-01-01T00:00:00Z");
    assertEquals(names("keys"), ["laptop-1.json"]);
    assertEquals(names("handed"), ["laptop-1.key"]);
    assertEquals(names("state").filter((name) => name.includes("laptop")), []);
    assertEquals(
      ["keys", "keys/laptop-1.json", "handed", "handed/laptop-1.key"].map(modeOf),
      ["0700", "0600", "0700", "0444"],
    );
    const host = JSON.parse(Deno.readTextFileSync("keys/laptop-1.json"));
    const sandbox = Deno.readTextFileSync("handed/laptop-1.key");
    assertEquals([host.alg, host.agent, host.not_after], [alg, "main", "2030-01-01T00:00:00Z"]);
    assertEquals(["key", "agent", "alg"].map((name) => keyField(sandbox, name)), [
      "laptop-1",
      "main",
      alg,
    ]);
    if (alg === "hmac-sha256") {
      assertMatch(host.secret, /^[0-9a-f]{64}$/);
      assertEquals(keyField(sandbox, "secret"), host.secret);
    } else {
      assert(!JSON.stringify(host).includes("PRIVATE") && sandbox.includes("BEGIN PRIVATE KEY"));
      const pair = createPublicKey(createPrivateKey(sandbox.slice(sandbox.indexOf("-----BEGIN"))));
      const der = pair.export({ type: "spki", format: "der" });
      assertEquals(der.subarray(-32).toString("hex"), host.public);
    }
    // What the script says is no secret.
    assert(!said.includes(host.secret ?? "PRIVATE"));
    assertMatch(said, /-v \S+\/handed\/laptop-1\.key:\/run\/chb\/key:ro/);
  });
}

Deno.test("key new makes no key for an agent that the policy does not name", async () => {
  using _root = new SpoolRoot();
  nameAgents("main", "two");
  const nobody = await chb("new", "k", "--agent", "nobody");
  assertEquals([nobody.code, nobody.out], [64, ""]);
  assertMatch(nobody.err, /names no agent nobody: main, two/);
  // Named and not served yet, which is when a key is made.
  assertEquals((await chb("new", "k", "--agent", "two")).code, 0);
});

Deno.test("the script of key new overwrites nothing, and makes another key each time", async () => {
  using root = new SpoolRoot();
  const first = (await chb("new", "k1")).out;
  const second = (await chb("new", "k1")).out;
  const secret = (script: string) => keyField(script, "secret");
  assert(secret(first).length === 64 && secret(first) !== secret(second));
  const script = root.hostFile("first.sh", first);
  run("sh", [script]);
  const before = Deno.readTextFileSync("keys/k1.json");
  const again = root.hostFile("second.sh", second);
  run("sh", ["-c", `! sh ${again}`]);
  Deno.removeSync("keys/k1.json");
  // Half of it is there: still nothing is overwritten.
  run("sh", ["-c", `! sh ${again}`]);
  assert(!there("keys/k1.json"));
  assert(Deno.readTextFileSync("handed/k1.key").includes(JSON.parse(before).secret));
});

Deno.test("key new takes a public key that was made elsewhere, and hands nothing over", async () => {
  using root = new SpoolRoot();
  nameAgents("main", "ci");
  const open = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
  await make(root, "own", "--public", open, "--agent", "ci", "--note", "it's of CI");
  assertEquals(JSON.parse(Deno.readTextFileSync("keys/own.json")), {
    alg: "ed25519",
    agent: "ci",
    public: open,
    note: "it's of CI",
  });
  assert(!there("handed"));
  const { code, out } = await chb("show", "own");
  assertEquals(code, 0);
  assertMatch(out, new RegExp(`public +${open}`));
});

Deno.test("key new by root leaves files of the daemon's user", async () => {
  using root = new SpoolRoot();
  const uid = IS_ROOT ? 1000 : Deno.uid() ?? -1;
  if (IS_ROOT) Deno.chownSync("state", uid, uid);
  await make(root, "k1");
  for (const path of ["keys", "handed", "keys/k1.json", "handed/k1.key"]) {
    assertEquals(Deno.lstatSync(path).uid, uid, path);
  }
});

const REFUSED: readonly (readonly [words: string[], code: number])[] = [
  [[], 64],
  [["make", "k1"], 64],
  [["new"], 64],
  [["new", "Big"], 64],
  [["new", "../k1"], 64],
  [["new", "k1", "--agent", "a b"], 64],
  [["new", "k1", "--alg", "rsa"], 64],
  [["new", "k1", "--public", "00"], 64],
  [["new", "k1", "--public", "0".repeat(64)], 64],
  [["new", "k1", "--alg", "hmac-sha256", "--public", "f".repeat(64)], 64],
  [["new", "k1", "--not-after", "tomorrow"], 64],
  [
    ["new", "k1", "--not-before", "2026-01-02T00:00:00Z", "--not-after", "2026-01-01T00:00:00Z"],
    64,
  ],
  [["new", "there"], 1],
  [["list", "k1"], 64],
  [["show"], 64],
  [["show", "nobody"], 1],
  [["show", "broken"], 1],
];

Deno.test("chb key says what is wrong, prints no key then, and exits as it means", async () => {
  using root = new SpoolRoot();
  await make(root, "there");
  Deno.writeTextFileSync("keys/broken.json", '{"secret":"abcdefghijklmnop"}', { mode: 0o600 });
  for (const [words, expected] of REFUSED) {
    const { code, out, err } = await chb(...words);
    assertEquals([code, out], [expected, ""], words.join(" "));
    assert(err.startsWith("chb key: ") && !err.includes("abcdefgh"), err);
  }
  Deno.chdir("/");
  assertEquals((await chb("new", "k1")).code, 78);
});

Deno.test("key list tells every key within 80 columns, and what is none", async () => {
  using root = new SpoolRoot();
  nameAgents("main", "ci");
  assertEquals(await chb("list"), { code: 0, out: "No keys\n", err: "" });
  await make(root, "now-1");
  await make(root, "gone-1", "--not-after", "2020-01-01T00:00:00Z", "--agent", "ci");
  await make(root, "later-1", "--not-before", "2999-01-01T00:00:00Z", "--alg", "ed25519");
  const listed = await chb("list");
  assertEquals([listed.code, listed.err], [0, ""]);
  const rows = listed.out.trim().split("\n").map((line) => line.split(/ {2,}/));
  assertEquals(rows, [
    ["KEY", "AGENT", "ALGORITHM", "STATE", "UNTIL"],
    ["gone-1", "ci", "hmac-sha256", "expired", "2020-01-01T00:00:00.000Z"],
    ["later-1", "main", "ed25519", "not-yet", "-"],
    ["now-1", "main", "hmac-sha256", "valid", "-"],
  ]);
  assert(listed.out.split("\n").every((line) => line.length <= 80));
  Deno.chmodSync("keys/now-1.json", 0o644);
  const { code, out, err } = await chb("list", "--json");
  const told = JSON.parse(out);
  assertEquals([code, err, told.keys.length], [1, "", 2]);
  assertEquals(told.unusable, [
    { file: "keys/now-1.json", why: "it has another mode than 0600 or 0400" },
  ]);
  assertMatch((await chb("list")).err, /^no key: keys\/now-1\.json: /);
});
