/**
 * A request once its shape has been checked. Nothing here does I/O.
 *
 * @module
 */
import type { Class } from "../policy/policy.ts";

/** The protocol version that this program serves. */
export const PROTOCOL = 1;

/** A parsed JSON value; objects have no prototype. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Bounds of a request text; policy may lower them. */
export interface JsonLimits {
  readonly depth: number;
  readonly keys: number;
  readonly string_bytes: number;
}

/** A request after the schema stage. Absent fields are undefined, never defaulted here. */
export interface Request {
  readonly verb: string;
  readonly args: Readonly<Record<string, Json>>;
  readonly id?: string;
  readonly idempotency_key?: string;
  readonly timeout_s?: number;
  readonly max_age_s?: number;
  readonly scope?: Class;
  readonly max_spend?: number;
  readonly plan?: string;
  readonly note?: string;
  /** Of a signed request only: whose it is, and when it was made, milliseconds since the epoch. */
  readonly agent?: string;
  readonly created_ms?: number;
}
