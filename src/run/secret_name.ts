/**
 * Tells by a name whether its value is a secret: `DB_PASSWORD`, `accessToken`, `x-api-key`. The
 * name is read word by word, so that `tokenizer` and `PASSWORD_FILE` are none.
 *
 * @module
 */

/** Words that make a name one of a secret. */
const SECRET: ReadonlySet<string> = new Set([
  "secret",
  "token",
  "password",
  "passwd",
  "passphrase",
  "pwd",
  "pass",
  "apikey",
  "accesskey",
  "secretkey",
  "privatekey",
  "authkey",
  "credential",
  "credentials",
  "authorization",
  "cookie",
]);

/** Words that do so in front of `key`. */
const BEFORE_KEY: ReadonlySet<string> = new Set([
  "api",
  "access",
  "secret",
  "private",
  "encryption",
  "signing",
  "master",
  "auth",
  "account",
  "storage",
  "shared",
]);

/** Last words that say that the value is something about the secret. */
const ABOUT: ReadonlySet<string> = new Set([
  "file",
  "path",
  "dir",
  "name",
  "type",
  "id",
  "url",
  "uri",
  "length",
  "len",
  "size",
  "count",
  "ttl",
  "expires",
  "expiry",
  "expiration",
  "at",
  "policy",
  "version",
  "min",
  "max",
  "limit",
  "enabled",
  "required",
  "store",
]);

/** What a name says of its value. */
export interface NameSays {
  /** Its words in lower case. */
  readonly words: readonly string[];
  /** A header whose value goes to the end of its line. */
  readonly header: boolean;
}

/** The words of a secret's name, or null when the name is none of a secret. */
export function secretName(name: string): NameSays | null {
  const words = name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").toLowerCase().split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
  const last = words.at(-1);
  if (last === undefined || (words.length > 1 && ABOUT.has(last))) return null;
  const says = words.some((word, i) =>
    SECRET.has(word) || (word === "key" && BEFORE_KEY.has(words[i - 1] ?? ""))
  );
  // What registries keep: user and password in one.
  const alone = words.length === 1 && last === "auth";
  return says || alone ? { words, header: last === "authorization" || last === "cookie" } : null;
}
