/**
 * A shim that does not tell how a run ended: the line is lost on its way.
 *
 * @module
 */
const write = Deno.stdout.writeSync.bind(Deno.stdout);
Deno.stdout.writeSync = (bytes) =>
  new TextDecoder().decode(bytes).startsWith("exit ") ? bytes.length : write(bytes);

await import("../../src/run/shim_main.ts");
