/**
 * The gates that weigh a request: for each what it lets through, what it refuses, and what sits
 * exactly on the limit. Leaving a field out never widens anything.
 *
 * @module
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import type { Candidate, GateDeps } from "../src/gates/candidate.ts";
import { decide } from "../src/gates/order.ts";
import { grantFor } from "../src/gates/spend.ts";
import { requestDigest } from "../src/ledger/keys.ts";
import {
  amountNumber,
  amountText,
  ceilAmount,
  floorAmount,
  parseReport,
} from "../src/policy/amount.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import { CLASSES, type Policy } from "../src/policy/policy.ts";
import type { Claim } from "../src/spool/types.ts";

/** A policy with one verb of each class and kind; `scope` null leaves the agent's out. */
function policyWith(
  more: Record<string, unknown> = {},
  scope: string | null = "destructive",
): Policy {
  const verb = (cls: string, extra: Record<string, unknown> = {}) => ({
    class: cls,
    argv: ["/usr/bin/true"],
    timeout_s: 60,
    approval: "never",
    ...extra,
  });
  const verbs = {
    observe: verb("observe"),
    mutating: verb("mutating"),
    destructive: verb("destructive"),
    paid: verb("observe", { cost: 2.5 }),
    metered: verb("observe", { argv: ["/usr/bin/true", "{max_spend}"] }),
    asked: verb("observe", { approval: "always" }),
    planned: verb("observe", { approval: "when-planned" }),
    typed: verb("observe", {
      argv: ["/usr/bin/true", "{n}"],
      args: { n: { type: "integer", min: 2, max: 5 } },
    }),
  };
  const parsed = parsePolicy(
    new TextEncoder().encode(JSON.stringify({
      agents: {
        main: { verbs: Object.keys(verbs), ...(scope === null ? {} : { scope }) },
      },
      verbs,
      limits: {
        spend: { per_request: 5, per_day: 20 },
        rate: { mutating: { max: 3, per_s: 10 } },
        max_age_s: 60,
        waiting: 4,
      },
      ...more,
    })),
  );
  assert(parsed.ok, JSON.stringify(parsed));
  return parsed.policy;
}

interface World {
  readonly policy?: Policy;
  readonly now_ms?: number;
  readonly waiting?: number;
  /** Ticks of starts of the class `mutating`. */
  readonly starts?: readonly number[];
  readonly tick?: number;
  readonly spent?: number;
  readonly held?: number;
  readonly blocked?: boolean;
  readonly kill?: string;
}

/** What the gates make of a request: `accepted`, `waits` for a human, or reason and stage. */
function judge(request: Record<string, unknown>, world: World = {}): string {
  const policy = world.policy ?? policyWith();
  const bytes = new TextEncoder().encode(JSON.stringify(request));
  const starts = (since: number) => (world.starts ?? []).filter((tick) => tick > since).sort();
  const none = () => {
    throw new Error("not asked for here");
  };
  const deps = {
    policy,
    limits: policy.limits,
    agentPolicy: (agent: string) => policy.agents.get(agent) ?? null,
    owners: () => "any" as const,
    kill: () => world.kill ?? null,
    objectRefusal: () => null,
    read: () => ({ kind: "bytes" as const, bytes }),
    sha256: () => "0".repeat(64),
    requestDigest,
    rowById: () => null,
    rowByKey: () => null,
    countIds: () => 1,
    tick: () => world.tick ?? 0,
    starts: (_agent: string, cls: string, since: number) =>
      cls === "mutating" ? starts(since).length : 0,
    startTick: (_agent: string, _cls: string, since: number, n: number) => starts(since)[n] ?? null,
    spent: () => ({
      spent: floorAmount(world.spent ?? 0),
      held: floorAmount(world.held ?? 0),
      blocked: world.blocked ?? false,
    }),
    waiting: () => world.waiting ?? 0,
    granted: () => true,
    baseChanged: () => null,
    pathArgs: () => null,
    key: none,
    signed: none,
  } as unknown as GateDeps;
  const claim: Claim = {
    agent: "main",
    name: "r1.json",
    id: "r1",
    path: "work/main/claims/x",
    random: "0".repeat(32),
    arrival_ms: 0,
    look: {
      kind: "file",
      dev: "1",
      ino: "2",
      nlink: 1,
      uid: 1000,
      size: bytes.length,
      ctime_ms: 0,
      mtime_ms: 0,
      mode: 0o600,
    },
  };
  const candidate: Candidate = { claim, now_ms: world.now_ms ?? 0 };
  const decision = decide(candidate, deps);
  if (decision.kind === "refused") {
    const { stage, reason, retry_after_ms } = decision.refusal;
    return `${reason} at ${stage}${retry_after_ms === undefined ? "" : ` for ${retry_after_ms}`}`;
  }
  if (decision.kind === "accepted" && candidate.needs_approval === true) return "waits";
  return decision.kind;
}

const SPEND = "spend-exceeded at spend";
const SCOPE = "scope-exceeded at scope";

const TABLE: readonly (readonly [string, Record<string, unknown>, World, string])[] = [
  ["kill down", { verb: "observe" }, {}, "accepted"],
  ["kill up", { verb: "observe" }, { kill: "KILL.main" }, "killed at kill"],
  ["kill up, built-in", { verb: "bridge.ping" }, { kill: "KILL" }, "killed at kill"],
  ["fresh: on the limit", { verb: "observe" }, { now_ms: 60_000 }, "accepted"],
  ["fresh: past it", { verb: "observe" }, { now_ms: 60_001 }, "expired at fresh"],
  ["fresh: own limit", { verb: "observe", max_age_s: 5 }, { now_ms: 5000 }, "accepted"],
  ["fresh: past its own", { verb: "observe", max_age_s: 5 }, { now_ms: 5001 }, "expired at fresh"],
  [
    "fresh: own limit widens nothing",
    { verb: "observe", max_age_s: 999 },
    { now_ms: 60_001 },
    "expired at fresh",
  ],
  ["fresh: time set back", { verb: "observe" }, { now_ms: -3_600_000 }, "accepted"],
  ["args: lowest", { verb: "typed", args: { n: 2 } }, {}, "accepted"],
  ["args: highest", { verb: "typed", args: { n: 5 } }, {}, "accepted"],
  ["args: below", { verb: "typed", args: { n: 1 } }, {}, "bad-args at args"],
  ["args: above", { verb: "typed", args: { n: 6 } }, {}, "bad-args at args"],
  ["args: left out", { verb: "typed" }, {}, "bad-args at args"],
  ["allow: built-in", { verb: "bridge.ping" }, {}, "builtin"],
  ["allow: unknown", { verb: "observes" }, {}, "unknown-verb at allow"],
  ["denial", { verb: "sh" }, {}, "denied-verb at denial"],
  ["waiting: one below", { verb: "observe" }, { waiting: 3 }, "accepted"],
  ["waiting: on the limit", { verb: "observe" }, { waiting: 4 }, "busy at rate for 1000"],
  ["rate: one below", { verb: "mutating" }, { tick: 9000, starts: [1, 2] }, "accepted"],
  [
    "rate: on the limit",
    { verb: "mutating" },
    { tick: 9000, starts: [1, 2, 3] },
    "rate-limited at rate for 1001",
  ],
  [
    "rate: the last moment of the oldest start",
    { verb: "mutating" },
    { tick: 10_000, starts: [1, 2, 3] },
    "rate-limited at rate for 1",
  ],
  ["rate: it has left", { verb: "mutating" }, { tick: 10_001, starts: [1, 2, 3] }, "accepted"],
  [
    "rate: above the limit waits for as many as are too many",
    { verb: "mutating" },
    { tick: 9000, starts: [1, 2, 3, 4, 5] },
    "rate-limited at rate for 1003",
  ],
  ["rate: another class", { verb: "observe" }, { tick: 9000, starts: [1, 2, 3] }, "accepted"],
  ["spend: the day to the last", { verb: "paid" }, { spent: 17.5 }, "accepted"],
  ["spend: a billionth more", { verb: "paid" }, { spent: 17.500000001 }, SPEND],
  ["spend: what waits counts", { verb: "paid" }, { spent: 15, held: 2.5 }, "accepted"],
  ["spend: and not only what ran", { verb: "paid" }, { spent: 15, held: 2.6 }, SPEND],
  ["spend: blocked", { verb: "paid" }, { blocked: true }, SPEND],
  ["spend: blocked, and nothing spent", { verb: "observe" }, { blocked: true }, "accepted"],
  ["spend: own limit", { verb: "paid", max_spend: 2.5 }, {}, "accepted"],
  ["spend: below its own", { verb: "paid", max_spend: 2.4 }, {}, SPEND],
  ["spend: metered, day to the last", { verb: "metered" }, { spent: 15 }, "accepted"],
  ["spend: metered, over", { verb: "metered" }, { spent: 15.1 }, SPEND],
  ["spend: metered, narrowed", { verb: "metered", max_spend: 4.9 }, { spent: 15.1 }, "accepted"],
  ["spend: metered, no wider", { verb: "metered", max_spend: 99 }, { spent: 15.1 }, SPEND],
  ["spend: nothing", { verb: "metered", max_spend: 0 }, { spent: 20 }, "accepted"],
  ["approval: never", { verb: "observe", plan: "p" }, {}, "accepted"],
  ["approval: always", { verb: "asked" }, {}, "waits"],
  ["approval: planned", { verb: "planned", plan: "." }, {}, "waits"],
  ["approval: an empty plan", { verb: "planned", plan: "" }, {}, "schema at approval"],
  ["approval: a blank plan", { verb: "planned", plan: " \n\u200b" }, {}, "schema at approval"],
  ["approval: no plan", { verb: "planned" }, {}, "schema at approval"],
];

for (const [name, request, world, want] of TABLE) {
  Deno.test(`decide(), ${name}: ${want}`, () => assertEquals(judge(request, world), want));
}

Deno.test("scope: request, agent and verb narrow each other, and leaving one out widens nothing", () => {
  for (const [need, cls] of CLASSES.entries()) {
    for (const agent of [undefined, ...CLASSES]) {
      for (const own of [undefined, ...CLASSES]) {
        // An agent without a scope observes; a request without one has its agent's.
        const most = agent === undefined ? 0 : CLASSES.indexOf(agent);
        const may = own === undefined ? most : Math.min(most, CLASSES.indexOf(own));
        const request = { verb: cls, ...(own === undefined ? {} : { scope: own }) };
        const said = judge(request, { policy: policyWith({}, agent ?? null) });
        assertEquals(said, need <= may ? "accepted" : SCOPE, `${cls} of ${agent} under ${own}`);
      }
    }
  }
});

Deno.test("no field of a request, left out, lets anything through that it does not with it", () => {
  const values: Record<string, readonly unknown[]> = {
    args: [{}, { n: 3 }],
    id: ["r1"],
    idempotency_key: ["k"],
    timeout_s: [0.001, 1e9],
    max_age_s: [1, 59, 1e9],
    scope: CLASSES,
    max_spend: [0, 2.5, 5, 1e9],
    plan: ["p"],
    note: ["n"],
    chb: [1],
  };
  const worlds: World[] = [
    {},
    { now_ms: 30_000 },
    { now_ms: 60_001 },
    { spent: 17.5 },
    { spent: 18 },
    { blocked: true },
    { waiting: 4 },
    { tick: 1, starts: [1, 1, 1] },
    { policy: policyWith({}, "mutating") },
    { policy: policyWith({}, null) },
    { kill: "KILL" },
  ];
  const passes = (said: string) => said === "accepted";
  let walked = 0;
  for (const verb of [...policyWith().verbs.keys(), "sh", "unknown"]) {
    for (const world of worlds) {
      const bare = judge({ verb }, world);
      for (const [field, list] of Object.entries(values)) {
        const said = list.map((value) => judge({ verb, [field]: value }, world));
        walked++;
        if (!passes(bare)) continue;
        // What passes bare passes with the widest value that the field has, too.
        assert(said.some(passes), `${verb} without ${field}: ${bare}; with it: ${said.join()}`);
      }
    }
  }
  assert(walked > 1000);
});

Deno.test("grantFor() grants nothing where the policy says nothing", () => {
  const policy = policyWith();
  const { spend: _, ...limits } = policy.limits;
  const paid = policy.verbs.get("paid");
  assert(paid !== undefined);
  assertEquals(grantFor(paid, { ...limits, spend: null }, null).kind, "refused");
  assertEquals(
    grantFor(paid, { ...limits, spend: { per_request: 2.4, per_day: 9 } }, null).kind,
    "refused",
  );
  assertEquals(grantFor(paid, { ...limits, spend: { per_request: 2.5, per_day: 9 } }, null), {
    kind: "granted",
    amount: 2_500_000_000n,
  });
});

Deno.test("amounts are exact decimals, rounded against whoever spends", () => {
  const cases: [number, bigint, bigint][] = [
    [0, 0n, 0n],
    [-0, 0n, 0n],
    [0.1, 100_000_000n, 100_000_000n],
    [0.30000000000000004, 300_000_000n, 300_000_001n],
    [1e-9, 1n, 1n],
    [1e-12, 0n, 1n],
    [5e-324, 0n, 1n],
    [1_000_000_000, 10n ** 18n, 10n ** 18n],
    [123456.789, 123_456_789_000_000n, 123_456_789_000_000n],
  ];
  for (const [value, down, up] of cases) {
    assertEquals([floorAmount(value), ceilAmount(value)], [down, up], String(value));
    assertEquals(floorAmount(amountNumber(down)), down);
  }
  let sum = 0n;
  for (let i = 0; i < 10; i++) sum += floorAmount(0.1);
  assertEquals(amountText(sum), "1");
  assertEquals([1n, 0n, 1_500_000_000n].map(amountText), ["0.000000001", "0", "1.5"]);
  for (const bad of [-1, NaN, Infinity]) assertThrows(() => floorAmount(bad), RangeError);
});

Deno.test("parseReport() takes one plain decimal and nothing else", () => {
  const good: [string, bigint][] = [
    ["0", 0n],
    ["2.5", 2_500_000_000n],
    ["2.5\n", 2_500_000_000n],
    ["007", 7_000_000_000n],
    ["0.0000000001", 1n],
    ["1000000000", 10n ** 18n],
  ];
  for (const [text, want] of good) assertEquals(parseReport(text), want, text);
  for (
    const text of [
      "",
      "\n",
      "-1",
      "+1",
      "1e3",
      ".5",
      "5.",
      "1,5",
      "1 ",
      " 1",
      "1\n\n",
      "1\n2",
      "0x10",
      "NaN",
      "1000000000.1",
      "9".repeat(65),
      "\u0661",
    ]
  ) assertEquals(parseReport(text), null, JSON.stringify(text));
});
