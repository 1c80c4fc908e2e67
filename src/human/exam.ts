/**
 * What an examination of a root comes to: findings, and what could not be looked at. A check that
 * fails by itself is never taken for one that found nothing.
 *
 * @module
 */
import { errorCode } from "../errors.ts";
import { printable } from "../names.ts";
import type { Finding } from "../spool/types.ts";

/** Something that was not looked at. */
export interface Unchecked {
  readonly check: string;
  readonly why: string;
  /** True when it should have been possible: then the whole is not well either. */
  readonly failed: boolean;
}

/** Collects what the checks find. */
export class Exam {
  readonly findings: Finding[] = [];
  readonly unchecked: Unchecked[] = [];

  /** Runs one check; what it throws is told as something that was not checked. */
  look(check: string, fn: () => readonly Finding[] | void): void {
    try {
      this.findings.push(...fn() ?? []);
    } catch (error) {
      const text = error instanceof Error ? error.message : "unknown";
      const why = printable(errorCode(error) ?? text, 200);
      this.unchecked.push({ check, why, failed: true });
    }
  }

  /** Something that is not looked at, though nothing is wrong with that. */
  leave(check: string, why: string): void {
    this.unchecked.push({ check, why, failed: false });
  }

  /** Something that cannot be looked at because of what was found before. */
  fail(check: string, why: string): void {
    this.unchecked.push({ check, why, failed: true });
  }

  /** True when there is nothing that anybody has to do. */
  get well(): boolean {
    return this.findings.every(({ level }) => level === "note") &&
      this.unchecked.every(({ failed }) => !failed);
  }
}

/** A finding; a command with control characters in it is none that anybody should paste. */
export function found(
  level: Finding["level"],
  check: string,
  path: string,
  message: string,
  mend = "",
): Finding {
  return {
    level,
    check,
    path: printable(path),
    message,
    mend: /\p{Cc}/u.test(mend) ? "" : mend,
  };
}
