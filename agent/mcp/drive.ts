/**
 * Drives an MCP server through the official client, for tests: `drive.ts COMMAND [WORD...]` starts
 * the server and reads one call a line from standard input, as JSON; for each it writes one line
 * with what came of it. `{"list":true}` lists the tools.
 *
 * @module
 */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

/** One call. */
interface Call {
  readonly list?: boolean;
  readonly name?: string;
  readonly args?: Record<string, unknown>;
  /** Milliseconds after which the client gives up by itself. */
  readonly timeout_ms?: number;
  /** Milliseconds after which its person cancels. */
  readonly cancel_ms?: number;
}

const [command = "", ...args] = Deno.args;
const client = new Client({ name: "drive", version: "1" });
await client.connect(new StdioClientTransport({ command, args, stderr: "inherit" }));

async function run(call: Call): Promise<unknown> {
  if (call.list === true) return (await client.listTools()).tools;
  const progress: string[] = [];
  const abort = new AbortController();
  const timer = call.cancel_ms === undefined
    ? undefined
    : setTimeout(() => abort.abort("the person cancelled"), call.cancel_ms);
  try {
    const result = await client.callTool(
      { name: call.name ?? "", arguments: call.args ?? {} },
      undefined,
      {
        timeout: call.timeout_ms ?? 60_000,
        signal: abort.signal,
        onprogress: ({ message }: { message?: string | undefined }) => progress.push(message ?? ""),
      },
    );
    const [content] = result.content as { text?: string }[];
    return { text: content?.text ?? "", error: result.isError === true, progress };
  } catch (error) {
    return { thrown: error instanceof Error ? error.message : String(error), progress };
  } finally {
    clearTimeout(timer);
  }
}

const lines = Deno.stdin.readable.pipeThrough(new TextDecoderStream());
let rest = "";
for await (const chunk of lines) {
  rest += chunk;
  for (let at = rest.indexOf("\n"); at >= 0; at = rest.indexOf("\n")) {
    const line = rest.slice(0, at);
    rest = rest.slice(at + 1);
    console.log(JSON.stringify(await run(JSON.parse(line) as Call)));
  }
}
await client.close();
