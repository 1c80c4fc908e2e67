/**
 * Names that sync programs give to what is their own in a folder that they carry, or not finished.
 * In a synced `queue/` such entries are left alone for ever: to take one away would break the
 * transfer, or be undone from the other side. They never become requests, whose names are
 * `<id>.json`.
 *
 * @module
 */

const SYNC_NAMES: readonly RegExp[] = [
  // Syncthing: transfers, the folder's mark, old versions, patterns.
  /^(?:\.syncthing\.|~syncthing~).*\.tmp$/,
  /^\.st(?:folder(?: \(.*\))?|ignore|versions)$/,
  // Nextcloud and ownCloud: transfers `.name.~1a2b`, journals.
  /^\..*\.~[0-9a-f]+$/,
  /^\.(?:_?sync_[0-9a-f]*\.db|owncloudsync|nextcloudsync).*$/,
  // Dropbox, Google Drive, OneDrive, Seafile.
  /^\.dropbox(?:\.cache|\.attr|\.device)?$/,
  /^\.~.*$/,
  /^\.tmp\.drive(?:down|up)load$/,
  /^~\$.*$/,
  /^\.seafile-data$/,
  // rsync `.name.Ab12Cd`, with --delay-updates and --partial-dir; rclone; Unison; Resilio.
  /^\..+\.[A-Za-z0-9]{6}$/,
  /^\.(?:~tmp~|rsync-partial)$/,
  /^.*\.[0-9a-f]{8}\.partial$/,
  /^\.unison\..*$/,
  /^.*\.!sync$/,
  /^\.sync$/,
  // What a desktop at the other end leaves in every folder that it shows.
  /^(?:desktop\.ini|Thumbs\.db|\.DS_Store)$/,
];

/** True for a name that a common sync program gives to what is no finished file of its user. */
export function isSyncName(name: string): boolean {
  return SYNC_NAMES.some((form) => form.test(name));
}
