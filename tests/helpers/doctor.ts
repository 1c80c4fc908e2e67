/**
 * What `chb doctor` says while a fault stands.
 *
 * @module
 */
import { assertEquals, assertMatch } from "@std/assert";
import type { TestBridge } from "./bridge.ts";

/** Asserts that doctor tells of a fault in a finding, as an error or a warning. */
export async function doctorNames(bridge: TestBridge, finding: RegExp): Promise<void> {
  const { code, out, err } = await bridge.chb("doctor");
  assertEquals(code, 1, err);
  const told = out.split("\n").filter((line) =>
    /^(error|warning): (?!bin\/chb: It runs)/.test(line)
  );
  assertMatch(told.join("\n"), finding);
}
