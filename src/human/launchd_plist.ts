/**
 * The service for macOS: a property list for launchd. It starts the program where its authority ends
 * and starts it again after a failure; launchd has no confinement to offer beyond that, so there the
 * program's own permissions are the only second wall.
 *
 * @module
 */
import type { UnitFacts } from "./unit_facts.ts";

function text(value: string): string {
  const escaped = value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  return `<string>${escaped}</string>`;
}

/** The whole property list. */
export function launchdPlist(facts: UnitFacts): string {
  const label = `bridge.${facts.name}`;
  return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- chb ${facts.version}. Install: ~/Library/LaunchAgents/${label}.plist, then
     launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/${label}.plist
     bin/chb sha256 ${facts.bin_sha256}
     policy ${facts.policy} -->
<plist version="1.0">
<dict>
  <key>Label</key>${text(label)}
  <key>ProgramArguments</key>
  <array>
    ${text(`${facts.root}/bin/chb`)}
    ${text("serve")}
  </array>
  <!-- where the authority of the program ends -->
  <key>WorkingDirectory</key>${text(facts.root)}
  <key>RunAtLoad</key><true/>
  <!-- again after a failure, at most every ten seconds -->
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ThrottleInterval</key><integer>10</integer>
  <!-- running commands go on without the daemon -->
  <key>AbandonProcessGroup</key><true/>
  <key>Umask</key><integer>63</integer>
  <key>HardResourceLimits</key><dict><key>Core</key><integer>0</integer></dict>
  <key>ProcessType</key>${text("Background")}
  <key>StandardErrorPath</key>${text(`${facts.root}/state/serve.log`)}
</dict>
</plist>
`;
}
