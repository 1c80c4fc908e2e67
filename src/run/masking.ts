/**
 * What is masked for an agent: the secrets that the host knows, in the forms in which programs
 * print them, and then whatever looks like a credential.
 *
 * 1. Masking is a function of the bytes and of what is known: after a restart the same raw output
 *    gives the same text again.
 * 2. Known secrets come first, so no guess about a neighbour can break one in two.
 * 3. Output without secrets comes through byte for byte, and lines that have ended are never held
 *    back for what may follow, unless they may be the beginning of a known secret.
 * 4. Where bytes are missing in between, the words on both sides of the gap are left out: half a
 *    secret has no shape.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import type { Policy } from "../policy/policy.ts";
import { ShapesFilter } from "./credential_shapes.ts";
import { KnownSecrets, KnownSecretsFilter } from "./known_secrets.ts";
import type { ByteFilter } from "./output_view.ts";
import { secretName } from "./secret_name.ts";

/** The shortest encoded form that is looked for: a shorter one is in every text. */
const FORM_MIN = 8;
/** Above this length only the text itself is looked for, bytes. */
const FORMS_UP_TO = 1024;
/** The shortest value of an environment variable that counts as a secret. */
const VALUE_MIN = 6;
/** The shortest rest of a line that is left out at a gap. */
const TORN_MIN = 8;
/** How far a line that began in a gap may reach into the tail. */
const TORN_MAX = 4096;

/** The base64 letters that a text fixes wherever it stands among other bytes: one for each place. */
function base64Forms(bytes: Uint8Array): string[] {
  const forms: string[] = [];
  for (let before = 0; before < 3; before++) {
    const text = Buffer.concat([new Uint8Array(before), bytes]).toString("base64url");
    const first = Math.ceil(before * 8 / 6);
    const last = Math.floor((before + bytes.length) * 8 / 6);
    const form = text.slice(first, last);
    forms.push(form, form.replaceAll("-", "+").replaceAll("_", "/"));
  }
  return forms;
}

/** A secret as programs print it: itself, in hex, in base64, and escaped. */
export function secretForms(secret: Uint8Array): Uint8Array[] {
  if (secret.length > FORMS_UP_TO) return [secret];
  const buffer = Buffer.from(secret);
  const hex = buffer.toString("hex");
  const text = buffer.toString();
  const alone = [buffer.toString("base64"), buffer.toString("base64url")];
  const forms = [hex, hex.toUpperCase(), ...alone, ...base64Forms(secret)];
  if (Buffer.from(text).equals(buffer) && text.isWellFormed()) {
    forms.push(JSON.stringify(text).slice(1, -1), encodeURIComponent(text));
  }
  const longEnough = forms.filter((form) => form.length >= FORM_MIN);
  return [secret, ...longEnough.map((form) => new Uint8Array(Buffer.from(form)))];
}

/** The secrets that a policy names: `redact`, and environment values whose names say it. */
export function policySecrets(policy: Policy): string[] {
  const secrets = new Set(policy.redact);
  for (const { env } of policy.verbs.values()) {
    for (const [name, value] of Object.entries(env)) {
      if (value.length >= VALUE_MIN && secretName(name) !== null) secrets.add(value);
    }
  }
  return [...secrets];
}

/** What is masked, made ready once and used for many streams and texts. */
export class Masking {
  readonly #known: KnownSecrets | null;

  /** @param secrets what is known besides the shapes of credentials */
  constructor(secrets: Iterable<Uint8Array>) {
    const forms = [...secrets].flatMap(secretForms);
    this.#known = forms.length === 0 ? null : new KnownSecrets(forms);
  }

  /** A filter for one stream. */
  filter(): ByteFilter {
    return new MaskingFilter(this.#known);
  }

  /** A text that stands alone, masked. */
  text(text: string): string {
    const filter = this.filter();
    const bytes = new TextEncoder().encode(text);
    return Buffer.concat([filter.push(bytes), filter.end(false)]).toString();
  }
}

class MaskingFilter implements ByteFilter {
  readonly #secrets: KnownSecrets | null;
  #known: KnownSecretsFilter | null;
  #shapes = new ShapesFilter();

  constructor(secrets: KnownSecrets | null) {
    this.#secrets = secrets;
    this.#known = secrets === null ? null : new KnownSecretsFilter(secrets);
  }

  push(bytes: Uint8Array): Uint8Array {
    return this.#shapes.push(this.#known === null ? bytes : this.#known.push(bytes));
  }

  end(cut: boolean): Uint8Array {
    return this.#end(cut, false);
  }

  across(tail: Uint8Array): { before: Uint8Array; after: Uint8Array; left_out: number } {
    const before = this.#end(true, true);
    const word = this.#shapes.leftOut;
    this.#known = this.#secrets === null ? null : new KnownSecretsFilter(this.#secrets);
    this.#shapes = new ShapesFilter();
    const line = tornLine(tail);
    const rest = tail.subarray(line);
    const known = this.#secrets?.endAtStart(rest) ?? 0;
    const first = this.push(rest.subarray(known));
    const after = join(first.slice(), this.#end(false, false));
    return { before, after, left_out: word + line + known };
  }

  #end(cut: boolean, torn: boolean): Uint8Array {
    const first = this.#known === null
      ? new Uint8Array()
      : this.#shapes.push(this.#known.end(cut)).slice();
    return join(first, this.#shapes.end(torn));
  }
}

/** How many bytes at the start of a tail may belong to something that began before it. */
function tornLine(tail: Uint8Array): number {
  const text = Buffer.from(tail.buffer, tail.byteOffset, tail.byteLength).toString("latin1");
  const key = /-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY/.exec(text);
  if (key !== null && key[1] === "END") return key.index;
  const near = text.slice(0, TORN_MAX);
  const line = /[\r\n]/.exec(near) ?? /\s/.exec(near);
  // What is shorter gives nothing away; a line without end and without a space is no credential.
  return line === null || line.index < TORN_MIN ? 0 : line.index + 1;
}

function join(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b;
  if (b.length === 0) return a;
  return new Uint8Array(Buffer.concat([a, b]));
}
