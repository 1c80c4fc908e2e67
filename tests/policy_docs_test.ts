/** The reference page against the code that it is made from, and its examples against the parser. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { RULES } from "../src/policy/denials.ts";
import {
  AGENT,
  ARGUMENT,
  LIMITS,
  LOOKUP,
  POLICY,
  RATES,
  RETENTION,
  SPEND,
  VERB,
} from "../src/policy/policy_table.ts";
import { deniedUnderRoot } from "../src/policy/root_denials.ts";
import { schemas } from "../src/policy/schema.ts";
import { FIRST_POLICY, FULL_POLICY, policyDocs } from "../tools/policy_docs.ts";
import { validate } from "./json_schema.ts";
import { parseText } from "./policy_fixture.ts";
import { parse } from "@std/jsonc";

Deno.test("docs/policy.md is what its generator writes", () => {
  const page = Deno.readTextFileSync(new URL("../docs/policy.md", import.meta.url));
  assertEquals(page, policyDocs(), "run: deno run -A tools/policy_docs.ts");
});

for (const [name, text] of [["first", FIRST_POLICY], ["full", FULL_POLICY]] as const) {
  Deno.test(`the ${name} example of docs/policy.md is a policy without a warning`, () => {
    assertStringIncludes(policyDocs(), text.trimEnd());
    const parsed = parseText(text);
    assert(parsed.ok, JSON.stringify(parsed));
    assertEquals(parsed.warnings, []);
    assertEquals(deniedUnderRoot(parsed.policy, "/home/me/.local/share/chb/app"), []);
    assertEquals(validate(schemas().policy, parse(text)), []);
  });
}

Deno.test("docs/policy.md has a row for every key and every rule", () => {
  const page = policyDocs();
  const sections = [POLICY, AGENT, VERB, LOOKUP, LIMITS, RATES, SPEND, RETENTION];
  for (const section of [...sections, ...Object.values(ARGUMENT)]) {
    for (const key of Object.keys(section)) {
      if (key === "description") continue;
      assertStringIncludes(page, `| \`${key}\` |`);
    }
  }
  for (const type of Object.keys(ARGUMENT)) assertStringIncludes(page, `| \`${type}\` |`);
  for (const rule of Object.keys(RULES)) assertStringIncludes(page, `| \`${rule}\` |`);
});
