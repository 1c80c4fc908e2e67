/**
 * Runs a command of a human's to its end and hands over what it printed, within bounds: for looking
 * at what an engine makes of a file, never for a request.
 *
 * @module
 */
import type { ResolvedCommand } from "../policy/policy.ts";

/** What a command printed. */
export interface Captured {
  readonly code: number;
  readonly stdout: Uint8Array;
}

/** Bounds of a capture. */
export interface CaptureLimits {
  readonly timeout_ms: number;
  /** Bytes of standard output. */
  readonly max_bytes: number;
}

/** True when this process may start the program. */
export function mayRun(program: string): boolean {
  return Deno.permissions.querySync({ name: "run", command: program }).state === "granted";
}

/**
 * Runs a command without standard input; its standard error is dropped.
 *
 * @returns null when it took too long or printed too much; it was ended then
 * @throws a system error when it cannot be started
 */
export async function capture(
  command: ResolvedCommand,
  limits: CaptureLimits,
): Promise<Captured | null> {
  const child = new Deno.Command(command.program, {
    args: [...command.argv],
    clearEnv: true,
    env: { ...command.env },
    cwd: command.cwd,
    stdin: "null",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  let over = false;
  const reader = child.stdout.getReader();
  // Ending the pipe too: a grandchild that keeps it must not keep the human waiting.
  const end = () => {
    over = true;
    try {
      child.kill("SIGKILL");
    } catch {
      // It has ended by itself.
    }
    reader.cancel().catch(() => {});
  };
  const timer = setTimeout(end, limits.timeout_ms);
  try {
    const parts: Uint8Array[] = [];
    let length = 0;
    for (;;) {
      const { value, done } = await reader.read();
      if (done || value === undefined) break;
      length += value.length;
      if (length > limits.max_bytes) {
        end();
        break;
      }
      parts.push(value);
    }
    const { code } = await child.status;
    if (over) return null;
    const stdout = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      stdout.set(part, at);
      at += part.length;
    }
    return { code, stdout };
  } finally {
    clearTimeout(timer);
  }
}
