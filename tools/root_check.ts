/**
 * The look at a root, and at what lies above it, that the program can not take itself: under its
 * narrow permissions it sees nothing outside the root, and of the root only what is in it.
 *
 * @module
 */
import { dirname } from "node:path";

/** What `stat` says of a directory, as far as it matters here. */
export interface DirectoryLook {
  readonly path: string;
  readonly uid: number;
  readonly mode: number;
}

const GROUP_OR_WORLD = 0o077;
const WORLD_WRITE = 0o002;
const STICKY = 0o1000;

/**
 * What is wrong with a root: one line each, with the command that mends it.
 *
 * @param chain the root first, then every directory above it
 * @param uid the user that the daemon runs as
 */
export function rootFindings(chain: readonly DirectoryLook[], uid: number): string[] {
  const [root, ...above] = chain;
  if (root === undefined) return ["there is no root to look at"];
  const findings: string[] = [];
  if (root.uid !== uid) {
    findings.push(
      `${root.path} belongs to uid ${root.uid}, not ${uid}: chown it, or run as its owner`,
    );
  }
  if ((root.mode & GROUP_OR_WORLD) !== 0) {
    findings.push(`${root.path} is open to others: chmod 700 '${root.path}'`);
  }
  for (const directory of above) {
    // With the sticky bit, as on /tmp, others can add names but not take ours away.
    if ((directory.mode & WORLD_WRITE) !== 0 && (directory.mode & STICKY) === 0) {
      findings.push(`${directory.path} is writable for everybody: chmod o-w '${directory.path}'`);
    }
    if (directory.uid !== 0 && directory.uid !== uid) {
      findings.push(`${directory.path} belongs to uid ${directory.uid}: move the root elsewhere`);
    }
  }
  return findings;
}

/** The root and every directory above it. `root` must be a real path. */
export function lookUpwards(root: string): DirectoryLook[] {
  const chain: DirectoryLook[] = [];
  for (let path = root;; path = dirname(path)) {
    const { uid, mode } = Deno.statSync(path);
    chain.push({ path, uid: uid ?? -1, mode: mode ?? 0o777 });
    if (path === dirname(path)) return chain;
  }
}
