/**
 * Holds a container against what a sandbox may be given: its three directories, each a mount of its
 * own, and nothing of the host that enforces. What is looked at is what the engine itself says of the
 * container, as `docker inspect` and `podman inspect` print it.
 *
 * @module
 */
import type { Finding } from "../spool/types.ts";
import { printable } from "../names.ts";
import { deniedSource } from "../policy/mounts.ts";
import { found } from "./exam.ts";

/** One mount of a container. */
interface Mount {
  readonly source: string;
  readonly target: string;
  readonly writable: boolean;
}

/** What is known of a container. */
interface Container {
  readonly name: string;
  readonly mounts: readonly Mount[];
  /** What it shares with the host, or may do there, that no sandbox should. */
  readonly powers: readonly string[];
}

/** What the exam must be told of the bridge. */
export interface MountFacts {
  /** Absolute. */
  readonly root: string;
  readonly agents: readonly string[];
  /** Agents whose policy accepts one mount of all directories. */
  readonly single: readonly string[];
}

function object(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? value as Record<string, unknown> : {};
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function container(value: unknown): Container {
  const raw = object(value);
  const host = object(raw["HostConfig"]);
  const mounts = Array.isArray(raw["Mounts"]) ? raw["Mounts"].map(object) : [];
  const powers = [
    ...(host["Privileged"] === true ? ["--privileged"] : []),
    ...["PidMode", "IpcMode"].filter((key) => text(host[key]) === "host")
      .map((key) => `--${key.slice(0, -4).toLowerCase()}=host`),
    ...(text(host["NetworkMode"]) === "host" ? ["--network=host"] : []),
    ...(Array.isArray(host["CapAdd"]) ? host["CapAdd"] : []).map(text)
      .filter((name) => /SYS_ADMIN|SYS_PTRACE|SYS_MODULE|DAC_READ_SEARCH|ALL/.test(name))
      .map((name) => `--cap-add=${printable(name, 40)}`),
  ];
  return {
    name: printable(text(raw["Name"]).replace(/^\//, ""), 100) || "container",
    // Volumes are the engine's own, wherever it keeps them.
    mounts: mounts.filter((mount) => text(mount["Type"]) === "bind").map((mount) => ({
      source: text(mount["Source"]).replace(/(.)\/+$/, "$1"),
      target: text(mount["Destination"]),
      writable: mount["RW"] === true,
    })),
    powers,
  };
}

function inside(path: string, tree: string): boolean {
  return path === tree || path.startsWith(tree === "/" ? tree : `${tree}/`);
}

const ROLES = [
  { role: "queue", writable: true },
  { role: "results", writable: false },
  { role: "inbox", writable: false },
] as const;

/** What is wrong with one mount that has to do with the bridge, or opens the host. */
function judge(mount: Mount, facts: MountFacts, name: string): Finding[] {
  const { root } = facts;
  const shown = `${name}:${printable(mount.target, 80)}`;
  const spool = `${root}/spool`;
  const [agent = "", role, ...below] = mount.source.startsWith(`${spool}/`)
    ? mount.source.slice(spool.length + 1).split("/")
    : [];
  if (inside(root, mount.source) || (inside(mount.source, root) && agent === "")) {
    const message = `It holds ${printable(mount.source, 200)}: the enforcing side of the bridge`;
    return [found("error", "mount-host", shown, message, "./bin/chb mounts")];
  }
  if (agent === "") {
    const denied = deniedSource(mount.source, !mount.writable);
    return denied === null
      ? []
      : [found("error", "mount-host", shown, `${denied.message}. ${denied.hint}`)];
  }
  const mend = facts.agents.includes(agent) ? `./bin/chb mounts --agent ${agent}` : "";
  if (role === undefined) {
    if (facts.single.includes(agent)) return [];
    const message = "One mount of all directories: what is inside can replace queue/ itself";
    return [found("error", "mount-single", shown, message, mend)];
  }
  const wanted = ROLES.find((known) => known.role === role);
  if (wanted === undefined || below.length > 0) {
    const message = `It is none of the three directories: ${printable(mount.source, 200)}`;
    return [found("error", "mount-other", shown, message, mend)];
  }
  if (mount.writable !== wanted.writable) {
    const message = wanted.writable
      ? "The queue is read-only: nothing can be asked"
      : `${role}/ is writable from inside`;
    return [found("error", "mount-mode", shown, message, mend)];
  }
  return [];
}

/** Which agents' directories a container has, and whether all three. */
function missing(mounts: readonly Mount[], facts: MountFacts, name: string): Finding[] {
  const findings: Finding[] = [];
  const seen = facts.agents.filter((agent) =>
    mounts.some(({ source }) => inside(source, `${facts.root}/spool/${agent}`))
  );
  if (seen.length === 0) {
    const message = "It has no directory of this bridge: mount those of one agent";
    return [found("warning", "mount-missing", name, message, "./bin/chb mounts")];
  }
  if (seen.length > 1) {
    const message = `It has the directories of several agents: ${
      seen.join(", ")
    }; mount those of one`;
    findings.push(found("error", "mount-agents", name, message));
  }
  for (const agent of seen) {
    const place = `${facts.root}/spool/${agent}`;
    if (mounts.some(({ source }) => source === place)) continue;
    const absent = ROLES.filter(({ role }) => !mounts.some((m) => m.source === `${place}/${role}`));
    if (absent.length === 0) continue;
    const message = `It has no ${absent.map(({ role }) => `${role}/`).join(", ")} of ${agent}`;
    findings.push(
      found("error", "mount-missing", name, message, `./bin/chb mounts --agent ${agent}`),
    );
  }
  return findings;
}

/**
 * Everything that is wrong with the containers that an engine describes.
 *
 * @param json what `docker inspect` or `podman inspect` printed
 * @throws {SyntaxError} when it is no JSON
 */
export function examMounts(json: string, facts: MountFacts): Finding[] {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (cause) {
    throw new SyntaxError("standard input is not what docker inspect prints", { cause });
  }
  const containers = (Array.isArray(value) ? value : [value]).map(container);
  if (containers.length === 0) {
    return [found("warning", "mount-missing", "--mounts", "There is no container in it")];
  }
  return containers.flatMap(({ name, mounts, powers }) => [
    ...powers.map((power) =>
      found("error", "mount-powers", name, `${power}: what runs inside is the host`)
    ),
    ...mounts.flatMap((mount) => judge(mount, facts, name)),
    ...missing(mounts, facts, name),
  ]);
}
