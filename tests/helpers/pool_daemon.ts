/**
 * The smallest daemon: a pool in the working directory. It prints `idle <pid>` for the first ready
 * shim, hands it the runs that come in on standard input, and prints what the pool says.
 */
import { ShimPool } from "../../src/run/pool.ts";

const say = (line: string) => Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));

let greeted = false;
// The pool alone keeps no process alive.
const alive = setInterval(() => {}, 1000);
const pool = new ShimPool({
  size: 1,
  spares: 1,
  onLine: (shim, line) => say(`${line.kind} ${shim.pid} ${line.run} ${line.reusable}`),
  onGone: (shim) => say(`gone-shim ${shim.pid}`),
  onChange() {
    if (greeted || pool.idle === 0) return;
    greeted = true;
    clearInterval(alive);
    const shim = pool.take(false);
    if (shim === null) return;
    say(`idle ${shim.pid} `);
    Deno.stdin.read(buffer).then((n) => {
      if (n !== null) shim.send(new TextDecoder().decode(buffer.subarray(0, n)).trim());
    });
  },
  log: () => {},
});
const buffer = new Uint8Array(100);
pool.open();
