/** Secrets in what a real command prints: nothing below `spool/` may show them. */
import { assert, assertEquals } from "@std/assert";
import { Buffer } from "node:buffer";
import { join } from "@std/path/join";
import { TestBridge, until, verb } from "./helpers/bridge.ts";

const SECRET = "hK8s-2Qv9_mX4tB7wZ1cL6nR3pD0yGj5";
const KEY = "5f1d3c7b9a8e6f402b4d6c8a0e1f3957a1b2c3d4e5f60718293a4b5c6d7e8f90";

/** Every file that the agent can read, as one text. */
function readable(bridge: TestBridge): string {
  let all = "";
  const walk = (dir: string) => {
    for (const entry of Deno.readDirSync(dir)) {
      const path = join(dir, entry.name);
      if (entry.isDirectory) walk(path);
      else if (entry.isFile) all += `${entry.name}\n${Deno.readTextFileSync(path)}\n`;
    }
  };
  for (const room of ["results", "inbox"]) walk(bridge.path("spool/main", room));
  return all;
}

Deno.test("a secret that a command prints is in nothing that the agent can read, also across a restart", async () => {
  const script = `#!/bin/sh
# In halves, with the daemon away in between.
printf 'begin ${SECRET.slice(0, 15)}'
printf 'err ${SECRET.slice(0, 20)}' >&2
touch "$OUT/half"
while [ ! -e "$OUT/go" ]; do sleep 0.05; done
printf '${SECRET.slice(15)} end\\n'
printf '${SECRET.slice(20)} end\\nkey ${KEY} and ${
    Buffer.from(KEY, "hex").toString("base64")
  }\\n' >&2
echo "MYSQL_PASSWORD=$MYSQL_PASSWORD"
echo "plain $MYSQL_PASSWORD"
`;
  await using bridge = await TestBridge.make({ trust: false });
  const policy = {
    agents: { main: { verbs: ["print"], scope: "mutating" } },
    verbs: { print: verb(["base/print.sh"], { class: "mutating" }) },
    env: { PATH: "/usr/bin:/bin", OUT: bridge.outside, MYSQL_PASSWORD: "winter-is-long" },
    redact: [SECRET],
  };
  await using whole = await TestBridge.make({ policy, scripts: { "print.sh": script } });
  const key = { alg: "hmac-sha256", agent: "main", secret: KEY, note: "the agent's laptop" };
  Deno.writeTextFileSync(whole.path("keys/laptop-1.json"), JSON.stringify(key), { mode: 0o600 });
  await whole.serve();
  whole.submit("p", { verb: "print", note: "no secret here" });
  await until("the first half", () => {
    try {
      return Deno.lstatSync(join(bridge.outside, "half")).isFile;
    } catch {
      return false;
    }
  });
  await whole.stop();
  await whole.serve();
  Deno.writeTextFileSync(join(bridge.outside, "go"), "");
  const result = await whole.final("p");
  assertEquals(result.outcome, "succeeded", JSON.stringify(result));
  assertEquals(
    result.stdout?.head,
    "begin [masked] end\nMYSQL_PASSWORD=[masked]\nplain [masked]\n",
  );
  assertEquals(result.stderr?.head, "err [masked] end\nkey [masked] and [masked]\n");
  const seen = readable(whole);
  assert(seen.includes("begin [masked] end"), "the output file is masked too");
  for (const secret of [SECRET, KEY, "winter-is-long"]) {
    for (let at = 0; at + 8 <= secret.length; at++) {
      const part = secret.slice(at, at + 8);
      assert(!seen.includes(part), `${part} can be read`);
    }
  }
  // The raw output is the host's own, and it is what masking started from.
  const runs = [...Deno.readDirSync(whole.path("state/runs"))].map((e) => e.name);
  const raw = runs.map((run) => Deno.readTextFileSync(whole.path("state/runs", run, "stdout")));
  assert(raw.some((text) => text.includes(SECRET)), "the raw output was kept");
  assertEquals(
    Deno.statSync(whole.path("state/runs", runs[0] ?? "", "stdout")).mode! & 0o777,
    0o600,
  );
});

Deno.test("a secret in what a human says to an agent is masked too, with a daemon or without", async () => {
  const policy = {
    agents: { main: { verbs: ["ask"], scope: "mutating" } },
    verbs: { ask: verb(["/usr/bin/true"], { class: "mutating", approval: "always" }) },
    redact: [SECRET],
  };
  await using bridge = await TestBridge.start({ policy });
  const words = `see ${SECRET} there`;
  const waits = (id: string) =>
    until(`${id} to wait`, () => bridge.result(id)?.waiting_for === "approval");
  for (const id of ["d1", "c1", "d2"]) {
    bridge.submit(id, { verb: "ask" });
    await waits(id);
  }
  const said = async (...args: string[]) => {
    const { code, err } = await bridge.chb(...args);
    assertEquals(code, 0, err);
  };
  await said("deny", "main/d1", "--reason", words);
  await said("cancel", "main/c1", "--reason", words);
  await said("tell", words);
  await bridge.stop();
  await said("deny", "main/d2", "--reason", words);
  await said("tell", words);
  await bridge.serve();
  await until("the second message", () => {
    try {
      return Deno.lstatSync(bridge.path("spool/main/inbox/messages/2.json")).isFile;
    } catch {
      return false;
    }
  });
  assertEquals((await bridge.final("d1")).message, "A human said no: see [masked] there");
  assertEquals((await bridge.final("d2")).message, "A human said no: see [masked] there");
  assertEquals(
    (await bridge.final("c1")).message,
    "The request was cancelled by a human: see [masked] there",
  );
  assert(!readable(bridge).includes(SECRET.slice(0, 12)), "it can be read");
});
