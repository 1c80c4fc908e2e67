/** Secrets in output: `src/run/masking.ts`, `known_secrets.ts`, `credential_shapes.ts`. */
import { assert, assertEquals } from "@std/assert";
import { Buffer } from "node:buffer";
import type { OutputView } from "../src/result.ts";
import { KnownSecrets, KnownSecretsFilter, MASK } from "../src/run/known_secrets.ts";
import { Masking, policySecrets, secretForms } from "../src/run/masking.ts";
import { OutputMirror, VIEW_BYTES } from "../src/run/output_view.ts";
import { secretName } from "../src/run/secret_name.ts";
import { parsePolicy } from "../src/policy/parse_policy.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const shapes = new Masking([]);
const SECRET = "Zq7-kT0_wLr3.Vx9~Bn5+Hd2Yc8=Mf6!";

/** A small generator with a seed, so that a failing case can be repeated. */
function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** What a stream becomes when it comes in pieces of `size` bytes. */
function masked(masking: Masking, text: string, size = Infinity): string {
  const raw = encode(text);
  const filter = masking.filter();
  const out: Uint8Array[] = [];
  for (let at = 0; at < raw.length; at += size) {
    const piece = raw.slice(at, at + size);
    out.push(filter.push(piece).slice());
    piece.fill(0x2a); // what the filter kept must be its own copy
  }
  out.push(filter.end(false).slice());
  return Buffer.concat(out).toString();
}

const A36 = "abcdefghijklmnopqrstuvwxyz0123456789";
const JWT_HEAD = Buffer.from('{"alg":"HS256","typ":"JWT"}').toString("base64url");
const JWT = `${JWT_HEAD}.${Buffer.from('{"sub":"1"}').toString("base64url")}.c2lnbmF0dXJl-_x`;
const BASIC = Buffer.from("admin:s3cret").toString("base64");
const PEM_BODY = Array.from(
  { length: 4 },
  (_, i) => `MIIEv${i}${"QIBADANBgkqhkiG9w0BAQEFAAS/+".repeat(2)}`,
);
const PEM = (
  kind = "RSA ",
) => [`-----BEGIN ${kind}PRIVATE KEY-----`, ...PEM_BODY, `-----END ${kind}PRIVATE KEY-----`];

/** Name, text, what is left of it. */
const CREDENTIALS: readonly [string, string, string][] = [
  ["AWS key id", "id AKIAIOSFODNN7EXAMPLE.", `id ${MASK}.`],
  ["AWS temporary key id", "(ASIAIOSFODNN7EXAMPLE)", `(${MASK})`],
  [
    "AWS secret key by name",
    "aws_secret_access_key = wJalr/XUt+nFEMI/K7",
    `aws_secret_access_key = ${MASK}`,
  ],
  ["GitHub token", `push ghp_${A36} done`, `push ${MASK} done`],
  ["GitHub fine-grained token", `github_pat_${A36}_${A36}\n`, `${MASK}\n`],
  ["GitHub token inside a word", `x-access-ghs_${A36}`, `x-access-${MASK}`],
  ["GitLab token", "glpat-abcdefghij0123456789 end", `${MASK} end`],
  ["Slack token", "xoxb-123456789012-abcdefghij", MASK],
  [
    "Slack hook",
    "POST https://hooks.slack.com/services/T00/B00/XXXXXXXX ok",
    `POST https://${MASK} ok`,
  ],
  ["npm token", `npm_${A36}`, MASK],
  [
    "npm registry line",
    "//registry.example/:_authToken=abc-def",
    `//registry.example/:_authToken=${MASK}`,
  ],
  ["JWT", `got ${JWT}, fine`, `got ${MASK}, fine`],
  ["JWT behind an escape", `q=%20${JWT}&x=1`, `q=%20${MASK}&x=1`],
  [
    "bearer header",
    `> Authorization: Bearer ${A36}\r\n< ok`,
    `> Authorization: Bearer ${MASK}\r\n< ok`,
  ],
  ["bearer alone", `using bearer ${A36} now`, `using bearer ${MASK} now`],
  ["basic header", `Authorization: Basic ${BASIC}`, `Authorization: Basic ${MASK}`],
  ["basic alone", `curl -H 'Basic ${BASIC}' x`, `curl -H 'Basic ${MASK}' x`],
  [
    "header on a command line",
    `curl -H "Authorization: token abc def" http://h`,
    `curl -H "Authorization: token ${MASK}" http://h`,
  ],
  ["cookie", "Set-Cookie: sid=1; Path=/\nx", `Set-Cookie: ${MASK}\nx`],
  ["URL", "postgres://app:hunter2@db:5432/app", `postgres://app:${MASK}@db:5432/app`],
  ["URL without user", "redis://:hunter2@cache", `redis://:${MASK}@cache`],
  ["URL, password with @", "amqp://a:b@c@host/x", `amqp://a:${MASK}@host/x`],
  [
    "env output",
    "PATH=/bin\nDB_PASSWORD=correct horse\nHOME=/root",
    `PATH=/bin\nDB_PASSWORD=${MASK}\nHOME=/root`,
  ],
  ["env file", 'export API_KEY="a b\\" c" # x', `export API_KEY="${MASK}" # x`],
  ["yaml", "  db_password: hunter2\n  port: 1", `  db_password: ${MASK}\n  port: 1`],
  ["compose config list", "      - SECRET_KEY=abc\n", `      - SECRET_KEY=${MASK}\n`],
  ["json", '{"clientSecret":"abc","port":1}', `{"clientSecret":"${MASK}","port":1}`],
  [
    "json in json",
    '"{\\"password\\":\\"abc\\",\\"a\\":1}"',
    `"{\\"password\\":\\"${MASK}\\",\\"a\\":1}"`,
  ],
  ["docker config", '"auth": "dXNlcjpwYXNzd29yZA=="', `"auth": "${MASK}"`],
  ["query", "GET /x?access_token=abc123&y=2 HTTP", `GET /x?access_token=${MASK}&y=2 HTTP`],
  ["flag", "run --password hunter2 --port 80", `run --password ${MASK} --port 80`],
  ["flag with =", "run --db-password=hunter2 --port 80", `run --db-password=${MASK} --port 80`],
  [
    "-e on a command line",
    "docker run -e PLAIN=abc -e B='c d' img",
    `docker run -e PLAIN=${MASK} -e B='${MASK}' img`,
  ],
  [
    "--env, quoted whole",
    'docker run --env "PLAIN=a b" img',
    `docker run --env "PLAIN=${MASK}" img`,
  ],
  ["numeric password", "password=12345678", `password=${MASK}`],
  [
    "log line",
    "12:00 INFO login user=bob password=hunter2 ok",
    `12:00 INFO login user=bob password=${MASK} ok`,
  ],
  ["PEM", ["a", ...PEM(), "b"].join("\n"), ["a", PEM()[0], MASK, PEM().at(-1), "b"].join("\n")],
  [
    "PEM, PKCS 8, CRLF",
    [...PEM(""), "b"].join("\r\n"),
    [PEM("")[0], MASK + "\r", PEM("").at(-1) + "\r", "b"].join("\n").replace(
      "KEY-----\n[",
      "KEY-----\r\n[",
    ),
  ],
  [
    "PEM, indented",
    ["k: |", ...PEM().map((l) => "  " + l), "x: 1"].join("\n"),
    ["k: |", "  " + PEM()[0], MASK, PEM().at(-1), "x: 1"].join("\n"),
  ],
  [
    "PEM, prefixed",
    PEM().map((l) => "web_1  | " + l).join("\n") + "\nweb_1  | up",
    `web_1  | ${PEM()[0]}\n${MASK}\n${PEM().at(-1)}\nweb_1  | up`,
  ],
  [
    "PEM in JSON",
    JSON.stringify({ key: PEM().join("\n") + "\n", n: 1 }),
    `{"key":"${PEM()[0]}${MASK}${PEM().at(-1)}\\n","n":1}`,
  ],
  [
    "PEM without end",
    [...PEM().slice(0, 3), "-- next --"].join("\n"),
    [PEM()[0], MASK, "-- next --"].join("\n"),
  ],
  [
    "PEM, encrypted",
    [PEM()[0], "Proc-Type: 4,ENCRYPTED", "", ...PEM().slice(1)].join("\n"),
    [PEM()[0], MASK, PEM().at(-1)].join("\n"),
  ],
];

for (const [name, text, want] of CREDENTIALS) {
  Deno.test(`a credential is masked: ${name}`, () => {
    assertEquals(masked(shapes, text), want);
    assertEquals(masked(shapes, `${text}\n`), `${want}\n`);
    for (const size of [1, 2, 3, 7, 16]) {
      assertEquals(masked(shapes, text, size), want, `by ${size}`);
    }
  });
}

/** What programs print every day. */
const INNOCENT = [
  "",
  "done",
  "no newline at the end: token",
  "SyntaxError: Unexpected token: }",
  "error: unexpected token ';' at line 3",
  "tokens: 4096, max_tokens=512, token_count: 12",
  "PASS: test-one\n--- PASS: TestTwo (0.00s)\nok  \tpkg\t0.1s\npass 12, fail 0, pass: 12",
  "the tokenizer reads passwords from PASSWORD_FILE=/run/secrets/db",
  "password: \npassword=\nPASSWORD=${DB_PASSWORD}\nsecret: <none>\ntoken: null",
  "PWD=/srv/app\nOLDPWD=/\nSSH_AUTH_SOCK=/run/agent",
  "Bearer authentication is required; Basic authentication is not",
  "NAME   IMAGE   STATUS\nweb_1  nginx   Up 2 hours (healthy)  0.0.0.0:80->80/tcp",
  "http://localhost:8080/a@b https://user@host/x git@github.com:a/b.git",
  "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
  "uuid 123e4567-e89b-12d3-a456-426614174000 risk-free task-list sk-1",
  "if (token == other) return; key: value; monkey = banana",
  "secrets:\n  db:\n    file: ./db.txt\nkind: Secret\nsecretName: web",
  "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
  "grep: -----BEGIN PRIVATE KEY-----: no such pattern",
  "eyJhbGciOi is short, and eyJub3RoaW5nIjoxfQ.js is a name",
  "\u00e9\u20ac\ud83d\ude00 \u0000\u001b[31m\r\r\n\n10%\r20%\r",
];

Deno.test("output without secrets comes through byte for byte, however it is cut", () => {
  const known = new Masking([encode(SECRET)]);
  for (const text of [...INNOCENT, INNOCENT.join("\n"), INNOCENT.join(" \n").repeat(30)]) {
    for (const masking of [shapes, known]) {
      for (const size of [1, 5, 1000, Infinity]) {
        if (size === 1 && text.length > 10_000) continue;
        assertEquals(masked(masking, text, size), text, `by ${size}`);
      }
    }
  }
  const bytes = new Uint8Array(300_000);
  crypto.getRandomValues(bytes.subarray(0, 65_536));
  for (let at = 65_536; at < bytes.length; at++) bytes[at] = bytes[at - 65_536] ?? 0;
  const filter = known.filter();
  const out = Buffer.concat([filter.push(bytes).slice(), filter.end(false)]);
  assert(out.equals(Buffer.from(bytes)));
});

Deno.test("masking gives the same however the stream is cut", () => {
  const seed = Date.now() % 1_000_000;
  const next = random(seed);
  const overlapping = ["abcab", "bcabc", "cabca", "aaaa", "aab\nb", SECRET, "one\ntwo three"];
  const masking = new Masking(overlapping.map(encode));
  const parts = [
    ...overlapping,
    ...overlapping.map((s) => s.slice(0, -1)),
    ...CREDENTIALS.map(([, text]) => text),
    ...INNOCENT,
    "a",
    "b",
    "c",
    "\n",
    "\r\n",
    " ",
    "\t",
    '"',
    "=",
    ":",
    "x".repeat(900),
    "password=",
    "-----END",
    "-----BEGIN PRIVATE KEY-----",
    "MIIE".repeat(500),
    "://a:",
    "@",
    "eyJ",
    "Bearer ",
    "\\",
  ];
  for (let i = 0; i < 150; i++) {
    const text = Array.from({ length: 1 + next(14) }, () => parts[next(parts.length)]).join("");
    const whole = masked(masking, text);
    for (const size of [1, 2, 3, 17, 257, 1024, 1 + next(3000)]) {
      if (size < 3 && text.length > 6000) continue;
      assertEquals(masked(masking, text, size), whole, `seed ${seed}, case ${i}, by ${size}`);
    }
    for (const secret of overlapping) {
      assert(!whole.includes(secret), `seed ${seed}, case ${i}: ${JSON.stringify(secret)}`);
    }
  }
});

Deno.test("a known secret is masked in every form that programs print", () => {
  const masking = new Masking([encode(SECRET), encode('quote " and é')]);
  const b64 = (text: string) => Buffer.from(text).toString("base64");
  const rows: [string, string][] = [
    ["itself", SECRET],
    ["hex", Buffer.from(SECRET).toString("hex")],
    ["upper-case hex", Buffer.from(SECRET).toString("hex").toUpperCase()],
    ["base64", b64(SECRET)],
    ["base64url", Buffer.from(SECRET).toString("base64url")],
    ["base64 behind one byte", b64(`:${SECRET}`)],
    ["base64 behind two bytes", b64(`u:${SECRET}`)],
    ["base64 among others", b64(`user:${SECRET}@host`)],
    ["percent", encodeURIComponent(SECRET)],
    ["JSON", JSON.stringify('quote " and é')],
    ["wrapped by a line end", `${SECRET.slice(0, 20)}\n${SECRET.slice(20)}`],
    ["wrapped twice", `${SECRET.slice(0, 9)}\r\n${SECRET.slice(9, 15)}\n${SECRET.slice(15)}`],
    ["base64 in lines", b64(SECRET.repeat(9)).replace(/.{76}/g, "$&\n")],
  ];
  for (const [name, text] of rows) {
    for (const size of [1, 5, Infinity]) {
      const out = masked(masking, `<${text}>`, size);
      // Letters of base64 at the edges belong to the neighbours too.
      assert(out.length <= 64 && out.includes(MASK), `${name} by ${size}: ${out}`);
    }
  }
  for (let at = 1; at < SECRET.length; at++) {
    const out = masked(masking, `<${SECRET.slice(0, at)}\n${SECRET.slice(at)}>`, 4);
    assert(out.length <= MASK.length + 5, `broken at ${at}: ${out}`);
  }
  assertEquals(masked(masking, `a${SECRET}b${SECRET}${SECRET}c`), `a${MASK}b${MASK}c`);
  const nearly = SECRET.slice(0, -1);
  assertEquals(masked(masking, nearly), nearly, "what only begins like one is none");
  assertEquals(secretForms(encode("ab1")).length, 1, "short forms are not looked for");
});

/** Masks a stream the way a run's output goes: raw bytes to file, head and tail. */
function mirrored(
  masking: Masking,
  raw: Uint8Array,
  options: { size: number; cap?: number; complete?: boolean },
): { view: OutputView; file: string } {
  const { size, cap = raw.length, complete = true } = options;
  const parts: Uint8Array[] = [];
  const m = new OutputMirror({
    path: "/nonexistent/never-opened",
    file: "r1.stdout",
    append: (bytes) => void parts.push(bytes.slice()),
    filter: () => masking.filter(),
  });
  const buffer = new Uint8Array(size);
  for (let at = 0; at < cap; at += size) {
    const piece = raw.subarray(at, Math.min(at + size, cap));
    buffer.set(piece);
    m.feed(buffer.subarray(0, piece.length));
  }
  const lost = raw.length > cap;
  const view = m.finish({
    bytes: raw.length,
    file_bytes: cap,
    tail: lost
      ? Buffer.from(raw.subarray(Math.max(0, raw.length - VIEW_BYTES))).toString("base64")
      : "",
    complete,
  });
  return { view, file: Buffer.concat(parts).toString() };
}

function assertUnseen(what: string, { view, file }: { view: OutputView; file: string }): void {
  for (const [where, text] of Object.entries({ head: view.head, tail: view.tail, file })) {
    for (let at = 0; at + 6 <= SECRET.length; at++) {
      const part = SECRET.slice(at, at + 6);
      assert(!text.includes(part), `${what}: ${where} holds ${part}`);
    }
  }
}

Deno.test("a 32-byte secret is masked at every offset around each chunk, head and tail border", () => {
  const masking = new Masking([encode(SECRET)]);
  const total = 3 * VIEW_BYTES + 77;
  const line = "all is well on this line\n";
  const filler = line.repeat(Math.ceil(total / line.length)).slice(0, total);
  // Borders of head and tail, and of the pieces that come in.
  for (const border of [VIEW_BYTES, 2 * VIEW_BYTES, total - VIEW_BYTES]) {
    for (let shift = -33; shift <= 1; shift++) {
      const at = border + shift;
      const raw = encode(filler.slice(0, at) + SECRET + filler.slice(at));
      for (const size of [VIEW_BYTES, raw.length]) {
        const got = mirrored(masking, raw, { size });
        assertUnseen(`at ${at} by ${size}`, got);
        assertEquals(got.file, filler.slice(0, at) + MASK + filler.slice(at));
        assertEquals(got.view.complete, true);
      }
    }
  }
});

Deno.test("a secret on the border of what the file holds is not shown in part", () => {
  const masking = new Masking([encode(SECRET)]);
  const total = 6 * VIEW_BYTES;
  const filler = "all is well on this line\n".repeat(Math.ceil(total / 25)).slice(0, total);
  const cap = 2 * VIEW_BYTES;
  // Where the file ends, and where the recorded tail begins.
  const tail = total + SECRET.length - VIEW_BYTES;
  for (const border of [cap, tail]) {
    for (let shift = -33; shift <= 1; shift++) {
      const at = border + shift;
      const raw = encode(filler.slice(0, at) + SECRET + filler.slice(at));
      assertUnseen(`gap, at ${at}`, mirrored(masking, raw, { size: 4096, cap }));
    }
  }
  // The same in one line without end, where no word can be left out.
  const endless = "x".repeat(total);
  for (let shift = -33; shift <= 1; shift++) {
    for (const at of [cap + shift, tail + shift]) {
      const raw = encode(endless.slice(0, at) + SECRET + endless.slice(at));
      assertUnseen(`endless, at ${at}`, mirrored(masking, raw, { size: 4096, cap }));
    }
  }
  // A short stream of which the file took only part: seen without a gap.
  for (let cut = 10; cut <= 44; cut++) {
    const raw = encode(`0123456789${SECRET}\nend\n`);
    const got = mirrored(masking, raw, { size: 64, cap: cut });
    assertUnseen(`short, cut at ${cut}`, got);
    assertEquals(got.view.head, `0123456789${MASK}\nend\n`);
    assertEquals(got.view.dropped_bytes, 0);
  }
  // A pipe that was cut in the middle of it.
  for (let length = 6; length < SECRET.length; length++) {
    const raw = encode(`x ${SECRET.slice(0, length)}`);
    assertUnseen("cut pipe", mirrored(masking, raw, { size: 64, complete: false }));
  }
});

Deno.test("without secrets a view beyond the file is as exact as before", () => {
  const text = Array.from({ length: 20_000 }, (_, i) => `line ${i}\n`).join("");
  const raw = encode(text);
  const { view, file } = mirrored(shapes, raw, { size: 4096, cap: 50_000 });
  assert(text.startsWith(view.head) && text.endsWith(view.tail) && text.startsWith(file));
  assertEquals(view.bytes, raw.length);
  assertEquals(view.dropped_bytes, raw.length - view.head.length - view.tail.length);
  assert(view.tail.length > VIEW_BYTES - 20 && file.length > 50_000 - 20);
});

Deno.test("the end of a private key after a gap is not shown", () => {
  const text = "x\n".repeat(40_000) + PEM().join("\n") + "\n";
  const raw = encode(text + "y\n".repeat((VIEW_BYTES - 150) / 2));
  const got = mirrored(shapes, raw, { size: 4096, cap: 40_000 });
  assert(got.view.tail.includes("END RSA PRIVATE KEY"), "the tail begins inside the key");
  for (const line of PEM_BODY) assert(!got.view.tail.includes(line.slice(-20)), line);
});

Deno.test("masking costs time in proportion to the stream, whatever is in it (X13)", () => {
  const masking = new Masking([encode(SECRET), encode("a".repeat(200)), encode("ab".repeat(100))]);
  const hostile = [
    "a",
    "eyJ",
    "eyJ ",
    "://a:",
    "password=",
    "token",
    "-----BEGIN ",
    "ghp_",
    '"',
    "\\",
  ];
  hostile.push("AKIA", "key_", "-e A=", "x@", "bearer ", "ab", "secret:\n", "sk-", "api-key-");
  const time = (text: string, bytes: number): number => {
    const piece = encode(text.repeat(Math.ceil(65_536 / text.length))).subarray(0, 65_536);
    const begun = performance.now();
    const filter = masking.filter();
    for (let at = 0; at < bytes; at += piece.length) filter.push(piece);
    filter.end(false);
    return performance.now() - begun;
  };
  for (const text of hostile) {
    time(text, 1 << 16);
    const small = Math.min(time(text, 1 << 18), time(text, 1 << 18));
    const large = Math.min(time(text, 1 << 21), time(text, 1 << 21));
    // Eight times the bytes: far below the 64 times of a quadratic cost.
    assert(large < 24 * small + 100, `${JSON.stringify(text)}: ${small} ms, then ${large} ms`);
  }
});

Deno.test("a value without end is dropped as it comes, and nothing of it is kept", () => {
  const filter = shapes.filter();
  assertEquals(Buffer.from(filter.push(encode("password="))).toString(), "");
  const piece = encode("v".repeat(65_536));
  let out = "";
  for (let i = 0; i < 200; i++) out += Buffer.from(filter.push(piece)).toString();
  out += Buffer.from(filter.push(encode(" end\n"))).toString() + Buffer.from(filter.end(false));
  assert(out.startsWith(`password=${MASK}`), out);
  assert(!out.includes("v"), out.slice(0, 100));
});

Deno.test("lines that have ended are not held back", () => {
  const filter = new Masking([encode(SECRET)]).filter();
  assertEquals(Buffer.from(filter.push(encode("one\ntwo\n"))).toString(), "one\ntwo\n");
  assertEquals(Buffer.from(filter.push(encode("10%\r"))).toString(), "10%\r");
});

Deno.test("names of secrets are told word by word", () => {
  const rows: [string, boolean][] = [
    ["DB_PASSWORD", true],
    ["accessToken", true],
    ["x-api-key", true],
    ["privateKey", true],
    ["clientSecret", true],
    ["AWS_SECRET_ACCESS_KEY", true],
    ["token", true],
    ["tokenizer", false],
    ["PASSWORD_FILE", false],
    ["secretName", false],
    ["public_key", false],
    ["max_tokens", false],
    ["keyboard", false],
    ["access_key_id", false],
    ["compass", false],
    ["", false],
    ["author", false],
  ];
  for (const [name, want] of rows) assertEquals(secretName(name) !== null, want, name);
});

Deno.test("a policy's secrets are its redact list and values whose names say so", () => {
  const parsed = parsePolicy(encode(JSON.stringify({
    agents: { main: { verbs: ["a"] } },
    verbs: {
      a: {
        description: "A.",
        class: "observe",
        argv: ["/usr/bin/true"],
        timeout_s: 1,
        env: { REGISTRY_TOKEN: "tok-tok-tok" },
      },
    },
    env: { PATH: "/usr/bin", APP_PASSWORD: "hunter2", PIN_SECRET: "123" },
    redact: ["four"],
  })));
  assert(parsed.ok);
  assertEquals(policySecrets(parsed.policy).sort(), ["four", "hunter2", "tok-tok-tok"]);
});

Deno.test("KnownSecretsFilter finds every secret of many at once", () => {
  const seed = Date.now() % 1_000_000;
  const next = random(seed);
  for (let round = 0; round < 200; round++) {
    const word = () => Array.from({ length: 1 + next(5) }, () => "ab\n"[next(3)]).join("");
    const secrets = Array.from({ length: 1 + next(4) }, word).filter((s) => /[ab]/.test(s));
    if (secrets.length === 0) continue;
    const text = Array.from({ length: next(40) }, () => "abc"[next(3)]).join("");
    // The plain way: mark every byte that any secret covers.
    const plain = secrets.map((s) => s.replaceAll("\n", ""));
    const covered = new Array<boolean>(text.length).fill(false);
    for (const secret of plain) {
      for (let at = text.indexOf(secret); at >= 0; at = text.indexOf(secret, at + 1)) {
        covered.fill(true, at, at + secret.length);
      }
    }
    let want = "";
    for (let at = 0; at < text.length; at++) {
      if (covered[at] !== true) want += text[at];
      else if (at === 0 || covered[at - 1] !== true) want += MASK;
    }
    const filter = new KnownSecretsFilter(new KnownSecrets(secrets.map(encode)));
    let out = "";
    for (const char of text) out += Buffer.from(filter.push(encode(char))).toString();
    out += Buffer.from(filter.end()).toString();
    assertEquals(out, want, `seed ${seed}: ${JSON.stringify(secrets)} in ${text}`);
  }
});
