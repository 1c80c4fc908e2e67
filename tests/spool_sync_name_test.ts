/** Names that sync programs use, and names that only look like them. */
import { assertEquals } from "@std/assert";
import { isSyncName } from "../src/spool/sync_name.ts";

const THEIRS = [
  ".syncthing.r1.json.tmp",
  "~syncthing~r1.json.tmp",
  ".stfolder",
  ".stfolder (1)",
  ".stignore",
  ".stversions",
  ".r1.json.~1a2b",
  "._sync_0a1b2c.db",
  ".sync_0a1b2c.db-wal",
  ".owncloudsync.log",
  ".dropbox",
  ".dropbox.cache",
  ".~lock.r1.json#",
  ".tmp.drivedownload",
  ".tmp.driveupload",
  "~$r1.json",
  ".r1.json.Ab12Cd",
  ".~tmp~",
  ".rsync-partial",
  "r1.json.4f3a2b1c.partial",
  ".unison.r1.json.0123.unison.tmp",
  "r1.json.!sync",
  ".sync",
  "desktop.ini",
  "Thumbs.db",
  ".DS_Store",
];

/** Requests, what writers of requests use, and copies that a human must hear of. */
const OURS = [
  "r1.json",
  "sync.json",
  ".json",
  ".r1.tmp",
  ".request.json.tmp",
  "r1.json.tmp",
  "r1.json~",
  "r1.sync-conflict-20260101-000000-ABCDEFG.json",
  "r1 (conflicted copy).json",
  "syncthing.tmp",
  "r1.json.partial",
  ".hidden",
  "a\n.sync",
];

for (const name of THEIRS) {
  Deno.test(`isSyncName() knows ${name}`, () => assertEquals(isSyncName(name), true));
}

Deno.test("isSyncName() leaves every other name to the bridge", () => {
  for (const name of OURS) assertEquals(isSyncName(name), false, JSON.stringify(name));
});
