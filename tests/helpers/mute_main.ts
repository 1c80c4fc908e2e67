/**
 * The program with shims that do not tell how a run ended: the line is lost on its way.
 *
 * @module
 */
if (Deno.args.includes("shim")) {
  const write = Deno.stdout.writeSync.bind(Deno.stdout);
  Deno.stdout.writeSync = (bytes) =>
    new TextDecoder().decode(bytes).startsWith("exit ") ? bytes.length : write(bytes);
}

await import("../../main.ts");
