/** Gives up what a shim gives up, then tries what it must not be able to do, and prints the lot. */
import { giveUpGrants } from "../../src/run/give_up_grants.ts";

const state = (descriptor: Deno.PermissionDescriptor) =>
  Deno.permissions.querySync(descriptor).state;

const before = {
  read: state({ name: "read", path: "./state/ledger.db" }),
  write: state({ name: "write", path: "./spool/main/queue/new" }),
  run: state({ name: "run", command: "./bin/chb" }),
};
const wrong = giveUpGrants();

function attempt(action: () => void): string {
  try {
    action();
    return "ok";
  } catch (error) {
    return error instanceof Error ? error.name : "thrown";
  }
}

function tried(names: string[], action: (name: string) => void): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, attempt(() => action(name))]));
}

const read = tried([
  "spool/main/queue/r1.json",
  "work/main/claims/x",
  "keys/k",
  "bridge.jsonc",
  "state/ledger.db",
  "state/control/x",
  "state/audit/audit.jsonl",
  "state/runs/x",
  "state/policies/x",
  "base/x",
], (path) => Deno.readTextFileSync(path));
const write = tried([
  "spool/main/queue/new",
  "work/main/claims/new",
  "state/new",
  "state/KILL",
  "state/policies/new",
  "base/new",
  "state/runs/new",
], (path) => Deno.writeTextFileSync(path, "x"));
const run = tried(["./bin/chb", "/usr/bin/id", "/usr/bin/true"], (program) => {
  new Deno.Command(program, { clearEnv: true, stdin: "null", stdout: "null", stderr: "null" })
    .outputSync();
});

console.log(JSON.stringify({ before, wrong, read, write, run }));
