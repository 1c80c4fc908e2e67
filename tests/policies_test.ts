/**
 * The policies of `policies/`, each run to its last verb against the program that it is for. What
 * this machine does not have is skipped, and named.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { parse } from "@std/jsonc";
import { join } from "@std/path/join";
import { deniedUnderRoot } from "../src/policy/root_denials.ts";
import { schemas } from "../src/policy/schema.ts";
import { inRepository } from "../tools/launcher.ts";
import { sleep, there, until } from "./helpers/bridge.ts";
import { Cluster } from "./helpers/cluster.ts";
import { Docker } from "./helpers/engine.ts";
import { Apart, missingPodman, missingUserManager, run } from "./helpers/engines.ts";
import { baseFiles, PolicyBridge, policyFile, policyNames } from "./helpers/policy_bridge.ts";
import { validate } from "./json_schema.ts";
import { parseText } from "./policy_fixture.ts";

/** A test that needs something of the machine, skipped with the reason where it is not there. */
function needs(
  missing: string | null,
  name: string,
  body: (t: Deno.TestContext) => Promise<void>,
): void {
  if (missing === null) Deno.test(name, body);
  else Deno.test({ name: `${name} # SKIP ${missing}`, ignore: true, fn: () => {} });
}

const compose = there("/usr/bin/docker-compose") ? null : "missing: /usr/bin/docker-compose";
const kubectl = there("/usr/bin/kubectl") ? null : "missing: /usr/bin/kubectl";

for (const name of policyNames()) {
  Deno.test(`policies/${name} is valid without a warning, and says what it gives away`, () => {
    const text = policyFile(name);
    const parsed = parseText(text);
    assert(parsed.ok, JSON.stringify(parsed));
    assertEquals(parsed.warnings, []);
    assertEquals(deniedUnderRoot(parsed.policy, "/home/me/.local/share/chb/app"), []);
    assertEquals(validate(schemas().policy, parse(text)), []);
    const header = /^(?:\/\/.*\n)+/.exec(text)?.[0] ?? "";
    for (
      const part of ["// Change first:", "// What an agent can do with it at worst", "// Run:"]
    ) {
      assertStringIncludes(header, part);
    }
    const all = [...parsed.policy.verbs.keys()];
    assertEquals([...parsed.policy.agents.get("main")?.verbs ?? []], all, "every verb is used");
    for (const file of baseFiles(name)) assertStringIncludes(text, `base/${file}`);
    assertStringIncludes(policyFile("README.md", ""), `](${name}/bridge.jsonc)`);
  });
}

needs(
  Docker.missing() ?? compose,
  "policies for Docker do what they say: docker-compose, build-in-container, docker-swarm",
  async (t) => {
    await using engine = await Docker.start();
    const socket = { "unix:///var/run/docker.sock": engine.host };
    await t.step("docker-compose", () => stack(socket));
    await t.step("build-in-container", () => build(engine, socket));
    await t.step("docker-swarm", () => swarm(engine, socket));
  },
);

async function stack(socket: Record<string, string>): Promise<void> {
  await using policy = await PolicyBridge.start("docker-compose", socket);
  await policy.did("up");
  assertMatch(await policy.did("ps"), /app_web_1.*Up/);
  assertStringIncludes(await policy.did("logs", { service: "web" }), "web is up");
  await policy.did("restart", { service: "db" });
  assertEquals((await policy.ask("restart", { service: "other" })).reason, "bad-args");
  await policy.did("stop", { service: "web" });
  assertMatch(await policy.did("ps"), /app_web_1.*Exit 0/);
  await policy.did("down");
  assert(!(await policy.did("ps")).includes("app_"));
  policy.assertAllRan();
}

async function build(engine: Docker, socket: Record<string, string>): Promise<void> {
  const tree = join(engine.directory, "tree");
  Deno.mkdirSync(join(tree, "ci"), { recursive: true });
  const write = (name: string, text: string) => Deno.writeTextFileSync(join(tree, name), text);
  write(
    "ci/build.sh",
    "id -u; ls /; echo built > made; echo x > /made || echo read-only; ls /sys/class/net\n",
  );
  write("ci/test.sh", "echo begun; sleep 600\n");
  await run("chown", ["-R", "1000:1000", tree]);
  Deno.chmodSync(engine.directory, 0o755);
  await using policy = await PolicyBridge.start("build-in-container", {
    ...socket,
    "/home/me/src/app": tree,
    "app-build:1": "busybox:1",
  });
  const said = await policy.did("build");
  assertMatch(said, /^1000\n/);
  assertStringIncludes(said, "read-only\nlo\n");
  assertEquals(Deno.readTextFileSync(join(tree, "made")), "built\n");

  // A run is ended from outside: the container goes, and the run with it.
  const { bridge } = policy;
  bridge.submit("long", { verb: "test" });
  await until(
    "the test to run",
    () =>
      there(bridge.path("spool/main/results/long.stdout")) &&
      Deno.readTextFileSync(bridge.path("spool/main/results/long.stdout")).includes("begun"),
    60_000,
  );
  await policy.did("end-build");
  assertEquals((await bridge.final("long", 60_000)).outcome, "failed");
  assertEquals(await engine.ask("ps", "-aq"), "");
  assertEquals([...policy.verbs].sort(), ["build", "end-build", "test"]);
}

async function swarm(engine: Docker, socket: Record<string, string>): Promise<void> {
  const docker = (...args: string[]) => engine.ask(...args);
  await docker("swarm", "init", "--advertise-addr", "127.0.0.1");
  await using policy = await PolicyBridge.start("docker-swarm", socket);
  await policy.did("deploy");
  // Waited for with the engine's own client: each look through the bridge is a run with its records.
  const running = async (n: number) => {
    for (let tries = 0; tries < 60; tries++) {
      if ((await docker("service", "ls", "--format={{.Replicas}}")).trim() === `${n}/${n}`) {
        assertStringIncludes(await policy.did("services"), `${n}/${n}`);
        return;
      }
      await sleep(1000);
    }
    throw new Error(`Not ${n} tasks: ${await policy.did("tasks")}`);
  };
  await running(1);
  await policy.did("scale", { replicas: "app_web=2" });
  await running(2);
  assertMatch(await policy.did("tasks"), /app_web\.2.*Running/);
  assertStringIncludes(await policy.did("logs", { service: "app_web" }), "web is up");
  await policy.did("rollback", { service: "app_web" });
  await running(1);
  await policy.did("restart", { service: "app_web" });
  await policy.did("remove");
  assertEquals(await docker("service", "ls", "-q"), "");
  policy.assertAllRan();
}

needs(
  missingPodman() ?? compose,
  "policies/podman-compose does what it says, through the socket of a podman service",
  async () => {
    await using engine = await Apart.podman();
    await using policy = await PolicyBridge.start("podman-compose", {
      "unix:///run/user/1000/podman/podman.sock": `unix://${engine.socket}`,
    });
    await policy.did("up");
    assertMatch(await policy.did("ps"), /app_web_1 .*busybox:1 Up/);
    assertStringIncludes(await policy.did("logs", { container: "app_web_1" }), "web is up");
    await policy.did("restart", { service: "web" });
    await policy.did("down");
    assertEquals((await policy.did("ps")).trim(), "");
    policy.assertAllRan();
  },
);

needs(
  missingUserManager(),
  "policies/systemd-user does what it says, with a service manager of its own",
  async () => {
    const unit = "[Service]\nExecStart=/usr/bin/sleep 600\n";
    await using manager = await Apart.userManager({ "app.service": unit, "worker.service": unit });
    await using policy = await PolicyBridge.start("systemd-user", {
      "/run/user/1000": manager.directory,
    });
    const main = (status: string) => /Main PID: (\d+)/.exec(status)?.[1];
    await policy.did("start", { unit: "app.service" });
    const first = main(await policy.did("status", { unit: "app.service" }));
    assert(first !== undefined);
    await policy.did("restart", { unit: "app.service" });
    const second = main(await policy.did("status", { unit: "app.service" }));
    assert(second !== undefined && second !== first);
    await policy.did("stop", { unit: "app.service" });
    const stopped = await policy.ask("status", { unit: "app.service" });
    assertEquals([stopped.outcome, stopped.exit_code], ["failed", 3]);
    assertEquals((await policy.ask("start", { unit: "other.service" })).reason, "bad-args");
    // There is no journal to read: that none is there has to be the only complaint.
    const journal = await policy.ask("journal", { unit: "app.service" });
    const said = `${journal.stdout?.head}${journal.stderr?.head}`;
    assertMatch(said, /No journal files were|No entries/);
    policy.assertAllRan();
  },
);

needs(
  kubectl,
  "policies/kubernetes does what it says, with kubectl and what answers like a cluster",
  async () => {
    await using cluster = new Cluster("app");
    await using policy = await PolicyBridge.start("kubernetes", {
      "/home/me/.config/chb/kubeconfig": cluster.kubeconfig,
    });
    assertMatch(await policy.did("plan"), /deployment.apps\/web created \(dry run\)/);
    assertEquals(cluster.objects(), [], "a plan changes nothing");
    assertMatch(await policy.did("apply"), /deployment.apps\/web created/);
    assertEquals(cluster.objects(), ["deployments/web"]);
    assertMatch(await policy.did("pods"), /web-1 .*Running/);
    assertMatch(await policy.did("logs", { deployment: "deployment/web" }), /web is up/);
    assertMatch(await policy.did("restart", { deployment: "deployment/web" }), /restarted/);
    assertMatch(
      await policy.did("rollout", { deployment: "deployment/web" }),
      /successfully rolled out/,
    );
    assertMatch(await policy.did("delete"), /deleted/);
    assertEquals(cluster.objects(), []);
    policy.assertAllRan();
    const rights = inRepository("policies/kubernetes/base/rbac.yaml");
    const dry = await run("/usr/bin/kubectl", [
      ...[`--kubeconfig=${cluster.kubeconfig}`, "--namespace=app", "--cache-dir=/dev/null"],
      ...["apply", "--dry-run=client", "-f", rights],
    ]);
    assertEquals(dry.match(/created \(dry run\)/g)?.length, 3);
  },
);
