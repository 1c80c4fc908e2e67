/**
 * The policy that reads a repository which the sandbox can write: every way that we know for a
 * repository to make git start a program is set. Plain git springs each trap, the policy none.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { there } from "./helpers/bridge.ts";
import { PolicyBridge } from "./helpers/policy_bridge.ts";

const ENV = {
  HOME: "/nonexistent",
  PATH: "/usr/bin:/bin",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_AUTHOR_NAME: "A",
  GIT_AUTHOR_EMAIL: "a@example.org",
  GIT_COMMITTER_NAME: "A",
  GIT_COMMITTER_EMAIL: "a@example.org",
};

/** A repository in a temporary directory, and the traps that went off in it. */
class Repository implements Disposable {
  readonly directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-git-" }));
  readonly path = join(this.directory, "app");
  readonly #sprung = join(this.directory, "sprung");

  constructor() {
    Deno.mkdirSync(this.path);
    Deno.mkdirSync(this.#sprung);
    this.git("init", "--quiet", "--initial-branch=main");
  }

  /** Plain git, as a careless host would run it. */
  git(...args: string[]): string {
    return this.gitWith("", ...args);
  }

  /** The same with a file on standard input. */
  gitWith(stdin: string, ...args: string[]): string {
    const file = join(this.directory, "stdin");
    Deno.writeTextFileSync(file, stdin);
    const { stdout } = new Deno.Command("/bin/sh", {
      args: ["-c", 'exec /usr/bin/git "$@" <"$0" 2>&1', file, "-C", this.path, ...args],
      env: ENV,
      stdin: "null",
    }).outputSync();
    return new TextDecoder().decode(stdout).trim();
  }

  write(name: string, text: string): void {
    const path = join(this.path, name);
    Deno.mkdirSync(join(path, ".."), { recursive: true });
    Deno.writeTextFileSync(path, text);
  }

  /** A program that tells that it ran, and then does what `rest` says. */
  trap(name: string, rest = "cat"): string {
    const path = join(this.directory, `trap-${name}`);
    Deno.writeTextFileSync(path, `#!/bin/sh\n: >'${join(this.#sprung, name)}'\n${rest}\n`);
    Deno.chmodSync(path, 0o755);
    return path;
  }

  config(name: string, value: string): void {
    this.git("config", name, value);
  }

  /** Which traps went off since the last look. */
  sprung(): string[] {
    const names = [...Deno.readDirSync(this.#sprung)].map((entry) => entry.name).sort();
    for (const name of names) Deno.removeSync(join(this.#sprung, name));
    return names;
  }

  [Symbol.dispose](): void {
    Deno.removeSync(this.directory, { recursive: true });
  }
}

/** Sets every trap, on two commits with a submodule, a signature and a missing object. */
function booby(repository: Repository): { first: string; missing: string } {
  const { git, config, trap } = {
    git: repository.git.bind(repository),
    config: repository.config.bind(repository),
    trap: repository.trap.bind(repository),
  };
  // A repository within, for what git does in submodules.
  const sub = join(repository.path, "sub");
  git("init", "--quiet", sub);
  Deno.writeTextFileSync(join(sub, "f"), "one\n");
  git("-C", "sub", "add", "f");
  git("-C", "sub", "commit", "--quiet", "-m", "one");
  repository.write("file.evil", "one\n");
  repository.write(".gitattributes", "*.evil diff=evil filter=evil\n");
  repository.write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n');
  git("add", ".");
  git("commit", "--quiet", "-m", "first");
  const first = git("rev-parse", "HEAD");
  Deno.writeTextFileSync(join(sub, "f"), "two\n");
  git("-C", "sub", "commit", "--quiet", "-a", "-m", "two");
  repository.write("file.evil", "two\n");
  git("commit", "--quiet", "-a", "-m", "second");
  // The newest commit carries a signature, which git asks gpg about.
  const lines = git("cat-file", "commit", "HEAD").split("\n");
  const end = lines.indexOf("");
  const pgp = ["gpgsig -----BEGIN PGP SIGNATURE-----", " ", " x", " -----END PGP SIGNATURE-----"];
  const signed = [...lines.slice(0, end), ...pgp, ...lines.slice(end), ""].join("\n");
  git(
    "update-ref",
    "HEAD",
    repository.gitWith(signed, "hash-object", "-t", "commit", "-w", "--stdin"),
  );
  // A branch whose tree is not there, in a partial clone whose remote would be asked for it.
  const missing = "0123456789abcdef0123456789abcdef01234567";
  const bare =
    `tree ${missing}\nauthor A <a@example.org> 1 +0000\ncommitter A <a@example.org> 1 +0000\n\nx\n`;
  const hollow = repository.gitWith(bare, "hash-object", "-t", "commit", "-w", "--stdin");
  git("update-ref", "refs/heads/hollow", hollow);

  config("core.repositoryFormatVersion", "1");
  config("extensions.partialClone", "origin");
  config("remote.origin.promisor", "true");
  config("remote.origin.url", repository.path);
  config("remote.origin.uploadpack", trap("uploadpack", "exit 1"));
  config("core.fsmonitor", trap("fsmonitor", "exit 1"));
  config("core.hooksPath", join(repository.directory, "hooks"));
  Deno.mkdirSync(join(repository.directory, "hooks"));
  const hook = trap("hook", "exit 0");
  for (const name of ["post-index-change", "reference-transaction", "pre-auto-gc"]) {
    Deno.symlinkSync(hook, join(repository.directory, "hooks", name));
  }
  config("core.pager", trap("pager"));
  config("pager.log", trap("pager-log"));
  config("diff.external", trap("external", "exit 0"));
  config("diff.evil.command", trap("diff-command", "exit 0"));
  config("diff.evil.textconv", trap("textconv", 'cat "$1"'));
  config("filter.evil.clean", trap("clean"));
  config("filter.evil.smudge", trap("smudge"));
  config("filter.evil.required", "true");
  config("gpg.program", trap("gpg", "exit 1"));
  config("log.showSignature", "true");
  config("format.pretty", "%G? %s");
  config("diff.submodule", "diff");
  config("alias.log", `!${trap("alias")}`);
  // In the submodule everything is set once more: git starts itself there.
  for (const name of ["diff.external", "core.fsmonitor"]) {
    git("-C", "sub", "config", name, trap(`sub-${name.replace(".", "-")}`, "exit 0"));
  }
  return { first, missing };
}

const git = there("/usr/bin/git");

Deno.test({
  name: `policies/git-read-only starts nothing that a hostile repository names${
    git ? "" : " # SKIP missing: /usr/bin/git"
  }`,
  ignore: !git,
  fn: async () => {
    using repository = new Repository();
    const { first } = booby(repository);

    // The traps work: plain git springs each of them that it can reach without a terminal.
    repository.sprung();
    repository.git("log", "--patch", "-1");
    repository.git("diff", first, "HEAD");
    repository.git("-c", "diff.external=", "diff", "--no-ext-diff", first, "HEAD");
    Deno.writeTextFileSync(join(repository.path, "file.evil"), "three\n");
    repository.git("status");
    repository.git("-c", "diff.external=", "diff", "--no-ext-diff", "--stat");
    repository.git("log", "--stat", "hollow");
    const live = repository.sprung();
    for (
      const name of [
        "clean",
        "diff-command",
        "fsmonitor",
        "gpg",
        "hook",
        "sub-diff-external",
        "textconv",
        "uploadpack",
      ]
    ) assert(live.includes(name), `the trap ${name} does not work: ${live}`);

    await using policy = await PolicyBridge.start("git-read-only", {
      "/home/me/src/app": repository.path,
    });
    assertMatch(
      await policy.did("log"),
      /^[0-9a-f]{40} \S+ A: second\n[0-9a-f]{40} \S+ A: first\n$/,
    );
    const commit = await policy.did("commit", { rev: "main" });
    assertStringIncludes(commit, "-one\n+two\n");
    assertStringIncludes(await policy.did("diff", { from: first }), "-one\n+two\n");
    assertMatch(await policy.did("branches"), /refs\/heads\/hollow\n.*refs\/heads\/main\n/);
    assertEquals(
      await policy.did("files", { rev: "main" }),
      ".gitattributes\n.gitmodules\nfile.evil\nsub\n",
    );
    // What is missing is an error, and nobody is asked for it.
    for (const verb of ["commit", "files"]) {
      assertEquals((await policy.ask(verb, { rev: "hollow" })).outcome, "failed", verb);
    }
    assertEquals((await policy.ask("diff", { from: "main", to: "hollow" })).outcome, "failed");
    assertEquals(repository.sprung(), []);
    policy.assertAllRan();

    // No word of a request is an option or another kind of name.
    for (
      const rev of ["--output=/tmp/x", "-p", "main:file.evil", "main..hollow", "@{-1}", "main\n"]
    ) {
      assertEquals((await policy.ask("log", { rev })).reason, "bad-args", rev);
    }
  },
});
