/**
 * The commit of the source tree, as far as it can be told.
 *
 * @module
 */
import { REPOSITORY } from "./launcher.ts";

function git(...args: string[]): string | undefined {
  try {
    const { success, stdout } = new Deno.Command("git", {
      args: ["-C", REPOSITORY, ...args],
      env: { GIT_OPTIONAL_LOCKS: "0" },
      stdin: "null",
      stderr: "null",
    }).outputSync();
    return success ? new TextDecoder().decode(stdout).trim() : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The full hash of the commit that is checked out, with `+changes` when tracked files differ from
 * it; `unknown` outside a git checkout of this tree or without git.
 */
export function currentCommit(): string {
  // A tree that was unpacked below somebody else's checkout is not that checkout.
  if (git("rev-parse", "--show-prefix") !== "") return "unknown";
  const hash = git("rev-parse", "--verify", "HEAD");
  if (hash === undefined || !/^[0-9a-f]{40,64}$/.test(hash)) return "unknown";
  return git("status", "--porcelain", "--untracked-files=no") === "" ? hash : `${hash}+changes`;
}
