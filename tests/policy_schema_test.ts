/** The printed schemas against the program: what one takes, the other takes. */
import { assert, assertEquals } from "@std/assert";
import { CODES } from "../src/codes.ts";
import { coded, refusalResult, type Result } from "../src/result.ts";
import { GENESIS, recordLine } from "../src/audit/chain.ts";
import { parseRequest, REQUEST_FIELDS } from "../src/request/parse_request.ts";
import type { Json } from "../src/request/request.ts";
import { schemas } from "../src/policy/schema.ts";
import { validate } from "./json_schema.ts";
import { changed, parseObject, sample } from "./policy_fixture.ts";

Deno.test("schemas() has every format, each complete and of one dialect", () => {
  const all = schemas();
  assertEquals(Object.keys(all), [
    "policy",
    "request",
    "envelope",
    "result",
    "status",
    "catalogue",
    "message",
    "audit-record",
  ]);
  const ids = new Set<unknown>();
  for (const schema of Object.values(all)) {
    assertEquals(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assertEquals(schema["type"], "object");
    ids.add(schema["$id"]);
    // Throws on a keyword that the validator does not know.
    validate(schema, {});
  }
  assertEquals(ids.size, 8);
});

Deno.test("the policy schema takes the sample, and every value that the parser takes", () => {
  const { policy } = schemas();
  assertEquals(validate(policy, sample()), []);
  const values = [
    null,
    true,
    0,
    1,
    -1,
    0.5,
    2 ** 40,
    "",
    "x",
    "mutating",
    "/srv",
    "base/x",
    [],
    {},
  ];
  const paths = (value: unknown, path: (string | number)[]): (string | number)[][] => {
    if (typeof value !== "object" || value === null) return [path];
    return [
      ...(path.length === 0 ? [] : [path]),
      ...Object.entries(value).flatMap(([key, item]) =>
        paths(item, [...path, Array.isArray(value) ? Number(key) : key])
      ),
    ];
  };
  let both = 0;
  for (const [index, at] of paths(sample(), []).entries()) {
    for (const value of values.filter((_, which) => which % 3 === index % 3)) {
      const policyValue = changed([at, value]);
      const parsed = parseObject(policyValue);
      const wrong = validate(policy, policyValue);
      // The parser knows more rules than a schema can say, so only one direction is certain.
      if (parsed.ok) {
        both++;
        assertEquals(wrong, [], `${at.join(".")} = ${JSON.stringify(value)}`);
      }
    }
  }
  assert(both > 50, `only ${both} changes were valid`);
});

Deno.test("the policy schema refuses what is about one value alone", () => {
  const { policy } = schemas();
  for (
    const [at, value] of [
      [["agents"], {}],
      [["agents", "main", "scope"], "mutate"],
      [["agents", "Main"], { verbs: [] }],
      [["agents", "main", "extra"], 1],
      [["verbs", "restart", "class"], undefined],
      [["verbs", "restart", "timeout_s"], 0],
      [["verbs", "restart", "args", "service", "type"], "enumm"],
      [["verbs", "restart", "args", "service", "values"], []],
      [["verbs", "restart", "args", "service", "min"], 1],
      [["verbs", "restart", "requires"], ["/etc/passwd"]],
      [["limits", "depth"], 17],
      [["limits", "grace_s"], 0.01],
      [["env"], { "A-B": "x" }],
      [["redact"], ["abc"]],
      [["redact"], ["abcd", "abcd"]],
      [["on_stop"], "stop"],
    ] as const
  ) {
    const wrong = validate(policy, changed([at, value]));
    assert(wrong.length > 0, `took ${at.join(".")} = ${JSON.stringify(value)}`);
    assert(!parseObject(changed([at, value])).ok);
  }
});

/** Requests, valid and not. The parser and the schema have to say the same of each. */
const REQUESTS: readonly Json[] = [
  { verb: "ps" },
  { verb: "ps", args: {} },
  {
    verb: "restart",
    args: { service: "web" },
    id: "r1",
    idempotency_key: "k-1",
    timeout_s: 0.5,
    max_age_s: 3600,
    scope: "mutating",
    max_spend: 0,
    plan: "do it",
    note: "why",
    chb: 1,
  },
  {},
  { verb: "" },
  { verb: ["ps"] },
  { verb: "ps", args: [] },
  { verb: "ps", args: null },
  { verb: "ps", id: "R1" },
  { verb: "ps", idempotency_key: "" },
  { verb: "ps", idempotency_key: "a".repeat(128) },
  { verb: "ps", idempotency_key: "a".repeat(129) },
  { verb: "ps", timeout_s: 0 },
  { verb: "ps", timeout_s: "5" },
  { verb: "ps", max_age_s: -1 },
  { verb: "ps", scope: "write" },
  { verb: "ps", max_spend: -0.1 },
  { verb: "ps", plan: 5 },
  { verb: "ps", note: "x".repeat(8192) },
  { verb: "ps", note: "x".repeat(8193) },
  { verb: "ps", chb: 2 },
  { verb: "ps", verbs: "x" },
  null,
  [],
  "ps",
];

Deno.test("the request schema and the request parser agree", () => {
  const { request } = schemas();
  for (const value of REQUESTS) {
    const fits = validate(request, value).length === 0;
    assertEquals(fits, parseRequest(value, { id: "r1" }).ok, JSON.stringify(value).slice(0, 80));
  }
  const properties = request["properties"];
  assert(typeof properties === "object" && properties !== null);
  assertEquals(Object.keys(properties).sort(), [...REQUEST_FIELDS].sort());
});

Deno.test("the envelope schema wants payload and auth, and nothing else", () => {
  const { envelope } = schemas();
  const auth = { alg: "ed25519", key: "laptop-1", sig: "0f".repeat(32) };
  assertEquals(validate(envelope, { payload: "{}", auth }), []);
  for (
    const wrong of [
      { payload: "{}" },
      { auth },
      { payload: {}, auth },
      { payload: "{}", auth, verb: "ps" },
      { payload: "{}", auth: { ...auth, alg: "none" } },
      { payload: "{}", auth: { ...auth, sig: "0F".repeat(32) } },
      { payload: "{}", auth: { ...auth, sig: "00ff" } },
    ]
  ) assert(validate(envelope, wrong).length > 0, JSON.stringify(wrong));
});

const OUTPUT = {
  head: "x",
  tail: "",
  bytes: 1,
  dropped_bytes: 0,
  replaced_bytes: 0,
  file: "r1.stdout",
  complete: true,
};

const FULL: Result = {
  chb: 1,
  id: "r1",
  agent: "main",
  state: "done",
  ...coded("ok"),
  stage: "start",
  verb: "ps",
  idempotency_key: "r1",
  request_sha256: "0".repeat(64),
  exit_code: 0,
  signal: null,
  attempt: 1,
  received_at: "2026-01-02T03:04:05.678Z",
  started_at: "2026-01-02T03:04:05.678Z",
  finished_at: "2026-01-02T03:04:05.678Z",
  duration_ms: 12.5,
  stdout: OUTPUT,
  stderr: { ...OUTPUT, file: null },
  replays: 0,
  audit: { seq: 5, hash: "a".repeat(64) },
};

Deno.test("the result schema takes results of every state and code", () => {
  const { result } = schemas();
  assertEquals(validate(result, FULL), []);
  for (const { code, reason, outcome, next } of CODES) {
    const state = outcome === null ? "uncertain" : "done";
    const value = { ...FULL, state, code, reason, next, ...(outcome === null ? {} : { outcome }) };
    if (outcome === null) {
      const { outcome: _, ...uncertain } = value;
      assertEquals(validate(result, uncertain), [], reason);
    } else assertEquals(validate(result, value), [], reason);
  }
  const refusal = { stage: "args", reason: "bad-args", message: "m", hint: "h" } as const;
  assertEquals(validate(result, refusalResult("main", "r1", refusal)), []);
  const { id: _, ...nameless } = refusalResult("main", "", refusal);
  assertEquals(validate(result, { ...nameless, n: 3, name: "x\\u000a" }), []);
  const waiting = { chb: 1, id: "r1", agent: "main", state: "pending", next: "wait" };
  assertEquals(validate(result, { ...waiting, waiting_for: "slot", poll_after_ms: 500 }), []);
});

Deno.test("the result schema refuses results that contradict themselves", () => {
  const { result } = schemas();
  const wrong: readonly Record<string, unknown>[] = [
    { ...FULL, extra: 1 },
    { ...FULL, state: "finished" },
    { ...FULL, code: 1 },
    { ...FULL, reason: "bad-args" },
    { ...FULL, next: "wait" },
    { ...FULL, outcome: "failed" },
    { ...FULL, outcome: undefined, state: "pending", code: 0 },
    { ...FULL, state: "running" },
    { ...FULL, id: "R1" },
    { ...FULL, n: 3, name: "x" },
    { ...FULL, received_at: "2026-01-02T03:04:05Z" },
    { ...FULL, stdout: { ...OUTPUT, file: "../x" } },
    { ...FULL, stdout: { head: "x" } },
    { ...FULL, exit_code: "0" },
    { chb: 1, agent: "main", state: "pending", next: "wait" },
  ];
  for (const value of wrong) {
    assert(validate(result, value).length > 0, JSON.stringify(value).slice(0, 120));
  }
});

Deno.test("the audit schema takes a line as the chain writes it", () => {
  const schema = schemas()["audit-record"];
  const { line } = recordLine(
    { event: "accepted", agent: "main", id: "r1", claim: "0".repeat(32), uid: 5 },
    1,
    1_767_323_045_678,
    GENESIS,
  );
  assertEquals(validate(schema, JSON.parse(line)), []);
  assert(validate(schema, { ...JSON.parse(line), seq: 0 }).length > 0);
  assert(validate(schema, { ...JSON.parse(line), hash: "x" }).length > 0);
});

Deno.test("the message schema takes a message and refuses one without number or text", () => {
  const { message } = schemas();
  const fine = {
    chb: 1,
    n: 1,
    at: "2026-01-02T03:04:05.678Z",
    from: "me",
    text: "hello",
    ask: true,
  };
  assertEquals(validate(message, fine), []);
  assert(validate(message, { ...fine, n: 0 }).length > 0);
  assert(validate(message, { ...fine, text: undefined }).length > 0);
});
