/**
 * `chb serve` and `chb once`: start-up in its order, signals, and the way out.
 *
 * The order of a start: permissions, layout, giving up what is not needed any more, lock, ledger,
 * trusted policy, pins, recovery, then the queue. Every refusal comes before anything of an agent's
 * was changed, and all findings are told at once, each with what mends it.
 *
 * @module
 */
import { BUILD } from "#build";
import { parseArgs } from "@std/cli/parse-args";
import { EXIT } from "../codes.ts";
import { errorCode, FatalError } from "../errors.ts";
import { Ledger } from "../ledger/ledger.ts";
import { LedgerError, type LedgerErrorKind, LOSSES } from "../ledger/ledger_error.ts";
import { printable } from "../names.ts";
import type { Policy } from "../policy/policy.ts";
import { baseNames } from "../policy/base_names.ts";
import { policyPrograms } from "../policy/programs.ts";
import {
  checkLayout,
  checkProgram,
  ensureAgent,
  ensureState,
  lockState,
  lockStateSoon,
} from "../spool/layout.ts";
import { daemonUid } from "../spool/daemon_uid.ts";
import type { Finding } from "../spool/types.ts";
import { agentsOnDisk, kindOf } from "./agents_on_disk.ts";
import { Bridge } from "./bridge.ts";
import { notGranted } from "./host_findings.ts";
import { type Log, stderrLog } from "./log.ts";
import { LEDGER_PATH, openLedger } from "./open_ledger.ts";
import { giveUpPrograms, selfAudit } from "./self_audit.ts";
import { TrustStore } from "./trust_store.ts";

/** Milliseconds between two looks where change events arrive. */
const POLL_MS = 5000;

/**
 * What may pass without a human: a full disk, one that takes no changes for now, a device that
 * failed. A unit starts the service again then, which it never does after `EXIT.config` (S1, S4, S5).
 */
const PASSING: ReadonlySet<LedgerErrorKind> = new Set(["busy", "full", "io", "readonly"]);
const PASSING_CODES: ReadonlySet<string> = new Set([
  "EDQUOT",
  "EIO",
  "EMFILE",
  "ENFILE",
  "ENOSPC",
  "EROFS",
]);
/** Wait after such a failure, milliseconds: fewer starts a minute than make a unit give up. */
const PASSING_MS = 15_000;

interface Options {
  readonly once: boolean;
  readonly pollMs: number;
  readonly events: boolean;
}

function options(words: readonly string[]): Options | string {
  const [name, ...rest] = words;
  let unknown: string | null = null;
  const parsed = parseArgs([...rest], {
    string: ["poll-ms"],
    boolean: ["no-events"],
    unknown: (arg: string) => {
      unknown = arg;
      return false;
    },
  });
  if (unknown !== null) {
    return `unknown argument ${printable(unknown)}: see chb ${name ?? "serve"} --help`;
  }
  const text = parsed["poll-ms"];
  const pollMs = text === undefined ? POLL_MS : Number(text);
  if (!Number.isInteger(pollMs) || pollMs < 50 || pollMs > 3_600_000) {
    return "--poll-ms takes 50 to 3600000";
  }
  return { once: name === "once", pollMs, events: parsed["no-events"] !== true };
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

/**
 * False where the init script never ran, which is the place to say so: the mends of findings are
 * commands for a root, and would do harm elsewhere. One name of a room alone proves nothing.
 */
function isRoot(): boolean {
  const rooms = ["state", "spool", "work"].filter((room) => kindOf(room) !== null);
  return rooms.length > 1 || kindOf("bridge.jsonc") !== null;
}

/**
 * What is wrong with the root and with the programs of a policy.
 *
 * @param policy the trusted one, or null when there is none or it is not known
 * @param granted programs that may be run, as policies name them
 */
function rootFindings(policy: Policy | null, granted: ReadonlySet<string>): Finding[] {
  return [
    ...checkLayout(agentsOnDisk(policy), {
      queueMode: (agent) => policy?.agents.get(agent) ?? null,
      baseNames: policy === null ? null : baseNames(policy),
    }),
    ...(policy === null
      ? []
      : policyPrograms(policy).flatMap((program) =>
        granted.has(program) ? checkProgram(program) : [notGranted(program)]
      )),
  ];
}

/**
 * The same for a start that is refused anyway, so that it can tell everything at once. The ledger is
 * opened for it where nothing is wrong with `state/`, and never made.
 *
 * @param known what was found without the policy
 */
function allFindings(
  known: readonly Finding[],
  granted: ReadonlySet<string>,
): readonly Finding[] {
  if (known.some(({ path }) => path === "state" || path.startsWith("state/"))) return known;
  if (kindOf(LEDGER_PATH) !== "file") return known;
  const lock = lockState();
  if (lock === null) return known;
  try {
    const ledger = Ledger.open(LEDGER_PATH, { now: Date.now, mode: "writer" });
    try {
      const trust = new TrustStore(granted);
      trust.reload(ledger);
      return rootFindings(trust.policy, granted);
    } finally {
      ledger.close();
    }
  } catch {
    // What is wrong with the ledger is said by a start that gets as far as using it.
    return known;
  } finally {
    lock.release();
  }
}

/** Gives up running these programs. False when that failed, which ends the start. */
function dropPrograms(programs: readonly string[], log: Log): boolean {
  const kept = giveUpPrograms(programs.map((p) => p.startsWith("base/") ? `./${p}` : p));
  if (kept.length > 0) log("ERROR", "grants-kept", { programs: kept.join(",") });
  return kept.length === 0;
}

/**
 * A fault that belongs to no request ends the daemon: what it was about to do is not known any more,
 * and the next start decides from the ledger (S13). It ends itself, because a runtime that ends on
 * such a fault by itself takes its children along, the shims and with them the outcome of what they
 * run (X18).
 */
function endOnFault(log: Log): void {
  const end = (error: unknown) => {
    const what = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    log("ERROR", "internal", { error: what });
    Deno.exit(EXIT.internal);
  };
  globalThis.addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    end(event.reason);
  });
  globalThis.addEventListener("error", (event) => {
    event.preventDefault();
    end(event.error);
  });
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
  endOnFault(log);
  const parsed = options(words);
  if (typeof parsed === "string") {
    log("ERROR", "usage", { message: parsed });
    return EXIT.usage;
  }
  const audit = selfAudit();
  if (!isRoot()) {
    tell(audit, log);
    log("ERROR", "no-root", {
      cwd: Deno.cwd(),
      message: "this is no bridge: run it in the root that the init script made",
      mend: "cd ROOT && ./bin/chb serve",
    });
    return EXIT.config;
  }
  const granted = new Set(programs.map((p) => p.startsWith("./base/") ? p.slice(2) : p));
  const findings = rootFindings(null, granted);
  const refused = [...audit, ...findings].some((f) => f.level === "error");
  // Before anything is read that an agent wrote, the ledger's rows and texts included. Who has
  // permissions without bounds cannot drop them, and is told so.
  const dropped = dropPrograms(programs, refused ? () => {} : log);
  if (refused) {
    const all = [...audit, ...allFindings(findings, granted)];
    tell(all, log);
    return await leave(refusal(all), parsed, log);
  }
  if (!dropped) return EXIT.config;
  // A human command holds the lock for a moment only.
  const lock = await lockStateSoon();
  if (lock === null) {
    const pid = otherPid();
    log("ERROR", "locked", {
      pid: pid ?? "unknown",
      message: "another daemon or a human command holds this root",
      // No command that ends it: the number may belong to another process by now.
      mend: "./bin/chb status",
    });
    return EXIT.config;
  }
  let end: number;
  try {
    end = await serveLocked(parsed, granted, log);
  } catch (error) {
    // What is stored cannot be used: a person must look before anything is served.
    const refused = error instanceof LedgerError || error instanceof FatalError;
    log("ERROR", refused ? "fatal" : "internal", {
      error: error instanceof Error ? `${error.name}: ${error.message}` : "unknown",
      ...(error instanceof LedgerError && LOSSES.has(error.kind)
        ? { mend: './bin/chb ledger accept-loss --reason "…"' }
        : {}),
    });
    end = passes(error)
      ? EXIT.tryAgain
      : error instanceof LedgerError
      ? EXIT.config
      : EXIT.internal;
  } finally {
    lock.release();
  }
  return await leave(end, parsed, log);
}

/**
 * The exit code of a start that findings refuse: what may pass is no matter of the layout, though
 * nothing can be judged without a file in `state/`.
 */
function refusal(findings: readonly Finding[]): number {
  const errors = findings.filter(({ level }) => level === "error");
  if (errors.some(({ check }) => check !== "not-writable")) return EXIT.config;
  try {
    daemonUid();
    return EXIT.tryAgain;
  } catch (error) {
    return passes(error) ? EXIT.tryAgain : EXIT.config;
  }
}

/** Waits before a code that has the service started again. @returns the code */
async function leave(end: number, parsed: Options, log: Log): Promise<number> {
  if (end === EXIT.tryAgain && !parsed.once) {
    // Whoever reads of it may already tell it to stop.
    const paused = pause(PASSING_MS);
    log("WARN", "try-again", {
      message: "this process leaves, to be started again",
      ms: PASSING_MS,
    });
    await paused;
  }
  return end;
}

/** True for a failure that may be over at the next start. */
function passes(error: unknown): boolean {
  return error instanceof LedgerError
    ? PASSING.has(error.kind)
    : PASSING_CODES.has(errorCode(error) ?? "");
}

/** Waits, but not after being told to stop. */
async function pause(ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  const stop = () => resolve();
  for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, stop);
  await promise;
  clearTimeout(timer);
}

/** The process that said last that it serves this root, or null. */
function otherPid(): number | null {
  try {
    const { pid } = JSON.parse(Deno.readTextFileSync("state/daemon.json"));
    return Number.isSafeInteger(pid) && pid > 1 ? pid : null;
  } catch {
    return null;
  }
}

async function serveLocked(
  opts: Options,
  granted: ReadonlySet<string>,
  log: Log,
): Promise<number> {
  ensureState();
  const opened = openLedger(Date.now, log);
  try {
    return await serveLedger(opened, opts, granted, log);
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
  granted: ReadonlySet<string>,
  log: Log,
): Promise<number> {
  const { ledger } = opened;
  const trust = new TrustStore(granted);
  trust.reload(ledger);
  const { policy } = trust;
  const agents = policy === null ? agentsOnDisk(null) : [...policy.agents.keys()].sort();
  const findings = rootFindings(policy, granted);
  if (findings.some((f) => f.level === "error")) {
    tell(findings, log);
    return refusal(findings);
  }
  const own = policy === null ? [] : policyPrograms(policy);
  // Only what was looked at is added to: nothing is made through a link that has an agent's name.
  for (const agent of agents) ensureAgent(agent, policy?.agents.get(agent) ?? null);
  const made = rootFindings(policy, granted);
  if (made.some((f) => f.level === "error")) {
    tell(made, log);
    return EXIT.config;
  }
  if (!dropPrograms(own, log)) return EXIT.config;
  const bridge = new Bridge({ ledger, opened, trust, agents, log, ...opts });
  const stop = () => bridge.stop();
  for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, stop);
  // A terminal that goes away must not end the service.
  Deno.addSignalListener("SIGHUP", () => {});
  await bridge.run(() => {
    if (trust.policy === null) {
      log("WARN", "untrusted", {
        message: "every verb is refused until a human trusts a policy",
        mend: "./bin/chb trust",
      });
    }
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
