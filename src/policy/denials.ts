/**
 * What no policy can allow. A policy is written by a human in a hurry; these are the mistakes that
 * would turn a narrow bridge into a shell on the host, so they are refused whatever the policy
 * says. Every denial has a stable rule name, which `chb check` prints.
 *
 * Rules that this file keeps:
 * 1. A program that runs what it is given is never a verb's program: not by its path, and not by
 *    what a link leads to. Version suffixes do not hide it (X1, X2).
 * 2. `chb` is never a verb's program, and of the root only `base/` is: no request can reach the
 *    human surface or run something that a spool can write (X9).
 * 3. A verb whose name promises a shell, more rights or a human decision does not exist, so that a
 *    request for one is answered `denied-verb` whatever the policy holds.
 * 4. No environment name that makes a loader, shell or interpreter run something (X7).
 *
 * A list of names is no proof: a program of another name can do the same. It catches mistakes; the
 * review of the policy and the confinement of the daemon stand behind it.
 *
 * @module
 */

/** Every rule, with what it is for. The names are stable: scripts and humans refer to them. */
export const RULES = Object.freeze(
  {
    "verb-name": "The name promises a shell, more rights, or a decision that only a human takes",
    "verb-reserved": "Names that begin with `bridge.` belong to the built-in verbs",
    "program-shell": "A shell runs whatever text it is given",
    "program-interpreter": "An interpreter or debugger runs whatever code it is given",
    "program-runner": "A program that starts another one, named by its arguments",
    "program-privilege": "A program that changes user, namespace or root directory",
    "program-remote": "A program that runs commands elsewhere or connects anything to anything",
    "program-editor": "An editor or pager can start a shell",
    "program-chb": "The bridge never runs itself: its commands are for humans",
    "program-location": "A program is an absolute path, or a fixed script in `base/`",
    "program-placeholder": "No request chooses the program",
    "workspace-code": "The program executes what lies in its working tree: say so with " +
      '`"runs_workspace_code": true`',
    "container-privilege": "The option gives a container rights over the host",
    "container-namespace": "The option puts a container into a namespace of the host",
    "container-mount": "The mount gives a container the host's files, devices or engine",
    "container-endpoint": "No request chooses which engine or cluster is talked to",
    "container-file": "A file that an agent can write decides what containers may do",
    "container-placeholder": "No placeholder after a container `exec`, `run`, `cp` and the like",
    "placeholder-code": "No request text where the program expects code or a command",
    "environment-name": "The variable makes programs load or run something",
    "environment-path": "Every part of `PATH` is an absolute directory that only the host writes",
    "spool-path": "Nothing that a spool can write takes part in a command",
    "path-root": "The root of a path argument is too wide, or not what it says",
    "needs-write": "The need is too wide",
    "root-path": "Of the root only `base/` takes part in a command",
  } as const,
);

export type DenialRule = keyof typeof RULES;

/** One denial: which rule, what was found, what to do instead. */
export interface Denial {
  readonly rule: DenialRule;
  readonly message: string;
  readonly hint: string;
}

/** The verbs that the bridge answers itself. */
export const BUILTIN_VERBS: readonly string[] = Object.freeze([
  "bridge.ping",
  "bridge.verbs",
  "bridge.status",
  "bridge.cancel",
  "bridge.reply",
]);

function words(text: string): ReadonlySet<string> {
  return new Set(text.trim().split(/\s+/));
}

const SHELLS = words(`
  sh ash bash dash zsh ksh ksh93 mksh lksh oksh pdksh yash posh fish csh tcsh rc es elvish nu nushell
  xonsh oil osh ysh ion rbash rksh rzsh sash bosh pwsh powershell cmd command busybox toybox
`);

const INTERPRETERS = words(`
  python pypy ipython jython micropython perl ruby irb jruby truffleruby node nodejs deno bun qjs
  quickjs d8 js rhino ts-node tsx php php-cgi php-fpm hhvm lua luajit texlua tclsh jimsh wish expect
  awk gawk mawk nawk original-awk sed gsed ed m4 dc bc r rscript octave julia guile racket sbcl
  clisp ecl scheme gforth swipl erl escript elixir iex ghci runghc runhaskell ocaml scala kotlin
  groovy java jshell mono dotnet-script csi fsi osascript gdb lldb rr strace ltrace perf bpftrace
  valgrind
`);

const RUNNERS = words(`
  env xargs parallel find fd fdfind nice ionice chrt taskset numactl nohup setsid timeout stdbuf
  unbuffer script watch time flock prlimit choom cpulimit setarch linux32 linux64 i386 x86_64 run-parts
  start-stop-daemon daemon daemonize systemd-run systemd-inhibit systemd-cat at batch crontab entr
  tmux screen dtach abduco byobu dbus-run-session dbus-launch xvfb-run catchsegv fakeroot fakechroot
  proot flatpak-spawn host-spawn distrobox-host-exec distrobox-enter toolbox nix-shell steam-run
  envdir softlimit chpst execlineb setlock npx pnpx bunx uvx pipx dlx xdg-open gio open eval exec
  ssh-agent logsave sem rlwrap
`);

const PRIVILEGE = words(`
  sudo sudoedit su doas pkexec run0 please gosu su-exec setpriv capsh runuser runcon newgrp sg
  setuidgid envuidgid nsenter unshare chroot pivot_root systemd-nspawn machinectl bwrap firejail
  minijail0 newuidmap newgidmap insmod modprobe kexec
`);

const REMOTE = words(`
  ssh scp sftp sshfs mosh autossh dropbear dbclient telnet rsh rlogin rexec nc ncat netcat socat
  websocat pssh clush pdsh
`);

const EDITORS = words(`
  vi vim vim.basic vim.tiny nvim ex view rview rvim vimdiff emacs emacsclient nano pico joe mcedit mc
  less more most man info
`);

/** Programs that execute what lies in their working tree. */
const WORKSPACE = words(`
  make gmake cmake ninja meson bazel bazelisk buck scons npm pnpm yarn corepack cargo rustup go mvn
  mvnw gradle gradlew ant sbt lein rake bundle bundler gem pip poetry pipenv uv tox nox pytest
  composer git hg svn bzr just task mage ansible ansible-playbook terraform tofu terragrunt pulumi
  vagrant packer dotnet msbuild swift xcodebuild stack cabal mix rebar rebar3 nix nix-build guix
  direnv pre-commit jest vitest eslint tsc gulp grunt rails helmfile
  skaffold tilt act
`);

const PROGRAM_RULES: readonly (readonly [DenialRule, ReadonlySet<string>, string])[] = [
  [
    "program-shell",
    SHELLS,
    "Name the program itself, or put a fixed script that begins with #! into base/",
  ],
  [
    "program-interpreter",
    INTERPRETERS,
    "Put a fixed script that begins with #! into base/ and name that",
  ],
  [
    "program-runner",
    RUNNERS,
    "Name the program that it would start; timeouts, environment and cwd are keys of the verb",
  ],
  ["program-privilege", PRIVILEGE, "Run the daemon as the user that may do it"],
  ["program-remote", REMOTE, "Run a bridge where the command has to run"],
  ["program-editor", EDITORS, "Name a program that only does what the verb is for"],
  ["program-chb", words("chb chb-request"), "A human runs it"],
];

/** A dynamic loader runs the program that its arguments name. */
const LOADER = /^ld(?:64|-linux[a-z0-9_-]*|-musl[a-z0-9_-]*)?\.so(?:\.\d+)*$/;

/** What distributions append to the name of a program that does the same without it. */
const SUFFIX =
  /(?:[-_.]?v?\d+(?:\.\d+)*[a-z]?|[-.](?:exe|real|distrib|static|dbg|debug|rs|openbsd|traditional|basic|tiny|nox|wrapped|orig|bin|x86_64-linux-gnu|aarch64-linux-gnu))$/;

/** The name of a program and every shorter name that it may be a version of. */
function programNames(path: string): string[] {
  // Case is folded because some file systems fold it: /bin/BASH would start bash there.
  let name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  const names = [name];
  for (;;) {
    const shorter = name.replace(SUFFIX, "");
    if (shorter === "" || shorter === name) return names;
    names.push(shorter);
    name = shorter;
  }
}

/** The first of `names` that is one of the program's names, or null. */
export function programIsOneOf(path: string, names: ReadonlySet<string>): string | null {
  for (const name of programNames(path)) {
    if (names.has(name)) return name;
  }
  return null;
}

/** True for a program that executes what lies in its working tree. */
export function runsWorkspaceCode(path: string): boolean {
  return programIsOneOf(path, WORKSPACE) !== null;
}

/**
 * Why a program may not be a verb's program, judged by its name; or null.
 */
function deniedName(path: string): Denial | null {
  const base = path.slice(path.lastIndexOf("/") + 1);
  if (LOADER.test(base)) {
    return {
      rule: "program-runner",
      message: `"${base}" is a dynamic loader: it starts the program that its arguments name`,
      hint: "Name that program",
    };
  }
  for (const [rule, names, hint] of PROGRAM_RULES) {
    const name = programIsOneOf(path, names);
    if (name === null) continue;
    const also = name === base ? "" : ` (a version of ${name})`;
    return { rule, message: `"${base}"${also} is denied: ${lower(RULES[rule])}`, hint };
  }
  return null;
}

function lower(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** File systems that hold no programs, but doors to other things. */
const NO_PROGRAMS = /^\/(?:proc|sys|dev)(?:\/|$)/;

const ABSOLUTE = /^(?:\/(?!\.{1,2}(?:\/|$))[^/]+)+$/;
const BASE = /^base(?:\/(?!\.{1,2}(?:\/|$))[^/]+)+$/;

/** True when `path` is `directory` or below it. Both absolute and without "." or ".." parts. */
export function isInside(path: string, directory: string): boolean {
  return directory === "/" || path === directory || path.startsWith(`${directory}/`);
}

/**
 * Why a program may not be the program of a verb, lookup or notification; or null when it may.
 * Pure: who can look at the file system hands in what the path leads to.
 *
 * @param path as the policy has it: absolute, or `base/…`
 * @param realPath what the path leads to with every link resolved, when known
 * @param root the absolute real path of the root, when known; then nothing in it but `base/` passes
 */
export function deniedProgram(path: string, realPath?: string, root?: string): Denial | null {
  if (!BASE.test(path)) {
    if (path.startsWith("base/") || !path.startsWith("/")) {
      return {
        rule: "program-location",
        message: "The program is no absolute path",
        hint: "Write an absolute path, or base/… for a fixed script of this root",
      };
    }
    if (!ABSOLUTE.test(path)) {
      return {
        rule: "program-location",
        message: 'The path of the program has a "." or "..", or a doubled or trailing slash',
        hint: "Write the plain absolute path",
      };
    }
  }
  for (const place of realPath === undefined ? [path] : [path, realPath]) {
    if (NO_PROGRAMS.test(place)) {
      return {
        rule: "program-location",
        message: "Nothing below /proc, /sys or /dev is a program of its own",
        hint: "Write the path of the program itself",
      };
    }
    if (root !== undefined && place.startsWith("/")) {
      if (isInside(place, root) && !isInside(place, `${root}/base`)) {
        return {
          rule: "root-path",
          message: "The program lies in the root, but not in base/",
          hint: "Put it into base/, or outside the root",
        };
      }
    }
    const denial = deniedName(place);
    if (denial !== null) {
      return place === path
        ? denial
        : { ...denial, message: `The path leads to ${place}: ${denial.message}` };
    }
  }
  return null;
}

/** Names for which no verb exists. Versions of them (`bash5`, `python3.11`) are the same name. */
const VERB_NAMES = words(`
  exec execute shell-exec exec-shell exec-command execute-command run-command run-cmd run-shell
  run-code run-any run-anything command cmd shell terminal tty pty repl spawn popen subprocess eval
  evaluate root become escalate elevate
  sh ash bash dash zsh ksh mksh fish csh tcsh rbash pwsh powershell busybox toybox
  python pypy ipython perl ruby irb node nodejs deno bun php lua tclsh expect awk gawk osascript
  env xargs nohup
  sudo sudoedit su doas pkexec run0 runuser nsenter unshare chroot systemd-run systemd-nspawn
  ssh scp sftp telnet rsh rlogin rexec nc ncat netcat socat
  approve approve-all auto-approve deny resume trust resolve reap policy set-policy edit-policy
  update-policy reload-policy chb
`);

/**
 * The rule by which a verb name is denied, or null. Names that begin with `bridge.` are denied
 * unless they are built in.
 *
 * @param name of a request or a policy; any text
 */
export function deniedVerb(name: string): DenialRule | null {
  if (BUILTIN_VERBS.includes(name)) return null;
  // A hostile name may be as long as a request: no denied one is.
  const plain = name.slice(0, 200).trim().toLowerCase().replaceAll("_", "-");
  if (plain === "bridge" || plain.startsWith("bridge.")) return "verb-reserved";
  return !plain.includes("/") && programIsOneOf(plain, VERB_NAMES) !== null ? "verb-name" : null;
}

/** Environment names denied by their beginning. */
const ENVIRONMENT_PREFIXES = [
  "LD_",
  "DYLD_",
  "BASH_FUNC_",
  "PYTHON",
  "PERL5",
  "DENO_",
  "LUA_INIT",
  "CHB_",
  "GIT_CONFIG_KEY_",
  "GIT_CONFIG_VALUE_",
] as const;

const ENVIRONMENT_NAMES = words(`
  BASH_ENV ENV IFS SHELLOPTS BASHOPTS PS0 PS4 PROMPT_COMMAND ZDOTDIR FPATH CDPATH
  NODE_OPTIONS NODE_PATH NODE_REPL_EXTERNAL_MODULE BUN_INSPECT PERLLIB PERL_MM_OPT PERL_MB_OPT
  RUBYOPT RUBYLIB RUBYSHELL GEM_PATH GEM_HOME BUNDLE_GEMFILE LUA_PATH LUA_CPATH PHPRC
  PHP_INI_SCAN_DIR TCLLIBPATH R_PROFILE R_PROFILE_USER R_ENVIRON R_ENVIRON_USER
  JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH MAVEN_OPTS GRADLE_OPTS
  DOTNET_STARTUP_HOOKS CORECLR_PROFILER CORECLR_PROFILER_PATH
  GLIBC_TUNABLES GCONV_PATH LOCPATH NLSPATH GCC_EXEC_PREFIX COMPILER_PATH
  OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES MAKEFLAGS MFLAGS GNUMAKEFLAGS MAKEFILES
  RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTFLAGS
  LESSOPEN LESSCLOSE SSH_ASKPASS SUDO_ASKPASS SUDO_EDITOR
  GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_PAGER GIT_EXTERNAL_DIFF
  GIT_PROXY_COMMAND GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_CONFIG GIT_CONFIG_COUNT
  GIT_CONFIG_PARAMETERS GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_ALTERNATE_OBJECT_DIRECTORIES
`);

/** Names that are denied unless they switch the very thing off. */
const SWITCHED_OFF: ReadonlyMap<string, string> = new Map([
  ["GIT_CONFIG_GLOBAL", "/dev/null"],
  ["GIT_CONFIG_SYSTEM", "/dev/null"],
  ["GIT_CONFIG_COUNT", "0"],
]);

/** Directories that anybody can write to: no part of PATH. */
const ANYBODY = /^\/(?:tmp|var\/tmp|dev|proc)(?:\/|$)/;

/**
 * Why an environment variable may not be set, or null.
 *
 * @param name of the variable
 * @param value what the policy gives it
 */
export function deniedEnvironment(name: string, value: string): Denial | null {
  if (SWITCHED_OFF.get(name) === value) return null;
  if (
    ENVIRONMENT_NAMES.has(name) || ENVIRONMENT_PREFIXES.some((prefix) => name.startsWith(prefix))
  ) {
    return {
      rule: "environment-name",
      message: `"${name}" is denied: ${lower(RULES["environment-name"])}`,
      hint: "Remove it; a fixed script in base/ can set what it needs",
    };
  }
  if (name === "PATH") {
    const wrong = value.split(":").find((part) => !ABSOLUTE.test(part) || ANYBODY.test(part));
    if (wrong !== undefined) {
      return {
        rule: "environment-path",
        message: wrong === ""
          ? "PATH has an empty part, which means the working directory"
          : `PATH has the part "${wrong}"`,
        hint: "Write absolute directories that only the host writes, such as /usr/bin:/bin",
      };
    }
  }
  return null;
}

/** Options whose value other programs run as code or as a command. */
const CODE_FLAG =
  /^--(?:(?:[a-z]+-)*(?:command|cmd|exec|execute|eval|code|script|expression|shell|hook|program|rsh|pager|editor)|upload-pack|receive-pack|use-compress-program|to-command|checkpoint-action|info-script|new-volume-script|post-renderer|pre|wrapper|preload|require|import|plugin|init-file|rcfile|config-env)=$/;

/**
 * Why a value may not follow an option, or null.
 *
 * @param option up to the value, such as `--message=`, or as an element of its own, `--message`
 */
export function deniedCodeFlag(option: string): Denial | null {
  if (!CODE_FLAG.test(option.toLowerCase().replace(/=?$/, "="))) return null;
  return {
    rule: "placeholder-code",
    message: `"${option}" takes code, a command or a program`,
    hint: "Write the value into the policy, or give the argument the type enum",
  };
}

/** True for an element that names something in a spool: the only relative paths that it can mean. */
export function namesSpool(element: string): boolean {
  return element.split(/[=:,]/).some((part) => /^(?:\.\/)?spool\//.test(part));
}
