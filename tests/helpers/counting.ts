/**
 * A bridge whose commands leave a trace of each run in a file that only the host has, so that tests
 * can say what ran, how often, and that nothing else did.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { type BridgeOptions, TestBridge, verb } from "./bridge.ts";

/** Shell text for `then`: waits until the test says `go`, so that it decides how long a command runs. */
export const UNTIL_GO = 'while [ ! -e "$MARKS.go" ]; do sleep 0.05; done';

/** Has a counted verb asked after a crash what became of it: by the same script, told to `ask`. */
export const LOOKUP = {
  on_crash: "lookup",
  lookup: {
    argv: ["base/mark.sh", "{idempotency_key}", "ask"],
    done: [0],
    not_done: [1],
    timeout_s: 20,
  },
};

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
  /** Lets commands go on that wait for it (`UNTIL_GO`), now and later. */
  go(): void;
}

/** Makes a trusted root; it is not served yet. */
export async function countedBridge(options: CountedOptions): Promise<Counted> {
  const { agent, top, then, ...rest } = options;
  const marks = Deno.makeTempFileSync({ prefix: "chb-marks-" });
  let bridge: TestBridge | null = null;
  const dispose = async () => {
    await bridge?.[Symbol.asyncDispose]();
    Deno.removeSync(marks);
    await Deno.remove(`${marks}.go`).catch(() => {});
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
    go: () => Deno.writeTextFileSync(`${marks}.go`, ""),
    [Symbol.asyncDispose]: dispose,
  };
}
