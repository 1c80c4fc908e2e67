/** The digest that decides whether two requests are the same. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { type DigestInput, requestDigest } from "../src/ledger/keys.ts";

const BASE: DigestInput = { verb: "restart", args: { service: "web", n: 1 } };

Deno.test("requestDigest() is the SHA-256 of a written form that stays the same", async () => {
  const form = '["chb-request-1","restart",[["n",1],["service","web"]],null,null]';
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(form));
  const hex = Array.from(new Uint8Array(hash), (b) => b.toString(16).padStart(2, "0")).join("");
  assertEquals(requestDigest(BASE), hex);
});

Deno.test("requestDigest() does not depend on the order of the arguments or on absent limits", () => {
  const digest = requestDigest(BASE);
  assertEquals(requestDigest({ verb: "restart", args: { n: 1, service: "web" } }), digest);
  const args = Object.assign(Object.create(null), { n: 1, service: "web" });
  assertEquals(requestDigest({ verb: "restart", args, scope: null, max_spend: null }), digest);
  assertEquals(requestDigest({ ...BASE, scope: undefined, max_spend: undefined }), digest);
});

Deno.test("Q2 requestDigest() differs whenever what would be done differs", () => {
  const inputs: DigestInput[] = [
    BASE,
    { ...BASE, verb: "stop" },
    { ...BASE, args: {} },
    { ...BASE, args: { service: "web" } },
    { ...BASE, args: { service: "web", n: 2 } },
    { ...BASE, args: { service: "web", n: "1" } },
    { ...BASE, args: { service: "web", n: true } },
    { ...BASE, args: { service: "web", n: "true" } },
    { ...BASE, args: { service: "1", n: "web" } },
    { ...BASE, args: { 'service","web"],["n': 1 } },
    { ...BASE, args: { service: 'web"],["n",1' } },
    { ...BASE, args: { servicew: "eb", n: 1 } },
    { ...BASE, args: { ["__proto__"]: "web", n: 1 } },
    { ...BASE, args: { service: "we\u0301b", n: 1 } },
    { ...BASE, args: { service: "w\u00e9b", n: 1 } },
    { ...BASE, scope: "observe" },
    { ...BASE, scope: "mutating" },
    { ...BASE, max_spend: 0 },
    { ...BASE, max_spend: 2.5 },
    { verb: 'restart",[["n",1]]', args: {} },
  ];
  assertEquals(new Set(inputs.map(requestDigest)).size, inputs.length);
});

Deno.test("requestDigest() refuses values without a canonical form", () => {
  for (const value of [NaN, Infinity, null, undefined, {}, []]) {
    const args = { service: value } as unknown as DigestInput["args"];
    assertThrows(() => requestDigest({ verb: "x", args }), TypeError);
  }
  assertThrows(() => requestDigest({ ...BASE, max_spend: NaN }), TypeError);
  assert(/^[0-9a-f]{64}$/.test(requestDigest(BASE)));
});
