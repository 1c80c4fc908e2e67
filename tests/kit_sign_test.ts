/**
 * What the helper signs: held against another implementation, with every secret length that matters
 * to HMAC, and bytes that become NUL on the way.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { createHmac, createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { inRepository } from "../tools/launcher.ts";
import { runKit, Sandboxes } from "./helpers/sandbox.ts";

const HELPER = inRepository("agent", "chb-request");

function arena(): string {
  const directory = Deno.makeTempDirSync({ prefix: "chb-sign-" });
  for (const role of ["queue", "results", "inbox"]) Deno.mkdirSync(join(directory, role));
  const write = (name: string, value: unknown) =>
    Deno.writeTextFileSync(join(directory, "inbox", name), JSON.stringify(value) + "\n");
  write("status.json", { chb: 1, seq: 1, state: "serving", why: "", recent: [] });
  const args = { text: { type: "text" } };
  write("catalogue.json", {
    chb: 1,
    agent: "main",
    verbs: [{ verb: "put", class: "observe", args }],
  });
  return directory;
}

function sent(chb: string): { payload: string; auth: { alg: string; key: string; sig: string } } {
  const path = join(chb, "queue/r1.json");
  const text = Deno.readTextFileSync(path);
  Deno.removeSync(path);
  return JSON.parse(text);
}

const TEXT = 'a"b\\c\n\té\u{1f600}';

Deno.test("an HMAC is that of the payload's bytes, whatever the secret's length", async () => {
  const chb = arena();
  using sandboxes = new Sandboxes();
  const file = join(chb, "key");
  const secrets = [
    "6".repeat(32),
    "0123456789abcdef".repeat(2),
    "=+/_-Zz6".repeat(8),
    "a".repeat(65),
    "6".repeat(128),
  ];
  try {
    for (const sandbox of sandboxes.all.filter(({ name }) => !/with jq/.test(name))) {
      for (const secret of secrets) {
        Deno.writeTextFileSync(
          file,
          `chb-key: laptop-1\nchb-agent: main\nchb-alg: hmac-sha256\nchb-secret: ${secret}\n`,
        );
        const words = ["put", `text=${TEXT}`, "--id", "r1"];
        const said = await runKit(sandbox, HELPER, words, chb, { env: { CHB_KEY_FILE: file } });
        assertEquals(said, { code: 0, out: "r1\n", err: "" }, sandbox.name);
        const { payload, auth } = sent(chb);
        const sig = createHmac("sha256", secret).update(payload).digest("hex");
        assertEquals(auth, { alg: "hmac-sha256", key: "laptop-1", sig }, sandbox.name);
        const { created_at, ...request } = JSON.parse(payload);
        assertEquals(request, { verb: "put", args: { text: TEXT }, id: "r1", agent: "main" });
        assert(Math.abs(Date.now() - Date.parse(created_at)) < 60_000, created_at);
      }
    }
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("an Ed25519 signature holds, and without openssl nothing is sent", async () => {
  const chb = arena();
  using sandboxes = new Sandboxes();
  const file = join(chb, "key");
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const pem = privateKey.export({ type: "pkcs8", format: "pem" });
  const head = "chb-key: k\nchb-agent: main\nchb-alg: ed25519\n";
  Deno.writeTextFileSync(file, head + pem);
  const [sandbox] = sandboxes.all;
  assert(sandbox !== undefined, "no shell");
  const env = { CHB_KEY_FILE: file };
  try {
    const gone = { CHB_KEY_FILE: join(chb, "gone") };
    const absent = await runKit(sandbox, HELPER, ["put", "text=x"], chb, { env: gone });
    assertEquals(absent.code, 68);
    assertStringIncludes(absent.err, `no key file ${gone.CHB_KEY_FILE}`);
    const none = await runKit(sandbox, HELPER, ["put", "text=x", "--id", "r1"], chb, { env });
    assertEquals(none.code, 68);
    assertStringIncludes(none.err, "openssl");
    assertEquals([...Deno.readDirSync(join(chb, "queue"))], []);
    const full = { ...sandbox, path: "/usr/bin:/bin" };
    const said = await runKit(full, HELPER, ["put", `text=${TEXT}`, "--id", "r1"], chb, { env });
    assertEquals(said.code, 0, said.err);
    const { payload, auth } = sent(chb);
    const key = createPublicKey(publicKey.export({ type: "spki", format: "pem" }));
    const bytes = new TextEncoder().encode(payload);
    assert(
      verify(
        null,
        bytes,
        key,
        Uint8Array.from(auth.sig.match(/../g) ?? [], (h) => parseInt(h, 16)),
      ),
    );
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});
