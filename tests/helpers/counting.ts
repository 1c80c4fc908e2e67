/**
 * A bridge whose commands leave a trace of each run in a file that only the host has, so that tests
 * can say what ran, how often, and that nothing else did.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { type BridgeOptions, TestBridge, verb } from "./bridge.ts";

/** The script behind counted verbs: notes the id that it gets, then does what `then` says. */
function markScript(then: string): string {
  return `#!/bin/sh\necho "$1" >> "$MARKS"\n${then}\n`;
}

/** A verb that notes its request's id as a run. More arguments may follow. */
export function marking(
  argv: readonly string[] = [],
  more: Record<string, unknown> = {},
): unknown {
  return verb(["base/mark.sh", "{id}", ...argv], more);
}

export interface CountedOptions extends Omit<BridgeOptions, "policy" | "trust"> {
  readonly verbs: Readonly<Record<string, unknown>>;
  /** Shell text after the note of the run. */
  readonly then?: string;
  /** What the agent's policy has besides its verbs. */
  readonly agent?: Readonly<Record<string, unknown>>;
  /** More of the policy's top level. */
  readonly top?: Readonly<Record<string, unknown>>;
}

/** A bridge and what ran in it. */
export interface Counted extends AsyncDisposable {
  readonly bridge: TestBridge;
  /** The ids of all runs so far, in their order. */
  runs(): string[];
}

/** Makes a trusted root; it is not served yet. */
export async function countedBridge(options: CountedOptions): Promise<Counted> {
  const { agent, top, then, ...rest } = options;
  const marks = Deno.makeTempFileSync({ prefix: "chb-marks-" });
  let bridge: TestBridge | null = null;
  const dispose = async () => {
    await bridge?.[Symbol.asyncDispose]();
    Deno.removeSync(marks);
  };
  try {
    bridge = await TestBridge.make({
      ...rest,
      scripts: { "mark.sh": markScript(then ?? ""), ...options.scripts },
      trust: false,
    });
    const policy = JSON.parse(Deno.readTextFileSync(bridge.path("bridge.jsonc")));
    Object.assign(policy.agents.main, agent);
    Object.assign(policy, { env: { MARKS: marks, PATH: "/usr/bin:/bin" } }, top);
    Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(policy));
    const { code, err } = await bridge.chb("trust", "--yes");
    assertEquals(code, 0, err);
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    bridge,
    runs: () => Deno.readTextFileSync(marks).split("\n").filter((line) => line !== ""),
    [Symbol.asyncDispose]: dispose,
  };
}
