/**
 * Which directories and files of the host may be handed to a container, and how the engines write a
 * mount. The same judgement serves the roots of path arguments that an agent can write.
 *
 * Rules that this file keeps:
 * 1. Nothing is mounted that opens the host: its root, its system directories, a whole home, keys
 *    and start-up files in one, devices, kernel file systems, any socket.
 * 2. A source is judged as it is spelled, so it has to be spelled plainly: absolute, without "." or
 *    ".." or empty parts.
 * 3. `base/` is handed out for reading only: nothing in a container may change the trusted base.
 *
 * @module
 */
import { type Denial, isInside } from "./denials.ts";

/** A source of a mount. */
export interface Source {
  readonly source: string;
  readonly readOnly: boolean;
}

function unquoted(text: string): string {
  return text.trim().replace(/^["']|["']$/g, "");
}

/** The source in `source:target:options`; a text without a colon is a volume of the engine's. */
export function volumeSources(value: string): Source[] {
  const spec = unquoted(value);
  const [source = "", , options = ""] = spec.split(":");
  // A volume that is the root directory has no meaning but the one that is denied.
  if (!spec.includes(":") && source !== "/") return [];
  return [{ source, readOnly: /(?:^|,)ro(?:,|$)/.test(options) }];
}

/** A part that names a directory or device of the host, behind `o=` as well. */
const KEYED = /(?:^|=)(source|src|device|lowerdir\+?|upperdir|workdir)=(.*)$/i;

/** The sources in `key=value,…`, as `--mount` and volume drivers take it. */
export function mountSources(value: string): Source[] {
  const parts = value.split(",").map(unquoted);
  const readOnly = parts.some((part) => /^(?:readonly|ro)(?:=(?:true|1))?$/i.test(part));
  return parts.flatMap((part) => {
    const [, key = "", source] = KEYED.exec(part) ?? [];
    if (source === undefined) return [];
    // The lower layers of an overlay, the uppermost first: nothing is written through them.
    if (/^lowerdir/i.test(key)) {
      return source.split(":").map((one) => ({ source: unquoted(one), readOnly: true }));
    }
    return [{ source: unquoted(source), readOnly }];
  });
}

/** A text cut short, for a message. */
export function shown(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** Trees of which nothing may be mounted, not even to be read. */
const NEVER = [
  "/proc",
  "/sys",
  "/dev",
  "/run",
  "/var/run",
  "/etc",
  "/var/lib/docker",
  "/var/lib/containerd",
  "/var/lib/containers",
  "/var/lib/kubelet",
  "/var/lib/systemd",
  "/var/spool/cron",
  "/private/etc",
  "/private/var/run",
];

/** Directories that may not be mounted themselves; what lies in them may. */
const NOT_AS_A_WHOLE = new Set([
  "/",
  "/var",
  "/var/lib",
  "/home",
  "/root",
  "/Users",
  "/private",
  "/private/var",
  "/tmp",
  "/var/tmp",
]);

/** Trees of the system: to be read at most. */
const READ_ONLY = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot"];

/** Parts of `/etc` that containers commonly read and that hold no secret. */
const HARMLESS_ETC =
  /^\/etc\/(?:localtime|timezone|hosts|resolv\.conf|nsswitch\.conf|passwd|group|machine-id|os-release|ssl\/certs(?:\/.*)?|pki\/(?:tls\/certs|ca-trust)(?:\/.*)?|ca-certificates(?:\/.*)?)$/;

const HOME = /^\/(?:root|(?:home|Users)\/[^/]+)$/;

/** What lies in a home directory and opens it, or everything that its owner can reach. */
const HOME_SECRETS =
  /^\/(?:root|(?:home|Users)\/[^/]+)\/(?:\.(?:ssh|gnupg|aws|azure|kube|docker|config|netrc|git-credentials|pgpass|password-store|bashrc|bash_profile|bash_login|profile|zshrc|zprofile|zshenv|zlogin|pam_environment|vimrc|gitconfig|npmrc|pypirc)(?:\/.*)?|\.local(?:\/(?:bin(?:\/.*)?|share(?:\/(?:chb|systemd|keyrings|containers)(?:\/.*)?)?))?|Library(?:\/.*)?)$/;

/**
 * Why a directory or file of the host may not be handed to a container, or null.
 *
 * @param source as written: an absolute path, `base/…`, or the name of a volume
 * @param readOnly nothing can be written through it
 */
export function deniedSource(source: string, readOnly: boolean): Denial | null {
  const denied = (message: string, hint: string): Denial => ({
    rule: "container-mount",
    message,
    hint,
  });
  if (/^[.~]/.test(source)) {
    return denied(
      `The source "${shown(source)}" depends on a working directory or a home`,
      "Write an absolute path, or base/…",
    );
  }
  if (source === "base" || source.startsWith("base/")) {
    return readOnly
      ? null
      : denied("base/ would be writable from inside the container", 'Add ":ro" or ",readonly"');
  }
  if (!source.startsWith("/")) return null;
  const path = source === "/" ? source : source.replace(/\/+$/, "") || "/";
  if (/\/\/|\/\.{1,2}(?:\/|$)/.test(path)) {
    return denied(
      `The source "${shown(source)}" has "." or ".." or empty parts`,
      "Write the plain absolute path",
    );
  }
  if (/\.sock(?:et)?$/.test(path)) {
    return denied(
      `"${shown(path)}" is a socket: through an engine's socket a container is the host`,
      "Leave it out; containers reach each other through a network of the engine",
    );
  }
  if (NEVER.some((tree) => isInside(path, tree))) {
    if (readOnly && HARMLESS_ETC.test(path)) return null;
    return denied(
      `"${shown(path)}" hands over the host`,
      "Mount only the directory that the work is about",
    );
  }
  if (NOT_AS_A_WHOLE.has(path) || HOME.test(path) || HOME_SECRETS.test(path)) {
    return denied(
      `"${shown(path)}" hands over the host, or all that a user owns`,
      "Mount only the directory that the work is about",
    );
  }
  if (!readOnly && READ_ONLY.some((tree) => isInside(path, tree))) {
    return denied(
      `"${shown(path)}" belongs to the system and would be writable`,
      'Add ":ro" or ",readonly", or leave it out',
    );
  }
  return null;
}
