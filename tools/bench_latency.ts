/**
 * Latency: from before the rename of a request to having parsed its final result, against the floor
 * of the same machine in the same minute.
 *
 * The floor is what nobody can avoid who runs a program and remembers it: the same runtime starts
 * `/usr/bin/true` and makes two SQLite commits, with the ledger's settings, on the same file system.
 * Samples of floor and bridge alternate, so that whatever else the machine does meets both.
 *
 * This process is the submitter. It waits by looking every 0.1 ms, without an event loop in between.
 *
 * @module
 */
import { join } from "node:path";
import { TestBridge, verb } from "../tests/helpers/bridge.ts";
import { envelopeOf, keyField, payloadOf, type Signer } from "../tests/helpers/signing.ts";
import {
  ask,
  finalIn,
  Floor,
  type Gathered,
  LOOK_MS,
  median,
  nap,
  quantile,
  spreadOf,
  warm,
} from "./bench_kit.ts";

/** Targets of the first series, over the floor's median of the same run. */
const TARGETS = Object.freeze({ median: 1.3, p99: 4 });

interface Series {
  readonly name: string;
  readonly requests: number;
  /** The text of one request. */
  readonly text: (id: string) => string;
  /** Milliseconds between two requests. */
  readonly rest_ms: number;
  readonly targets: boolean;
}

/** One series: some runs of requests one after the other, with the floor between them. */
async function measure(out: Gathered, bridge: TestBridge, runs: number, series: Series) {
  const { name, requests, text, rest_ms, targets } = series;
  const id = name.replaceAll(/[^a-z]+/g, "-");
  const all = { floor: [] as number[], bridge: [] as number[] };
  const of = { median: [] as number[], p99: [] as number[], floor: [] as number[] };
  for (let run = 0; run < runs; run++) {
    using floor = new Floor(join(bridge.root, "state", `floor-${id}-${run}.db`));
    const one = { floor: [] as number[], bridge: [] as number[] };
    for (let n = 0; n < requests; n++) {
      one.floor.push(await floor.sample());
      nap(2);
      const request = `${id}-${run}-${n}`;
      one.bridge.push(ask(bridge, request, text(request)));
      nap(rest_ms);
    }
    of.median.push(median(one.bridge));
    of.p99.push(quantile(one.bridge, 0.99));
    of.floor.push(median(one.floor));
    all.floor.push(...one.floor);
    all.bridge.push(...one.bridge);
  }
  const ratios = (over: readonly number[]) => over.map((v, run) => v / (of.floor[run] ?? NaN));
  const figure = (what: string, values: readonly number[], unit: "ms" | "times", most?: number) =>
    out.figure(`${name}, ${what}`, median(values), unit, {
      spread: spreadOf(values),
      ...(targets && most !== undefined ? { target: { atMost: most } } : {}),
    });
  figure("median", of.median, "ms");
  figure("99th percentile", of.p99, "ms");
  figure("floor beside it, median", of.floor, "ms");
  figure("median over the floor", ratios(of.median), "times", TARGETS.median);
  figure("99th percentile over the floor", ratios(of.p99), "times", TARGETS.p99);
  out.curve(name, all.bridge);
  out.curve(`floor (${name})`, all.floor);
}

/** Every series. `requests` and `runs` are of the first one; those that take longer get fewer. */
export async function benchLatency(out: Gathered, requests: number, runs: number): Promise<void> {
  {
    await using bridge = await TestBridge.start({
      serve: [],
      verbs: {
        observe: verb(["/usr/bin/true"]),
        mutating: verb(["/usr/bin/true"], { class: "mutating" }),
      },
    });
    warm(bridge);
    const kind = (name: string) => () => JSON.stringify({ verb: name });
    const few = Math.ceil(requests / 5);
    await measure(out, bridge, runs, {
      name: "observe",
      requests,
      text: kind("observe"),
      rest_ms: 2,
      targets: true,
    });
    await measure(out, bridge, runs, {
      name: "mutating, three a second",
      requests: Math.ceil(requests * 0.06),
      text: kind("mutating"),
      rest_ms: 330,
      targets: false,
    });
    await measure(out, bridge, runs, {
      name: "mutating, without a rest",
      requests: few,
      text: kind("mutating"),
      rest_ms: 2,
      targets: false,
    });
  }
  {
    await using bridge = await TestBridge.make({
      serve: [],
      policy: {
        agents: { main: { verbs: ["observe"], scope: "observe", auth: "signed" } },
        verbs: { observe: verb(["/usr/bin/true"]) },
        limits: { answers: 100_000 },
      },
    });
    const signer = await newSigner(bridge);
    await bridge.serve();
    const text = (id: string) =>
      JSON.stringify(envelopeOf(signer, payloadOf("main", id, { verb: "observe" })));
    for (let n = 0; n < 20; n++) ask(bridge, `warm-${n}`, text(`warm-${n}`));
    await measure(out, bridge, runs, {
      name: "observe, signed",
      requests,
      text,
      rest_ms: 2,
      targets: false,
    });
  }
  await shellLoop(out, requests);
}

/** A key of the agent, made as a person would. */
async function newSigner(bridge: TestBridge): Promise<Signer> {
  const { out } = await bridge.chb("key", "new", "bench", "--agent", "main");
  const script = join(bridge.outside, "key.sh");
  Deno.writeTextFileSync(script, out);
  const done = await new Deno.Command("/bin/sh", { args: [script], cwd: bridge.outside }).output();
  if (!done.success) throw new Error(new TextDecoder().decode(done.stderr));
  const text = Deno.readTextFileSync(bridge.path("handed", "bench.key"));
  return {
    alg: "hmac-sha256",
    key: keyField(text, "key"),
    agent: keyField(text, "agent"),
    secret: keyField(text, "secret"),
  };
}

const LOOP = `inotifywait -q -m -e moved_to --format %f queue | while read -r f; do
  mv "queue/$f" work/ && /usr/bin/true
  printf '{"state":"done","exit_code":%s}\\n' $? >"results/.$f" && mv "results/.$f" "results/$f"
done`;

/** For scale: a shell loop that checks nothing and remembers nothing. */
async function shellLoop(out: Gathered, requests: number): Promise<void> {
  const root = Deno.makeTempDirSync({ prefix: "chb-bench-" });
  for (const name of ["queue", "work", "results"]) Deno.mkdirSync(join(root, name));
  const child = new Deno.Command("setsid", {
    args: ["/bin/sh", "-c", LOOP],
    cwd: root,
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).spawn();
  try {
    const samples: number[] = [];
    nap(500);
    for (let n = -20; n < requests; n++) {
      const start = performance.now();
      Deno.writeTextFileSync(join(root, "t"), "{}");
      Deno.renameSync(join(root, "t"), join(root, "queue", `r${n}`));
      const result = join(root, "results", `r${n}`);
      while (!finalIn(result)) {
        if (performance.now() - start > 5000) return out.say("the shell loop needs inotifywait");
        nap(LOOK_MS);
      }
      if (n >= 0) samples.push(performance.now() - start);
      nap(2);
    }
    out.figure("a shell loop with inotifywait, median", median(samples), "ms");
    out.figure("a shell loop with inotifywait, 99th percentile", quantile(samples, 0.99), "ms");
    out.curve("shell loop", samples);
  } finally {
    // The loop and its watcher are one session of their own.
    Deno.kill(-child.pid, "SIGKILL");
    await child.status;
    Deno.removeSync(root, { recursive: true });
  }
}
