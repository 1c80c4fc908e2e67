/**
 * What became of one request, in lines for people: its way with times, how it ended, what its
 * command printed last, and what the audit log says of it.
 *
 * @module
 */
import { codeOf } from "../codes.ts";
import type { LightRow, StoredRecord } from "../ledger/types.ts";
import { printable } from "../names.ts";
import { isoTime, type OutputView } from "../result.ts";
import { durationText } from "./report/duration_text.ts";
import { quoted } from "./quoted.ts";

/** Lines of each stream that are shown, the last ones. */
const TAIL_LINES = 20;
/** Longest value of a record's fact, characters. */
const FACT = 60;

/** How it ended, in one line and what the agent was told. */
export function endText(row: LightRow): string {
  const { result } = row;
  const lines: string[] = [];
  const time = (name: string, ms: number | null) => {
    if (ms !== null) lines.push(`${name.padEnd(9)}${isoTime(ms)}`);
  };
  time("received", row.received_ms);
  time("started", row.started_ms);
  time("finished", row.finished_ms);
  const took = result.duration_ms ?? null;
  if (took !== null) lines.push(`took     ${durationText(took)}`);
  if (row.attempt > 1) lines.push(`attempt  ${row.attempt}`);
  if (row.replays > 0) lines.push(`replayed ${row.replays} times`);
  if (row.reason !== null) {
    const exit = result.exit_code ?? null;
    const signal = result.signal ?? null;
    lines.push(
      `code     ${codeOf(row.reason).code} ${row.reason}` +
        (exit === null ? "" : `, the command exited with ${exit}`) +
        (signal === null ? "" : `, ended by ${printable(signal, 20)}`) +
        (result.stage === undefined ? "" : `, at the stage ${result.stage}`),
    );
  }
  let text = lines.map((line) => line + "\n").join("");
  if (result.message !== undefined) {
    const hint = result.hint === undefined ? "" : `\n${result.hint}`;
    text += `the agent was told:\n${quoted(result.message + hint)}`;
  }
  return text + streamText("stdout", result.stdout) + streamText("stderr", result.stderr);
}

/** The end of a stream as the result has it, masked. */
function streamText(name: string, view: OutputView | undefined): string {
  if (view === undefined || view.bytes === 0) return "";
  const kept = view.tail === "" ? view.head : view.tail;
  if (kept === "") return `${name}: ${view.bytes} bytes, their text is gone from the results\n`;
  const lines = kept.replace(/\n$/, "").split("\n");
  const last = lines.slice(-TAIL_LINES);
  const cut = view.dropped_bytes > 0 || last.length < lines.length;
  const file = view.file === null ? "" : `, all of it in results/${printable(view.file, 100)}`;
  return `${name}, ${view.bytes} bytes${cut ? `, the last ${last.length} lines${file}` : ""}:\n` +
    quoted(last.join("\n"));
}

/** The records of a request, one a line, oldest first. */
export function recordsText(records: readonly StoredRecord[], most: number): string {
  if (records.length === 0) return "the audit log has no record of it any more\n";
  const lines = records.map(({ line }) => {
    const { seq, at, event, agent: _agent, id: _id, prev: _prev, hash: _hash, ...rest } = JSON
      .parse(line);
    const facts = Object.entries(rest)
      .filter(([name]) => !/sha256|digest|claim|control|policy|^key$|^note$/.test(name))
      .map(([name, value]) =>
        `${name}=${
          typeof value === "string"
            ? printable(value, FACT)
            : printable(JSON.stringify(value), FACT)
        }`
      );
    return [`  ${seq} ${at} ${event}`, ...facts].join(" ");
  });
  const more = records.length === most ? `  and perhaps more: only ${most} are looked for\n` : "";
  return `in the audit log:\n${lines.join("\n")}\n${more}`;
}
