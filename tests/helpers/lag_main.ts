/**
 * The program with a probe in it: while it serves, it says on standard error when its loop came
 * round late, as `late FROM TO`, in milliseconds of the wall clock.
 *
 * @module
 */

/** Milliseconds between two looks. */
const EVERY_MS = 4;
/** Shorter delays are not told. */
const TOLD_MS = 15;

if (Deno.args.includes("serve")) {
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    if (now - last > TOLD_MS) {
      const to = performance.timeOrigin + now;
      const line = `late ${(to - now + last).toFixed(1)} ${to.toFixed(1)}\n`;
      Deno.stderr.writeSync(new TextEncoder().encode(line));
    }
    // What telling took is not the program's.
    last = performance.now();
  }, EVERY_MS);
  Deno.unrefTimer(timer);
}

await import("../../main.ts");
