/**
 * What a service unit is made from: the root, whose it is, the executable, and what the policy's
 * commands need beyond the confinement of the daemon, which they inherit.
 *
 * @module
 */
import { BUILD } from "#build";
import { EXIT } from "../codes.ts";
import { errorCode, ExitError } from "../errors.ts";
import { KILL_PATHS, killPath } from "../permissions.ts";
import { programIsOneOf } from "../policy/denials.ts";
import type { Policy, VerbPolicy } from "../policy/policy.ts";
import { policyPrograms } from "../policy/programs.ts";
import { sha256 } from "../daemon/trust_store.ts";
import { look } from "../spool/look.ts";
import { holds } from "./permission_sets.ts";

/** How tightly the unit confines. */
export type Profile = "strict" | "containers";

/** What one verb needs that a unit must make room for. */
export interface Need {
  /** As in the policy: `network`, `jit`, `write:/path`. */
  readonly need: string;
  readonly verbs: readonly string[];
}

/** Everything that a unit says depends on these. */
export interface UnitFacts {
  /** Absolute. */
  readonly root: string;
  /** Of the unit files, without ending. */
  readonly name: string;
  /** The daemon's user: the owner of `state/`. */
  readonly uid: number;
  readonly bin_sha256: string;
  readonly version: string;
  /** True when `bin/chb` runs from source. */
  readonly source: boolean;
  /** True when the executable makes no code at run time. */
  readonly jitless: boolean;
  readonly policy: string;
  readonly agents: readonly string[];
  /** Absolute paths, as far as they are programs of the host; `base/…` otherwise. */
  readonly programs: readonly string[];
  /** Programs of which it is not known what they start in turn: scripts. */
  readonly scripts: readonly string[];
  /** Programs that talk to a container engine. */
  readonly engines: readonly string[];
  readonly kill: string;
  readonly needs: readonly Need[];
  /** Directories that commands are given as their home. */
  readonly homes: readonly string[];
  /** Agents for which the identity of other users matters. */
  readonly otherUsers: readonly string[];
  /** Agents whose queue carries a group. */
  readonly groups: readonly string[];
}

const ENGINES = new Set(["docker", "docker-compose", "podman", "podman-compose", "nerdctl"]);

/** Needs by kind, with the verbs that have them. */
function needsOf(verbs: Iterable<VerbPolicy>): Need[] {
  const needs = new Map<string, string[]>();
  for (const verb of verbs) {
    for (const need of verb.needs) needs.set(need, [...(needs.get(need) ?? []), verb.name]);
  }
  return [...needs].map(([need, names]) => ({ need, verbs: names.sort() }))
    .sort((a, b) => a.need < b.need ? -1 : 1);
}

/** True when the file begins with `#!`; one that cannot be read counts as one that does. */
function isScript(path: string): boolean {
  try {
    using file = Deno.openSync(path, { read: true });
    const head = new Uint8Array(2);
    return file.readSync(head) !== 2 || (head[0] === 0x23 && head[1] === 0x21);
  } catch {
    return true;
  }
}

/** A name for unit files, from the root's. */
export function unitName(root: string): string {
  const name = root.slice(root.lastIndexOf("/") + 1).replace(/[^A-Za-z0-9_-]+/g, "-").replace(
    /^-+|-+$/g,
    "",
  );
  return name === "" || name === "chb" ? "chb" : `chb-${name}`.slice(0, 100);
}

/**
 * The facts of the working directory and of a policy. Read permission on `./bin`, `./state` and the
 * policy's programs.
 *
 * @throws {ExitError} outside of a root, or when it has a name that no unit can hold
 */
export function unitFacts(policy: Policy, name?: string): UnitFacts {
  const root = Deno.cwd();
  if (/[\p{Cc}"'\\:;]/u.test(root)) {
    throw new ExitError(
      EXIT.config,
      "the root's name holds one of \" ' \\ : ; which no unit can: move the root",
    );
  }
  const state = look("state");
  if (state?.kind !== "directory") {
    throw new ExitError(
      EXIT.config,
      "no bridge here: run it in the root that the init script made",
    );
  }
  let bin: Uint8Array;
  try {
    bin = Deno.readFileSync("bin/chb");
  } catch (error) {
    throw new ExitError(EXIT.config, `bin/chb cannot be read: ${errorCode(error) ?? "unknown"}`);
  }
  const programs = policyPrograms(policy);
  const agents = [...policy.agents.values()];
  const homes = [...policy.verbs.values()].flatMap(({ env }) => env["HOME"] ?? []);
  return {
    root,
    name: name ?? unitName(root),
    uid: state.uid,
    bin_sha256: sha256(bin),
    version: BUILD.version,
    source: BUILD.source,
    // Without a compiler at run time there is no WebAssembly either.
    jitless: !("WebAssembly" in globalThis),
    policy: policy.digest,
    agents: agents.map((agent) => agent.name).sort(),
    programs,
    scripts: programs.filter((path) => path.startsWith("base/") || isScript(path)),
    engines: programs.filter((path) => programIsOneOf(path, ENGINES) !== null),
    kill: killPath((path) => KILL_PATHS.includes(path) && holds({ kind: "run", path })),
    needs: needsOf(policy.verbs.values()),
    homes: [...new Set(homes)].sort(),
    otherUsers: agents.filter((a) =>
      a.mount === "single" || a.uids.length > 0 || a.agent_gid !== null
    )
      .map((a) => a.name).sort(),
    groups: agents.filter((a) => a.agent_gid !== null).map((a) => a.name).sort(),
  };
}
