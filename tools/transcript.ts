/**
 * The session in the README: `deno run -A tools/transcript.ts` plays it in a temporary bridge and
 * prints what an agent and a human saw, command by command; with `--write` it puts that into the
 * README. What differs from run to run (times, digests, keys' hashes, the host's paths) is replaced
 * by fixed texts; everything else is as it came.
 *
 * @module
 */
import { join } from "node:path";
import { inRepository, QUIET } from "./launcher.ts";

/** The policy of the session. */
export const POLICY = `{
  "agents": { "main": { "verbs": ["version", "restart", "reset-data"], "scope": "destructive" } },
  "verbs": {
    "version": {
      "description": "Which version of the application runs.", "class": "observe", "timeout_s": 10,
      "argv": ["base/version"], "requires": ["base/version"]
    },
    "restart": {
      "description": "Restart one service.", "class": "mutating", "timeout_s": 60, "lock": "stack",
      "argv": ["base/restart", "{service}"], "requires": ["base/restart"],
      "args": { "service": { "type": "enum", "values": ["web", "db"] } }
    },
    "reset-data": {
      "description": "Load the fixtures again.", "class": "destructive", "timeout_s": 60,
      "argv": ["base/reset-data"], "requires": ["base/reset-data"]
    }
  }
}
`;

const SCRIPTS: Readonly<Record<string, string>> = {
  "version": "echo app 1.4.0",
  "restart": 'echo "$1 restarted"',
  "reset-data": "echo fixtures loaded",
};

/** Who types a line: the agent in its sandbox, or a human on the host. */
type Side = "agent" | "host";

const RESET = '$CHB reset-data --intent "fixtures changed" --plan "load those of main"';

/** The lines of the session. Each id and digest is taken from what was printed before. */
const LINES: readonly (readonly [Side, string])[] = [
  ["agent", "$CHB version --wait"],
  ["agent", "$CHB restrat service=web"],
  ["agent", "$CHB restart service='web; rm -rf /' --intent test --wait"],
  ["agent", '$CHB restart service=web --intent "new config" --wait'],
  ["agent", '$CHB restart service=web --intent "new config" --wait'],
  ["agent", RESET],
  ["host", "./bin/chb pending"],
  ["host", "./bin/chb approve main/ID DIGEST"],
  ["agent", `${RESET} --wait`],
  ["host", './bin/chb kill --reason "looking into it"'],
  ["agent", "$CHB version --wait"],
  ["host", "./bin/chb resume"],
  ["host", "./bin/chb audit verify"],
];

interface Ran {
  readonly code: number;
  readonly text: string;
}

async function shell(line: string, cwd: string, env: Record<string, string> = {}): Promise<Ran> {
  const { code, stdout } = await new Deno.Command("/bin/sh", {
    args: ["-c", `exec 2>&1\n${line}`],
    cwd,
    env: { ...QUIET, ...env },
    stdin: "null",
  }).output();
  return { code, text: new TextDecoder().decode(stdout) };
}

async function must(line: string, cwd: string): Promise<string> {
  const { code, text } = await shell(line, cwd, { CHB_INIT_ANYWHERE: "1" });
  if (code !== 0) throw new Error(`${line} exited ${code}: ${text}`);
  return text;
}

/** Makes the bridge of the session. */
async function makeRoot(root: string): Promise<void> {
  const chb = `'${Deno.execPath()}' run -A --no-config '${inRepository("tools/chb.ts")}' --root .`;
  await must(`${chb} init >init.sh 2>err || { cat err; exit 1; }; sh init.sh`, root);
  Deno.writeTextFileSync(join(root, "bridge.jsonc"), POLICY);
  for (const [name, text] of Object.entries(SCRIPTS)) {
    Deno.writeTextFileSync(join(root, "base", name), `#!/bin/sh\n${text}\n`);
    Deno.chmodSync(join(root, "base", name), 0o755);
  }
  await must(`${chb} check && ./bin/chb trust --yes`, root);
}

async function serve(root: string): Promise<Deno.ChildProcess> {
  const daemon = new Deno.Command("./bin/chb", {
    args: ["serve"],
    cwd: root,
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).spawn();
  const decoder = new TextDecoder();
  const reader = daemon.stderr.getReader();
  for (let text = ""; !text.includes("chb: ready");) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`The daemon left: ${text}`);
    text += decoder.decode(value, { stream: true });
  }
  (async () => {
    while (!(await reader.read()).done) { /* discarded */ }
  })().catch(() => {});
  return daemon;
}

/** Waits until a file of the spool says something, as people do who read before they type on. */
async function untilSaid(root: string, file: string, what: RegExp): Promise<void> {
  for (let tries = 0; tries < 600; tries++) {
    try {
      if (what.test(Deno.readTextFileSync(join(root, "spool/main", file)))) return;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`${file} does not say ${what}`);
}

/** What differs from run to run, by fixed texts of the same kind. */
function steady(text: string, root: string): string {
  return text.replaceAll(root, "/home/me/.local/share/chb/app")
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, "2026-01-31T12:00:00.000Z")
    .replace(/(sha256 |head \d+ )[0-9a-f]{64}/g, "$1…")
    .replace(/\b(version-)[0-9a-f]{12}\b/g, "$10a1b2c3d4e5f")
    .replace(/(approve \S+ |\/reset-data-\S+ )[0-9a-f]{12}\b/g, "$16cbaadc17f67")
    .replace(/records 1 to \d+/, "records 1 to 19").replace(/head \d+ /, "head 19 ");
}

/**
 * Plays the session and gives its text. Takes ten seconds; leaves nothing behind.
 *
 * @throws {Error} when a command of the set-up fails
 */
export async function transcript(): Promise<string> {
  const root = Deno.realPathSync(Deno.makeTempDirSync({ prefix: "chb-session-" }));
  let daemon: Deno.ChildProcess | null = null;
  try {
    await makeRoot(root);
    daemon = await serve(root);
    const env = {
      CHB_DIR: join(root, "spool/main"),
      CHB: join(root, "spool/main/inbox/kit/chb-request"),
    };
    const shown: string[] = [];
    let id = "", digest = "";
    for (const [side, line] of LINES) {
      const typed = line.replace("ID", id).replace("DIGEST", digest);
      const ran = await shell(typed.replace(/^\$CHB/, '"$CHB"'), root, side === "agent" ? env : {});
      const text = steady(ran.text, root).trimEnd();
      const code = ran.code === 0 ? [] : [`(exit code ${ran.code})`];
      shown.push([`${side}${steady(`$ ${typed}`, root)}`, ...text.split("\n"), ...code].join("\n"));
      id = /^reset-data-[0-9a-f]+$/m.exec(ran.text)?.[0] ?? id;
      if (line === RESET) await untilSaid(root, `results/${id}.json`, /"approval"/);
      if (line.startsWith("./bin/chb kill")) {
        await untilSaid(root, "inbox/status.json", /"state": ?"killed"/);
      }
      digest = /approve \S+ ([0-9a-f]{12})/.exec(ran.text)?.[1] ?? digest;
    }
    return shown.join("\n\n") + "\n";
  } finally {
    daemon?.kill("SIGTERM");
    await daemon?.status;
    Deno.removeSync(root, { recursive: true });
  }
}

const README = inRepository("README.md");
const BLOCK = /(<!-- session: tools\/transcript\.ts -->\n\n```text\n)([^]*?)(```\n)/;

/** The session as the README has it. */
export function readmeTranscript(): string {
  const found = BLOCK.exec(Deno.readTextFileSync(README))?.[2];
  if (found === undefined) throw new Error("README.md has no session");
  return found;
}

if (import.meta.main) {
  const text = await transcript();
  if (!Deno.args.includes("--write")) console.log(text);
  else {
    const page = Deno.readTextFileSync(README);
    Deno.writeTextFileSync(README, page.replace(BLOCK, (_, head, __, end) => head + text + end));
  }
}
