/**
 * The tools: how the program is started from source and compiled, how tests are counted, and the
 * walls between the rooms. Programs that a test starts are run without a network of their own; the
 * registry that some of them ask is a server in this process.
 */
import {
  assert,
  assertEquals,
  assertMatch,
  assertNotEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { existsSync } from "@std/fs/exists";
import { join } from "@std/path/join";
import { BUILD } from "#build";
import { createHash } from "node:crypto";
import {
  GENERIC_PROGRAMS,
  genericPrograms,
  killPath,
  MALLOC_ENVIRONMENT,
  permissionFlags,
  programsWord,
  STARTER_ARGV,
} from "../src/permissions.ts";
import { runWrapper, Stop, updateWrapper } from "../tools/chb.ts";
import { withoutProgram } from "../tools/runtime.ts";
import { v8Word } from "../tools/runtime_flags.ts";
import { cannotCompile } from "./helpers/compiled.ts";
import { compileArgs, parseOptions, stageSource, systemOf, TARGETS } from "../tools/compile.ts";
import { importMap, importMapUrl } from "../tools/import_map.ts";
import { readSource } from "../tools/imports.ts";
import {
  inRepository,
  type ProbeOptions,
  probeRegistry,
  RegistryError,
  type Std,
} from "../tools/launcher.ts";
import { rootFindings } from "../tools/root_check.ts";
import {
  findings,
  foreignImports,
  humanReached,
  importCycles,
  impureRooms,
  type Modules,
  readDeclared,
  readModules,
  startsElsewhere,
  unusedPackages,
} from "../tools/rooms.ts";
import { share } from "../tools/test.ts";
import { readCounts, readSkips, verdict } from "../tools/test_report.ts";
import { type WrapperFacts, wrapperFacts, wrapperText } from "../tools/wrapper.ts";

const decoder = new TextDecoder();

/** Runs `fn` with a temporary directory, by its real path, that is removed afterwards. */
async function withDirectory(fn: (directory: string) => void | Promise<void>): Promise<void> {
  const directory = Deno.realPathSync(Deno.makeTempDirSync());
  try {
    await fn(directory);
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
}

/** Runs a command to its end. */
async function run(
  program: string,
  args: string[],
  options: Deno.CommandOptions = {},
): Promise<{ code: number; out: string; err: string }> {
  const { code, stdout, stderr } = await new Deno.Command(program, {
    args,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    ...options,
  }).output();
  return { code, out: decoder.decode(stdout), err: decoder.decode(stderr) };
}

// ---------------------------------------------------------------------------------- permissions

Deno.test("permissionFlags() grants the root's parts, the programs, and nothing else", () => {
  assertEquals(permissionFlags(["/usr/bin/true", "base/x", "/usr/bin/true"], "/usr/bin/kill"), [
    "--no-prompt",
    "--allow-read=./bin,./keys,./base,./bridge.jsonc,./spool,./work,./state,./state/runs," +
    "./state/policies,./state/KILL,./state/KILL.main,./base/x,/usr/bin/kill,/usr/bin/true",
    "--allow-write=./spool,./work,./state,./state/runs",
    "--allow-run=./bin/chb,./base/x,/usr/bin/kill,/usr/bin/true",
  ]);
});

Deno.test("permissionFlags() grants the kill switch of every agent to be read", () => {
  const [, read = ""] = permissionFlags([], "/bin/kill", ["b", "a", "b"]);
  assertMatch(read, /,\.\/state\/KILL,\.\/state\/KILL\.a,\.\/state\/KILL\.b,\/bin\/kill$/);
});

Deno.test("permissionFlags() refuses a program that a flag could not hold or bound", () => {
  for (const program of ["docker", "./x", "spool/main/x", "/usr/bin/a,/usr/bin/sh", "/x\ny", ""]) {
    assertThrows(() => permissionFlags([program], "/bin/kill"), RangeError);
  }
});

Deno.test("programsWord() names what was granted to run, but not the kill helper", () => {
  assertEquals(
    programsWord(["/usr/bin/b", "base/a", "/usr/bin/b"]),
    "--programs=./base/a,/usr/bin/b",
  );
  assertEquals(programsWord([]), "--programs=");
});

Deno.test("GENERIC_PROGRAMS holds absolute paths of engines, the starter's program and no shell", () => {
  assert(GENERIC_PROGRAMS.includes(STARTER_ARGV[0]));
  for (const program of GENERIC_PROGRAMS) {
    if (program === STARTER_ARGV[0]) continue;
    assertMatch(program, /^\/usr\/(?:local\/)?bin\/(?:docker|podman|kubectl)(?:-compose)?$/);
  }
});

Deno.test("killPath() takes the first helper that is there", () => {
  assertEquals(killPath((path) => path === "/bin/kill"), "/bin/kill");
  assertEquals(killPath(() => true), "/usr/bin/kill");
  assertEquals(killPath(() => false), "/usr/bin/kill");
});

// ------------------------------------------------------------------------------------- launcher

/** Where a registry keeps the modules that stand in for each package. */
const PACKAGES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  assert: { ".": "assert.ts" },
  cli: { "./parse-args": "parse_args.ts" },
  fs: { "./ensure-dir": "fs/ensure_dir.ts", "./exists": "fs/exists.ts" },
  jsonc: { ".": "jsonc.ts" },
  path: Object.fromEntries(
    ["dirname", "join"].map((name) => [`./${name}`, `path/${name}.ts`]),
  ),
};

/** Answers as a JSR registry that holds the stand-ins under the versions of `deno.json`. */
function registryAnswer(url: string): Response {
  const [, name = "", version, file] =
    /^\/@std\/(\w+)\/(?:([\d.]+)(?:_meta\.json|\/(.+))|meta\.json)$/.exec(new URL(url).pathname) ??
      [];
  const exports = PACKAGES[name];
  if (exports === undefined) return new Response("", { status: 404 });
  const read = (path: string) => Deno.readFileSync(inRepository("tools", "std", path));
  if (file !== undefined) return new Response(read(file));
  if (version === undefined) {
    const declared = Deno.readTextFileSync(inRepository("deno.json"));
    const own = new RegExp(`jsr:@std/${name}@([\\d.]+)`).exec(declared)?.[1] ?? "0.0.0";
    return Response.json({ scope: "std", name, latest: own, versions: { [own]: {} } });
  }
  const manifest = Object.fromEntries(
    Object.values(exports).map((path) => {
      const bytes = read(path);
      const checksum = `sha256-${createHash("sha256").update(bytes).digest("hex")}`;
      return [`/${path}`, { size: bytes.length, checksum }];
    }),
  );
  const named = Object.entries(exports).map(([key, path]) => [key, `./${path}`]);
  return Response.json({ manifest, exports: Object.fromEntries(named), moduleGraph2: {} });
}

/** Probes a registry that answers with `handler`, from an empty cache. */
async function probe(
  handler: (request: Request) => Response,
  options: ProbeOptions,
): Promise<{ std: Std; why: string }> {
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler);
  const cache = Deno.makeTempDirSync();
  try {
    const env = { JSR_URL: `http://127.0.0.1:${server.addr.port}/`, DENO_DIR: cache };
    return await probeRegistry({ ...options, env });
  } finally {
    await server.shutdown();
    Deno.removeSync(cache, { recursive: true });
  }
}

Deno.test("probeRegistry() chooses jsr when the registry answers", async () => {
  const { std } = await probe((request) => registryAnswer(request.url), { lock: null });
  assertEquals(std, "jsr");
});

Deno.test("probeRegistry() refuses a registry whose modules the lock file does not name", async () => {
  const error = await assertRejects(
    () => probe((request) => registryAnswer(request.url), {}),
    RegistryError,
  );
  assertStringIncludes(error.message, "@std/");
});

Deno.test("probeRegistry() chooses the fallback when the registry has nothing", async () => {
  const { std } = await probe(() => new Response("", { status: 404 }), {});
  assertEquals(std, "fallback");
});

Deno.test("probeRegistry() gives up on a registry that says nothing", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const cache = Deno.makeTempDirSync();
  try {
    const env = { JSR_URL: `http://127.0.0.1:${listener.addr.port}/`, DENO_DIR: cache };
    const began = performance.now();
    const { std, why } = await probeRegistry({ env, silenceMs: 300 });
    assertEquals([std, why], ["fallback", "the JSR registry is silent"]);
    assert(performance.now() - began < 10_000);
  } finally {
    listener.close();
    Deno.removeSync(cache, { recursive: true });
  }
});

Deno.test("CHB_STD with an unknown word is an error and starts nothing", async () => {
  await withDirectory(async (root) => {
    const { code, err } = await run(Deno.execPath(), [
      "run",
      "-A",
      "--no-config",
      inRepository("tools", "chb.ts"),
      "--root",
      root,
      "version",
    ], { env: { CHB_STD: "mine" } });
    assertEquals(code, 78);
    assertStringIncludes(err, "CHB_STD");
    assert(!existsSync(join(root, "bin")));
  });
});

// ----------------------------------------------------------------------------- what is declared

function readJson<T>(...names: string[]): T {
  return JSON.parse(Deno.readTextFileSync(inRepository(...names)));
}

interface DenoJson {
  readonly version: string;
  readonly imports: Readonly<Record<string, string>>;
  readonly tasks: Readonly<Record<string, { readonly command: string }>>;
}

interface Lock {
  readonly specifiers: Readonly<Record<string, string>>;
  readonly jsr: Readonly<
    Record<string, { readonly integrity: string; readonly dependencies?: string[] }>
  >;
  readonly workspace: { readonly dependencies: readonly string[] };
}

Deno.test("deno.lock pins every package of deno.json and what it depends on", () => {
  const { imports } = readJson<DenoJson>("deno.json");
  const lock = readJson<Lock>("deno.lock");
  const declared = Object.values(imports).filter((target) => target.startsWith("jsr:")).sort();
  assertEquals(declared.length, 5);
  assertEquals([...lock.workspace.dependencies].sort(), declared);
  const specifiers = Object.keys(lock.specifiers);
  for (const specifier of [...declared, ...specifiers]) {
    const version = lock.specifiers[specifier];
    const name = specifier.slice("jsr:".length).replace(/(?<=.)@.*$/, "");
    const entry = lock.jsr[`${name}@${version}`];
    assertMatch(entry?.integrity ?? "", /^[0-9a-f]{64}$/, specifier);
    for (const dependency of entry?.dependencies ?? []) {
      const pinned = specifiers.some((one) =>
        one === dependency || one.startsWith(`${dependency}@`)
      );
      assert(pinned, `${specifier} needs ${dependency}`);
    }
  }
});

Deno.test("every task of deno.json runs a tool that is there", () => {
  const { tasks } = readJson<DenoJson>("deno.json");
  assertEquals(Object.keys(tasks).sort(), [
    "bench",
    "chb",
    "compile",
    "compile-mcp",
    "conformance",
    "demo",
    "killpoints",
    "mutants",
    "ok",
    "test",
  ]);
  for (const { command } of Object.values(tasks)) {
    const [, config, name = ""] = /^deno task --config (\S+) (\w+)$/.exec(command) ?? [];
    if (config !== undefined) {
      assert(Object.hasOwn(readJson<DenoJson>(...config.split("/")).tasks, name), command);
      continue;
    }
    const [, tool = "", words = ""] =
      /^(?:SLOW=1 )?deno run -A ((?:tools|spec-conformance)\/[a-z_]+\.ts)((?: tests\/\w+\.ts)*)$/
        .exec(command) ?? [];
    for (const file of [tool, ...words.split(" ").slice(1)]) {
      assert(existsSync(inRepository(file), { isFile: true }), command);
    }
  }
});

Deno.test("BUILD names the version of deno.json and the @std that is mapped", () => {
  assertEquals(BUILD.version, readJson<DenoJson>("deno.json").version);
  const mapped = import.meta.resolve("@std/assert");
  assertEquals(BUILD.std, mapped.startsWith("file:") ? "fallback" : "jsr");
  assertEquals(BUILD.source, true);
});

Deno.test("the probe imports every module that has a stand-in, so all are cached", () => {
  const { standIns } = readDeclared();
  const probed =
    readSource(Deno.readTextFileSync(inRepository("tools", "std", "probe.ts"))).imports;
  assertEquals(
    probed.map(({ specifier }) => specifier).sort(),
    standIns.filter((name) => name.startsWith("@")).sort(),
  );
});

Deno.test("the tools import nothing of @std before it is decided which", () => {
  for (const [path, { imports }] of readModules()) {
    if (!/^tools\/[a-z_]+\.ts$/.test(path)) continue;
    // These run in a process of their own, with the decision in force.
    if (/^tools\/(bench|measure_triggers)_run\.ts$/.test(path)) continue;
    assertEquals(imports.filter(({ specifier }) => specifier.startsWith("@std")), [], path);
  }
});

// ----------------------------------------------------------------------------------- import map

Deno.test("importMap() of the fallback maps every name to a file that is there", () => {
  const { imports } = importMap("fallback", "abc");
  assertEquals(Object.keys(imports).sort(), readDeclared().standIns.toSorted());
  for (const [name, target] of Object.entries(imports)) {
    if (name === "#commit") continue;
    assert(existsSync(new URL(target).pathname, { isFile: true }), `${name}: ${target}`);
  }
});

Deno.test("importMap() of the registry's modules names each package with its modules", () => {
  const { imports } = importMap("jsr", "abc");
  const { imports: declared } = readJson<DenoJson>("deno.json");
  assertEquals(imports["@std/path"], declared["@std/path"]);
  assertEquals(imports["@std/path/"], `${declared["@std/path"]?.replace("jsr:", "jsr:/")}/`);
  assertMatch(imports["#build"] ?? "", /^file:\/\/.*\/src\/build\.ts$/);
});

Deno.test("importMapUrl() can be put in a URL and read back", async () => {
  const url = importMapUrl("fallback", '"; %# é');
  assertMatch(url, /^data:application\/json,[\x21-\x24\x26-\x7e%]*$/);
  assert(!url.includes("#"));
  const map: { imports: Record<string, string> } = await (await fetch(url)).json();
  assertEquals(map, importMap("fallback", '"; %# é'));
  const { COMMIT } = await import(map.imports["#commit"] ?? "");
  assertEquals(COMMIT, '"; %# é');
});

// -------------------------------------------------------------------------------------- wrapper

const NO_CACHE = "/dev/null/deno";

function facts(main: string, changes: Partial<WrapperFacts> = {}): WrapperFacts {
  return {
    std: BUILD.std,
    commit: "test",
    policies: "test",
    programs: ["/usr/bin/ls"],
    agents: ["main"],
    kill: killPath(existsSync),
    deno: Deno.execPath(),
    cache: Deno.env.get("DENO_DIR") ?? NO_CACHE,
    main,
    ...changes,
  };
}

/** A root with `bin/chb`, which runs `program`; the root's path is as awkward as paths get. */
function makeRoot(directory: string, program: string): string {
  const main = join(directory, "main #1.ts");
  Deno.writeTextFileSync(main, program);
  const root = join(directory, `it's "a" $HOME root`);
  Deno.mkdirSync(join(root, "bin"), { recursive: true });
  for (const name of ["base", "spool", "work", "state/runs"]) {
    Deno.mkdirSync(join(root, name), { recursive: true });
  }
  Deno.writeTextFileSync(join(root, "bin/chb"), wrapperText(facts(main)));
  Deno.chmodSync(join(root, "bin/chb"), 0o555);
  return root;
}

const REPORT = `
  const tryIt = (fn: () => unknown) => {
    try { return String(fn()); } catch (error) { return (error as Error).name; }
  };
  const states = (list: Deno.PermissionDescriptor[]) =>
    list.map((one) => Deno.permissions.querySync(one).state);
  console.log(JSON.stringify({
    args: Deno.args, pid: Deno.pid, cwd: Deno.cwd(), noColor: Deno.noColor,
    env: tryIt(() => Deno.env.toObject()),
    outside: tryIt(() => Deno.readTextFileSync("/etc/passwd")),
    inside: tryIt(() => Deno.writeTextFileSync("state/x", "")),
    bin: tryIt(() => Deno.writeTextFileSync("bin/chb", "")),
    binMoved: tryIt(() => Deno.renameSync("bin", "spool/bin")),
    shell: tryIt(() => new Deno.Command("/bin/sh", { clearEnv: true }).outputSync()),
    fds: tryIt(() => new TextDecoder().decode(new Deno.Command("/usr/bin/ls", {
      args: ["/proc/self/fd"], clearEnv: true }).outputSync().stdout).trim().split("\\n").sort()),
    unbounded: states([{ name: "read" }, { name: "write" }, { name: "run" }, { name: "env" },
      { name: "net" }, { name: "ffi" }, { name: "sys" }]),
  }));
`;

Deno.test("X5 X6 the wrapper starts the program with its own flags, whatever surrounds it", async () => {
  await withDirectory(async (directory) => {
    const root = makeRoot(directory, REPORT);
    // Both would be found from the program or the working directory, and replace modules.
    const evil = join(directory, "evil.js");
    Deno.writeTextFileSync(evil, `console.log("evil"); Deno.exit(99);`);
    const config = JSON.stringify({
      imports: { "node:fs": evil, "#build": evil, "#commit": evil },
    });
    Deno.writeTextFileSync(join(root, "deno.json"), config);
    // This one would end the start, were it read.
    Deno.writeTextFileSync(join(directory, "deno.json"), `{ "imports": `);
    const { code, out, err } = await run(join(root, "bin/chb"), ["a b", "--allow-all", "$(id)"], {
      cwd: root,
      env: {
        NODE_OPTIONS: `--require ${evil}`,
        DENO_PERMISSION_BROKER_PATH: join(directory, "broker"),
        DENO_V8_FLAGS: "--no-such-flag",
        DENO_DIR: join(directory, "other-cache"),
        NO_COLOR: "1",
        ENV: evil,
        BASH_ENV: evil,
        HOME: directory,
      },
    });
    assertEquals([code, err], [0, ""]);
    const seen = JSON.parse(out);
    assertEquals(seen.args, ["--programs=/usr/bin/ls", "a b", "--allow-all", "$(id)"]);
    assertEquals(seen.cwd, root);
    assertEquals(seen.noColor, true);
    assertEquals(seen.inside, "undefined");
    for (const what of ["env", "outside", "bin", "binMoved", "shell"]) {
      assertEquals(seen[what], "NotCapable", what);
    }
    assertEquals(new Set(seen.unbounded), new Set(["prompt"]));
    assert(!existsSync(join(directory, "other-cache")));
    assertEquals(Deno.readTextFileSync(join(root, "bin/chb")).startsWith("#!/bin/sh"), true);
  });
});

Deno.test("the wrapper keeps the process id and closes what its caller left open", async () => {
  await withDirectory(async (directory) => {
    const root = makeRoot(directory, REPORT);
    const child = new Deno.Command("/bin/sh", {
      args: ["-c", 'exec 5</etc/passwd 9</etc/passwd; exec ./bin/chb "$@"', "sh", "x"],
      cwd: root,
      stdin: "null",
      stdout: "piped",
    }).spawn();
    const seen = JSON.parse(decoder.decode((await child.output()).stdout));
    assertEquals(seen.pid, child.pid);
    // A shell can close single digits only; the tests' own caller may have left higher ones open.
    const open = seen.fds.split(",");
    assert(["0", "1", "2"].every((fd) => open.includes(fd)), seen.fds);
    assert(!open.includes("5") && !open.includes("9"), seen.fds);
  });
});

Deno.test("the program is started with what keeps its memory small, made or wrapped", () => {
  const text = wrapperText(facts("/x/main.ts"));
  const compiled = (jitless: boolean) =>
    compileArgs("/s", "fallback", [], [], "/out", { jitless }).join(" ");
  for (const made of [text, compiled(true), compiled(false)]) {
    assertMatch(made, / --v8-flags=\S*--max-semi-space-size=\d+\b/);
  }
  assertStringIncludes(text, ` MALLOC_ARENA_MAX=1 `);
  for (const variable of MALLOC_ENVIRONMENT) assertStringIncludes(text, ` ${variable} `);
});

Deno.test("wrapperFacts() believes a script only when it says what it does", () => {
  const made = facts("/x/main.ts", { programs: ["/opt/it's here/p", "base/y"], cache: "/c d" });
  const text = wrapperText(made);
  assertEquals(wrapperFacts(text), made);
  assertEquals(wrapperFacts(text.replace("--no-config", "--config=x")), undefined);
  assertEquals(wrapperFacts(text.replace("base/y", "base/z")), undefined);
  assertEquals(wrapperFacts("#!/bin/sh\n"), undefined);
  assertEquals(wrapperFacts("# facts: {}\n"), undefined);
});

// ------------------------------------------------------------------------------------- chb task

/** A policy that names one program. */
function policy(program: string): string {
  return JSON.stringify({
    agents: { main: { verbs: ["v"] } },
    verbs: {
      v: { description: "A verb.", class: "observe", argv: [program], timeout_s: 5 },
    },
  });
}

Deno.test("updateWrapper() writes bin/chb once, read-only, and again when the policy changes", async () => {
  await withDirectory(async (root) => {
    const path = join(root, "bin/chb");
    await updateWrapper(root);
    assertEquals((Deno.statSync(path).mode ?? 0) & 0o777, 0o555);
    assertEquals((Deno.statSync(join(root, "bin")).mode ?? 0) & 0o777, 0o755);
    const first = Deno.statSync(path).ino;
    await updateWrapper(root);
    assertEquals(Deno.statSync(path).ino, first);
    assertStringIncludes(Deno.readTextFileSync(path), "/usr/bin/docker");

    Deno.writeTextFileSync(join(root, "bridge.jsonc"), policy("/usr/bin/true"));
    await updateWrapper(root);
    assertNotEquals(Deno.statSync(path).ino, first);
    assertEquals(wrapperFacts(Deno.readTextFileSync(path))?.programs, ["/usr/bin/true"]);
    assertEquals([...Deno.readDirSync(join(root, "bin"))].length, 1);
  });
});

Deno.test("updateWrapper() leaves bin/chb as it was trusted when the policy is trusted with it", async () => {
  await withDirectory(async (root) => {
    const path = join(root, "bin/chb");
    Deno.writeTextFileSync(join(root, "bridge.jsonc"), policy("/usr/bin/true"));
    await updateWrapper(root);
    const trusted = Deno.readTextFileSync(path);
    Deno.mkdirSync(join(root, "state/policies"), { recursive: true });
    Deno.copyFileSync(join(root, "bridge.jsonc"), join(root, "state/policies/a.jsonc"));
    await updateWrapper(root);
    assertEquals(Deno.readTextFileSync(path), trusted);
  });
});

Deno.test("updateWrapper() keeps what a trusted policy needs while its edited copy needs less", async () => {
  await withDirectory(async (root) => {
    Deno.mkdirSync(join(root, "state/policies"), { recursive: true });
    Deno.writeTextFileSync(join(root, "state/policies/a.jsonc"), policy("/usr/bin/true"));
    Deno.writeTextFileSync(join(root, "bridge.jsonc"), policy("/usr/bin/false"));
    await updateWrapper(root);
    const made = wrapperFacts(Deno.readTextFileSync(join(root, "bin/chb")));
    assertEquals(made?.programs, ["/usr/bin/false", "/usr/bin/true"]);
  });
});

Deno.test("updateWrapper() grants the usual programs while the policy can not be read", async () => {
  await withDirectory(async (root) => {
    Deno.writeTextFileSync(join(root, "bridge.jsonc"), "{ oh");
    await updateWrapper(root);
    const made = wrapperFacts(Deno.readTextFileSync(join(root, "bin/chb")));
    assertEquals(made?.programs, [...GENERIC_PROGRAMS].sort());
    Deno.writeTextFileSync(join(root, "bridge.jsonc"), policy("/usr/bin/true"));
    await updateWrapper(root);
    const mended = wrapperFacts(Deno.readTextFileSync(join(root, "bin/chb")));
    assertEquals(mended?.programs, ["/usr/bin/true"]);
  });
});

Deno.test("updateWrapper() keeps what the trusted policy needs while its edited copy can not be read", async () => {
  await withDirectory(async (root) => {
    Deno.mkdirSync(join(root, "state/policies"), { recursive: true });
    Deno.writeTextFileSync(join(root, "state/policies/a.jsonc"), policy("/usr/bin/true"));
    Deno.writeTextFileSync(join(root, "bridge.jsonc"), "{ oh");
    await updateWrapper(root);
    const made = wrapperFacts(Deno.readTextFileSync(join(root, "bin/chb")));
    assertEquals(made?.programs.includes("/usr/bin/true"), true);
  });
});

Deno.test("updateWrapper() replaces an edited wrapper and leaves an installed executable alone", async () => {
  await withDirectory(async (root) => {
    const path = join(root, "bin/chb");
    await updateWrapper(root);
    const text = Deno.readTextFileSync(path);
    Deno.removeSync(path);
    Deno.writeTextFileSync(path, text.replace("--no-config", "--allow-all"));
    await updateWrapper(root);
    assertEquals(Deno.readTextFileSync(path), text);

    Deno.removeSync(path);
    Deno.writeTextFileSync(path, "\x7fELF");
    const error = await assertRejects(() => updateWrapper(root), Stop);
    assertEquals(error.exitCode, 77);
    assertEquals(Deno.readTextFileSync(path), "\x7fELF");
  });
});

Deno.test("runWrapper() passes the exit code on", async () => {
  await withDirectory(async (directory) => {
    const root = makeRoot(directory, `Deno.exit(Number(Deno.args[1]));`);
    assertEquals(await runWrapper(root, ["0"]), 0);
    assertEquals(await runWrapper(root, ["41"]), 41);
  });
});

const SIGNALLED = `
  import { runWrapper } from ${JSON.stringify(`file://${inRepository("tools", "chb.ts")}`)};
  Deno.exit(await runWrapper(Deno.args[0]!, []));
`;

for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
  Deno.test(`runWrapper() hands ${signal} on and waits for the end`, async () => {
    await withDirectory(async (directory) => {
      const root = makeRoot(
        directory,
        `Deno.addSignalListener("${signal}", () => Deno.exit(7));
         setTimeout(() => Deno.exit(8), 20_000); console.log("ready");`,
      );
      const starter = join(directory, "start.ts");
      Deno.writeTextFileSync(starter, SIGNALLED);
      const child = new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", "--no-check", "--no-config", "--no-lock", starter, root],
        stdin: "null",
        stdout: "piped",
        stderr: "null",
      }).spawn();
      const reader = child.stdout.getReader();
      assertStringIncludes(decoder.decode((await reader.read()).value), "ready");
      child.kill(signal);
      assertEquals((await child.status).code, 7);
      await reader.cancel();
    });
  });
}

for (
  const [what, args, code, words] of [
    ["no root", [], 64, "usage:"],
    ["a command before the root", ["status", "--root", "x"], 64, "usage:"],
    ["a root that is not there", ["--root", "/usr/share/chb/none", "status"], 78, "init makes it"],
    ["a directory that is no bridge", ["--root", "/usr/share", "serve"], 78, "run init first"],
    ["no command", ["--root", "/usr/share"], 64, "usage:"],
    ["a root that is a file", ["--root=/etc/passwd", "status"], 78, "no directory"],
  ] as const
) {
  Deno.test(`the chb task with ${what} says what to do`, async () => {
    const tool = inRepository("tools", "chb.ts");
    const result = await run(Deno.execPath(), ["run", "-A", "--no-config", tool, ...args]);
    assertEquals(result.code, code);
    assertStringIncludes(result.err, words);
    assertEquals(result.out, "");
  });
}

const OPEN_ROOT: readonly [string, Parameters<typeof rootFindings>[0], RegExp | null][] = [
  [
    "a closed root",
    [{ path: "/r", uid: 1, mode: 0o700 }, { path: "/", uid: 0, mode: 0o755 }],
    null,
  ],
  ["a foreign root", [{ path: "/r", uid: 2, mode: 0o700 }], /^\/r belongs to uid 2/],
  ["a readable root", [{ path: "/r", uid: 1, mode: 0o750 }], /chmod 700 '\/r'/],
  ["a sticky directory above", [
    { path: "/tmp/r", uid: 1, mode: 0o40700 },
    { path: "/tmp", uid: 0, mode: 0o41777 },
  ], null],
  ["a world-writable directory above", [
    { path: "/x/r", uid: 1, mode: 0o700 },
    { path: "/x", uid: 0, mode: 0o40777 },
  ], /chmod o-w '\/x'/],
  ["a foreign directory above", [
    { path: "/x/r", uid: 1, mode: 0o700 },
    { path: "/x", uid: 9, mode: 0o40755 },
  ], /^\/x belongs to uid 9/],
];

for (const [what, chain, expected] of OPEN_ROOT) {
  Deno.test(`rootFindings() of ${what}: ${expected === null ? "nothing" : "one"}`, () => {
    const found = rootFindings(chain, 1);
    assertEquals(found.length, expected === null ? 0 : 1, found.join("\n"));
    if (expected !== null) assertMatch(found[0] ?? "", expected);
  });
}

// -------------------------------------------------------------------------------------- compile

Deno.test("stageSource() copies the source with equal times and a relative import map", () => {
  const stage = stageSource("fallback", "abc");
  try {
    const times = ["main.ts", "src/build.ts", "tools/std/assert.ts"].map((name) =>
      Deno.statSync(join(stage, name)).mtime?.getTime()
    );
    assertEquals(new Set(times), new Set([0]));
    assert(!existsSync(join(stage, ".git")));
    const map = JSON.parse(Deno.readTextFileSync(join(stage, "import_map.json")));
    for (const [name, target] of Object.entries<string>(map.imports)) {
      assertMatch(target, name === "#commit" ? /^data:/ : /^\.\/[a-z]/);
    }
    assertEquals(map.imports["@std/assert"], "./tools/std/assert.ts");
    assertEquals(map.imports["#build"], "./tools/std/build.ts");
  } finally {
    Deno.removeSync(stage, { recursive: true });
  }
});

Deno.test("compileArgs() lets no configuration or npm package in and locks the registry's modules", () => {
  const flags = permissionFlags(["/usr/bin/true"], "/bin/kill");
  const jsr = compileArgs("/s", "jsr", flags, ["/usr/bin/true"], "/out");
  for (
    const flag of [
      "--no-config",
      "--no-npm",
      "--no-code-cache",
      "--lock=/s/deno.lock",
      "--frozen",
      ...flags,
    ]
  ) {
    assert(jsr.includes(flag), flag);
  }
  assertEquals(jsr.slice(-2), ["/s/main.ts", "--programs=/usr/bin/true"]);
  const fallback = compileArgs("/s", "fallback", flags, [], "/out");
  assert(fallback.includes("--no-remote") && fallback.includes("--no-lock"));
});

Deno.test("an executable is made for the target that is named, and makes no code unless asked", () => {
  const target = "aarch64-apple-darwin";
  const parsed = parseOptions(["--target", target, "--policy=/p", "--out", "/o"]);
  assertEquals(parsed, { policy: "/p", out: "/o", target, jitless: true });
  assertEquals(parseOptions(["--jit"])?.jitless, false);
  for (const wrong of [["--target", "x"], ["--jit", "--jit"], ["--out"], ["x"]]) {
    assertEquals(parseOptions(wrong), undefined, wrong.join(" "));
  }
  assertEquals(TARGETS.map(systemOf), ["linux", "linux", "darwin", "darwin"]);
  const args = compileArgs("/s", "fallback", [], [], "/out", { target, jitless: true });
  assert(args.includes(`--target=${target}`) && args.includes(v8Word(true)));
  assertMatch(v8Word(true), /^--v8-flags=--jitless,/);
  assert(!compileArgs("/s", "fallback", [], [], "/out").some((a) => /jitless|target/.test(a)));
  assert(genericPrograms("darwin").includes("/opt/homebrew/bin/docker"));
  assert(!genericPrograms("darwin").some((path) => path.startsWith("/usr/bin/")));
});

Deno.test("withoutProgram() cuts a compiled program off, and nothing else", () => {
  const made = (runtime: string, program: string, said: number) => {
    const trailer = new Uint8Array(16);
    new DataView(trailer.buffer).setBigUint64(8, BigInt(said), true);
    const text = new TextEncoder();
    return new Uint8Array([...text.encode(runtime), ...text.encode(program), ...trailer]);
  };
  assertEquals(new TextDecoder().decode(withoutProgram(made("runtime", "program", 7))), "runtime");
  for (const wrong of [0, 14, 15, 1e9]) {
    assertThrows(() => withoutProgram(made("runtime", "program", wrong)), RangeError);
  }
  assertThrows(() => withoutProgram(new Uint8Array(16)), RangeError);
  assertThrows(() => withoutProgram(new Uint8Array(0)), RangeError);
});

const UNCOMPILED = cannotCompile();

Deno.test({
  name: "an executable is the same bytes twice, and finds its modules in itself" +
    (UNCOMPILED === null ? "" : ` # SKIP ${UNCOMPILED}`),
  ignore: UNCOMPILED !== null,
  fn: async () => {
    await withDirectory(async (directory) => {
      const digests: string[] = [];
      for (const name of ["a", "b"]) {
        const stage = stageSource("fallback", "abc");
        try {
          Deno.writeTextFileSync(
            join(stage, "main.ts"),
            `import { BUILD } from "#build"; console.log(JSON.stringify([BUILD, Deno.args]));`,
          );
          Deno.utimeSync(join(stage, "main.ts"), 0, 0);
          const { code, err } = await run(
            Deno.env.get("DENO_COMPILE") || Deno.execPath(),
            compileArgs(
              stage,
              "fallback",
              permissionFlags([], "/bin/kill"),
              [],
              join(directory, name),
            ),
            { cwd: stage },
          );
          assertEquals(code, 0, err);
        } finally {
          Deno.removeSync(stage, { recursive: true });
        }
        const hash = createHash("sha256").update(Deno.readFileSync(join(directory, name)));
        digests.push(hash.digest("hex"));
      }
      assertEquals(digests[0], digests[1]);
      const scratch = join(directory, "tmp");
      Deno.mkdirSync(scratch);
      const { out } = await run(join(directory, "a"), ["x"], {
        cwd: directory,
        env: { TMPDIR: scratch },
      });
      // A code cache there would be run by whoever starts it next.
      assertEquals([...Deno.readDirSync(scratch)], []);
      const [build, args] = JSON.parse(out);
      assertEquals(build, { ...BUILD, std: "fallback", commit: "abc", source: false });
      assertEquals(args, ["--programs=", "x"]);
    });
  },
});

// ---------------------------------------------------------------------------------- test report

Deno.test("readCounts() reads the last closing line, with colours or without", () => {
  assertEquals(readCounts("ok | 12 passed | 0 failed (3ms)\n"), {
    passed: 12,
    failed: 0,
    ignored: 0,
  });
  assertEquals(
    readCounts(
      "\x1b[0m\x1b[31mFAILED\x1b[0m | 3 passed (2 steps) | 1 failed (1 step) | 2 ignored (4ms)\n",
    ),
    { passed: 3, failed: 1, ignored: 2 },
  );
  assertEquals(
    readCounts("ok | 9 passed | 0 failed (1ms)\nok | 1 passed | 0 failed | 4 filtered out (1ms)\n"),
    { passed: 1, failed: 0, ignored: 0 },
  );
  assertEquals(readCounts("error: Type checking failed.\n"), undefined);
  assertEquals(readCounts("  ok | 12 passed | 0 failed (3ms)\n"), undefined);
});

Deno.test("readSkips() names skipped tests with their reasons and leaves out steps", () => {
  const output = [
    "a ... ok (1ms)",
    "b # SKIP needs root ... ignored (0ms)",
    "c ... ignored (0ms)",
    "  step # SKIP x ... ignored (0ms)",
    "\x1b[0md # SKIP  two  \x1b[0m... \x1b[33mignored\x1b[0m (0ms)",
  ].join("\n");
  assertEquals(readSkips(`${output}\n`), [
    { name: "b", reason: "needs root" },
    { name: "c", reason: "" },
    { name: "d", reason: "two" },
  ]);
  const parallel =
    "./x_test.ts => t ... step ... ignored (0ms)\n./x_test.ts => u # SKIP y ... ignored (0ms)\n";
  assertEquals(readSkips(parallel), [{ name: "u", reason: "y" }]);
});

const GOOD = {
  counts: { passed: 5, failed: 0, ignored: 1 },
  skips: [{ name: "a", reason: "b" }],
  code: 0,
};

const VERDICTS: readonly [string, Parameters<typeof verdict>, number, RegExp | null][] = [
  ["a good run", [GOOD, 1], 0, null],
  ["a run of a part, whatever is skipped", [GOOD, undefined], 0, null],
  ["too many skips", [GOOD, 0], 1, /at most 0/],
  ["a skip without a reason", [{ ...GOOD, skips: [{ name: "a", reason: "" }] }, 1], 1, /without/],
  ["a skip that is not named", [{ ...GOOD, skips: [] }, 1], 1, /0 are named/],
  [
    "failed tests",
    [{ ...GOOD, counts: { passed: 1, failed: 2, ignored: 1 }, code: 1 }, 1],
    2,
    null,
  ],
  ["an end before its time", [{ counts: undefined, skips: [], code: 1 }, 1], 1, /ended before/],
  ["an exit code without a failed test", [{ ...GOOD, code: 3 }, 1], 1, /ended with 3/],
  [
    "no tests",
    [{ counts: { passed: 0, failed: 0, ignored: 0 }, skips: [], code: 0 }, 1],
    1,
    /No test/,
  ],
];

for (const [what, args, failed, complaint] of VERDICTS) {
  Deno.test(`verdict() of ${what}: ${failed} failed`, () => {
    const judged = verdict(...args);
    assertEquals(judged.failed, failed);
    assertEquals(
      judged.complaints.length,
      complaint === null ? 0 : 1,
      judged.complaints.join("\n"),
    );
    if (complaint !== null) assertMatch(judged.complaints[0] ?? "", complaint);
  });
}

/** A test file, and how the test task ends with it: exit code and closing line. */
const TEST_RUNS: readonly [string, string, number, string][] = [
  ["passes", `Deno.test("a", () => {});`, 0, "1 passed, 0 failed, 0 skipped"],
  [
    "fails",
    `Deno.test("a", () => { throw new Error("no"); });`,
    1,
    "0 passed, 1 failed, 0 skipped",
  ],
  [
    "does not type-check",
    `const a: number = "x"; Deno.test("a", () => void a);`,
    1,
    "0 passed, 1 failed, 0 skipped",
  ],
  [
    "does not load",
    `Deno.test("a", () => {}); throw new Error("no");`,
    1,
    "0 passed, 1 failed, 0 skipped",
  ],
  [
    "skips with a reason",
    `Deno.test("a", () => {}); Deno.test({ name: "b # SKIP why", ignore: true, fn() {} });`,
    0,
    "1 passed, 0 failed, 1 skipped",
  ],
  [
    "skips without a reason",
    `Deno.test("a", () => {}); Deno.test({ name: "b", ignore: true, fn() {} });`,
    1,
    "1 passed, 1 failed, 1 skipped",
  ],
  [
    "leaves a timer behind",
    `Deno.test("a", () => { setTimeout(() => {}, 60_000); });`,
    1,
    "0 passed, 1 failed, 0 skipped",
  ],
];

for (const [what, text, code, last] of TEST_RUNS) {
  Deno.test(`the test task with a file that ${what} ends with ${code}`, async () => {
    await withDirectory(async (directory) => {
      const file = join(directory, "one_test.ts");
      Deno.writeTextFileSync(file, text);
      const tool = inRepository("tools", "test.ts");
      const result = await run(Deno.execPath(), ["run", "-A", "--no-config", tool, file]);
      assertEquals(result.out.trimEnd().split("\n").at(-1), last, result.out + result.err);
      assertEquals(result.code, code);
      assertMatch(result.out, /^std: (?:jsr|fallback) /);
    });
  });
}

Deno.test("the shares of the suite are alike and together all of it", () => {
  const files = ["a", "b", "c", "d", "e", "f", "g"];
  const shares = ["1/3", "2/3", "3/3"].map((slice) => share(files, slice));
  assertEquals(shares.map(({ length }) => length), [3, 2, 2]);
  assertEquals(shares.flat().sort(), files);
  for (const slice of ["0/3", "4/3", "1", "1/0", "", "1/10"]) {
    assertThrows(() => share(files, slice), Error, "--slice");
  }
});

// ---------------------------------------------------------------------------------------- rooms

const IMPORTS: readonly [string, string, [string, boolean][]][] = [
  ["a value", `import { a } from "./a.ts";`, [["./a.ts", false]]],
  ["types", `import type { A } from './a.ts';`, [["./a.ts", true]]],
  ["types one by one", `import { type A, type B } from "./a.ts";`, [["./a.ts", true]]],
  ["a type beside a value", `import { type A, b } from "./a.ts";`, [["./a.ts", false]]],
  ["a value named type", `import type from "./a.ts";`, [["./a.ts", false]]],
  ["a default and names", `import a, { b } from "./a.ts";`, [["./a.ts", false]]],
  ["everything", `import * as a from "./a.ts";`, [["./a.ts", false]]],
  ["an effect", `import "./a.ts";`, [["./a.ts", false]]],
  ["at run time", `const a = await import("./a.ts");`, [["./a.ts", false]]],
  ["over lines", `import {\n  a,\n  // c\n  b,\n} from "./a.ts";`, [["./a.ts", false]]],
  ["a re-export", `export { a } from "./a.ts"; export * from "./b.ts";`, [
    ["./a.ts", false],
    ["./b.ts", false],
  ]],
  ["re-exported types", `export type { A } from "./a.ts";`, [["./a.ts", true]]],
  ["a text", `import a from "./a.sh" with { type: "text" };`, [["./a.sh", false]]],
  ["a comment", `// import "./a.ts";\n/* import "./b.ts"; */`, []],
  ["a string", `const a = 'import "./a.ts"';`, []],
  ["a template", 'const a = `import "./a.ts" ${x(`import "./b.ts"`)}`;', []],
  ["a regular expression", `const a = /["'/]import "x"/; import "./a.ts";`, [["./a.ts", false]]],
  ["a division", `const a = b / c; import "./a.ts"; const d = e / f;`, [["./a.ts", false]]],
  ["an export that imports nothing", `export const a = 1; const from = "x";`, []],
];

for (const [what, text, expected] of IMPORTS) {
  Deno.test(`readSource() finds the imports of ${what}`, () => {
    const found = readSource(text).imports;
    assertEquals(found.map(({ specifier, typeOnly }) => [specifier, typeOnly]), expected);
  });
}

Deno.test("readSource() keeps line breaks and drops what is no code", () => {
  const { code } = readSource("a; // Deno.x\n/* Deno\n.y */ b(`Deno ${Deno.z}\n`); 'Deno.w'");
  assertEquals(code.split("\n").length, 4);
  assertEquals([...code.matchAll(/Deno\.(\w)/g)].map(([, name]) => name), ["z"]);
});

function modules(files: Readonly<Record<string, string>>): Modules {
  return new Map(Object.entries(files).map(([path, text]) => [path, readSource(text)]));
}

Deno.test("this repository breaks no wall between its rooms", () => {
  assertEquals(findings(readModules(), readDeclared()), []);
});

Deno.test("importCycles() finds a cycle and lets types go round", () => {
  const broken = modules({
    "src/a.ts": `import { b } from "./x/b.ts";`,
    "src/x/b.ts": `import { c } from "./c.ts";`,
    "src/x/c.ts": `import { a } from "../a.ts";`,
  });
  assertEquals(importCycles(broken), [
    "import cycle: src/a.ts > src/x/b.ts > src/x/c.ts > src/a.ts",
  ]);
  const fine = modules({
    "src/a.ts": `import { b } from "./b.ts";`,
    "src/b.ts": `import type { A } from "./a.ts";`,
  });
  assertEquals(importCycles(fine), []);
});

Deno.test("humanReached() finds a human command behind the daemon, however far", () => {
  const files = {
    "main.ts": `import { r } from "./src/human/resume.ts";`,
    "src/daemon/serve.ts": `import { a } from "../policy/a.ts";`,
    "src/human/resume.ts": `import { d } from "../daemon/control.ts";`,
    "src/daemon/control.ts": "",
    "src/policy/a.ts": "",
  };
  assertEquals(humanReached(modules(files)), []);
  const broken = { ...files, "src/policy/a.ts": `export { r } from "../human/resume.ts";` };
  assertStringIncludes(
    humanReached(modules(broken)).join("\n"),
    "src/daemon/serve.ts > src/policy/a.ts > src/human/resume.ts",
  );
});

const IMPURE: readonly [string, string][] = [
  ["Deno", `export const a = () => Deno.readTextFileSync("x");`],
  ["Deno by index", `export const a = () => Deno["cwd"]();`],
  ["node:fs", `import { readFileSync } from "node:fs";`],
  ["@std/fs", `import { existsSync } from "@std/fs/exists";`],
  ["what touches the disk", `import { read } from "../spool/read.ts";`],
  ["the clock", `export const a = () => Date.now();`],
  ["the clock by new", `export const a = () => new Date();`],
  ["chance", `export const a = () => crypto.randomUUID();`],
  ["a timer", `export const a = () => setTimeout(a, 1);`],
];

for (const room of ["request", "gates"]) {
  for (const [what, text] of IMPURE) {
    Deno.test(`impureRooms() refuses ${what} in ${room}/`, () => {
      const found = impureRooms(modules({
        [`src/${room}/a.ts`]: text,
        "src/spool/read.ts": `export const read = () => Deno.readFileSync("x");`,
      }));
      assertEquals(found.length, 1, found.join("\n"));
    });
  }
}

Deno.test("impureRooms() lets decisions use types, pure helpers and given dates", () => {
  const fine = modules({
    "src/gates/a.ts": `import type { FsFile } from "node:fs"; import { h } from "../policy/h.ts";
      /** Uses no Deno.readFile. */ export const a = (ms: number) => h(new Date(ms), "Deno.cwd");`,
    "src/policy/h.ts": `import { createHash } from "node:crypto";`,
  });
  assertEquals(impureRooms(fine), []);
});

Deno.test("startsElsewhere() allows programs to be started in run/ only", () => {
  const text = `new Deno.Command("x");`;
  assertEquals(startsElsewhere(modules({ "src/run/a.ts": text, "tests/a.ts": text })), []);
  for (
    const broken of [
      text,
      `const { Command } = Deno;`,
      `import { spawn } from "node:child_process";`,
      `const c = await import("node:child_process");`,
    ]
  ) {
    assertEquals(startsElsewhere(modules({ "src/spool/a.ts": broken })).length, 1, broken);
    assertEquals(startsElsewhere(modules({ "main.ts": broken })).length, 1, broken);
  }
});

Deno.test("foreignImports() keeps the program to itself, @std stand-ins and Node built-ins", () => {
  const declared = { packages: ["@std/path"], standIns: ["@std/path/join", "#build"] };
  const check = (specifier: string) =>
    foreignImports(modules({ "src/run/a.ts": `import "${specifier}";` }), declared);
  for (const fine of ["@std/path/join", "#build", "node:fs", "./b.ts", "../../agent/x.sh"]) {
    assertEquals(check(fine), [], fine);
  }
  for (
    const foreign of [
      "@std/path",
      "@std/path/parse",
      "npm:left-pad",
      "jsr:@std/path",
      "https://example.invalid/x.ts",
      "../../tools/launcher.ts",
      "../../tests/helpers.ts",
      "../../../outside.ts",
    ]
  ) {
    assertEquals(check(foreign), [`src/run/a.ts imports ${foreign}`]);
  }
});

Deno.test("unusedPackages() names a package that only the tools import", () => {
  const declared = { packages: ["@std/fs", "@std/path"], standIns: [] };
  const found = unusedPackages(
    modules({
      "tools/a.ts": `import { existsSync } from "@std/fs/exists";`,
      "src/a.ts": `import { join } from "@std/path/join";`,
    }),
    declared,
  );
  assertEquals(found, ["@std/fs is declared in deno.json and used nowhere"]);
});
