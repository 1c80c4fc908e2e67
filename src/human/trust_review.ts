/**
 * What a person is shown before a policy is trusted: what differs from the one in force, which files
 * are others than at the last time, and what the engines make of the compose files.
 *
 * What could not be looked at is said to be `not checked`, never passed over: silence would read as
 * "fine".
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { randomHex } from "../names.ts";
import { LEDGER_PATH } from "../daemon/open_ledger.ts";
import { HASHES, loadPolicy, sha256 } from "../daemon/trust_store.ts";
import { Ledger } from "../ledger/ledger.ts";
import { type ComposeConfig, composeConfig } from "../policy/compose_command.ts";
import { deniedCompose } from "../policy/compose_denials.ts";
import type { Policy } from "../policy/policy.ts";
import { capture, mayRun } from "../run/capture.ts";
import { look } from "../spool/look.ts";
import { policyDiff, policyLines } from "./policy_words.ts";

/** Files of `base/` that are hashed, at most; deeper trees than that are not base files. */
const MAX_FILES = 1000;
/** Largest file that is hashed, bytes. */
const MAX_BYTES = 1024 * 1024 * 1024;
/** Bounds of an engine's `config`. */
const CONFIG = { timeout_ms: 20_000, max_bytes: 8 * 1024 * 1024 };

/** Path and SHA-256; the hash is a word in brackets where there is none. */
export type Hashes = ReadonlyMap<string, string>;

/** What was trusted before. */
export interface Before {
  readonly policy: Policy | null;
  /** Why the policy in force cannot be compared with, or null. */
  readonly why: string | null;
  readonly hashes: Hashes;
}

/** What is in force now, as far as it can be read. */
export function readBefore(): Before {
  let ledger: Ledger;
  try {
    ledger = Ledger.open(LEDGER_PATH, { now: Date.now, mode: "reader" });
  } catch {
    return { policy: null, why: null, hashes: new Map() };
  }
  try {
    const trust = ledger.currentTrust();
    const hashes = new Map<string, string>(JSON.parse(ledger.meta(HASHES) ?? "[]"));
    if (trust === null) return { policy: null, why: null, hashes };
    try {
      return { policy: loadPolicy(trust.policy), why: null, hashes };
    } catch {
      return { policy: null, why: "the policy in force cannot be read", hashes };
    }
  } finally {
    ledger.close();
  }
}

/** Stands for the hash of what is there and no regular file. */
const NO_FILE = "(no plain file)";

function hashOf(path: string): string {
  try {
    const seen = look(path);
    if (seen === null) return "(missing)";
    if (seen.kind !== "file") return NO_FILE;
    if (seen.size > MAX_BYTES) return "(too large)";
    return sha256(Deno.readFileSync(path));
  } catch (error) {
    return `(${errorCode(error) ?? "cannot be read"})`;
  }
}

/** Every file below `base/`, sorted. */
function baseFiles(directory = "base", found: string[] = []): string[] {
  for (const entry of Deno.readDirSync(directory)) {
    if (found.length >= MAX_FILES) break;
    const path = `${directory}/${entry.name}`;
    if (entry.isDirectory) baseFiles(path, found);
    else found.push(path);
  }
  return found.sort();
}

/** Hashes of everything that the trusted base consists of besides the policy. */
export function hashBase(programs: readonly string[]): Hashes {
  const paths = new Set(["bin/chb", ...baseFiles(), ...programs]);
  return new Map([...paths].sort().map((path) => [path, hashOf(path)]));
}

/**
 * What in `base/` is neither a file nor a directory. A link that came along with a copied tree leads
 * wherever its author wanted; a start refuses it, and so does a trust.
 */
export function notPlain(hashes: Hashes): string[] {
  return [...hashes].flatMap(([path, hash]) =>
    path.startsWith("base/") && hash === NO_FILE ? [path] : []
  );
}

/** Lines on the files: what is new, gone or another one; `all` tells the rest too. */
export function fileLines(before: Hashes, now: Hashes, all: boolean): string[] {
  const lines: string[] = [];
  for (const path of before.keys()) if (!now.has(path)) lines.push(`- file ${path}`);
  for (const [path, hash] of now) {
    const was = before.get(path);
    if (was === undefined) lines.push(`+ file ${path}`, `    sha256 ${hash}`);
    else if (was !== hash) {
      lines.push(`~ file ${path}`, `      was sha256 ${was}`, `      now sha256 ${hash}`);
    } else if (all) lines.push(`  file ${path}`, `    sha256 ${hash}`);
  }
  return lines;
}

/** Lines on the policy: what differs, or all of it when there is nothing to compare with. */
export function reviewLines(before: Before, policy: Policy): string[] {
  const salt = randomHex(16);
  if (before.policy === null) {
    const why = before.why === null ? [] : [`not compared: ${before.why}`];
    return [...why, ...policyLines(policy, salt)];
  }
  if (before.policy.digest === policy.digest) return ["The policy is the one in force."];
  const lines = policyDiff(before.policy, policy, salt);
  return lines.length > 0
    ? lines
    : ["Only comments, order or white space differ from the policy in force."];
}

/** What came of the look at one verb's compose files. */
export interface ComposeCheck {
  readonly verbs: readonly string[];
  readonly files: readonly string[];
  /** Why it was not checked, or null. */
  readonly not_checked: string | null;
  /** What hands over the host. */
  readonly denied: readonly { readonly path: string; readonly message: string }[];
}

async function checkOne(
  config: Extract<ComposeConfig, { command: unknown }>,
  root: string,
): Promise<Pick<ComposeCheck, "not_checked" | "denied">> {
  const no = (why: string) => ({ not_checked: why, denied: [] });
  if (!mayRun(config.command.program)) return no("this executable may not run the program");
  let captured;
  try {
    captured = await capture(config.command, CONFIG);
  } catch (error) {
    return no(`the program could not be started (${errorCode(error) ?? "refused"})`);
  }
  if (captured === null) return no("the engine's config took too long or said too much");
  if (captured.code !== 0) return no(`the engine's config exited with ${captured.code}`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(captured.stdout);
    return { not_checked: null, denied: deniedCompose(JSON.parse(text), root) };
  } catch {
    return no("the engine's config gave no JSON");
  }
}

/** Lets the engines tell what the compose files of all verbs come to, and judges it. */
export async function checkCompose(policy: Policy, root: string): Promise<ComposeCheck[]> {
  const checks: ComposeCheck[] = [];
  const known = new Map<string, { verbs: string[] }>();
  for (const verb of policy.verbs.values()) {
    const config = composeConfig(verb, root);
    if (config === null) continue;
    const name = JSON.stringify(config);
    const seen = known.get(name);
    if (seen !== undefined) {
      seen.verbs.push(verb.name);
      continue;
    }
    const verbs = [verb.name];
    known.set(name, { verbs });
    checks.push(
      "why" in config
        ? { verbs, files: [], not_checked: config.why, denied: [] }
        : { verbs, files: config.files, ...await checkOne(config, root) },
    );
  }
  return checks;
}

/** Lines on the compose files. */
export function composeLines(checks: readonly ComposeCheck[]): string[] {
  return checks.flatMap(({ verbs, files, not_checked, denied }) => {
    const what = `compose ${files.join(", ") || "file"} (${verbs.join(", ")})`;
    if (not_checked !== null) return [`${what}: NOT CHECKED, ${not_checked}: read it yourself`];
    if (denied.length === 0) return [`${what}: nothing of it hands over the host`];
    return [`${what}: DENIED`, ...denied.map((d) => `    ${d.path}: ${d.message}`)];
  });
}
