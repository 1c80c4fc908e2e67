/**
 * The hook that steers: a table of spellings that it catches, and of neighbours that it leaves
 * alone, in every shell. That it is no boundary is said in the guide and shown by the last rows.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { inRepository } from "../tools/launcher.ts";
import { runKit, Sandboxes } from "./helpers/sandbox.ts";

const HOOK = inRepository("agent", "block-runtime");

const CAUGHT = [
  "docker ps",
  "docker",
  "/usr/bin/docker ps",
  "./docker ps",
  "FOO=1 docker ps",
  "A=1 B='x y' docker ps",
  "sudo docker ps",
  "sudo -n -u root docker ps",
  "doas docker ps",
  "env docker ps",
  "env -i PATH=/bin docker ps",
  "nohup docker ps &",
  "timeout 5 docker ps",
  "timeout -s KILL 5s docker ps",
  "nice -n 10 docker build .",
  "exec docker ps",
  "command docker ps",
  "time docker ps",
  "! docker ps",
  "sh -c 'docker ps'",
  'bash -lc "docker ps"',
  "sh -ec 'cd x && docker ps'",
  "busybox sh -c 'docker ps'",
  "eval 'docker ps'",
  "echo $(docker ps)",
  'echo "$(docker ps)"',
  "echo `docker ps`",
  'echo "now: `docker ps -q`"',
  "x=$(docker ps -q)",
  "diff <(docker ps) list",
  "cat list | docker load",
  "cat list|docker load",
  "true && docker ps",
  "true;docker ps",
  "false || docker ps",
  "cd app\ndocker compose up",
  "(docker ps)",
  "{ docker ps; }",
  "if docker info; then echo up; fi",
  "while docker ps; do sleep 1; done",
  "for i in a b; do docker rm $i; done",
  "find . -name x -exec docker cp {} y:/ \\;",
  "echo a | xargs -n 1 docker rm",
  "> log docker ps",
  "2>&1 docker ps",
  "'docker' ps",
  "do\\cker ps",
  'd"ocker" ps',
  "\\docker ps",
  "docker-compose up",
  "podman run x",
  "nerdctl ps",
  "kubectl get pods",
  "watch -n 5 docker ps",
  "bash <<EOF\ndocker ps\nEOF",
  "sh -s <<-'END'\n\tcd x\n\tdocker ps\n\tEND\n",
  "cat <<EOF\nup: $(docker ps)\nEOF",
  "cat > notes <<EOF\nno call\nEOF\ndocker ps",
  "cat <<A; docker ps\ntext\nA",
  "ls # <<EOF\ndocker ps",
];

const LEFT_ALONE = [
  "",
  "ls",
  "cat docker",
  "ls docker/",
  "cd docker && ls",
  "vim docker-compose.yml",
  "cat compose/docker-compose.yml | grep image",
  "grep -r docker .",
  "grep 'docker ps' notes",
  "echo docker ps",
  'echo "docker ps"',
  "echo 'use $(docker ps)'",
  "git commit -m 'docker: fix; docker ps'",
  "git log --grep docker",
  "npm run docker",
  "make docker",
  "./run-docker.sh",
  "dockerize -wait tcp://db",
  "docker_host=1 env",
  "ls # docker ps",
  "ls > docker",
  "ls >docker",
  "man docker",
  "which docker",
  "sh docker.sh",
  "sh ./docker",
  "python -c 'docker ps'",
  "chb-request docker",
  "DOCKER=docker ls",
  "cat <docker",
  "echo \\$x docker",
  "command -v docker",
  "command -pv docker >/dev/null && echo yes",
  "[ -S /var/run/docker.sock ]",
  "cat > README.md <<EOF\ndocker ps\nEOF\nls",
  "cat <<'EOF' > x # so\n$(docker ps)\nEOF",
  "cat <<-EOF >x\n\tdocker ps\n\tEOF\nls",
  "cat <<A <<B\ndocker ps\nA\ndocker ps\nB\nls",
  "python3 - <<EOF\ndocker ps\nEOF",
  "cat <<< 'docker ps'",
];

/** What gets past it: it steers, and is no boundary. */
const PAST = ["d=docker; $d ps", "python3 -c 'import os; os.system(\"docker ps\")'", "sh script"];

function input(command: string, tool = "Bash"): string {
  return JSON.stringify({
    session_id: "x",
    hook_event_name: "PreToolUse",
    tool_name: tool,
    tool_input: { command, description: "docker" },
  });
}

Deno.test("the hook catches what would call a runtime, and leaves the rest alone", async () => {
  using sandboxes = new Sandboxes();
  const chb = Deno.makeTempDirSync({ prefix: "chb-hook-" });
  Deno.mkdirSync(join(chb, "inbox"));
  try {
    const verbs = [{ verb: "other" }, {
      verb: "restart",
      shim: ["docker compose restart {service}", "docker restart --time={t} {service}"],
    }];
    Deno.writeTextFileSync(join(chb, "inbox/catalogue.json"), JSON.stringify({ chb: 1, verbs }));
    const shells = sandboxes.all.filter(({ name }) => !name.endsWith(" with jq"));
    assert(shells.length > 0, "no shell at all");
    for (const [at, sandbox] of shells.entries()) {
      // The script is awk from end to end; one shell gets all rows, the others every fourth.
      const some = <T>(rows: readonly T[]) => rows.filter((_, i) => at === 0 || i % 4 === at);
      const judge = (command: string, tool?: string) =>
        runKit(sandbox, HOOK, [], chb, { stdin: input(command, tool) });
      for (const command of some(CAUGHT)) {
        const said = await judge(command);
        assertEquals([said.code, said.out], [2, ""], `${sandbox.name}: ${command}`);
        assertStringIncludes(said.err, "docker compose restart {service}  ->  chb-request restart");
      }
      for (const command of some([...LEFT_ALONE, ...PAST])) {
        const said = await judge(command);
        assertEquals(said, { code: 0, out: "", err: "" }, `${sandbox.name}: ${command}`);
      }
      const other = await judge("docker ps", "Write");
      assertEquals(other.code, 0);
      // It names the verb that the policy means by the call, with its arguments.
      const named: [string, string][] = [
        ["cd /app && sudo docker compose restart web", "chb-request restart service=web --again"],
        ["docker restart --time=5 db", "chb-request restart t=5 service=db --again"],
      ];
      for (const [command, use] of named) assertStringIncludes((await judge(command)).err, use);
      // No call of the host's policy is made of what has to be quoted.
      const odd = await judge("docker compose restart 'a b'");
      assertEquals([odd.code, odd.err.includes("service=a")], [2, false]);
    }
  } finally {
    Deno.removeSync(chb, { recursive: true });
  }
});

Deno.test("the hook passes what it cannot read", async () => {
  using sandboxes = new Sandboxes();
  const [sandbox] = sandboxes.all;
  assert(sandbox !== undefined, "no shell at all");
  for (
    const text of [
      "",
      "{}",
      "docker ps",
      '{"tool_name":"Bash"}',
      '{"tool_input":{"command":["docker"]}}',
    ]
  ) {
    const said = await runKit(sandbox, HOOK, [], "/nowhere", { stdin: text });
    assertEquals(said, { code: 0, out: "", err: "" }, text);
  }
  const said = await runKit(sandbox, HOOK, [], "/nowhere", { stdin: input("docker ps") });
  assertEquals(said.code, 2);
  assertStringIncludes(said.err, "chb-request --verbs");
});
