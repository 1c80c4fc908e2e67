/**
 * An order to a command that may be started, or to the reason why not. The shim resolves the
 * command itself: the process that reads hostile requests never hands it an argument vector.
 *
 * 1. Policy comes from the host-only store alone, and only when its bytes have the digest that
 *    the order names.
 * 2. The verb must be one of the agent's, the arguments must pass the same checks again, and no
 *    limit may be wider than the policy's.
 * 3. The resolved command must be, byte for byte, the one whose digest was recorded before the
 *    start was committed.
 * 4. The program and every required file must be the ones that a human trusted; a program without
 *    content or of no executable format never is (X8).
 * 5. Every branch that is not the last one refuses.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { checkArgs } from "../policy/check_args.ts";
import { notifyVerb } from "../policy/notify_verb.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import type { FileIdentity, Policy, ResolvedCommand, VerbPolicy } from "../policy/policy.ts";
import { commandDigest, resolveCommand, resolveLookup } from "../policy/resolve_command.ts";
import { readBounded } from "./bounded_file.ts";
import { hashFile, lookFile, lookProgram, sameFile } from "./file_identity.ts";
import type { Order } from "./order.ts";
import { POLICIES, resolveContext } from "./run_dir.ts";

/** Longest policy text in bytes. */
const POLICY_BYTES_MAX = 4 * 1024 * 1024;
/** Policies kept parsed; a shim rarely sees more than the current one. */
const CACHE_MAX = 4;

/** What came of looking at an order. `detail` is a fixed word for the log. */
export type Verified =
  | {
    readonly ok: true;
    readonly command: ResolvedCommand;
    /** The order asks for it and the verb only observes. */
    readonly reuse: boolean;
  }
  | { readonly ok: false; readonly detail: string; readonly error?: unknown };

const cache = new Map<string, Policy>();

function no(detail: string): { readonly ok: false; readonly detail: string } {
  return { ok: false, detail };
}

/** The bytes of a stored policy, or null when they cannot be had. */
function policyBytes(digest: string): Uint8Array | null {
  try {
    return readBounded(`${POLICIES}/${digest}.jsonc`, POLICY_BYTES_MAX);
  } catch {
    return null;
  }
}

/** The trusted policy of a digest, or null when the store has none with these bytes. */
function loadPolicy(digest: string): Policy | null {
  const known = cache.get(digest);
  if (known !== undefined) return known;
  const bytes = policyBytes(digest);
  if (bytes === null) return null;
  if (createHash("sha256").update(bytes).digest("hex") !== digest) return null;
  const parsed = parsePolicy(bytes);
  if (!parsed.ok) return null;
  if (cache.size >= CACHE_MAX) cache.clear();
  cache.set(digest, parsed.policy);
  return parsed.policy;
}

/**
 * Loads the policy that the next order most likely names, the one stored last, so that a shim's
 * first order does not wait for it. Never throws: an order whose policy is missing says so itself.
 */
export function warmPolicy(): void {
  try {
    let newest = { name: "", mtime: -Infinity };
    for (const entry of Deno.readDirSync(POLICIES)) {
      const mtime = Deno.statSync(`${POLICIES}/${entry.name}`).mtime?.getTime() ?? 0;
      if (mtime > newest.mtime) newest = { name: entry.name, mtime };
    }
    const match = /^([0-9a-f]{64})\.jsonc$/.exec(newest.name);
    if (match?.[1] !== undefined) loadPolicy(match[1]);
  } catch {
    // There is none yet, or it cannot be read now.
  }
}

/** The content of required files by what the file was, so that an unchanged one is read once. */
const hashes = new Map<string, { identity: FileIdentity; sha256: string }>();

/** SHA-256 of a required file, or null when it is no regular file. */
function contentOf(path: string): string | null {
  const look = lookFile(path);
  if (!look.ok) return null;
  const known = hashes.get(path);
  if (known !== undefined && sameFile(known.identity, look.identity)) return known.sha256;
  const sha256 = hashFile(path);
  hashes.set(path, { identity: look.identity, sha256 });
  return sha256;
}

/** Why the required files of a verb are not the trusted ones, or null. */
function baseDiffers(order: Order, verb: VerbPolicy): string | null {
  const trusted = new Map((order.requires ?? []).map((file) => [file.path, file.sha256]));
  for (const path of verb.requires) {
    const wanted = trusted.get(path);
    if (wanted === undefined) return "required-file-not-in-order";
    if (contentOf(path) !== wanted) return "required-file-differs";
  }
  return null;
}

/** The verb of an order, when the policy gives it to the order's agent. */
function verbOf(order: Order, policy: Policy): VerbPolicy | null {
  const agent = policy.agents.get(order.agent);
  if (agent === undefined || !agent.verbs.includes(order.verb)) return null;
  return policy.verbs.get(order.verb) ?? null;
}

/** What an order comes to as far as it and its policy say, whatever lies on the disk. */
export type Resolved =
  | { readonly ok: true; readonly command: ResolvedCommand; readonly verb: VerbPolicy }
  | { readonly ok: false; readonly detail: string; readonly error?: unknown };

/**
 * The part of the checks that depends on nothing but the order's bytes and the policy that it
 * names, so that it may be done before the order is taken.
 *
 * @param pid the shim's own pid, which the order must name as its process group
 * @param root absolute path of the root
 * @returns never throws: what cannot be read is not trusted
 */
export function resolveOrder(order: Order, pid: number, root: string): Resolved {
  try {
    if (order.pgid !== pid) return no("other-shim");
    const policy = loadPolicy(order.policy);
    if (policy === null) return no("policy-differs");
    const verb = order.notify === true ? notifyVerb(policy) : verbOf(order, policy);
    if (verb === null) return no("verb-not-allowed");
    const lookup = order.lookup === true;
    const limit_s = lookup ? verb.lookup?.timeout_s ?? 0 : verb.timeout_s;
    if (order.timeout_ms > limit_s * 1000) return no("timeout-wider-than-policy");
    if (verb.takes_max_spend && !lookup) {
      const most = policy.limits.spend?.per_request ?? -1;
      if (order.max_spend === null || order.max_spend > most) return no("spend-wider-than-policy");
    }
    if (order.output_cap > policy.limits.output_bytes) return no("output-wider-than-policy");
    const checked = checkArgs(verb, order.args);
    if (!checked.ok) return no("arguments-refused");
    const resolve = lookup ? resolveLookup : resolveCommand;
    const command = resolve(verb, checked.args, resolveContext(order, root));
    if (command === null) return no("no-lookup");
    if (commandDigest(command) !== order.command_sha256) return no("command-differs");
    return { ok: true, command, verb };
  } catch (error) {
    return { ok: false, detail: "cannot-verify", error };
  }
}

/** The trusted identities of programs whose content was looked at and found to be executable. */
const executables = new Map<string, FileIdentity>();

/** Why the program is not the trusted one, or null. */
function programDiffers(path: string, trusted: FileIdentity): string | null {
  const known = executables.get(path);
  if (known !== undefined && sameFile(known, trusted)) {
    const look = lookFile(path);
    return look.ok && sameFile(look.identity, trusted) ? null : "program-differs";
  }
  const look = lookProgram(path);
  if (!look.ok) return `program-${look.why}`;
  if (!sameFile(look.identity, trusted)) return "program-differs";
  executables.set(path, look.identity);
  return null;
}

/**
 * Compares program and required files with what the order says was trusted. To be done as late as
 * can be, right before the start.
 *
 * @returns never throws
 */
export function verifyFiles(order: Order, resolved: Resolved): Verified {
  if (!resolved.ok) return resolved;
  const { command, verb } = resolved;
  try {
    const wrong = programDiffers(command.program, order.program) ?? baseDiffers(order, verb);
    if (wrong !== null) return no(wrong);
    return {
      ok: true,
      command,
      reuse: order.reuse && order.lookup !== true && verb.class === "observe",
    };
  } catch (error) {
    return { ok: false, detail: "cannot-verify", error };
  }
}

/** Checks an order and resolves its command: `resolveOrder`, then `verifyFiles`. */
export function verifyOrder(order: Order, pid: number, root: string): Verified {
  return verifyFiles(order, resolveOrder(order, pid, root));
}
