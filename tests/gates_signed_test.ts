/**
 * What is decided about a signed request, with plain values: who may sign what, when, over which
 * bytes; that nothing of the payload counts before its signature holds; and the order of all stages
 * for an agent that signs.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { createHash, generateKeyPairSync } from "node:crypto";
import type { Candidate, GateDeps } from "../src/gates/candidate.ts";
import { decide } from "../src/gates/order.ts";
import { requestDigest } from "../src/ledger/keys.ts";
import type { Row } from "../src/ledger/types.ts";
import { parseKeyFile, type SigningKey } from "../src/request/key_file.ts";
import type { Claim, Look } from "../src/spool/types.ts";
import { envelopeOf, payloadOf, type Signer, signText } from "./helpers/signing.ts";
import { valid } from "./policy_fixture.ts";
import { FILE } from "./helpers/looks.ts";

/** Now, and the arrival of every request, unless a test says otherwise. */
const NOW = Date.UTC(2026, 0, 31, 12);
const WINDOW_S = 300;

const PAIR = generateKeyPairSync("ed25519");
const PUBLIC = PAIR.publicKey.export({ type: "spki", format: "der" }).subarray(-32).toString("hex");
const SECRET = "0123456789abcdef".repeat(4);

const HMAC: Signer = { key: "laptop-1", alg: "hmac-sha256", agent: "main", secret: SECRET };
const ED: Signer = { key: "pair-1", alg: "ed25519", agent: "main", secret: PAIR.privateKey };

function keyOf(name: string, file: Record<string, unknown>): SigningKey {
  const parsed = parseKeyFile(name, new TextEncoder().encode(JSON.stringify(file)));
  assert(parsed.ok, parsed.ok ? "" : parsed.why);
  return parsed.key;
}

const at = (ms: number) => new Date(ms).toISOString();
const hmac = (more: Record<string, unknown> = {}) => ({
  alg: "hmac-sha256",
  agent: "main",
  secret: SECRET,
  ...more,
});

const KEYS: readonly SigningKey[] = [
  keyOf("laptop-1", hmac()),
  keyOf("laptop-2", hmac({ secret: "f".repeat(32) })),
  keyOf("pair-1", { alg: "ed25519", agent: "main", public: PUBLIC }),
  keyOf("theirs", hmac({ agent: "other" })),
  keyOf("begins", hmac({ not_before: at(NOW) })),
  keyOf("begins-later", hmac({ not_before: at(NOW + 1) })),
  keyOf("ends", hmac({ not_after: at(NOW) })),
  keyOf("ended", hmac({ not_after: at(NOW - 1) })),
];

const POLICY = valid({
  agents: {
    main: { verbs: ["show", "free"], scope: "mutating", auth: "signed" },
    other: { verbs: ["show"], auth: "signed" },
  },
  verbs: {
    show: {
      class: "mutating",
      argv: ["/usr/bin/true", "{word}"],
      args: { word: { type: "enum", values: ["a", "b"] } },
      timeout_s: 5,
    },
    free: { class: "destructive", argv: ["/usr/bin/true"], timeout_s: 5, approval: "never" },
  },
  limits: { max_age_s: 60 },
});

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

interface Given {
  readonly id?: string | null;
  readonly agent?: string;
  readonly arrival_ms?: number;
  readonly now_ms?: number;
  readonly deps?: Partial<GateDeps>;
  readonly look?: Partial<Look>;
}

/** What is decided about a file: `reason at stage`, or the kind of the decision. */
function decided(file: unknown, given: Given = {}): string {
  const text = typeof file === "string" ? file : JSON.stringify(file);
  const bytes = new TextEncoder().encode(text);
  const id = given.id === undefined ? "r1" : given.id;
  const agent = given.agent ?? "main";
  const deps: GateDeps = {
    policy: POLICY,
    limits: POLICY.limits,
    agentPolicy: (name) => POLICY.agents.get(name) ?? null,
    owners: () => "any",
    kill: () => null,
    objectRefusal: (look) => look.kind === "file" ? null : "no file",
    read: () => ({ kind: "bytes", bytes }),
    sha256,
    signingKey: (owner, name) =>
      KEYS.find((key) => key.name === name && key.agent === owner) ?? null,
    carriedOut: () => false,
    requestDigest,
    rowById: () => null,
    rowByKey: () => null,
    countIds: () => 1,
    tick: () => 0,
    starts: () => 0,
    startTick: () => null,
    spent: () => ({ spent: 0n, held: 0n, blocked: false }),
    waiting: () => 0,
    granted: () => true,
    baseChanged: () => null,
    pathArgs: () => null,
    ...given.deps,
  };
  const claim: Claim = {
    agent,
    name: id === null ? "No Name" : `${id}.json`,
    id,
    path: "work/main/claims/x",
    random: "0".repeat(32),
    arrival_ms: given.arrival_ms ?? NOW,
    look: { ...FILE, ...given.look },
  };
  const candidate: Candidate = { claim, now_ms: given.now_ms ?? NOW };
  const decision = decide(candidate, deps);
  if (decision.kind !== "refused") {
    assert(candidate.signed !== undefined, "nothing held");
    return decision.kind;
  }
  const { reason, stage, message, hint } = decision.refusal;
  assert(!message.includes(SECRET) && !hint.includes(SECRET));
  return `${reason} at ${stage}`;
}

const SHOW = { verb: "show", args: { word: "a" } };
const payload = (request: Record<string, unknown> = SHOW, created_ms = NOW, id = "r1") =>
  payloadOf("main", id, request, created_ms);
const signed = (text = payload(), signer = HMAC) => envelopeOf(signer, text);
/** An envelope whose signature is by this key, as it calls itself. */
const by = (key: string, text = payload()) => envelopeOf({ ...HMAC, key }, text);

const UNAUTHENTICATED = "unauthenticated at auth";

const ROWS: readonly (readonly [name: string, file: unknown, decided: string, given?: Given])[] = [
  ["an HMAC by a key of this agent", signed(), "accepted"],
  ["an Ed25519 signature by a key of this agent", signed(payload(), ED), "accepted"],
  ["a signed built-in verb", signed(payload({ verb: "bridge.ping" })), "builtin"],
  [
    "a payload longer than one string may be",
    signed(payload({ ...SHOW, note: "n".repeat(8000), plan: "p".repeat(8000) })),
    "accepted",
  ],
  [
    "a string in the payload longer than one may be",
    signed(payload({ ...SHOW, note: "n".repeat(8193) })),
    "malformed at parse",
  ],
  [
    "a payload that other escapes spell in the envelope",
    JSON.stringify(signed()).replace("show", "\\u0073how").replace("{", "{ "),
    "accepted",
  ],
  // Who.
  ["an unsigned request", SHOW, UNAUTHENTICATED],
  ["an unsigned request with whatever else", { verb: 1, "?": null }, UNAUTHENTICATED],
  ["a key that nobody has", by("nobody"), UNAUTHENTICATED],
  ["a key of another agent", by("theirs"), UNAUTHENTICATED],
  ["another key of this agent than the one named", by("laptop-2"), UNAUTHENTICATED],
  [
    "a payload for another agent",
    signed(payloadOf("other", "r1", SHOW, NOW)),
    UNAUTHENTICATED,
  ],
  [
    "the own payload and key in another agent's queue",
    signed(),
    UNAUTHENTICATED,
    { agent: "other" },
  ],
  // By which algorithm.
  [
    "an HMAC with the text of a public key as its secret",
    { ...envelopeOf({ ...HMAC, key: "pair-1", secret: PUBLIC }, payload()) },
    UNAUTHENTICATED,
  ],
  [
    "the same that calls itself Ed25519",
    envelopeOf({ ...HMAC, key: "pair-1", secret: PUBLIC }, payload(), { alg: "ed25519" }),
    UNAUTHENTICATED,
  ],
  [
    "a signature that holds and names the other algorithm",
    envelopeOf(ED, payload(), { alg: "hmac-sha256" }),
    UNAUTHENTICATED,
  ],
  [
    "an HMAC that calls itself Ed25519",
    envelopeOf(HMAC, payload(), { alg: "ed25519" }),
    UNAUTHENTICATED,
  ],
  ["no algorithm", envelopeOf(HMAC, payload(), { alg: "none" }), "schema at schema"],
  [
    "an algorithm in other letters",
    envelopeOf(HMAC, payload(), { alg: "HMAC-SHA256" }),
    "schema at schema",
  ],
  // When, by the key; both bounds are included.
  ["a key that begins now", by("begins"), "accepted"],
  ["a key that begins in a millisecond", by("begins-later"), UNAUTHENTICATED],
  ["a key that ends now", by("ends"), "accepted"],
  ["a key that ended a millisecond ago", by("ended"), UNAUTHENTICATED],
  [
    "a key that ended since the request arrived",
    by("ends"),
    UNAUTHENTICATED,
    { now_ms: NOW + 1 },
  ],
  // When, by the request; both ends of the window are included.
  ["the oldest that is taken", signed(payload(SHOW, NOW - WINDOW_S * 1000)), "accepted"],
  [
    "one a millisecond older",
    signed(payload(SHOW, NOW - WINDOW_S * 1000 - 1)),
    "stale-signature at replay",
  ],
  ["the newest that is taken", signed(payload(SHOW, NOW + WINDOW_S * 1000)), "accepted"],
  [
    "one a millisecond newer",
    signed(payload(SHOW, NOW + WINDOW_S * 1000 + 1)),
    "stale-signature at replay",
  ],
  [
    "one that waited in the queue: its arrival counts",
    signed(payload(SHOW, NOW - WINDOW_S * 1000)),
    "accepted",
    { now_ms: NOW + 50_000 },
  ],
  // What the text is, once it is known whose it is.
  ["text that is no JSON", signed("verb"), "malformed at parse"],
  [
    "text with a repeated key",
    signed(payload().replace("{", '{"verb":"x",')),
    "malformed at parse",
  ],
  ["text with a byte order mark", signed("\ufeff" + payload()), "malformed at parse"],
  ["an envelope in an envelope", signed(JSON.stringify(signed())), "schema at schema"],
  ["a field that is unknown", signed(payload({ ...SHOW, wrong: 1 })), "schema at schema"],
  ["an array", signed("[]"), "schema at schema"],
  ["the id of another file", signed(payload(SHOW, NOW, "r2")), "schema at schema"],
  ["what no policy gives", signed(payload({ verb: "exec" })), "denied-verb at denial"],
  // The envelope.
  ["no payload", { auth: signed().auth }, "schema at schema"],
  ["no auth", { payload: payload() }, "schema at schema"],
  ["an empty payload", { ...signed(), payload: "" }, "schema at schema"],
  ["a payload that is an object", { ...signed(), payload: SHOW }, "schema at schema"],
  ["a field beside them", { ...signed(), verb: "show" }, "schema at schema"],
  ["a field in auth", envelopeOf(HMAC, payload(), { nonce: 1 }), "schema at schema"],
  ["auth that is an array", { ...signed(), auth: [] }, "schema at schema"],
  ["a key name outside the grammar", by("../laptop-1"), "schema at schema"],
  [
    "a signature in capitals",
    envelopeOf(HMAC, payload(), {
      sig: signText(HMAC, payload()).toUpperCase(),
    }),
    "schema at schema",
  ],
  [
    "a signature cut short",
    envelopeOf(HMAC, payload(), {
      sig: signText(HMAC, payload()).slice(2),
    }),
    "schema at schema",
  ],
  [
    "a signature as long as the other algorithm's",
    envelopeOf(HMAC, payload(), {
      sig: signText(HMAC, payload()).repeat(2),
    }),
    UNAUTHENTICATED,
  ],
  ["an array instead", [signed()], "schema at schema"],
  ["a file that is no JSON", "verb", "malformed at parse"],
];

for (const [name, file, expected, given] of ROWS) {
  Deno.test(`decide() answers ${expected} to ${name}`, () => {
    assertEquals(decided(file, given), expected);
  });
}

for (const field of ["id", "agent", "created_at"]) {
  Deno.test(`decide() wants ${field} in a signed payload`, () => {
    const all: Record<string, unknown> = JSON.parse(payload());
    delete all[field];
    assertEquals(decided(signed(JSON.stringify(all))), "schema at schema");
  });
}

Deno.test("decide() takes created_at in one form only", () => {
  const text = (created_at: unknown) =>
    signed(JSON.stringify({ ...JSON.parse(payload()), created_at }));
  for (const right of ["2026-01-31T12:00:00Z", "2026-01-31T11:59:59.999Z"]) {
    assertEquals(decided(text(right)), "accepted", right);
  }
  for (
    const wrong of [
      "2026-01-31T12:00:00",
      "2026-01-31T12:00:00+00:00",
      "2026-01-31t12:00:00z",
      "2026-01-31 12:00:00Z",
      "2026-01-31T12:00Z",
      "2026-01-31T12:00:00.1Z",
      "2026-01-31T12:00:60Z",
      "2026-01-30T24:00:00Z",
      "2026-02-30T12:00:00Z",
      "2026-01-31T12:00:00Z\n",
      "+002026-01-31T12:00:00Z",
      "",
      NOW,
      null,
      [at(NOW)],
    ]
  ) assertEquals(decided(text(wrong)), "schema at schema", String(wrong));
});

for (const signer of [HMAC, ED]) {
  Deno.test(`decide() refuses each changed byte of a payload and of its signature (${signer.alg})`, () => {
    const text = payload({ ...SHOW, note: "\u00e9\u2028\ud83d\ude00" });
    const whole = envelopeOf(signer, text);
    assertEquals(decided(whole), "accepted");
    const units = [...text];
    for (const i of units.keys()) {
      const changed = units.with(i, units[i] === "x" ? "y" : "x").join("");
      assertEquals(decided({ ...whole, payload: changed }), UNAUTHENTICATED, `unit ${i}`);
      const cut = units.toSpliced(i, 1).join("");
      assertEquals(decided({ ...whole, payload: cut }), UNAUTHENTICATED, `without ${i}`);
    }
    for (const more of [" ", "\n", "\u00a0", "\u200b"]) {
      assertEquals(decided({ ...whole, payload: text + more }), UNAUTHENTICATED);
      assertEquals(decided({ ...whole, payload: more + text }), UNAUTHENTICATED);
    }
    // Text that means the same, and text that looks the same, are other bytes.
    assertEquals(
      decided({ ...whole, payload: JSON.stringify(JSON.parse(text), null, 1) }),
      UNAUTHENTICATED,
    );
    assertEquals(
      decided({ ...whole, payload: text.replace("\u00e9", "e\u0301") }),
      UNAUTHENTICATED,
    );
    const sig = String(whole.auth["sig"]);
    for (let i = 0; i < sig.length; i++) {
      const digit = (parseInt(sig[i] ?? "0", 16) ^ 1).toString(16);
      const changed = sig.slice(0, i) + digit + sig.slice(i + 1);
      assertEquals(
        decided({ ...whole, auth: { ...whole.auth, sig: changed } }),
        UNAUTHENTICATED,
        `digit ${i}`,
      );
    }
  });
}

/** A row that the ledger has. */
function rowOf(more: Partial<Row>): Row {
  const digest = requestDigest({ verb: "show", args: { word: "a" }, scope: null, max_spend: null });
  return {
    rid: 1,
    agent: "main",
    id: "r1",
    key: "r1",
    digest,
    request_sha256: "another file",
    verb: "show",
    state: "done",
    ...more,
  } as Partial<Row> as Row;
}

Deno.test("decide() asks the ledger before it judges the age of a signature", () => {
  const old = payload(SHOW, NOW - 3_600_000);
  const known: Given = { deps: { rowById: () => rowOf({}) } };
  assertEquals(decided(signed(old), known), "replay");
  assertEquals(
    decided(signed(old), { deps: { ...known.deps, carriedOut: () => true } }),
    "replay",
  );
  const other = payload({ verb: "show", args: { word: "b" } }, NOW - 3_600_000);
  assertEquals(decided(signed(other), known), "key-conflict at replay");
});

Deno.test("decide() lets a signed request join a row only within the window, and once", () => {
  const deps: Partial<GateDeps> = { rowByKey: () => rowOf({ id: "r0", key: "k" }) };
  const request = { ...SHOW, idempotency_key: "k" };
  assertEquals(decided(signed(payload(request)), { deps }), "replay");
  assertEquals(
    decided(signed(payload(request, NOW - 3_600_000)), { deps }),
    "stale-signature at replay",
  );
  assertEquals(
    decided(signed(payload(request)), { deps: { ...deps, carriedOut: () => true } }),
    "replayed-request at replay",
  );
});

Deno.test("Q1 decide() never carries out again what was carried out, under whatever name", () => {
  const text = payload();
  const asked: string[][] = [];
  const deps: Partial<GateDeps> = {
    carriedOut: (agent, digest) => {
      asked.push([agent, digest]);
      return digest === sha256(new TextEncoder().encode(text));
    },
  };
  assertEquals(decided(signed(text), { deps }), "replayed-request at replay");
  assertEquals(decided(signed(text), { deps, id: "r2" }), "replayed-request at replay");
  // Signed by another key, or by the same in another envelope, they are the same bytes.
  assertEquals(decided(signed(text, ED), { deps }), "replayed-request at replay");
  assertEquals(decided(signed(payload(SHOW, NOW + 1)), { deps }), "accepted");
  assert(asked.every(([agent]) => agent === "main"));
  // Whoever cannot sign learns nothing of it.
  assertEquals(decided({ ...signed(text), auth: by("theirs").auth }, { deps }), UNAUTHENTICATED);
});

/** Each stage, and what breaks it, in the order for an agent that signs. */
const BREAKS = [
  "kill",
  "object",
  "name",
  "read",
  "parse",
  "schema",
  "auth",
  "payload parse",
  "payload schema",
  "fresh",
  "replay",
  "denial",
  "allow",
  "args",
  "scope",
  "rate",
  "base",
] as const;

function answering(...broken: readonly (typeof BREAKS)[number][]): string {
  const has = (name: (typeof BREAKS)[number]) => broken.includes(name);
  const verb = has("denial") ? "exec" : has("allow") ? "nothing" : has("scope") ? "free" : "show";
  const args = has("args") ? { word: "c" } : verb === "show" ? { word: "a" } : {};
  const request = { verb, args, ...(has("payload schema") ? { wrong: 1 } : {}) };
  let text = payload(request, has("replay") ? NOW - 3_600_000 : NOW);
  if (has("payload parse")) text = text.replace("{", '{"verb":"x",');
  const envelope = {
    ...signed(text),
    ...(has("auth") ? { auth: by("nobody", text).auth } : {}),
    ...(has("schema") ? { wrong: 1 } : {}),
  };
  const file = JSON.stringify(envelope);
  return decided(has("parse") ? file.replace("{", '{"payload":"",') : file, {
    id: has("name") ? null : "r1",
    ...(has("object") ? { look: { kind: "symlink" } } : {}),
    now_ms: has("fresh") ? NOW + 120_000 : NOW,
    deps: {
      kill: () => has("kill") ? "KILL" : null,
      ...(has("read")
        ? { read: () => ({ kind: "refused", reason: "not-regular", detail: "sealed" }) }
        : {}),
      waiting: () => has("rate") ? POLICY.limits.waiting : 0,
      baseChanged: () => has("base") ? "/usr/bin/true" : null,
    },
  }).replace(/.* at /, "");
}

Deno.test("decide() answers a signed request from the earlier of any two stages", () => {
  assertEquals(answering(), "accepted");
  const stage = (name: string) => name.replace("payload ", "");
  for (const [i, earlier] of BREAKS.entries()) {
    assertEquals(answering(earlier), stage(earlier), earlier);
    for (const later of BREAKS.slice(i + 1)) {
      // Poison goes on to the stage that removes it while the switch is up.
      if (earlier === "kill" && (later === "object" || later === "name")) continue;
      assertEquals(answering(earlier, later), stage(earlier), `${earlier} and ${later}`);
    }
  }
});
