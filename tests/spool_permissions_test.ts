/**
 * Everything that the spool does works with the permissions that the daemon has, and no others.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { permissionFlags } from "../src/permissions.ts";
import { AGENT, entry, names, PATHS, put, sh, SpoolRoot } from "./spool_fixture.ts";

const source = (name: string): string =>
  JSON.stringify(new URL(`../src/${name}.ts`, import.meta.url).href);

/** Calls each exported function once, in the course of a short life of a queue. */
const SCRIPT = `
import * as layout from ${source("spool/layout")};
import { readPins, comparePins } from ${source("spool/pins")};
import { look } from ${source("spool/look")};
import { claimEntry, leftoverClaims } from ${source("spool/claim")};
import { readClaim } from ${source("spool/read_claim")};
import { disposePoison, dropClaim, keepCopy } from ${source("spool/drain_claim")};
import * as publication from ${source("spool/publish")};
import { Scanner } from ${source("spool/scan")};
import { StuckList } from ${source("spool/stuck")};
import { SpoolWatch } from ${source("spool/watch")};
import { randomHex } from ${source("names")};

function check(what, ok) { if (!ok) throw new Error("failed: " + what); }
for (const name of ["net", "env", "sys", "ffi"]) {
  check("no " + name, Deno.permissions.querySync({ name }).state !== "granted");
}
const lock = layout.lockState();
check("lock", lock !== null && layout.lockState() === null);
layout.ensureAgent("second", null);
layout.ensureAgent("third", { agent_uid: layout.daemonUid() + 1, agent_gid: null });
const found = layout.checkLayout(["main", "second"], { queueMode: () => null });
check("layout " + JSON.stringify(found), found.length === 0);
check("program", layout.checkProgram("base/run.sh").length === 0);
check("program", layout.checkProgram("/usr/bin/true").every((f) => f.level !== "error"));
check("identity", layout.fileIdentity("/usr/bin/true").size > 0);
const pins = readPins("main");
check("pins", comparePins(pins, "main") === null);
const scanner = new Scanner("spool/main/queue");
const { names, wrapped, error } = await scanner.next(100);
check("scan " + error, wrapped && names.length === 5);
for (const name of names) {
  check("look", look("spool/main/queue/" + name) !== null);
  const outcome = claimEntry("main", name, { arrival_ms: Date.now(), random: randomHex(16) });
  check("claim " + name, outcome.kind === "claimed");
}
for (const claim of leftoverClaims("main")) {
  const read = readClaim(claim, 1000);
  check("read", (read.kind === "bytes") === (claim.look.kind === "file"));
  if (read.kind === "bytes") {
    check("copy", keepCopy(claim, null));
    dropClaim(claim);
  } else check("dispose", disposePoison(claim) === null);
}
check("drained", leftoverClaims("main").length === 0);
const bytes = new TextEncoder().encode("text");
for (const target of ["results", "inbox", "refused", "messages", "kit"]) {
  publication.publish("main", target, "a.json", bytes);
}
publication.publish("main", "kit", "shims/docker", bytes, { mode: 0o755 });
Deno.mkdirSync("spool/main/results/squat.json");
publication.publish("main", "results", "squat.json", bytes);
const output = publication.openOutput("main", "a.stdout");
output.append(bytes);
output.close();
check("remove", publication.removeResult("main", "a.json"));
check("remove", publication.removeRefused("main", 1) === false);
check("sweep", publication.sweepStaging("main") === 0);
const stuck = new StuckList();
check("stuck", stuck.note("main", "x.json", "EACCES") && stuck.report("main").count === 1);
let heard = 0;
const watch = new SpoolWatch({
  agents: ["main", "second"], pollMs: 60000,
  onEvent: (agent, name) => { if (agent === "main" && name === "new.json") heard++; },
  onScan: () => {}, log: () => {},
});
await watch.start();
check("watch", watch.mode("main") === "watch" && watch.mode("second") === "watch");
Deno.writeTextFileSync("spool/main/queue/new.json", "{}");
for (let i = 0; i < 500 && heard === 0; i++) await new Promise((done) => setTimeout(done, 10));
check("event", heard > 0);
watch.close();
lock.release();
console.log("all");
`;

Deno.test("every function of the spool works with the daemon's permissions", () => {
  using root = new SpoolRoot();
  Deno.writeTextFileSync("base/run.sh", "#!/bin/sh\n");
  Deno.chmodSync("base/run.sh", 0o755);
  put("a.json");
  put("Bad Name.json");
  sh(`mkfifo ${entry("f.json")}`);
  Deno.symlinkSync(root.hostFile("secret", "s3cret"), entry("l.json"));
  Deno.mkdirSync(entry("d.json/x"), { recursive: true });
  const script = join(root.outside, "script.ts");
  Deno.writeTextFileSync(script, SCRIPT);
  const { code, stdout, stderr } = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-config",
      "--no-lock",
      "--no-check",
      ...permissionFlags(["/usr/bin/true", "base/run.sh"], "/usr/bin/kill", [AGENT]),
      script,
    ],
    stdin: "null",
  }).outputSync();
  const decoder = new TextDecoder();
  assertEquals(decoder.decode(stdout).trim(), "all", decoder.decode(stderr));
  assertEquals(code, 0);
  assertEquals(names(PATHS.queue), ["new.json"]);
  assertEquals(names(root.outside), ["script.ts", "secret"]);
});
