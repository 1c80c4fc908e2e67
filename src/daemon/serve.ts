/**
 * `chb serve` and `chb once`: start-up in its order, signals, and the way out.
 *
 * The order of a start: permissions, layout, lock, ledger, trusted policy, giving up what is not
 * needed any more, pins, recovery, then the queue. Every refusal comes before anything was changed,
 * and all findings of one kind are told at once.
 *
 * @module
 */
import { BUILD } from "#build";
import { parseArgs } from "@std/cli/parse-args";
import { EXIT } from "../codes.ts";
import { errorCode, FatalError } from "../errors.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import { isId, printable } from "../names.ts";
import { policyPrograms } from "../policy/programs.ts";
import { checkLayout, checkProgram, ensureAgent, lockState } from "../spool/layout.ts";
import { look } from "../spool/look.ts";
import type { Finding } from "../spool/types.ts";
import { Bridge } from "./bridge.ts";
import { type Log, stderrLog } from "./log.ts";
import { openLedger } from "./open_ledger.ts";
import { giveUpPrograms, selfAudit } from "./self_audit.ts";
import { TrustStore } from "./trust_store.ts";

/** Milliseconds between two looks where change events arrive. */
const POLL_MS = 5000;

interface Options {
  readonly once: boolean;
  readonly pollMs: number;
}

function options(words: readonly string[]): Options | string {
  const [name, ...rest] = words;
  let unknown: string | null = null;
  const parsed = parseArgs([...rest], {
    string: ["poll-ms"],
    unknown: (arg: string) => {
      unknown = arg;
      return false;
    },
  });
  if (unknown !== null) return `unknown argument ${printable(unknown)}`;
  const text = parsed["poll-ms"];
  const pollMs = text === undefined ? POLL_MS : Number(text);
  if (!Number.isInteger(pollMs) || pollMs < 50 || pollMs > 3_600_000) {
    return "--poll-ms takes 50 to 3600000";
  }
  return { once: name === "once", pollMs };
}

/** Says every finding, each with its mend. */
function tell(findings: readonly Finding[], log: Log): void {
  for (const f of findings) {
    log(f.level === "error" ? "ERROR" : "WARN", "refused-to-start", {
      check: f.check,
      path: f.path,
      message: f.message,
      ...(f.mend === "" ? {} : { mend: f.mend }),
    });
  }
}

/** Agents of a host that never trusted a policy: the directories that are there. */
function agentsOnDisk(): string[] {
  const agents: string[] = [];
  for (const entry of Deno.readDirSync("spool")) {
    if (entry.isDirectory && isId(entry.name)) agents.push(entry.name);
  }
  return agents.sort();
}

/**
 * Serves until it is told to stop.
 *
 * @param words `serve` or `once` and what follows it
 * @param programs what this process was granted to run besides itself and the kill helper
 * @returns the exit code
 */
export async function serve(
  words: readonly string[],
  programs: readonly string[],
): Promise<number> {
  const log = stderrLog();
  const parsed = options(words);
  if (typeof parsed === "string") {
    log("ERROR", "usage", { message: parsed });
    return EXIT.usage;
  }
  const audit = selfAudit();
  if (audit.length > 0) {
    tell(audit, log);
    return EXIT.config;
  }
  try {
    if (look("state")?.kind !== "directory" || look("spool")?.kind !== "directory") {
      log("ERROR", "no-root", {
        cwd: Deno.cwd(),
        message: "run it in the root that chb init made",
      });
      return EXIT.config;
    }
  } catch (error) {
    log("ERROR", "no-root", { cwd: Deno.cwd(), error: errorCode(error) });
    return EXIT.config;
  }
  const first = checkLayout(agentsOnDisk(), { queueMode: () => null });
  if (first.some((f) => f.level === "error")) {
    tell(first, log);
    return EXIT.config;
  }
  // A human command holds the lock for a moment only.
  let lock = lockState();
  for (let tries = 0; lock === null && tries < 20; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    lock = lockState();
  }
  if (lock === null) {
    log("ERROR", "locked", {
      pid: otherPid(),
      message: "another daemon or a human command holds this root",
    });
    return EXIT.config;
  }
  try {
    return await serveLocked(parsed, programs, log);
  } catch (error) {
    // What is stored cannot be used: a person must look before anything is served.
    const refused = error instanceof LedgerError || error instanceof FatalError;
    log("ERROR", refused ? "fatal" : "internal", {
      error: error instanceof Error ? `${error.name}: ${error.message}` : "unknown",
    });
    return error instanceof LedgerError ? EXIT.config : EXIT.internal;
  } finally {
    lock.release();
  }
}

function otherPid(): string {
  try {
    return String(JSON.parse(Deno.readTextFileSync("state/daemon.json")).pid);
  } catch {
    return "unknown";
  }
}

async function serveLocked(
  opts: Options,
  programs: readonly string[],
  log: Log,
): Promise<number> {
  const opened = openLedger(Date.now, log);
  try {
    return await serveLedger(opened, opts, programs, log);
  } finally {
    try {
      opened.ledger.close();
    } catch (error) {
      log("WARN", "ledger-close", { error: errorCode(error) });
    }
  }
}

async function serveLedger(
  opened: ReturnType<typeof openLedger>,
  opts: Options,
  programs: readonly string[],
  log: Log,
): Promise<number> {
  const { ledger } = opened;
  const trust = new TrustStore();
  trust.reload(ledger);
  const { policy } = trust;
  const agents = policy === null ? agentsOnDisk() : [...policy.agents.keys()].sort();
  for (const agent of agents) ensureAgent(agent, policy?.agents.get(agent) ?? null);
  const findings = checkLayout(agents, {
    queueMode: (agent) => policy?.agents.get(agent) ?? null,
  });
  const own = policy === null ? [] : policyPrograms(policy);
  for (const program of own) findings.push(...checkProgram(program));
  if (findings.some((f) => f.level === "error")) {
    tell(findings, log);
    return EXIT.config;
  }
  const kept = giveUpPrograms([
    ...new Set([...programs, ...own].map((p) => p.startsWith("base/") ? `./${p}` : p)),
  ]);
  if (kept.length > 0) {
    log("ERROR", "grants-kept", { programs: kept.join(",") });
    return EXIT.config;
  }
  const bridge = new Bridge({ ...opened, trust, agents, log, ...opts });
  const stop = () => bridge.stop();
  for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, stop);
  // A terminal that goes away must not end the service.
  Deno.addSignalListener("SIGHUP", () => {});
  await bridge.run(() => {
    const line = `chb: ready root=${printable(Deno.cwd(), 400)} agents=${agents.join(",")}` +
      `${BUILD.source ? " source=true" : ""}${trust.policy === null ? " UNTRUSTED" : ""}\n`;
    try {
      Deno.stderr.writeSync(new TextEncoder().encode(line));
    } catch {
      // Nobody listens; the service goes on.
    }
  });
  return EXIT.ok;
}
