/**
 * Every block of shell in the README and the pages of `docs/`: it is run here, in the order of the
 * README and with one bridge, or the table says which test does it. A block that is in neither is a
 * fault, so nobody can add a command that nobody ran. What is replaced in a block, and why, stands
 * beside it.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { readmeTranscript, transcript } from "../tools/transcript.ts";
import { sleep, there } from "./helpers/bridge.ts";

interface Block {
  readonly page: string;
  readonly text: string;
}

/** What becomes of a block, found by its beginning. */
type Treatment =
  /** Run in this directory; `swap` stands in for what needs a terminal, a mount or does not end. */
  | { readonly run: "source" | "root"; readonly swap?: readonly (readonly [string, string])[] }
  /** Another test does it; `with` stands in that test. */
  | { readonly by: string; readonly with: string };

const YES = ["./bin/chb trust", "./bin/chb trust --yes"] as const;

const TREATMENTS: readonly (readonly [page: string, begins: string, Treatment])[] = [
  ["README.md", "npx -y deno@2.9.6 task demo", { by: ".ci/run", with: "task demo" }],
  ["README.md", "root=~/.local", { run: "source" }],
  ["README.md", 'cat > "$root/base/disk"', { run: "source" }],
  ["README.md", 'npx -y deno@2.9.6 task chb --root "$root" check', {
    run: "source",
    // A terminal would be asked, and the last command would not end.
    swap: [['"$root" trust', '"$root" trust --yes'], [
      '"$root" serve',
      '"$root" serve >"$LOG" 2>&1 & echo $! >"$LOG.pid"',
    ]],
  }],
  ["README.md", "export CHB_DIR=", { run: "source" }],
  ["README.md", 'echo \'{"verb":"bridge.verbs"}\'', {
    run: "root",
    // Here is no sandbox: its directories are those of the spool. And an answer takes a moment.
    swap: [["/chb/", "spool/main/"], [
      "cat spool/main/results/v1.json",
      "until [ -e spool/main/results/v1.json ]; do sleep 0.1; done; cat spool/main/results/v1.json",
    ]],
  }],
  ["docs/policy.md", "./bin/chb check", { run: "root", swap: [YES] }],
  ["docs/messages.md", "./bin/chb tell", {
    run: "root",
    // Nobody answers here: two messages are there, and the wait is over after a second.
    swap: [["replies 3 --wait 60", "replies 2 --wait 1 || [ $? = 75 ]"]],
  }],
  ["docs/messages.md", 'cd "$CHB_MESSAGES"', { by: "kit_messages_test.ts", with: "q1.reply" }],
  ["docs/recovery.md", "./bin/chb cancel", { by: "cancel_test.ts", with: '"cancel"' }],
  ["docs/recovery.md", "./bin/chb resolve", { by: "recovery_test.ts", with: '"resolve"' }],
  ["docs/recovery.md", "./bin/chb ledger", { by: "accept_loss_test.ts", with: '"accept-loss"' }],
  ["docs/signatures.md", "./bin/chb key new", { run: "root" }],
  ["docs/signatures.md", "id=restart-web-1", { by: "signatures_test.ts", with: "signatures.md" }],
  ["docs/signatures.md", "openssl genpkey", { by: "signatures_test.ts", with: "openssl genpkey" }],
  ["docs/install.md", "npx -y deno@2.9.6 task compile", {
    by: "binary_test.ts",
    with: "compile",
  }],
  ["docs/install.md", "sh manage.sh install", { by: "manage_test.ts", with: "manage.sh launcher" }],
  ["docs/install.md", "./bin/chb doctor", { by: "doctor_test.ts", with: '"--mounts"' }],
  ["policies/README.md", "cp POLICIES", { by: "policies_test.ts", with: "PolicyBridge.start" }],
];

function blocks(): Block[] {
  const pages = [
    ...["README.md", "SECURITY.md", "policies/README.md"],
    ...[...Deno.readDirSync(inRepository("docs"))].filter((entry) => entry.name.endsWith(".md"))
      .map((entry) => `docs/${entry.name}`).sort(),
  ];
  return pages.flatMap((page) =>
    [...Deno.readTextFileSync(inRepository(page)).matchAll(/^```(?:sh|bash|shell)\n([^]*?)^```/gm)]
      .map(([, text = ""]) => ({ page, text }))
  );
}

function treatments(block: Block): Treatment[] {
  return TREATMENTS.filter(([page, begins]) => page === block.page && block.text.startsWith(begins))
    .map(([, , treatment]) => treatment);
}

Deno.test("every block of commands in the documentation is run by a test that is known", () => {
  const all = blocks();
  for (const block of all) {
    const found = treatments(block);
    const [first] = block.text.split("\n");
    assertEquals(found.length, 1, `${block.page}: no test, or several, for: ${first}`);
    const [how] = found;
    if (how === undefined || "run" in how) continue;
    const file = how.by.includes("/") ? how.by : join("tests", how.by);
    assertStringIncludes(Deno.readTextFileSync(inRepository(file)), how.with);
  }
  for (const [page, begins] of TREATMENTS) {
    const uses = all.filter((block) => block.page === page && block.text.startsWith(begins));
    assert(uses.length > 0, `${page} has no such block any more: ${begins}`);
  }
});

/** A human's machine: a home, a directory to type in, and programs that are not everywhere. */
class Machine implements AsyncDisposable {
  readonly home = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-docs-" }));
  readonly source = join(this.home, "source");
  readonly root = join(this.home, ".local/share/chb/app");
  readonly #log = join(this.home, "serve.log");

  constructor() {
    Deno.mkdirSync(this.source);
    Deno.mkdirSync(join(this.home, "bin"));
    const deno = `exec '${Deno.execPath()}' run -A --no-config`;
    // The registry is not asked: this Deno is the one that runs.
    this.#program("npx", `shift 4\n${deno} '${inRepository("tools/chb.ts")}' "$@"`);
    this.#program("less", 'exec cat "$@"');
  }

  #program(name: string, text: string): void {
    const path = join(this.home, "bin", name);
    Deno.writeTextFileSync(path, `#!/bin/sh\n${text}\n`);
    Deno.chmodSync(path, 0o755);
  }

  /** Runs lines of shell; fails unless they succeed. Gives what they printed. */
  async type(text: string, where: "source" | "root"): Promise<string> {
    const { code, stdout } = await new Deno.Command("/bin/sh", {
      args: ["-ec", `exec 2>&1\nroot=~/.local/share/chb/app\n${text}`],
      cwd: this[where],
      env: {
        HOME: this.home,
        PATH: `${join(this.home, "bin")}:${Deno.env.get("PATH") ?? "/usr/bin:/bin"}`,
        DENO_DIR: Deno.env.get("DENO_DIR") ?? join(Deno.env.get("HOME") ?? "/", ".cache/deno"),
        CHB_INIT_ANYWHERE: "1",
        LOG: this.#log,
      },
      stdin: "null",
    }).output();
    const said = new TextDecoder().decode(stdout);
    assertEquals(code, 0, `${text}\n${said}`);
    return said;
  }

  /** Waits for the ready line of what was started in the background. */
  async served(): Promise<void> {
    for (let tries = 0; tries < 1200; tries++) {
      if (there(this.#log) && Deno.readTextFileSync(this.#log).includes("chb: ready")) return;
      await sleep(50);
    }
    throw new Error(`Nobody serves: ${there(this.#log) ? Deno.readTextFileSync(this.#log) : ""}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (there(`${this.#log}.pid`)) {
      const pid = Number(Deno.readTextFileSync(`${this.#log}.pid`));
      if (pid > 1) {
        Deno.kill(pid, "SIGTERM");
        for (let tries = 0; tries < 400 && there(`/proc/${pid}`); tries++) await sleep(50);
      }
    }
    Deno.removeSync(this.home, { recursive: true });
  }
}

Deno.test("from nothing to a verb of one's own, as the README says, and the commands of the pages", async () => {
  await using machine = new Machine();
  const started = performance.now();
  const said = new Map<string, string>();
  for (const block of blocks()) {
    const [how] = treatments(block);
    if (how === undefined || !("run" in how)) continue;
    const text = (how.swap ?? []).reduce((now, [from, to]) => {
      assertStringIncludes(now, from);
      return now.replaceAll(from, to);
    }, block.text);
    said.set(block.text.split("\n")[0] ?? "", await machine.type(text, how.run));
    if (text.includes("$LOG.pid")) await machine.served();
    if (block.text.startsWith("export CHB_DIR=")) {
      const seconds = (performance.now() - started) / 1000;
      assert(seconds < 300, `a first verb took ${Math.round(seconds)} s`);
    }
  }
  const of = (begin: string) => [...said].find(([first]) => first.startsWith(begin))?.[1] ?? "";
  assertStringIncludes(of("root="), "A bridge is in");
  assertStringIncludes(of("root="), "/spool/main/queue:/chb/queue:rw");
  assertStringIncludes(of("export CHB_DIR="), "Mounted on");
  assertStringIncludes(of("echo '{"), '"outcome":"succeeded"');
  // The mount lines in the README are those of `chb mounts`, for its example's place.
  const lines = await machine.type("./bin/chb mounts", "root");
  for (const line of lines.trim().split("\n")) {
    assertStringIncludes(
      Deno.readTextFileSync(inRepository("README.md")),
      line.replaceAll(machine.home, "/home/me"),
    );
  }
});

Deno.test("the session in the README is what happens", async () => {
  assertEquals(
    await transcript(),
    readmeTranscript(),
    "run: deno run -A tools/transcript.ts --write",
  );
});
