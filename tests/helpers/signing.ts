/**
 * The agent's side of a signed request, for tests: what it signs, and how it is put into the queue.
 *
 * @module
 */
import { createHmac, type KeyObject, sign } from "node:crypto";
import { Buffer } from "node:buffer";

/** A test that runs the real openssl; where there is none, its name says that it was skipped. */
export function opensslTest(name: string, fn: () => Promise<void>): void {
  let there = true;
  try {
    new Deno.Command("openssl", { args: ["version"], stdout: "null", stderr: "null" }).outputSync();
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    there = false;
  }
  Deno.test({ name: there ? name : `${name} # SKIP no openssl here`, ignore: !there, fn });
}

/** How a test signs. */
export interface Signer {
  readonly key: string;
  readonly alg: "hmac-sha256" | "ed25519";
  readonly agent: string;
  /** The text of a secret, or a private key. */
  readonly secret: string | KeyObject;
}

/** The signature over a text, in hex. */
export function signText(signer: Signer, text: string): string {
  return typeof signer.secret === "string"
    ? createHmac("sha256", signer.secret).update(text, "utf-8").digest("hex")
    : sign(null, Buffer.from(text, "utf-8"), signer.secret).toString("hex");
}

/** The payload of a request: what it asks, and the fields that a signed one must have. */
export function payloadOf(
  agent: string,
  id: string,
  request: Record<string, unknown>,
  created_ms = Date.now(),
): string {
  return JSON.stringify({ ...request, id, agent, created_at: new Date(created_ms).toISOString() });
}

/** The envelope of a text. */
export function envelopeOf(
  signer: Signer,
  payload: string,
  more: Record<string, unknown> = {},
): { payload: string; auth: Record<string, unknown> } {
  const { alg, key } = signer;
  return { payload, auth: { alg, key, sig: signText(signer, payload), ...more } };
}

/** What an agent's key file says under a name. */
export function keyField(text: string, name: string): string {
  return new RegExp(`^chb-${name}: (.+)$`, "m").exec(text)?.[1] ?? "";
}
