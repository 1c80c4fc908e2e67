/** Key files and what is made of them, moments, and signatures by known vectors. */
import { assert, assertEquals } from "@std/assert";
import { parseInstant } from "../src/request/instant.ts";
import { KEY_FILE_BYTES, keyName, parseKeyFile } from "../src/request/key_file.ts";
import { ed25519Key, hmacKey, signatureHolds } from "../src/request/signature.ts";

const SECRET = "A0+/=_-z".repeat(4);
/** RFC 8032, test 1: the signature of nothing. */
const PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const SIG = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155" +
  "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";

function parse(value: unknown, name = "k1") {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return parseKeyFile(name, new TextEncoder().encode(text));
}

const HMAC = { alg: "hmac-sha256", agent: "main", secret: SECRET };
const ED = { alg: "ed25519", agent: "main", public: PUBLIC };

Deno.test("parseKeyFile() takes both algorithms, with and without bounds", () => {
  const bounds = { not_before: "2026-01-01T00:00:00Z", not_after: "2026-01-01T00:00:00.000Z" };
  const full = parse({ ...HMAC, ...bounds, note: "of the laptop" });
  assert(full.ok);
  const { key: _, ...told } = full.key;
  assertEquals(told, {
    name: "k1",
    agent: "main",
    alg: "hmac-sha256",
    not_before_ms: Date.UTC(2026, 0, 1),
    not_after_ms: Date.UTC(2026, 0, 1),
    public: null,
    note: "of the laptop",
  });
  const pair = parse(ED);
  assert(pair.ok);
  assertEquals([pair.key.public, pair.key.not_before_ms, pair.key.note], [PUBLIC, null, null]);
  for (const length of [32, 128]) assert(parse({ ...HMAC, secret: "a".repeat(length) }).ok);
});

Deno.test("parseKeyFile() turns a key into nothing that a log could hold", () => {
  const parsed = parse(HMAC);
  assert(parsed.ok);
  const told = JSON.stringify(parsed.key) + String(parsed.key.key) + Deno.inspect(parsed.key) +
    Deno.inspect(parsed.key, { showHidden: true, depth: 9 });
  assert(!told.includes(SECRET));
});

const WRONG: readonly (readonly [name: string, value: unknown])[] = [
  ["no JSON", "secret"],
  ["an array", [HMAC]],
  ["a repeated field", JSON.stringify(HMAC).replace("{", '{"agent":"other",')],
  ["a byte order mark", "\ufeff" + JSON.stringify(HMAC)],
  ["no alg", { agent: "main", secret: SECRET }],
  ["an unknown alg", { ...HMAC, alg: "hmac-sha1" }],
  ["no agent", { alg: "hmac-sha256", secret: SECRET }],
  ["a list of agents", { ...HMAC, agent: ["main"] }],
  ["an agent outside the grammar", { ...HMAC, agent: "Main" }],
  ["no secret", { alg: "hmac-sha256", agent: "main" }],
  ["a secret of 31 characters", { ...HMAC, secret: "a".repeat(31) }],
  ["a secret of 129 characters", { ...HMAC, secret: "a".repeat(129) }],
  ["a secret with a newline at its end", { ...HMAC, secret: SECRET + "\n" }],
  ["a secret with a space", { ...HMAC, secret: SECRET + " x" }],
  ["a secret that is a number", { ...HMAC, secret: 1 }],
  ["a secret and a public key", { ...HMAC, public: PUBLIC }],
  ["a public key with a secret", { ...ED, secret: SECRET }],
  ["a public key for an HMAC", { ...ED, alg: "hmac-sha256" }],
  ["a public key in capitals", { ...ED, public: PUBLIC.toUpperCase() }],
  ["a public key cut short", { ...ED, public: PUBLIC.slice(2) }],
  ["a public key of zeros, with which much has a signature", { ...ED, public: "0".repeat(64) }],
  ["the neutral point", { ...ED, public: "01" + "0".repeat(62) }],
  ["the neutral point with its sign set", { ...ED, public: "01" + "0".repeat(60) + "80" }],
  ["a misspelt bound", { ...HMAC, notAfter: "2026-01-01T00:00:00Z" }],
  ["a bound without a zone", { ...HMAC, not_after: "2026-01-01T00:00:00" }],
  ["a bound that is a number", { ...HMAC, not_before: 0 }],
  ["a bound that is null", { ...HMAC, not_after: null }],
  [
    "bounds in the wrong order",
    { ...HMAC, not_before: "2026-01-02T00:00:00Z", not_after: "2026-01-01T00:00:00Z" },
  ],
  ["a note that is too long", { ...HMAC, note: "n".repeat(201) }],
  ["more than its bytes", JSON.stringify(HMAC) + " ".repeat(KEY_FILE_BYTES)],
];

for (const [name, value] of WRONG) {
  Deno.test(`parseKeyFile() takes no key from ${name}, and quotes nothing`, () => {
    const parsed = parse(value);
    assert(!parsed.ok);
    assert(parsed.why !== "");
    assert(!parsed.why.includes(SECRET) && !parsed.why.includes(PUBLIC.slice(0, 32)));
  });
}

Deno.test("keyName() wants <name>.json by the grammar of ids", () => {
  assertEquals(keyName("laptop-1.json"), "laptop-1");
  for (const file of ["laptop", ".json", "Laptop.json", "a b.json", "k1.json~", ".k1.json"]) {
    assertEquals(keyName(file), null, file);
  }
});

Deno.test("signatureHolds() by the vectors of RFC 8032 and RFC 4231", () => {
  const pair = ed25519Key(PUBLIC);
  assert(pair !== null);
  const nothing = new Uint8Array();
  assert(signatureHolds(pair, nothing, SIG));
  assert(!signatureHolds(pair, new Uint8Array(1), SIG));
  const secret = hmacKey("Jefe");
  const text = new TextEncoder().encode("what do ya want for nothing?");
  const mac = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
  assert(signatureHolds(secret, text, mac));
  for (const wrong of ["", mac.slice(2), mac + "00", mac.toUpperCase(), "zz" + mac.slice(2), SIG]) {
    assert(!signatureHolds(secret, text, wrong), wrong);
  }
});

Deno.test("signatureHolds() refuses a signature that was made malleable", () => {
  const pair = ed25519Key(PUBLIC);
  assert(pair !== null);
  // The same scalar plus the order of the group: the equation holds, the encoding is not canonical.
  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  const bytes = SIG.slice(64).match(/../g) ?? [];
  let scalar = bytes.reduceRight((sum, byte) => (sum << 8n) | BigInt(parseInt(byte, 16)), 0n) +
    order;
  let digits = "";
  for (let i = 0; i < 32; i++, scalar >>= 8n) {
    digits += Number(scalar & 255n).toString(16).padStart(2, "0");
  }
  assert(!signatureHolds(pair, new Uint8Array(), SIG.slice(0, 64) + digits));
});

Deno.test("parseInstant() gives milliseconds, or null for what can be read in two ways", () => {
  assertEquals(parseInstant("1970-01-01T00:00:00.001Z"), 1);
  assertEquals(parseInstant("2024-02-29T23:59:59Z"), Date.UTC(2024, 1, 29, 23, 59, 59));
  for (const wrong of ["2023-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01", "0"]) {
    assertEquals(parseInstant(wrong), null, wrong);
  }
});
