/**
 * The agent's hand: puts entries into a queue, regular files and everything else.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { createHmac, createPrivateKey, sign } from "node:crypto";
import { join } from "node:path";
import { sleep } from "./driver.ts";
import type { Content, Kind, Signed } from "./vector.ts";
import { readJson } from "./vector.ts";
import type { Work } from "./work.ts";

/** A step cannot be done on this machine. */
export class SkipError extends Error {
  override name = "SkipError";
}

/** The bytes of an entry. */
export function bytesOf(content: Content): Uint8Array {
  const encoder = new TextEncoder();
  if (content.json !== undefined) return encoder.encode(JSON.stringify(content.json));
  if (content.text !== undefined) return encoder.encode(content.text);
  if (content.base64 !== undefined) return new Uint8Array(Buffer.from(content.base64, "base64"));
  if (content.generate !== undefined) {
    const { before, repeat, times, after } = content.generate;
    return encoder.encode(before + repeat.repeat(times) + after);
  }
  if (content.signed !== undefined) return encoder.encode(envelope(content.signed));
  throw new TypeError("An entry without content");
}

interface Key {
  readonly alg: string;
  readonly secret?: string;
  readonly private_pem?: string;
}

function envelope(signed: Signed): string {
  const key = readJson<Record<string, Key>>("suite", "keys.json")[signed.key];
  if (key === undefined) throw new TypeError(`No key "${signed.key}"`);
  const { created_s = 0 } = signed;
  const payload = signed.text ?? JSON.stringify({
    ...signed.payload,
    ...(created_s === null
      ? {}
      : { created_at: new Date(Date.now() + created_s * 1000).toISOString() }),
  });
  const bytes = Buffer.from(payload + (signed.trailing ?? ""), "utf-8");
  const sig = key.private_pem === undefined
    ? createHmac("sha256", key.secret ?? "").update(bytes).digest("hex")
    : sign(null, bytes, createPrivateKey(key.private_pem)).toString("hex");
  const sent = signed.replace === undefined ? payload : payload.replace(...signed.replace);
  return JSON.stringify({
    payload: sent,
    auth: { alg: key.alg, key: signed.key, sig, ...signed.auth },
    ...signed.envelope,
  });
}

/** Puts a regular file into a queue. */
export async function put(
  queue: string,
  name: string,
  bytes: Uint8Array,
  how: "rename" | "direct" | "parts" | "leave",
): Promise<void> {
  const path = join(queue, name);
  switch (how) {
    case "rename": {
      const temporary = join(queue, `.put-${crypto.randomUUID()}.tmp`);
      Deno.writeFileSync(temporary, bytes);
      Deno.renameSync(temporary, path);
      return;
    }
    case "direct":
    case "leave":
      Deno.writeFileSync(path, bytes);
      return;
    case "parts": {
      using file = Deno.openSync(path, { write: true, createNew: true });
      const half = Math.ceil(bytes.length / 2);
      file.writeSync(bytes.subarray(0, half));
      // Long enough for a reader that does not wait, and less than half of what a bridge waits.
      await sleep(100);
      file.writeSync(bytes.subarray(half));
    }
  }
}

async function run(program: string, ...args: string[]): Promise<void> {
  const { success, stderr } = await new Deno.Command(program, { args }).output();
  if (!success) throw new SkipError(new TextDecoder().decode(stderr).trim());
}

/** Makes an entry that is no regular file of its own. Targets are names in `host/`. */
export async function make(
  work: Work,
  directory: string,
  name: string,
  kind: Kind,
  target: string | undefined,
): Promise<void> {
  const path = join(directory, name);
  switch (kind) {
    case "symlink":
      // A target that begins with a slash or a dot is meant as it stands.
      return Deno.symlinkSync(
        /^[./]/.test(target ?? ".") ? target ?? "." : work.host(target ?? ""),
        path,
      );
    case "hardlink":
      return Deno.linkSync(work.host(target ?? ""), path);
    case "directory":
      return Deno.mkdirSync(path);
    case "full-directory": {
      // Made elsewhere and moved: once it is in the queue it may be taken at any moment.
      const made = join(work.directory, "full");
      Deno.mkdirSync(made);
      Deno.writeTextFileSync(join(made, "inner.json"), '{"verb":"mark","args":{"tag":"victim"}}');
      Deno.symlinkSync(work.host("tree"), join(made, "tree"));
      return Deno.renameSync(made, path);
    }
    case "fifo":
      return await run("mkfifo", path);
    case "socket": {
      // Bound under a short name and moved, since the length of a socket's path is bounded. Its
      // listener removes the name that it was bound under, which is another one by then.
      const listener = Deno.listen({ transport: "unix", path: `${work.directory}/s` });
      Deno.renameSync(`${work.directory}/s`, path);
      return listener.close();
    }
    case "device":
      return await run("mknod", path, "c", "1", "3");
    case "unreadable":
      if (Deno.uid() === 0) throw new SkipError("root can read every file");
      Deno.writeTextFileSync(path, '{"verb":"mark","args":{"tag":"victim"}}', { mode: 0o200 });
      return Deno.chmodSync(path, 0);
  }
}
