/** Sends TERM to its own group, of which the helper is a member, and prints the answer. */
import { signalGroup } from "../../src/run/kill_group.ts";

Deno.addSignalListener("SIGTERM", () => {});
console.log(await signalGroup("TERM", Deno.pid));
Deno.exit(0);
