/**
 * Tells of changed keys: which there are now, and which files are none. The audit log says from when
 * on a key could authenticate somebody; the log of the daemon says what is wrong with a file.
 *
 * @module
 */
import { printable } from "../names.ts";
import type { AuditEvent } from "../ledger/types.ts";
import type { Core } from "./core.ts";

/**
 * Looks at the keys and tells what changed; does nothing where no agent signs.
 *
 * @param record stores an audit record of its own
 */
export function tellKeys(core: Core, record: (event: AuditEvent) => void): void {
  const agents = core.policy()?.agents.values() ?? [];
  if (![...agents].some(({ auth }) => auth === "signed")) return;
  core.keys.refresh();
  const changes = core.keys.takeChanges();
  if (changes === null) return;
  for (const { file, why } of changes.faults) core.log("WARN", "key-unusable", { file, why });
  record({
    event: "keys",
    keys: changes.keys,
    unusable: changes.faults.map(({ file }) => printable(file, 100)),
  });
}
