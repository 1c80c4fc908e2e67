/**
 * The order of checks: what breaks only one stage is answered by it, and what breaks two by the
 * earlier one.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { Candidate, GateDeps } from "../src/gates/candidate.ts";
import { decide, ORDER, recheck } from "../src/gates/order.ts";
import { STAGES } from "../src/gates/stages.ts";
import { requestDigest } from "../src/ledger/keys.ts";
import type { Row } from "../src/ledger/types.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import type { Policy } from "../src/policy/policy.ts";
import type { Claim } from "../src/spool/types.ts";
import { FILE } from "./helpers/looks.ts";

/** The stages from the claimed entry to the decision, in the order that the rules give. */
const RULED = [
  "kill",
  "object",
  "name",
  "read",
  "parse",
  "schema",
  "auth",
  "fresh",
  "replay",
  "denial",
  "allow",
  "args",
  "scope",
  "spend",
  "rate",
  "base",
  "approval",
] as const;

type Ruled = (typeof RULED)[number];

function trusted(): Policy {
  const verb = (more: Record<string, unknown>) => ({
    class: "mutating",
    argv: ["/usr/bin/true"],
    timeout_s: 5,
    ...more,
  });
  const verbs = {
    show: verb({
      argv: ["/usr/bin/true", "{word}"],
      args: { word: { type: "enum", values: ["a", "b"] } },
    }),
    burn: verb({ cost: 1 }),
    erase: verb({ class: "destructive", approval: "never" }),
    "erase-paid": verb({ class: "destructive", approval: "never", cost: 1 }),
    ask: verb({ approval: "when-planned" }),
  };
  const parsed = parsePolicy(
    new TextEncoder().encode(JSON.stringify({
      agents: { main: { verbs: Object.keys(verbs), scope: "mutating" } },
      verbs,
      limits: { max_age_s: 60, spend: { per_request: 5, per_day: 20 } },
    })),
  );
  assert(parsed.ok, JSON.stringify(parsed));
  return parsed.policy;
}

/** A verb that breaks exactly these stages. */
function verbFor(broken: ReadonlySet<Ruled>): string {
  if (broken.has("denial")) return "exec";
  if (broken.has("allow")) return "nothing";
  if (broken.has("scope")) return broken.has("spend") ? "erase-paid" : "erase";
  if (broken.has("spend")) return "burn";
  return broken.has("approval") ? "ask" : "show";
}

function textFor(broken: ReadonlySet<Ruled>): string {
  const verb = verbFor(broken);
  const args = broken.has("args") ? { word: "c" } : verb === "show" ? { word: "a" } : {};
  const text = JSON.stringify({ verb, args, ...(broken.has("schema") ? { wrong: 1 } : {}) });
  return broken.has("parse") ? text.replace("{", '{"verb":"show",') : text;
}

/** Another request, under the same id. */
const OTHER = {
  rid: 1,
  agent: "main",
  id: "r1",
  key: "r1",
  digest: "another",
  request_sha256: "another",
  verb: "show",
  state: "running",
} as Partial<Row> as Row;

function depsFor(broken: ReadonlySet<Ruled>): GateDeps {
  const policy = trusted();
  const bytes = new TextEncoder().encode(textFor(broken));
  return {
    policy,
    limits: policy.limits,
    agentPolicy: (agent) => broken.has("auth") ? null : policy.agents.get(agent) ?? null,
    owners: () => "any",
    kill: () => broken.has("kill") ? "KILL" : null,
    objectRefusal: (look) => look.kind === "file" ? null : "no file",
    read: () =>
      broken.has("read")
        ? { kind: "refused", reason: "not-regular", detail: "sealed" }
        : { kind: "bytes", bytes },
    sha256: () => "0".repeat(64),
    signingKey: () => null,
    carriedOut: () => false,
    requestDigest,
    rowById: () => broken.has("replay") ? OTHER : null,
    rowByKey: () => null,
    countIds: () => 1,
    tick: () => 0,
    starts: () => 0,
    startTick: () => null,
    spent: () => ({ spent: 0n, held: 0n, blocked: broken.has("spend") }),
    waiting: () => broken.has("rate") ? policy.limits.waiting : 0,
    granted: () => true,
    baseChanged: () => broken.has("base") ? "/usr/bin/true" : null,
    pathArgs: () => null,
  };
}

/** The stage that answers a request that breaks these stages, or what else was decided. */
function answering(...stages: readonly Ruled[]): string {
  const broken = new Set(stages);
  const id = broken.has("name") ? null : "r1";
  const claim: Claim = {
    agent: "main",
    name: id === null ? "No Name" : `${id}.json`,
    id,
    path: "work/main/claims/x",
    random: "0".repeat(32),
    arrival_ms: 0,
    look: broken.has("object") ? { ...FILE, kind: "symlink" } : FILE,
  };
  const candidate: Candidate = { claim, now_ms: broken.has("fresh") ? 3_600_000 : 1000 };
  const decision = decide(candidate, depsFor(broken));
  return decision.kind === "refused" ? decision.refusal.stage : decision.kind;
}

Deno.test("decide() asks the stages in their order, between claim and slot", () => {
  // The text of a signed request is parsed and judged once more, after `auth`.
  const signed = RULED.flatMap((name) => name === "auth" ? ["auth", "parse", "schema"] : [name]);
  assertEquals(ORDER.map((stage) => stage.name), signed);
  assertEquals([...STAGES], ["claim", ...RULED, "slot", "recheck", "start"]);
});

Deno.test("decide() accepts what breaks nothing", () => assertEquals(answering(), "accepted"));

for (const [i, stage] of RULED.entries()) {
  const next = RULED[i + 1];
  Deno.test(`decide() answers from stage ${stage} what breaks only that`, () => {
    assertEquals(answering(stage), stage);
  });
  if (stage === "kill" || next === undefined) continue;
  Deno.test(`decide() answers from stage ${stage} what breaks ${next} too`, () => {
    assertEquals(answering(stage, next), stage);
  });
}

Deno.test("decide() answers poison from its own stage while the kill switch is up", () => {
  // It can never become a request, and must leave the queue all the same.
  assertEquals(answering("kill", "object"), "object");
  assertEquals(answering("kill", "name"), "name");
  for (const stage of RULED.slice(3)) assertEquals(answering("kill", stage), "kill", stage);
});

Deno.test("decide() answers from the earlier of any two stages", () => {
  for (const [i, earlier] of RULED.entries()) {
    for (const later of RULED.slice(i + 1)) {
      if (earlier === "kill") continue;
      assertEquals(answering(earlier, later), earlier, `${earlier} and ${later}`);
    }
  }
});

Deno.test("recheck() asks the kill switch before the base, and both say no", () => {
  const sound = depsFor(new Set());
  const verb = sound.policy?.verbs.get("ask");
  assert(verb !== undefined);
  const fit = { verb, args: {} };
  assertEquals(recheck("main", fit, sound), null);
  assertEquals(recheck("main", fit, depsFor(new Set(["kill", "base"])))?.reason, "killed");
  assertEquals(recheck("main", fit, depsFor(new Set(["base"])))?.reason, "base-changed");
  assertEquals(recheck("main", undefined, sound)?.reason, "base-changed");
});
