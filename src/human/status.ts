/**
 * `chb status`: whether the daemon runs and what it has to do, read from the ledger and never from
 * a file that a sandbox can write.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { isoTime } from "../result.ts";
import { Ledger } from "../ledger/ledger.ts";
import { stateHeld } from "../spool/layout.ts";
import { look } from "../spool/look.ts";
import { raisedSwitches, switchAgent, switchText } from "../daemon/kill_switch.ts";
import { LEDGER_PATH } from "../daemon/open_ledger.ts";
import type { Still } from "../daemon/stills.ts";
import { sha256 } from "../daemon/trust_store.ts";
import { type Command, table } from "./command.ts";
import { silentFor } from "./exam_service.ts";
import { ownScreen, watchStatus } from "./status_watch.ts";

/** What `state/daemon.json` says; information, the lock decides. */
interface DaemonFacts {
  readonly pid: number;
  readonly version: string;
  readonly started_at: string;
  readonly agents: readonly string[];
  /** Programs of the policy that it may run only after its next start. */
  readonly waiting?: readonly string[];
  /** Processes of the bridge that stand still, and what they run. */
  readonly still?: readonly Still[];
}

/** True when what a human edits is not what is in force. */
export function isEdited(trusted: string | null): boolean {
  try {
    return trusted !== null && sha256(Deno.readFileSync("bridge.jsonc")) !== trusted;
  } catch {
    return false;
  }
}

function readDaemonFacts(): DaemonFacts | null {
  try {
    return JSON.parse(Deno.readTextFileSync("state/daemon.json"));
  } catch {
    return null;
  }
}

export const status: Command = {
  name: "status",
  summary: "Tell whether the daemon runs and what it has to do",
  usage: "[--watch [--plain]]",
  details: [
    "Exits 69 when no daemon serves this root.",
    "--watch   shows what runs, waits and came last, until q or Ctrl-C; changes when it does",
    "--plain   with --watch: print lines instead of drawing on the screen, as into a pipe",
  ],
  example: "./bin/chb status --json",
  flags: ["watch", "plain"],
  options: [],
  json: true,
  async run(args, io) {
    if (look("state")?.kind !== "directory") {
      throw new ExitError(
        EXIT.config,
        "no bridge here: run it in the root that the init script made",
      );
    }
    const plain = args.flags["plain"] === true;
    if (args.flags["watch"] === true) {
      if (args.json) throw new UsageError("--watch prints no JSON: ask again instead");
      await watchStatus(io, ownScreen(), plain);
      return EXIT.ok;
    }
    if (plain) throw new UsageError("--plain belongs to --watch");
    const serving = stateHeld();
    const facts = readDaemonFacts();
    let ledger: Ledger;
    try {
      ledger = Ledger.open(LEDGER_PATH, { now: Date.now, mode: "reader" });
    } catch (error) {
      if (errorCode(error) === "ENOENT" || !serving) {
        if (args.json) io.out(JSON.stringify({ serving, ledger: null }) + "\n");
        else if (look(LEDGER_PATH) !== null) {
          io.out("not serving; the ledger is empty or cannot be read: see ./bin/chb doctor\n");
        } else io.out("not serving, and nothing was trusted yet: ./bin/chb trust, then serve\n");
        return EXIT.noDaemon;
      }
      throw new ExitError(
        EXIT.internal,
        "the ledger cannot be read: be the user who owns state/, and look at ./bin/chb doctor",
      );
    }
    try {
      const trust = ledger.currentTrust();
      const unfinished = ledger.unfinished();
      const agents = [...new Set([...(facts?.agents ?? []), ...unfinished.map((r) => r.agent)])];
      const recent = agents.flatMap((a) => ledger.recent(a, 10));
      recent.sort((a, b) => b.rid - a.rid);
      const head = ledger.head();
      const edited = isEdited(trust?.policy ?? null);
      const kill = raisedSwitches();
      const waiting = serving ? facts?.waiting ?? [] : [];
      const approvals = unfinished.filter((r) =>
        r.state === "pending" && ledger.approval(r.rid)?.state === "waiting"
      ).length;
      if (args.json) {
        io.out(
          JSON.stringify({
            serving,
            daemon: facts,
            policy: trust?.policy ?? null,
            edited,
            kill,
            running: unfinished.filter((r) =>
              r.state === "running"
            ).length,
            pending: unfinished.filter((r) => r.state === "pending").length,
            approvals,
            audit: head,
            recent: recent.slice(0, 10).map((r) => ({
              agent: r.agent,
              id: r.id,
              verb: r.verb,
              state: r.state,
              outcome: r.outcome,
              received_at: isoTime(r.received_ms),
            })),
          }) + "\n",
        );
        return serving ? EXIT.ok : EXIT.noDaemon;
      }
      io.out(
        serving
          ? `serving: pid ${facts?.pid ?? "unknown"}, since ${facts?.started_at ?? "unknown"}\n`
          : "not serving: start it with ./bin/chb serve\n",
      );
      const silent = serving ? silentFor(facts?.agents ?? [], Date.now()) : null;
      if (silent !== null) {
        io.out(
          `but it has told nothing for ${silent} s, as one that was stopped: ./bin/chb doctor\n`,
        );
      }
      io.out(
        trust === null
          ? "policy: UNTRUSTED, put one in force: ./bin/chb trust\n"
          : `policy: ${trust.policy.slice(0, 12)}, trusted ${isoTime(trust.at_ms)}` +
            `${trust.by === "" ? "" : ` by ${printable(trust.by)}`}\n`,
      );
      if (edited) io.out("bridge.jsonc differs from it: ./bin/chb trust puts it in force\n");
      if (waiting.length > 0) {
        io.out("the daemon may run these only after its next start:\n");
        for (const program of waiting) io.out(`  ${printable(program)}\n`);
      }
      for (const name of kill) {
        io.out(`${name} is up, nothing ${name === "KILL" ? "" : "of this agent "}starts:\n`);
        const agent = switchAgent(name);
        const why = switchText(name);
        if (why !== "") io.out(`  ${why}\n`);
        io.out(`  ./bin/chb resume${typeof agent === "string" ? ` --agent ${agent}` : ""}\n`);
      }
      for (const { pid, agent, id } of serving ? facts?.still ?? [] : []) {
        const what = id === null ? "" : `, which runs ${printable(`${agent}/${id}`)}`;
        io.out(`a process stands still${what}; let it go on:\n`);
        io.out(pid === null ? "  ./bin/chb doctor\n" : `  kill -CONT ${pid}\n`);
      }
      const running = unfinished.filter((r) => r.state === "running").length;
      io.out(`running ${running}, pending ${unfinished.length - running}\n`);
      if (approvals > 0) io.out(`${approvals} of them for your word: ./bin/chb pending\n`);
      if (head !== null) io.out(`audit: ${head.seq} ${head.hash.slice(0, 12)}\n`);
      if (recent.length > 0) {
        io.out(
          table(
            recent.slice(0, 10).map((r) => [
              isoTime(r.received_ms).slice(5, 19),
              r.outcome ?? r.state,
              r.verb.slice(0, 16),
              // Last and whole: it is what show, cancel and resolve are given.
              `${r.agent}/${r.id}`,
            ]),
          ) + "\n",
        );
      }
      return serving ? EXIT.ok : EXIT.noDaemon;
    } finally {
      ledger.close();
    }
  },
};
