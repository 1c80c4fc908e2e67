/**
 * The daemon's log: one line `LEVEL event key=value` on standard error, never request content.
 * Values are printable ASCII, quoted when they hold anything but a plain word, so no name from a
 * sandbox can forge a line (P18, Q11).
 *
 * @module
 */
import { printable } from "../names.ts";

export type LogLevel = "DEBUG" | "INFO" | "WARN" | "ERROR";

/** Writes one line. Failures are ignored: the audit log is the record, this is a help (S12). */
export type Log = (level: LogLevel, event: string, fields?: Record<string, unknown>) => void;

const PLAIN = /^[A-Za-z0-9_.:/@+-]+$/;

/** One line of the log, without newline. */
export function logLine(level: LogLevel, event: string, fields: Record<string, unknown>): string {
  let line = `${level} ${event}`;
  for (const [key, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    const text = printable(String(value), 400);
    line += ` ${key}=${PLAIN.test(text) ? text : `"${text.replaceAll('"', '\\"')}"`}`;
  }
  return line;
}

/** A log that writes to standard error. */
export function stderrLog(minimum: LogLevel = "INFO"): Log {
  const order: LogLevel[] = ["DEBUG", "INFO", "WARN", "ERROR"];
  const encoder = new TextEncoder();
  return (level, event, fields = {}) => {
    if (order.indexOf(level) < order.indexOf(minimum)) return;
    try {
      Deno.stderr.writeSync(encoder.encode(logLine(level, event, fields) + "\n"));
    } catch {
      // A closed or full standard error must not stop the daemon (S12).
    }
  };
}
