/**
 * The confinement of the service as a table: each directive with its value, the line that says why,
 * and whether a user's own service manager can carry it out. The kernel holds here what the
 * program's permissions say inside; neither relies on the other.
 *
 * Rules
 * 1. A directive is left out only for a reason that stands beside it in the unit, with the verbs that
 *    it costs.
 * 2. The root is one writable mount with read-only parts, never several writable ones: claims and
 *    publications are renames between `spool/` and `work/`, and no rename crosses a mount.
 * 3. What a command leaves in the temporary directories of the service lives as long as the command,
 *    which may outlive the daemon: they are file systems of the name space, not of the service.
 *
 * @module
 */
import type { Profile, UnitFacts } from "./unit_facts.ts";

/** One directive, or the note that it is left out. */
export interface Directive {
  readonly key: string;
  /** null: left out, and `why` says why. */
  readonly value: string | null;
  readonly why: string;
  /** Where it works: only in the system's manager, or in a user's own too. */
  readonly scope: "system" | "both";
}

/**
 * One word of a directive, or the program of a command line: `%` begins a specifier, white space
 * ends a word. In the arguments of a command `$` has to be doubled as well; in the program it stands
 * for itself.
 */
export function unitWord(text: string): string {
  const escaped = text.replaceAll("%", "%%");
  return /[\s';]/.test(escaped) ? `"${escaped}"` : escaped;
}

/** The verbs that have a need. */
function verbsWith(facts: UnitFacts, need: (text: string) => boolean): string[] {
  return [...new Set(facts.needs.filter((n) => need(n.need)).flatMap((n) => n.verbs))].sort();
}

function list(names: readonly string[]): string {
  return names.join(", ");
}

function inside(path: string, tree: string): boolean {
  return path === tree || path.startsWith(`${tree}/`);
}

/** Trees that `ProtectHome=` hides. */
const HOMES = ["/home", "/root", "/run/user"];

function homeOf(path: string): boolean {
  return HOMES.some((tree) => inside(path, tree));
}

/** Where the dynamic linker and libraries are, and what engines start in turn. */
const LIBRARIES = ["-/lib", "-/lib32", "-/lib64", "-/usr/lib", "-/usr/lib64"];
const ENGINE_PARTS = ["-/usr/libexec", "-/usr/local/lib", "-/usr/local/libexec"];

/** `ProtectHome=` and what has to stay visible of the homes. */
function homeDirectives(facts: UnitFacts, profile: Profile): Directive[] {
  const scope = "system";
  if (profile === "containers" && facts.homes.some(homeOf)) {
    return [{
      key: "ProtectHome",
      value: "read-only",
      why: `a verb has its HOME in ${list(facts.homes.filter(homeOf))}`,
      scope,
    }];
  }
  const seen = facts.programs.filter((path) => path.startsWith("/") && homeOf(path));
  const podman = profile === "containers" && facts.engines.some((path) => path.includes("podman"));
  if (!homeOf(facts.root) && seen.length === 0 && !podman) {
    return [{ key: "ProtectHome", value: "yes", why: "no home is visible", scope }];
  }
  return [
    { key: "ProtectHome", value: "tmpfs", why: "no home is visible but what follows", scope },
    ...(homeOf(facts.root)
      ? [{ key: "BindPaths", value: unitWord(facts.root), why: "the root", scope } as const]
      : []),
    ...(podman
      ? [
        {
          key: "BindPaths",
          value: `-/run/user/${facts.uid}/podman`,
          why: `the socket of podman --remote, for ${list(facts.engines)}`,
          scope,
        } as const,
      ]
      : []),
    ...(seen.length > 0
      ? [
        {
          key: "BindReadOnlyPaths",
          value: seen.map(unitWord).join(" "),
          why: "programs of verbs",
          scope,
        } as const,
      ]
      : []),
  ];
}

function execDirectives(facts: UnitFacts): Directive[] {
  const key = "NoExecPaths";
  const scope = "system";
  if (facts.source || facts.scripts.length > 0) {
    const what = facts.source ? "bin/chb" : list(facts.scripts);
    return [{ key, value: null, why: `${what}: a script starts what nobody can list`, scope }];
  }
  const programs = [`${facts.root}/bin/chb`, facts.kill, ...facts.programs];
  return [
    { key, value: "/", why: "nothing may be executed but what follows", scope },
    {
      key: "ExecPaths",
      value: [
        ...programs.map((path) => `-${path}`),
        ...LIBRARIES,
        ...(facts.engines.length > 0 ? ENGINE_PARTS : []),
      ].map(unitWord).join(" "),
      why: "run ./bin/chb, the kill helper, the programs of the verbs, and the system's libraries",
      scope,
    },
  ];
}

function userDirectives(facts: UnitFacts, profile: Profile): Directive[] {
  const key = "PrivateUsers";
  const scope = "system";
  const left = (why: string): Directive[] => [{ key, value: null, why, scope }];
  if (facts.otherUsers.length > 0) {
    return left(`agents ${list(facts.otherUsers)}: owners and groups of requests count`);
  }
  if (profile === "containers") {
    return [
      ...left("the engine's socket is open to a group"),
      ...(facts.uid !== 0 && facts.engines.some((path) => path.includes("docker"))
        ? [
          {
            key: "SupplementaryGroups",
            value: "docker",
            why: `the engine's socket, for ${list(facts.engines)}`,
            scope,
          } as const,
        ]
        : []),
    ];
  }
  return [{ key, value: "yes", why: "no other user exists for the service", scope }];
}

/** The directives of the service section that confine it. */
export function confinement(facts: UnitFacts, profile: Profile): Directive[] {
  const network = verbsWith(facts, (need) => need === "network");
  const jit = verbsWith(facts, (need) => need === "jit");
  const writes = facts.needs.filter(({ need }) => need.startsWith("write:"));
  const shared = profile === "containers";
  const system = (key: string, value: string | null, why: string): Directive => ({
    key,
    value,
    why,
    scope: "system",
  });
  const both = (key: string, value: string | null, why: string): Directive => ({
    key,
    value,
    why,
    scope: "both",
  });
  const root = (name: string) => unitWord(`${facts.root}/${name}`);
  return [
    system("ProtectSystem", "strict", "everything is read-only but what is named below"),
    system(
      "ReadWritePaths",
      unitWord(facts.root),
      "write ./spool, ./work, ./state: one mount, since requests move by rename",
    ),
    system(
      "ReadOnlyPaths",
      [root("bin"), root("base"), `-${facts.root}/keys`, `-${facts.root}/bridge.jsonc`]
        .map((word) => word.startsWith("-") ? unitWord(word) : word).join(" "),
      "read ./bin, ./base, ./keys, ./bridge.jsonc: never written by the service",
    ),
    ...writes.map(({ need, verbs }) =>
      system("ReadWritePaths", unitWord(need.slice("write:".length)), `needs of ${list(verbs)}`)
    ),
    ...homeDirectives(facts, profile),
    system("TemporaryFileSystem", "/tmp /var/tmp", "temporary files of its own"),
    system("PrivateMounts", "yes", "its mounts are nobody else's"),
    ...execDirectives(facts),
    system("PrivateDevices", "yes", "no device but null, zero, random and the like"),
    system("DevicePolicy", "closed", "the same, for device nodes of any name"),
    network.length > 0
      ? system("PrivateNetwork", null, `needs of ${list(network)}`)
      : system("PrivateNetwork", "yes", "no permission for the network: no interface either"),
    network.length > 0
      ? both("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6", `needs of ${list(network)}`)
      : both("RestrictAddressFamilies", "AF_UNIX", "no permission for the network"),
    network.length > 0
      ? system("IPAddressDeny", null, `needs of ${list(network)}`)
      : system("IPAddressDeny", "any", "no permission for the network"),
    ...userDirectives(facts, profile),
    system("CapabilityBoundingSet", "", "no privilege of root, for whatever is started"),
    system("AmbientCapabilities", "", "nor any handed on"),
    both("NoNewPrivileges", "yes", "set-id programs stay what their caller is"),
    both("LockPersonality", "yes", "no other execution domain"),
    jit.length > 0
      ? both("MemoryDenyWriteExecute", null, `needs of ${list(jit)}`)
      : !facts.jitless
      ? both("MemoryDenyWriteExecute", null, "this executable makes code: compile it without --jit")
      : shared
      ? both("MemoryDenyWriteExecute", null, "the engines' programs may make code")
      : both("MemoryDenyWriteExecute", "yes", "nothing makes code while it runs"),
    system("ProtectKernelTunables", "yes", "no permission for system information"),
    system("ProtectKernelModules", "yes", "no kernel code"),
    system("ProtectKernelLogs", "yes", "no kernel messages"),
    system("ProtectControlGroups", "yes", "no control groups"),
    system("ProtectClock", "yes", "no setting of the clock"),
    system("ProtectHostname", "yes", "no setting of the host's name"),
    system("ProtectProc", "invisible", "no sight of other users' processes"),
    shared
      ? system("ProcSubset", null, "engines read /proc beyond processes")
      : system("ProcSubset", "pid", "of /proc only processes"),
    system("PrivateIPC", "yes", "no shared memory with others"),
    system(
      "RemoveIPC",
      facts.uid === 0 ? null : "yes",
      facts.uid === 0 ? "root's stays" : "none left behind",
    ),
    both("RestrictNamespaces", "yes", "no name space, where much of the kernel opens up"),
    both("RestrictRealtime", "yes", "no command may starve the host"),
    facts.groups.length > 0
      ? both("RestrictSUIDSGID", null, `the queues of ${list(facts.groups)} carry a group`)
      : both("RestrictSUIDSGID", "yes", "no file that hands on its owner's rights"),
    both("KeyringMode", "private", "no kernel keys of others"),
    both("SystemCallArchitectures", "native", "one system call table"),
    both("SystemCallFilter", "@system-service", "what services use"),
    both(
      "SystemCallFilter",
      "~@privileged @resources",
      "and of that nothing for privilege or priority",
    ),
    both("SystemCallErrorNumber", "EPERM", "anything else fails, and does not kill"),
    both("LimitCORE", "0", "no keys in a core file"),
    both("UMask", "0077", "files are its own unless said otherwise"),
    both(
      "UnsetEnvironment",
      "DENO_CERT DENO_DIR DENO_PERMISSION_BROKER_PATH DENO_V8_FLAGS LD_LIBRARY_PATH LD_PRELOAD NODE_OPTIONS",
      "no variable that loads or decides anything",
    ),
  ];
}
