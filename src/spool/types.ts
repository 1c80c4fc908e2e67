/**
 * What the spool hands on: looks, claims and what became of them.
 *
 * @module
 */

/** What `lstat` says of an entry, without opening it. */
export interface Look {
  readonly kind: "file" | "directory" | "symlink" | "other";
  /** Decimal strings: a device or inode number may exceed a safe integer. */
  readonly dev: string;
  readonly ino: string;
  readonly nlink: number;
  readonly uid: number;
  readonly size: number;
  /** Whole seconds only: the runtime gives no more of it. */
  readonly ctime_ms: number;
  readonly mtime_ms: number;
  /** Permission bits, the sticky and set-id bits included. */
  readonly mode: number;
  /** Set for a named pipe, which is an "other". */
  readonly fifo?: true;
}

/** An entry that now lies in `work/<agent>/claims/`, out of every sandbox's reach. */
export interface Claim {
  readonly agent: string;
  /** The name that it had in `queue/`. Hostile text: print it with `printable` only. */
  readonly name: string;
  /** The id when the name is `<id>.json` with a valid id, else null. */
  readonly id: string | null;
  /** Path below the root. */
  readonly path: string;
  /** 32 hex digits, the claim's identity in ledger and audit. */
  readonly random: string;
  /** Earlier of ctime before the rename and first sight, wall clock. */
  readonly arrival_ms: number;
  /** The look after the rename. */
  readonly look: Look;
}

/** What came of the attempt to claim. */
export type ClaimOutcome =
  | { readonly kind: "claimed"; readonly claim: Claim }
  /** Withdrawn by the agent: normal, silent. */
  | { readonly kind: "gone" }
  /** This user cannot move it, or the runtime cannot address it. `error` is a system error code. */
  | { readonly kind: "stuck"; readonly error: string };

/** What came of reading a claim. */
export type ReadOutcome =
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }
  | {
    readonly kind: "refused";
    readonly reason: "not-regular" | "malformed";
    readonly detail: string;
  };

/** What a change event says of an entry of `queue/`. An event is a hint, never a fact. */
export type EntryEvent =
  /** It appeared under this name, empty or not. */
  | "create"
  /** Something of it changed. */
  | "modify"
  /** A writer closed it. */
  | "close"
  /** It got this name by a rename. */
  | "rename"
  /** The name is gone. */
  | "remove";

/** A finding of the start-up checks or of doctor. */
export interface Finding {
  readonly level: "error" | "warning" | "note";
  /** Stable short name, such as `wrong-mode`. */
  readonly check: string;
  /** Path below the root, or "" . */
  readonly path: string;
  readonly message: string;
  /** The command that mends it, to be run in the root; "" when there is none. */
  readonly mend: string;
}
