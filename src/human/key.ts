/**
 * `chb key`: makes keys for agents that sign, and tells which there are.
 *
 * Nothing that runs as the bridge may write `keys/`, so `new` prints a script that does, and the
 * person runs it. The secret is in what `new` prints and in the two files that the script writes,
 * and nowhere else: no other command, log, record or error has it.
 *
 * @module
 */
import { generateKeyPairSync } from "node:crypto";
import { EXIT } from "../codes.ts";
import { readKeys } from "../daemon/key_store.ts";
import { errorCode, ExitError, UsageError } from "../errors.ts";
import { isId, printable, randomHex } from "../names.ts";
import { parsePolicy } from "../policy/parse_policy.ts";
import { type Algorithm, ALGORITHMS, isAlgorithm } from "../request/envelope.ts";
import { INSTANT_WORDS } from "../request/instant.ts";
import { parseKeyFile, type SigningKey } from "../request/key_file.ts";
import { isoTime } from "../result.ts";
import { look } from "../spool/look.ts";
import { shellWord } from "../spool/shell_word.ts";
import { type Command, type Io, type Parsed, table } from "./command.ts";

/** Where the sandbox finds its key. */
export const KEY_TARGET = "/run/chb/key";

/** A new key, as the two files that hold it. */
export interface NewKey {
  readonly name: string;
  readonly agent: string;
  readonly alg: Algorithm;
  /** Text of `keys/<name>.json`. */
  readonly host: string;
  /** Text of `handed/<name>.key`; null when the agent's side has its own. */
  readonly sandbox: string | null;
}

/** Bytes of a new secret; written as twice as many digits. */
const SECRET_BYTES = 32;

/**
 * Makes a key.
 *
 * @param bounds further fields of the host's file, as they stand there
 * @param open the public key of a pair that exists elsewhere, or null to make a key
 */
export function newKey(
  name: string,
  agent: string,
  alg: Algorithm,
  bounds: Readonly<Record<string, string>>,
  open: string | null,
): NewKey {
  const head = `chb-key: ${name}\nchb-agent: ${agent}\nchb-alg: ${alg}\n`;
  const host = (material: Record<string, string>) =>
    JSON.stringify({ alg, agent, ...material, ...bounds }) + "\n";
  if (open !== null) return { name, agent, alg, host: host({ public: open }), sandbox: null };
  switch (alg) {
    case "hmac-sha256": {
      const secret = randomHex(SECRET_BYTES);
      return {
        name,
        agent,
        alg,
        host: host({ secret }),
        sandbox: `${head}chb-secret: ${secret}\n`,
      };
    }
    case "ed25519": {
      const { publicKey, privateKey } = generateKeyPairSync("ed25519");
      const der = publicKey.export({ type: "spki", format: "der" });
      const pem = String(privateKey.export({ type: "pkcs8", format: "pem" }));
      return {
        name,
        agent,
        alg,
        host: host({ public: der.subarray(-32).toString("hex") }),
        sandbox: head + pem,
      };
    }
  }
}

/** What gives the sandbox its key. */
export function keyMountLines(root: string, name: string): string[] {
  const source = shellWord(`${root}/handed/${name}.key`);
  return [
    `docker, podman   -v ${source}:${KEY_TARGET}:ro -e CHB_KEY_FILE=${KEY_TARGET}`,
    `bwrap            --ro-bind ${source} ${KEY_TARGET} --setenv CHB_KEY_FILE ${KEY_TARGET}`,
  ];
}

/** The script that writes the files of a new key, and says what to do with them. */
export function keyScript(root: string, key: NewKey): string {
  const hostFile = `keys/${key.name}.json`;
  const handed = `handed/${key.name}.key`;
  const files = key.sandbox === null ? [hostFile] : [hostFile, handed];
  const lines = [
    "#!/bin/sh",
    `# Makes the key "${key.name}" (${key.alg}) of the agent "${key.agent}".`,
    ...(key.sandbox === null ? [] : ["# It holds the secret: run it once and keep no copy of it."]),
    "set -eu",
    "umask 077",
    `cd -- ${shellWord(root)}`,
    "[ -d state ] && [ -d spool ] || { echo 'chb key: this is no bridge: run it in its root' >&2; exit 78; }",
    `for file in ${files.join(" ")}; do`,
    '  if [ -e "$file" ] || [ -L "$file" ]; then',
    '    echo "chb key: $file is there already; nothing was changed" >&2; exit 1',
    "  fi",
    "done",
    `for directory in ${key.sandbox === null ? "keys" : "keys handed"}; do`,
    '  [ -d "$directory" ] || mkdir -m 0700 -- "$directory"',
    "done",
    // Written beside its place, so that the bridge never sees half of it.
    `cat > state/.${key.name}.key.tmp <<'END_OF_KEY'`,
    key.host.trimEnd(),
    "END_OF_KEY",
    `chmod 0600 state/.${key.name}.key.tmp`,
    ...(key.sandbox === null ? [] : [
      `cat > ${handed} <<'END_OF_KEY'`,
      key.sandbox.trimEnd(),
      "END_OF_KEY",
      // The root is closed on the host; in the sandbox, whoever runs there must be able to read it.
      `chmod 0444 ${handed}`,
    ]),
    `mv -- state/.${key.name}.key.tmp ${hostFile}`,
    'if [ "$(id -u)" -eq 0 ]; then',
    `  chown "$(stat -c %u:%g state)" -- ${
      (key.sandbox === null ? ["keys", hostFile] : ["keys", "handed", ...files]).join(" ")
    }`,
    "fi",
    `echo 'Made ${files.join(" and ")}. A running daemon takes the key up within a second.'`,
    ...(key.sandbox === null ? [] : [
      "echo 'Hand it to the sandbox:'",
      ...keyMountLines(root, key.name).map((line) => `echo ${quoted(`  ${line}`)}`),
    ]),
    `echo ${
      quoted(`The agent must sign when bridge.jsonc says so: "auth": "signed" in its entry.`)
    }`,
  ];
  return lines.join("\n") + "\n";
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * @throws {ExitError} when the policy as it stands names no such agent: a key for it would speak for
 * nobody, or for whoever is given that name one day
 */
function insistOnAgent(agent: string): void {
  let named: readonly string[] | null = null;
  try {
    const parsed = parsePolicy(Deno.readFileSync("bridge.jsonc"));
    if (parsed.ok) named = [...parsed.policy.agents.keys()];
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
  }
  // Where the policy cannot be read now, an agent that was served is one.
  if (named?.includes(agent) ?? look(`spool/${agent}`)?.kind === "directory") return;
  throw new ExitError(
    EXIT.usage,
    `${named === null ? "there is" : "bridge.jsonc names"} no agent ${agent}: ${
      named?.join(", ") ?? "run chb check"
    }`,
  );
}

function make(args: Parsed, io: Io): number {
  const name = args.positional[1];
  if (!isId(name)) throw new UsageError("name the key with 1 to 64 of a-z 0-9 - _: key new NAME");
  const agent = args.options["agent"] ?? "main";
  if (!isId(agent)) throw new UsageError("--agent takes 1 to 64 of a-z 0-9 - _");
  const open = args.options["public"] ?? null;
  const alg = args.options["alg"] ?? (open === null ? "hmac-sha256" : "ed25519");
  if (!isAlgorithm(alg)) throw new UsageError(`--alg takes one of ${ALGORITHMS.join(", ")}`);
  if (open !== null && alg !== "ed25519") throw new UsageError("--public is for --alg ed25519");
  const bounds: Record<string, string> = {};
  for (
    const [option, field] of [["not-before", "not_before"], ["not-after", "not_after"]] as const
  ) {
    const text = args.options[option];
    if (text !== undefined) bounds[field] = text;
  }
  const note = args.options["note"];
  if (note !== undefined) bounds["note"] = note;
  const key = newKey(name, agent, alg, bounds, open);
  const parsed = parseKeyFile(name, new TextEncoder().encode(key.host));
  if (!parsed.ok) throw new UsageError(`no such key can be made: ${parsed.why}`);
  if (look("spool")?.kind !== "directory") {
    throw new ExitError(
      EXIT.config,
      "no bridge here: run it in the root that the init script made",
    );
  }
  insistOnAgent(agent);
  if (look("keys")?.kind === "directory" && look(`keys/${name}.json`) !== null) {
    throw new ExitError(EXIT.finding, `keys/${name}.json is there already: take another name`);
  }
  const root = Deno.cwd();
  if (/\p{Cc}/u.test(root)) {
    throw new ExitError(
      EXIT.config,
      "the path of this root has control characters in it: move the root",
    );
  }
  if (!args.json) {
    io.out(keyScript(root, key));
    return EXIT.ok;
  }
  io.out(
    JSON.stringify({
      name,
      agent,
      alg,
      host: { path: `keys/${name}.json`, mode: "0600", text: key.host },
      sandbox: key.sandbox === null
        ? null
        : { path: `handed/${name}.key`, target: KEY_TARGET, mode: "0444", text: key.sandbox },
    }) + "\n",
  );
  return EXIT.ok;
}

/** What is told of a key; nothing of it is secret. */
function facts(key: SigningKey, now: number): Record<string, string | null> {
  const state = key.not_before_ms !== null && now < key.not_before_ms
    ? "not-yet"
    : key.not_after_ms !== null && now > key.not_after_ms
    ? "expired"
    : "valid";
  return {
    name: key.name,
    agent: key.agent,
    alg: key.alg,
    state,
    not_before: key.not_before_ms === null ? null : isoTime(key.not_before_ms),
    not_after: key.not_after_ms === null ? null : isoTime(key.not_after_ms),
    public: key.public,
    note: key.note,
  };
}

function list(args: Parsed, io: Io): number {
  const { entries, fault } = readKeys();
  const found = [...entries.values()];
  const keys = found.flatMap(({ key }) => key === null ? [] : [facts(key, Date.now())]);
  const unusable = found.filter(({ key }) => key === null)
    .map(({ file, why }) => ({ file: `keys/${file}`, why }));
  if (fault !== null) unusable.unshift({ file: "keys", why: fault });
  if (args.json) io.out(JSON.stringify({ keys, unusable }) + "\n");
  else {
    if (keys.length === 0) io.out("No keys\n");
    else {
      io.out(
        table([
          ["KEY", "AGENT", "ALGORITHM", "STATE", "UNTIL"],
          ...keys.map((k) => [k["name"], k["agent"], k["alg"], k["state"], k["not_after"] ?? "-"])
            .map((row) => row.map((cell) => cell ?? "-")),
        ]) + "\n",
      );
    }
    for (const { file, why } of unusable) io.err(`no key: ${printable(file, 100)}: ${why}\n`);
  }
  return unusable.length === 0 ? EXIT.ok : EXIT.finding;
}

function show(args: Parsed, io: Io): number {
  const name = args.positional[1];
  if (!isId(name)) throw new UsageError("name a key: key show NAME");
  const entry = readKeys().entries.get(`${name}.json`);
  if (entry === undefined) {
    throw new ExitError(
      EXIT.finding,
      `there is no keys/${name}.json: chb key list names those that there are`,
    );
  }
  if (entry.key === null) throw new ExitError(EXIT.finding, `keys/${name}.json: ${entry.why}`);
  const told = facts(entry.key, Date.now());
  if (args.json) io.out(JSON.stringify(told) + "\n");
  else {
    const rows = Object.entries(told)
      .flatMap(([field, value]) => value === null ? [] : [[field, printable(value, 400)]]);
    io.out(table(rows) + "\n");
  }
  return EXIT.ok;
}

export const key: Command = {
  name: "key",
  summary: "Make a key for an agent that signs, or tell of keys",
  usage: "new NAME [--agent A] [--alg ALG | --public HEX] [--not-after T] | list | show NAME",
  details: [
    "new NAME        prints a script that writes keys/NAME.json and handed/NAME.key, with the",
    "                secret, and says how to hand it over; it is shown this once",
    "list            every key, without secrets; exits 1 when a file in keys/ is none",
    "show NAME       one key, without its secret",
    "--agent A       the agent that it speaks for, which bridge.jsonc names (default main)",
    `--alg ALG       ${ALGORITHMS.join(" or ")} (default hmac-sha256)`,
    "--public HEX    the public key of an Ed25519 pair that the agent's side made",
    `--not-before T, --not-after T`,
    `                ${INSTANT_WORDS}`,
    "--note TEXT     what it is for",
    "How to sign, and what the host checks: docs/signatures.md.",
  ],
  example: "./bin/chb key new laptop-1 --agent main | sh",
  flags: [],
  options: ["agent", "alg", "public", "not-before", "not-after", "note"],
  json: true,
  words: 2,
  run(args, io) {
    const [what, , surplus] = args.positional;
    if (what === "list" && args.positional.length > 1) {
      throw new UsageError("key list takes no name");
    }
    if (surplus !== undefined) throw new UsageError("one key at a time");
    switch (what) {
      case "new":
        return make(args, io);
      case "list":
        return list(args, io);
      case "show":
        return show(args, io);
      default:
        throw new UsageError("say new NAME, list or show NAME: see chb key --help");
    }
  },
};
