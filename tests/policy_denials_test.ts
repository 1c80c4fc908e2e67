/** What no policy can allow, rule by rule, each beside something that is fine. */
import { assert, assertEquals } from "@std/assert";
import {
  BUILTIN_VERBS,
  type DenialRule,
  deniedEnvironment,
  deniedProgram,
  deniedVerb,
  RULES,
} from "../src/policy/denials.ts";
import { deniedUnderRoot } from "../src/policy/root_denials.ts";
import { argvErrors, changed, errorsOf, sample, valid, verbPolicy } from "./policy_fixture.ts";

/** Rules that a test of this file has seen at work; the last test compares them with the table. */
const SEEN = new Set<string>();

function rulesOf(errors: readonly { readonly rule?: string }[]): string[] {
  const rules = errors.flatMap(({ rule }) => rule ?? []);
  for (const rule of rules) SEEN.add(rule);
  return rules;
}

const DENIED_VERBS =
  `exec EXEC Exec execute shell sh bash zsh dash ksh fish bash5 bash_5 bash-5.2 python python3
  python3.11 perl5 node node18 run-command run_command run-cmd cmd eval sudo su doas pkexec ssh scp
  nsenter chroot systemd-run env xargs approve deny resume trust resolve reap policy edit-policy chb
  busybox powershell pwsh repl terminal`.split(/\s+/);

Deno.test("deniedVerb() denies names that promise a shell, more rights, or a human's decision", () => {
  for (const name of DENIED_VERBS) assertEquals(deniedVerb(name), "verb-name", name);
  assertEquals(deniedVerb(" exec "), "verb-name", "blanks do not hide it");
  SEEN.add("verb-name");
});

Deno.test("deniedVerb() lets names pass that say what they do", () => {
  for (
    const name
      of `ps logs restart up down build test deploy migrate status date run-tests restart-web
      shellcheck execute-plan policy-report trusted resolve-dns kill find sed kubectl-get rc1 nu2 node-list
      bashful env-report`.split(/\s+/)
  ) {
    assertEquals(deniedVerb(name), null, name);
  }
});

Deno.test("deniedVerb() keeps bridge.* for the built-in verbs", () => {
  for (const name of BUILTIN_VERBS) assertEquals(deniedVerb(name), null, name);
  for (const name of ["bridge.approve", "bridge.pign", "Bridge.ping", "bridge.", "bridge"]) {
    assertEquals(deniedVerb(name), "verb-reserved", name);
  }
  assertEquals(deniedVerb("bridges"), null);
});

Deno.test("deniedVerb() answers hostile names of any length", () => {
  assertEquals(deniedVerb("a".repeat(60_000)), null);
  assertEquals(deniedVerb("-1".repeat(30_000)), null);
  assertEquals(deniedVerb(""), null);
  assertEquals(deniedVerb("__proto__"), null);
  assertEquals(deniedVerb("/bin/sh"), null);
});

Deno.test("parsePolicy() names the rule of a denied verb", () => {
  const verb = { class: "observe", argv: ["/usr/bin/true"], timeout_s: 1 };
  for (const [name, rule] of [["exec", "verb-name"], ["bridge.ping", "verb-reserved"]] as const) {
    const errors = errorsOf({ agents: { main: { verbs: [] } }, verbs: { [name]: verb } });
    assert(rulesOf(errors).includes(rule), JSON.stringify(errors));
  }
});

const DENIED_PROGRAMS: readonly [rule: DenialRule, paths: string][] = [
  [
    "program-shell",
    `/bin/sh /bin/bash /usr/bin/bash5 /usr/bin/bash-5.2 /usr/local/bin/BASH /usr/bin/zsh5-static
     /usr/bin/busybox /bin/busybox.static /usr/bin/dash /usr/bin/pwsh /usr/bin/ksh93 /opt/x/rbash base/sh base/tools/bash
     /bin/bash.real /usr/bin/rc`,
  ],
  [
    "program-interpreter",
    `/usr/bin/python /usr/bin/python3 /usr/bin/python3.11 /usr/bin/python3.11-dbg /usr/bin/python3.13t /usr/bin/perl5.36.0
     /usr/bin/ruby3.1 /usr/bin/node /usr/bin/nodejs /usr/bin/node-18 /usr/bin/deno /usr/bin/php8.2
     /usr/bin/lua5.4 /usr/bin/gawk /usr/bin/sed /usr/bin/tclsh8.6 /usr/bin/gdb /usr/bin/strace
     /usr/bin/perl5.36-x86_64-linux-gnu /usr/bin/java`,
  ],
  [
    "program-runner",
    `/usr/bin/env /usr/bin/xargs /usr/bin/find /usr/bin/timeout /usr/bin/nohup /usr/bin/setsid
     /usr/bin/systemd-run /usr/bin/flock /usr/bin/script /usr/bin/watch /usr/bin/npx /usr/bin/at
     /usr/bin/flatpak-spawn /lib64/ld-linux-x86-64.so.2 /lib/ld-musl-x86_64.so.1 /usr/bin/x86_64`,
  ],
  [
    "program-privilege",
    `/usr/bin/sudo /usr/bin/sudo-rs /usr/bin/su /bin/su /usr/bin/doas /usr/bin/pkexec /usr/bin/nsenter
     /usr/bin/unshare /usr/sbin/chroot /usr/bin/machinectl /usr/bin/bwrap /usr/sbin/runuser`,
  ],
  [
    "program-remote",
    "/usr/bin/ssh /usr/bin/scp /usr/bin/socat /bin/nc /bin/nc.openbsd /bin/nc.traditional /usr/bin/ncat",
  ],
  ["program-editor", "/usr/bin/vi /usr/bin/vim.basic /usr/bin/less /usr/bin/man /usr/bin/emacs29"],
  ["program-chb", "/usr/local/bin/chb base/chb /home/me/.local/bin/chb"],
  [
    "program-location",
    `bin/chb docker ./docker spool/main/queue/x work/x state/x ../x base base/ base/../bin/chb base/./x
     base//x /usr/bin/../bin/x /usr/bin//x /usr/bin/x/ / /proc/self/exe /dev/fd/3 /sys/x //bin/x`,
  ],
];

for (const [rule, paths] of DENIED_PROGRAMS) {
  Deno.test(`X1 deniedProgram() denies by the rule ${rule}`, () => {
    for (const path of paths.trim().split(/\s+/)) {
      assertEquals(deniedProgram(path)?.rule, rule, path);
      const errors = argvErrors([path, "a"]);
      assert(rulesOf(errors).includes(rule), `${path}: ${JSON.stringify(errors)}`);
      assertEquals(errors.find((e) => e.rule === rule)?.path, "verbs.v.argv[0]");
    }
  });
}

Deno.test("deniedProgram() lets programs pass that do one thing, and scripts in base/", () => {
  for (
    const path
      of `/usr/bin/docker /usr/bin/docker-compose /usr/bin/podman /usr/bin/kubectl /usr/bin/true
      /usr/bin/date /usr/bin/systemctl /usr/bin/curl /usr/bin/rsync /usr/bin/logger /usr/bin/df /usr/bin/sha256sum
      /usr/bin/b2sum /usr/bin/7z /usr/bin/pg_dump /usr/bin/git /usr/bin/make base/deploy base/env.sh
      base/tools/run-tests base/a..b /opt/my-app/bin/tool /usr/bin/ssh-keyscan /usr/bin/shasum
      /usr/bin/python3-config /home/me/base/x`.split(/\s+/)
  ) {
    assertEquals(deniedProgram(path), null, path);
  }
});

Deno.test("deniedProgram() judges what a path leads to", () => {
  assertEquals(deniedProgram("/usr/bin/ls", "/usr/bin/ls"), null);
  assertEquals(deniedProgram("/bin/ls", "/bin/busybox")?.rule, "program-shell");
  assertEquals(
    deniedProgram("/usr/local/bin/tool", "/usr/bin/python3.11")?.rule,
    "program-interpreter",
  );
  assertEquals(deniedProgram("base/tool", "/usr/bin/env")?.rule, "program-runner");
  assertEquals(deniedProgram("/usr/bin/x", "/proc/1/exe")?.rule, "program-location");
  assert(deniedProgram("/bin/ls", "/bin/busybox")?.message.includes("/bin/busybox"));
});

Deno.test("X9 deniedProgram() denies all of the root but base/ when it knows the root", () => {
  const root = "/srv/chb/app";
  for (const path of ["bin/x", "spool/main/queue/x", "work/x", "state/runs/x", "x"]) {
    assertEquals(deniedProgram(`${root}/${path}`, undefined, root)?.rule, "root-path", path);
    assertEquals(deniedProgram("/usr/bin/x", `${root}/${path}`, root)?.rule, "root-path", path);
    assertEquals(deniedProgram("base/x", `${root}/${path}`, root)?.rule, "root-path", path);
  }
  assertEquals(deniedProgram(`${root}/base/x`, `${root}/base/x`, root), null);
  assertEquals(deniedProgram("base/x", `${root}/base/y`, root), null);
  assertEquals(deniedProgram(`${root}-other/x`, undefined, root), null);
});

Deno.test("parsePolicy() denies a placeholder as the program", () => {
  for (const program of ["{a}", "/usr/bin/{a}", "base/{a}"]) {
    const errors = argvErrors([program, "{a}"], { a: { type: "name" } });
    assert(rulesOf(errors).includes("program-placeholder"), program);
  }
});

const WORKSPACE =
  `make gmake ninja npm yarn pnpm cargo go mvn gradle git git2 pip3 composer tox terraform
  ansible-playbook nix`.split(/\s+/);

for (const name of WORKSPACE) {
  Deno.test(`parsePolicy() wants runs_workspace_code for ${name}`, () => {
    const argv = [`/usr/bin/${name}`, "x"];
    assertEquals(rulesOf(argvErrors(argv)), ["workspace-code"]);
    assertEquals(argvErrors(argv, {}, { runs_workspace_code: true }), []);
  });
}

Deno.test("parsePolicy() wants runs_workspace_code for the program of a lookup, too", () => {
  const lookup = { argv: ["/usr/bin/git", "{id}"], done: [0] };
  const more = { on_crash: "lookup", lookup };
  const errors = argvErrors(["/usr/bin/true"], {}, more);
  assertEquals(errors.map((e) => [e.path, e.rule]), [["verbs.v.lookup.argv[0]", "workspace-code"]]);
  assertEquals(argvErrors(["/usr/bin/true"], {}, { ...more, runs_workspace_code: true }), []);
});

Deno.test("parsePolicy() applies the denials of programs to lookups and notifications", () => {
  const lookup = { argv: ["/bin/sh", "{id}"], done: [0] };
  const inLookup = argvErrors(["/usr/bin/true"], {}, { on_crash: "lookup", lookup });
  assertEquals(inLookup.map((e) => [e.path, e.rule]), [[
    "verbs.v.lookup.argv[0]",
    "program-shell",
  ]]);
  const inNotify = errorsOf(changed([["notify"], ["/usr/bin/env", "x"]]));
  assertEquals(inNotify.map((e) => [e.path, e.rule]), [["notify[0]", "program-runner"]]);
});

const DENIED_ENVIRONMENT =
  `LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_X DYLD_INSERT_LIBRARIES BASH_ENV ENV IFS SHELLOPTS PS4
  NODE_OPTIONS NODE_PATH PYTHONPATH PYTHONSTARTUP PYTHONHOME PERL5LIB PERL5OPT PERL5DB RUBYOPT RUBYLIB
  DENO_DIR DENO_V8_FLAGS GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS GIT_EDITOR GIT_EXEC_PATH GIT_EXTERNAL_DIFF
  GIT_CONFIG_PARAMETERS GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 GIT_PAGER GIT_PROXY_COMMAND GIT_TEMPLATE_DIR
  JAVA_TOOL_OPTIONS BASH_FUNC_ls GLIBC_TUNABLES LUA_INIT LUA_INIT_5_4 CHB_SPEND_FILE MAKEFLAGS ZDOTDIR
  OPENSSL_CONF`.split(/\s+/);

Deno.test("X7 deniedEnvironment() denies names that make programs load or run something", () => {
  for (const name of DENIED_ENVIRONMENT) {
    assertEquals(deniedEnvironment(name, "x")?.rule, "environment-name", name);
    const onTop = errorsOf(changed([["env"], { [name]: "x" }]));
    assertEquals(onTop.map((e) => [e.path, e.rule]), [[`env.${name}`, "environment-name"]]);
    rulesOf(onTop);
    const inVerb = argvErrors(["/usr/bin/true"], {}, { env: { [name]: "x" } });
    assertEquals(inVerb.map((e) => [e.path, e.rule]), [[
      `verbs.v.env.${name}`,
      "environment-name",
    ]]);
  }
});

Deno.test("X7 deniedEnvironment() lets harmless names pass, and the ways to switch things off", () => {
  for (
    const [name, value] of [
      ["HOME", "/home/me"],
      ["LANG", "C.UTF-8"],
      ["LC_ALL", "C"],
      ["DOCKER_HOST", "unix:///run/user/1000/docker.sock"],
      ["DOCKER_CONFIG", "/srv/chb/docker"],
      ["COMPOSE_DISABLE_ENV_FILE", "1"],
      ["XDG_RUNTIME_DIR", "/run/user/1000"],
      ["GIT_CONFIG_NOSYSTEM", "1"],
      ["GIT_CONFIG_GLOBAL", "/dev/null"],
      ["GIT_TERMINAL_PROMPT", "0"],
      ["ENVIRONMENT", "test"],
      ["TZ", "UTC"],
      ["PATH", "/usr/local/bin:/usr/bin:/bin"],
    ] as const
  ) {
    assertEquals(deniedEnvironment(name, value), null, name);
  }
  assertEquals(deniedEnvironment("GIT_CONFIG_GLOBAL", "/tmp/x")?.rule, "environment-name");
});

Deno.test("X7 deniedEnvironment() takes only absolute host-only directories in PATH", () => {
  for (
    const value of [
      "",
      ":/usr/bin",
      "/usr/bin:",
      "/usr/bin::/bin",
      ".",
      "/usr/bin:.",
      "bin",
      "~/bin",
      "/tmp/bin",
      "/var/tmp:/bin",
      "/dev/shm/x",
      "/usr/bin/../x",
    ]
  ) {
    const denial = deniedEnvironment("PATH", value);
    assertEquals(denial?.rule, "environment-path", value);
    SEEN.add("environment-path");
  }
});

/** Argument vectors after `/usr/bin/docker`, with the index of the element that is denied. */
const DENIED_CONTAINER: readonly [rule: DenialRule, at: number, argv: readonly string[]][] = [
  ["container-privilege", 2, ["run", "--privileged", "img"]],
  ["container-privilege", 2, ["run", "--privileged=true", "img"]],
  ["container-privilege", 2, ["run", "--privileged=1", "img"]],
  ["container-privilege", 2, ["exec", "--privileged", "web", "ls"]],
  ["container-privilege", 2, ["run", "--cap-add=SYS_ADMIN", "img"]],
  ["container-privilege", 2, ["run", "--cap-add", "ALL", "img"]],
  ["container-privilege", 2, ["run", "--device=/dev/sda", "img"]],
  ["container-privilege", 2, ["run", "--device", "/dev/sda", "img"]],
  ["container-privilege", 2, ["run", "--device-cgroup-rule=a *:* rwm", "img"]],
  ["container-privilege", 2, ["run", "--security-opt", "seccomp=unconfined", "img"]],
  ["container-privilege", 2, ["run", "--security-opt=label=disable", "img"]],
  ["container-privilege", 2, ["run", "--volumes-from", "other", "img"]],
  ["container-privilege", 2, ["run", "--use-api-socket", "img"]],
  ["container-privilege", 2, ["run", "--rootfs", "/"]],
  ["container-privilege", 1, ["--hooks-dir=/x", "run", "img"]],
  ["container-privilege", 2, ["run", "--runtime=/x/y", "img"]],
  ["container-privilege", 3, ["plugin", "install", "--grant-all-permissions", "x"]],
  ["container-privilege", 2, ["build", "--allow=security.insecure", "."]],
  ["container-privilege", 1, ["unshare", "ls"]],
  ["container-namespace", 2, ["run", "--pid=host", "img"]],
  ["container-namespace", 2, ["run", "--pid", "host", "img"]],
  ["container-namespace", 2, ["run", "--net=host", "img"]],
  ["container-namespace", 2, ["run", "--network", "host", "img"]],
  ["container-namespace", 2, ["run", "--network=name=host,alias=a", "img"]],
  ["container-namespace", 2, ["run", "--ipc=host", "img"]],
  ["container-namespace", 2, ["run", "--uts=host", "img"]],
  ["container-namespace", 2, ["run", "--userns=host", "img"]],
  ["container-namespace", 2, ["run", "--cgroupns", "host", "img"]],
  ["container-namespace", 2, ["run", "--network=ns:/proc/1/ns/net", "img"]],
  ["container-namespace", 2, ["build", "--network=host", "."]],
  ["container-mount", 2, ["run", "-v", "/:/host", "img"]],
  ["container-mount", 2, ["run", "-v/:/host", "img"]],
  ["container-mount", 2, ["run", "-v=/:/host", "img"]],
  ["container-mount", 2, ["run", "-v", "/:/host:ro", "img"]],
  ["container-mount", 2, ["run", "-v", "//:/host", "img"]],
  ["container-mount", 2, ["run", "-v", "/home/..:/host", "img"]],
  ["container-mount", 2, ["run", "-v", "/srv/x/../../etc:/host", "img"]],
  ["container-mount", 2, ["run", "-v", "/srv/../etc:/host:ro", "img"]],
  ["container-mount", 2, ["run", "-v", "/srv/.//x:/host", "img"]],
  ["container-mount", 2, ["run", "-v", "/", "img"]],
  ["container-mount", 2, ["run", "-itv", "/:/host", "img"]],
  ["container-mount", 2, ["run", "-itv/:/host", "img"]],
  ["container-mount", 2, ["run", "--volume=/:/host", "img"]],
  ["container-mount", 2, ["run", "--volume", "/:/host", "img"]],
  ["container-mount", 2, ["run", "-v", "/var/run/docker.sock:/x", "img"]],
  ["container-mount", 2, ["run", "-v/var/run/docker.sock:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "/srv/podman.sock:/x:ro", "img"]],
  ["container-mount", 2, ["run", "-v", "/run:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "/proc:/x:ro", "img"]],
  ["container-mount", 2, ["run", "-v", "/dev:/dev", "img"]],
  ["container-mount", 2, ["run", "-v", "/etc:/x:ro", "img"]],
  ["container-mount", 2, ["run", "-v", "/etc/shadow:/x:ro", "img"]],
  ["container-mount", 2, ["run", "-v", "/etc/localtime:/etc/localtime", "img"]],
  ["container-mount", 2, ["run", "-v", "/home/me:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "/home/me/.ssh:/x:ro", "img"]],
  ["container-mount", 2, ["run", "-v", "/root/.bashrc:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "/home/me/.local/share/chb/app:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "/usr/bin:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "/var/lib/docker:/x", "img"]],
  ["container-mount", 2, ["run", "-v", ".:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "~/x:/x", "img"]],
  ["container-mount", 2, ["run", "-v", "base/conf:/conf", "img"]],
  ["container-mount", 2, ["run", "--mount", "type=bind,source=/,target=/x", "img"]],
  ["container-mount", 2, ["run", "--mount=type=bind,src=/,dst=/x", "img"]],
  ["container-mount", 2, ["run", "--mount=type=bind,SOURCE=/,dst=/x,readonly", "img"]],
  ["container-mount", 2, ["run", '--mount=type=bind,"source=/",target=/x', "img"]],
  ["container-mount", 2, [
    "run",
    "--mount=type=volume,dst=/x,volume-opt=device=/,volume-opt=o=bind",
    "img",
  ]],
  ["container-mount", 3, ["service", "update", "--mount-add=type=bind,source=/,target=/x", "web"]],
  ["container-mount", 3, ["volume", "create", "--opt=device=/", "x"]],
  ["container-mount", 3, ["volume", "create", "--opt=o=lowerdir=/srv/a:/,upperdir=/srv/b", "x"]],
  ["container-mount", 3, ["volume", "create", "--opt=o=lowerdir=/srv/a,upperdir=/etc", "x"]],
  ["container-mount", 3, ["volume", "create", "-o", "device=/etc", "x"]],
  ["container-mount", 3, ["compose", "run", "-v", "/:/x", "web"]],
  ["container-mount", 3, ["build", "--tag=x", "/"]],
  ["container-mount", 2, ["run", "--rm", "img", "tool", "-v", "/:/x"]],
];

Deno.test("parsePolicy() denies container arguments that hand over the host", () => {
  for (const [rule, at, argv] of DENIED_CONTAINER) {
    for (const program of ["/usr/bin/docker", "/usr/local/bin/podman", "/usr/bin/nerdctl"]) {
      const errors = argvErrors([program, ...argv]);
      const text = `${program} ${argv.join(" ")}: ${JSON.stringify(errors)}`;
      assert(rulesOf(errors).includes(rule), text);
      const path = errors.find((e) => e.rule === rule)?.path;
      if (argv.includes("tool")) continue;
      assertEquals(path, `verbs.v.argv[${at}]`, text);
    }
  }
});

Deno.test("parsePolicy() lets container arguments pass that stay inside the engine", () => {
  for (
    const argv of [
      ["ps", "--all", "--format", "{{.Names}}"],
      ["run", "--rm", "-v", "app-data:/data", "-v", "/data", "img"],
      ["run", "--rm", "-v", "/srv/app:/src", "-w", "/src", "img", "make", "test"],
      ["run", "-v", "/home/me/project:/src", "-v", "/home/me/.cache/pip:/c", "img"],
      [
        "run",
        "-v",
        "/etc/localtime:/etc/localtime:ro",
        "-v",
        "/etc/ssl/certs:/etc/ssl/certs:ro",
        "img",
      ],
      [
        "run",
        "-v",
        "base/conf:/conf:ro",
        "--mount=type=bind,source=base/conf,target=/c,readonly",
        "img",
      ],
      ["run", "--mount", "type=bind,source=/srv/app,target=/src", "img"],
      ["run", "--mount=type=tmpfs,target=/tmp", "img"],
      ["run", "--privileged=false", "--security-opt=no-new-privileges", "--cap-drop=ALL", "img"],
      ["run", "--security-opt", "no-new-privileges:true", "img"],
      ["run", "--network=none", "--pid", "container:web", "--userns=keep-id", "img"],
      ["run", "--network", "hostile", "img"],
      ["run", "--runtime=runsc", "img"],
      ["exec", "web", "nginx", "-s", "reload"],
      ["compose", "-f", "base/compose.yaml", "exec", "-T", "web", "sh", "-c", "fixed text"],
      ["compose", "-f", "base/compose.yaml", "down", "-v"],
      ["cp", "web:/var/log/app.log", "/srv/logs/app.log"],
      ["volume", "create", "--opt=type=tmpfs", "x"],
      ["logs", "-f", "--tail=10", "web"],
      ["rm", "-fv", "web"],
      ["build", "--tag=app", "/srv/app"],
      ["buildx", "build", "--allow=network.none", "."],
    ]
  ) {
    assertEquals(argvErrors(["/usr/bin/docker", ...argv]), [], argv.join(" "));
  }
});

Deno.test("parsePolicy() reads abbreviated options of the older compose programs", () => {
  for (const option of ["--vol", "--v", "--volume"]) {
    const errors = argvErrors([
      "/usr/bin/docker-compose",
      "-f",
      "base/c",
      "run",
      option,
      "/:/x",
      "web",
    ]);
    assertEquals(rulesOf(errors), ["container-mount"], option);
  }
  assertEquals(
    rulesOf(argvErrors(["/usr/bin/docker-compose", "exec", "--priv", "web", "ls"])),
    ["container-privilege"],
  );
  const nested = ["/usr/bin/podman-compose", "--podman-run-args=--rm --privileged", "up"];
  assertEquals(rulesOf(argvErrors(nested)), ["container-privilege"]);
  for (
    const argv of [
      ["ps", "--all"],
      ["up", "--detach", "--no-build"],
      ["--podman-run-args=--rm --read-only", "up"],
      ["--version"],
    ]
  ) {
    assertEquals(argvErrors(["/usr/bin/podman-compose", ...argv]), [], argv.join(" "));
  }
});

Deno.test("parsePolicy() looks at every text that an element can become", () => {
  const values = (...texts: string[]) => ({ a: { type: "enum", values: texts } });
  const engine = (argv: string[], args: unknown) =>
    rulesOf(argvErrors(["/usr/bin/docker", ...argv], args));
  assertEquals(engine(["ps", "{a}"], values("-a", "--privileged")), ["container-privilege"]);
  assertEquals(engine(["build", "--network={a}", "."], values("none", "host")), [
    "container-namespace",
  ]);
  assertEquals(engine(["build", "--network", "{a}", "."], values("none", "host")), [
    "container-namespace",
  ]);
  assertEquals(engine(["build", "--network", "{a}", "."], values("none", "default")), []);
  assertEquals(
    engine(["ps", "{a}"], { a: { type: "boolean", element: "--pid=host" } }),
    ["container-namespace"],
  );
  // Left out, the boolean lets the option take the element behind it.
  assertEquals(
    engine(["build", "--network", "{a}", "host"], { a: { type: "boolean", element: "none" } }),
    ["container-namespace"],
  );
  assertEquals(
    engine(["{a}", "x", "{b}"], {
      ...values("logs", "run"),
      b: { type: "name" },
    }),
    ["container-placeholder", "container-placeholder"],
  );
});

Deno.test("parsePolicy() denies every placeholder after a container's exec, run or cp", () => {
  const args = { a: { type: "enum", values: ["x"] } };
  const cases: readonly [string, ...string[]][] = [
    ["/usr/bin/docker", "exec", "web", "{a}"],
    ["/usr/bin/docker", "run", "{a}"],
    ["/usr/bin/docker", "run", "--label=x={a}"],
    ["/usr/bin/docker", "run", "--label={a}", "img"],
    ["/usr/bin/docker", "container", "exec", "{a}", "ls"],
    ["/usr/bin/docker", "cp", "{a}", "/srv/x"],
    ["/usr/bin/docker", "create", "{a}"],
    ["/usr/bin/docker", "container", "create", "{a}"],
    ["/usr/bin/docker", "compose", "-f", "base/c", "run", "--rm", "{a}"],
    ["/usr/bin/docker-compose", "exec", "{a}", "ls"],
    ["/usr/bin/podman", "play", "kube", "{a}"],
    ["/usr/bin/kubectl", "exec", "{a}", "--", "ls"],
    ["/usr/bin/kubectl", "-n", "app", "debug", "{a}"],
    ["/usr/bin/kubectl", "cp", "{a}", "/srv/x"],
    ["/usr/bin/incus", "exec", "{a}", "ls"],
    ["/usr/bin/docker-compose1", "run", "{a}"],
  ];
  for (const argv of cases) {
    const errors = argvErrors(argv, args);
    const glued = argv.some((text) => text.includes("=x={"));
    if (glued) assert(errors.length > 0, argv.join(" "));
    else assertEquals(rulesOf(errors), ["container-placeholder"], argv.join(" "));
  }
  for (const name of ["id", "idempotency_key", "max_spend"]) {
    const errors = argvErrors(["/usr/bin/docker", "exec", "web", "tool", `{${name}}`]);
    assertEquals(rulesOf(errors), ["container-placeholder"], name);
  }
  for (
    const argv of [
      ["/usr/bin/docker", "logs", "{a}"],
      ["/usr/bin/docker", "volume", "create", "{a}"],
      ["/usr/bin/docker", "compose", "-f", "base/c", "create", "{a}"],
      ["/usr/bin/docker-compose", "-f", "base/c", "up", "{a}"],
      ["/usr/bin/kubectl", "rollout", "restart", "{a}"],
      ["/usr/bin/tool", "exec", "{a}"],
    ]
  ) {
    assertEquals(argvErrors(argv, args), [], argv.join(" "));
  }
});

Deno.test("parsePolicy() lets no request choose a mount, a namespace, an engine or a cluster", () => {
  const args = { a: { type: "name" } };
  const denied = (rule: DenialRule, ...argv: string[]) =>
    assertEquals(rulesOf(argvErrors(argv, args)), [rule], argv.join(" "));
  denied("container-namespace", "/usr/bin/docker", "build", "--network={a}", ".");
  denied("container-namespace", "/usr/bin/docker", "build", "--network", "{a}", ".");
  denied("container-mount", "/usr/bin/docker", "volume", "ls", "--opt={a}");
  denied("container-mount", "/usr/bin/docker", "build", "-v", "{a}", ".");
  denied("container-privilege", "/usr/bin/docker", "build", "--security-opt={a}", ".");
  denied("container-endpoint", "/usr/bin/docker", "--host={a}", "ps");
  denied("container-endpoint", "/usr/bin/docker", "-H", "{a}", "ps");
  denied("container-endpoint", "/usr/bin/docker", "--context", "{a}", "ps");
  denied("container-endpoint", "/usr/bin/podman", "--url={a}", "ps");
  denied("container-endpoint", "/usr/bin/kubectl", "--kubeconfig={a}", "get", "pods");
  denied("container-endpoint", "/usr/bin/kubectl", "get", "pods", "--as={a}");
  assertEquals(argvErrors(["/usr/bin/docker", "ps", "--filter={a}"], args), []);
});

Deno.test("X3 parsePolicy() takes no compose or manifest file from where an agent can write", () => {
  const writable = { f: { type: "path", root: "/srv/work", agent_writable: true } };
  const cases: readonly string[][] = [
    ["/usr/bin/docker-compose", "-f", "{f}", "up"],
    ["/usr/bin/docker-compose", "--file={f}", "up"],
    ["/usr/bin/docker", "compose", "--env-file={f}", "up"],
    ["/usr/bin/docker", "compose", "--project-directory", "{f}", "up"],
    ["/usr/bin/docker", "stack", "deploy", "-c", "{f}", "app"],
    ["/usr/bin/kubectl", "apply", "--filename={f}"],
    ["/usr/bin/kubectl", "apply", "-k", "{f}"],
    ["/usr/bin/helm", "upgrade", "app", "--values={f}"],
  ];
  for (const argv of cases) {
    const rules = rulesOf(argvErrors(argv, writable));
    assertEquals(rules, ["container-file"], argv.join(" "));
    assertEquals(argvErrors(argv, { f: { type: "path", root: "base/x" } }), [], argv.join(" "));
  }
  assertEquals(argvErrors(["/usr/bin/docker", "build", "--file={f}", "."], writable), []);
});

Deno.test("parsePolicy() denies more that is root on the host by another name", () => {
  const cases: readonly (readonly string[])[] = [
    ["/usr/bin/kubectl", "debug", "node/worker-1"],
    ["/usr/bin/kubectl", "run", "x", "--overrides=y"],
    ["/usr/bin/kubectl", "run", "x", "--privileged"],
    ["/usr/bin/incus", "launch", "img", "-c", "security.privileged=true"],
    ["/usr/bin/podman", "machine", "ssh", "ls"],
  ];
  for (const argv of cases) {
    assert(rulesOf(argvErrors(argv)).includes("container-privilege"), argv.join(" "));
  }
  assertEquals(
    rulesOf(
      argvErrors(["/usr/bin/incus", "config", "device", "add", "c", "d", "disk", "source=/"]),
    ),
    ["container-mount"],
  );
  assertEquals(argvErrors(["/usr/bin/kubectl", "get", "nodes"]), []);
});

Deno.test("parsePolicy() puts no request text where a program expects code", () => {
  for (const type of ["text", "name"]) {
    for (
      const flag of [
        "--command",
        "--eval",
        "--exec",
        "--execute",
        "--rsh",
        "--upload-pack",
        "--ssh-command",
        "--to-command",
        "--checkpoint-action",
        "--post-renderer",
        "--script",
      ]
    ) {
      const errors = argvErrors(["/usr/bin/tool", `${flag}={a}`], { a: { type } });
      assertEquals(rulesOf(errors), ["placeholder-code"], flag);
      if (type === "text") continue;
      const apart = argvErrors(["/usr/bin/tool", flag, "{a}"], { a: { type } });
      assertEquals(rulesOf(apart), ["placeholder-code"], flag);
    }
    for (const flag of ["--message", "--comment", "--title", "--recommend"]) {
      assertEquals(argvErrors(["/usr/bin/tool", `${flag}={a}`], { a: { type } }), [], flag);
    }
  }
  assertEquals(
    argvErrors(["/usr/bin/tool", "--command={a}"], { a: { type: "enum", values: ["x"] } }),
    [],
  );
});

Deno.test("X1 parsePolicy() puts a value that may start with a dash behind -- or an option", () => {
  const dash = { type: "name", allow_leading_dash: true };
  const cases: readonly unknown[] = [dash, { type: "integer", min: -5, max: 5 }, { type: "text" }];
  for (const a of cases) {
    assertEquals(argvErrors(["/usr/bin/tool", "{a}"], { a }).map((e) => e.path), [
      "verbs.v.argv[1]",
    ]);
    assertEquals(argvErrors(["/usr/bin/tool", "{a}", "--"], { a }).length, 1);
    assertEquals(argvErrors(["/usr/bin/tool", "x", "--y", "-", "{a}"], { a }).length, 1);
    assertEquals(argvErrors(["/usr/bin/tool", "--", "x", "{a}"], { a }), []);
    assertEquals(argvErrors(["/usr/bin/tool", "--note={a}"], { a }), []);
  }
});

Deno.test("parsePolicy() names nothing in the spool", () => {
  for (const text of ["spool/main/queue/x", "./spool/x", "--file=spool/x", "a:spool/main/y"]) {
    assertEquals(rulesOf(argvErrors(["/usr/bin/tool", text])), ["spool-path"], text);
    assertEquals(
      rulesOf(argvErrors(["/usr/bin/tool", "{a}"], { a: { type: "enum", values: [text] } })),
      ["spool-path"],
      text,
    );
    assertEquals(
      rulesOf(argvErrors(["/usr/bin/tool", "{a}"], { a: { type: "boolean", element: text } })),
      ["spool-path"],
      text,
    );
  }
  assertEquals(
    rulesOf(argvErrors(["/usr/bin/tool"], {}, { env: { COMPOSE_FILE: "spool/main/queue/c" } })),
    ["spool-path"],
  );
  for (const text of ["spool", "carpool/x", "/srv/spool/x", "myspool/x"]) {
    assertEquals(argvErrors(["/usr/bin/tool", text]), [], text);
  }
});

Deno.test("X3 parsePolicy() takes a path root below base/, or one that is said to be an agent's", () => {
  const root = (root: string, more: object = {}) =>
    argvErrors(["/usr/bin/tool", "{a}"], { a: { type: "path", root, ...more } });
  const writable = { agent_writable: true };
  assertEquals(root("base/conf"), []);
  assertEquals(root("/srv/work", writable), []);
  assertEquals(rulesOf(root("/srv/work")), ["path-root"]);
  assertEquals(rulesOf(root("base/conf", writable)), ["path-root"]);
  for (
    const wide of [
      "/home",
      "/home/me",
      "/root",
      "/etc",
      "/etc/x",
      "/var",
      "/proc/1",
      "/usr/lib",
      "/home/me/.ssh",
    ]
  ) {
    assertEquals(rulesOf(root(wide, writable)), ["path-root"], wide);
  }
  for (
    const wrong of ["/", "base", "base/", "base/../keys", "work", "/srv/../etc", "spool/main/queue"]
  ) {
    assert(root(wrong, writable).length > 0, wrong);
    assert(root(wrong).length > 0, wrong);
  }
});

Deno.test("deniedUnderRoot() finds nothing in a policy that keeps out of the root", () => {
  assertEquals(deniedUnderRoot(valid(sample()), "/home/me/.local/share/chb/app"), []);
});

const ROOT = "/srv/chb";

const UNDER_ROOT: readonly [
  name: string,
  rule: DenialRule,
  path: string,
  verb: Record<string, unknown>,
][] = [
  ["a program", "root-path", "verbs.v.argv[0]", { argv: [`${ROOT}/bin/tool`] }],
  ["a program in the spool", "root-path", "verbs.v.argv[0]", {
    argv: [`${ROOT}/spool/main/queue/x`],
  }],
  ["an argument", "root-path", "verbs.v.argv[1]", { argv: ["/usr/bin/tool", `${ROOT}/keys/k`] }],
  ["the tail of an option", "root-path", "verbs.v.argv[1]", {
    argv: ["/usr/bin/tool", `--f=${ROOT}/bridge.jsonc`],
  }],
  ["the root itself", "root-path", "verbs.v.argv[1]", { argv: ["/usr/bin/tool", `${ROOT}/`] }],
  ["a value of an enum", "root-path", "verbs.v.argv[1]", {
    argv: ["/usr/bin/tool", "{a}"],
    args: { a: { type: "enum", values: ["x", `${ROOT}/state/x`] } },
  }],
  ["a lookup", "root-path", "verbs.v.lookup.argv[0]", {
    argv: ["/usr/bin/tool"],
    on_crash: "lookup",
    lookup: { argv: [`${ROOT}/bin/x`, "{id}"], done: [0] },
  }],
  ["a mount of the root", "root-path", "verbs.v.argv[3]", {
    argv: ["/usr/bin/docker", "run", "-v", `${ROOT}/spool:/x`, "img"],
  }],
  ["a mount of the parent", "container-mount", "verbs.v.argv[2]", {
    argv: ["/usr/bin/docker", "run", "-v", "/srv:/x:ro", "img"],
  }],
  ["the working directory", "root-path", "verbs.v.cwd", {
    argv: ["/usr/bin/tool"],
    cwd: `${ROOT}/spool/main/queue`,
  }],
  ["a part of PATH", "root-path", "verbs.v.env.PATH", {
    argv: ["/usr/bin/tool"],
    env: { PATH: `/usr/bin:${ROOT}/work` },
  }],
  ["another variable", "root-path", "verbs.v.env.DOCKER_CONFIG", {
    argv: ["/usr/bin/tool"],
    env: { DOCKER_CONFIG: `${ROOT}/spool/main/queue` },
  }],
  ["a path root", "root-path", "verbs.v.args.a.root", {
    argv: ["/usr/bin/tool", "{a}"],
    args: { a: { type: "path", root: `${ROOT}/spool/main`, agent_writable: true } },
  }],
  ["a path root around it", "path-root", "verbs.v.args.a.root", {
    argv: ["/usr/bin/tool", "{a}"],
    args: { a: { type: "path", root: "/srv", agent_writable: true } },
  }],
  ["a need to write into it", "needs-write", "verbs.v.needs[0]", {
    argv: ["/usr/bin/tool"],
    needs: [`write:${ROOT}/base`],
  }],
  ["a need to write around it", "needs-write", "verbs.v.needs[0]", {
    argv: ["/usr/bin/tool"],
    needs: ["write:/srv"],
  }],
];

for (const [name, rule, path, verb] of UNDER_ROOT) {
  Deno.test(`X9 deniedUnderRoot() denies ${name}`, () => {
    const policy = valid(verbPolicy({ class: "observe", timeout_s: 1, ...verb }));
    const errors = deniedUnderRoot(policy, ROOT);
    rulesOf(errors);
    assertEquals(errors.map((e) => [e.path, e.rule]), [[path, rule]]);
    assertEquals(deniedUnderRoot(policy, "/elsewhere/app"), []);
  });
}

Deno.test("deniedUnderRoot() lets base/ take part under its absolute path", () => {
  const policy = valid(verbPolicy({
    class: "observe",
    timeout_s: 1,
    argv: [`${ROOT}/base/x`, `--file=${ROOT}/base/y`, "base/z", `${ROOT}-other/x`],
    cwd: `${ROOT}/base`,
  }));
  assertEquals(deniedUnderRoot(policy, ROOT), []);
});

Deno.test("every rule of the table has been seen at work by the tests above", () => {
  assertEquals(Object.keys(RULES).filter((rule) => !SEEN.has(rule)), []);
});
