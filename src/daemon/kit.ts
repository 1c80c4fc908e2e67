/**
 * What an agent holds: the helper, the page that it reads first, the check of its mounts, the
 * stand-ins for container programs and the hook that steers. They are embedded in the program, so
 * that one file is the whole bridge, and published to `inbox/kit/` at every start: what an agent
 * runs is what this version brought, and nobody but the host can change it.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { publish } from "../spool/publish.ts";
import guide from "../../agent/AGENTS.md" with { type: "text" };
import blockRuntime from "../../agent/block-runtime" with { type: "text" };
import checkMounts from "../../agent/check-mounts" with { type: "text" };
import helper from "../../agent/chb-request" with { type: "text" };
import shim from "../../agent/shims/docker" with { type: "text" };

/** One file of the kit. */
export interface KitFile {
  /** Name below `inbox/kit/`. */
  readonly name: string;
  readonly text: string;
  /** Scripts can be run as they are, where the mount allows it. */
  readonly mode: 0o644 | 0o755;
}

/** Programs that a sandbox may miss: one script stands in for all, and goes by its own name. */
const SHIMS = ["docker", "docker-compose", "podman", "podman-compose"];

/** Every file of the kit. */
export const KIT: readonly KitFile[] = Object.freeze([
  { name: "AGENTS.md", text: guide, mode: 0o644 },
  { name: "chb-request", text: helper, mode: 0o755 },
  { name: "check-mounts", text: checkMounts, mode: 0o755 },
  { name: "block-runtime", text: blockRuntime, mode: 0o755 },
  ...SHIMS.map((name) => ({ name: `shims/${name}`, text: shim, mode: 0o755 } as const)),
]);

/**
 * Publishes the kit to one agent.
 *
 * @throws what `publish` throws
 */
export function publishKit(agent: string): void {
  for (const { name, text, mode } of KIT) publish(agent, "kit", name, Buffer.from(text), { mode });
}
