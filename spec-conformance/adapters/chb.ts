/**
 * Turns what the suite says into what chb wants: `chb.ts source|binary serve ROOT POLICY` makes a
 * bridge of an empty root, unless it is one already; every other deed is the human command of that
 * name. The adapter scripts call it and then become the daemon.
 *
 * @module
 */
import { dirname, join } from "node:path";
import { killPath } from "../../src/permissions.ts";
import { cacheDirectory } from "../../tools/launcher.ts";
import { wrapperText } from "../../tools/wrapper.ts";

/** The suite's policy, as far as it is looked at here. */
interface Policy {
  readonly agents: Readonly<Record<string, unknown>>;
  readonly verbs: Readonly<Record<string, { readonly argv: readonly string[] }>>;
  readonly limits?: Readonly<Record<string, unknown>>;
  /** Key files by name; the suite has them in the policy. */
  readonly keys?: Readonly<Record<string, unknown>>;
  /** Files of the host that arguments may name, by path below `base/`. */
  readonly base?: Readonly<Record<string, string>>;
  /** False when no human has trusted the policy yet. */
  readonly trusted?: boolean;
}

function isThere(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

function run(root: string, program: string, args: readonly string[], env = {}): string {
  const { success, code, stdout, stderr } = new Deno.Command(program, {
    args: [...args],
    cwd: root,
    env,
    stdin: "null",
  }).outputSync();
  const text = new TextDecoder();
  if (success) return text.decode(stdout);
  console.error(`${program} ${args.join(" ")}: ${text.decode(stderr)}${text.decode(stdout)}`);
  Deno.exit(code);
}

/** Makes a bridge of an empty directory, with the policy in force. */
function makeBridge(kind: string, root: string, policy: Policy): void {
  const { keys, base, trusted, ...own } = policy;
  const programs = Object.values(policy.verbs).flatMap(({ argv }) => argv.slice(0, 1));
  Deno.mkdirSync(join(root, "bin"));
  Deno.chmodSync(join(root, "bin"), 0o755);
  if (kind === "source") {
    const std = Deno.env.get("CHB_STD") === "jsr" ? "jsr" : "fallback";
    const wrapper = wrapperText({
      std,
      commit: "conformance",
      policies: "conformance",
      programs: [...new Set(programs)].sort(),
      agents: Object.keys(policy.agents),
      kill: killPath(isThere),
      deno: Deno.execPath(),
      cache: cacheDirectory() ?? "/dev/null/deno",
    });
    Deno.writeTextFileSync(join(root, "bin/chb"), wrapper);
  } else Deno.copyFileSync(Deno.env.get("CHB_BINARY") ?? "", join(root, "bin/chb"));
  Deno.chmodSync(join(root, "bin/chb"), 0o555);
  Deno.writeTextFileSync(join(root, "init.sh"), run(root, "./bin/chb", ["init"]));
  run(root, "/bin/sh", ["init.sh"], { CHB_INIT_ANYWHERE: "1" });
  for (const [name, key] of Object.entries(keys ?? {})) {
    const path = join(root, "keys", `${name}.json`);
    Deno.writeTextFileSync(path, JSON.stringify(key), { mode: 0o600 });
  }
  for (const [name, text] of Object.entries(base ?? {})) {
    const path = join(root, "base", name);
    Deno.mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
    Deno.writeTextFileSync(path, text);
  }
  const limits = { concurrency: 3, answers: 100_000, ...policy.limits };
  Deno.writeTextFileSync(join(root, "bridge.jsonc"), JSON.stringify({ ...own, limits }, null, 2));
  if (trusted !== false) run(root, "./bin/chb", ["trust", "--yes"]);
}

/** A human's word on a request that waits for it. */
function decide(root: string, deed: string, request: string): void {
  if (deed === "deny") {
    run(root, "./bin/chb", ["deny", request, "--reason", "the suite says no"]);
    return;
  }
  const { run_now } = JSON.parse(run(root, "./bin/chb", ["show", request, "--json"]));
  run(root, "./bin/chb", ["approve", request, run_now.digest]);
}

const [kind = "", deed = "", root = "", ...rest] = Deno.args;
if (deed === "serve") {
  const [policy = ""] = rest;
  if (!isThere(join(root, "bin"))) {
    makeBridge(kind, root, JSON.parse(Deno.readTextFileSync(policy)));
  }
} else if (deed === "approve" || deed === "deny") decide(root, deed, rest[0] ?? "");
else if (deed === "trust") run(root, "./bin/chb", ["trust", "--yes"]);
else if (deed === "cancel" || deed === "resolve") run(root, "./bin/chb", [deed, ...rest]);
else {
  console.error(`usage: chb.ts source|binary serve ROOT POLICY | approve|deny|trust ROOT ...`);
  Deno.exit(64);
}
