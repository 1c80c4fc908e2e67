import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { mkdirSync } from "node:fs";
import { sleep, TestBridge, there, until, verb } from "./helpers/bridge.ts";
import { Attack, attacked, notesOf, Outside, sh } from "./helpers/outside.ts";

const encoder = new TextEncoder();

/** Long enough for several passes of a bridge that polls twice a second. */
const PASSES_MS = 1500;

/** Leaves its request's id in the tally and on both outputs. */
const SAY = '#!/bin/sh\necho "$1" >> "$TALLY"\necho "out $1"\necho "err $1" >&2\n';

function mode(path: string): number {
  return (Deno.lstatSync(path).mode ?? 0) & 0o7777;
}

/** What the daemon said of entries: a busy machine may change between events and polls beside that. */
function said(bridge: TestBridge): string[] {
  return bridge.log.split("\n").filter((line) => !line.startsWith("INFO watch "));
}

function names(directory: string): string[] {
  return [...Deno.readDirSync(directory)].map((entry) => entry.name).sort();
}

/** Writes many files in one go, from a shell, since that is what a flood is. */
async function many(directory: string, count: number, name: string, text: string): Promise<void> {
  await sh(
    `i=0; while [ $i -lt "$1" ]; do printf %s "$2" > ${name}; i=$((i+1)); done`,
    directory,
    String(count),
    text,
  );
}

Deno.test("Q3 whatever has the name of a result gives way, and the command is run once", async (t) => {
  using outside = new Outside();
  await using bridge = await TestBridge.start(attacked(outside, {
    scripts: {
      "say.sh": SAY,
      "hold.sh": `${SAY}while [ ! -e "$OUTSIDE/go-$1" ]; do sleep 0.02; done\n`,
    },
    verbs: { say: verb(["base/say.sh", "{id}"]), hold: verb(["base/hold.sh", "{id}"]) },
  }));
  const attack = new Attack(bridge, outside);
  const result = (name: string) => bridge.path("spool/main/results", name);
  /** The host's own answer has the name now, and it is a final one. */
  const isPublished = (id: string) => {
    const path = result(`${id}.json`);
    if (!there(path) || !Deno.lstatSync(path).isFile) return false;
    const text = Deno.readTextFileSync(path);
    return text.startsWith(`{"chb":1,"id":"${id}"`) && text.includes('"state":"done"');
  };
  const quarantined = () =>
    names(bridge.path("work/main/quarantine")).filter((n) => n.startsWith("dir."));

  /** Asserts that the run's three files are what they should be, and plain files of the host. */
  const published = async (id: string) => {
    await until(`results/${id}.json in place of what was there`, () => isPublished(id));
    const { outcome, stdout, stderr } = await bridge.final(id);
    assertEquals([outcome, stdout?.head, stderr?.head], [
      "succeeded",
      `out ${id}\n`,
      `err ${id}\n`,
    ]);
    for (const [name, text] of [[`${id}.stdout`, `out ${id}\n`], [`${id}.stderr`, `err ${id}\n`]]) {
      assertEquals(Deno.readTextFileSync(result(name ?? "")), text);
    }
    for (const name of [`${id}.json`, `${id}.stdout`, `${id}.stderr`]) {
      const { isFile, nlink } = Deno.lstatSync(result(name));
      assertEquals([isFile, nlink, mode(result(name))], [true, 1, 0o644], name);
    }
    assertEquals(attack.recordsOf((r) => r["id"] === id).length, 1);
  };

  const squats: readonly (readonly [id: string, what: string, plant: (path: string) => void])[] = [
    ["file", "a file with a forged result", (path) => {
      Deno.writeTextFileSync(path, '{"state":"done","outcome":"succeeded","code":0}\n');
    }],
    ["dir", "an empty directory", (path) => mkdirSync(path)],
    ["link", "a symlink to a file of the host", (path) => {
      Deno.symlinkSync(outside.secret(`link-${path.split("/").at(-1)}`), path);
    }],
    ["dangling", "a dangling symlink", (path) => Deno.symlinkSync(outside.path("made"), path)],
    ["dirlink", "a symlink to a directory of the host", (path) => {
      if (!there(outside.path("dir"))) mkdirSync(outside.path("dir"));
      Deno.symlinkSync(outside.path("dir"), path);
    }],
    ["hard", "a hard link to a file of the host", (path) => {
      const host = outside.path(`hard-${path.split("/").at(-1)}`);
      Deno.writeTextFileSync(host, "as it was\n", { mode: 0o600 });
      Deno.linkSync(host, path);
    }],
  ];
  for (const [id, what, plant] of squats) {
    await t.step(
      `Q3 ${what} in place of a result and its output is replaced itself`,
      () =>
        attack.run(() => {
          for (const name of [`${id}.json`, `${id}.stdout`, `${id}.stderr`]) plant(result(name));
          bridge.submit(id, { verb: "say" });
        }, async () => {
          await published(id);
          assert(!there(outside.path("made")), "the target of a dangling symlink was made");
          if (there(outside.path("dir"))) assertEquals(names(outside.path("dir")), []);
          for (const name of names(outside.dir).filter((n) => n.startsWith("hard-"))) {
            assertEquals(Deno.readTextFileSync(outside.path(name)), "as it was\n");
            assertEquals([mode(outside.path(name)), Deno.statSync(outside.path(name)).nlink], [
              0o600,
              1,
            ]);
          }
          assertEquals(quarantined(), []);
        }, [id]),
    );
  }
  await t.step(
    "Q3 a named pipe in place of a result is replaced and nobody waits on it",
    () =>
      attack.run(
        async () => {
          await sh('mkfifo "$@"', outside.dir, result("pipe.json"), result("pipe.stdout"));
          bridge.submit("pipe", { verb: "say" });
        },
        () => published("pipe"),
        ["pipe"],
      ),
  );
  await t.step(
    "Q3 a full directory in place of a result is put aside as it is",
    () =>
      attack.run(() => {
        for (const name of ["full.json", "full.stdout"]) {
          mkdirSync(result(`${name}/inner`), { recursive: true });
          Deno.writeTextFileSync(result(`${name}/inner/x`), name);
        }
        bridge.submit("full", { verb: "say" });
      }, async () => {
        await published("full");
        assertEquals(quarantined().length, 2);
        for (const name of quarantined()) {
          const text = Deno.readTextFileSync(bridge.path("work/main/quarantine", name, "inner/x"));
          assertStringIncludes(text, "full.");
        }
      }, ["full"]),
  );
  await t.step(
    "Q3 a directory that takes the name while the command runs gives way too",
    () =>
      attack.run(
        async () => {
          bridge.submit("while", { verb: "hold" });
          await until("the run", () => outside.runs().includes("while"));
          await until("its state", () => bridge.result("while")?.state === "running");
          Deno.removeSync(result("while.json"));
          mkdirSync(result("while.json/x"), { recursive: true });
          Deno.writeTextFileSync(outside.path("go-while"), "");
          await until("the end", () =>
            bridge.audit().some((r) => r["event"] === "finished" && r["id"] === "while"));
          await until("the result", () =>
            Deno.lstatSync(result("while.json")).isFile);
        },
        () => published("while"),
        ["while"],
      ),
  );
  await t.step(
    "Q3 the answer to a poison entry and a note give way like a result",
    () => {
      const note = bridge.path(`spool/main/inbox/refused/${bridge.refused().length + 1}.json`);
      return attack.run(() => {
        mkdirSync(result("bad.json/x"), { recursive: true });
        mkdirSync(`${note}/x`, { recursive: true });
        Deno.writeTextFileSync(bridge.queue("bad.json"), "[]");
        Deno.writeTextFileSync(bridge.queue("Bad Name"), "[]");
      }, async () => {
        await until("the answer", () => isPublished("bad"));
        // The other entry may have come in a later batch.
        await until("a note", () => there(note) && Deno.lstatSync(note).isFile);
        await attack.refused("bad", { code: 65, reason: "schema", stage: "schema" });
        await until("the note", () => notesOf(bridge, "Bad Name").length === 1);
      });
    },
  );

  await t.step(
    "Q3 where nothing can give way the run is not repeated, and its result comes later",
    async () => {
      const before = outside.runs().length;
      // Nothing more fits into the quarantine.
      const fill = bridge.path("work/main/quarantine");
      const made: string[] = [];
      for (let n = quarantined().length; n < 100; n++) {
        const path = `${fill}/dir.full-${n}`;
        mkdirSync(path);
        made.push(path);
      }
      mkdirSync(result("kept.json/x"), { recursive: true });
      bridge.submit("kept", { verb: "say" });
      await until(
        "the end",
        () => bridge.audit().some((r) => r["event"] === "finished" && r["id"] === "kept"),
      );
      await until("the fault in status.json", () => {
        const status = bridge.status();
        return status?.["state"] === "degraded" &&
          String(status["why"]).includes("results cannot be published");
      });
      // Several tries, one line, and other results come all the same.
      await sleep(3 * 1000);
      await attack.valid();
      const lines = bridge.log.split("\n").filter((line) => line.includes("publish-failed"));
      assertEquals(lines.length, 1, bridge.log);
      assert(Deno.lstatSync(result("kept.json")).isDirectory);
      assertEquals(names(result("kept.json")), ["x"]);
      for (const path of made) Deno.removeSync(path);
      await until("the result", () => {
        try {
          return Deno.lstatSync(result("kept.json")).isFile;
        } catch {
          // The directory was put aside, and the file is not in its place yet.
          return false;
        }
      });
      await published("kept");
      await until("service", () => bridge.status()?.["state"] === "serving");
      assertEquals(outside.runs().slice(before), ["kept", outside.runs().at(-1)]);
    },
  );

  await t.step(
    "Q3 what the agent forged or removed is written again when it is asked for",
    async () => {
      Deno.writeTextFileSync(result("file.json"), '{"state":"done","outcome":"failed"}');
      await attack.run(
        () => bridge.submit("file", { verb: "say" }),
        () => until("the replay", () => (bridge.result("file")?.replays ?? 0) > 0).then(() => {}),
      );
      assertEquals(bridge.result("file")?.outcome, "succeeded");
      Deno.removeSync(result("dir.json"));
      await attack.run(
        () => bridge.submit("dir", { verb: "say" }),
        () => bridge.final("dir").then(() => {}),
      );
    },
  );
  outside.untouched();
  assert(!/^ERROR /m.test(bridge.log), bridge.log);
});

Deno.test("Q5 a request behind thousands of invalid ones does not wait for them", async (t) => {
  using outside = new Outside();
  await using bridge = await TestBridge.start(attacked(outside));
  const attack = new Attack(bridge, outside);
  const COUNT = 1500;

  await t.step(
    "Q5 it is answered while most of the flood is still there, and all are answered",
    async () => {
      // The daemon finds all of it at once when it goes on.
      Deno.kill(bridge.pid, "SIGSTOP");
      try {
        await many(bridge.path("spool/main/queue"), COUNT, "f$i.json", '{"verb":"cuont"}');
      } finally {
        Deno.kill(bridge.pid, "SIGCONT");
      }
      // By then the watcher has told of the flood, or that it lost count of it.
      await until("the first of them", () => bridge.queued().length < COUNT * 0.9);
      bridge.submit("behind", { verb: "count" });
      const memory = bridge.memory();
      const result = await bridge.final("behind", 60_000);
      const left = bridge.queued().length;
      assertEquals(result.outcome, "succeeded");
      assert(left > COUNT / 4, `only ${left} of ${COUNT} were left when it was answered`);
      await until("the end of the flood", () => bridge.queued().length === 0, 60_000);
      const answered = await until("all answers", () => {
        const files = names(bridge.path("spool/main/results")).filter((n) =>
          /^f\d+\.json$/.test(n)
        );
        return files.length === COUNT && files;
      });
      const { code, reason } = bridge.result((answered[0] ?? "").slice(0, -5)) ?? {};
      assertEquals([code, reason], [78, "unknown-verb"]);
      const records = attack.recordsOf((r) => /^f\d+$/.test(String(r["id"])));
      assertEquals(records.length, COUNT);
      assertEquals(outside.runs(), ["behind"]);
      assert(bridge.memory() - memory < 80e6, `grew by ${bridge.memory() - memory} bytes`);
      await until("no claim", () => names(bridge.path("work/main/claims")).length === 0);
    },
  );

  await t.step(
    "Q5 renames without end in the queue do not keep the daemon from its work",
    async () => {
      const a = bridge.queue(".a");
      const b = bridge.queue(".b");
      Deno.writeTextFileSync(a, "");
      let renames = 0;
      let over = false;
      const storm = (async () => {
        while (!over) {
          for (let n = 0; n < 500; n++) {
            Deno.renameSync(a, b);
            Deno.renameSync(b, a);
          }
          renames += 1000;
          await sleep(0);
        }
      })();
      try {
        await until("a storm", () => renames > 20_000);
        const since = renames;
        bridge.submit("storm", { verb: "count" });
        const result = await bridge.final("storm", 60_000);
        assertEquals(result.outcome, "succeeded");
        // As many events in between as would have taken a listener that hears each of them long.
        const meanwhile = renames - since;
        assert(meanwhile < 100_000, `answered after ${meanwhile} further renames`);
      } finally {
        over = true;
        await storm;
        Deno.removeSync(a);
      }
      await attack.valid();
    },
  );
  assert(!/^ERROR /m.test(bridge.log), bridge.log);
});

Deno.test("Q5 above the answer cap entries are removed and told in one record, valid ones are served", async () => {
  using outside = new Outside();
  const CAP = 50;
  const COUNT = 1000;
  await using bridge = await TestBridge.start(attacked(outside, { limits: { answers: CAP } }));
  Deno.kill(bridge.pid, "SIGSTOP");
  try {
    await many(bridge.path("spool/main/queue"), COUNT, "f$i.json", '{"verb":"cuont"}');
    bridge.submit("behind", { verb: "count" });
  } finally {
    Deno.kill(bridge.pid, "SIGCONT");
  }
  assertEquals((await bridge.final("behind", 30_000)).outcome, "succeeded");
  await until("the end of the flood", () => bridge.queued().length === 0, 30_000);
  await until("it to be told", () => Number(bridge.status()?.["shedding"]) > 0);
  const answered = names(bridge.path("spool/main/results")).filter((n) => /^f\d+\.json$/.test(n));
  assert(answered.length > 0 && answered.length <= CAP, `${answered.length} answers`);
  assertEquals(outside.runs(), ["behind"]);
  // At the latest when it leaves the daemon tells what it shed.
  assertEquals(await bridge.stop(), 0);
  const shed = bridge.audit().filter((r) => r["event"] === "shed");
  assertEquals(shed.length, 1);
  const [record] = shed;
  assertEquals(Number(record?.["count"]) + answered.length, COUNT);
  assert(/^f\d+\.json$/.test(String(record?.["first"])) && record?.["last"] !== record?.["first"]);
  const refused = bridge.audit().filter((r) => r["event"] === "refused");
  assertEquals(refused.length, answered.length);
  assertEquals(names(bridge.path("work/main/claims")), []);
});

Deno.test("Q7 what cannot be removed is told once and tried no more, and costs nothing", async (t) => {
  using outside = new Outside();
  await using bridge = await TestBridge.start(attacked(outside));
  const attack = new Attack(bridge, outside);
  interface Stuck {
    count: number;
    entries: { name: string; error: string; where: string }[];
    commands: string[];
  }
  const stuck = () => (bridge.status() as { stuck: Stuck } | null)?.stuck;
  const told = () => bridge.log.split("\n").filter((line) => / stuck /.test(line));
  const cpu = () => {
    const fields = Deno.readTextFileSync(`/proc/${bridge.pid}/stat`).split(") ")[1]?.split(" ") ??
      [];
    return Number(fields[11]) + Number(fields[12]);
  };

  await t.step(
    "Q7 a thousand and one names that nobody can address: one line, one record",
    async () => {
      // They are UTF-8 and hold U+FFFD, so that every runtime lists them.
      const bytes = ': > "$(printf "\\357\\277\\275%d" $i).json"';
      await sh(
        `i=0; while [ $i -lt 1001 ]; do ${bytes}; i=$((i+1)); done`,
        bridge.path("spool/main/queue"),
      );
      await attack.run(() => {}, () => {});
      const found = await until("the count", () => {
        const now = stuck();
        return now?.count === 1001 && now;
      });
      assertEquals(found.commands.length, 1);
      const [records, lines] = [bridge.audit().length, said(bridge)];
      const before = cpu();
      await sleep(PASSES_MS);
      assert(cpu() - before < 75, "half of a processor went into names that cannot be handled");
      assertEquals([bridge.audit().length, said(bridge)], [records, lines]);
      await attack.run(() => {}, () => {});
      assertEquals(told().length, 1, bridge.log);
      assertEquals(bridge.audit().filter((r) => r["event"] === "stuck").length, 1);
      assertEquals(bridge.queued().length, 1001);
      await sh(found.commands[0] ?? "false", bridge.root);
      assertEquals(bridge.queued(), []);
      await until("an empty list", () => stuck()?.count === 0, 20_000);
    },
  );

  await t.step(
    "Q7 more full directories than the quarantine takes: each answered, told once",
    async () => {
      const ids = Array.from({ length: 120 }, (_, n) => `d${n}`);
      await attack.run(
        () =>
          sh(
            'for d; do mkdir ".$d" && : > ".$d/x" && mv ".$d" "$d.json"; done',
            bridge.path("spool/main/queue"),
            ...ids,
          )
            .then(() => {}),
        async () => {
          for (const id of ids) {
            const { code, reason } = await bridge.final(id);
            assertEquals([code, reason], [66, "not-regular"]);
            assertEquals(attack.recordsOf((r) => r["id"] === id).length, 1);
          }
        },
      );
      assertEquals(bridge.queued(), []);
      const kept = names(bridge.path("work/main/quarantine")).filter((n) => n.startsWith("dir."));
      assertEquals(kept.length, 100);
      const found = await until("the rest among the stuck", () => {
        const now = stuck();
        return now?.count === 20 && now;
      });
      assertEquals(
        new Set(found.entries.map((e) => `${e.where} ${e.error}`)),
        new Set([
          "work/main/claims QUARANTINE-FULL",
        ]),
      );
      assertEquals(found.commands.length, 20);
      const [records, lines] = [bridge.audit().length, said(bridge)];
      await sleep(PASSES_MS);
      assertEquals([bridge.audit().length, said(bridge)], [records, lines]);
      // A human looks, makes room and removes the rest as told.
      for (const command of found.commands) await sh(command, bridge.root);
      assertEquals(names(bridge.path("work/main/claims")), []);
      await attack.run(() => {}, () => {});
    },
  );

  await t.step("Q7 after a restart nothing of it is answered or told a second time", async () => {
    const answers = attack.recordsOf(() => true).length;
    await bridge.stop();
    await bridge.serve();
    await attack.run(() => {}, () => {});
    assertEquals(attack.recordsOf(() => true).length, answers + 1);
    assertEquals(told(), []);
  });
  assert(!/^ERROR /m.test(bridge.log), bridge.log);
});

Deno.test("Q5 a backlog left in the queue that is longer than what is remembered costs nothing", async () => {
  await using bridge = await TestBridge.make({
    verbs: { hold: verb(["/usr/bin/sleep", "60"], { timeout_s: 60 }) },
    limits: { concurrency: 1, waiting: 1, backlog: "queue" },
  });
  await many(bridge.path("spool/main/queue"), 17_000, "b$i.json", '{"verb":"hold"}');
  await bridge.serve();
  await until("the backlog", () => bridge.queued().length === 16_998, 30_000);
  const cpu = () => {
    const fields = Deno.readTextFileSync(`/proc/${bridge.pid}/stat`).split(") ")[1]?.split(" ");
    return (Number(fields?.[11]) + Number(fields?.[12])) * 10;
  };
  await sleep(1000);
  const before = cpu();
  await sleep(3000);
  assert(cpu() - before < 600, `${cpu() - before} ms of a processor in 3 s`);
  assertEquals(bridge.queued().length, 16_998);
});

Deno.test("Q12 results are readable for the agent whatever the umask of who started the daemon", async () => {
  using outside = new Outside();
  await using bridge = await TestBridge.make(attacked(outside, {
    scripts: { "say.sh": SAY },
    verbs: { say: verb(["base/say.sh", "{id}"]) },
  }));
  const before = Deno.umask(0o077);
  try {
    await bridge.serve();
  } finally {
    Deno.umask(before);
  }
  await bridge.ask("a", { verb: "say" });
  Deno.writeTextFileSync(bridge.queue("Bad Name"), "x");
  await until("the note", () => notesOf(bridge, "Bad Name").length === 1);
  await until("the status", () => bridge.status() !== null);
  const spool = (path: string) => bridge.path("spool/main", path);
  for (
    const path of [
      "results/a.json",
      "results/a.stdout",
      "results/a.stderr",
      "inbox/status.json",
      "inbox/catalogue.json",
      "inbox/README",
      ...names(spool("inbox/refused")).map((name) => `inbox/refused/${name}`),
    ]
  ) assertEquals(mode(spool(path)), 0o644, path);
  for (const path of ["results", "inbox", "inbox/refused"]) {
    assertEquals(mode(spool(path)), 0o755, path);
  }
  // What is the host's own stays shut.
  for (const path of ["state", "state/runs", "state/audit", "work/main/claims"]) {
    assertEquals(mode(bridge.path(path)), 0o700, path);
  }
  for (const path of ["state/ledger.db", "state/audit/audit.jsonl", "state/daemon.json"]) {
    assertEquals(mode(bridge.path(path)) & 0o077, 0, path);
  }
});

Deno.test("Q13 output beyond the cap is counted, not kept, and the result stays small", async (t) => {
  using outside = new Outside();
  const CAP = 65_536;
  const LINE = "0123456789abcde\n";
  await using bridge = await TestBridge.start(attacked(outside, {
    scripts: {
      "flood.sh":
        '#!/bin/sh\necho "$1" >> "$TALLY"\nyes 0123456789abcde | head -c "$2"\necho END >&2\n',
      "raw.sh": '#!/bin/sh\necho "$1" >> "$TALLY"\nhead -c 300000 /dev/zero | tr "\\000" "\\377"\n',
    },
    verbs: {
      flood: verb(["base/flood.sh", "{id}", "{bytes}"], {
        args: { bytes: { type: "integer", min: 0, max: 100_000_000 } },
        timeout_s: 60,
      }),
      raw: verb(["base/raw.sh", "{id}"]),
    },
    limits: { output_bytes: CAP },
  }));
  const attack = new Attack(bridge, outside);
  const size = (name: string) => Deno.statSync(bridge.path("spool/main/results", name)).size;

  await t.step(
    "Q13 fifty million bytes leave a file of the cap, with the first and the last of them",
    () =>
      attack.run(async () => {
        bridge.submit("big", { verb: "flood", args: { bytes: 50_000_000 } });
        const { outcome, stdout, stderr } = await bridge.final("big", 60_000);
        assertEquals([outcome, stderr?.head], ["succeeded", "END\n"]);
        assertEquals([stdout?.bytes, stdout?.file, stdout?.complete], [
          50_000_000,
          "big.stdout",
          false,
        ]);
        assertEquals(stdout?.head, LINE.repeat(1024));
        // Beside the gap the first line may be half of something, so it is left out.
        const tail = stdout?.tail ?? "";
        assertEquals(tail, LINE.repeat(1023));
        assertEquals(stdout?.dropped_bytes, 50_000_000 - 16_384 - tail.length);
        const kept = size("big.stdout");
        assert(kept <= CAP && kept > CAP - 2 * LINE.length, `${kept} bytes are kept`);
      }, () =>
        assert(size("big.json") < 80_000), ["big"]),
  );
  await t.step(
    "Q13 output of exactly the cap is whole, and one byte more is not",
    () =>
      attack.run(
        async () => {
          bridge.submit("cap", { verb: "flood", args: { bytes: CAP } });
          bridge.submit("cap1", { verb: "flood", args: { bytes: CAP + 1 } });
          const [cap, cap1] = [await bridge.final("cap"), await bridge.final("cap1")];
          assertEquals([cap.stdout?.bytes, cap.stdout?.complete, size("cap.stdout")], [
            CAP,
            true,
            CAP,
          ]);
          assertEquals([cap1.stdout?.bytes, cap1.stdout?.complete, size("cap1.stdout")], [
            CAP + 1,
            false,
            CAP,
          ]);
        },
        () => {},
        ["cap", "cap1"],
      ),
  );
  await t.step(
    "Q13 bytes that are no text do not make the files grow without bound",
    () =>
      attack.run(
        async () => {
          bridge.submit("raw", { verb: "raw" });
          const { stdout } = await bridge.final("raw");
          assertEquals(stdout?.bytes, 300_000);
          assert((stdout?.replaced_bytes ?? 0) >= CAP, String(stdout?.replaced_bytes));
          // Each of them becomes a character of three bytes.
          assert(size("raw.stdout") <= 3 * CAP);
          assert(size("raw.json") <= 2 * 16_384 * 3 + 10_000);
        },
        () => {},
        ["raw"],
      ),
  );
  await t.step("Q13 a quiet command leaves no output files", () =>
    attack.run(() => {}, () => {
      const left = names(bridge.path("spool/main/results")).filter((n) => n.startsWith("valid-"));
      assert(left.length > 0 && left.every((name) => name.endsWith(".json")), left.join());
    }));
});

Deno.test("Q14 requests that are withdrawn under the daemon's hands are no error and no noise", async () => {
  using outside = new Outside();
  await using bridge = await TestBridge.start(attacked(outside));
  const attack = new Attack(bridge, outside);
  const before = said(bridge);
  const ids: string[] = [];
  const end = performance.now() + 2000;
  let withdrawn = 0;
  const request = encoder.encode('{"verb":"count"}');
  for (let n = 0; performance.now() < end; n++) {
    const id = `w${n}`;
    ids.push(id);
    const path = bridge.queue(`${id}.json`);
    Deno.writeFileSync(bridge.queue(`.${id}`), request);
    Deno.renameSync(bridge.queue(`.${id}`), path);
    // Sometimes at once, sometimes when it may have been claimed.
    if (n % 3 > 0) await sleep(n % 3);
    try {
      Deno.removeSync(path);
      withdrawn++;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    if (n % 20 === 0) await sleep(20);
  }
  await attack.valid();
  await until("the last run", () => {
    const status = bridge.status() as { running: number; waiting: number } | null;
    return status !== null && status.running + status.waiting === 0 && bridge.queued().length === 0;
  }, 30_000);
  assert(withdrawn > 0, "none was withdrawn in time");
  // Those that were withdrawn were not run; the others were, once each.
  const taken = new Set(attack.recordsOf((r) => r["event"] === "accepted").map((r) => r["id"]));
  const ran = outside.runs().filter((line) => line.startsWith("w"));
  assertEquals(new Set(ran).size, ran.length, "one ran twice");
  assertEquals(ids.filter((id) => taken.has(id)).length, ids.length - withdrawn);
  await until(
    "all runs",
    () => outside.runs().filter((l) => l.startsWith("w")).length === ids.length - withdrawn,
  );
  assertEquals(said(bridge), before);
  assertEquals(bridge.refused(), []);
  assertEquals((bridge.status() as { stuck: { count: number } }).stuck.count, 0);
  assertEquals(names(bridge.path("work/main/claims")), []);
});
