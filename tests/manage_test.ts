/**
 * The script that installs, upgrades and removes the service, played through with a service manager
 * that does what the unit says: it checks, starts and ends one process.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { TestBridge, there } from "./helpers/bridge.ts";
import { answer } from "./helpers/terminal.ts";

/** `systemctl` for one service: reads the unit, runs its check, starts it from its directory. */
const MANAGER = `#!/bin/sh
[ "$1" = --user ] && shift
echo "$*" >> "$CHB_UNITS/log"
start() {
  unit=$CHB_UNITS/$1.service
  sh -c "$(sed -n 's/^ExecStartPre=+\\{0,1\\}\\/bin\\/sh -c "\\(.*\\)"$/\\1/p' "$unit")" || exit 1
  cd "$(sed -n 's/^WorkingDirectory=//p' "$unit")"
  : > "$CHB_UNITS/err"
  setsid $(sed -n 's/^ExecStart=//p' "$unit") --poll-ms 500 < /dev/null > /dev/null 2> "$CHB_UNITS/err" &
  echo $! > "$CHB_UNITS/pid"
  until grep -q ready "$CHB_UNITS/err"; do kill -0 $! || exit 1; sleep 0.1; done
}
stop() {
  pid=$(cat "$CHB_UNITS/pid"); rm "$CHB_UNITS/pid"; kill -TERM "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}
case $1 in
  enable) start "$3" ;;
  disable) stop ;;
  start) start "$2" ;;
  stop) stop ;;
esac
`;

Deno.test("the service is installed, upgraded, kept when nobody trusts the new one, and removed", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const units = bridge.outside;
  const tools = join(units, "tools");
  Deno.mkdirSync(tools);
  Deno.writeTextFileSync(join(tools, "systemctl"), MANAGER, { mode: 0o755 });
  const env = { CHB_UNITS: units, PATH: `${tools}:${Deno.env.get("PATH") ?? ""}` };
  const manage = (words: string, word: string) =>
    answer(`sh manage.sh ${words}`, bridge.root, word, env);
  const name = `chb-${bridge.root.slice(bridge.root.lastIndexOf("/") + 1)}`;
  const unit = join(units, `${name}.service`);
  const log = () => Deno.readTextFileSync(join(units, "log")).trim().split("\n");
  const bin = bridge.path("bin/chb");
  try {
    const installed = await manage("install", "yes");
    assertEquals(installed.code, 0, installed.said);
    assertEquals(log(), ["daemon-reload", `enable --now ${name}`]);
    assertEquals((await bridge.ask("a", { verb: "true" })).outcome, "succeeded");

    const before = Deno.readTextFileSync(bin);
    const other = join(units, "other");
    Deno.writeTextFileSync(other, `${before}# another build\n`);
    const refused = await manage(`upgrade ${other}`, "no");
    assertEquals(refused.code, 77, refused.said);
    assertEquals(Deno.readTextFileSync(bin), before);
    assertEquals((await bridge.ask("b", { verb: "true" })).outcome, "succeeded");

    const upgraded = await manage(`upgrade ${other}`, "yes");
    assertEquals(upgraded.code, 0, upgraded.said);
    assertEquals(Deno.readTextFileSync(bin), Deno.readTextFileSync(other));
    assertEquals(log().slice(-3), [`stop ${name}`, "daemon-reload", `start ${name}`]);
    assertEquals((await bridge.ask("c", { verb: "true" })).outcome, "succeeded");
    assertEquals([...Deno.readDirSync(bridge.path("bin"))].map((entry) => entry.name), ["chb"]);

    // One that does not take the policy changes nothing, and ends nothing.
    const count = log().length;
    Deno.writeTextFileSync(other, "#!/bin/sh\nexit 78\n");
    assertEquals((await manage(`upgrade ${other}`, "yes")).code, 78);
    assertEquals(log().length, count);
    assertEquals((await bridge.ask("d", { verb: "true" })).outcome, "succeeded");

    // Somebody put another executable there: the unit does not start it.
    Deno.chmodSync(bin, 0o755);
    Deno.writeTextFileSync(bin, "# swapped\n", { append: true });
    const manager = (...args: string[]) =>
      new Deno.Command("systemctl", { args, env, stdin: "null" }).outputSync().code;
    assertEquals(manager("stop", name), 0);
    assertEquals(manager("start", name), 1);
    Deno.writeTextFileSync(bin, Deno.readTextFileSync(bin).replace("# swapped\n", ""));
    assertEquals(manager("start", name), 0);

    const gone = await manage("uninstall", "");
    assertEquals(gone.code, 0, gone.said);
    assert(!there(unit));
    assert(!there(join(units, "pid")));
    assertStringIncludes(gone.said, `The bridge itself is still in ${bridge.root}`);
  } finally {
    if (there(join(units, "pid"))) {
      try {
        Deno.kill(Number(Deno.readTextFileSync(join(units, "pid"))), "SIGKILL");
      } catch {
        // It has ended by itself.
      }
    }
  }
});

Deno.test("the launcher starts the program in its root, unless others can change the way there", async () => {
  await using bridge = await TestBridge.make({ trust: false });
  const printed = await answer("sh manage.sh launcher", bridge.root, "");
  const text = printed.said.replaceAll("\r\n", "\n");
  assertEquals(text.trim().split("\n").length, 3, text);
  const launcher = join(bridge.outside, "chb");
  Deno.writeTextFileSync(launcher, text, { mode: 0o755 });
  const run = () => new Deno.Command(launcher, { args: ["version"], cwd: "/" }).outputSync();
  const text8 = new TextDecoder();
  assertEquals(run().code, 0, text8.decode(run().stderr));
  Deno.chmodSync(bridge.root, 0o777);
  const refused = run();
  Deno.chmodSync(bridge.root, 0o700);
  assertEquals(refused.code, 78);
  assertMatch(text8.decode(refused.stderr), /^chb: others can change \/.*chb-test-/);
});
