/**
 * The trusted base as daemon and shims use it: the policy by digest from `state/policies/`, and
 * what programs and required files were when a human trusted them.
 *
 * 1. `bridge.jsonc` is never read here: editing it changes nothing until a human trusts it (X3).
 * 2. The policy's bytes must have the digest that the ledger names, or there is no policy.
 * 3. A program or file that is not the trusted one is named, and nothing that uses it starts (X8).
 * 4. What may be run is settled when the process starts, so a program that was trusted later waits
 *    for the next start.
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { Ledger } from "../ledger/ledger.ts";
import type { CheckedArgs, FileIdentity, Policy, VerbPolicy } from "../policy/policy.ts";
import { checkPathArgs } from "../policy/check_args.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import { policyPrograms } from "../policy/programs.ts";
import type { RequiredFile } from "../run/order.ts";
import { fileIdentity } from "../spool/layout.ts";
import { look } from "../spool/look.ts";
import { errorCode, FatalError } from "../errors.ts";

/** What a person does about a stored policy that cannot be used. */
const ANEW = "put one in force: ./bin/chb trust";

/** Name in the ledger of the hashes that a human was shown last: path and SHA-256, as JSON. */
export const HASHES = "trust.hashes";

/** SHA-256 in lower-case hex. */
export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** True when both describe the same file content as far as the file system tells. */
export function sameFile(a: FileIdentity, b: FileIdentity): boolean {
  return a.dev === b.dev && a.ino === b.ino && a.size === b.size && a.mtime_ms === b.mtime_ms;
}

/** The path of a stored policy. */
export function policyPath(digest: string): string {
  return `state/policies/${digest}.jsonc`;
}

/**
 * Loads a stored policy and checks that it is what its name says.
 *
 * @throws {FatalError} when it is missing, altered, or does not parse any more
 */
export function loadPolicy(digest: string): Policy {
  let bytes: Uint8Array;
  try {
    bytes = Deno.readFileSync(policyPath(digest));
  } catch (cause) {
    throw new FatalError(`Cannot load trusted policy ${digest}: ${errorCode(cause)}; ${ANEW}`, {
      cause,
    });
  }
  if (sha256(bytes) !== digest) {
    throw new FatalError(
      `Cannot load trusted policy ${digest}: its content has another digest; ${ANEW}`,
    );
  }
  const parsed = parsePolicy(bytes);
  if (!parsed.ok) {
    const first = parsed.errors[0];
    throw new FatalError(
      `Cannot load trusted policy ${digest}: ${first?.path ?? ""} ${first?.message ?? ""}; ` + ANEW,
    );
  }
  return parsed.policy;
}

export class TrustStore {
  #policy: Policy | null = null;
  #programs = new Map<string, FileIdentity>();
  #requires = new Map<string, string>();
  /** SHA-256 of everything that was shown to the human, by path. */
  #shown = new Map<string, string>();
  /** Hashes of required files by identity, so that an unchanged file is hashed once. */
  readonly #hashes = new Map<string, { identity: FileIdentity; sha256: string }>();
  readonly #granted: ReadonlySet<string>;

  /** @param granted programs that the shims of this process may run, as policies name them */
  constructor(granted: ReadonlySet<string>) {
    this.#granted = granted;
  }

  /** True when the shims of this process may run the program. */
  granted(program: string): boolean {
    return this.#granted.has(program);
  }

  /** Programs of a policy that wait for the next start. */
  waiting(policy: Policy): string[] {
    return policyPrograms(policy).filter((program) => !this.granted(program));
  }

  /** The trusted policy in force, or null when none was ever trusted. */
  get policy(): Policy | null {
    return this.#policy;
  }

  /**
   * Takes over what the ledger says is trusted now.
   *
   * @throws {FatalError} when the stored policy cannot be used
   */
  reload(ledger: Ledger): void {
    const trust = ledger.currentTrust();
    if (trust === null) {
      this.#policy = null;
      this.#programs.clear();
      this.#requires.clear();
      this.#shown.clear();
      return;
    }
    const policy = loadPolicy(trust.policy);
    this.#policy = policy;
    this.#programs = new Map(trust.programs.map((p) => [p.path, p]));
    this.#requires = new Map(trust.requires);
    const shown = ledger.meta(HASHES);
    this.#shown = new Map(shown === null ? [] : JSON.parse(shown));
    this.#hashes.clear();
  }

  /** The trusted identity of a verb's program, or null when there is none. */
  program(path: string): FileIdentity | null {
    return this.#programs.get(path) ?? null;
  }

  /** The files that a verb requires, as a human trusted them; the shim holds the disk against it. */
  required(verb: VerbPolicy): RequiredFile[] {
    return verb.requires.flatMap((path) => {
      const sha256 = this.#requires.get(path);
      // One that was never trusted is left out, and the shim refuses the order for it.
      return sha256 === undefined ? [] : [{ path, sha256 }];
    });
  }

  /** What of a verb's base differs from what was trusted, in words, or null. */
  baseChanged(verb: VerbPolicy): string | null {
    const trusted = this.#programs.get(verb.program);
    if (trusted === undefined) return `${verb.program} (never trusted)`;
    if (!this.granted(verb.program)) return `${verb.program} (not known to the running daemon)`;
    try {
      if (!this.#isTrusted(trusted, verb.program)) return verb.program;
    } catch (error) {
      return `${verb.program} (${errorCode(error) ?? "unreadable"})`;
    }
    for (const path of verb.requires) {
      const want = this.#requires.get(path);
      if (want === undefined) return `${path} (never trusted)`;
      try {
        if (this.#hash(path) !== want) return path;
      } catch (error) {
        return `${path} (${errorCode(error) ?? "unreadable"})`;
      }
    }
    return null;
  }

  /**
   * True when a program is the trusted one. A script of `base/` that was put back is, when its bytes
   * are the same; from then on its shims hold it against what it is now. Other programs are large,
   * and who replaced one has a reason to look at it again.
   */
  #isTrusted(trusted: FileIdentity, program: string): boolean {
    const now = fileIdentity(program);
    if (sameFile(trusted, now)) return true;
    const wanted = this.#shown.get(program);
    if (!program.startsWith("base/") || wanted === undefined) return false;
    if (now.size !== trusted.size || this.#hash(program) !== wanted) return false;
    this.#programs.set(program, now);
    return true;
  }

  #hash(path: string): string {
    const identity = fileIdentity(path);
    const known = this.#hashes.get(path);
    if (known !== undefined && sameFile(known.identity, identity)) return known.sha256;
    const digest = sha256(Deno.readFileSync(path));
    this.#hashes.set(path, { identity, sha256: digest });
    return digest;
  }

  /** Checks arguments that name files below `base/`. */
  pathArgs(
    verb: VerbPolicy,
    args: CheckedArgs,
  ): { path: string; message: string; hint: string } | null {
    const checked = checkPathArgs(verb, args, {
      lstat(path) {
        const seen = look(path);
        if (seen === null) return null;
        return seen.kind === "directory" || seen.kind === "file" ? seen.kind : "other";
      },
    });
    return checked.ok ? null : checked;
  }
}
