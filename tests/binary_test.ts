/**
 * The compiled program from outside: made, installed by its own script, served under its own
 * permissions, watched from the kernel's side, confined as its unit would, and made anew for a policy
 * that needs another program.
 *
 * `CHB_BINARY` names an executable that is there already; without it one is compiled, for which
 * `DENO_COMPILE` has to name a Deno that can, or `DENORT_BIN` a runtime.
 *
 * @module
 */
import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { there, until } from "./helpers/bridge.ts";
import { BINARY, cannotCompile, compile, noBinary } from "./helpers/compiled.ts";
import { sh } from "./helpers/outside.ts";
import { cannotTrace } from "./helpers/tracer.ts";

const NO_BINARY = noBinary();

function binary(name: string, fn: () => Promise<void>, not = NO_BINARY): void {
  Deno.test({
    name: not === null ? name : `${name} # SKIP ${not}`,
    ignore: not !== null,
    fn,
  });
}

/** A root that the executable's own script made, in a directory that goes away with it. */
class Root implements AsyncDisposable {
  readonly directory = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-binary-" }));
  readonly root = join(this.directory, "root");
  #daemon: Deno.ChildProcess | null = null;

  /** @param compiled makes an executable under that name, in place of the one that is tested */
  static async make(compiled?: (out: string) => Promise<void>): Promise<Root> {
    const made = new Root();
    const own = join(made.directory, "chb");
    const executable = compiled === undefined ? BINARY ?? own : own;
    if (compiled !== undefined) await compiled(own);
    else if (BINARY === undefined) await compile("--out", own);
    Deno.mkdirSync(made.root);
    await sh(`'${executable}' init > init.sh && CHB_INIT_ANYWHERE=1 sh init.sh`, made.root);
    return made;
  }

  async chb(...args: string[]): Promise<{ code: number; out: string; err: string }> {
    const { code, stdout, stderr } = await new Deno.Command("./bin/chb", {
      args,
      cwd: this.root,
      stdin: "null",
    }).output();
    const text = new TextDecoder();
    return { code, out: text.decode(stdout), err: text.decode(stderr) };
  }

  /** Serves, inside of whatever program and arguments come first, while `fn` runs. */
  async serving(before: readonly string[], fn: () => Promise<void>): Promise<void> {
    const [program = "", ...args] = [...before, "./bin/chb", "serve", "--poll-ms", "500"];
    const child = new Deno.Command(program, {
      args,
      cwd: this.root,
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    this.#daemon = child;
    let log = "";
    const reading = (async () => {
      const decoder = new TextDecoder();
      for await (const chunk of child.stderr) log += decoder.decode(chunk, { stream: true });
    })();
    let over = false;
    child.status.then(() => over = true);
    try {
      await until("the ready line", () => {
        assert(!over, log);
        return log.includes("chb: ready");
      }, 60_000);
      assert(!log.includes("source=true"), log);
      await fn();
    } finally {
      const { pid } = JSON.parse(Deno.readTextFileSync(join(this.root, "state/daemon.json")));
      Deno.kill(pid, "SIGTERM");
      await child.status;
      await reading;
      this.#daemon = null;
    }
  }

  /** Asks as an agent does and waits for the result. */
  async ask(id: string, verb = "date"): Promise<Record<string, unknown>> {
    const queue = join(this.root, "spool/main/queue");
    Deno.writeTextFileSync(join(queue, `.${id}`), JSON.stringify({ verb }));
    Deno.renameSync(join(queue, `.${id}`), join(queue, `${id}.json`));
    const path = join(this.root, "spool/main/results", `${id}.json`);
    return await until(`the result of ${id}`, () => {
      if (!there(path)) return null;
      const result = JSON.parse(Deno.readTextFileSync(path));
      return result.state === "done" ? result : null;
    }, 60_000);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#daemon?.kill("SIGKILL");
    } catch {
      // It has left.
    }
    await new Deno.Command("chmod", { args: ["-R", "u+rwx", this.directory] }).output();
    Deno.removeSync(this.directory, { recursive: true });
  }
}

/** Why the unit's confinement cannot be replayed here, or null. */
function noBubblewrap(): string | null {
  try {
    const { success } = new Deno.Command("bwrap", {
      args: ["--ro-bind", "/", "/", "--unshare-user", "--unshare-net", "true"],
      stderr: "null",
    }).outputSync();
    return success ? null : "bubblewrap may not make name spaces here";
  } catch {
    return "bubblewrap is not here";
  }
}

/**
 * What is opened outside of the root, by the runtime, the C library and `date`: devices without
 * state, libraries, the clock's zone, and what the kernel tells of processor, memory and limits.
 */
const RUNTIME_READS = new RegExp(
  "^(?:" + [
    "/dev/(?:null|urandom|random)",
    "/etc/(?:ld\\.so\\.cache|ld\\.so\\.preload|localtime|locale\\.alias)",
    "/(?:usr/)?lib(?:64)?/.*\\.so[.0-9]*",
    "/usr/lib/locale/.*|/usr/share/(?:zoneinfo|locale)/.*",
    "/usr/bin/(?:date|kill)",
    "/proc/(?:meminfo|cpuinfo|stat|self/(?:maps|cgroup|mountinfo|exe|stat|statm|status))",
    "/proc/sys/(?:vm/overcommit_memory|kernel/ngroups_max)",
    "/sys/devices/system/cpu/.*|/sys/fs/cgroup/.*|/sys/kernel/mm/transparent_hugepage/.*",
  ].join("|") + ")$",
);

/** The members of a set of system calls, as systemd knows it; empty where it is not here. */
function callsOf(set: string): string[] {
  let text: string;
  try {
    const { success, stdout } = new Deno.Command("systemd-analyze", {
      args: ["syscall-filter", "--no-pager", set],
      stdin: "null",
      stderr: "null",
    }).outputSync();
    if (!success) return [];
    text = new TextDecoder().decode(stdout);
  } catch {
    return [];
  }
  const lines = text.split("\n").slice(1).map((line) => line.trim());
  return lines.flatMap((line) =>
    line === "" || line.startsWith("#") ? [] : line.startsWith("@") ? callsOf(line) : [line]
  );
}

/** The system calls that a unit's filter denies. */
function deniedCalls(unit: string): string[] {
  const filters = [...unit.matchAll(/^SystemCallFilter=(.*)$/gm)].map(([, value = ""]) => value);
  assertEquals(filters.length, 2);
  const allowed = new Set(callsOf("@default"));
  for (const filter of filters) {
    const not = filter.startsWith("~");
    for (const call of filter.replace(/^~/, "").split(" ").flatMap(callsOf)) {
      if (not) allowed.delete(call);
      else allowed.add(call);
    }
  }
  // They stay whatever a filter says.
  for (const call of callsOf("@default")) allowed.add(call);
  return callsOf("@known").filter((call) => !allowed.has(call));
}

binary("the compiled program does its work under its own permissions, and no more", async () => {
  await using made = await Root.make();
  const { root } = made;
  const version = JSON.parse((await made.chb("version", "--json")).out);
  assertEquals(version.source, false);
  assertEquals((await made.chb("check")).code, 0);
  assertEquals((await made.chb("trust", "--yes")).code, 0);

  await made.serving([], async () => {
    const result = await made.ask("a");
    assertEquals([result["outcome"], result["exit_code"]], ["succeeded", 0]);
    const { code, out } = await made.chb("doctor", "--json");
    const { findings } = JSON.parse(out);
    // The engines that it could run are none of the starter policy's.
    assertEquals(findings.map((f: { check: string }) => f.check), ["surplus-grant"]);
    assertEquals(code, 0);
    const unit = await made.chb("unit");
    assertMatch(unit.out, /^MemoryDenyWriteExecute=yes$/m);
    assertMatch(unit.out, /^ExecPaths=.*\/usr\/bin\/date/m);
  });

  // A path unit starts it again and again: what it cannot take away must not hold it up.
  await sh("printf x > \"$(printf 'spool/main/queue/bad\\377.json')\"", root);
  assertEquals((await made.chb("once")).code, 0);
  const took = async (...args: string[]) => {
    const start = performance.now();
    assertEquals((await made.chb(...args)).code, 0);
    return performance.now() - start;
  };
  const [version_ms, once_ms] = [await took("version"), await took("once")];
  // A second on a machine that starts the program in a tenth of one; this one may be slower.
  assert(once_ms < 1000 + 3 * version_ms, `once took ${once_ms} ms, a start ${version_ms} ms`);
  assertEquals([...Deno.readDirSync(join(root, "spool/main/queue"))].length, 1);

  // As the unit: nothing writable but the root, no network, no capability, no other user.
  const missing = noBubblewrap();
  if (missing === null) {
    const walls = [
      ...["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"],
      ...["--bind", root, root],
      ...["bin", "base", "keys", "bridge.jsonc"].flatMap((
        name,
      ) => ["--ro-bind", join(root, name), join(root, name)]),
      ...["--unshare-user", "--unshare-net", "--unshare-ipc", "--unshare-uts"],
      ...["--cap-drop", "ALL", "--chdir", root],
    ];
    await made.serving(["bwrap", ...walls], async () => {
      assertEquals((await made.ask("b"))["outcome"], "succeeded");
    });
  } else console.log(`not replayed: ${missing}`);

  const untraced = cannotTrace();
  if (untraced !== null) {
    console.log(`not traced: ${untraced}`);
    return;
  }
  // Every call that the unit's filter denies fails here as it does there.
  const denied = deniedCalls((await made.chb("unit")).out);
  if (denied.length === 0) console.log("not filtered: systemd-analyze is not here");
  const trace = join(made.directory, "trace");
  const options = [
    ...["-f", "-qq", "-s", "300", "-o", trace],
    ...(denied.length > 0
      ? ["-e", `inject=${denied.map((call) => `?${call}`).join(",")}:error=EPERM`]
      : []),
  ];
  await made.serving(["strace", ...options], async () => {
    const { outcome, stdout } = await made.ask("c");
    assertEquals(outcome, "succeeded");
    assertMatch((stdout as { head: string }).head, /^2/);
  });
  const lines = Deno.readTextFileSync(trace).split("\n");
  // Nothing listens or connects; children of the runtime are told of by pairs of local sockets.
  assertEquals(
    lines.filter((l) => / (?:listen|connect|bind|accept4?)\(|AF_INET|AF_PACKET/.test(l)),
    [],
  );
  assertEquals(lines.filter((l) => / socket\(/.test(l) && !/AF_UNIX/.test(l)), []);

  const opened = lines.flatMap((l) => {
    const [, call = "", path = "", rest = ""] =
      / (open|openat|openat2|creat)\((?:AT_FDCWD, |[0-9]+, )?"([^"]*)"(.*)/.exec(l) ?? [];
    return call === ""
      ? []
      : [{ path, writes: call === "creat" || /O_WRONLY|O_RDWR|O_CREAT/.test(rest) }];
  }).filter(({ path }) => path.startsWith("/") && path !== root && !path.startsWith(`${root}/`));
  const odd = (list: readonly { path: string }[], known: RegExp) =>
    [...new Set(list.map(({ path }) => path))].filter((path) => !known.test(path));
  assertEquals(odd(opened, RUNTIME_READS), []);
  assertEquals(odd(opened.filter(({ writes }) => writes), /^\/dev\/null$/), []);

  const started = new Set(
    lines.flatMap((l) => / execve\("([^"]+)"/.exec(l)?.[1] ?? [])
      .map((path) => path.replace(`${root}/`, "./")),
  );
  started.delete("/usr/bin/kill");
  assertEquals([...started].sort(), ["./bin/chb", "/usr/bin/date"]);
});

binary(
  "a policy with another program is refused with the command that makes the executable for it",
  async () => {
    await using made = await Root.make();
    const policy = join(made.root, "bridge.jsonc");
    const argv = /"argv": \[.*\]/;
    const text = Deno.readTextFileSync(policy);
    Deno.writeTextFileSync(policy, text.replace(argv, '"argv": ["/usr/bin/true"]'));
    const refused = await made.chb("check");
    assertEquals(refused.code, 78);
    const command = /^ +(npx -y deno@\S+ task compile .*)$/m.exec(refused.err)?.[1] ?? "false";
    // The runner of the package registry, which would fetch the Deno that is here already.
    const npx = join(made.directory, "npx");
    const deno = `'${Deno.execPath()}'`;
    Deno.writeTextFileSync(npx, `#!/bin/sh\nshift 2\nexec ${deno} "$@"\n`, { mode: 0o755 });
    const executable = join(made.root, "bin/chb");
    // What a person trusted, and the unit that was made for it.
    Deno.writeTextFileSync(policy, text);
    assertEquals((await made.chb("trust", "--yes")).code, 0);
    const unit = (await made.chb("unit")).out;
    const guard = /^ExecStartPre=\+?(\/bin\/sh -c ".*")$/m.exec(unit)?.[1] ?? "false";
    await sh(guard, "/");
    const old = (await sh(`sha256sum '${executable}'`, "/")).slice(0, 64);
    Deno.writeTextFileSync(policy, text.replace(argv, '"argv": ["/usr/bin/true"]'));
    const names = [...Deno.readDirSync(join(made.root, "bin"))].map((e) => e.name);
    const said = await sh(`PATH='${made.directory}':"$PATH"; ${command}`, inRepository());
    // In place of the executable that is there, and with its mode.
    const { size, mode } = Deno.statSync(executable);
    assertEquals((mode ?? 0) & 0o777, 0o555);
    assertEquals([...Deno.readDirSync(join(made.root, "bin"))].map((e) => e.name), names);
    assertMatch(said, /^--allow-run=\.\/bin\/chb,.*\/usr\/bin\/true$/m);
    assertStringIncludes(said, `size:   ${size} bytes`);
    const digest = (await sh(`sha256sum '${executable}'`, "/")).slice(0, 64);
    assertStringIncludes(said, `sha256: ${digest}`);

    // It is another executable: the unit does not start it, doctor and trust tell.
    await assertRejects(() => sh(guard, "/"));
    await Deno.writeTextFile(join(made.directory, "unit"), unit);
    const swapped = await sh(
      "./bin/chb doctor --json --unit - < ../unit || [ $? = 1 ]",
      made.root,
    );
    const found = JSON.parse(swapped).findings
      .map((f: { check: string; path: string }) => `${f.check} ${f.path}`);
    assert(found.includes("bin-changed bin/chb"), found.join("\n"));
    assert(found.some((f: string) => /^unit .*ExecStartPre/.test(f)), found.join("\n"));
    const trusted = await made.chb("trust", "--yes");
    assertEquals(trusted.code, 0, trusted.err);
    assertStringIncludes(
      trusted.out,
      `~ file bin/chb\n      was sha256 ${old}\n      now sha256 ${digest}\n`,
    );
    const { code, err } = await made.chb("check");
    assertEquals(code, 0, err);
    const { out } = await made.chb("permissions", "--json");
    assertEquals(JSON.parse(out).compiled.run.filter((p: string) => !p.endsWith("/kill")), [
      "./bin/chb",
      "/usr/bin/true",
    ]);
  },
  cannotCompile(),
);

/** Texts of a daemon, of a shim and of a human command, each with the file that it stands in. */
const TEXTS: readonly (readonly [file: string, text: string])[] = [
  ["src/daemon/runs.ts", "The command finished"],
  ["src/run/run_command.ts", "pipe-held"],
  ["src/human/status.ts", "not serving: start it with"],
];

binary(
  "an edited source changes nothing for the compiled program until one that was made of it is put there",
  async () => {
    const tree = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-tree-" }));
    try {
      await sh(`tar -c --exclude=./.git . | tar -x -C '${tree}'`, inRepository());
      const policy = join(tree, "held.jsonc");
      const argv = ["base/hold.sh"];
      Deno.writeTextFileSync(
        policy,
        JSON.stringify({
          agents: { main: { verbs: ["hold"] } },
          verbs: { hold: { description: "A test.", class: "observe", argv, timeout_s: 20 } },
        }),
      );
      const make = async (out: string) => {
        const { success, stderr } = await new Deno.Command(Deno.execPath(), {
          args: [
            ...["run", "-A", "--no-config", join(tree, "tools/compile.ts")],
            ...["--policy", policy, "--out", out],
          ],
          cwd: tree,
          stdin: "null",
        }).output();
        assert(success, new TextDecoder().decode(stderr));
      };
      await using made = await Root.make(make);
      Deno.copyFileSync(policy, join(made.root, "bridge.jsonc"));
      // What it leaves holds its output open, which the shim tells of in a word of its own.
      const script = join(made.root, "base/hold.sh");
      Deno.writeTextFileSync(script, "#!/bin/sh\nsleep 3 &\n", { mode: 0o755 });
      assertEquals((await made.chb("trust", "--yes")).code, 0);

      /** The three texts as they are told now. */
      const told = async (id: string): Promise<string[]> => {
        const { message } = await made.ask(id, "hold");
        const audit = Deno.readTextFileSync(join(made.root, "state/audit/audit.jsonl"));
        const finished = audit.split("\n").filter((line) => line !== "").map((line) =>
          JSON.parse(line)
        ).find((record) => record.event === "finished" && record.id === id);
        return [String(message), String(finished?.detail)];
      };
      const status = async () => (await made.chb("status")).out.split("\n")[0] ?? "";
      const [daemon = "", shim = "", human = ""] = TEXTS.map(([, text]) => text);
      const edited = (text: string) => text.replace(/^\w+/, "EDITED");

      assertStringIncludes(await status(), human);
      await made.serving([], async () => {
        assertEquals(await told("before"), [daemon, shim]);
        for (const [file, text] of TEXTS) {
          const path = join(tree, file);
          const source = Deno.readTextFileSync(path);
          assertStringIncludes(source, text);
          Deno.writeTextFileSync(path, source.replaceAll(text, edited(text)));
        }
        // The first one is spent by what it held; the next run has a shim that was started since.
        for (const id of ["running-1", "running-2"]) {
          assertEquals(await told(id), [daemon, shim]);
        }
      });
      assertStringIncludes(await status(), human);
      await made.serving([], async () => assertEquals(await told("restarted"), [daemon, shim]));
      const away = `${tree}.away`;
      Deno.renameSync(tree, away);
      try {
        await made.serving([], async () => assertEquals(await told("gone"), [daemon, shim]));
      } finally {
        Deno.renameSync(away, tree);
      }

      // One that is made of the edited source is another program, and a human has to say yes to it.
      const unit = (await made.chb("unit")).out;
      const guard = /^ExecStartPre=\+?(\/bin\/sh -c ".*")$/m.exec(unit)?.[1] ?? "false";
      await sh(guard, "/");
      await make(join(made.root, "bin/chb"));
      await assertRejects(() => sh(guard, "/"));
      const trusted = await made.chb("trust", "--yes");
      assertMatch(trusted.out, /^~ file bin\/chb$/m);
      assertStringIncludes(await status(), edited(human));
      await made.serving([], async () => {
        assertEquals(await told("swapped"), [edited(daemon), edited(shim)]);
      });
    } finally {
      Deno.removeSync(tree, { recursive: true });
    }
  },
  cannotCompile(),
);
