/**
 * `chb audit`: looks at the audit log. `verify` holds text, rotated segments and ledger against each
 * other, `head` prints what to note elsewhere, `tail` shows the newest records. Nothing is changed.
 *
 * @module
 */
import { EXIT } from "../codes.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { printable } from "../names.ts";
import { AuditText } from "../audit/audit_text.ts";
import {
  type AuditFault,
  type AuditProblem,
  type AuditReport,
  verifyAudit,
} from "../audit/verify.ts";
import { AUDIT_PATH, LEDGER_PATH } from "../daemon/open_ledger.ts";
import { Ledger } from "../ledger/ledger.ts";
import { LedgerError } from "../ledger/ledger_error.ts";
import type { RecordRef, StoredRecord } from "../ledger/types.ts";
import { stateHeld } from "../spool/layout.ts";
import { insistOnRoot } from "./agent_option.ts";
import type { Command, Io, Parsed } from "./command.ts";

/** Records that `tail` shows when it is not told, and at most. */
const TAIL = 20;
const TAIL_MAX = 10_000;
/** Longest fact of a record that `tail` shows, characters. */
const FACT_CHARS = 80;
/** Looks at a text that a daemon appends to, and the time between them, milliseconds. */
const TRIES = 8;
const BETWEEN_MS = 150;

const WORDS: Readonly<Record<AuditProblem, string>> = Object.freeze({
  altered: "was altered, or does not follow the one before it",
  missing: "is missing",
  reordered: "is not in its place",
  torn: "has no end",
  ledger: "is not what the ledger has in its place",
  row: "is not what a row of the ledger says of it",
  anchor: "",
});

/**
 * The ledger as it can be read now, or null when there is none.
 *
 * @param whole its records are all going to be verified, so that the first broken one is told and
 * not the first of the last few
 */
function openReader(whole = false): Ledger | null {
  try {
    return Ledger.open(LEDGER_PATH, {
      now: Date.now,
      mode: "reader",
      ...(whole ? { checkRecords: false } : {}),
    });
  } catch (error) {
    if (error instanceof LedgerError && error.kind === "missing") return null;
    if (error instanceof LedgerError && error.kind === "corrupt") {
      throw new ExitError(
        EXIT.finding,
        `${error.message}: the audit log does not hold. ${LOOK.trimEnd()}`,
      );
    }
    throw error;
  }
}

/**
 * Verifies; what a running daemon is just about to write is not told as missing.
 *
 * @throws {ExitError} when there is nothing to verify
 */
export async function verified(anchor?: string): Promise<AuditReport> {
  for (let left = TRIES;; left--) {
    const ledger = openReader(true);
    let report: AuditReport;
    try {
      report = verifyAudit(AUDIT_PATH, {
        ...(ledger === null ? {} : { ledger }),
        ...(anchor === undefined ? {} : { anchor }),
      });
      if (report.ok && ledger === null && report.records > 0) {
        throw new ExitError(
          EXIT.finding,
          `${LEDGER_PATH} is missing, and the audit log is there: look for it in a backup, and see ` +
            "./bin/chb ledger --help",
        );
      }
    } finally {
      ledger?.close();
    }
    const maybe = !report.ok && report.problem !== "anchor" && report.problem !== "altered";
    if (!maybe || left === 1 || !stateHeld()) return report;
    await new Promise((resolve) => setTimeout(resolve, BETWEEN_MS));
  }
}

/** A hash as it was noted: alone, or behind its number as `chb audit head` prints it. */
function anchorOf(text: string): string {
  const match = /^(?:[0-9]{1,16}[ :])?([0-9a-f]{64})$/.exec(text.trim());
  if (match?.[1] === undefined) {
    throw new UsageError("--anchor takes what chb audit head printed: a hash of 64 hex digits");
  }
  return match[1];
}

/** What a person does about a log that does not hold. */
const LOOK = "Keep a copy of state/ as it is now, then find out who or what wrote there.\n";

function sayFault(fault: AuditFault, anchor: string | undefined, io: Io): void {
  if (fault.problem === "anchor") {
    io.out(
      `NOT SOUND: no record has the hash ${anchor}\n` +
        "The chain holds together, but it is not the one that the hash was noted from, or that record is " +
        "removed by age.\n" + LOOK,
    );
    return;
  }
  const where = fault.where === undefined ? "" : ` (${printable(fault.where)})`;
  io.out(`NOT SOUND: record ${fault.seq} ${WORDS[fault.problem]}${where}\n${LOOK}`);
}

async function verify(args: Parsed, io: Io): Promise<number> {
  const noted = args.options["anchor"];
  const anchor = noted === undefined ? undefined : anchorOf(noted);
  const report = await verified(anchor);
  if (args.json) {
    io.out(JSON.stringify(report) + "\n");
    return report.ok ? EXIT.ok : EXIT.finding;
  }
  if (!report.ok) {
    sayFault(report, anchor, io);
    return EXIT.finding;
  }
  if (report.head === null) {
    io.out("sound: there are no records yet\n");
    return EXIT.ok;
  }
  io.out(`sound: records ${report.first} to ${report.head.seq}\n`);
  io.out(`head ${report.head.seq} ${report.head.hash}\n`);
  if (report.segments > 0) io.out(`rotated segments: ${report.segments}\n`);
  if (report.text_only > 0) {
    io.out(`in the text alone, no longer in the ledger: ${report.text_only}\n`);
  }
  if ((report.first ?? 1) > 1) io.out(`removed by age: records 1 to ${(report.first ?? 1) - 1}\n`);
  io.out(`results that name their record: ${report.rows}\n`);
  if (report.anchor !== null) io.out(`the anchor is record ${report.anchor}\n`);
  return EXIT.ok;
}

/** The newest records, oldest first, and the last one's place. */
function newest(count: number): { records: StoredRecord[]; head: RecordRef | null } {
  const ledger = openReader();
  if (ledger === null) return { records: [], head: new AuditText(AUDIT_PATH).textHead() };
  try {
    const head = ledger.head();
    const records = head === null || count === 0
      ? []
      : ledger.records(Math.max(1, head.seq - count + 1), count);
    return { records, head };
  } finally {
    ledger.close();
  }
}

function head(args: Parsed, io: Io): number {
  const last = newest(0).head;
  if (args.json) io.out(JSON.stringify(last) + "\n");
  else if (last === null) io.out("there are no records yet\n");
  else io.out(`${last.seq} ${last.hash}\n`);
  return EXIT.ok;
}

/**
 * A fact as people read it. Texts of agents were escaped when they were recorded; escaped again,
 * their backslashes would double. What is not plain ASCII all the same is escaped here.
 */
function fact(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const short = (/^[ -~]*$/.test(text) ? text : printable(text, 1000)).slice(0, FACT_CHARS + 1);
  const cut = short.length > FACT_CHARS ? `${short.slice(0, FACT_CHARS - 3)}...` : short;
  return typeof value === "string" ? `"${cut.replaceAll('"', '\\"')}"` : cut;
}

/** A record in one line for people; what an agent wrote is escaped in it already. */
function line(record: StoredRecord): string {
  const { seq, at, event, agent, id, prev: _prev, hash: _hash, ...rest } = JSON.parse(record.line);
  const who = typeof agent === "string" ? `${agent}${typeof id === "string" ? `/${id}` : ""}` : "";
  const facts = Object.entries(rest).filter(([name]) => !/sha256|digest|claim|control/.test(name))
    .map(([name, value]) => `${name}=${fact(value)}`);
  return [`${seq} ${at} ${event}`, printable(who, 200), ...facts].filter((w) => w !== "").join(" ");
}

function tail(args: Parsed, io: Io): number {
  const [, word] = args.positional;
  const count = word === undefined ? TAIL : Number(word);
  if (!Number.isInteger(count) || count < 1 || count > TAIL_MAX) {
    throw new UsageError(`chb audit tail takes a number from 1 to ${TAIL_MAX}`);
  }
  for (const record of newest(count).records) {
    io.out((args.json ? record.line : line(record)) + "\n");
  }
  return EXIT.ok;
}

export const audit: Command = {
  name: "audit",
  summary: "Verify the audit log, or show its end",
  usage: "verify [--anchor HASH] | head | tail [N]",
  details: [
    "verify   holds text, rotated segments and ledger against each other; tells the first record",
    "         that was altered, is missing or is not in its place, and exits 1 then",
    "head     prints number and hash of the newest record: note them where this host cannot write",
    "tail     prints the newest records (20), as they are with --json",
    "--anchor HASH   a hash that was noted: the chain must still have it",
  ],
  example: './bin/chb audit verify --anchor "$(cat noted)"',
  flags: [],
  options: ["anchor"],
  json: true,
  words: 2,
  async run(args, io) {
    insistOnRoot();
    const [what, ...more] = args.positional;
    if (more.length > 0 && what !== "tail") {
      throw new UsageError(`Unexpected argument ${printable(more[0] ?? "", 100)}`);
    }
    if (what !== "verify" && args.options["anchor"] !== undefined) {
      throw new UsageError("--anchor belongs to chb audit verify");
    }
    try {
      switch (what) {
        case "verify":
          return await verify(args, io);
        case "head":
          return head(args, io);
        case "tail":
          return tail(args, io);
      }
    } catch (error) {
      if (errorCode(error) === "EACCES") {
        throw new ExitError(
          EXIT.internal,
          "the audit log cannot be read: be the user who owns state/, or in the group of audit_gid",
        );
      }
      throw error;
    }
    throw new UsageError("Say what: chb audit verify, head or tail");
  },
};
