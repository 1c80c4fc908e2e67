/**
 * Facts for a unit with something of everything that only needs a path that exists.
 *
 * @module
 */
import type { UnitFacts } from "../../src/human/unit_facts.ts";

/** @param more what differs */
export function unitFacts(more: Partial<UnitFacts> = {}): UnitFacts {
  return {
    root: "/r",
    name: "chb-r",
    uid: 1000,
    bin_sha256: "0".repeat(64),
    version: "1.2.3",
    source: false,
    jitless: true,
    policy: "1".repeat(64),
    agents: ["main"],
    programs: ["/usr/bin/true"],
    scripts: [],
    engines: [],
    kill: "/usr/bin/kill",
    needs: [],
    homes: [],
    otherUsers: [],
    groups: [],
    ...more,
  };
}
