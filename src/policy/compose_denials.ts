/**
 * What a compose file may not hand to a container, judged by the engine's own account of it: the
 * output of its `config` command, in which files are merged, variables filled in, and short forms
 * written out. The rules are those of arguments (`container_denials.ts`).
 *
 * Rules that this file keeps:
 * 1. Names are those of the compose format; what is not known is not judged. It is a second look, not
 *    a sandbox: a human trusts the file.
 * 2. A source of a mount is judged as the engine resolved it. `base/` is told from the host's other
 *    directories by the root's path, and may be mounted for reading only.
 * 3. A wrong shape is a finding: what cannot be read has not been checked.
 *
 * @module
 */
import { isInside } from "./denials.ts";
import { deniedSource, mountSources, shown } from "./mounts.ts";

/** Something in a compose file that hands over the host. */
export interface ComposeDenial {
  /** Such as `services.web.privileged`. */
  readonly path: string;
  readonly message: string;
}

type Fields = Readonly<Record<string, unknown>>;

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
}

/** Namespaces of the host, or of a container that may have them. */
const NAMESPACES = [
  "pid",
  "ipc",
  "uts",
  "userns_mode",
  "cgroup",
  "network_mode",
  "net",
] as const;

/** Lists that give rights whatever is in them. */
const RIGHTS = ["cap_add", "devices", "device_cgroup_rules", "volumes_from"] as const;

/**
 * Judges what `config` printed.
 *
 * @param config the parsed JSON
 * @param root absolute path of the bridge's root
 */
export function deniedCompose(config: unknown, root: string): ComposeDenial[] {
  if (!isFields(config) || !isFields(config["services"])) {
    return [{ path: "services", message: "The engine's account of the file has no services" }];
  }
  const found: ComposeDenial[] = [];
  for (const [name, service] of Object.entries(config["services"])) {
    const path = `services.${shown(name)}`;
    if (isFields(service)) judgeService(service, path, root, found);
    else found.push({ path, message: "The service cannot be read" });
  }
  for (const kind of ["configs", "secrets"]) {
    const all = config[kind];
    if (!isFields(all)) continue;
    for (const [name, one] of Object.entries(all)) {
      if (!isFields(one) || typeof one["file"] !== "string") continue;
      judgeSource(one["file"], true, `${kind}.${shown(name)}.file`, root, found);
    }
  }
  const volumes = config["volumes"];
  if (isFields(volumes)) {
    for (const [name, one] of Object.entries(volumes)) {
      const options = isFields(one) ? one["driver_opts"] : undefined;
      if (!isFields(options)) continue;
      const path = `volumes.${shown(name)}.driver_opts`;
      const { device, o } = options;
      if (typeof device === "string" && device.startsWith("/")) {
        judgeSource(device, false, `${path}.device`, root, found);
      }
      for (const { source, readOnly } of typeof o === "string" ? mountSources(o) : []) {
        judgeSource(source, readOnly, `${path}.o`, root, found);
      }
    }
  }
  return found;
}

function judgeService(
  service: Fields,
  path: string,
  root: string,
  found: ComposeDenial[],
): void {
  const deny = (field: string, message: string) =>
    found.push({ path: `${path}.${field}`, message });
  const { privileged } = service;
  if (privileged !== undefined && privileged !== false && privileged !== null) {
    deny("privileged", "A privileged container is the host");
  }
  for (const field of NAMESPACES) {
    const value = service[field];
    if (typeof value !== "string") continue;
    if (/^host$/i.test(value)) deny(field, "It shares a namespace with the host");
    else if (/^(?:container:|ns:|\/)/.test(value)) {
      deny(field, "It enters a namespace that is not the project's own");
    }
  }
  for (const field of RIGHTS) {
    if (list(service[field]).length > 0) deny(field, "It gives the container rights on the host");
  }
  for (const option of list(service["security_opt"])) {
    if (!/^no-new-privileges(?:[:=]true)?$/.test(String(option))) {
      deny("security_opt", `"${shown(String(option))}" takes away a confinement`);
    }
  }
  const { provider, use_api_socket } = service;
  if (provider !== undefined && provider !== null) {
    deny("provider", "The engine runs a program of the host for it");
  }
  if (use_api_socket !== undefined && use_api_socket !== false && use_api_socket !== null) {
    deny("use_api_socket", "Through an engine's socket a container is the host");
  }
  for (const field of ["post_start", "pre_stop"]) {
    list(service[field]).forEach((hook, i) => {
      const rights = isFields(hook) ? hook["privileged"] : true;
      if (rights === undefined || rights === false || rights === null) return;
      deny(`${field}[${i}].privileged`, "A privileged command in a container is the host");
    });
  }
  judgeBuild(service["build"], `${path}.build`, root, found);
  const { runtime } = service;
  if (typeof runtime === "string" && runtime.includes("/")) {
    deny("runtime", "A path is any program of the host");
  }
  const networks = service["networks"];
  if (isFields(networks) && "host" in networks) deny("networks", "It is on the host's network");
  list(service["volumes"]).forEach((volume, i) => {
    const at = `${path}.volumes[${i}]`;
    if (typeof volume === "string") {
      const [source = "", , options = ""] = volume.split(":");
      judgeSource(source, /(?:^|,)ro(?:,|$)/.test(options), at, root, found);
    } else if (isFields(volume)) {
      const { source, type } = volume;
      if (type !== "bind" && type !== "npipe") return;
      if (typeof source === "string") {
        judgeSource(source, volume["read_only"] === true, at, root, found);
      } else deny(`volumes[${i}]`, "The mount has no source that can be read");
    } else deny(`volumes[${i}]`, "The mount cannot be read");
  });
}

/** Directories of the host that a build reads, and the rights that it takes. */
function judgeBuild(build: unknown, path: string, root: string, found: ComposeDenial[]): void {
  if (build === undefined || build === null) return;
  const context = (text: unknown, at: string) => {
    if (typeof text !== "string") found.push({ path: at, message: "The context cannot be read" });
    // A build copies its context: nothing can be written through it.
    else if (/^[/.~]/.test(text)) judgeSource(text, true, at, root, found);
  };
  if (!isFields(build)) return context(build, path);
  if (build["context"] !== undefined) context(build["context"], `${path}.context`);
  const additional = build["additional_contexts"];
  const contexts = isFields(additional)
    ? Object.entries(additional)
    : list(additional).map((one) => String(one).split(/=(.*)/s));
  for (const [name = "", text] of contexts) {
    context(text, `${path}.additional_contexts.${shown(String(name))}`);
  }
  if (build["privileged"] !== undefined && build["privileged"] !== false) {
    found.push({ path: `${path}.privileged`, message: "A privileged build is the host" });
  }
  if (/^host$/i.test(String(build["network"]))) {
    found.push({ path: `${path}.network`, message: "It shares a namespace with the host" });
  }
  for (const field of ["entitlements", "ssh"]) {
    if (list(build[field]).length === 0) continue;
    found.push({ path: `${path}.${field}`, message: "It gives the build rights on the host" });
  }
}

function judgeSource(
  source: string,
  readOnly: boolean,
  path: string,
  root: string,
  found: ComposeDenial[],
): void {
  const base = `${root}/base`;
  const own = isInside(source, base) ? `base${source.slice(base.length)}` : source;
  if (own === source && (isInside(source, root) || isInside(root, source))) {
    found.push({ path, message: `"${shown(source)}" is the bridge's own place, or holds it` });
    return;
  }
  const denial = deniedSource(own, readOnly);
  if (denial !== null) found.push({ path, message: denial.message });
}
