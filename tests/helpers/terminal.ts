/**
 * A command that asks at a terminal, and somebody who answers.
 *
 * @module
 */

/** What came of it. */
export interface Answered {
  readonly code: number;
  readonly said: string;
}

/** Runs a shell command at a terminal of its own and answers when it asks to type yes. */
export async function answer(
  command: string,
  cwd: string,
  word: string,
  env: Record<string, string> = {},
): Promise<Answered> {
  const child = new Deno.Command("timeout", {
    args: ["120", "script", "-qec", command, "/dev/null"],
    cwd,
    env,
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const writer = child.stdin.getWriter();
  let said = "";
  let answered = false;
  const decoder = new TextDecoder();
  for await (const chunk of child.stdout) {
    said += decoder.decode(chunk, { stream: true });
    if (answered || !said.includes("Type yes:")) continue;
    answered = true;
    await writer.write(new TextEncoder().encode(`${word}\r`));
  }
  await writer.close().catch(() => {});
  return { code: (await child.status).code, said };
}
