/**
 * Ways around a bridge that people have reported of systems that do a related job, each tried here.
 * The number at the head of a name is that of the report in our list of them (21 to 35, security and
 * policy); one that cannot be tried here says why in the last test.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { mountLines } from "../src/human/mounts.ts";
import { checkArgs, checkPathArgs } from "../src/policy/check_args.ts";
import { deniedCompose } from "../src/policy/compose_denials.ts";
import { deniedProgram } from "../src/policy/denials.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";
import { deniedUnderRoot } from "../src/policy/root_denials.ts";
import { argvErrors, errorsOf, valid, verbOf, verbPolicy } from "./policy_fixture.ts";
import { AgentSide } from "./helpers/agents.ts";
import { TestBridge, there, until, verb } from "./helpers/bridge.ts";

/** Numbers that a test of this file has seen refused. */
const SEEN = new Set<number>();

const ROOT = "/srv/bridge";

function rules(argv: readonly string[], args: unknown = {}, more: object = {}): string[] {
  return argvErrors(argv, args, more).map((e) => e.rule ?? "no rule");
}

function composePaths(service: unknown): string[] {
  return deniedCompose({ services: { web: service } }, ROOT).map((d) => d.path);
}

const NAME = { type: "name" };
const AGENTS = { type: "path", root: "/srv/work", agent_writable: true };

interface Case {
  readonly n: number;
  readonly what: string;
  readonly run: () => void;
}

const refusedBy = (rule: string, argv: readonly string[], args?: unknown) => () =>
  assertEquals(rules(argv, args), [rule], argv.join(" "));
const named = (path: string, service: unknown) => () => assertEquals(composePaths(service), [path]);

const CASES: readonly Case[] = [
  { n: 23, what: "cap_add", run: named("services.web.cap_add", { cap_add: ["ALL"] }) },
  {
    n: 23,
    what: "security_opt",
    run: named("services.web.security_opt", { security_opt: ["apparmor:unconfined"] }),
  },
  {
    n: 23,
    what: "the process list of another container",
    run: named("services.web.pid", { pid: "container:other" }),
  },
  {
    n: 23,
    what: "the network of another container",
    run: named("services.web.network_mode", { network_mode: "container:other" }),
  },
  { n: 23, what: "a build of the host", run: named("services.web.build", { build: "/" }) },
  {
    n: 24,
    what: "a compose file that an agent can write",
    run: refusedBy("container-file", ["/usr/bin/docker-compose", "-f", "{f}", "up"], { f: AGENTS }),
  },
  {
    n: 24,
    what: "settings that override a manifest inline",
    run: () => {
      assertEquals(rules(["/usr/bin/kubectl", "run", "x", "--overrides=y"]), [
        "container-privilege",
      ]);
      const chosen = { o: { type: "text" } };
      assertEquals(rules(["/usr/bin/kubectl", "run", "x", "--overrides={o}"], chosen), [
        "container-placeholder",
      ]);
    },
  },
  {
    n: 24,
    what: "a source that is spelled around the check",
    run: refusedBy("container-mount", ["/usr/bin/docker", "run", "-v", "/srv/a/../../:/h", "img"]),
  },
  {
    n: 24,
    what: "a link on the way to a file in base/",
    run: () => {
      const verb = verbOf(["/usr/bin/tool", "{f}"], { f: { type: "path", root: "base/conf" } });
      const checked = checkArgs(verb, { f: "link/passwd" });
      assert(checked.ok);
      const kinds: Record<string, "directory" | "file" | "other"> = {
        base: "directory",
        "base/conf": "directory",
        "base/conf/link": "other",
        "base/conf/link/passwd": "file",
      };
      const outcome = checkPathArgs(verb, checked.args, { lstat: (p) => kinds[p] ?? null });
      assert(!outcome.ok);
      // The same with a real directory in the link's place is fine.
      kinds["base/conf/link"] = "directory";
      assert(checkPathArgs(verb, checked.args, { lstat: (p) => kinds[p] ?? null }).ok);
    },
  },
  {
    n: 25,
    what: "a mount outside the project",
    run: refusedBy("container-mount", ["/usr/bin/docker", "run", "-v", "/home/me:/h", "img"]),
  },
  {
    n: 25,
    what: "a mount that the request chooses",
    run: () =>
      assert(rules(["/usr/bin/docker", "build", "-v", "{m}", "."], { m: NAME }).length > 0),
  },
  {
    n: 26,
    what: "an exec or a removal next to an allowed restart",
    run: () => {
      // An argument of a restart stays one: no value turns it into another command.
      const verb = verbOf(["/usr/bin/docker", "restart", "{c}"], { c: NAME });
      for (
        const c of ["-v", "--help", "web; docker rm web", "web rm", "exec\nweb", ["web", "rm"]]
      ) {
        assert(!checkArgs(verb, { c }).ok, JSON.stringify(c));
      }
      assert(!checkArgs(verb, { c: "web", signal: "KILL" }).ok);
      assertEquals(
        rules(["/usr/bin/docker", "{what}", "web"], {
          what: { type: "enum", values: ["restart", "exec"] },
        }).includes("container-placeholder"),
        true,
      );
    },
  },
  {
    n: 27,
    what: "a permission that has no effect",
    run: () => {
      // Whoever gives an agent a verb that its scope does not reach is told so.
      const policy = {
        agents: { main: { verbs: ["v"], scope: "observe" } },
        verbs: { v: { class: "mutating", argv: ["/usr/bin/true"], timeout_s: 5 } },
      };
      const parsed = parsePolicy(new TextEncoder().encode(JSON.stringify(policy)));
      assert(parsed.ok);
      assertEquals(parsed.warnings.map((w) => w.rule).filter((r) => r === "scope-too-narrow"), [
        "scope-too-narrow",
      ]);
      // And a word that means nothing is an error, not a line without effect.
      assert(errorsOf({ ...policy, allow: { POST: 1 } }).length > 0);
    },
  },
  {
    n: 28,
    what: "the engine's socket in a container",
    run: () => {
      for (const socket of ["/var/run/docker.sock", "/run/podman/podman.sock", "/srv/d.sock"]) {
        assertEquals(rules(["/usr/bin/docker", "run", "-v", `${socket}:/s`, "img"]), [
          "container-mount",
        ]);
        assertEquals(composePaths({ volumes: [{ type: "bind", source: socket, target: "/s" }] }), [
          "services.web.volumes[0]",
        ]);
      }
    },
  },
  {
    n: 28,
    what: "a socket among the mounts of a sandbox",
    run: () => {
      for (const engine of ["docker", "podman", "compose", "devcontainer", "bwrap"] as const) {
        const lines = mountLines(engine, ROOT, "main", false).join("\n");
        assert(!/\.sock|\/run\//.test(lines), lines);
        for (const role of ["queue", "results", "inbox"]) assertStringIncludes(lines, role);
        assert(!/bridge\/(?:state|work|keys|base|bin)/.test(lines), lines);
      }
    },
  },
  {
    n: 29,
    what: "another image, or a mount, next to an allowed run",
    run: () => {
      assertEquals(rules(["/usr/bin/docker", "run", "--rm", "img", "test"]), []);
      for (const argv of [["run", "--rm", "{a}"], ["run", "{a}", "img"], ["run", "img", "{a}"]]) {
        const found = rules(["/usr/bin/docker", ...argv], { a: { type: "enum", values: ["x"] } });
        assertEquals(found, ["container-placeholder"], argv.join(" "));
      }
    },
  },
  {
    n: 32,
    what: "the policy where an agent's command or container can write",
    run: () => {
      const under = (verb: Record<string, unknown>) =>
        deniedUnderRoot(valid(verbPolicy({ class: "observe", timeout_s: 1, ...verb })), ROOT)
          .map((e) => e.rule);
      const run = ["/usr/bin/docker", "run", "-v"];
      assert(under({ argv: [...run, `${ROOT}:/x`, "img"] }).includes("root-path"));
      assertEquals(under({ argv: [...run, "/srv:/x", "img"] }), ["container-mount"]);
      assertEquals(under({ argv: ["/usr/bin/tool", `${ROOT}/bridge.jsonc`] }), ["root-path"]);
      assertEquals(
        under({
          argv: ["/usr/bin/tool", "{f}"],
          args: { f: { type: "path", root: "/srv", agent_writable: true } },
        }),
        ["path-root"],
      );
    },
  },
  {
    n: 33,
    what: "a newline in an argument, for every type that takes text",
    run: () => {
      const types: Record<string, unknown> = {
        name: NAME,
        path: { type: "path", root: "base/conf" },
        ref: { type: "git-ref" },
        semver: { type: "semver" },
        sha: { type: "sha" },
        decimal: { type: "decimal" },
        one: { type: "enum", values: ["a"] },
      };
      const right: Record<string, string> = {
        name: "a",
        path: "a",
        ref: "a",
        semver: "1.2.3",
        sha: "a".repeat(40),
        decimal: "1.5",
        one: "a",
      };
      for (const [name, spec] of Object.entries(types)) {
        const verb = verbOf(["/usr/bin/tool", `{${name}}`], { [name]: spec });
        const value = right[name] ?? "";
        assert(checkArgs(verb, { [name]: value }).ok, name);
        for (const end of ["\n", "\r", "\n/bin/sh", "\u2028", "\0"]) {
          assert(!checkArgs(verb, { [name]: value + end }).ok, `${name} ${JSON.stringify(end)}`);
          assert(!checkArgs(verb, { [name]: end + value }).ok, `${name} ${JSON.stringify(end)}`);
        }
      }
      assert(
        errorsOf(verbPolicy({ class: "observe", timeout_s: 5, argv: ["/bin/x\n"] })).length > 0,
      );
    },
  },
  {
    n: 35,
    what: "a program where the bridge or an agent can write",
    run: () => {
      for (const program of ["spool/main/queue/x", "work/main/x", "state/runs/x"]) {
        assertEquals(deniedProgram(`${ROOT}/${program}`, undefined, ROOT)?.rule, "root-path");
        assertEquals(deniedProgram("base/x", `${ROOT}/${program}`, ROOT)?.rule, "root-path");
        assert(rules([program]).length > 0, program);
      }
      for (const program of ["/bin/sh", "/usr/bin/env", "/usr/bin/python3", "/usr/bin/deno"]) {
        assert(rules([program]).length > 0, program);
      }
    },
  },
];

for (const { n, what, run } of CASES) {
  Deno.test(`${n} no way around: ${what}`, () => {
    run();
    SEEN.add(n);
  });
}

Deno.test("21 22 31 34 no way around: links in the spool, and a start that no list is asked for", async () => {
  const verbs = {
    say: verb(["/usr/bin/true"]),
    ask: verb(["/usr/bin/true"], { class: "mutating", approval: "always" }),
  };
  const policy = {
    agents: {
      main: { verbs: ["say", "ask"], scope: "mutating" },
      other: { verbs: ["say"], scope: "observe" },
    },
    verbs,
    limits: { concurrency: 2, answers: 100_000 },
  };
  await using bridge = await TestBridge.start({ policy, agents: ["main", "other"] });
  const host = join(bridge.outside, "host.txt");
  Deno.writeTextFileSync(host, '{"verb":"say"}');

  // 34: a request that is a link to a file of the host is not read through it.
  Deno.symlinkSync(host, bridge.queue("linked.json"));
  assertEquals((await bridge.final("linked")).reason, "not-regular");
  // 22: a dangling link in a result's place is replaced, its target is never made.
  const made = join(bridge.outside, "made");
  for (const name of ["r1.json", "r1.stdout"]) {
    Deno.symlinkSync(made, bridge.path("spool/main/results", name));
  }
  bridge.submit("r1", { verb: "say" });
  const path = bridge.path("spool/main/results/r1.json");
  await until("the result in the link's place", () => Deno.lstatSync(path).isFile);
  assertEquals((await bridge.final("r1")).outcome, "succeeded");
  assert(!there(made));
  assertEquals(Deno.readTextFileSync(host), '{"verb":"say"}');
  for (const n of [22, 34]) SEEN.add(n);

  // 31: what was let in under a wider policy is held against the one in force, at every start.
  bridge.submit("wait", { verb: "ask" });
  await until("the wait", () => bridge.result("wait")?.waiting_for === "approval");
  const listed = JSON.parse((await bridge.chb("pending", "--json")).out);
  const digest = listed.pending[0].run.digest as string;
  await bridge.stop();
  assertEquals((await bridge.chb("approve", "main/wait", digest)).code, 0);
  const narrow = {
    ...policy,
    agents: { ...policy.agents, main: { verbs: ["say"], scope: "mutating" } },
  };
  Deno.writeTextFileSync(bridge.path("bridge.jsonc"), JSON.stringify(narrow));
  assertEquals((await bridge.chb("trust", "--yes")).code, 0);
  await bridge.serve();
  assertEquals((await bridge.final("wait")).outcome, "rejected");
  assertEquals((await bridge.ask("wait-2", { verb: "ask" })).reason, "unknown-verb");
  SEEN.add(31);

  // 21: a role directory that became a link ends the service of its agent, and nobody else's.
  const results = bridge.path("spool/main/results");
  const target = join(bridge.outside, "target");
  Deno.mkdirSync(target);
  Deno.renameSync(results, join(bridge.outside, "results-before"));
  Deno.symlinkSync(target, results);
  bridge.submit("late", { verb: "say" });
  await until("the agent's kill switch", () => there(bridge.path("state/KILL.main")), 60_000);
  assertEquals([...Deno.readDirSync(target)], []);
  assertEquals(
    (await new AgentSide(bridge, "other").ask("o1", { verb: "say" })).outcome,
    "succeeded",
  );
  const started = bridge.audit().filter((r) => r["event"] === "started").map((r) => r["id"]);
  assertEquals(started, ["r1", "o1"]);
  SEEN.add(21);
});

Deno.test("32 no way around: a policy that others can write is not served", async () => {
  await using bridge = await TestBridge.make();
  Deno.chmodSync(bridge.path("bridge.jsonc"), 0o666);
  const { code, err } = await bridge.chb("serve");
  assertEquals(code, 78);
  assertStringIncludes(err, "bridge.jsonc");
});

/** Reports that are no way around anything, or none that can be tried here. */
const NOT_TRIED: Readonly<Record<number, string>> = {
  30: "asks for what this bridge is: work with containers without the engine's socket",
};

Deno.test("every report on security and policy was tried, or says why not", () => {
  const all = Array.from({ length: 15 }, (_, i) => 21 + i);
  assertEquals(all.filter((n) => !SEEN.has(n) && NOT_TRIED[n] === undefined), []);
});
