/**
 * What to mask in the output of a run: the secrets of the policy that its order names, and those
 * in `keys/`. Each combination is made ready once and kept for the runs that follow.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import type { Policy } from "../policy/policy.ts";
import { Masking, policySecrets } from "../run/masking.ts";
import { KeySecrets } from "./key_secrets.ts";
import type { Log } from "./log.ts";
import { loadPolicy, type TrustStore } from "./trust_store.ts";

/** Milliseconds for which `keys/` is not looked at again. */
const FRESH_MS = 1000;
/** Policies whose masking is kept. */
const KEPT = 4;

export class Maskings {
  readonly #trust: TrustStore;
  readonly #log: Log;
  readonly #keys = new KeySecrets();
  readonly #ready = new Map<string, Masking>();
  #lookAt = -Infinity;
  #fault: string | null = null;

  constructor(trust: TrustStore, log: Log) {
    this.#trust = trust;
    this.#log = log;
  }

  /** @param digest the policy of an order */
  of(digest: string): Masking {
    this.#refresh();
    const name = `${digest} ${this.#keys.version}`;
    const known = this.#ready.get(name);
    if (known !== undefined) return known;
    const policy = this.#policy(digest);
    const named = policy === null ? [] : policySecrets(policy);
    const encoder = new TextEncoder();
    const masking = new Masking([
      ...named.map((secret) => encoder.encode(secret)),
      ...this.#keys.secrets,
    ]);
    const oldest = this.#ready.keys().next();
    if (this.#ready.size >= KEPT && oldest.done !== true) this.#ready.delete(oldest.value);
    this.#ready.set(name, masking);
    return masking;
  }

  /** What is masked in a text that belongs to no run: by the policy in force. */
  current(): Masking {
    return this.of(this.#trust.policy?.digest ?? "");
  }

  #policy(digest: string): Policy | null {
    const { policy } = this.#trust;
    if (policy === null || policy.digest === digest || digest === "") return policy;
    try {
      return loadPolicy(digest);
    } catch (error) {
      // The policy in force names what is secret now; that is the best there is.
      this.#log("WARN", "masking-policy", { sha256: digest, error: errorCode(error) });
      return policy;
    }
  }

  #refresh(): void {
    const now = performance.now();
    if (now - this.#lookAt < FRESH_MS) return;
    this.#lookAt = now;
    try {
      this.#keys.refresh();
      this.#fault = null;
    } catch (error) {
      const why = errorCode(error) ?? "unreadable";
      if (why !== this.#fault) this.#log("ERROR", "keys-unreadable", { error: why });
      this.#fault = why;
    }
  }
}
