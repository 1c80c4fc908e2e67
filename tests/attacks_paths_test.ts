import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { createHash } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "@std/path/join";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";
import {
  Attack,
  attacked,
  type AttackOptions,
  noMarker,
  notesOf,
  Outside,
  SECRET,
  sh,
} from "./helpers/outside.ts";

const ROOT = Deno.uid() === 0;

/** The runtime lists names that are not UTF-8; Deno before 2.8 leaves them out. */
const LISTS_ANY_BYTES = (([major = 0, minor = 0]) => major > 2 || minor >= 8)(
  Deno.version.deno.split(".").map(Number),
);

/** Long enough for several passes of a bridge that polls twice a second. */
const PASSES_MS = 1500;
const encoder = new TextEncoder();

/** What an entry gets that is no plain file of its own. */
const NOT_REGULAR = { code: 66, reason: "not-regular", stage: "object" };
const BAD_NAME = { code: 67, reason: "bad-name", stage: "name" };

/** A bridge, its surroundings, and the wrapping up. */
async function attackBridge(
  body: (attack: Attack) => Promise<void>,
  options: AttackOptions = {},
): Promise<void> {
  using outside = new Outside();
  await using bridge = await TestBridge.start(attacked(outside, options));
  const { pid } = bridge;
  const attack = new Attack(bridge, outside);
  await body(attack);
  await attack.end();
  assertEquals(bridge.pid, pid);
  assert(!/^ERROR /m.test(bridge.log), bridge.log);
}

/** True when the command runs through without an error. */
function can(command: string): boolean {
  try {
    return new Deno.Command("/bin/sh", { args: ["-c", command], stdin: "null", stderr: "null" })
      .outputSync().success;
  } catch {
    return false;
  }
}

/** A command that gets mounts of its own, or null where nobody may make any. */
const UNSHARE = ["unshare -m", "unshare -rm"]
  .find((command) => can(`${command} sh -c 'mount -t tmpfs none /mnt'`)) ?? null;

const DEVICES = ROOT && (() => {
  using outside = new Outside();
  return can(`mknod ${outside.path("null")} c 1 3`);
})();

Deno.test("P1 P4 P8 links of every kind are removed, answered and not followed", async (t) => {
  await attackBridge(async (attack) => {
    const { bridge, outside } = attack;
    const secret = outside.secret("id_rsa");
    mkdirSync(outside.path("ssh"));
    const inside = outside.secret("ssh/config");
    await sh('mkfifo "$1"', outside.dir, outside.path("fifo"));
    const queue = (name: string) => bridge.queue(name);

    const symlinks: readonly (readonly [id: string, target: string, what: string])[] = [
      ["host", secret, "P1 a symlink to a file of the host"],
      ["relative", "../../../../" + secret.slice(1), "P1 a relative symlink"],
      ["dangling", outside.path("nothing"), "P1 a dangling symlink"],
      ["loop", "loop.json", "P1 a symlink to itself"],
      ["dir", outside.path("ssh"), "P1 a symlink to a directory of the host"],
      ["policy", "../../../bridge.jsonc", "P1 a symlink to the policy"],
      ["ledger", bridge.path("state/ledger.db"), "P1 a symlink to the ledger"],
      ["binary", bridge.path("bin/chb"), "P1 a symlink to the executable"],
      ["zero", "/dev/zero", "P8 a symlink to an endless device"],
      ["random", "/dev/random", "P8 a symlink to a random device"],
      ["tty", "/dev/tty", "P8 a symlink to a terminal"],
      ["stdin", "/proc/self/fd/0", "P8 a symlink to standard input"],
      ["fifo", outside.path("fifo"), "P8 a symlink to a named pipe"],
    ];
    for (const [id, target, what] of symlinks) {
      await t.step(`${what} is unlinked and not read`, () =>
        attack.run(
          () => Deno.symlinkSync(target, queue(`${id}.json`)),
          () => attack.refused(id, NOT_REGULAR),
        ));
    }
    await t.step(
      "P1 a chain of symlinks inside the queue leads to no file",
      () =>
        attack.run(() => {
          Deno.symlinkSync(secret, queue("end.json"));
          Deno.symlinkSync("end.json", queue("start.json"));
        }, async () => {
          await attack.refused("start", NOT_REGULAR);
          await attack.refused("end", NOT_REGULAR);
        }),
    );
    await t.step("P1 a symlink without a request's name gets a note", () =>
      attack.run(
        () => Deno.symlinkSync(secret, queue("id_rsa")),
        () => attack.refusedNote("id_rsa", "id_rsa", NOT_REGULAR),
      ));

    await t.step(
      "P4 a hard link to a file of the host is unlinked and its file unchanged",
      () =>
        attack.run(() => Deno.linkSync(secret, queue("hard.json")), async () => {
          await attack.refused("hard", NOT_REGULAR);
          // The name in the queue has gone, so the file has one link again.
          await until("one link", () => Deno.lstatSync(secret).nlink === 1);
        }),
    );
    await t.step(
      "P4 two names of one request file are both refused, neither is run",
      () =>
        attack.run(() => {
          Deno.writeTextFileSync(queue(".one"), '{"verb":"count"}');
          Deno.linkSync(queue(".one"), queue("two.json"));
        }, async () => {
          await attack.refused("two", NOT_REGULAR);
          Deno.removeSync(queue(".one"));
        }),
    );
    assertEquals(Deno.readTextFileSync(inside), SECRET);
  });
});

Deno.test("P2 a file and a symlink that change places all the time never give a host file away", async () => {
  await attackBridge(async (attack) => {
    const { bridge, outside } = attack;
    const secret = outside.secret("id_rsa");
    const ids = Array.from({ length: 8 }, (_, i) => `swap-${i}`);
    const { exchanges, plants } = await exchangeLoop(bridge, ids, secret, 2000);
    for (const id of ids) {
      await until(`${id} to be taken`, () => !there(bridge.queue(`${id}.json`)));
    }
    await attack.valid();
    outside.untouched();
    assert(exchanges > 100 && plants > 20, `${exchanges} exchanges, ${plants} plants`);
    // Each plant but the first ones came after a claim, so there is an answer to each.
    const answers = attack.recordsOf((r) => ids.includes(String(r["id"])));
    assertEquals(answers.length, plants);
    const refused = answers.filter((r) => r["event"] === "refused");
    assert(refused.length > 0 && refused.length < plants, `${refused.length} of ${plants} refused`);
    for (const { id, reason, stage } of refused as Record<string, string>[]) {
      assertEquals({ reason, stage }, { reason: "not-regular", stage: "object" }, id);
    }
    const ran = outside.runs();
    for (const id of ids) assert(ran.filter((line) => line === id).length <= 1, `${id} ran twice`);
    assert(!ran.includes("LEAK"));
  });
});

/**
 * Exchanges a request file and a symlink to `target` under each name, as fast as it can, and puts
 * one of them there again whenever one was claimed.
 */
async function exchangeLoop(
  bridge: TestBridge,
  ids: readonly string[],
  target: string,
  ms: number,
): Promise<{ exchanges: number; plants: number }> {
  const AT_FDCWD = -100;
  const RENAME_EXCHANGE = 2;
  const c = (path: string) => encoder.encode(path + "\0");
  const slots = ids.map((id) => {
    const name = bridge.queue(`${id}.json`);
    const other = bridge.queue(`.${id}`);
    return { name, other, cName: c(name), cOther: c(other), spare: bridge.queue(`.${id}-2`) };
  });
  const libc = Deno.dlopen("libc.so.6", {
    renameat2: { parameters: ["i32", "buffer", "i32", "buffer", "u32"], result: "i32" },
  });
  let exchanges = 0;
  let plants = 0;
  let turn = 0;
  try {
    const end = performance.now() + ms;
    while (performance.now() < end) {
      for (const { name, other, cName, cOther, spare } of slots) {
        // Now an odd number, now an even one, so that either of the two may be met.
        for (let n = turn++ % 3; n < 4; n++) {
          const done = libc.symbols.renameat2(AT_FDCWD, cName, AT_FDCWD, cOther, RENAME_EXCHANGE);
          if (done === 0) exchanges++;
        }
        if (there(name)) continue;
        if (!there(other)) Deno.symlinkSync(target, other);
        if (Deno.lstatSync(other).isSymlink) Deno.writeTextFileSync(spare, '{"verb":"count"}');
        else Deno.symlinkSync(target, spare);
        Deno.renameSync(spare, name);
        plants++;
      }
      await sleep(0);
    }
  } finally {
    libc.close();
    for (const { other } of slots) if (there(other)) Deno.removeSync(other);
  }
  return { exchanges, plants };
}

Deno.test("P3 a role directory that is replaced ends the service of its agent and of nobody else", async (t) => {
  using outside = new Outside();
  const agents = ["main", "q-link", "q-new", "results", "inbox"];
  const held =
    'echo "$1" >> "$TALLY"\nwhile [ ! -e "$OUTSIDE/go" ]; do sleep 0.05; done\necho end\n';
  await using bridge = await TestBridge.start(attacked(outside, {
    agents,
    scripts: { "hold.sh": `#!/bin/sh\n${held}` },
    verbs: { hold: verb(["base/hold.sh", "{id}"]) },
    limits: { concurrency: 4 },
  }));
  const attack = new Attack(bridge, outside);

  const spool = (agent: string, ...parts: string[]) => bridge.path("spool", agent, ...parts);
  /** What must hold for an agent whose role directory was replaced. */
  const stopped = async (agent: string, role: string) => {
    const kill = bridge.path("state", `KILL.${agent}`);
    await until(
      `the switch of ${agent}`,
      () => there(kill) && Deno.readTextFileSync(kill).includes(`${role}/ was replaced`),
    );
    await until(
      "the record",
      () => bridge.audit().some((r) => r["event"] === "killed" && r["agent"] === agent),
    );
    assertMatch(bridge.log, new RegExp(`role-replaced agent=${agent} role=${role}`));
  };
  const why = (agent: string, role: string) =>
    until(`the status of ${agent}`, () => {
      const text = Deno.readTextFileSync(spool(agent, "inbox/status.json"));
      const status = JSON.parse(text);
      return status.state === "killed" && String(status.why).includes(`${role}/ was replaced`);
    });
  /** A directory of the host with requests in it, which nothing may take out or overwrite. */
  const home = (name: string, files: readonly string[]) => {
    mkdirSync(outside.path(name));
    for (const file of files) outside.secret(`${name}/${file}`);
    return outside.path(name);
  };
  const namesIn = (directory: string) => [...Deno.readDirSync(directory)].map((e) => e.name).sort();

  await t.step("P3 queue/ replaced by a symlink: no file of the host is moved out", async () => {
    const files = ["a.json", "b.json", "c.json"];
    const host = home("ssh", files);
    Deno.renameSync(spool("q-link", "queue"), spool("q-link", "old"));
    Deno.symlinkSync(host, spool("q-link", "queue"));
    await stopped("q-link", "queue");
    await why("q-link", "queue");
    await attack.valid();
    assertEquals(namesIn(host), files);
    assertEquals(namesIn(bridge.path("work/q-link/claims")), []);
    // Not even when a person lowers the switch without starting the bridge again.
    Deno.removeSync(bridge.path("state/KILL.q-link"));
    Deno.writeTextFileSync(join(host, "d.json"), '{"verb":"leak"}');
    await attack.valid();
    await sleep(1200);
    assertEquals(namesIn(host), [...files, "d.json"]);
    outside.untouched();
  });

  await t.step(
    "P3 queue/ replaced by another directory: what lies in it is not taken",
    async () => {
      Deno.renameSync(spool("q-new", "queue"), spool("q-new", "old"));
      mkdirSync(spool("q-new", "queue"), { mode: 0o700 });
      await stopped("q-new", "queue");
      await why("q-new", "queue");
      Deno.writeTextFileSync(spool("q-new", "queue/x.json"), '{"verb":"leak"}');
      await attack.valid();
      assertEquals(namesIn(spool("q-new", "queue")), ["x.json"]);
      assertEquals(namesIn(spool("q-new", "results")), []);
    },
  );

  await t.step(
    "P3 results/ replaced by a symlink: a run that ends then writes to no host file",
    async () => {
      const files = ["held.json", "held.stdout", "later.json"];
      const host = home("www", files);
      Deno.writeTextFileSync(spool("results", "queue/held.json"), '{"verb":"hold"}');
      await until("the run", () => outside.runs().includes("held"));
      Deno.renameSync(spool("results", "results"), spool("results", "old"));
      Deno.symlinkSync(host, spool("results", "results"));
      Deno.writeTextFileSync(outside.path("go"), "");
      await until(
        "the end of the run",
        () => bridge.audit().some((r) => r["event"] === "finished" && r["id"] === "held"),
      );
      await stopped("results", "results");
      await why("results", "results");
      Deno.writeTextFileSync(spool("results", "queue/later.json"), '{"verb":"count"}');
      await attack.valid();
      await sleep(1500);
      assertEquals(namesIn(host), files);
      outside.untouched();
      assert(!outside.runs().includes("later"));
    },
  );

  await t.step(
    "P3 inbox/ replaced by a symlink: no status is written to where it leads",
    async () => {
      const files = ["README", "catalogue.json", "status.json"];
      const host = home("etc", files);
      Deno.renameSync(spool("inbox", "inbox"), spool("inbox", "old"));
      Deno.symlinkSync(host, spool("inbox", "inbox"));
      await stopped("inbox", "inbox");
      await attack.valid();
      await sleep(1500);
      assertEquals(namesIn(host), files);
      outside.untouched();
    },
  );

  await t.step("P3 the other agent is served all the time", async () => {
    await attack.valid();
    assert(!there(bridge.path("state/KILL.main")));
    assert(!there(bridge.path("state/KILL")));
    assertEquals(bridge.status()?.["state"], "serving");
    assert(!outside.runs().includes("LEAK"));
  });

  await t.step(
    "P3 after a human mended and started it, the agent hears what to do and its results",
    async () => {
      await bridge.stop();
      for (const agent of ["results", "q-new"]) Deno.removeSync(bridge.path(`state/KILL.${agent}`));
      Deno.removeSync(spool("results", "results"));
      Deno.renameSync(spool("results", "old"), spool("results", "results"));
      for (const [agent, role] of [["q-link", "queue"], ["inbox", "inbox"]] as const) {
        Deno.removeSync(spool(agent, role));
        Deno.renameSync(spool(agent, "old"), spool(agent, role));
      }
      await bridge.serve();
      assertStringIncludes(bridge.log, "pins-replaced agent=q-new role=queue");
      assertStringIncludes(bridge.log, "restart the sandbox: queue/ was replaced");
      const published = await until("the held result", () => {
        const text = Deno.readTextFileSync(spool("results", "results/held.json"));
        return text.includes('"done"') && JSON.parse(text);
      });
      assertEquals([published.outcome, published.stdout.head], ["succeeded", "end\n"]);
      await until("the later request", () => outside.runs().includes("later"));
      // The directory that was put there is the queue now: a new sandbox would mount it.
      await until("the request that lay there", () => there(spool("q-new", "results/x.json")));
      assertEquals(outside.runs().filter((line) => line === "held").length, 1);
    },
  );
});

Deno.test("P5 what is written through a descriptor after the claim changes nothing", async (t) => {
  const wait = 'while [ ! -e "$OUTSIDE/$1" ]; do sleep 0.02; done\n';
  await attackBridge(async (attack) => {
    const { bridge, outside } = attack;

    await t.step("P5 a request that waits is run as it was claimed", () =>
      attack.run(async () => {
        bridge.submit("holder", { verb: "hold" });
        await until("the holder", () => bridge.result("holder")?.state === "running");
        const text = '{"verb":"locked","note":"as it was claimed"}';
        using file = Deno.openSync(bridge.queue(".open"), { createNew: true, write: true });
        file.writeSync(encoder.encode(text));
        Deno.renameSync(bridge.queue(".open"), bridge.queue("open.json"));
        const waiting = await until("the claim", () => bridge.result("open"));
        assertEquals([waiting.state, waiting.waiting_for], ["pending", "lock"]);
        file.seekSync(0, Deno.SeekMode.Start);
        file.writeSync(encoder.encode('{"verb":"leak",  "note":"as it was written'));
        Deno.writeTextFileSync(outside.path("go"), "");
        const done = await bridge.final("open");
        assertEquals([done.verb, done.outcome], ["locked", "succeeded"]);
        assertEquals(done.request_sha256, sha256(text));
        assertEquals((await bridge.final("holder")).outcome, "succeeded");
      }, () => {
        const answers = attack.recordsOf((r) => r["id"] === "open");
        assertEquals(answers.map((r) => [r["event"], r["verb"]]), [["accepted", "locked"]]);
      }, ["open"]));

    await t.step("P5 a file that is rewritten all the time is one of its versions or none", () => {
      const versions = ["count", "second"].map((verb) =>
        `{"verb":"${verb}","note":"${verb.repeat(200).slice(0, 1000 - verb.length)}"}`
      );
      const digests = versions.map(sha256);
      const bytes = versions.map((text) => encoder.encode(text));
      const expected: string[] = [];
      return attack.run(async () => {
        for (let n = 0; n < 20; n++) {
          const id = `torn-${n}`;
          using file = Deno.openSync(bridge.queue(`.${id}`), { createNew: true, write: true });
          const write = (version: number) => {
            file.seekSync(0, Deno.SeekMode.Start);
            file.writeSync(bytes[version] ?? new Uint8Array());
          };
          write(0);
          Deno.renameSync(bridge.queue(`.${id}`), bridge.queue(`${id}.json`));
          const end = performance.now() + 50;
          for (let k = 1; performance.now() < end; k++) {
            write(k % 2);
            if (k % 16 === 0) await sleep(0);
          }
          const result = await bridge.final(id);
          if (result.code === 0) {
            const version = digests.indexOf(result.request_sha256 ?? "");
            assert(version >= 0, `${id} was run as something that was never written`);
            assertEquals(result.verb, ["count", "second"][version]);
            expected.push(version === 0 ? id : `second-${id}`);
          } else {
            assertEquals([result.outcome, result.code], ["rejected", 64], result.message);
          }
          const answers = attack.recordsOf((r) => r["id"] === id);
          assertEquals(answers.length, 1);
        }
      }, () => {
        const ran = outside.runs().filter((line) => line.includes("torn-"));
        assertEquals(ran.toSorted(), expected.toSorted());
      }, expected);
    });
  }, {
    scripts: {
      "hold.sh": `#!/bin/sh\n${wait}`,
      "second.sh": '#!/bin/sh\necho "second-$1" >> "$TALLY"\n',
    },
    verbs: {
      hold: verb(["base/hold.sh", "go"], { lock: "one" }),
      locked: verb(["base/count.sh", "{id}"], { lock: "one" }),
      second: verb(["base/second.sh", "{id}"]),
    },
  });
});

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

Deno.test("P7 P9 P10 P12 P13 P21 entries of every type are drained, answered and not entered", async (t) => {
  await attackBridge(async (attack) => {
    const { bridge, outside } = attack;
    const quarantined = () =>
      [...Deno.readDirSync(bridge.path("work/main/quarantine"))].map((e) => e.name)
        .filter((name) => name.startsWith("dir."));

    await t.step("P7 a named pipe is removed and nobody waits on it", () =>
      attack.run(
        () => sh('mkfifo "$1"', outside.dir, bridge.queue("pipe.json")).then(() => {}),
        () => attack.refused("pipe", NOT_REGULAR),
      ));
    await t.step("P7 a named pipe that has a request in it is not read", async () => {
      const made = outside.path("full");
      await sh('mkfifo "$1"', outside.dir, made);
      // Open at both ends, so that a reader would get the bytes at once.
      using pipe = Deno.openSync(made, { read: true, write: true });
      pipe.writeSync(encoder.encode('{"verb":"leak"}'));
      await attack.run(
        () => Deno.renameSync(made, bridge.queue("full.json")),
        () => attack.refused("full", NOT_REGULAR),
      );
      const buffer = new Uint8Array(64);
      assertEquals(pipe.readSync(buffer), 15, "somebody took bytes out of the pipe");
    });
    await t.step("P7 forty named pipes do not stop the daemon's work on files", () => {
      const ids = Array.from({ length: 40 }, (_, i) => `pipe-${i}`);
      return attack.run(
        () =>
          sh('mkfifo "$@"', outside.dir, ...ids.map((id) => bridge.queue(`${id}.json`)))
            .then(() => {}),
        async () => {
          for (const id of ids) await attack.refused(id, NOT_REGULAR);
        },
      );
    });

    await t.step("P9 a socket is removed", async () => {
      using socket = Deno.listen({ transport: "unix", path: bridge.queue(".s") });
      await attack.run(
        () => Deno.renameSync(bridge.queue(".s"), bridge.queue("socket.json")),
        () => attack.refused("socket", NOT_REGULAR),
      );
      assert(socket.addr.transport === "unix");
    });

    await t.step(
      "P10 an empty directory is removed",
      () =>
        attack.run(() => mkdirSync(bridge.queue("empty.json")), async () => {
          await attack.refused("empty", NOT_REGULAR);
          assertEquals(quarantined(), []);
        }),
    );
    await t.step("P10 P21 a full directory is put aside as it is and never entered", async () => {
      const secret = outside.secret("precious");
      mkdirSync(outside.path("tree"));
      outside.secret("tree/leaf");
      // Built under a temporary name, which is left to its writer.
      const path = bridge.queue(".full-dir");
      let tree: string[] = [];
      await attack.run(async () => {
        mkdirSync(`${path}/a/b/c`, { recursive: true });
        Deno.symlinkSync(outside.path("tree"), `${path}/link`);
        Deno.symlinkSync(secret, `${path}/a/link`);
        Deno.writeTextFileSync(`${path}/a/x.json`, '{"verb":"leak"}');
        Deno.chmodSync(`${path}/a/b`, 0o500);
        tree = await listing(path);
        Deno.renameSync(path, bridge.queue("full-dir.json"));
      }, async () => {
        await attack.refused("full-dir", NOT_REGULAR);
        const [name] = quarantined();
        assert(name !== undefined, "nothing in quarantine");
        assertEquals(await listing(bridge.path("work/main/quarantine", name)), tree);
        assertEquals([...Deno.readDirSync(outside.path("tree"))].map((e) => e.name), ["leaf"]);
      });
    });
    await t.step(
      "P10 a directory that nobody may enter is put aside or stuck, and told once",
      () =>
        attack.run(() => {
          mkdirSync(bridge.queue(".shut"));
          Deno.writeTextFileSync(bridge.queue(".shut/x"), "");
          Deno.chmodSync(bridge.queue(".shut"), 0);
          Deno.renameSync(bridge.queue(".shut"), bridge.queue("shut.json"));
        }, async () => {
          if (ROOT) return await attack.refused("shut", NOT_REGULAR);
          // Moving a directory elsewhere rewrites it, which its mode forbids.
          await stuckAlone(attack, "shut.json", "EACCES");
        }),
    );

    await t.step(
      "P12 a file that its owner made unreadable never holds up the queue",
      () =>
        attack.run(
          () => {
            Deno.writeTextFileSync(bridge.queue(".dark"), '{"verb":"count"}');
            Deno.chmodSync(bridge.queue(".dark"), 0);
            Deno.renameSync(bridge.queue(".dark"), bridge.queue("dark.json"));
          },
          async () => {
            // Modes do not bind root.
            if (ROOT) assertEquals((await bridge.final("dark")).code, 0);
            else await attack.refused("dark", { ...NOT_REGULAR, stage: "read" });
          },
          ROOT ? ["dark"] : [],
        ),
    );

    for (const mode of [0o000, 0o555, 0o1700]) {
      const shown = mode.toString(8).padStart(4, "0");
      await t.step(
        `P13 a queue of mode ${shown} stops nothing, and nobody changes it back`,
        async () => {
          const id = `mode-${shown}`;
          const queue = bridge.path("spool/main/queue");
          // How the queue is watched may change at any time, after the pipes above.
          const lines = () =>
            bridge.log.split("\n").filter((line) => !line.startsWith("INFO watch ")).length;
          const mine = ROOT || (mode & 0o300) === 0o300;
          try {
            Deno.writeTextFileSync(bridge.queue(`.${id}`), '{"verb":"count"}');
            Deno.renameSync(bridge.queue(`.${id}`), bridge.queue(`${id}.json`));
            await bridge.final(id);
            Deno.chmodSync(queue, mode);
            if (mine) await attack.valid();
            else if (mode === 0) {
              await until("the fault in status.json", () => {
                const status = bridge.status();
                return status?.["state"] === "degraded" &&
                  String(status["why"]).includes("the queue cannot be read");
              });
            }
            const before = lines();
            const { seq } = bridge.status() as { seq: number };
            await until("more passes", () => (bridge.status()?.["seq"] as number) > seq);
            assert(lines() - before <= 1, bridge.log);
            assertEquals((Deno.statSync(queue).mode ?? 0) & 0o7777, mode);
          } finally {
            Deno.chmodSync(queue, 0o700);
          }
          await attack.valid();
          await until("service", () => bridge.status()?.["state"] === "serving");
        },
      );
    }
  });
});

/** Modes, types and names of everything below a directory, links not followed. */
async function listing(directory: string): Promise<string[]> {
  const text = await sh("find . -printf '%M %l %P %i\\n'", directory);
  return text.split("\n").slice(1).sort();
}

/** Asserts that an entry is on the stuck list, was told once, and removes it as the list says. */
async function stuckAlone(attack: Attack, name: string, error: string): Promise<void> {
  const { bridge } = attack;
  interface Stuck {
    count: number;
    entries: { name: string; where: string; error: string }[];
    commands: string[];
  }
  const list = () => (bridge.status() as { stuck: Stuck } | null)?.stuck ?? null;
  const found = await until(`${name} among the stuck`, () => {
    const stuck = list();
    return stuck !== null && stuck.count === 1 && stuck;
  });
  assertEquals(found.entries, [{ name, where: "spool/main/queue", error }]);
  assertEquals(found.commands.length, 1);
  const told = () => bridge.audit().filter((r) => r["event"] === "stuck" && r["name"] === name);
  await sleep(PASSES_MS);
  assertEquals(told().length, 1);
  assertEquals(
    bridge.log.split("\n").filter((l) => / stuck /.test(l) && l.includes(name)).length,
    1,
  );
  // The command is meant for a person with more rights; here its owner has enough.
  Deno.chmodSync(bridge.queue(name), 0o700);
  await sh((found.commands[0] ?? "false").replace(/^sudo /, ""), bridge.root);
  await until("an empty list", () => list()?.count === 0, 20_000);
}

Deno.test({
  name: `P9 a device is removed and not opened${DEVICES ? "" : " # SKIP needs root"}`,
  ignore: !DEVICES,
  fn: () =>
    attackBridge(async (attack) => {
      const { bridge, outside } = attack;
      const devices = [["null", "c 1 3"], ["zero", "c 1 5"], ["disk", "b 7 200"]] as const;
      await attack.run(async () => {
        for (const [id, numbers] of devices) {
          await sh(`mknod "$1" ${numbers}`, outside.dir, bridge.queue(`${id}.json`));
        }
      }, async () => {
        for (const [id] of devices) await attack.refused(id, NOT_REGULAR);
      });
    }),
});

Deno.test("P15 P16 P17 P18 names that mean something elsewhere mean nothing here", async (t) => {
  await attackBridge(async (attack) => {
    const { bridge, outside } = attack;

    const wrongIds: readonly (readonly [string, unknown])[] = [
      ["up", "../../x"],
      ["slash", "a/b"],
      ["dots", ".."],
      ["percent", "%2e%2e%2fx"],
      ["long", "a".repeat(256)],
      ["upper", "UPPER"],
      ["empty", ""],
      ["other", "valid-1"],
      ["number", 7],
      ["line", "line\n"],
    ];
    for (const [id, inside] of wrongIds) {
      await t.step(
        `P15 an id in the request that is ${JSON.stringify(inside).slice(0, 20)} is refused`,
        () =>
          attack.run(
            () => bridge.submit(id, { verb: "count", id: inside }),
            () => attack.refused(id, { code: 65, reason: "schema", stage: "schema" }),
          ),
      );
    }

    await t.step(
      "P15 an id with a NUL in it is refused before anything looks at it",
      () =>
        attack.run(
          () => bridge.submit("nul", { verb: "count", id: "a\u0000b" }),
          () => attack.refused("nul", { code: 64, reason: "malformed", stage: "parse" }),
        ),
    );

    const names: readonly (readonly [what: string, name: string, shown: string])[] = [
      ["P15 dots and slashes in percent signs", "%2e%2e%2fx.json", "%2e%2e%2fx.json"],
      ["P15 a name that begins with dots", "..x.json", "..x.json"],
      ["P15 65 characters", `${"a".repeat(65)}.json`, `${"a".repeat(65)}.json`],
      ["P15 255 bytes", `${"b".repeat(250)}.json`, `${"b".repeat(197)}...`],
      ["P15 the ending alone", ".json", ".json"],
      ["P15 two endings", "a.json.json", "a.json.json"],
      ["P15 no ending", "plain", "plain"],
      ["P17 an upper-case name", "A.json", "A.json"],
      ["P17 an upper-case ending", "a.JSON", "a.JSON"],
      ["P17 a composed letter", "\u00e9.json", "\\u00e9.json"],
      ["P17 the same letter decomposed", "e\u0301.json", "e\\u0301.json"],
      ["P17 a letter that looks like another", "\u0430.json", "\\u0430.json"],
      ["P18 a forged record", 'x\n{"forged":1}.json', 'x\\u000a{"forged":1}.json'],
      ["P18 an escape sequence", "\x1b[2Jx.json", "\\u001b[2Jx.json"],
      ["P18 an option", "--help.json", "--help.json"],
      ["P18 a command", "$(touch pwned).json", "$(touch pwned).json"],
      ["P18 a quote", `'"\`;.json`, `'"\`;.json`],
      ["P18 a backslash", "a\\b.json", "a\\\\b.json"],
      ["P18 text that runs backwards", "\u202enosj.x.json", "\\u202enosj.x.json"],
      ["P18 a blank", "a b.json", "a b.json"],
      ["P18 a control character of one byte", "\x7f.json", "\\u007f.json"],
    ];
    // A name with a leading dot is a temporary one but for the ending alone; see the settle rule.
    const temporary = new Set(["..x.json"]);
    for (const [what, name, shown] of names) {
      if (temporary.has(name)) {
        await t.step(
          `${what}: a temporary name, which is left to its writer`,
          () =>
            attack.run(() => Deno.writeTextFileSync(bridge.queue(name), '{"verb":"leak"}'), () => {
              assert(there(bridge.queue(name)));
              assertEquals(notesOf(bridge, shown), []);
              Deno.removeSync(bridge.queue(name));
            }),
        );
        continue;
      }
      await t.step(`${what} is refused, and shown in plain letters`, () =>
        attack.run(
          () => {
            Deno.writeTextFileSync(bridge.queue(".w"), '{"verb":"leak"}');
            Deno.renameSync(bridge.queue(".w"), bridge.queue(name));
          },
          () => attack.refusedNote(name, shown, BAD_NAME),
        ));
    }
    await t.step("P17 two names that differ in case only are two entries", () =>
      attack.run(() => {
        Deno.writeTextFileSync(bridge.queue("CASE.json"), '{"verb":"leak"}');
        bridge.submit("case", { verb: "count" });
      }, async () => {
        await attack.refusedNote("CASE.json", "CASE.json", BAD_NAME);
        assertEquals((await bridge.final("case")).code, 0);
      }, ["case"]));

    await t.step("P18 P15 what was named is found nowhere but in notes and records", async () => {
      assert(!there(bridge.path("pwned")) && !there(outside.path("pwned")));
      assert(!bridge.audit().some((record) => "forged" in record));
      const plain = /^[\x20-\x7e\n]*$/;
      assertMatch(bridge.log, plain);
      assertMatch(Deno.readTextFileSync(bridge.path("state/audit/audit.jsonl")), plain);
      for (const note of bridge.refused()) assertMatch(JSON.stringify(note), plain);
      const outsideOfSpool = await sh("find . -name '*x.json' -not -path './spool/*'", bridge.root);
      assertEquals(outsideOfSpool, "");
    });

    await t.step(
      "P16 a name that is not UTF-8 and its double are stuck, told once, untouched",
      async () => {
        const before = outside.runs().length;
        const double = bridge.queue("\ufffd\ufffd.json");
        const bytes = 'printf \'{"verb":"leak"}\' > "$1/$(printf "\\\\377\\\\376").json"';
        await sh(bytes.replaceAll("\\\\", "\\"), outside.dir, bridge.path("spool/main/queue"));
        Deno.writeTextFileSync(double, '{"verb":"leak"}');
        interface Stuck {
          count: number;
          commands: string[];
        }
        const stuck = () => (bridge.status() as { stuck: Stuck } | null)?.stuck;
        const found = await until("both among the stuck", () => {
          const now = stuck();
          return now?.count === (LISTS_ANY_BYTES ? 2 : 1) && now;
        });
        await attack.valid();
        await sleep(PASSES_MS);
        await attack.valid();
        assertEquals(outside.runs().length, before + 2);
        const count = "find . -mindepth 1 | LC_ALL=C tr -dc '\\n' | wc -c";
        assertEquals((await sh(count, bridge.path("spool/main/queue"))).trim(), "2");
        assertEquals(Deno.readTextFileSync(double), '{"verb":"leak"}');
        assertEquals(bridge.audit().filter((r) => r["event"] === "stuck").length, 1);
        assertEquals(bridge.log.split("\n").filter((line) => line.includes(" stuck ")).length, 1);
        assertEquals(found.commands.length, 1);
        await sh(found.commands[0] ?? "false", bridge.root);
        assertEquals(bridge.queued(), []);
        await until("an empty list", () => stuck()?.count === 0, 20_000);
      },
    );
  });
});

Deno.test({
  name: `P20 a queue on another file system is refused at the start and nothing is copied${
    UNSHARE === null ? " # SKIP needs root" : ""
  }`,
  ignore: UNSHARE === null,
  fn: async () => {
    using outside = new Outside();
    await using bridge = await TestBridge.make(attacked(outside));
    for (
      const [mounted, other, about] of [
        ["queue", "work/main/claims", "spool/main/queue"],
        ["results", "work/main/staging", "spool/main/results"],
      ] as const
    ) {
      const request = '{"verb":"count"}';
      const mode = mounted === "queue" ? "0700" : "0755";
      const started = await new Deno.Command("/bin/sh", {
        args: [
          "-c",
          `exec ${UNSHARE} sh -c 'mount -t tmpfs -o mode=${mode} none spool/main/${mounted} &&
          printf %s "$1" > spool/main/queue/a.json && { ./bin/chb once; code=$?; } ;
          ls -A spool/main/queue; ls -A work/main/claims; exit $code' sh "$1"`,
          "sh",
          request,
        ],
        cwd: bridge.root,
        stdin: "null",
      }).output();
      const err = new TextDecoder().decode(started.stderr);
      assertEquals(started.code, 78, err);
      const lines = err.split("\n").filter((line) => line.includes("check=file-system"));
      assert(lines.some((line) => line.includes(`path=${about}`) && line.includes(other)), err);
      assert(lines.every((line) => line.includes(`umount spool/main/${mounted}`)), err);
      // The request is where it was, and nowhere else.
      assertEquals(new TextDecoder().decode(started.stdout), "a.json\n");
      assertEquals(outside.runs(), []);
    }
    // The mounts have gone with their makers, and so has the finding.
    Deno.removeSync(bridge.queue("a.json"), { recursive: true });
    await bridge.serve();
    assertEquals((await bridge.ask("a", { verb: "count" })).code, 0);
  },
});

Deno.test("P22 a root that is named through a symlink is the root that it leads to", async () => {
  using outside = new Outside();
  await using bridge = await TestBridge.make(attacked(outside));
  const alias = outside.path("alias");
  Deno.symlinkSync(bridge.root, alias);
  const child = new Deno.Command("./bin/chb", {
    args: ["serve", "--poll-ms", "500"],
    cwd: alias,
    env: { PWD: alias },
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
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
    });
    assertStringIncludes(log, `root=${bridge.root} `);
    assertEquals((await bridge.ask("a", { verb: "count" })).code, 0);
    Deno.symlinkSync(outside.secret("id_rsa"), bridge.queue("l.json"));
    assertEquals((await bridge.final("l")).reason, "not-regular");
    assertEquals(outside.runs(), ["a"]);
    outside.untouched();
    await noMarker(bridge);
  } finally {
    if (!over) child.kill("SIGTERM");
    await child.status;
    await reading;
  }
  assert(!/ERROR|NotCapable/.test(log), log);
});

/** A user other than root and other than any that the bridge has to do with. */
const DAEMON = 1000;
const STRANGER = 54_321;

/** True when tests can have a daemon of another user: it must be able to read this tree. */
const OTHER_USERS = ROOT && (() => {
  try {
    return new Deno.Command("/bin/cat", {
      args: [new URL("../main.ts", import.meta.url).pathname, Deno.execPath()],
      uid: DAEMON,
      gid: DAEMON,
      stdout: "null",
      stderr: "null",
    }).outputSync().success;
  } catch {
    return false;
  }
})();

Deno.test({
  name: `P10 P12 P13 what a stranger leaves in the queue is drained, or stuck and told once${
    OTHER_USERS ? "" : " # SKIP needs root"
  }`,
  ignore: !OTHER_USERS,
  fn: async (t) => {
    using outside = new Outside();
    // The strangers' files go through here, and the scripts write the tally here.
    Deno.chmodSync(outside.dir, 0o777);
    await using bridge = await TestBridge.make(attacked(outside, {
      uid: DAEMON,
      agent: { agent_uid: STRANGER },
    }));
    Deno.chmodSync(bridge.path("spool/main/queue"), 0o1733);
    await bridge.serve();
    const attack = new Attack(bridge, outside);

    /** Puts a file of the stranger into the queue, complete at once. */
    const plant = (id: string, text: string, fileMode: number) => {
      const temporary = bridge.queue(`.${id}`);
      Deno.writeTextFileSync(temporary, text);
      Deno.chownSync(temporary, STRANGER, STRANGER);
      Deno.chmodSync(temporary, fileMode);
      Deno.renameSync(temporary, bridge.queue(`${id}.json`));
    };

    await t.step(
      "P13 a request of a stranger in a sticky queue is claimed and run",
      () =>
        attack.run(
          () => plant("foreign", '{"verb":"count"}', 0o644),
          async () => assertEquals((await bridge.final("foreign")).code, 0),
          ["foreign"],
        ),
    );
    await t.step(
      "P12 a stranger's file that the host cannot read is refused and removed",
      () =>
        attack.run(() => {
          plant("dark", '{"verb":"leak"}', 0);
          plant("own-only", '{"verb":"leak"}', 0o600);
        }, async () => {
          await attack.refused("dark", { ...NOT_REGULAR, stage: "read" });
          await attack.refused("own-only", { ...NOT_REGULAR, stage: "read" });
        }),
    );
    await t.step("P10 a stranger's empty directory is removed", () =>
      attack.run(() => {
        mkdirSync(bridge.queue(".d"), { mode: 0o700 });
        Deno.chownSync(bridge.queue(".d"), STRANGER, STRANGER);
        Deno.renameSync(bridge.queue(".d"), bridge.queue("d.json"));
      }, () => attack.refused("d", NOT_REGULAR)));
    await t.step(
      "P10 a stranger's full directory stays, stuck and told once",
      () =>
        attack.run(async () => {
          mkdirSync(bridge.queue(".full"));
          Deno.writeTextFileSync(bridge.queue(".full/x"), "");
          await sh(
            `chown -R ${STRANGER} "$1" && chmod 700 "$1"`,
            outside.dir,
            bridge.queue(".full"),
          );
          Deno.renameSync(bridge.queue(".full"), bridge.queue("full.json"));
        }, () => stuckAlone(attack, "full.json", "EACCES")),
    );
    await attack.end();
    assert(!/^ERROR /m.test(bridge.log), bridge.log);
  },
});

Deno.test({
  name:
    `P13 Q5 Q7 two thousand entries that nobody can move are told of within bounds and cost nothing${
      OTHER_USERS ? "" : " # SKIP needs root"
    }`,
  ignore: !OTHER_USERS,
  fn: async () => {
    using outside = new Outside();
    Deno.chmodSync(outside.dir, 0o777);
    await using bridge = await TestBridge.start(attacked(outside, {
      uid: DAEMON,
      serve: ["--poll-ms", "100"],
    }));
    // Directories of another user with something in them: neither moved nor removed.
    for (let i = 0; i < 2000; i++) {
      mkdirSync(bridge.queue(`.d${i}/x`), { recursive: true });
      Deno.renameSync(bridge.queue(`.d${i}`), bridge.queue(`d${i}.json`));
    }
    const count = () => (bridge.status()?.["stuck"] as { count: number } | undefined)?.count ?? 0;
    await until("the count", () => count() === 2000, 60_000);
    const told = () => bridge.audit().filter((r) => r["event"] === "stuck").length;
    const first = told();
    assert(first > 0 && first <= 200, `${first} records`);

    const cpu = () => {
      const fields = Deno.readTextFileSync(`/proc/${bridge.pid}/stat`).split(") ")[1]?.split(" ");
      return (Number(fields?.[11]) + Number(fields?.[12])) * 10;
    };
    await sleep(3000);
    const before = cpu();
    await sleep(3000);
    assert(cpu() - before < 450, `${cpu() - before} ms of a processor in 3 s`);
    assertEquals((await bridge.ask("among", { verb: "count" })).code, 0);

    // A scan that fails has met none of them; they have not gone for that.
    for (let i = 0; i < 2; i++) {
      Deno.chmodSync(bridge.path("spool/main/queue"), 0);
      await until("the alarm", () => String(bridge.status()?.["why"]).includes("cannot be read"));
      assertEquals(count(), 2000);
      Deno.chmodSync(bridge.path("spool/main/queue"), 0o700);
      await until("service", () => bridge.status()?.["state"] === "serving");
    }
    assertEquals((await bridge.ask("again", { verb: "count" })).code, 0);
    assertEquals([count(), told()], [2000, first]);
  },
});
