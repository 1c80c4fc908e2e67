/**
 * The text of an order to a typed order. The daemon wrote it, but the daemon is also the process
 * that reads what agents write; so a shim takes nothing in it for granted.
 *
 * 1. Every field has its type and bounds, no field is missing and none is unknown.
 * 2. The order names the run whose directory it lies in, so a copied order is void.
 *
 * @module
 */
import { isId, isKey, isRun } from "../names.ts";
import type { ArgValue, FileIdentity } from "../policy/policy.ts";
import { PGID_MAX } from "./kill_group.ts";
import type { Order, RequiredFile } from "./order.ts";

/** Longest order text in bytes: arguments of a 64 KiB request, every character escaped. */
export const ORDER_BYTES_MAX = 1024 * 1024;
/** Longest time limit: seven days, in milliseconds. */
export const TIMEOUT_MS_MAX = 604_800_000;
/** Longest grace time in milliseconds. */
export const GRACE_MS_MAX = 300_000;
/** Most bytes kept of a stream: 1 GiB. */
export const OUTPUT_CAP_MAX = 1024 * 1024 * 1024;

const SHA256 = /^[0-9a-f]{64}$/;
const DECIMAL = /^[0-9]{1,20}$/;

type Fields = Readonly<Record<string, unknown>>;

/** True for an object that JSON text made: no array, no null. */
export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** True for a safe integer from `min` to `max`. */
export function isIntegerIn(value: unknown, min: number, max: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
}

/** True when `value` has every key of `required`, and no key that is in neither list. */
export function hasExactly(
  value: Fields,
  required: readonly string[],
  optional: readonly string[] = [],
): boolean {
  const keys = Object.keys(value);
  return required.every((key) => Object.hasOwn(value, key)) &&
    keys.every((key) => required.includes(key) || optional.includes(key));
}

/** The JSON value of strict UTF-8 text, or undefined. */
export function parseJsonBytes(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    return undefined;
  }
}

function identity(value: unknown): FileIdentity | null {
  if (!isFields(value) || !hasExactly(value, ["path", "dev", "ino", "size", "mtime_ms"])) {
    return null;
  }
  const { path, dev, ino, size, mtime_ms } = value;
  if (typeof path !== "string" || path === "") return null;
  if (typeof dev !== "string" || !DECIMAL.test(dev)) return null;
  if (typeof ino !== "string" || !DECIMAL.test(ino)) return null;
  if (!isIntegerIn(size, 0, Number.MAX_SAFE_INTEGER)) return null;
  if (typeof mtime_ms !== "number" || !Number.isFinite(mtime_ms)) return null;
  return { path, dev, ino, size, mtime_ms };
}

function requiredFile(value: unknown): RequiredFile | null {
  if (!isFields(value) || !hasExactly(value, ["path", "sha256"])) return null;
  const { path, sha256 } = value;
  if (typeof path !== "string" || path === "") return null;
  return typeof sha256 === "string" && SHA256.test(sha256) ? { path, sha256 } : null;
}

function checkedArgs(value: unknown): Record<string, ArgValue> | null {
  if (!isFields(value)) return null;
  const args: Record<string, ArgValue> = Object.create(null);
  for (const [name, arg] of Object.entries(value)) {
    const plain = typeof arg === "string" || typeof arg === "boolean" ||
      (typeof arg === "number" && Number.isFinite(arg));
    if (!plain) return null;
    args[name] = arg;
  }
  return args;
}

const REQUIRED = [
  "chb",
  "run",
  "agent",
  "id",
  "idempotency_key",
  "verb",
  "args",
  "attempt",
  "policy",
  "command_sha256",
  "program",
  "max_spend",
  "timeout_ms",
  "grace_ms",
  "output_cap",
  "pgid",
  "reuse",
];

/**
 * The order that `bytes` hold for `run`, or null when they hold none.
 *
 * @param bytes content of `order.json`, or of the file it was renamed to
 * @param run the run id that the directory is named after
 */
export function parseOrder(bytes: Uint8Array, run: string): Order | null {
  const value = parseJsonBytes(bytes);
  if (!isFields(value) || !hasExactly(value, REQUIRED, ["requires", "lookup", "notify"])) {
    return null;
  }
  const { agent, id, idempotency_key, verb, attempt, policy, command_sha256, max_spend } = value;
  const { timeout_ms, grace_ms, output_cap, pgid, reuse } = value;
  if (value.chb !== 1 || !isRun(value.run) || value.run !== run) return null;
  if (!isId(agent) || !isId(id) || !isKey(idempotency_key) || !isId(verb)) return null;
  if (!isIntegerIn(attempt, 1, 1_000_000)) return null;
  if (typeof policy !== "string" || !SHA256.test(policy)) return null;
  if (typeof command_sha256 !== "string" || !SHA256.test(command_sha256)) return null;
  if (max_spend !== null && (typeof max_spend !== "number" || !Number.isFinite(max_spend))) {
    return null;
  }
  if (!isIntegerIn(timeout_ms, 1, TIMEOUT_MS_MAX)) return null;
  if (!isIntegerIn(grace_ms, 0, GRACE_MS_MAX)) return null;
  if (!isIntegerIn(output_cap, 0, OUTPUT_CAP_MAX)) return null;
  if (!isIntegerIn(pgid, 2, PGID_MAX) || typeof reuse !== "boolean") return null;
  const lookup = Object.hasOwn(value, "lookup");
  if (lookup && value.lookup !== true) return null;
  const notify = Object.hasOwn(value, "notify");
  if (notify && (value.notify !== true || lookup)) return null;
  const args = checkedArgs(value.args);
  const program = identity(value.program);
  if (args === null || program === null) return null;
  const requires: RequiredFile[] = [];
  if (Object.hasOwn(value, "requires")) {
    if (!Array.isArray(value.requires)) return null;
    for (const item of value.requires) {
      const file = requiredFile(item);
      if (file === null) return null;
      requires.push(file);
    }
  }
  return {
    chb: 1,
    run,
    agent,
    id,
    idempotency_key,
    verb,
    args,
    attempt,
    policy,
    command_sha256,
    program,
    requires,
    max_spend,
    timeout_ms,
    grace_ms,
    output_cap,
    pgid,
    reuse,
    ...(lookup ? { lookup: true } : {}),
    ...(notify ? { notify: true } : {}),
  };
}
