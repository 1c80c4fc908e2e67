/**
 * The answers of the built-in verbs. They tell an agent what it may know anyway, and change
 * nothing.
 *
 * @module
 */
import { BUILD } from "#build";
import { PROTOCOL } from "../request/request.ts";
import { catalogue } from "./catalogue.ts";
import type { Core } from "./core.ts";
import { statusDocument } from "./status.ts";

/** The `answer` field of a built-in verb's result. */
export function builtinAnswer(name: string, agent: string, core: Core): unknown {
  switch (name) {
    case "bridge.ping":
      return { pong: true, protocol: PROTOCOL, version: BUILD.version };
    case "bridge.verbs":
      return { verbs: catalogue(core.policy(), agent).verbs };
    case "bridge.status":
      return statusDocument(core, agent, null);
    default:
      throw new RangeError("Cannot answer built-in verb: it is not served");
  }
}
