/**
 * What no argument vector may hand to a container engine. Whoever may start a container with the
 * host's root directory, devices, namespaces or engine socket in it is root on the host, so these
 * arguments are refused whatever the policy says.
 *
 * Rules that this file keeps:
 * 1. Every text that an element can become is looked at: fixed elements, the values of an enum, the
 *    element of a boolean, with the boolean's element there and left out.
 * 2. An option counts in every spelling that the engines take: `--x=v`, `--x v`, `-xv`, `-x v`,
 *    grouped short options, and abbreviated long ones where the program's parser takes them.
 * 3. Where an option stands does not matter. An argument that is meant for the program inside the
 *    container and looks like a denied option is refused too: a wrong no has a way out (a script in
 *    the image), a wrong yes has none.
 * 4. After `exec`, `run`, `cp` and the like there is no placeholder at all: everything there can
 *    become a command, a mount or a file of the host.
 * 5. What decides over containers (compose and manifest files, endpoints) never comes from where an
 *    agent can write (X3).
 *
 * Compose files themselves are not read here: a human trusts their content.
 *
 * @module
 */
import { type Denial, programIsOneOf } from "./denials.ts";
import { deniedSource, mountSources, shown, type Source, volumeSources } from "./mounts.ts";

/** One element of an argument vector, as what it can become. */
export interface Slot {
  /** Every text that it can become, as far as the policy fixes it; empty for a free placeholder. */
  readonly texts: readonly string[];
  /** `--flag=` in front of a placeholder, else "". */
  readonly prefix: string;
  readonly placeholder: boolean;
  /** The request chooses the text, within a type only. */
  readonly free: boolean;
  /** The element may be left out (a boolean). */
  readonly optional: boolean;
  /** A path below a directory that an agent can write. */
  readonly agent_writable: boolean;
}

/** A denial and the slot that it is about. */
export interface SlotDenial extends Denial {
  /** Index in the list of slots. */
  readonly index: number;
}

type Engine = "engine" | "compose" | "kube" | "system";

const ENGINES: readonly (readonly [Engine, ReadonlySet<string>])[] = [
  ["compose", new Set(["docker-compose", "podman-compose"])],
  ["kube", new Set(["kubectl", "oc", "k3s", "microk8s", "kubecolor", "helm"])],
  ["system", new Set(["lxc", "incus"])],
  [
    "engine",
    new Set(["docker", "podman", "podman-remote", "nerdctl", "finch", "buildah", "ctr", "crictl"]),
  ],
];

/** The kind of container program that a path names, or null. */
function engineOf(program: string): Engine | null {
  for (const [engine, names] of ENGINES) {
    if (programIsOneOf(program, names) !== null) return engine;
  }
  return null;
}

/** Words after which everything can become a command, a mount or a host file. */
const START_WORDS: Readonly<Record<Engine, ReadonlySet<string>>> = {
  engine: new Set(["exec", "run", "cp", "create", "play", "plugin", "debug", "unshare", "mount"]),
  compose: new Set(["exec", "run", "cp"]),
  kube: new Set(["exec", "run", "cp", "debug", "attach", "plugin"]),
  system: new Set(["exec", "run", "file", "launch", "init", "config", "profile", "shell"]),
};

/** What `create` may follow without making a container. */
const CREATES_NO_CONTAINER = new Set([
  "builder",
  "buildx",
  "compose",
  "config",
  "context",
  "imagetools",
  "manifest",
  "namespace",
  "network",
  "secret",
  "volume",
]);

/** Long options without a value that are denied unless switched off. */
const PRIVILEGE_FLAGS = new Set(["privileged", "use-api-socket", "grant-all-permissions"]);

const SWITCHED_OFF = /^(?:false|0|f)$/i;

/** Long options with a value that are denied, all but the values that match. */
const PRIVILEGE_OPTIONS: ReadonlyMap<string, RegExp | null> = new Map<string, RegExp | null>([
  ["cap-add", null],
  ["device", null],
  ["device-cgroup-rule", null],
  ["security-opt", /^no-new-privileges(?:[:=]true)?$/],
  ["volumes-from", null],
  ["rootfs", null],
  ["hooks-dir", null],
  ["conmon", null],
  // A name is one that the host's administrator registered; a path is any program.
  ["runtime", /^[^/]+$/],
  ["allow", /^(?!.*(?:security\.insecure|network\.host|device|fs))/],
  ["allow-insecure-entitlement", null],
  ["overrides", null],
]);

/** Long options that choose a namespace: `host` and paths to one are denied. */
const NAMESPACE_OPTIONS = new Set([
  "pid",
  "ipc",
  "uts",
  "userns",
  "cgroupns",
  "net",
  "network",
]);

const HOST_NAMESPACE = /(?:^|[,=])(?:host(?:$|[:,])|ns:)/;

/** Long options whose value is a mount in the short form `source:target:options`. */
const VOLUME_OPTIONS = new Set(["volume"]);
/** Long options whose value is a mount in the long form `key=value,…`. */
const MOUNT_OPTIONS = new Set(["mount", "mount-add", "opt", "driver-opt"]);

/** Long options that say which engine or cluster is talked to, or as whom. */
const ENDPOINT_OPTIONS = new Set([
  "host",
  "url",
  "connection",
  "context",
  "config",
  "tlscacert",
  "tlscert",
  "tlskey",
  "tlsverify",
  "identity",
  "kubeconfig",
  "server",
  "token",
  "cluster",
  "as",
  "as-group",
  "root",
  "runroot",
  "storage-opt",
  "plugin-dir",
]);

/** Options whose value is a file that decides what containers may do. */
const FILE_OPTIONS = new Set([
  "--file",
  "-f",
  "--filename",
  "-k",
  "--kustomize",
  "--env-file",
  "--project-directory",
  "--compose-file",
  "-c",
  "--values",
  "--seccomp-policy",
]);

/** Options whose value holds further options for the engine. */
const NESTED = /^podman-(?:[a-z]+-)?args$/;

/** Short options that take a value, in the engines' `run`; the others can be grouped before one. */
const SHORT_WITH_VALUE = new Set([..."acehlmpuvwnfHoks"]);

/** Every denial of an argument vector; none when the program is no container engine. */
export function deniedContainerArguments(
  program: string,
  slots: readonly Slot[],
): readonly SlotDenial[] {
  const engine = engineOf(program);
  if (engine === null) return [];
  const found: SlotDenial[] = [];
  const told = new Set<number>();
  const deny = (index: number, denial: Denial | null) => {
    // One denial an element: the first says enough, and an enum would repeat it for every value.
    if (denial === null || told.has(index)) return;
    told.add(index);
    found.push({ index, ...denial });
  };

  placeholdersAfterStart(engine, slots, deny);
  slots.forEach((slot, index) => {
    if (slot.free) {
      if (slot.prefix !== "") deny(index, freeValue(engine, slot.prefix.slice(0, -1), slot, slots));
      return;
    }
    for (const text of slot.texts) {
      for (const option of optionsIn(text)) {
        for (const value of valuesOf(option, slots, index)) {
          deny(index, deniedOption(engine, option.name, value, option.value !== undefined));
        }
        if (option.value !== undefined) continue;
        for (const next of following(slots, index)) {
          if (next.slot.free) deny(next.index, freeValue(engine, option.text, next.slot, slots));
        }
      }
      deny(index, deniedWord(engine, text, slots, index));
    }
  });
  return found.sort((a, b) => a.index - b.index);
}

/** Rule 4. */
function placeholdersAfterStart(
  engine: Engine,
  slots: readonly Slot[],
  deny: (index: number, denial: Denial) => void,
): void {
  const start = slots.findIndex((slot, index) =>
    slot.texts.some((t) => starts(engine, t, slots, index))
  );
  if (start < 0) return;
  const word = slots[start]?.texts.find((t) => starts(engine, t, slots, start)) ?? "";
  slots.forEach((slot, index) => {
    if (!slot.placeholder || index < start) return;
    deny(index, {
      rule: "container-placeholder",
      message: `A placeholder ${index === start ? "that can become" : "after"} "${word}"`,
      hint: `Fix everything after "${word}": one verb for each command`,
    });
  });
}

function starts(engine: Engine, text: string, slots: readonly Slot[], index: number): boolean {
  if (!START_WORDS[engine].has(text)) return false;
  if (text !== "create") return true;
  if (slots[index - 1]?.texts.some((before) => CREATES_NO_CONTAINER.has(before))) return false;
  return !slots.slice(0, index).some((slot) => slot.texts.includes("compose"));
}

interface Option {
  /** As it is written: `--volume`, `-v`. */
  readonly text: string;
  /** Long name, or the short letter with its dash. */
  readonly name: string;
  /** Undefined when the value, if there is one, is the next element. */
  readonly value: string | undefined;
}

/** The options that one element can mean. */
function optionsIn(text: string): Option[] {
  const long = /^--([A-Za-z0-9][A-Za-z0-9.-]*)(?:=(.*))?$/s.exec(text);
  if (long !== null) {
    const name = long[1] ?? "";
    return [{ text: `--${name}`, name: name.toLowerCase(), value: long[2] }];
  }
  if (!/^-[A-Za-z]/.test(text)) return [];
  const options: Option[] = [];
  for (let i = 1; i < text.length; i++) {
    const letter = text.charAt(i);
    if (!/[A-Za-z]/.test(letter)) break;
    const rest = text.slice(i + 1);
    const value = rest === "" ? undefined : rest.replace(/^=/, "");
    options.push({ text: `-${letter}`, name: `-${letter}`, value });
    if (SHORT_WITH_VALUE.has(letter)) break;
  }
  return options;
}

/** The elements that can stand directly after an element. */
function following(slots: readonly Slot[], index: number): { slot: Slot; index: number }[] {
  const found = [];
  for (let i = index + 1; i < slots.length; i++) {
    const slot = slots[i];
    if (slot === undefined) break;
    found.push({ slot, index: i });
    if (!slot.optional) break;
  }
  return found;
}

/** Every value that an option can have; undefined stands for none. */
function valuesOf(
  option: Option,
  slots: readonly Slot[],
  index: number,
): (string | undefined)[] {
  if (option.value !== undefined) return [option.value];
  const next = following(slots, index).flatMap(({ slot }) => slot.texts);
  return [undefined, ...next];
}

/** Options that the parsers of the older compose programs also take abbreviated. */
const ABBREVIATED = new Set(["volume", "privileged"]);

/** The one of `names` that a written long option means, or null. */
function meansOneOf(engine: Engine, written: string, names: Iterable<string>): string | null {
  for (const name of names) {
    if (written === name) return name;
    if (
      engine === "compose" && written !== "" && ABBREVIATED.has(name) && name.startsWith(written)
    ) return name;
  }
  return null;
}

/**
 * An option with a value that the policy fixes.
 *
 * @param value undefined when the option stands alone
 * @param attached the value is part of the element, so it belongs to the option for certain
 */
function deniedOption(
  engine: Engine,
  name: string,
  value: string | undefined,
  attached: boolean,
): Denial | null {
  const flag = meansOneOf(engine, name, PRIVILEGE_FLAGS);
  if (flag !== null) {
    return attached && SWITCHED_OFF.test(value ?? "") ? null : privileged(flag);
  }
  const option = meansOneOf(engine, name, PRIVILEGE_OPTIONS.keys());
  if (option !== null) {
    const harmless = PRIVILEGE_OPTIONS.get(option) ?? null;
    if (harmless === null) return privileged(option);
    return value === undefined || harmless.test(value) ? null : privileged(option);
  }
  if (value === undefined) return null;
  if (meansOneOf(engine, name, NAMESPACE_OPTIONS) !== null && HOST_NAMESPACE.test(value)) {
    return {
      rule: "container-namespace",
      message: `"--${name} ${shown(value)}" joins a namespace of the host`,
      hint: "Leave it out, or use a network of the engine",
    };
  }
  if (NESTED.test(name)) return deniedNested(engine, value);
  return deniedSources(sourcesOf(engine, name, value));
}

function privileged(option: string): Denial {
  return {
    rule: "container-privilege",
    message: `"--${option}" gives a container rights over the host`,
    hint: "Leave it out: what needs it is no work for a sandboxed agent",
  };
}

/** A text that holds further options, separated by blanks. */
function deniedNested(engine: Engine, value: string): Denial | null {
  const parts = value.split(/\s+/).filter((part) => part !== "");
  const slots = parts.map((text): Slot => ({
    texts: [text],
    prefix: "",
    placeholder: false,
    free: false,
    optional: false,
    agent_writable: false,
  }));
  for (const [index, slot] of slots.entries()) {
    for (const option of optionsIn(slot.texts[0] ?? "")) {
      for (const inner of valuesOf(option, slots, index)) {
        const denial = deniedOption(engine, option.name, inner, option.value !== undefined);
        if (denial !== null) return denial;
      }
    }
  }
  return null;
}

/** A free placeholder as the value of an option. */
function freeValue(
  engine: Engine,
  option: string,
  slot: Slot,
  slots: readonly Slot[],
): Denial | null {
  const name = option.startsWith("--") ? option.slice(2).toLowerCase() : option;
  const rule = meansOneOf(engine, name, PRIVILEGE_FLAGS) !== null ||
      meansOneOf(engine, name, PRIVILEGE_OPTIONS.keys()) !== null ||
      NESTED.test(name)
    ? "container-privilege"
    : meansOneOf(engine, name, NAMESPACE_OPTIONS) !== null
    ? "container-namespace"
    : name === "-v" || meansOneOf(engine, name, VOLUME_OPTIONS) !== null ||
        meansOneOf(engine, name, MOUNT_OPTIONS) !== null
    ? "container-mount"
    : null;
  if (rule !== null) {
    return {
      rule,
      message: `The request would choose the value of "${option}"`,
      hint: "Write the value into the policy, or give the argument the type enum",
    };
  }
  const says = (word: string) => slots.some((other) => other.texts.includes(word));
  // `docker -c` is a context, `docker stack deploy -c` is a compose file.
  const isContext = engine === "engine" && name === "-c" && !says("stack");
  if (
    name === "-H" || ENDPOINT_OPTIONS.has(name) || isContext || (engine === "kube" && name === "-s")
  ) {
    return {
      rule: "container-endpoint",
      message: `The request would choose the value of "${option}"`,
      hint: "Write the value into the policy",
    };
  }
  const decides = engine === "compose" || engine === "kube" || says("compose") || says("stack");
  if (slot.agent_writable && decides && FILE_OPTIONS.has(option)) {
    return {
      rule: "container-file",
      message: `The value of "${option}" lies where an agent can write`,
      hint: "Keep the file in base/, and choose it with an enum or a path below base/",
    };
  }
  return null;
}

/** Words that are denied by themselves. */
function deniedWord(
  engine: Engine,
  text: string,
  slots: readonly Slot[],
  index: number,
): Denial | null {
  if (engine === "engine" && text === "unshare") {
    return {
      rule: "container-privilege",
      message: '"unshare" runs a program in the user namespace of the engine',
      hint: "Leave it out",
    };
  }
  if (engine === "engine" && text === "ssh" && slots[index - 1]?.texts.includes("machine")) {
    return {
      rule: "container-privilege",
      message: '"machine ssh" opens a shell in the virtual machine of the engine',
      hint: "Leave it out",
    };
  }
  if (text === "/" && slots.slice(0, index).some((slot) => slot.texts.includes("build"))) {
    return {
      rule: "container-mount",
      message: "The build would get the whole host as its context",
      hint: "Name the directory that is built",
    };
  }
  if (engine === "kube" && (/^nodes?\//.test(text) || text === "--profile=sysadmin")) {
    if (slots.some((slot) => slot.texts.includes("debug"))) {
      return {
        rule: "container-privilege",
        message: '"debug" of a node is root on that node',
        hint: "Leave it out",
      };
    }
  }
  if (engine === "system") {
    if (/(?:^|=)(?:security\.privileged=(?:true|1)|raw\.)/.test(text)) {
      return {
        rule: "container-privilege",
        message: `"${shown(text)}" gives a container rights over the host`,
        hint: "Leave it out",
      };
    }
    return deniedSources(mountSources(text));
  }
  return null;
}

/** The sources of mounts in the value of an option; none when the option is about something else. */
function sourcesOf(engine: Engine, name: string, value: string): Source[] {
  if (name === "-v" || meansOneOf(engine, name, VOLUME_OPTIONS) !== null) {
    return volumeSources(value);
  }
  if (name === "-o" || meansOneOf(engine, name, MOUNT_OPTIONS) !== null) {
    return mountSources(value);
  }
  return [];
}

function deniedSources(sources: readonly Source[]): Denial | null {
  for (const { source, readOnly } of sources) {
    const denial = deniedSource(source, readOnly);
    if (denial !== null) return denial;
  }
  return null;
}

/**
 * Every path of the host that an argument vector mounts into a container, with the slot that it
 * stands in; none when the program is no container engine.
 */
export function mountedPaths(
  program: string,
  slots: readonly Slot[],
): readonly { readonly index: number; readonly path: string }[] {
  const engine = engineOf(program);
  if (engine === null) return [];
  return slots.flatMap((slot, index) =>
    slot.texts.flatMap((text) => {
      const sources = engine === "system" ? mountSources(text) : [];
      for (const option of optionsIn(text)) {
        for (const value of valuesOf(option, slots, index)) {
          if (value !== undefined) sources.push(...sourcesOf(engine, option.name, value));
        }
      }
      return sources.map(({ source }) => ({ index, path: source }));
    })
  );
}
