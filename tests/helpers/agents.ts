/**
 * The queue and the results of any agent of a test bridge, whose own helpers speak for `main`.
 *
 * @module
 */
import { join } from "@std/path/join";
import type { Result } from "../../src/result.ts";
import { type TestBridge, there, until } from "./bridge.ts";

export class AgentSide {
  readonly #bridge: TestBridge;
  readonly name: string;

  constructor(bridge: TestBridge, name: string) {
    this.#bridge = bridge;
    this.name = name;
  }

  #path(...parts: string[]): string {
    return this.#bridge.path("spool", this.name, ...parts);
  }

  submit(id: string, request: unknown): void {
    const temporary = this.#path("queue", `.${id}.tmp`);
    Deno.writeTextFileSync(temporary, JSON.stringify(request));
    Deno.renameSync(temporary, this.#path("queue", `${id}.json`));
  }

  #read<T>(path: string): T | null {
    return there(path) ? JSON.parse(Deno.readTextFileSync(path)) : null;
  }

  result(id: string): Result | null {
    return this.#read<Result>(this.#path("results", `${id}.json`));
  }

  /** Names in `results/`. */
  results(): string[] {
    return [...Deno.readDirSync(this.#path("results"))].map((entry) => entry.name).sort();
  }

  status(): Record<string, unknown> | null {
    return this.#read<Record<string, unknown>>(this.#path("inbox", "status.json"));
  }

  /** Waits for a result that `wanted` accepts; by default a final one. */
  async until(
    id: string,
    wanted: (result: Result) => boolean = ({ state }) => state === "done" || state === "uncertain",
    ms = 30_000,
  ): Promise<Result> {
    return await until(join(this.name, id), () => {
      const result = this.result(id);
      return result !== null && wanted(result) ? result : null;
    }, ms);
  }

  async ask(id: string, request: unknown): Promise<Result> {
    this.submit(id, request);
    return await this.until(id);
  }
}
