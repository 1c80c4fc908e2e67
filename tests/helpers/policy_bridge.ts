/**
 * A policy of `policies/` as it stands there, in a bridge that serves it. What a test has to name
 * otherwise than its reader (a socket, a directory) is replaced in the text, and only that.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/jsonc";
import type { Result } from "../../src/result.ts";
import { inRepository } from "../../tools/launcher.ts";
import { TestBridge, there, until } from "./bridge.ts";

/** Names of the policies. */
export function policyNames(): string[] {
  return [...Deno.readDirSync(inRepository("policies"))]
    .filter((entry) => entry.isDirectory).map((entry) => entry.name).sort();
}

/** The text of one file of a policy. */
export function policyFile(name: string, file = "bridge.jsonc"): string {
  return Deno.readTextFileSync(inRepository("policies", name, file));
}

/** Files below a policy's `base/`. */
export function baseFiles(name: string): string[] {
  const directory = inRepository("policies", name, "base");
  return there(directory) ? [...Deno.readDirSync(directory)].map((e) => e.name).sort() : [];
}

/** A bridge that serves a policy, and which of its verbs have been run. */
export class PolicyBridge implements AsyncDisposable {
  readonly bridge: TestBridge;
  readonly verbs: readonly string[];
  readonly #ran = new Set<string>();
  #count = 0;

  private constructor(bridge: TestBridge, verbs: readonly string[]) {
    this.bridge = bridge;
    this.verbs = verbs;
  }

  /**
   * Makes the bridge; `chb check` and `chb trust` have to find nothing wrong.
   *
   * @param swaps texts of the policy's files and what stands in for them here
   */
  static async start(name: string, swaps: Record<string, string>): Promise<PolicyBridge> {
    const swapped = (text: string) =>
      Object.entries(swaps).reduce((now, [from, to]) => now.replaceAll(from, to), text);
    const texts = [policyFile(name), ...baseFiles(name).map((f) => policyFile(name, `base/${f}`))];
    for (const from of Object.keys(swaps)) {
      assert(texts.some((text) => text.includes(from)), `${name} does not say ${from}`);
    }
    const text = swapped(policyFile(name));
    const policy = parse(text) as { verbs: Record<string, unknown> };
    const bridge = await TestBridge.make({
      policy,
      scripts: Object.fromEntries(
        baseFiles(name).map((f) => [f, swapped(policyFile(name, `base/${f}`))]),
      ),
      trust: false,
    });
    try {
      Deno.writeTextFileSync(bridge.path("bridge.jsonc"), text);
      const check = await bridge.chb("check");
      assertEquals(check.code, 0, check.err + check.out);
      assert(!/warning/i.test(check.err + check.out), check.err + check.out);
      const trust = await bridge.chb("trust", "--yes");
      assertEquals(trust.code, 0, trust.err + trust.out);
      await bridge.serve();
    } catch (error) {
      await bridge[Symbol.asyncDispose]();
      throw error;
    }
    return new PolicyBridge(bridge, Object.keys(policy.verbs));
  }

  /** Asks for a verb, says yes where a human is asked, and gives the final result. */
  async ask(verb: string, args: Record<string, unknown> = {}): Promise<Result> {
    this.#ran.add(verb);
    const id = `r${++this.#count}-${verb}`;
    this.bridge.submit(id, { verb, args });
    const first = await until(`an answer to ${id}`, () => this.bridge.result(id), 60_000);
    if (first.waiting_for === "approval") {
      const { out } = await this.bridge.chb("pending", "--json");
      const { pending } = JSON.parse(out) as {
        pending: { id: string; run: { digest: string } }[];
      };
      const digest = pending.find((one) => one.id === id)?.run.digest ?? "";
      const { code, err } = await this.bridge.chb("approve", `main/${id}`, digest);
      assertEquals(code, 0, err);
    }
    return await this.bridge.final(id, 180_000);
  }

  /** The same, which has to succeed; gives what the command printed. */
  async did(verb: string, args: Record<string, unknown> = {}): Promise<string> {
    const result = await this.ask(verb, args);
    const said = `${result.stdout?.head ?? ""}${result.stderr?.head ?? ""}`;
    assertEquals([verb, result.outcome], [verb, "succeeded"], `${result.message ?? ""} ${said}`);
    return said;
  }

  /** Fails when a verb of the policy has not been asked for. */
  assertAllRan(): void {
    assertEquals([...this.#ran].sort(), [...this.verbs].sort());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.bridge[Symbol.asyncDispose]();
  }
}
